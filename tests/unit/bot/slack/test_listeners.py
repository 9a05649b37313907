"""`/clarify` with its lists, and Home tabs, through the listeners."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bot.errors import StorageUnavailable
from bot.home import Gathering, HomeTabs, KeptAccess, Viewers, publish
from bot.oncall.roster import OnDuty, Roster
from bot.people import PEOPLE_UNKNOWN, Person
from bot.routing import Audiences
from bot.slack.payloads import Click, Spot
from bot.slackapi import Place
from bot.storage.store import Store
from bot.telemetry import Telemetry
from bot.views.listcodec import ListPress
from bot.views.phrases import BUSY
from bot.workspace import Workspace
from bot.workspace.interactions import Outcome
from bot.workspace.seed import ADE, AGENTS, EVA, FALLBACK, FOLAKE, GIO, ONCALL, RANDOM, TEAM
from bot.workspace.state import View
from core.agents import SessionFact
from core.clarification import Clarification, Holder
from core.clock import SystemClock
from core.index import summarize
from core.ledger import FileLedger
from tests.unit.bot.judges import labels, shown
from tests.unit.bot.slack.conftest import Start
from tests.unit.bot.slack.kit import AGENT, ISSUE, Bot, choices, settings

ON_CALL = f"""
[[on_call]]
name = "platform"
users = ["{ONCALL}"]
[[routes]]
agent = "{AGENT}"
channel = "{AGENTS}"
answerers = ["{FOLAKE}"]
on_call = "platform"
"""


class Crew:
    """A roster and what was handed over."""

    def __init__(self, *users: str) -> None:
        self.users = users
        self.until: datetime | None = None
        self.handed: list[tuple[str, str, datetime, str]] = []

    async def on_call(self, policy_name: str) -> tuple[str, ...]:
        return (await self.who(policy_name)).users

    async def who(self, policy_name: str) -> OnDuty:
        return OnDuty(self.users, "fixed list", self.until)

    async def hand(self, policy: str, user: str, until: datetime, by: str) -> None:
        self.handed.append((policy, user, until, by))


async def command(bot: Bot, text: str, user: str = ADE, channel: str = AGENTS) -> str:
    """Type a command; what the person is told, blocks and all."""
    before = len(bot.ws.ephemerals(user))
    outcome = await bot.ws.command(user, channel, "/clarify", text)
    assert outcome.ok, outcome
    await bot.ws.wait_for(lambda: len(bot.ws.ephemerals(user)) > before, 60)
    return said(bot, user)


def said(bot: Bot, user: str = ADE) -> str:
    last = bot.ws.ephemerals(user)[-1]
    blocks: Any = last.blocks
    return f"{last.text}\n{shown(blocks)}" if blocks else last.text


def buttons(bot: Bot, user: str = ADE) -> list[str]:
    blocks: Any = bot.ws.ephemerals(user)[-1].blocks
    return labels(blocks)


async def press(bot: Bot, label: str, user: str = ADE) -> Outcome:
    return await bot.ws.press_ephemeral(user, bot.ws.ephemerals(user)[-1], label)


@asynccontextmanager
async def locked(bot: Bot) -> AsyncIterator[None]:
    """Somebody else writes to the ledger for long."""
    other, holding, done = FileLedger(bot.ledger.directory), threading.Event(), threading.Event()

    def hold(_: object) -> None:
        holding.set()
        done.wait(30)

    work = asyncio.create_task(other.transact(ISSUE, hold))
    await asyncio.to_thread(holding.wait, 10)
    try:
        yield
    finally:
        done.set()
        await work
        other.close()


async def escalated(bot: Bot, **more: Any) -> Clarification:
    record, _ = await bot.asked(**more)
    return await bot.router.escalate(record.id, "by hand", "Nobody knows.")


async def test_clarify_lists_what_waits_with_links_and_actions(bot: Bot) -> None:
    record, ts = await bot.asked()

    told = await command(bot, "")

    assert "Open questions: 1" in told
    assert "Deploy to production?" in told
    assert f"|{record.id}>" in told
    assert bot.ws.state.permalink(bot.ws.message(AGENTS, ts)) in told
    assert buttons(bot) == ["Answer…", "View full"]


@pytest.mark.parametrize("text", ["", "mine", "stale"])
async def test_nothing_to_list_is_said(bot: Bot, text: str) -> None:
    assert "Nothing" in await command(bot, text)


async def test_help_shows_the_grammar(bot: Bot) -> None:
    told = await command(bot, "help")

    for form in ("/clarify", "#42", "CLR-42-001", "stale", "answer ID text", "resolve ID text",
                 "escalate ID [reason]", "oncall", "help"):  # fmt: skip
        assert form in told
    assert "Example" in await command(bot, "help answer")


async def test_unreadable_word_gets_a_hint_and_stays_inert(bot: Bot) -> None:
    told = await command(bot, "stail <!channel>")

    assert "/clarify stale" in told
    assert "<!channel>" not in bot.ws.ephemerals(ADE)[-1].text


async def test_answer_is_in_the_ledger_when_acknowledged(bot: Bot) -> None:
    record, _ = await bot.asked()

    outcome = await bot.ws.command(ADE, AGENTS, "/clarify", f"answer {record.id} yes")

    assert outcome.ok
    found = await bot.find(record)
    assert found.asked.response is True
    assert found.asked.decided_by == f"user:slack/{TEAM}/{ADE}"
    assert "is answered: “Yes”" in said(bot)


async def test_answer_by_issue_means_its_only_open_question(bot: Bot) -> None:
    record, _ = await bot.asked()

    await command(bot, f"answer #{ISSUE} “yes”")

    assert (await bot.find(record)).asked.response is True


async def test_answer_by_issue_with_several_open_changes_nothing(bot: Bot) -> None:
    records = [(await bot.asked(session_id=f"s{n}", question=f"Question {n}?"))[0] for n in range(2)]

    told = await command(bot, f"answer #{ISSUE} yes")

    assert all(record.id in told for record in records)
    assert all([(await bot.find(record)).is_open for record in records])


async def test_second_answer_is_told_who_was_first(bot: Bot) -> None:
    record, _ = await bot.asked()
    await command(bot, f"answer {record.id} no")

    told = await command(bot, f"answer {record.id} yes", FOLAKE)

    assert f"<@{ADE}>" in told
    assert (await bot.find(record)).asked.response is False
    assert bot.refreshed == [record.id]


async def test_answer_that_does_not_fit_gets_a_hint(bot: Bot) -> None:
    record, _ = await bot.asked(**choices("Staging", "Production"))

    told = await command(bot, f"answer {record.id} the moon")

    assert "number of a choice" in told
    assert (await bot.find(record)).is_open


@pytest.mark.parametrize("verb", ["answer {} yes", "resolve {} yes", "escalate {} why", "abandon {}"])
@pytest.mark.parametrize("user", [GIO, EVA])
async def test_who_may_not_is_told_so(bot: Bot, verb: str, user: str) -> None:
    record, _ = await bot.asked()

    told = await command(bot, verb.format(record.id), user)

    assert "You cannot answer this" in told
    assert (await bot.find(record)).status == "pending"


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ("resolve {} yes", "answered", "is answered: “Yes”"),
        ("escalate {}", "escalated", "is escalated: whoever is on call is paged"),
        ("escalate {} nobody knows", "escalated", "is escalated"),
        ("abandon {}", "abandoned", "is closed without an answer"),
    ],
)
async def test_changes_are_in_the_ledger_when_acknowledged(
    bot: Bot, text: str, status: str, words: str
) -> None:
    record, _ = await bot.asked()

    told = await command(bot, text.format(record.id))

    found = await bot.find(record)
    assert found.status == status
    assert words in told


async def test_escalate_says_who_and_why_in_the_ledger(bot: Bot) -> None:
    record, _ = await bot.asked()

    await command(bot, f"escalate {record.id} nobody <here> knows")

    entry = (await bot.find(record)).thread[-1]
    assert entry.type == "escalation"
    assert entry.from_ == f"user:slack/{TEAM}/{ADE}"
    assert entry.body.startswith("nobody <here> knows\n")
    assert "escalated already" in await command(bot, f"escalate {record.id}")


async def test_abandoned_one_takes_no_answer(bot: Bot) -> None:
    record, _ = await bot.asked()
    await command(bot, f"abandon {record.id} no longer needed")

    assert (await bot.find(record)).thread[-1].body.endswith("no longer needed")
    assert "closed by hand" in await command(bot, f"answer {record.id} yes")


@pytest.mark.parametrize("text", ["CLR-42-009", "answer CLR-42-009 yes", "answer CLR-99-001 yes"])
async def test_unknown_clarification_is_said(bot: Bot, text: str) -> None:
    assert "There is no clarification CLR-" in await command(bot, text)


async def test_p4_busy_ledger_changes_nothing_now_or_later(bot: Bot) -> None:
    record, _ = await bot.asked()

    async with locked(bot):
        told = await command(bot, f"answer {record.id} yes")

    assert BUSY in told
    assert (await bot.find(record)).is_open
    assert all(ack.seconds is not None and ack.seconds < 3 for ack in bot.ws.acks)


async def test_p4_change_is_not_acknowledged_before_it_is_in_the_ledger(bot: Bot) -> None:
    record, _ = await bot.asked()

    async with locked(bot):
        typed = asyncio.create_task(bot.ws.command(ADE, AGENTS, "/clarify", f"answer {record.id} yes"))
        done, _ = await asyncio.wait({typed}, timeout=0.6)  # reading commands would be acknowledged by then
        assert not done

    assert (await typed).ok
    assert (await bot.find(record)).asked.response is True


async def test_p4_slow_look_ups_change_nothing_now_or_later(
    bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.people.LOOK_UPS", 0.8)
    record, _ = await bot.asked()
    for method in ("users.info", "conversations.members"):
        bot.ws.faults.add(method, "delay:1.5", 5)

    told = await command(bot, f"answer {record.id} yes")

    assert "did not say who you are" in told
    await asyncio.wait_for(bot.people.profile(ADE), 60)  # it came, too late for the command
    assert (await bot.find(record)).is_open
    assert [ack for ack in bot.ws.acks if ack.kind == "slash_commands" and (ack.seconds or 9) < 3]


async def test_reading_that_takes_long_is_acknowledged_at_once(bot: Bot) -> None:
    record, _ = await bot.asked()
    bot.ws.faults.add("conversations.members", "delay:1.2")

    told = await command(bot, "")

    assert record.id in told
    (ack,) = [ack for ack in bot.ws.acks if ack.kind == "slash_commands"]
    assert ack.seconds is not None
    assert ack.seconds < 1.0


async def test_issue_shows_open_and_closed_ones(bot: Bot) -> None:
    first, _ = await bot.asked(session_id="s1", question="First?")
    second, _ = await bot.asked(session_id="s2", question="Second?")
    await command(bot, f"answer {first.id} yes")

    told = await command(bot, f"#{ISSUE}")

    assert "2 clarifications, 1 open" in told
    assert told.index(second.id) < told.index(first.id)
    assert f"answered by <@{ADE}>: “Yes”" in told


async def test_one_shows_how_it_stands(bot: Bot) -> None:
    record, _ = await bot.asked()

    told = await command(bot, record.id.lower())

    assert "Deploy to production?" in told
    assert "until" in told


async def test_lists_show_only_what_the_person_could_see(start: Start) -> None:
    bot = await start(more=f'[[routes]]\nagent = "secret-*"\nchannel = "{FALLBACK}"\nanswerers = ["{ADE}"]\n')
    record, _ = await bot.asked(agent_id="secret-planner")

    for text in ("", "mine", "stale", f"#{ISSUE}", "agents", "ready"):
        assert record.id not in await command(bot, text, GIO)
    assert "There is no clarification" in await command(bot, record.id, GIO)
    assert "*Asked*: 0" in await command(bot, "digest", GIO)
    assert record.id in await command(bot, "mine", ADE)
    assert record.id in await command(bot, f"#{ISSUE}", FOLAKE)  # a member of the channel, who may not answer
    assert buttons(bot, FOLAKE) == ["View full"]


async def test_stale_lists_what_was_reminded_of_or_escalated(bot: Bot) -> None:
    fresh, _ = await bot.asked(session_id="s1")
    old = await escalated(bot, session_id="s2", question="Old?")

    told = await command(bot, "stale")

    assert old.id in told
    assert fresh.id not in told


async def test_pages_are_turned_in_place(bot: Bot) -> None:
    for n in range(10):
        await bot.open(session_id=f"s{n}", question=f"Question {n}?")
    told = await command(bot, "")
    assert "Page 1 of 2" in told
    before = len(bot.ws.ephemerals(ADE))

    assert (await press(bot, "Next")).ok

    await bot.ws.wait_for(lambda: "Page 2 of 2" in said(bot))
    assert len(bot.ws.ephemerals(ADE)) == before
    assert "Previous" in buttons(bot)


async def test_row_is_answered_where_the_bot_is_no_member(bot: Bot) -> None:
    record, _ = await bot.asked()
    await command(bot, "mine", channel=RANDOM)

    assert (await press(bot, "Answer…")).ok
    await bot.ws.wait_for(lambda: bot.ws.views(ADE))
    await bot.ws.submit_view(ADE, _only_input(bot, "Yes"))

    assert (await bot.find(record)).asked.response is True


def _only_input(bot: Bot, value: str) -> dict[str, Any]:
    (view,) = bot.ws.views(ADE)
    (block,) = [block for block in view.payload["blocks"] if block["type"] == "input"]
    return {block["block_id"]: value}


async def test_stale_row_tells_through_the_response_url(bot: Bot) -> None:
    record, _ = await bot.asked()
    await command(bot, "mine", channel=RANDOM)
    before = len(bot.ws.ephemerals(ADE))
    await bot.router.abandon(record.id, _decider())

    assert (await bot.ws.press_ephemeral(ADE, bot.ws.ephemerals(ADE)[before - 1], "Answer…")).ok

    await bot.ws.wait_for(lambda: len(bot.ws.ephemerals(ADE)) > before)
    assert "takes no answer any more" in said(bot)
    assert not [call for call in bot.ws.calls if call.method == "chat.postEphemeral"]


def _decider() -> Any:
    from core.clarification import Decider

    return Decider("user:folake", "slack", TEAM, FOLAKE)


async def test_take_in_a_list_is_in_the_ledger_when_acknowledged(bot: Bot) -> None:
    record = await escalated(bot)
    await command(bot, "stale")
    assert "Take" in buttons(bot)

    assert (await press(bot, "Take")).ok

    taken = (await bot.find(record)).asked.taken_by
    assert taken is not None
    assert (taken.user, taken.team) == (ADE, TEAM)
    await bot.ws.wait_for(lambda: "in hand now" in said(bot))
    await command(bot, "stale")
    assert "Take" not in buttons(bot)


async def test_busy_take_is_told_and_not_done_later(bot: Bot) -> None:
    record = await escalated(bot)
    await command(bot, "stale")

    async with locked(bot):
        assert (await press(bot, "Take")).ok

    assert BUSY in said(bot)
    assert (await bot.find(record)).asked.taken_by is None


async def test_who_is_on_call_may_change_what_others_answer(start: Start) -> None:
    bot = await start(more=ON_CALL, roster=Crew(ONCALL))
    record, _ = await bot.asked()

    assert "You cannot answer" in await command(bot, f"answer {record.id} yes", ADE)
    assert "is answered" in await command(bot, f"answer {record.id} yes", ONCALL)


async def test_who_was_paged_may_answer(start: Start) -> None:
    bot = await start(f'["{FOLAKE}"]', paged=lambda _: frozenset({ADE}))
    record, ts = await bot.asked(session_id="s1")
    assert (await bot.ws.click(ONCALL, AGENTS, ts, label="Yes")).ok
    assert (await bot.find(record)).is_open

    assert (await bot.ws.click(ADE, AGENTS, ts, label="Yes")).ok

    assert (await bot.find(record)).asked.response is True


@pytest.mark.parametrize("text", ["oncall", "oncall who", "oncall platform", "oncall who PLATFORM"])
async def test_oncall_says_who(start: Start, text: str) -> None:
    bot = await start(more=ON_CALL, roster=Crew(ONCALL))

    assert f"platform: <@{ONCALL}> (fixed list)" in await command(bot, text)


async def test_oncall_take_does_not_wait_for_long_to_know_whose_turn_it_is(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.people.LOOK_UPS", 0.2)

    class Slow(Crew):
        async def who(self, policy_name: str) -> OnDuty:
            await asyncio.sleep(30)
            return await super().who(policy_name)

    slow = Slow()
    bot = await start(more=ON_CALL, roster=slow)

    assert PEOPLE_UNKNOWN in await command(bot, "oncall take 2h", ADE)
    assert not slow.handed


async def test_oncall_without_policies_says_so(bot: Bot) -> None:
    assert "No on-call policy is configured" in await command(bot, "oncall")


async def test_oncall_unknown_policy_is_suggested(start: Start) -> None:
    bot = await start(more=ON_CALL, roster=Crew(ONCALL))

    assert "Did you mean “platform”?" in await command(bot, "oncall who platfrom")


async def test_oncall_take_lasts_as_said(start: Start) -> None:
    crew = Crew(ONCALL)
    bot = await start(more=ON_CALL, roster=crew)

    told = await command(bot, "oncall take 2h", FOLAKE)

    ((policy, user, until, by),) = crew.handed
    assert (policy, user, by) == ("platform", FOLAKE, FOLAKE)
    assert abs(until - datetime.now(UTC) - timedelta(hours=2)) < timedelta(minutes=1)
    assert "You are on call for platform until" in told


async def test_oncall_hand_tells_the_other(start: Start) -> None:
    crew = Crew(ONCALL)
    crew.until = datetime.now(UTC) + timedelta(hours=5)
    bot = await start(more=ON_CALL, roster=crew)

    told = await command(bot, f"oncall hand <@{ADE}|ade>", ONCALL)

    assert crew.handed == [("platform", ADE, crew.until, ONCALL)]
    assert f"<@{ADE}> is on call for platform" in told
    await bot.ws.wait_for(lambda: bot.ws.direct(ADE))
    assert f"<@{ONCALL}> handed you on-call" in bot.ws.direct(ADE)[-1].text


@pytest.mark.parametrize(
    ("user", "text", "words"),
    [
        (ADE, "oncall take 2h", "You cannot change this"),
        (ONCALL, f"oncall hand <@{GIO}>", "only active, full members"),
        (ONCALL, "oncall hand <@U0GONE>", "only active, full members"),
        (ONCALL, "oncall hand <@U0NOBODY>", "only active, full members"),
    ],
)
async def test_oncall_refuses_aloud(start: Start, user: str, text: str, words: str) -> None:
    crew = Crew(ONCALL)
    bot = await start(more=ON_CALL, roster=crew)

    assert words in await command(bot, text, user)
    assert not crew.handed


async def test_digest_counts(bot: Bot) -> None:
    first, _ = await bot.asked(session_id="s1", topic="deploys")
    await bot.asked(session_id="s2", topic="deploys")
    await command(bot, f"answer {first.id} yes")

    told = await command(bot, "digest 7d")

    assert "Last 7 days" in told
    assert "*Asked*: 2 (0 resolved, 1 answered, 1 open, 0 abandoned)" in told
    assert "*Top topics*: deploys (2)" in told
    assert f"*Answers most*: <@{ADE}> (1)" in told


async def test_agents_and_ready_say_who_waits(bot: Bot) -> None:
    record, _ = await bot.asked()

    agents, ready = await command(bot, "agents"), await command(bot, "ready")

    assert "waiting for a person" in agents
    assert record.id in agents
    assert f"blocked by {record.id}" in ready


async def test_works_in_direct_messages(bot: Bot) -> None:
    record, _ = await bot.asked()
    await bot.web.chat_postMessage(channel=ADE, text="Hello")
    channel = bot.ws.state.direct_message(ADE)
    assert channel is not None

    assert record.id in await command(bot, "", channel=channel.id)


async def test_who_is_handed_on_call_is_so_although_nobody_could_tell_them(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = Crew(ONCALL)
    bot = await start(more=ON_CALL, roster=crew)

    async def fails(*_: object) -> None:
        raise StorageUnavailable

    monkeypatch.setattr(bot.teller, "say", fails)
    told = await command(bot, f"oncall hand <@{ADE}|ade> 2h", ONCALL)

    assert len(crew.handed) == 1
    assert f"<@{ADE}> is on call for platform" in told
    assert "could not be told" in told


async def test_turning_a_page_changes_nothing(bot: Bot) -> None:
    record, _ = await bot.asked()
    person, place = Person(TEAM, ADE), Place(AGENTS)

    click = Click(value="", person=person, place=place, spot=Spot(bot.store.installation))
    await bot.interactions.press_list(ListPress("page", f"answer {record.id} yes", 2), click)
    await bot.later.drain()

    assert (await bot.find(record)).is_open


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
