from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bot.shell.digests import period_of
from core.errors import BadInput
from tests.unit.bot.shell.shelves import FOLAKE, Place, foreign, ledger_of

PNG = b"\x89PNG\r\n\x1a\n"
NOW = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with closing(Place(tmp_path)) as made:
        yield made


def test_digest_counts_live_and_archived_within_the_span(place: Place) -> None:
    place.ledger.path(5).write_text(ledger_of(5, foreign(5, 1)))
    asked = place.ask(42, "engineer", "architect", "OAuth")
    place.later(minutes=10)
    place.answer(asked, "PKCE", FOLAKE)
    place.archive(42)
    place.ask(43, "qa", "architect", "Data")
    week = place.json("digest")
    assert (week["total"], week["open"], week["answered"], week["answers"]) == (2, 1, 1, 1)
    assert (week["medianSeconds"], week["roundsMax"]) == (600.0, 1)
    assert week["answerers"] == [{"name": "user:slack/T1/U1", "times": 1}]
    assert place.json("digest", "--since", "5000d")["total"] == 3
    assert place.json("digest", "--since", "999999w")["since"] is None


def test_digest_in_a_pipe_says_of_when_and_cuts_nothing(place: Place) -> None:
    topic = "x" * 100
    place.ask(42, "engineer", "architect", topic)
    lines = place.run("digest", "--since", "2d").stdout.splitlines()
    assert lines[0].startswith("Period\t20")
    assert "Asked\t1" in lines
    assert f"Top topics: {topic}\t1" in lines


@pytest.mark.parametrize("span", ["", "7", "-1d", "0d", "1y", "1d" * 3 + "x"])
def test_digest_since_what_is_no_span(place: Place, span: str) -> None:
    done = place.run("digest", f"--since={span}")
    assert (done.exit_code, "BAD_INPUT" in done.stderr) == (2, True)


def test_period_of_a_span_beyond_all_time() -> None:
    assert period_of("999999w", NOW).since is None
    assert period_of("7d", NOW).since == NOW - timedelta(days=7)
    with pytest.raises(BadInput):
        period_of("999999w" * 1000, NOW)


def test_digest_names_what_is_not_counted(place: Place) -> None:
    place.ask(42, "engineer", "architect")
    place.ledger.path(43).write_text("{")
    done = place.run("digest")
    assert (done.exit_code, "Asked\t1" in done.stdout, "issue-43.json" in done.stderr) == (1, True, True)


def test_digest_draws_a_picture_and_says_the_figures_too(place: Place) -> None:
    place.ask(42, "engineer", "architect")
    file = place.root / "week.png"
    done = place.run("digest", "--png", str(file), "--json")
    assert (done.exit_code, '"total": 1' in done.stdout) == (0, True)
    assert file.read_bytes().startswith(PNG)


def test_digest_draws_into_a_folder_that_is_not_there(place: Place) -> None:
    done = place.run("digest", "--png", str(place.root / "no" / "week.png"))
    assert (done.exit_code, "cannot be written" in done.stderr) == (1, True)


def test_only_a_picture_loads_what_draws_it() -> None:
    code = "import sys, bot.cli, bot.shell.digests; print([n for n in ('matplotlib', 'numpy') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
