"""Writes a command's output: rich on a terminal, plain and uncut in a pipe, JSON with `--json`, or into a file.

Agents' and people's words are inert in all of them: no control characters, no escape sequences, no markup.
"""

from __future__ import annotations

import json as jsonlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import isfinite
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO
from uuid import uuid4

from bot.errors import ClarifyBotError
from bot.views import inert
from bot.views.tables import Cell, Part, Table
from core.files import reason, sync

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

# Legal in JSON, but terminals obey them or cannot show them.
_LIVE = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Output:
    """`json`: whether the caller wants JSON. `terminal`: whether a person reads it."""

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self._stdout, self._stderr = sys.stdout, sys.stderr
        self.terminal = self._stdout is not None and self._stdout.isatty()

    def show(self, data: object, *parts: Part) -> None:
        """Print `data` with --json, else `parts`: tables, lines, or cells that differ in a pipe."""
        if self.json:
            self._write_json(data, indent=2)
        elif self.terminal:
            console = self._console()
            with console.capture() as drawn:
                for part in parts:
                    console.print(_drawn(part), soft_wrap=not isinstance(part, Table))
            self._write(self._stdout, drawn.get(), end="")
        else:
            for part in parts:
                self._plain(part)

    def line(self, text: str) -> None:
        """Print lines to stdout, even with --json."""
        self._write(self._stdout, inert.plain(text))

    def json_line(self, data: object) -> None:
        """Print `data` as one line of JSON."""
        self._write_json(data)

    def raw(self, text: str) -> None:
        """Print text that was made inert before, with its own line ends."""
        self._write(self._stdout, text, end="")

    def note(self, text: str) -> None:
        """Print a note for people to stderr."""
        self._write(self._stderr, inert.plain(text))

    def failed(self, code: str, message: str) -> None:
        """Print an error to stderr, and with --json as an object to stdout, too."""
        if self.json:
            self._write_json({"error": {"code": code, "message": message}}, indent=2)
        self.note(f"clarify: {code}: {message}")

    def _plain(self, part: Part) -> None:
        if not isinstance(part, Table):
            self.line(_full(part))
            return
        for row in part.rows:
            self._write(self._stdout, "\t".join(inert.cleaned_line(_full(each)) for each in row))

    def _console(self) -> Console:
        from rich.console import Console  # noqa: PLC0415 - only on a terminal

        return Console(
            file=self._stdout,
            markup=False,
            emoji=False,
            highlight=False,
            force_terminal=self.terminal,
        )

    @staticmethod
    def _write(stream: IO[str] | None, text: str, end: str = "\n") -> None:
        if stream is None:  # it is closed
            return
        coding = getattr(stream, "encoding", None) or "utf-8"
        stream.write(text.encode(coding, "replace").decode(coding) + end)
        stream.flush()

    def _write_json(self, data: object, indent: int | None = None) -> None:
        text = to_json(data, indent)
        try:
            text.encode(getattr(self._stdout, "encoding", None) or "utf-8")
        except UnicodeEncodeError:
            text = to_json(data, indent, ascii_only=True)
        self._write(self._stdout, text)


def counted(number: int, of: str) -> str:
    """Returns `1 receipt`, `2 receipts`."""
    return f"{number:,} {of}" if number == 1 else f"{number:,} {of}s"


def to_json(data: object, indent: int | None = None, *, ascii_only: bool = False) -> str:
    """Returns JSON with all characters escaped that a terminal would obey; NaN and infinity become null."""
    try:
        text = jsonlib.dumps(data, ensure_ascii=ascii_only, indent=indent, allow_nan=False)
    except ValueError:
        text = jsonlib.dumps(_finite(data), ensure_ascii=ascii_only, indent=indent)
    return _LIVE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yields a stream for the new content of `path`, which replaces it only if the block succeeds. Only the owner can read it.

    Raises:
        ClarifyBotError: the disk refused.
    """
    draft = path.with_name(f".{path.name[:200]}.{uuid4().hex}")
    try:
        try:
            with open(draft, "xb", opener=partial(os.open, mode=0o600)) as stream:
                yield stream
            sync(draft)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ClarifyBotError(f"{path} cannot be written: {reason(error)}.") from error


def _finite(data: object) -> object:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not isfinite(data) else data


def _drawn(part: Part) -> RenderableType:
    """Returns one part for rich."""
    if not isinstance(part, Table):
        return _text(_cell(part))
    if not part.rows:
        return _text(Cell(part.empty))
    return _table(part)


def _table(table: Table) -> RenderableType:
    from rich import box  # noqa: PLC0415
    from rich.table import Table as RichTable  # noqa: PLC0415

    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        drawn.add_column(column.name, no_wrap=column.whole, overflow="fold")
    for row in table.rows:
        drawn.add_row(*(_text(_cell(each)) for each in row))
    return drawn


def _text(shown: Cell) -> Text:
    from rich.text import Text  # noqa: PLC0415

    return Text(inert.plain(shown.text), style=shown.style, overflow="fold")


def _cell(value: str | Cell) -> Cell:
    return Cell(value) if isinstance(value, str) else value


def _full(value: str | Cell) -> str:
    """Returns a cell's text for a pipe."""
    shown = _cell(value)
    return shown.text if shown.full is None else shown.full
