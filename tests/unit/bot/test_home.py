"""Home tabs in simulated time: what is gathered, who sees what, what is published when, and who is remembered."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bot.errors import SlackUnreachableError
from bot.home import (
    Admitted,
    Gathering,
    HomeTabs,
    KeptAccess,
    Snapshot,
    Viewer,
    Viewers,
    chosen,
)
from bot.oncall.roster import OnDuty, Roster
from bot.people.access import AccessControl, AccessRefusal, Person
from bot.routing import Audience, Audiences
from bot.settings.model import RouteSettings
from bot.slackapi import Later, Never, Outcome, Sent, Unknown
from bot.storage.ledger import DatabaseLedger
from bot.views.codec import HomePress
from bot.views.lists import Chosen, DutyLine, QuestionRow
from core.clarification import Answer, Clarification
from core.clock import SystemClock
from core.errors import NotFound
from core.index import SessionFact
from core.router import Router
from core.summary import Decided, DecidedBy, page_of, summary_of
from tests.kit.builders import ADE as ANSWERER
from tests.kit.builders import ask
from tests.kit.clocks import START, ManualClock
from tests.kit.ledgers import write_records
from tests.unit.bot.judges import RENDERER
from tests.unit.bot.records import ADE, BEA, agent, asked, ready, words


async def inline(work: Callable[..., Any], *arguments: Any) -> Any:
    """In place of a thread: the simulated time stands still meanwhile."""
    return work(*arguments)


class NoLedger(DatabaseLedger):
    """The topics stand in for the questions."""

    def __init__(self) -> None:
        """It has no store."""

    async def find(self, clarification_id: str) -> Clarification:
        raise NotFound(clarification_id)


class OneShift(Roster):
    """`duty` is on call by every policy."""

    def __init__(self) -> None:
        self.duty = OnDuty((), "")

    async def who(self, policy_name: str, *, strict: bool = False) -> OnDuty:
        return self.duty


class Everybody(KeptAccess):
    """Everybody may answer everybody; `unsure` people are not known."""

    def __init__(self) -> None:
        self.unsure: set[str] = set()

    async def admitted(self, person: Person, audiences: Collection[Audience]) -> Admitted:
        if person.user in self.unsure:
            return Admitted(frozenset(), unsure=True)
        return Admitted(frozenset(audiences))


class ViewersInMemory(Viewers):
    """Simulated time does not wait for a disk."""

    def __init__(self) -> None:
        self.kept: dict[str, Viewer] = {}

    async def all(self) -> list[Viewer]:
        return list(self.kept.values())

    @property
    def are_ours(self) -> bool:
        return True

    async def keep(self, viewer: Viewer) -> None:
        self.kept[viewer.user] = viewer

    async def forget(self, users: Collection[str]) -> None:
        for user in users:
            self.kept.pop(user, None)


class Slack:
    """Takes every view, but where `answers` holds something else for a person."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.published: list[tuple[float, str, dict[str, Any]]] = []
        self.answers: dict[str, deque[Outcome]] = defaultdict(deque)

    async def publish(self, user: str, view: dict[str, Any]) -> Outcome:
        self.published.append((self._clock.now().timestamp(), user, view))
        return self.answers[user].popleft() if self.answers[user] else Sent(user, "")

    def times(self, user: str | None = None) -> list[float]:
        return [at for at, who, _ in self.published if user in (None, who)]

    def users(self) -> list[str]:
        return [who for _, who, _ in self.published]

    def last(self, user: str) -> str:
        """All that somebody's tab says now."""
        return words([view for _, who, view in self.published if who == user][-1])


class World:
    """Home tabs with their parties, everything in simulated time."""

    def __init__(self, viewers: Viewers) -> None:
        self.clock = ManualClock()
        self.open: list[Clarification] = []
        self.roster = OneShift()
        self.access = Everybody()
        self.slack = Slack(self.clock)
        self.snapshots = 0
        self.viewers = viewers
        self.home = self.tabs()

    def tabs(self) -> HomeTabs:
        """New ones, as after a restart."""
        return HomeTabs(
            gathering=Gathering(
                index=self.open,
                ledger=NoLedger(),
                sessions=self._sessions,
                roster=self.roster,
                policies=["platform"],
                paged=lambda _: frozenset(),
                shows=lambda _: True,
            ),
            access=self.access,
            renderer=RENDERER,
            send=self.slack.publish,
            viewers=self.viewers,
            clock=self.clock,
        )

    def change(self) -> None:
        """One more question is open."""
        self.open.append(asked(len(self.open) + 1))
        self.home.touch()

    async def _sessions(self) -> Sequence[SessionFact]:
        self.snapshots += 1
        return ()


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """Home tabs at work, in simulated time."""
    monkeypatch.setattr("bot.home.to_thread", inline)
    world = World(ViewersInMemory())
    running = asyncio.create_task(world.home.run())
    yield world
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


VIEWERS = [f"U{n:02d}VIEWER" for n in range(20)]


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


async def test_home_in_a_storm_publishes_at_most_once_per_person_and_second_and_the_last_state(
    world: World,
) -> None:
    for user in VIEWERS:
        await world.home.opened(user)
    for _ in range(600):  # a minute
        world.change()
        await world.clock.advance(0.1)
    storm = len(world.slack.published)
    await world.clock.advance(30)

    for user in VIEWERS:
        assert all(gap >= 1.0 for gap in gaps(world.slack.times(user)))
        assert "My inbox (600)" in world.slack.last(user)
    assert all(gap >= 1 / 1.5 - 1e-6 for gap in gaps(world.slack.times()))
    assert 85 <= storm <= 91  # the pace is used, and kept
    assert world.snapshots <= 125  # twice a second, for all


async def test_home_skips_what_did_not_change(world: World) -> None:
    world.open.append(asked())
    await world.home.opened(ADE)
    await world.clock.advance(5)
    for _ in range(20):
        world.home.touch()
        await world.clock.advance(1)
    await world.home.opened(ADE)
    await world.clock.advance(5)

    assert len(world.slack.published) == 1


async def test_home_follows_a_change_of_shift(world: World) -> None:
    world.roster.duty = OnDuty((ADE,), "", START + timedelta(seconds=60))
    await world.home.opened(ADE)
    await world.clock.advance(30)
    world.roster.duty = OnDuty((BEA,), "", START + timedelta(days=1))
    await world.clock.advance(32)

    assert f"<@{BEA}>" in world.slack.last(ADE)


async def test_home_turns_a_page_and_remembers_it(world: World) -> None:
    world.open.extend(asked(seq) for seq in range(1, 26))
    await world.home.opened(ADE)
    await world.clock.advance(2)
    await world.home.press(HomePress("page", "inbox", 3), Person("", ADE))
    await world.clock.advance(0.1)

    said = world.slack.last(ADE)
    assert "page 3 of 3" in said
    assert "Topic 25" in said
    assert "Topic 20" not in said
    world.change()
    await world.clock.advance(2)
    assert "page 3 of 3" in world.slack.last(ADE)


async def test_home_drops_a_viewer_that_slack_refuses(world: World) -> None:
    refusal = Never("user_not_found", "place")
    world.slack.answers[ADE].append(refusal)
    await world.home.opened(ADE)
    await world.home.opened(BEA)
    await world.clock.advance(5)
    world.change()
    await world.clock.advance(60)

    assert world.slack.users().count(ADE) == 1
    assert "My inbox (1)" in world.slack.last(BEA)
    assert [viewer.user for viewer in await world.viewers.all()] == [BEA]


@pytest.mark.parametrize(
    ("refusal", "seconds"),
    [(Later("ratelimited", 30.0), 30), (Never("invalid_auth", "app"), 60)],
    ids=["limited", "app"],
)
async def test_home_waits_for_everybody_where_slack_refuses_all(
    world: World, refusal: Outcome, seconds: int
) -> None:
    world.slack.answers[ADE].append(refusal)
    await world.home.opened(ADE)
    await world.clock.advance(0.1)
    await world.home.opened(BEA)
    await world.clock.advance(seconds - 1)
    assert world.slack.users() == [ADE]
    await world.clock.advance(3)

    assert sorted(world.slack.users()) == [ADE, ADE, BEA]


async def test_home_tries_again_ever_later_where_the_outcome_is_unknown(world: World) -> None:
    world.slack.answers[ADE].extend([Unknown("timeout")] * 4)
    await world.home.opened(ADE)
    await world.clock.advance(0.1)
    await world.home.opened(BEA)
    await world.clock.advance(120)

    assert gaps(world.slack.times(ADE)) == pytest.approx([2, 4, 8, 16], abs=1.0)
    assert world.slack.times(BEA)[0] - world.slack.times(ADE)[0] < 1.0


async def test_home_asks_again_soon_where_slack_did_not_say_who_somebody_is(world: World) -> None:
    world.open.append(asked())
    world.access.unsure.add(ADE)
    await world.home.opened(ADE)
    await world.clock.advance(1)
    assert "may be incomplete" in world.slack.last(ADE)
    world.access.unsure.clear()
    await world.clock.advance(16)

    assert "My inbox (1)" in world.slack.last(ADE)


async def no_sessions() -> Sequence[SessionFact]:
    return []


def gathering(
    index: Iterable[Clarification] = (), ledger: DatabaseLedger | None = None, **more: Any
) -> Gathering:
    """Of a bot without on-call policies; `more` replaces parts."""
    parts: dict[str, Any] = {
        "sessions": no_sessions,
        "roster": OneShift(),
        "policies": [],
        "paged": lambda _: frozenset(),
        "shows": lambda _: True,
    }
    return Gathering(index=index, ledger=ledger or NoLedger(), **(parts | more))


async def test_answers_are_restored_from_the_records_written_last(
    ledger: DatabaseLedger, tmp_path: Path
) -> None:
    router = Router(ledger, SystemClock(), timedelta(minutes=30), lambda _: None)
    for issue in range(1, 6):
        opened = await router.open(issue, ask(reply_token=f"t{issue}", event_id=f"e{issue}", expires_at=None))
        await router.answer(opened.record.id, lambda _: Answer("yes", "yes"), ANSWERER, opened.record.created)
    write_records(tmp_path, 9, {"id": "CLR-9-001"})
    facts = gathering(ledger=ledger)

    await facts.load_answers()

    assert sorted(row.id for _, row in (await facts.snapshot(1)).answers) == [
        f"CLR-{issue}-001" for issue in range(1, 6)
    ]


async def test_long_questions_are_read_and_known_by_their_topics_where_they_cannot_be(
    ledger: DatabaseLedger,
) -> None:
    long = "Deploy? " * 1000
    opened = await Router(ledger, SystemClock(), timedelta(minutes=30), lambda _: None).open(
        42, ask(question=long)
    )
    known = summary_of(opened.record), summary_of(asked(9))
    found = await gathering(ledger=ledger).whole(page_of(known, 1, 10))
    assert found.items == (opened.record, known[1])


PLANNER = Admitted(frozenset({Audience("planner")}))
NOBODYS = Admitted(frozenset())


def seen(user: str = ADE, admitted: Admitted = PLANNER, **facts: Any) -> Chosen:
    return chosen(Snapshot(1, **facts), user, admitted, {})


def ids(shown: Chosen) -> list[str]:
    return [each.id for each in shown.inbox.items]


@pytest.mark.parametrize(
    ("more", "theirs"),
    [
        ({}, True),
        ({"agent_id": "reviewer", "from_": "reviewer"}, False),
        ({"to": "architect"}, False),  # put to others
        ({"to": "architect", "held_back": True}, True),
        ({"agent_id": "reviewer", "taken_by": ADE}, True),
        ({"agent_id": "reviewer", "handed_to": ADE}, True),
        ({"agent_id": "reviewer", "id": "CLR-42-007", "status": "escalated"}, True),  # paged
    ],
)
def test_inbox_holds_what_somebody_may_answer_or_is_theirs_on_call(
    more: dict[str, Any], theirs: bool
) -> None:
    question = asked(**more)

    shown = seen(questions=[question], paged={"CLR-42-007": frozenset({ADE})})

    assert ids(shown) == ([question.id] if theirs else [])


def test_answers_are_seen_by_who_may_answer_that_agent_or_gave_them() -> None:
    def answer(agent: str, user: str | None) -> tuple[Audience, QuestionRow]:
        decided = Decided("approved", (DecidedBy("user:x", user), DecidedBy("user:y")), "Accept")
        return Audience(agent), QuestionRow(f"CLR-42-00{len(agent)}", agent, "Q?", START, decided)

    answers = (answer("planner", None), answer("reviewer", ADE), answer("ops", BEA))

    assert [each.agent for each in seen(answers=answers).answers.items] == ["planner", "reviewer"]


@pytest.mark.parametrize(
    ("user", "admitted", "paged", "agents", "stranger"),
    [
        (ADE, PLANNER, (), ["planner"], False),
        (ADE, NOBODYS, (), [], True),
        (ADE, NOBODYS, (ADE,), ["planner", "secret"], False),
        (BEA, NOBODYS, (), ["planner", "secret"], False),  # on call
    ],
)
def test_agents_of_others_are_shown_to_who_is_on_call_or_paged_only(
    user: str, admitted: Admitted, paged: tuple[str, ...], agents: list[str], stranger: bool
) -> None:
    shown = seen(
        user,
        admitted,
        questions=[asked(status="escalated")],
        paged={"CLR-42-001": frozenset(paged)},
        agents=(agent("planner", name="Planning"), agent("secret")),
        ready=(ready("planner", "s1", name="Planning"), ready("secret", "s2")),
        duties=(DutyLine("ops", (BEA,)),),
    )
    assert [each.agent for each in shown.agents.items] == agents
    assert [each.agent for each in shown.ready.items] == agents
    assert (shown.stranger, shown.duty.total) == (stranger, 1)
    assert shown.inbox.total == (user == ADE and (bool(paged) or admitted is PLANNER))


PLANNERS = RouteSettings(agent="plan-*", channel="C1", answerers=("U0ADE",))
OTHERS = RouteSettings(channel="C2", answerers=("members",))
PERSON = Person("T1", ADE)


class Gate(AccessControl):
    """Ade may answer in C1; `away`: Slack does not tell."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.away = False

    async def refusal_on(self, person: Person, route: RouteSettings) -> AccessRefusal | None:
        self.asked[route.channel] += 1
        if self.away:
            raise SlackUnreachableError("timeout")
        return None if route.channel == "C1" else AccessRefusal("you are not in the channel", ())


class TwoRoutes(Audiences):
    def __init__(self) -> None:
        pass

    def route_of(self, audience: Audience) -> RouteSettings:
        return PLANNERS if fnmatchcase(audience.agent, "plan-*") else OTHERS


class Party:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.gate = Gate()
        self.access = KeptAccess(self.gate, TwoRoutes(), self.clock)

    async def admitted(self) -> Admitted:
        return await self.access.admitted(PERSON, [Audience("plan-a"), Audience("plan-b"), Audience("ops")])


MAY = Admitted(frozenset({Audience("plan-a"), Audience("plan-b")}))


async def test_access_holds_what_is_known_while_slack_is_away_and_asks_seldom() -> None:
    party = Party()
    await party.admitted()
    await party.clock.advance(121)
    party.gate.away = True
    for _ in range(10):
        assert await party.admitted() == MAY

    assert party.gate.asked == {"C1": 2, "C2": 2}


async def test_access_that_is_not_known_is_not_given_and_said() -> None:
    party = Party()
    party.gate.away = True
    assert await party.admitted() == Admitted(frozenset(), unsure=True)
    party.gate.away = False
    assert await party.admitted() == Admitted(frozenset(), unsure=True)
    await party.clock.advance(16)

    assert await party.admitted() == MAY
