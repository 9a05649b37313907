from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import pytest

from bot.cli.output import Cell, Column, Output, Table, replacing
from bot.errors import ClarifyBotError

EVIL = "\x1b[31mred\x1b[0m \x9b2J \x07 [red]markup[/red] :bomb: \u202egnp.exe \ud800 tab\there"
COLUMNS = (Column("Id", whole=True), Column("Status", whole=True), Column("Who"), Column("Question"))
LONG = "Should we move the payment tables to another database before the release, or after it?"


def row(question: str = LONG) -> list[str | Cell]:
    who = "a-rather-long-agent-name → another-rather-long-agent-name"
    return ["CLR-42-001", Cell("escalated", style="bold red"), who, Cell(question[:30], question)]


def shown(*parts: Any, width: int = 80, terminal: bool = True, **more: Any) -> str:
    stream = io.StringIO()
    Output(json=False, stdout=stream, terminal=terminal, width=width, **more).show(None, *parts)
    return stream.getvalue()


def bare(text: str) -> str:
    """Without the colours that rich puts in."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_output_on_a_terminal_fits_its_width_and_cuts_nothing_short(width: int) -> None:
    out = bare(shown(Table(COLUMNS, [row("y" * 30)]), width=width))
    assert max(map(len, out.splitlines())) <= width
    assert out.count("y") == 30
    assert "CLR-42-001" in out


def test_output_in_a_pipe_has_one_whole_line_for_each_row() -> None:
    out = shown(Table(COLUMNS, [row(), row("two\nlines\tand a tab")]), terminal=False)
    lines = out.splitlines()
    assert lines[0].split("\t")[3] == LONG
    assert lines[1].split("\t")[3] == "two lines and a tab"


def test_output_says_on_a_terminal_that_there_is_nothing_and_in_a_pipe_nothing() -> None:
    empty = Table(COLUMNS, [], empty="Nothing is open.")
    assert bare(shown(empty)) == "Nothing is open.\n"
    assert shown(empty, terminal=False) == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_output_of_agents_words_is_inert(terminal: bool) -> None:
    out = shown(EVIL, Cell(EVIL, style="bold"), Table(COLUMNS, [row(EVIL)]), terminal=terminal, width=200)
    assert "[red]markup[/red] :bomb:" in bare(out)
    left = bare(out) if terminal else out
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", left)
    assert "\x1b[31m" not in out


def test_output_of_json_is_exact_and_cannot_move_a_terminal() -> None:
    stream = io.StringIO()
    Output(json=True, stdout=stream).show({"body": EVIL, "name": "Jürgen"}, "not this")
    assert json.loads(stream.getvalue()) == {"body": EVIL, "name": "Jürgen"}
    assert "Jürgen" in stream.getvalue()
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", stream.getvalue())


@pytest.mark.parametrize("as_json", [False, True])
def test_output_of_trouble(as_json: bool) -> None:
    stdout, stderr = io.StringIO(), io.StringIO()
    Output(json=as_json, stdout=stdout, stderr=stderr).failed("NOT_FOUND", "There is none \x1b[2J.")
    assert stderr.getvalue() == "clarify: NOT_FOUND: There is none [2J.\n"
    if as_json:
        error = {"code": "NOT_FOUND", "message": "There is none \x1b[2J."}
        assert json.loads(stdout.getvalue()) == {"error": error}
    else:
        assert stdout.getvalue() == ""


@pytest.mark.parametrize("coding", ["ascii", "latin-1"])
def test_output_on_a_terminal_of_few_letters_shows_what_it_can(coding: str) -> None:
    content = io.BytesIO()
    stream = io.TextIOWrapper(content, encoding=coding)
    out = Output(json=False, stdout=stream, terminal=True, width=200)
    out.show(None, Table(COLUMNS, [row("日本 or ü?")]), "engineer → architect")
    said = bare(content.getvalue().decode(coding))
    assert "CLR-42-001" in said
    assert "engineer ? architect" in said


@pytest.mark.parametrize("coding", ["ascii", "utf-8"])
def test_output_is_json_whatever_the_stream_can_write(coding: str) -> None:
    content = io.BytesIO()
    out = Output(json=True, stdout=io.TextIOWrapper(content, encoding=coding))
    out.show({"é日": [float("inf"), 1.5, ("ü", float("nan"))]})
    assert json.loads(content.getvalue()) == {"é日": [None, 1.5, ["ü", None]]}
    assert b"Infinity" not in content.getvalue()


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
