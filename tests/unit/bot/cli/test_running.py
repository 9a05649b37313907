"""Every error code as the shell tells it: an exit code, a line, JSON."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import IO
from unittest import mock

import pytest
from filelock import FileLock

from bot.cli.running import EXIT_CODES, PATIENCE
from bot.storage import sqlite
from bot.storage.opening import open_storage
from bot.storage.sqlite import InSqlite
from core import errors
from tests.kit.ledgers import held
from tests.unit.bot.cli.kit import Prompt, foreign


def engineer(*more: str, to: str = "architect") -> list[str]:
    return ["request", "--from", "engineer", "--to", to, "--issue", "42", *more]


def answered_once(prompt: Prompt) -> None:
    prompt.asked()
    prompt.fine("answer", "42", "PostgreSQL", "--as", "architect")


def twice_round(prompt: Prompt) -> None:
    answered_once(prompt)
    prompt.fine("request", "--follow-up", "CLR-42-001", "Which version?")


def rounds_used_up(prompt: Prompt) -> None:
    twice_round(prompt)
    prompt.fine("answer", "42", "17")


def abandoned(prompt: Prompt) -> None:
    prompt.asked()
    prompt.fine("abandon", "42")


def locked(prompt: Prompt) -> None:
    """Another bot is about to change it (see `held`)."""
    prompt.asked()


def unwritable(prompt: Prompt) -> None:
    with sqlite.transaction(prompt.storage) as tx:
        tx.run("drop table clarifications")


def torn(prompt: Prompt) -> None:
    prompt.asked()
    prompt.tear(42)


def no_database(prompt: Prompt) -> None:
    prompt.storage.write_text("no database")


def nothing(prompt: Prompt) -> None:
    pass


def misconfigured(prompt: Prompt) -> None:
    (prompt.folder / "clarify.toml").write_text("[ledger]\nfolder = 1\n")


def without_address(prompt: Prompt) -> None:
    prompt.configure('[slack]\nfallback_channel = "C1"\n[storage]\nurl_env = "DATABASE"\n')


@pytest.mark.parametrize(
    ("before", "arguments", "code", "words"),
    [
        (nothing, ["show", "CLR-42-001"], "NOT_FOUND", "There is no question CLR-42-001."),
        (nothing, ["show", "42"], "NOT_FOUND", "There is no question of issue 42."),
        (abandoned, ["escalate", "42"], "NOT_FOUND", "no question of issue 42 that is open"),
        (nothing, ["show", "CLR-x"], "BAD_INPUT", "is not a clarification ID; expected the form CLR-42-001."),
        (
            nothing,
            engineer("Why?", to="reviewer"),
            "SCOPE_VIOLATION",
            "engineer may not ask reviewer: its workflow allows only architect, product-manager.",
        ),
        (
            nothing,
            ["request", "--from", "reviewer", "--to", "engineer", "--issue", "42", "Why?"],
            "SCOPE_VIOLATION",
            "reviewer",
        ),
        (
            rounds_used_up,
            ["request", "--follow-up", "CLR-42-001", "And?", "--wait"],
            "MAX_ROUNDS_EXCEEDED",
            "CLR-42-001 has used all 2 rounds and was escalated to on-call.",
        ),
        (Prompt.event, ["answer", "42", "maybe"], "ANSWER_REJECTED", "Reply with yes or no."),
        (
            answered_once,
            ["answer", "CLR-42-001", "MySQL"],
            "ALREADY_ANSWERED",
            "CLR-42-001 was already answered: “PostgreSQL” by agent:architect (just now).",
        ),
        (abandoned, ["answer", "CLR-42-001", "MySQL"], "CLOSED", "Closed without an answer"),
        (abandoned, ["show", "CLR-42-001", "--wait"], "CLOSED", "is closed"),
        (
            twice_round,
            ["answer", "42", "MySQL", "--round", "1"],
            "SUPERSEDED",
            "CLR-42-001 was asked again and is now in round 2.",
        ),
        (
            Prompt.asked,
            ["request", "--follow-up", "CLR-42-001", "And?"],
            "ILLEGAL_TRANSITION",
            "CLR-42-001 is pending. You can ask a follow-up once it is answered.",
        ),
        (
            locked,
            ["answer", "CLR-42-001", "x"],
            "LOCK_TIMEOUT",
            "CLR-42-001 was locked for 0.2 s by",
        ),
        (locked, engineer("Another?"), "LOCK_TIMEOUT", "Issue 42 was locked"),
        (unwritable, engineer("Why?"), "LEDGER_UNWRITABLE", "Nothing was changed"),
        (torn, ["show", "CLR-42-001"], "LEDGER_UNREADABLE", "is not a valid clarification"),
        (torn, ["show", "42"], "LEDGER_UNREADABLE", "CLR-42-001 in the database is not a valid"),
        (
            Prompt.asked,
            ["show", "42", "--wait", "--timeout", "0s"],
            "TIMEOUT",
            "CLR-42-001 has no answer after 0 s",
        ),
        (nothing, engineer("Why?", "--wait", "--timeout", "50ms"), "TIMEOUT", "it stays pending"),
        (no_database, ["list"], "ERROR", "clarify.db cannot be used as storage: file is not a database"),
        (misconfigured, ["list"], "CONFIGURATION", "clarify.toml:2: ledger.folder"),
        (
            without_address,
            ["list"],
            "CONFIGURATION",
            "storage.url_env: DATABASE is not set in the environment",
        ),
        (without_address, ["search", "keys"], "CONFIGURATION", "DATABASE is not set in the environment"),
        (nothing, ["list", "--config", "no.toml"], "CONFIGURATION", "no.toml: no such file"),
    ],
)
def test_trouble_has_a_code_a_line_and_json(
    prompt: Prompt, before: Callable[[Prompt], object], arguments: list[str], code: str, words: str
) -> None:
    before(prompt)
    # Only what meets a lock is impatient: others take as long as a busy machine lets them.
    is_locked = code == "LOCK_TIMEOUT"
    with (
        mock.patch("bot.cli.running.PATIENCE", 0.2 if is_locked else PATIENCE),
        held("CLR-42-001", "issue 42") if is_locked else nullcontext(),
    ):
        said = prompt(*arguments, "--json")
    assert said.json["error"]["code"] == code
    assert words in said.json["error"]["message"]
    assert f"clarify: {code}: " in said.err
    assert said.code == EXIT_CODES.get(code, 1)
    assert "Traceback" not in said.err


def test_trouble_of_a_failed_responder_is_told_when_the_wait_is_over(prompt: Prompt) -> None:
    words = "AGENT_ERROR: architect (command) ended with exit code 3, even when asked twice.\nTopic: t"
    entry = foreign(1)["thread"][0]
    thread = [entry, {**entry, "type": "escalation", "from": "clarify-bot", "body": words}]
    aaep = {"via": "shell", "escalatedFor": "agent failed", "escalatedAt": "2026-05-24T14:25:00Z"}
    prompt.write(7, foreign(1, status="escalated", thread=thread, aaep=aaep))
    said = prompt("show", "7", "--wait", "--timeout", "0s")
    assert said.code == 7
    assert said.err.startswith(
        "clarify: AGENT_ERROR: architect (command) ended with exit code 3, even when asked twice."
    )


def test_trouble_of_every_kind_that_core_knows_has_an_exit_code() -> None:
    kinds = [errors.ClarifyError]
    for kind in kinds:
        kinds += [more for more in kind.__subclasses__() if more.__module__.startswith("core.")]
    others = {"ERROR", "LEDGERS_AWAY", "LEDGER_UNREADABLE", "STATUS_UNAVAILABLE"}  # 1: other trouble
    assert {kind.code for kind in kinds} - EXIT_CODES.keys() == others


def test_presence_of_a_bot_is_its_lock(tmp_path: Path) -> None:
    storage = tmp_path / "clarify.db"
    assert not InSqlite(storage).is_in_use()
    assert not list(tmp_path.iterdir())
    with Path(f"{storage}.lock").open("w") as looking:  # another that looks is no bot
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not InSqlite(storage).is_in_use()
    with FileLock(f"{storage}.lock"):
        assert InSqlite(storage).is_in_use()
    assert not InSqlite(storage).is_in_use()


async def test_presence_looked_for_does_not_keep_a_bot_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = tmp_path / "clarify.db"
    looking: list[IO[str]] = [Path(f"{storage}.lock").open("w")]  # noqa: ASYNC230, SIM115 - closed below
    fcntl.flock(looking[0], fcntl.LOCK_SH)

    class Tried(FileLock):
        """By the second try, whoever looked has gone."""

        def _acquire(self) -> None:
            super()._acquire()
            while looking:
                looking.pop().close()

    monkeypatch.setattr(sqlite, "FileLock", Tried)
    await (await open_storage(storage)).close()
    assert not looking
