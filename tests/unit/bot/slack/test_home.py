"""The Home tab over Socket Mode: a real workspace, ledger, storage and publisher, in real time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bot.audience import Audiences
from bot.delivery.store import Store
from bot.home import Gathering, HomeTabs, KeptAccess, Viewers, publish
from bot.oncall.roster import OnDuty, Roster
from bot.telemetry import Telemetry
from bot.workspace import Workspace
from bot.workspace.seed import ADE, FOLAKE, GIO, ONCALL
from bot.workspace.state import View
from core.agents import SessionFact
from core.clarification import Clarification, Holder
from core.clock import SystemClock
from core.index import summarize
from tests.unit.bot.judges import labels, shown
from tests.unit.bot.slack.kit import Bot, settings


async def no_sessions() -> Sequence[SessionFact]:
    return ()


class NoorIsOnCall(Roster):
    def __init__(self) -> None:
        pass

    async def who(self, policy_name: str) -> OnDuty:
        return OnDuty((ONCALL,), "rotation")


class AtHome:
    """A bot with Home tabs."""

    def __init__(self, ws: Workspace, folder: Path, store: Store) -> None:
        configured = settings(folder)
        self.ws = ws
        self.bot = Bot(ws, folder / "ledgers", configured, store, home=self._tabs)

    def _tabs(self, bot: Bot) -> HomeTabs:
        clock, audiences = SystemClock(), Audiences(bot.settings)
        self.home = HomeTabs(
            gathering=Gathering(
                index=bot.index,
                ledger=bot.ledger,
                sessions=no_sessions,
                roster=NoorIsOnCall(),
                policies=["platform"],
                paged=lambda _: frozenset(),
                shows=audiences.shows,
            ),
            access=KeptAccess(bot.access, audiences.route_of, clock),
            renderer=bot.renderer,
            send=partial(publish, bot.web, Telemetry(clock)),
            viewers=Viewers(bot.store),
            clock=clock,
        )
        return self.home

    async def ask(self, question: str = "Deploy to production?", **more: Any) -> Clarification:
        record = await self.bot.open(question=question, **more)
        self.home.touch()
        return record

    def changed(self, record: Clarification) -> None:
        """As the wiring does with each change of a ledger."""
        self.bot.index.put(summarize(record))
        self.home.record_changed(record)

    async def until(self, user: str, words: str) -> View:
        """Somebody's tab, once it says `words`."""
        async with asyncio.timeout(60):
            while (view := self.ws.home(user)) is None or words not in shown(view.payload):  # noqa: ASYNC110 - as it comes
                await asyncio.sleep(0.02)
        return view

    async def modal(self, user: str) -> View:
        async with asyncio.timeout(60):
            while not (views := self.ws.views(user)):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)
        return views[-1]


@pytest.fixture
async def at_home(ws: Workspace, tmp_path: Path) -> AsyncIterator[AtHome]:
    (tmp_path / "ledgers").mkdir()
    store = await Store.open(tmp_path / "clarify.db")
    party = AtHome(ws, tmp_path, store)
    await party.bot.start()
    running = asyncio.create_task(party.home.run())
    yield party
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await party.bot.stop()
    await store.close()


async def test_home_shows_what_waits_and_follows_what_happens(at_home: AtHome) -> None:
    await at_home.ask("Deploy to production?")
    await at_home.ws.open_home(ADE)

    view = await at_home.until(ADE, "My inbox (1)")
    said = shown(view.payload)
    assert "Deploy to production?" in said
    assert "Agents (1)" in said
    assert "retirement-planner: waiting for a person (CLR-42-001)" in said
    assert f"<@{ONCALL}>" in said

    await at_home.ask("Which port?")
    await at_home.until(ADE, "Which port?")


async def test_home_is_answered_from(at_home: AtHome) -> None:
    record = await at_home.ask("Which port?", kinds=("freetext",))
    await at_home.ws.open_home(ADE)
    await at_home.until(ADE, "Which port?")

    assert (await at_home.ws.press_home(ADE, "Answer…")).ok
    await at_home.modal(ADE)
    assert (await at_home.ws.submit_view(ADE, {"answer.freetext": "8080"})).ok
    found = await at_home.bot.until_answered(record)
    at_home.changed(found)

    view = await at_home.until(ADE, "Recent answers (1)")
    assert "CLR-42-001 · retirement-planner: Which port? → 8080" in shown(view.payload)
    assert "Nothing waits for you." in shown(view.payload)


async def test_home_shows_a_question_in_full(at_home: AtHome) -> None:
    await at_home.ask("Begin " + "word " * 300 + "end")
    await at_home.ws.open_home(ADE)
    view = await at_home.until(ADE, "My inbox (1)")
    assert "word end" not in shown(view.payload)

    assert (await at_home.ws.press_home(ADE, "View full")).ok

    assert "word end" in shown((await at_home.modal(ADE)).payload)


async def test_home_turns_pages(at_home: AtHome) -> None:
    for n in range(12):
        await at_home.ask(f"Question {n}?", session_id=f"s{n}")
    await at_home.ws.open_home(ADE)
    view = await at_home.until(ADE, "My inbox (12), page 1 of 2")
    assert labels(view.payload).count("Answer…") == 10

    assert (await at_home.ws.press_home(ADE, "home.page.2")).ok

    view = await at_home.until(ADE, "page 2 of 2")
    assert labels(view.payload).count("Answer…") == 2


async def test_home_of_a_guest_shows_nothing_that_is_not_theirs(at_home: AtHome) -> None:
    await at_home.ask("Deploy to production?")
    await at_home.ws.open_home(GIO)

    said = shown((await at_home.until(GIO, "You are not among those who answer agents here.")).payload)
    assert "Deploy to production?" not in said
    assert "retirement-planner" not in said


async def test_home_pressed_after_somebody_else_answered_says_who(at_home: AtHome) -> None:
    record = await at_home.ask(kinds=("freetext",))
    await at_home.ws.open_home(ADE)
    await at_home.until(ADE, "My inbox (1)")
    await at_home.ws.open_home(FOLAKE)
    await at_home.until(FOLAKE, "My inbox (1)")
    await at_home.ws.press_home(FOLAKE, "Answer…")
    await at_home.modal(FOLAKE)
    await at_home.ws.submit_view(FOLAKE, {"answer.freetext": "go"})
    await at_home.bot.until_answered(record)  # and nobody tells the tab

    assert (await at_home.ws.press_home(ADE, "Answer…")).ok

    assert "already answered by @folake" in shown((await at_home.modal(ADE)).payload).lower()


async def test_home_says_what_somebody_took(at_home: AtHome) -> None:
    record = await at_home.ask()
    now = SystemClock().now()
    at_home.changed(await at_home.bot.router.take(record.id, Holder(user=ADE, at=now)))
    await at_home.ws.open_home(ADE)
    await at_home.ws.open_home(FOLAKE)

    assert "You took this" in shown((await at_home.until(ADE, "What I took (1)")).payload)
    assert f"Taken by <@{ADE}>" in shown((await at_home.until(FOLAKE, "My inbox (1)")).payload)


async def test_home_that_slack_lost_is_published_again(at_home: AtHome) -> None:
    await at_home.ws.open_home(ADE)
    await at_home.until(ADE, "My inbox")
    del at_home.ws.state.homes[ADE]
    await at_home.ws.open_home(ADE)

    await at_home.until(ADE, "My inbox")


async def test_home_messages_tab_is_none_of_ours(at_home: AtHome) -> None:
    await at_home.ws.open_home(ADE, "messages")
    await at_home.ws.open_home(FOLAKE)
    await at_home.until(FOLAKE, "My inbox")

    assert at_home.ws.home(ADE) is None


async def test_home_control_of_another_release_brings_the_tab_of_this_one(at_home: AtHome) -> None:
    old: dict[str, Any] = {"type": "plain_text", "text": "Old"}
    button = {"type": "button", "action_id": "home.old.1", "value": "0|old", "text": old}
    await at_home.bot.web.views_publish(
        user_id=ADE, view={"type": "home", "blocks": [{"type": "actions", "elements": [button]}]}
    )

    assert (await at_home.ws.press_home(ADE, "Old")).ok

    await at_home.until(ADE, "My inbox")


async def test_bot_without_home_tabs_acknowledges_that_one_was_opened(
    start: Callable[..., Awaitable[Bot]], ws: Workspace
) -> None:
    await start()
    await ws.open_home(ADE)

    async with asyncio.timeout(60):
        while not any(ack.payload_type == "app_home_opened" and ack.ok for ack in ws.acks):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)
    assert ws.home(ADE) is None
