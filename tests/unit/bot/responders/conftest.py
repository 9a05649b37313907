from __future__ import annotations

import pytest

from core.dispatch import Inquiry, inquiry_of
from tests.unit.core.records import record

QUESTION = "Which w1re format?"


@pytest.fixture
def inquiry() -> Inquiry:
    return inquiry_of(record(to="architect", question=QUESTION, topic="formats"))
