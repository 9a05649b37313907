from __future__ import annotations

import pytest

from tests.kit.clocks import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
