"""Remembers what is known of an object for as long as it lives, without its having to be hashable."""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class Memo(Generic[_T]):
    """What is known of each of some objects that never change; forgotten with the object."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], _T]] = {}

    def set(self, each: object, what: _T) -> _T:
        """Remember `what` of `each`, and return it."""
        key = id(each)
        known = self._known  # not `self`: what is remembered must not keep its rememberer alive
        self._known[key] = weakref.ref(each, lambda _: known.pop(key, None)), what
        return what

    def get(self, each: object) -> _T | None:
        """What is known of this very object, not of an equal one; None: nothing."""
        found = self._known.get(id(each))
        return found[1] if found is not None and found[0]() is each else None
