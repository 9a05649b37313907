from __future__ import annotations

import pytest

from tests.clocks import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
