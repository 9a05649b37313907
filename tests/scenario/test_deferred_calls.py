"""`--defer`: Claude Code stops at a call that nobody decided, and its session is resumed. With the real one: see
test_coding_agents.py.
"""

from __future__ import annotations

import json
import shutil
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from tests.kit.served import served
from tests.kit.until import until
from tests.kit.world import World, controls
from tests.scenario.test_hooks import BASH, Hooks, event, press, waiting
from workspace.seed import AGENTS, FOLAKE

USE = "toolu_1"


@pytest.fixture
async def hooks(stage: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hooks]:
    monkeypatch.setenv("CLAUDE_CODE_ENTRYPOINT", "sdk-cli")
    async with stage.bot() as bot:
        yield Hooks(bot)


class Session:
    """A session of Claude Code, with its transcript."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.says(USE)

    def says(self, *uses: str, message: str = "msg_1", version: str = "2.1.332") -> None:
        """The model makes these calls; each is a line of its own, as in Claude Code's transcripts."""
        for use in uses:
            content = [{"type": "tool_use", "id": use, "name": "Bash", "input": BASH}]
            line = {"type": "assistant", "version": version, "message": {"id": message, "content": content}}
            with self.file.open("a") as lines:
                lines.write(json.dumps(line) + "\n")

    def call(self, name: str = "PreToolUse", **fields: Any) -> dict[str, Any]:
        return event(name, **{"tool_use_id": USE, "transcript_path": str(self.file)} | fields)

    @property
    def marks(self) -> list[Path]:
        return list(self.file.parent.glob("*.deferred"))


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path / "abc123.jsonl")


async def started(hooks: Hooks, sent: dict[str, Any], *more: str, timeout: int = 3) -> Process:
    # Long enough for the card to be posted first, also where a process takes seconds to start.
    return await hooks.start(sent, "--defer", "--timeout", str(timeout), *more)


async def decision(process: Process) -> str | None:
    out, err = await process.communicate()
    assert process.returncode == 0, err
    found = json.loads(out)["hookSpecificOutput"] if out else {}
    behavior: str | None = found.get("permissionDecision") or found.get("decision", {}).get("behavior")
    return behavior


async def deferred(stage: World, hooks: Hooks, session: Session) -> Any:
    """The card of a call that was deferred."""
    process = await started(hooks, session.call())
    card = await stage.card("Run a shell command")
    assert await decision(process) == "defer"
    assert "Accept" in controls(stage.workspace.message(AGENTS, card.ts))
    return card


async def ends_unasked(stage: World, process: Process, cards: int) -> None:
    """The hook asks people, who do not answer."""
    await stage.until(lambda: len(stage.cards()) == cards)
    assert process.returncode is None
    process.send_signal(signal.SIGTERM)
    assert await decision(process) == "deny"


@pytest.mark.parametrize(
    ("label", "expected"), [("Accept", "allow"), ("Reject", "deny")], ids=["accepted", "rejected"]
)
async def test_resumed_call_gets_the_answer_once(
    stage: World, hooks: Hooks, session: Session, label: str, expected: str
) -> None:
    card = await deferred(stage, hooks, session)
    await press(stage, card, label)
    await stage.now_says(card, "Not picked up by the agent yet")
    assert await decision(await started(hooks, session.call())) == expected
    assert len(stage.cards()) == 1
    await ends_unasked(stage, await started(hooks, session.call(), timeout=60), cards=2)


@pytest.mark.ci
async def test_answer_of_an_earlier_run_is_not_for_a_call_that_is_deferred_again(
    stage: World, hooks: Hooks, session: Session
) -> None:
    card = await deferred(stage, hooks, session)
    await press(stage, card, "Accept")
    await stage.now_says(card, "Not picked up by the agent yet")
    assert await decision(await started(hooks, session.call())) == "allow"
    assert await decision(await started(hooks, session.call())) == "defer"
    assert len(stage.cards()) == 2
    assert await decision(await started(hooks, session.call())) == "defer"
    assert len(stage.cards()) == 2


async def test_answer_is_handed_to_one_of_two_hooks_that_resume(
    stage: World, hooks: Hooks, session: Session
) -> None:
    await press(stage, await deferred(stage, hooks, session), "Accept")
    both = [await started(hooks, session.call(), timeout=60) for _ in range(2)]
    first = await until(lambda: next((each for each in both if each.returncode is not None), None))
    assert await decision(first) == "allow"
    (other,) = {*both} - {first}
    await ends_unasked(stage, other, cards=2)


@pytest.mark.ci
async def test_session_that_is_restored_does_not_get_a_used_answer_again(
    stage: World, hooks: Hooks, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is as it was when the call was deferred, on this machine or on another one."""
    card = await deferred(stage, hooks, session)
    # The bot, whose database is beside it, is not restored.
    theirs = (each for each in session.file.parent.iterdir() if not each.name.startswith("clarify."))
    kept = {each: each.read_bytes() for each in theirs if each.is_file()}
    assert kept
    await press(stage, card, "Accept")
    await stage.now_says(card, "Not picked up by the agent yet")
    assert await decision(await started(hooks, session.call())) == "allow"
    for file, content in kept.items():
        file.write_bytes(content)
    assert session.marks
    await ends_unasked(stage, await started(hooks, session.call(), timeout=60), cards=2)


async def test_resumed_call_waits_again_and_its_answer_is_used_up(
    stage: World, hooks: Hooks, session: Session
) -> None:
    card = await deferred(stage, hooks, session)
    (mark,) = session.marks
    kept = mark.read_bytes()
    resumed = await started(hooks, session.call(), timeout=60)
    await until(lambda: waiting(stage))
    await press(stage, card, "Accept")
    assert await decision(resumed) == "allow"
    assert not session.marks
    mark.write_bytes(kept)
    await ends_unasked(stage, await started(hooks, session.call(), timeout=60), cards=2)


@pytest.mark.ci
async def test_used_answer_stays_used_when_the_bot_is_started_again(
    stage: World, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CODE_ENTRYPOINT", "sdk-cli")
    async with stage.bot() as bot:
        await press(stage, await deferred(stage, Hooks(bot), session), "Accept")
        (mark,) = session.marks
        kept = mark.read_bytes()
        assert await decision(await started(Hooks(bot), session.call(), timeout=60)) == "allow"
    mark.write_bytes(kept)
    async with stage.bot() as bot:
        await ends_unasked(stage, await started(Hooks(bot), session.call(), timeout=60), cards=2)


@pytest.mark.parametrize("is_answered", [True, False], ids=["answered", "waiting"])
async def test_two_copies_of_a_session_get_one_answer_once(
    stage: World, hooks: Hooks, session: Session, monkeypatch: pytest.MonkeyPatch, *, is_answered: bool
) -> None:
    """Each has its own folder, and its own locks, as on two machines."""
    card = await deferred(stage, hooks, session)
    if is_answered:
        await press(stage, card, "Accept")
        await stage.now_says(card, "Not picked up by the agent yet")
    both = []
    for name in ("one", "other"):
        folder = session.file.parent / name
        folder.mkdir()
        for file in (session.file, *session.marks):
            shutil.copy(file, folder)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        both.append(
            await started(hooks, session.call(transcript_path=str(folder / session.file.name)), timeout=60)
        )
    if not is_answered:
        await until(lambda: waiting(stage) == 2)
        await press(stage, card, "Accept")
    first = await until(lambda: next((each for each in both if each.returncode is not None), None))
    assert await decision(first) == "allow"
    (second,) = {*both} - {first}
    await ends_unasked(stage, second, cards=2)


async def test_answer_that_is_lost_on_its_way_is_asked_for_again(
    stage: World, hooks: Hooks, session: Session
) -> None:
    """No one can tell whether the hook has it."""
    lost: list[str] = []

    async def forwarded(request: web.Request) -> web.Response:
        async with httpx.AsyncClient(base_url=hooks.url, timeout=60) as http:
            body, kind = await request.read(), {"Content-Type": request.content_type}
            reply = await http.request(request.method, str(request.rel_url), content=body, headers=kind)
        if "once" in request.query and reply.json().get("status") == "answered" and not lost:
            lost.append(reply.json()["id"])
            assert request.transport is not None
            request.transport.close()
        return web.Response(status=reply.status_code, text=reply.text, content_type="application/json")

    async with served(forwarded) as url:
        process = await started(hooks, session.call(), "--url", url, timeout=60)
        await press(stage, await stage.card("Run a shell command"), "Accept")
        _, card = await stage.until(lambda: len(stage.cards()) == 2 and stage.cards())
        assert lost == ["CLR-100001-001"]
        await press(stage, card, "Accept")
        assert await decision(process) == "allow"


@pytest.mark.ci
async def test_resumed_call_has_the_edited_input(stage: World, hooks: Hooks, session: Session) -> None:
    card = await deferred(stage, hooks, session)
    await press(stage, card, "Answer…")
    await stage.modal(FOLAKE)
    entered = {"Your decision": "Accept", "command": "npm run lint"}
    assert (await stage.workspace.submit_view(FOLAKE, entered)).ok
    await stage.now_says(card, "Not picked up by the agent yet")
    found = await hooks.decided(await started(hooks, session.call()))
    assert found["updatedInput"] == BASH | {"command": "npm run lint"}


async def test_answer_counts_for_the_very_call_only(stage: World, hooks: Hooks, session: Session) -> None:
    await press(stage, await deferred(stage, hooks, session), "Accept")
    others: tuple[dict[str, Any], ...] = (
        {"tool_input": BASH | {"command": "npm publish"}},
        {"tool_name": "Write"},
        {"session_id": "another"},
        {"tool_use_id": "toolu_2"},
        {"cwd": "/home/me/another"},
        {"permission_mode": "bypassPermissions"},
    )
    (mark,) = session.marks
    kept = mark.read_bytes()
    for cards, other in enumerate(others, 2):
        await ends_unasked(stage, await started(hooks, session.call(**other), timeout=60), cards)
        mark.write_bytes(kept)
    assert await decision(await started(hooks, session.call())) == "allow"


@pytest.mark.ci
async def test_card_that_was_closed_is_no_answer(stage: World, hooks: Hooks, session: Session) -> None:
    await deferred(stage, hooks, session)
    await stage.workspace.command(FOLAKE, AGENTS, "/clarify", "abandon CLR-100001-001 not now")
    await until(lambda: stage.record()["status"] == "abandoned")
    await ends_unasked(stage, await started(hooks, session.call(), timeout=60), cards=2)


@pytest.mark.ci
async def test_end_of_the_session_leaves_the_deferred_card(
    stage: World, hooks: Hooks, session: Session
) -> None:
    card = await deferred(stage, hooks, session)
    await (await hooks.start(session.call("SessionEnd"))).communicate()
    await press(stage, card, "Accept")
    assert await decision(await started(hooks, session.call())) == "allow"


@pytest.mark.ci
async def test_bot_that_is_away_is_asked_when_the_session_is_resumed(
    stage: World, hooks: Hooks, session: Session
) -> None:
    assert await decision(await started(Hooks(), session.call(), timeout=60)) == "defer"
    process = await started(hooks, session.call(), timeout=60)
    await press(stage, await stage.card("Run a shell command"), "Accept")
    assert await decision(process) == "allow"


@pytest.mark.ci
async def test_answer_waits_for_a_bot_that_is_away_when_the_session_is_resumed(
    stage: World, hooks: Hooks, session: Session
) -> None:
    await press(stage, await deferred(stage, hooks, session), "Accept")
    assert await decision(await started(Hooks(), session.call(), timeout=60)) == "defer"
    assert await decision(await started(hooks, session.call(), timeout=60)) == "allow"


async def test_call_that_claude_would_not_defer_is_denied(
    stage: World, hooks: Hooks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would ignore the decision, and might run the tool."""
    processes = []
    for case in ("two calls", "too old", "no transcript", "no such call", "no mark", "terminal"):
        session = Session(tmp_path / f"{case}.jsonl")
        given = session.call(session_id=case)
        if case == "two calls":
            session.says("toolu_2")
        elif case == "too old":
            session.says(USE, version="2.1.88")
        elif case == "no transcript":
            session.file.unlink()
        elif case == "no such call":
            given |= {"tool_use_id": "toolu_9"}
        elif case == "no mark":  # it could not be resumed with its answer: the mark's name would be too long
            given |= {"transcript_path": str(session.file.rename(tmp_path / ("x" * 240)))}
        else:
            monkeypatch.setenv("CLAUDE_CODE_ENTRYPOINT", "cli")
        # Long enough for the card to be posted first.
        processes.append((case, await started(hooks, given, timeout=5)))
        await stage.until(lambda: len(stage.cards()) == len(processes))
    for case, process in processes:
        assert await decision(process) == "deny", case
    for card in stage.cards():
        assert not controls(await stage.now_says(card, "Withdrawn: “no one answered in time”"))


@pytest.mark.ci
async def test_calls_of_other_messages_do_not_count(stage: World, hooks: Hooks, session: Session) -> None:
    session.says("toolu_2", message="msg_2")
    await deferred(stage, hooks, session)


async def test_permission_request_is_never_deferred(stage: World, hooks: Hooks, session: Session) -> None:
    assert await decision(await started(hooks, session.call("PermissionRequest"))) is None


async def test_what_cannot_be_shown_is_denied_for_good(hooks: Hooks, session: Session) -> None:
    """Deferred, it would be deferred for ever."""
    given = session.call(tool_name="ExitPlanMode", tool_input={})
    assert await decision(await started(hooks, given)) == "deny"
