from __future__ import annotations

import pytest

from core.summary import page_of


@pytest.mark.parametrize(
    ("total", "wanted", "number", "items"),
    [(0, 1, 1, ()), (11, 1, 1, range(10)), (11, 2, 2, [10]), (11, 9, 2, [10]), (11, 0, 1, range(10))],
)
def test_page_is_the_nearest_that_there_is(total: int, wanted: int, number: int, items: range) -> None:
    page = page_of(range(total), wanted, 10)
    assert (page.number, page.total, page.pages) == (number, total, 2 if total > 10 else 1)
    assert page.items == tuple(items)
