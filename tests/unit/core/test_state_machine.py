"""Router and monitor driven at random: by people, agents and producers, in two processes on one database.

After each step the records are judged by `witness`, which knows the design's table and nothing of core's code.
CLARIFY_EXAMPLES sets how many courses of events are tried.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Coroutine
from contextlib import AsyncExitStack, ExitStack
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import structlog
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.kit.clocks import ManualClock
from tests.kit.databases import records_in
from tests.unit.core import moves
from tests.unit.core.moves import Move
from tests.unit.core.parties import WORKFLOW, Party
from tests.unit.core.witness import Witness

EXAMPLES = int(os.environ.get("CLARIFY_EXAMPLES", "15"))
_MEMORY = Path("/dev/shm")  # noqa: S108 - where there is one: a disk that others use makes each step wait
_which = st.integers(0, 3)
_who = st.integers(0, 1)
_two, _three = st.integers(0, 1), st.integers(0, 2)
_timeout = st.sampled_from([None, 8, 40, 200])
MOVES: dict[str, st.SearchStrategy[Move]] = {
    "event": st.builds(moves.Event, _two, _three, _three, _three, _three, _timeout),
    "request": st.builds(moves.Between, _two, _three, _two, _three, _three, st.booleans()),
    "further": st.builds(moves.Further, _which),
    "answer": st.builds(
        moves.Answer,
        _which,
        st.sampled_from([True, True, True, False]),
        st.sampled_from(["any", "this", "before"]),
        st.sampled_from(["now", "now", "now", "early", "expired"]),
        st.integers(1, 3),
    ),
    "resolve": st.builds(
        moves.Resolve, _which, st.booleans(), st.sampled_from(["now", "now", "early", "expired"])
    ),
    "steer": st.builds(moves.Steer, _which, st.sampled_from(["escalate", "escalate", "abandon"])),
    "news": st.builds(
        moves.News,
        _three,
        st.sampled_from(["did something", "moved on", "ended", "was cancelled"]),
        st.sampled_from([0, 0, -5, 5]),
    ),
    "reply": st.builds(
        moves.Reply,
        _which,
        st.sampled_from(["delivered", "confirmed", "unconfirmed", "refused", "too_late"]),
        st.booleans(),
        st.booleans(),
    ),
    "due": st.builds(moves.Due, _which),
    "look": st.builds(moves.Look),
    "watch": st.builds(moves.Watch),
}
_any_move = st.one_of(*MOVES.values())

# What goes far only if one thing follows the other, which chance alone seldom finds.
_A = moves.Answer
COURSES: list[list[Move]] = [
    [moves.Between(0, 0, 1, 1, 0), _A(0), moves.Further(0), _A(0), moves.Further(0), _A(0)],
    [moves.Event(0, 0, 0, 1, 0), _A(0), moves.Reply(0, "delivered"), moves.Event(0, 1, 1, 1, 0), _A(0)],
    [moves.Event(1, 0, 1, 0, 0, 8), _A(0, at="expired"), moves.Event(1, 1, 1, 0, 0, 40)],
    [moves.Event(1, 2, 0, 0, 1), _A(0), moves.Reply(0, "confirmed", resolve=True)],
    [moves.Steer(0, "escalate"), _A(0), _A(0, by=2), moves.Resolve(0)],
]


class Ledgers(RuleBasedStateMachine):
    """Two processes of ours on one database."""

    def __init__(self) -> None:
        super().__init__()
        self.open = ExitStack()
        folder = Path(
            self.open.enter_context(
                tempfile.TemporaryDirectory(prefix="clarify-", dir=_MEMORY if _MEMORY.is_dir() else None)
            )
        )
        (folder / "all.toml").write_text(WORKFLOW)
        self.file, self.witness, stores = folder / "clarify.db", Witness(), AsyncExitStack()
        self.loop = asyncio.new_event_loop()
        self.open.callback(self.loop.close)
        self.open.callback(lambda: self.loop.run_until_complete(self.loop.shutdown_default_executor()))
        self.open.callback(lambda: self.loop.run_until_complete(stores.aclose()))
        self.log = self.open.enter_context(structlog.testing.capture_logs())
        self.parties = [
            self.loop.run_until_complete(Party.open(self.file, folder, ManualClock(), self.witness, stores))
            for _ in range(2)
        ]

    def teardown(self) -> None:
        self.open.close()

    @rule(who=_who, move=st.one_of(MOVES["event"], MOVES["request"], MOVES["further"]))
    def ask(self, who: int, move: Move) -> None:
        self.go(self.make(who, move, alone=True))

    @rule(who=_who, course=st.integers(0, len(COURSES) - 1))
    def course(self, who: int, course: int) -> None:
        for move in COURSES[course]:
            self.go(self.make(who, move, alone=True))

    @rule(issue=_two)
    def neighbours(self, issue: int) -> None:
        """What the other wrote before oneself did is news all the same."""
        for who in (0, 1):
            self.go(self.make(who, moves.Between(issue, who, 1 - who, 0, who), alone=True))
        self.time_passes((0, 1), 31)
        self.go(self.make(1, moves.Watch(), alone=True))

    @rule(who=_who, move=st.one_of(MOVES["answer"], MOVES["resolve"], MOVES["reply"]))
    def answer(self, who: int, move: Move) -> None:
        self.go(self.make(who, move, alone=True))

    @rule(who=_who, move=_any_move)
    def move(self, who: int, move: Move) -> None:
        self.go(self.make(who, move, alone=True))

    @rule(made=st.lists(st.tuples(_who, _any_move), min_size=2, max_size=4))
    def at_once(self, made: list[tuple[int, Move]]) -> None:
        async def all_of_them() -> None:
            made_at_once = [self.make(who, move, alone=False) for who, move in made]
            results = await asyncio.gather(*made_at_once, return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result

        self.go(all_of_them())

    @rule(where=st.sampled_from([(0,), (1,), (0, 1)]), minutes=st.sampled_from([1, 9, 31, 300, -4, -60]))
    def time_passes(self, where: tuple[int, ...], minutes: int) -> None:
        """Everywhere, or on one machine: its clock is set."""
        for who in where:
            clock = self.parties[who].clock
            clock.jump(clock.now() + timedelta(minutes=minutes))

    def go(self, what: Coroutine[Any, Any, None]) -> None:
        self.witness.changes.clear()
        self.log.clear()
        for party in self.parties:
            party.told.clear()
        self.loop.run_until_complete(what)
        for party in self.parties:
            self.judge(party)

    async def make(self, who: int, move: Move, *, alone: bool) -> None:
        await move.make(self.parties[who], self.witness, alone)

    def judge(self, party: Party) -> None:
        """It was told of all that it wrote, and reports nothing odd."""
        mine = [(c.after["id"], c.after["revision"]) for c in self.witness.changes if c.by is party]
        by_id = itemgetter(0)  # of each record in order: several in one write are told in any
        assert sorted(party.told, key=by_id) == sorted(mine, key=by_id), "what was written was not told"
        assert [entry for entry in self.log if "cannot be" in entry["event"]] == []

    @invariant()
    def nothing_is_wrong(self) -> None:
        assert self.witness.faults == [], self.witness.faults
        there = [each for issue in moves.ISSUES for each in records_in(self.file, issue)]
        assert there == self.witness.records(), "what was written is not what is there"


TestLedgers = Ledgers.TestCase
TestLedgers.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=25,
    derandomize="CLARIFY_EXAMPLES" not in os.environ,
    phases=[Phase.generate] if "CLARIFY_EXAMPLES" not in os.environ else [Phase.generate, Phase.shrink],
    deadline=None,
    database=None,
    # A step writes a database and waits for threads: how long that takes says nothing about the code.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
