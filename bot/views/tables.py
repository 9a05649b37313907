"""What the shell shows: tables, and text that differs on a terminal and in a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cell:
    """`text` for a terminal; `full` for a pipe, if that is more exact (a time, the whole question).

    `style`: a rich style such as "bold red".
    """

    text: str
    full: str | None = None
    style: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """`whole`: its values are short and never wrapped (an id, a status)."""

    name: str
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with a cell for each column. `empty`: the text that a terminal shows if there are no rows."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str | Cell]]
    empty: str = ""


Part = Table | Cell | str
