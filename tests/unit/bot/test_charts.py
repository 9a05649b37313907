from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bot.charts import draw
from bot.errors import ClarifyBotError
from core.digest import Count, Digest, DigestBuilder

PNG = b"\x89PNG\r\n\x1a\n"
NOW = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)
WEEK = timedelta(days=7)


def _figures(**more: object) -> Digest:
    values = {
        "since": NOW - WEEK,
        "total": 10,
        "open": 1,
        "answered": 2,
        "resolved": 6,
        "escalated": 3,
        "abandoned": 1,
        "answers": 9,
        "median": timedelta(minutes=7),
        "p95": timedelta(hours=2),
        "rounds_mean": 1.25,
        "rounds_max": 3,
        "topics": (Count("OAuth", 4),),
        "askers": (Count("engineer", 8),),
        "answerers": (Count("architect", 5),),
        "routes": (),
        "people": (),
    }
    return Digest(**(values | more))  # type: ignore[arg-type]  # a table of what differs


@pytest.mark.parametrize(
    "name",
    [
        "$\\frac{1}{0}$",
        "日本語" * 40,
        "\x1b[2J\u202e\x00",
        "%s {0}",
    ],
)
def test_draw_takes_every_name_as_it_is(name: str) -> None:
    counts = (Count(name, 4),)
    assert draw(_figures(topics=counts, askers=counts, answerers=counts), WEEK, NOW).startswith(PNG)


def test_draw_shows_what_it_is_given() -> None:
    usual = draw(_figures(), WEEK, NOW)
    for change in ({"median": timedelta(hours=5)}, {"topics": (Count("X", 4),)}):
        assert draw(_figures(**change), WEEK, NOW) != usual, change
    assert draw(_figures(), timedelta(days=8), NOW) != usual


def test_draw_nothing() -> None:
    assert draw(DigestBuilder().result(), timedelta(weeks=999_999), NOW).startswith(PNG)


def test_draw_heeds_no_style_file_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("font.size: 40\naxes.titlecolor: red\n")
    code = """
import sys
from bot.charts import draw
from core.digest import DigestBuilder
from datetime import UTC, datetime, timedelta
sys.stdout.buffer.write(draw(DigestBuilder().result(), timedelta(days=7), datetime(2026, 11, 22, 9, tzinfo=UTC)))
"""
    drawn = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=True)
    assert drawn.stdout == draw(DigestBuilder().result(), WEEK, NOW)


def test_draw_without_what_draws_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ClarifyBotError, match=r"pip install 'clarify-bot\[charts\]'"):
        draw(_figures(), WEEK, NOW)
