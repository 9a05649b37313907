"""What a command shows, before anybody knows where: tables of cells, said twice where a terminal shows less. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cell:
    """`text` for a terminal; `full` for a pipe where that says it more exactly (a time, the whole question).

    `style`: a rich style such as "bold red".
    """

    text: str
    full: str | None = None
    style: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """`whole`: its values are short and never broken into lines (an id, a status)."""

    name: str
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of as many cells as there are columns. `empty`: what is said on a terminal where there are none."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str | Cell]]
    title: str = ""
    empty: str = ""


Part = Table | Cell | str


def cell(value: str | Cell) -> Cell:
    return Cell(value) if isinstance(value, str) else value


def full(value: str | Cell) -> str:
    """What a pipe gets."""
    shown = cell(value)
    return shown.text if shown.full is None else shown.full
