"""The rules of `bot.storage.lease` in every order of events: several bots, the server, time.

Times are ticks, in states as ages, so that there are finitely many states and all are seen. What each bot does with what
it knows is `HeldLease`'s; what the server does is said here as the statements of `bot.storage.lease` do it, which
`test_postgres.py` shows on a real one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pytest

from bot.storage.lease import HeldLease, Terms

TERMS = Terms(lasts=3, margin=1)
LASTS = int(TERMS.lasts)
OLD = LASTS + 1  # older rows do not differ
UNDER_WAY = (
    int(TERMS.margin) + 1
)  # ticks that a call takes at the most: what is sent within a tick is sent before its end


@dataclass(frozen=True)
class Rules:
    """The rules, each of which can be left out."""

    counts_from_sending: bool = True
    asks_its_clock: bool = True
    margin: float = TERMS.margin
    taken_after: int = LASTS
    taking_ends_an_epoch: bool = True
    renewed_by_epoch: bool = True
    write_checks_epoch: bool = True
    write_locks_epoch: bool = True
    done_before_handing_over: bool = True
    taken_at_all: bool = True

    def left(self, age: int) -> float:
        return HeldLease(0, -age, replace(TERMS, margin=self.margin)).left(0)


class Request(NamedTuple):
    """What was asked of the server; `age`: since it was sent. `done`: None: not yet; else whether it was granted."""

    age: int
    done: bool | None = None


class Call(NamedTuple):
    """A call outside: `age` -1: about to be sent, later since it was. `stood`: the bot stood still before it was sent."""

    age: int = -1
    stood: bool = False


class Bot(NamedTuple):
    """`age`: since what it counts its lease from, None: it does not lead. `behind`: whether its epoch is over."""

    age: int | None = None
    behind: bool = False
    request: Request | None = None
    ghost: bool = False  # a renewal that it gave up, and which the server may still do
    writing: bool = False
    call: Call | None = None

    @property
    def has_epoch(self) -> bool:
        """Also one that does not know yet."""
        return self.age is not None or (self.request is not None and self.request.done is True)


class State(NamedTuple):
    """`holder` and `age` (since it was renewed) are of the server's row; its epoch is what `behind` counts from."""

    bots: tuple[Bot, ...]
    holder: int | None = None
    age: int = OLD

    def having(self, at: int, bot: Bot) -> State:
        return self._replace(bots=(*self.bots[:at], bot, *self.bots[at + 1 :]))


@dataclass
class Model:
    rules: Rules = field(default_factory=Rules)
    writes: bool = False
    calls: bool = False

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """What can happen next."""
        if all(bot.call is None or bot.call.age < UNDER_WAY for bot in state.bots):
            yield "a tick", later(state)
        for at, bot in enumerate(state.bots):
            for name, after in self._of_server(state, at, bot):
                yield f"{at} {name}", after
            for name, after in self._of_bot(state, at, bot):
                yield f"{at} {name}", after

    def _of_server(self, state: State, at: int, bot: Bot) -> Iterator[tuple[str, State]]:
        """What goes on whatever the bot does."""
        if bot.request is not None and bot.request.done is None:
            if bot.age is None:
                yield "is heard: take", self._take(state, at, bot)
            else:
                yield (
                    "is heard: renew",
                    self._renew(
                        state, at, bot._replace(request=bot.request._replace(done=self._renews(bot)))
                    ),
                )
        if bot.ghost:
            yield "is heard late: renew", self._renew(state, at, bot._replace(ghost=False))
        if bot.request is not None:
            ghost = bot.ghost or (bot.age is not None and bot.request.done is None)
            behind = bot.behind and bot.age is not None
            yield "gets no answer", state.having(at, bot._replace(request=None, ghost=ghost, behind=behind))
        if bot.writing:
            yield "writes", state.having(at, bot._replace(writing=False))
            yield "is undone", state.having(at, bot._replace(writing=False))
        if bot.call is not None and bot.call.age >= 0:
            yield "has called", state.having(at, bot._replace(call=None))

    def _of_bot(self, state: State, at: int, bot: Bot) -> Iterator[tuple[str, State]]:
        """One that does none of it stands still. It is only noted where it makes a difference."""
        if bot.request is None:
            yield "asks", state.having(at, bot._replace(request=Request(0)))
        elif bot.request.done is not None:
            yield "hears", state.having(at, self._heard(bot, bot.request))
        if bot.age is None:
            return
        # Writes are held up by the epoch alone: a look at the clock may be any time ago.
        leads = self.rules.left(bot.age) > 0 or not self.rules.asks_its_clock
        if self.writes and not bot.writing and not (bot.behind and self.rules.write_checks_epoch):
            yield "begins to write", state.having(at, bot._replace(writing=True))
        if self.calls and at == 0 and bot.call is None and leads:
            yield "begins to call", state.having(at, bot._replace(call=Call()))
        if bot.call is not None and bot.call.age < 0:
            yield "stands still", state.having(at, bot._replace(call=Call(stood=True)))
            if leads or bot.call.stood:
                yield "calls", state.having(at, bot._replace(call=bot.call._replace(age=0)))
            if not leads:
                yield "is cut off", state.having(at, bot._replace(call=None))
        busy = bot.writing or bot.call is not None
        if bot.request is None and not (busy and self.rules.done_before_handing_over):
            after = state.having(at, bot._replace(age=None, behind=False, ghost=False))
            yield "hands over", after if bot.behind else after._replace(holder=None)

    def _heard(self, bot: Bot, request: Request) -> Bot:
        """It begins anew when another one leads, and forgets all that it was about to do."""
        if request.done:
            return bot._replace(age=request.age if self.rules.counts_from_sending else 0, request=None)
        return Bot() if bot.age is not None else bot._replace(request=None)

    def _take(self, state: State, at: int, bot: Bot) -> State:
        free = state.holder is None or state.age > self.rules.taken_after
        locked = self.rules.write_locks_epoch and any(each.writing and not each.behind for each in state.bots)
        taken = free and not locked and self.rules.taken_at_all
        assert bot.request is not None
        answered = bot._replace(request=bot.request._replace(done=taken))
        if not taken:
            return state.having(at, answered)
        ends = self.rules.taking_ends_an_epoch
        others = [each._replace(behind=each.behind or (ends and each.has_epoch)) for each in state.bots]
        return State(tuple(others), at, 0).having(at, answered)

    def _renews(self, bot: Bot) -> bool:
        return not bot.behind or not self.rules.renewed_by_epoch

    def _renew(self, state: State, at: int, bot: Bot) -> State:
        after = state.having(at, bot)
        return after._replace(age=0) if self._renews(bot) else after


def later(state: State) -> State:
    """A tick of all clocks: that of a bot which stands still, too."""

    def older(age: int) -> int:
        return min(age + 1, LASTS)

    def aged(bot: Bot) -> Bot:
        request = None if bot.request is None else bot.request._replace(age=older(bot.request.age))
        call = None if bot.call is None else bot.call._replace(age=bot.call.age + (bot.call.age >= 0))
        return bot._replace(age=None if bot.age is None else older(bot.age), request=request, call=call)

    return State(tuple(aged(bot) for bot in state.bots), state.holder, min(state.age + 1, OLD))


def writes_of_another_epoch(before: State, step: str) -> bool:
    at, _, what = step.partition(" ")
    return what == "writes" and (before.bots[int(at)].behind or before.holder != int(at))


def calls_that_another_may_make(state: State, *, stood: bool = False) -> bool:
    """Whether a call is under way of a bot in whose place another one leads, or may."""
    return any(
        bot.call is not None
        and bot.call.age >= 0
        and bot.call.stood == stood
        and (bot.behind or state.holder != at or state.age > LASTS)
        for at, bot in enumerate(state.bots)
    )


def is_taken_over(model: Model, state: State, at: int) -> bool:
    """Whether a bot that asks leads in the end, when all others stand still."""
    for other, bot in enumerate(state.bots):
        if other != at:
            state = state.having(other, bot._replace(writing=False, ghost=False, request=None, call=None))
    for _ in range(OLD):
        state = later(state)
    asked = state.having(at, state.bots[at]._replace(request=Request(0)))
    heard = model._take(asked, at, asked.bots[at])
    (request,) = (heard.bots[at].request,)
    return request is not None and request.done is True and model.rules.left(request.age) > 0


def explored(model: Model, looked_for: str = "", bots: int = 2) -> tuple[set[str], int]:
    """What is wrong in any state that can be reached, up to what is looked for; and how many states there are."""
    first = State((Bot(),) * bots)
    seen, waiting, wrong = {first}, deque([first]), set()
    while waiting and looked_for not in wrong:
        state = waiting.popleft()
        if calls_that_another_may_make(state):
            wrong.add("call")
        if calls_that_another_may_make(state, stood=True):
            wrong.add("call of a bot that stood still")
        for at, bot in enumerate(state.bots):
            if bot.age is None and bot.request is None and not is_taken_over(model, state, at):
                wrong.add("nobody leads")
        for step, after in model.steps(state):
            if writes_of_another_epoch(state, step):
                wrong.add("write")
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    return wrong, len(seen)


STOOD = "call of a bot that stood still"


@pytest.mark.parametrize("what", ["writes", "calls"])
def test_rules_hold_in_every_order(what: str) -> None:
    """That a bot stands still between its look at the clock and the call is the only way to call too late."""
    wrong, states = explored(Model(writes=what == "writes", calls=what == "calls"))
    assert wrong == ({STOOD} if what == "calls" else set())
    assert states > 10_000


@pytest.mark.parametrize(
    ("without", "what", "found"),
    [
        ({"counts_from_sending": False}, "calls", "call"),
        ({"asks_its_clock": False}, "calls", "call"),
        ({"margin": 0.0}, "calls", "call"),
        ({"taken_after": LASTS - 1}, "calls", "call"),
        ({"taking_ends_an_epoch": False}, "writes", "write"),
        ({"renewed_by_epoch": False}, "calls", "call"),
        ({"write_checks_epoch": False}, "writes", "write"),
        ({"write_locks_epoch": False}, "writes", "write"),
        ({"done_before_handing_over": False}, "calls", "call"),
        ({"taken_at_all": False}, "writes", "nobody leads"),
    ],
    ids=str,
)
def test_each_rule_is_needed(without: dict[str, Any], what: str, found: str) -> None:
    model = Model(Rules(**without), writes=what == "writes", calls=what == "calls")
    assert found in explored(model, found)[0]
