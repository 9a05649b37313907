"""Several people at one approval: accepts, changes of the arguments, rejections and withdrawals in every order, in a real
database, beside a model that knows nothing of core's code.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Container
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bot.storage.ledger import DatabaseLedger
from core.approvals import (
    MOST_REFUSALS,
    OTHERS,
    RISKS,
    accepted,
    bounded,
    check_reason,
    version_of,
    with_refusal,
)
from core.clarification import (
    Answer,
    Ask,
    Clarification,
    Confirmation,
    Decider,
    Direct,
    FourEyes,
    Question,
    Refusal,
    Requester,
    Standing,
)
from core.errors import (
    AnswerRejected,
    ClarifyError,
    ConsentRefused,
    CountsOnce,
    NoRequester,
    NotSeen,
    NotToldApart,
    OwnRequest,
    ReasonWanted,
)
from core.questions import state_of
from core.router import Router
from core.transitions import AlreadyAnswered, ApprovedMeanwhile, ArgumentsChanged, Closed, answered, opened
from tests.kit.builders import MINUTE, NOW, SLA, ask
from tests.kit.clocks import ManualClock
from tests.kit.ledgers import kept_ledger

EXAMPLES = int(os.environ.get("CLARIFY_EXAMPLES", "60"))
_MEMORY = Path("/dev/shm")  # noqa: S108 - where there is one: a disk that others use makes each step wait
ARGUMENTS: dict[str, Any] = {"to": "all", "count": 3, "more": {"x": [1.0, None]}}


@pytest.mark.parametrize(
    ("reason", "counts"),
    [
        ("signed off", True),
        ("CAB-4711, ok", True),
        ("Die Prüfung ist grün :tada:", True),
        ("日本語の理由です、承認", True),
        ("می\u200cخواهم بروم", True),
        (None, False),
        ("fine", False),
        ("  fine\n\n\n\n\n\n\n  ", False),
        ("fine..........", False),
        ("ok __________", False),
        ("ok :white_check_mark: :tada:", False),
        (":white_check_mark:", False),
        (":承認しますありがとう:", False),
        ("👍🏽👍🏽👍🏽👍🏽👍🏽👍🏽👍🏽👍🏽👍🏽👍🏽", False),
        ("👩‍👩‍👧‍👦👩‍👩‍👧‍👦👩‍👩‍👧‍👦 ok", False),
        ("1️⃣2️⃣3️⃣4️⃣5️⃣6️⃣7️⃣8️⃣9️⃣0️⃣", False),
        ("ℹ️ℹ️ℹ️ℹ️ℹ️ℹ️ℹ️ℹ️ℹ️ℹ️", False),
        ("🇳🇬🇳🇬🇳🇬🇳🇬🇳🇬", False),
        ("?!?!?!?!?!?!", False),
        ("- - - - - - -", False),
        ("1234567890", False),
        ("@folake_adeyemi", False),
        ("@channel @here (@ade)", False),
        ("#announcements", False),
        ("\u200b" * 20, False),
        ("ok" + "\u2060" * 20, False),
        ("\u3164" * 20, False),
        ("\u2800" * 20, False),
    ],
)
def test_reason_counts_by_what_it_says_in_words(reason: str | None, counts: bool) -> None:
    wanted = Question(kinds=("confirmation",), action="Deploy", reason_wanted=True)
    with nullcontext() if counts else pytest.raises(ReasonWanted):
        check_reason(wanted, reason)


def person(user: str, name: str, global_id: str | None = None) -> Decider:
    return Decider(name, "slack", "T1", user, global_id=global_id)


# Eight accounts of five people: of one by the name that agents are told, of another by an id of Enterprise Grid, of a third
# only as Slack says.
ACCOUNTS = [
    (0, person("U1", "user:one")),
    (1, person("U2", "user:two")),
    (1, person("U3", "user:two")),
    (2, person("U4", "user:four", "W1")),
    (2, person("U5", "user:five", "W1")),
    (3, person("U6", "user:six")),
    (4, person("U7", "user:seven")),
    (4, person("U8", "user:eight")),
]
_who = st.integers(0, len(ACCOUNTS) - 1)
_seldom = st.sampled_from([False, False, True])
_seen = st.sampled_from(["this", "this", "this", "unknown", "older"])


def decider_of(who: int, gone: Container[int] = ()) -> Decider:
    """An account, with what Slack says of the others, and that those in `gone` may no longer answer."""
    told: dict[str | None, Standing] = {}
    for number, (whose, other) in enumerate(ACCOUNTS):
        told[other.user] = "same" if whose == ACCOUNTS[who][0] else "other"
        if number in gone:
            told[other.user] = "lapsed"
    return replace(ACCOUNTS[who][1], approvers=told)


def approval(needed: int) -> Ask:
    wanted = Confirmation(
        action="Send it", risk_level="high", default_decision="reject", sent=ARGUMENTS, editable=True
    )
    return ask(
        kinds=("confirmation",),
        wanted=wanted,
        direct=Direct(kind="approval"),
        approvals_needed=needed if needed > 1 else None,
    )


class Approval(RuleBasedStateMachine):
    """What the model holds: versions of the arguments, who accepted the last one, how it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.open = ExitStack()
        folder = self.open.enter_context(
            tempfile.TemporaryDirectory(prefix="clarify-", dir=_MEMORY if _MEMORY.is_dir() else None)
        )
        self.loop = asyncio.new_event_loop()
        self.open.callback(self.loop.close)
        self.open.callback(lambda: self.loop.run_until_complete(self.loop.shutdown_default_executor()))
        kept, self.clock = kept_ledger(Path(folder)), ManualClock(NOW)
        self.ledger = self.loop.run_until_complete(kept.__aenter__())
        self.open.callback(lambda: self.loop.run_until_complete(kept.__aexit__(None, None, None)))
        self.router = Router(self.ledger, self.clock, SLA, lambda _: None)
        self.arguments = dict(ARGUMENTS)
        self.versions: list[str] = []
        self.accepted: list[int] = []  # accounts
        self.gone: set[int] = set()
        self.end: str | None = None

    def teardown(self) -> None:
        self.open.close()

    @initialize(needed=st.sampled_from([1, 2, 2, 3]))
    def asked(self, needed: int) -> None:
        self.needed = needed
        record = self.loop.run_until_complete(self.router.open(42, approval(needed))).record
        self.versions.append(version_of(record.current))

    def record(self) -> Clarification:
        return self.loop.run_until_complete(self.ledger.find("CLR-42-001"))

    def answer(self, answer: Answer, decider: Decider, version: str | None) -> ClarifyError | None:
        async def work() -> Clarification:
            return await self.router.answer(
                "CLR-42-001", lambda _: answer, decider, self.clock.now(), version=version
            )

        try:
            self.loop.run_until_complete(work())
        except ClarifyError as error:
            return error
        return None

    def over(self, error: ClarifyError | None) -> bool:
        """Whether it was over before; then the error has to say so."""
        if self.end is None:
            return False
        assert isinstance(error, AlreadyAnswered if self.end in {"accept", "reject"} else Closed)
        return True

    @rule(who=_who)
    def accepts_what_stands(self, who: int) -> None:
        self.accepts(who, "this", None)

    @rule(who=_who, seen=_seen, to=st.sampled_from([None, None, "some", "all"]))
    def accepts_or_changes(self, who: int, seen: str, to: str | None) -> None:
        self.accepts(who, seen, to)

    def accepts(self, who: int, seen: str, to: str | None) -> None:
        """With `to`: after a change of that argument."""
        version = {"this": self.versions[-1], "unknown": None, "older": self.versions[0]}[seen]
        changed = None if to is None else {"to": to}
        before = self.versions[-1]
        decider = decider_of(who, self.gone - {who})
        error = self.answer(Answer("accept", "Accept", changed=changed), decider, version)
        if self.over(error):
            return
        if version is None and len(self.versions) > 1:
            assert isinstance(error, NotSeen)
            return
        if version not in {None, before}:
            assert isinstance(error, ArgumentsChanged)
            return
        remain = [each for each in self.accepted if each not in self.gone - {who}]
        people = {ACCOUNTS[each][0] for each in remain}
        if changed is None and ACCOUNTS[who][0] in people:
            assert isinstance(error, CountsOnce)
            return
        assert error is None
        self.gone -= {who}  # they came back
        self.accepted = remain
        if changed is not None:
            self.accepted = []
            self.arguments |= changed
            self.versions.append(version_of(self.record().current))
            assert self.versions[-1] not in self.versions[:-1]
        self.accepted.append(who)
        if len(self.accepted) == self.needed:
            self.end = "accept"

    @rule(who=_who, really=_seldom)
    def may_no_longer_answer(self, who: int, really: bool) -> None:
        if really:
            self.gone.add(who)

    @rule(who=_who, really=_seldom)
    def rejects(self, who: int, really: bool) -> None:
        if not really:
            return
        error = self.answer(Answer("reject", "Reject"), ACCOUNTS[who][1], self.versions[0])
        if not self.over(error):
            assert error is None
            self.end = "reject"
            self.accepted = [
                each for each in self.accepted if ACCOUNTS[each][1].decided_by != ACCOUNTS[who][1].decided_by
            ]

    @rule(how=st.sampled_from(["shell", "agent", "not told apart", "another argument"]))
    def one_who_does_not_count(self, how: str) -> None:
        changed = {"other": 1} if how == "another argument" else None
        decider = {
            "shell": Decider("user:os/ann@host", "shell", consent=self.needed > 1),
            "agent": Decider("agent:architect", "slack", "T1", "U9", approvers=decider_of(0).approvers),
            "not told apart": ACCOUNTS[0][1],
            "another argument": decider_of(0),
        }[how]
        if how == "not told apart" and self.needed == 1:
            return
        error = self.answer(Answer("accept", "Accept", changed=changed), decider, self.versions[-1])
        if not self.over(error):
            kind = {"not told apart": NotToldApart, "another argument": AnswerRejected}.get(
                how, ConsentRefused
            )
            assert isinstance(error, kind)

    @rule(really=_seldom)
    def is_withdrawn(self, really: bool) -> None:
        if not really:
            return
        try:
            self.loop.run_until_complete(self.router.withdraw("CLR-42-001"))
        except AlreadyAnswered:
            assert self.end in {"accept", "reject"}
            return
        assert self.end in {None, "withdrawn"}
        self.end = "withdrawn"

    @rule()
    def nobody_steps_in(self) -> None:
        """It is passed on to the person on call, which changes nothing of who accepted."""
        if self.end is None:
            self.loop.run_until_complete(self.router.escalate("CLR-42-001", "by hand"))

    @invariant()
    def stands_as_the_model_says(self) -> None:
        if not self.versions:
            return
        record = self.record()
        state = state_of(record)
        names = [ACCOUNTS[each][1].decided_by for each in self.accepted]
        status = {None: "waiting", "withdrawn": "withdrawn"}.get(self.end, "answered")
        assert (state["status"], state["approved_by"]) == (status, names)
        assert state["approvals_needed"] == self.needed
        decided = {"decision": self.end, "arguments": self.arguments}
        assert state["answer"] == (decided if status == "answered" else None)
        assert record.asked.sent_arguments == ARGUMENTS
        entries = [each.type for each in record.thread if each.type == "answer"]
        assert entries == (["answer"] if status == "answered" else [])


TestApproval = Approval.TestCase
TestApproval.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.parametrize("claimed", [None, "low", "medium", "high", "grave"])
@pytest.mark.parametrize("at_least", [None, *RISKS])
@pytest.mark.parametrize("asked", [1, 3])
def test_route_is_a_lower_bound(claimed: str | None, at_least: Any, asked: int) -> None:
    wanted = Confirmation(action="Send it", risk_level=claimed)
    question = ask(kinds=("confirmation",), wanted=wanted, approvals_needed=asked if asked > 1 else None)
    after = bounded(question, at_least, {"low": 1, "medium": 2, "high": 4})
    rank = {"low": 0, None: 1, "medium": 1, "high": 2, "grave": 2}
    raised = (
        max((claimed, at_least), key=lambda each: -1 if each is None else rank[each])
        if claimed != "grave"
        else claimed
    )
    counted = after.asked.confirmation
    assert counted is not None
    assert counted.risk_level == raised
    assert counted.claimed_risk == (None if raised == claimed else claimed or "not said")
    needed = max(asked, (1, 2, 4)[rank[raised]])
    assert after.asked.approvals_needed == (needed if needed > 1 else None)


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[DatabaseLedger]:
    async with kept_ledger(tmp_path) as opened:
        yield opened


async def test_typed_accept_counts_only_for_what_its_author_can_only_have_seen_whole(
    ledger: DatabaseLedger,
) -> None:
    whole = True
    router = Router(ledger, ManualClock(NOW), SLA, lambda _: None, shown_whole=lambda _: whole)
    first = (await router.open(42, approval(2))).record

    async def accepts(
        who: int, version: str | None = None, changed: dict[str, Any] | None = None
    ) -> Clarification:
        answer = Answer("accept", "Accept", changed=changed)
        return await router.answer(
            "CLR-42-001", lambda _: answer, decider_of(who), NOW + MINUTE, version=version
        )

    whole = False
    with pytest.raises(NotSeen, match="not have seen all"):
        await accepts(0)
    whole = True
    await accepts(0)
    edited = await accepts(0, version_of(first.current), {"to": "some"})
    with pytest.raises(NotSeen, match="were changed"):
        await accepts(1)
    with pytest.raises(ArgumentsChanged):
        await accepts(1, version_of(first.current))
    after = await accepts(1, version_of(edited.current))
    assert state_of(after)["approved_by"] == ["user:one", "user:two"]


async def test_approval_is_not_resolved_with_words(ledger: DatabaseLedger) -> None:
    router = Router(ledger, ManualClock(NOW), SLA, lambda _: None)
    await router.open(42, approval(1))
    for answer in (Answer("accept", "Accept"), Answer("reject", "Reject")):
        with pytest.raises(AnswerRejected):
            await router.resolve("CLR-42-001", lambda _: answer, answer.label, ACCOUNTS[0][1], NOW)  # noqa: B023 - called at once


@pytest.mark.parametrize(
    ("first", "second", "is_same"), [(0, 0, True), (1, 2, True), (3, 4, True), (6, 7, True), (0, 1, False)]
)
async def test_person_counts_once_under_all_names(
    ledger: DatabaseLedger, first: int, second: int, is_same: bool
) -> None:
    router = Router(ledger, ManualClock(NOW), SLA, lambda _: None)
    await router.open(42, approval(2))
    answer = Answer("accept", "Accept")
    await router.answer("CLR-42-001", lambda _: answer, decider_of(first), NOW)
    with pytest.raises(CountsOnce) if is_same else nullcontext():
        await router.answer("CLR-42-001", lambda _: answer, decider_of(second), NOW)
    assert (await ledger.find("CLR-42-001")).is_open is is_same


@pytest.mark.parametrize(
    ("told", "error"), [({"U1": "unknown"}, NotToldApart), ({}, ApprovedMeanwhile), (None, NotToldApart)]
)
async def test_accept_waits_until_it_is_known_who_accepted_before(
    ledger: DatabaseLedger, told: dict[str | None, Standing] | None, error: type[Exception]
) -> None:
    router = Router(ledger, ManualClock(NOW), SLA, lambda _: None)
    await router.open(42, approval(2))
    accept, second = Answer("accept", "Accept"), replace(ACCOUNTS[1][1], approvers=told)
    await router.answer("CLR-42-001", lambda _: accept, decider_of(0), NOW)
    with pytest.raises(error):
        await router.answer("CLR-42-001", lambda _: accept, second, NOW)
    rejected = await router.answer("CLR-42-001", lambda _: Answer("reject", "Reject"), second, NOW)
    assert state_of(rejected)["approved_by"] == ["user:one"]


@pytest.mark.parametrize("lacks", [{"editable": False}, {"sent": {"to": "all"}}])
def test_edit_of_what_the_agent_lets_nobody_change_is_no_accept(lacks: dict[str, Any]) -> None:
    asked = approval(1)
    assert asked.asked.wanted is not None
    record = opened(42, 1, asked.under(wanted=asked.asked.wanted.copied(**lacks)), NOW, SLA)
    with pytest.raises(AnswerRejected, match="cannot be changed"):
        accepted(record, Answer("accept", "Accept", changed={"count": 9}), decider_of(0), NOW)


def test_edit_that_does_not_fit_the_schema_is_no_accept() -> None:
    schema = {"properties": {"count": {"type": "integer", "maximum": 9}}}
    asked = approval(1)
    assert asked.asked.wanted is not None
    asked = asked.under(wanted=asked.asked.wanted.copied(arguments_schema=schema))
    record = opened(42, 1, asked, NOW, SLA)
    with pytest.raises(AnswerRejected, match=r"not valid\. count: Expected a whole number of at most 9\."):
        accepted(record, Answer("accept", "Accept", changed={"count": 10}), decider_of(0), NOW)
    after = accepted(record, Answer("accept", "Accept", changed={"count": 9}), decider_of(0), NOW)
    assert after.current.arguments["count"] == 9


ANN, BEN = Requester(by="U0ANN", pinned=True), Requester(by="U0BEN")


@pytest.mark.parametrize(
    ("four_eyes", "requester", "surface", "is_requester", "error"),
    [
        (None, ANN, "slack", True, None),
        ("pinned", ANN, "slack", False, None),
        ("pinned", ANN, "slack", True, OwnRequest),
        ("pinned", ANN, "slack", None, NotToldApart),
        ("pinned", ANN, "shell", False, ConsentRefused),
        ("pinned", BEN, "slack", False, NoRequester),
        ("pinned", None, "slack", False, NoRequester),
        ("claimed", BEN, "slack", False, None),
        ("claimed", BEN, "slack", True, OwnRequest),
        ("claimed", None, "slack", False, NoRequester),
    ],
)
def test_who_may_accept_under_four_eyes(
    four_eyes: FourEyes | None,
    requester: Requester | None,
    surface: str,
    is_requester: bool | None,
    error: type[Exception] | None,
) -> None:
    asked = approval(1).under(four_eyes=four_eyes, requested_by=requester)
    decider = Decider("user:x", surface, consent=True, is_requester=is_requester)
    record = opened(42, 1, asked, NOW, SLA)
    assert answered(record, Answer("reject", "Reject"), decider, NOW).status == "answered"
    with pytest.raises(error) if error else nullcontext():
        assert accepted(record, Answer("accept", "Accept"), decider, NOW).status == "answered"


def attempt(user: str, why: str = "not listed", response: str | None = "accept", minute: int = 0) -> Refusal:
    at = NOW + timedelta(minutes=minute)
    return Refusal(
        user=user, by=f"user:{user}", surface="slack", why=why, response=response, first=at, last=at
    )


def test_refusals_of_the_same_person_way_and_reason_are_counted() -> None:
    found: tuple[Refusal, ...] = ()
    for each in (
        attempt("U1"),
        attempt("U2"),
        attempt("U1", minute=2),
        attempt("U1", why="guest"),
        attempt("U1", response="reject"),
        attempt("U1", minute=1),
    ):
        found = with_refusal(found, each)
    assert [(each.user, each.why, each.response, each.times) for each in found] == [
        ("U1", "not listed", "accept", 3),
        ("U2", "not listed", "accept", 1),
        ("U1", "guest", "accept", 1),
        ("U1", "not listed", "reject", 1),
    ]
    assert (found[0].first, found[0].last) == (NOW, NOW + timedelta(minutes=2))


def test_refusals_are_bounded() -> None:
    found: tuple[Refusal, ...] = ()
    for number in range(MOST_REFUSALS + 20):
        found = with_refusal(found, attempt(f"U{number}"))
    found = with_refusal(found, attempt("U0"))
    assert len(found) == MOST_REFUSALS + 1
    assert (found[0].times, found[-1].by, found[-1].user, found[-1].times) == (2, OTHERS, None, 20)
    assert sum(each.times for each in found) == MOST_REFUSALS + 21
