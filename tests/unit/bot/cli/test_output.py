from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import pytest

from bot.cli.output import Output, replacing
from bot.errors import ClarifyBotError
from bot.views.tables import Cell, Column, Table

EVIL = "\x1b[31mred\x1b[0m \x9b2J \x07 [red]markup[/red] :bomb: \u202egnp.exe \ud800 tab\there"
COLUMNS = (Column("Id", whole=True), Column("Status", whole=True), Column("Who"), Column("Question"))
LONG = "Should we move the payment tables to another database before the release, or after it?"


def row(question: str = LONG) -> list[str | Cell]:
    who = "a-rather-long-agent-name → another-rather-long-agent-name"
    return ["CLR-42-001", Cell("escalated", style="bold red"), who, Cell(question[:30], question)]


class Screen:
    """What standard output and error get."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.err = io.StringIO()

    def output(
        self, *, json: bool = False, width: int = 80, terminal: bool = True, coding: str = "utf-8"
    ) -> Output:
        self._content, self._coding = io.BytesIO(), coding
        stream = io.TextIOWrapper(self._content, encoding=coding)
        self._patch.setattr(stream, "isatty", lambda: terminal)
        self._patch.setattr(sys, "stdout", stream)
        self._patch.setattr(sys, "stderr", self.err)
        self._patch.setenv("COLUMNS", str(width))
        return Output(json=json)

    @property
    def out(self) -> str:
        """Without the colours that rich puts in."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self._content.getvalue().decode(self._coding))

    def shown(self, *parts: Any, **how: Any) -> str:
        self.output(**how).show(None, *parts)
        return self.out


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    return Screen(monkeypatch)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_output_on_a_terminal_fits_its_width_and_cuts_nothing_short(screen: Screen, width: int) -> None:
    out = screen.shown(Table(COLUMNS, [row("y" * 30)]), width=width)
    assert max(map(len, out.splitlines())) <= width
    assert out.count("y") == 30
    assert "CLR-42-001" in out


def test_output_in_a_pipe_has_one_whole_line_for_each_row(screen: Screen) -> None:
    out = screen.shown(Table(COLUMNS, [row(), row("two\nlines\tand a tab")]), terminal=False)
    lines = out.splitlines()
    assert lines[0].split("\t")[3] == LONG
    assert lines[1].split("\t")[3] == "two lines and a tab"


def test_output_says_on_a_terminal_that_there_is_nothing_and_in_a_pipe_nothing(screen: Screen) -> None:
    empty = Table(COLUMNS, [], empty="Nothing is open.")
    assert screen.shown(empty) == "Nothing is open.\n"
    assert screen.shown(empty, terminal=False) == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_output_of_agents_words_is_inert(screen: Screen, terminal: bool) -> None:
    parts = EVIL, Cell(EVIL, style="bold"), Table(COLUMNS, [row(EVIL)])
    out = screen.shown(*parts, terminal=terminal, width=200)
    assert "[red]markup[/red] :bomb:" in out
    assert "[31mred" in out, "without the escape that would make it red"
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", out)


@pytest.mark.parametrize("as_json", [False, True])
def test_output_of_trouble(screen: Screen, as_json: bool) -> None:
    screen.output(json=as_json).failed("NOT_FOUND", "There is none \x1b[2J.")
    assert screen.err.getvalue() == "clarify: NOT_FOUND: There is none [2J.\n"
    error = {"code": "NOT_FOUND", "message": "There is none \x1b[2J."}
    assert (json.loads(screen.out) == {"error": error}) if as_json else screen.out == ""


@pytest.mark.parametrize("coding", ["ascii", "latin-1"])
def test_output_on_a_terminal_of_few_letters_shows_what_it_can(screen: Screen, coding: str) -> None:
    table = Table(COLUMNS, [row("日本 or ü?")])
    out = screen.shown(table, "engineer → architect", coding=coding, width=200)
    assert "CLR-42-001" in out
    assert "engineer ? architect" in out


@pytest.mark.parametrize("coding", ["ascii", "utf-8"])
def test_output_of_json_is_exact_and_cannot_move_a_terminal(screen: Screen, coding: str) -> None:
    screen.output(json=True, coding=coding).show(
        {"é日": [float("inf"), 1.5, ("ü", float("nan"))], "body": EVIL}
    )
    assert json.loads(screen.out) == {"é日": [None, 1.5, ["ü", None]], "body": EVIL}
    assert ("é日" in screen.out) == (coding == "utf-8")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", screen.out)


def _half(stream: BinaryIO, trouble: Exception) -> NoReturn:
    stream.write(b"half")
    raise trouble


def test_replacing_leaves_the_old_file_when_it_goes_wrong(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("old")
    with pytest.raises(RuntimeError), replacing(file) as stream:
        _half(stream, RuntimeError())
    with pytest.raises(ClarifyBotError, match="disk is full"), replacing(file) as stream:
        _half(stream, OSError(28, "No space left on device"))
    assert file.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["f"]
