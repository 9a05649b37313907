from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _on_a_database(_database: None) -> None:
    """As scenarios do, these run on either."""
