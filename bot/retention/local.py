"""Files on this machine that an integration keeps beside the database, for commands that restore and forget. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.storage.tx import Tx


@dataclass(frozen=True, slots=True)
class Erased:
    """What came of erasing. `left`: files that may still hold something, and may not later; `stays`: files that will not be
    touched; `deleted`: how many were deleted whole.
    """

    left: Sequence[str] = ()
    stays: Sequence[str] = ()
    deleted: int = 0


@dataclass(frozen=True, kw_only=True)
class LocalFiles:
    """What a command does with the files of an integration.

    Args:
        first: returns one of them, or None if there are none.
        move_aside: moves all into a new folder of a name beside them; returns that, or None if there were none.
        forgotten: returns, for `erase`, what they may hold of the clarifications with some ids that are forgotten by now.
        erase: removes that from them as far as possible now. `writes`: no bot runs that does it.
    """

    first: Callable[[], Path | None]
    move_aside: Callable[[str], Path | None]
    forgotten: Callable[[Tx, Sequence[str]], Any]
    erase: Callable[..., Erased]
