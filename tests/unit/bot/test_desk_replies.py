from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bot.replies import moment


@pytest.mark.parametrize(
    ("ts", "expected"),
    [
        ("1795300394.867926", datetime(2026, 11, 21, 22, 33, 14, 867926, tzinfo=UTC)),
        ("1795300394", datetime(2026, 11, 21, 22, 33, 14, tzinfo=UTC)),
        ("1795300394.5", datetime(2026, 11, 21, 22, 33, 14, 500000, tzinfo=UTC)),
        ("1795300394.0000019", datetime(2026, 11, 21, 22, 33, 14, 1, tzinfo=UTC)),
    ],
)
def test_moment_of_a_ts(ts: str, expected: datetime) -> None:
    assert moment(ts) == expected


@pytest.mark.parametrize("ts", ["", "soon", "1.2.x"])
def test_moment_of_something_else(ts: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        moment(ts)
