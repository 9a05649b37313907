"""Waiting for an answer, whoever writes it: this process, another one, another implementation."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core import hub as waiting
from core.clarification import Closed, Decider, Superseded
from core.errors import LedgerUnreadable, NotFound
from core.hub import Hub, Request, answer_of
from core.ledger import FileLedger
from tests.clocks import until
from tests.files import replace_text
from tests.unit.core.holding import rival_holds

ROOT = Path(__file__).parents[3]
ID = "CLR-42-001"
ARCHITECT = Decider("agent:architect", "python")
PERSON = Decider("user:os/ade@host", "shell")
REQUEST = Request(42, "engineer", "architect", "storage", "Which database?")
WORKFLOW = '[[steps]]\nagent = "engineer"\ncan_clarify = ["architect"]\n'
LONG = 60.0  # seconds for what is bound to come


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "feature.toml").write_text(WORKFLOW)
    async with Hub.at(tmp_path / "ledgers", tmp_path / "workflows") as made:
        yield made


@pytest.fixture
async def other(hub: Hub, tmp_path: Path) -> AsyncIterator[Hub]:
    """The same ledgers, opened apart."""
    async with Hub.at(tmp_path / "ledgers", tmp_path / "workflows") as made:
        yield made


def path(hub: Hub) -> Path:
    return hub._ledger.path(42)


def write_as_another(hub: Hub, change: Callable[[dict[str, Any]], None]) -> None:
    raw = json.loads(path(hub).read_text())
    change(raw["clarifications"][0])
    replace_text(path(hub), json.dumps(raw))


def entry(kind: str, body: str, by: str = "architect", round: int = 1) -> dict[str, Any]:  # noqa: A002
    return {"round": round, "from": by, "type": kind, "body": body, "timestamp": "2026-05-24T14:22:00Z"}


async def begun(hub: Hub, **more: Any) -> asyncio.Task[str | None]:
    """Somebody waits; what they are told."""

    async def waits() -> str | None:
        answer = answer_of(await hub.wait(ID, LONG, **more), more.get("round"))
        return answer.body if answer else None

    task = asyncio.create_task(waits())
    await until(lambda: hub._changes._waiting)
    return task


async def test_wait_returns_the_answer_that_is_there(hub: Hub) -> None:
    await hub.request(REQUEST)
    await hub.answer(ID, "PostgreSQL", ARCHITECT)
    assert (await hub.wait(ID, 0)).answer is not None


async def test_wait_is_woken_by_a_write_of_another(
    hub: Hub, other: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.hub._LOOK_EVERY", 1000.0)
    await hub.request(REQUEST)
    task = await begun(hub)
    await other.request(REQUEST)  # another clarification of the same ledger
    await other.answer(ID, "PostgreSQL", ARCHITECT)
    assert await task == "PostgreSQL"


async def test_wait_looks_once_for_each_notice(hub: Hub, other: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.hub._LOOK_EVERY", 1000.0)
    await hub.request(REQUEST)
    looks: list[str] = []
    find = FileLedger.find

    async def counted(self: FileLedger, clarification_id: str, issue: int) -> Any:
        looks.append(clarification_id)
        return await find(self, clarification_id, issue)

    monkeypatch.setattr(hub._ledger, "find", counted.__get__(hub._ledger))
    task = await begun(hub)
    await other.request(REQUEST)
    await until(lambda: len(looks) >= 2)
    for _ in range(50):  # as often as it could have looked
        await other.find(ID)
    assert len(looks) < 10
    await other.answer(ID, "PostgreSQL", ARCHITECT)
    assert await task == "PostgreSQL"


@pytest.mark.parametrize("lost", ["never told", "cannot be watched"])
async def test_lost_notice_only_delays(
    hub: Hub, other: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lost: str
) -> None:
    async def awatch(*_: object, **__: object) -> AsyncIterator[set[tuple[int, str]]]:
        if lost == "cannot be watched":
            raise OSError("no space left for watches")
        await asyncio.Event().wait()
        yield set()

    monkeypatch.setattr(waiting, "awatch", awatch)
    monkeypatch.setattr("core.hub._LOOK_EVERY", 0.05)
    await hub.request(REQUEST)
    task = await begun(hub)
    await other.answer(ID, "PostgreSQL", ARCHITECT)
    assert await task == "PostgreSQL"
    assert ("cannot be watched" in caplog.text) == (lost == "cannot be watched")


async def test_wait_goes_on_through_escalation(hub: Hub, other: Hub) -> None:
    await hub.request(REQUEST)
    task = await begun(hub)
    await other.escalate(ID, PERSON)
    with pytest.raises(TimeoutError):
        await hub.wait(ID, 0.05)
    assert not task.done()
    await other.answer(ID, "PostgreSQL", PERSON)
    assert await task == "PostgreSQL"


async def test_wait_for_what_is_closed_without_an_answer(hub: Hub, other: Hub) -> None:
    await hub.request(REQUEST)
    task = await begun(hub)
    await other.abandon(ID, PERSON)
    with pytest.raises(Closed) as caught:
        await task
    assert caught.value.record.status == "abandoned"


@pytest.mark.parametrize(
    ("status", "entries", "told"),
    [
        ("answered", [entry("answer", "PostgreSQL")], "PostgreSQL"),
        ("resolved", [entry("answer", "PostgreSQL")], "PostgreSQL"),
        ("resolved", [entry("answer", "PostgreSQL"), entry("resolution", "Done")], "PostgreSQL"),
        ("resolved", [entry("resolution", "Take PostgreSQL", "human")], "Take PostgreSQL"),
    ],
)
async def test_wait_takes_what_another_implementation_writes(
    hub: Hub, status: str, entries: list[dict[str, Any]], told: str
) -> None:
    await hub.request(REQUEST)
    task = await begun(hub)
    write_as_another(
        hub, lambda record: record.update(status=status, thread=[*record["thread"], *entries], revision=1)
    )
    assert await task == told


async def test_resolved_elsewhere_without_a_word_is_closed(hub: Hub) -> None:
    await hub.request(REQUEST)
    write_as_another(hub, lambda record: record.update(status="resolved"))
    with pytest.raises(Closed):
        await hub.wait(ID, LONG)


async def test_answer_that_was_escalated_again_is_none_yet(hub: Hub) -> None:
    """Another implementation may pass on what was answered: people have the word then."""
    await hub.request(REQUEST)
    thread = [entry("answer", "Ask somebody else"), entry("escalation", "Rounds exhausted")]
    write_as_another(
        hub, lambda record: record.update(status="escalated", thread=[*record["thread"], *thread])
    )
    assert answer_of(await hub.find(ID)) is None
    with pytest.raises(TimeoutError):
        await hub.wait(ID, 0)
    await hub.answer(ID, "PostgreSQL", PERSON)
    assert (await hub.wait(ID, 0)).status == "resolved"


async def test_wait_for_a_round(hub: Hub) -> None:
    await hub.request(REQUEST)
    await hub.answer(ID, "PostgreSQL", ARCHITECT)
    task = await begun(hub, round=2)
    await hub.follow_up(ID, "Which version?")
    assert answer_of(await hub.wait(ID, LONG, round=1), 1) == (await hub.find(ID)).thread[1], "it is over"
    with pytest.raises(TimeoutError):
        await hub.wait(ID, 0.05)
    await hub.answer(ID, "17", ARCHITECT)
    assert await task == "17"
    assert answer_of(await hub.find(ID)) == (await hub.find(ID)).thread[3]
    assert answer_of(await hub.find(ID), 3) is None
    await hub.resolve(ID, "Thanks", PERSON)
    with pytest.raises(Closed):
        await hub.wait(ID, LONG, round=3)


async def test_round_that_another_implementation_left_behind_is_not_waited_for(hub: Hub) -> None:
    await hub.request(REQUEST)
    task = await begun(hub, round=1)
    question = entry("question", "Or rather: which cloud?", "engineer", 2)
    write_as_another(hub, lambda record: record.update(round=2, thread=[*record["thread"], question]))
    with pytest.raises(Superseded):
        await task


async def test_timeout_is_kept_and_nothing_is_left_behind(hub: Hub) -> None:
    await hub.request(REQUEST)
    for timeout in (0, 0.05):
        with pytest.raises(TimeoutError):
            await hub.wait(ID, timeout)
    assert (hub._changes._waiting, hub._changes._watcher) == ({}, None)


async def test_cancelled_wait_leaves_the_others_waiting(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.hub._LOOK_EVERY", 1000.0)
    await hub.request(REQUEST)
    first, second = await begun(hub), await begun(hub)
    await until(lambda: len(hub._changes._waiting) == 2)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await hub.answer(ID, "PostgreSQL", ARCHITECT)
    assert await second == "PostgreSQL"
    assert hub._changes._watcher is None


async def test_wait_that_is_cancelled_while_the_watch_ends_is_cancelled(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending, go_on = asyncio.Event(), asyncio.Event()

    async def awatch(*_: object, **__: object) -> AsyncIterator[set[tuple[int, str]]]:
        try:
            await asyncio.Event().wait()
            yield set()
        finally:
            ending.set()
            await go_on.wait()

    monkeypatch.setattr(waiting, "awatch", awatch)
    await hub.request(REQUEST)
    await hub.answer(ID, "PostgreSQL", ARCHITECT)
    task = asyncio.create_task(hub.wait(ID, LONG))
    await ending.wait()
    task.cancel()
    go_on.set()
    await asyncio.wait([task])
    assert task.cancelled()
    assert hub._changes._waiting == {}


async def test_many_wait_with_one_watcher(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[object] = []
    from watchfiles import awatch

    def counted(*args: Any, **more: Any) -> Any:
        watched.append(args)
        return awatch(*args, **more)

    monkeypatch.setattr(waiting, "awatch", counted)
    ids = [(await hub.request(replace(REQUEST, issue=issue))).id for issue in range(1, 31)]
    tasks = [asyncio.create_task(hub.wait(each, LONG)) for each in ids]
    await until(lambda: len(hub._changes._waiting) == len(ids))
    for each in ids:
        await hub.answer(each, each, ARCHITECT)
    answers = [answer_of(record) for record in await asyncio.gather(*tasks)]
    assert [answer.body for answer in answers if answer] == ids
    assert len(watched) == 1


async def test_wait_does_not_act_on_a_torn_ledger(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.ledger.LOCK_TIMEOUT", 0.1)
    monkeypatch.setattr("core.hub._LOOK_EVERY", 0.05)
    await hub.request(REQUEST)
    before = path(hub).read_bytes()
    looks: list[object] = []
    find = FileLedger.find

    async def counted(self: FileLedger, clarification_id: str, issue: int) -> Any:
        looks.append(clarification_id)
        return await find(self, clarification_id, issue)

    monkeypatch.setattr(FileLedger, "find", counted)
    with rival_holds(path(hub).parent):
        path(hub).write_bytes(before[:100])
        task = await begun(hub)
        await until(lambda: len(looks) >= 3)
        assert not task.done()
        path(hub).write_bytes(before)
    await hub.answer(ID, "PostgreSQL", ARCHITECT)
    assert await task == "PostgreSQL"


async def test_wait_tells_of_a_ledger_that_was_lost(hub: Hub) -> None:
    await hub.request(REQUEST)
    task = await begun(hub)
    await asyncio.sleep(0)
    path(hub).write_bytes(b"{")
    with pytest.raises((LedgerUnreadable, NotFound)):
        await task
    assert list(path(hub).parent.glob("*unreadable*"))


ENGINEER = """
import asyncio, sys
from pathlib import Path
from core.hub import Hub, Request
async def main():
    async with Hub.at(Path(sys.argv[1]), Path(sys.argv[2])) as hub:
        asked = await hub.request(Request(42, "engineer", "architect", "storage", "Which database?"))
        print(asked.id, flush=True)
        print((await hub.wait(asked.id, 60)).answer.body, flush=True)
        again = await hub.follow_up(asked.id, "Which version?")
        print(again.round, flush=True)
        print((await hub.wait(again.id, 60, again.round)).answer.body, flush=True)
asyncio.run(main())
"""


async def test_two_processes_ask_and_answer(hub: Hub, tmp_path: Path) -> None:
    engineer = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-W",
            "error",
            "-c",
            ENGINEER,
            str(tmp_path / "ledgers"),
            str(tmp_path / "workflows"),
        ),
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert engineer.stdout is not None
    try:
        async with asyncio.timeout(60):
            assert await engineer.stdout.readline() == f"{ID}\n".encode()
            await hub.answer(ID, "PostgreSQL", ARCHITECT)
            assert await engineer.stdout.readline() == b"PostgreSQL\n"
            assert await engineer.stdout.readline() == b"2\n"
            await hub.answer(ID, "17", ARCHITECT)
            assert await engineer.stdout.readline() == b"17\n"
            assert await engineer.wait() == 0
    finally:
        if engineer.returncode is None:
            engineer.kill()
            await engineer.wait()
    assert [each.round for each in (await hub.find(ID)).thread] == [1, 1, 2, 2]
