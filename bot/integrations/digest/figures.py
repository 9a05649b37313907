"""Statistics over ledgers: how much was asked, how fast it was answered, by whom. Pure.

Records are added one by one; it keeps only a few numbers for each answer, and a count for each topic and name.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from statistics import median

from core.approvals import RISKS, approved_by, risk_rank
from core.clarification import US, Clarification, Confirmation, Round, one_line
from core.clock import spoken
from core.ledger import Contents

_TOPIC = 120
_BECAME = {"accept": "approved", "reject": "rejected"}
_TOP, _PEOPLE = 5, 10
_STRETCHES = 20
_OUTCOMES = {
    "answered": "answered",
    "resolved": "answered",
    "abandoned": "closed",
}  # all other statuses are open
_UNITS = (("days", 86_400), ("hours", 3600), ("minutes", 60))
_PERSON = "user:"  # how the names of people begin


@dataclass(frozen=True, slots=True)
class Count:
    name: str
    times: int


def _counted(answers: int) -> str:
    return "1 answer" if answers == 1 else f"{answers} answers"


@dataclass(frozen=True, slots=True)
class Approvals:
    """How many approvals were approved, rejected or expired, and of how many the arguments were edited. Of a person: those
    that they approved (with others), rejected and edited.
    """

    approved: int = 0
    rejected: int = 0
    expired: int = 0
    edited: int = 0

    @property
    def words(self) -> str:
        """Those that there are; empty if there are none."""
        return ", ".join(f"{times} {name}" for name, times in asdict(self).items() if times)


NO_APPROVALS = Approvals()


@dataclass(frozen=True, slots=True)
class Stretch:
    """How many questions were asked on `days` days in a row from `first` on, by what became of them. `closed`: without an
    answer.
    """

    first: date
    days: int
    answered: int = 0
    open: int = 0
    closed: int = 0

    @property
    def words(self) -> str:
        """What there is: `2 answered, 1 open`."""
        counts = (("answered", self.answered), ("open", self.open), ("closed without an answer", self.closed))
        return ", ".join(f"{times} {name}" for name, times in counts if times) or "none"


@dataclass(frozen=True, slots=True)
class Share:
    """The figures of one route or person: clarifications asked, answers to them, the median time to answer, and approvals."""

    name: str
    asked: int
    answers: int
    median: timedelta | None
    approvals: Approvals = NO_APPROVALS

    @property
    def words(self) -> str:
        answered = (
            f"{_counted(self.answers)}, median {spoken(self.median)}" if self.median is not None else ""
        )
        approvals = self.approvals.words
        if not answered and not approvals:
            return "no answer"
        return "; ".join(each for each in (answered, approvals) if each)


@dataclass(frozen=True, slots=True)
class TimeToDecide:
    """How many actions of a risk, as its route counted it, were approved or rejected, and the median time to decide."""

    risk: str
    times: int
    median: timedelta


@dataclass(frozen=True, slots=True)
class Digest:
    """Figures of the clarifications created since `since` (None: of all).

    `total` = `open` + `answered` + `resolved` + `abandoned`, by current status. `escalated` counts all that were ever
    escalated, open or not. Times to answer run from the question and cover every answer; `p95` is the nearest rank.
    `topics` and `askers` count clarifications, `answerers` answers: the most frequent first, at most five. `routes`: those
    with questions, the most first; `people`: those with the most answers and approvals, at most ten. `approvals` counts
    rounds; `decided`: by risk, the highest first. `stretches`: every day or, of a long span, up to twenty equal stretches of
    it; none if nothing was asked.
    """

    since: datetime | None
    total: int
    open: int
    answered: int
    resolved: int
    escalated: int
    abandoned: int
    answers: int
    median: timedelta | None
    p95: timedelta | None
    rounds_mean: float | None
    rounds_max: int | None
    topics: tuple[Count, ...]
    askers: tuple[Count, ...]
    answerers: tuple[Count, ...]
    routes: tuple[Share, ...]
    people: tuple[Share, ...]
    approvals: Approvals = NO_APPROVALS
    decided: tuple[TimeToDecide, ...] = ()
    stretches: tuple[Stretch, ...] = ()

    def words(self) -> list[tuple[str, str]]:
        """The figures in words: (name, value)."""
        became = [
            f"{self.answered + self.resolved} answered",
            f"{self.open} open",
            f"{self.abandoned} closed without an answer",
        ]
        found = [("Asked", f"{self.total} ({', '.join(became)})"), ("Escalated", str(self.escalated))]
        if self.median is not None and self.p95 is not None:
            times = f"median {spoken(self.median)}, 95 % within {spoken(self.p95)}"
            found.append(("Time to answer", f"{times} ({_counted(self.answers)})"))
        if self.rounds_mean is not None:
            found.append(("Rounds", f"{self.rounds_mean:.1f} on average, {self.rounds_max} at most"))
        if approvals := self.approvals.words:
            found.append(("Approvals", approvals))
        if self.decided:
            each = (f"{one.risk} risk median {spoken(one.median)} ({one.times})" for one in self.decided)
            found.append(("Time to decide", ", ".join(each)))
        return found

    def shares(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """The figures by route, if there are several, and by person, in words: a title with rows of (name, value)."""
        routes = [
            ("all others" if each.name == "*" else each.name, f"{each.asked} asked, {each.words}")
            for each in self.routes
        ]
        people = [(each.name, each.words) for each in self.people]
        found = [("By route", routes if len(routes) > 1 else []), ("By person", people)]
        return [(title, rows) for title, rows in found if rows]

    def names(self) -> tuple[tuple[str, tuple[Count, ...]], ...]:
        """The counts by name, each list with its title."""
        return ("Top topics", self.topics), ("Top askers", self.askers), ("Top answerers", self.answerers)


class _Tally:
    """What was counted of all, of one route, or of one person. `approvals`: by the fields of `Approvals`."""

    def __init__(self) -> None:
        self.asked = 0
        self.seconds = array("d")
        self.approvals: Counter[str] = Counter()

    def share(self, name: str) -> Share:
        middle = timedelta(seconds=median(self.seconds)) if self.seconds else None
        return Share(name, self.asked, len(self.seconds), middle, Approvals(**self.approvals))


class DigestBuilder:
    """`add` every record, then `result`.

    Args:
        since: clarifications created before are left out.
        until: those created from then on, too.
        zone: whose days `Digest.stretches` counts.
    """

    def __init__(
        self, since: datetime | None = None, until: datetime | None = None, zone: tzinfo = UTC
    ) -> None:
        self._since = since
        self._until = until
        self._zone = zone
        self._outcomes: defaultdict[date, Counter[str]] = defaultdict(Counter)
        self._statuses: Counter[str] = Counter()
        self._escalated = 0
        self._rounds = 0
        self._rounds_max = 0
        self._topics: Counter[str] = Counter()
        self._spelled: dict[str, str] = {}
        self._askers: Counter[str] = Counter()
        self._answerers: Counter[str] = Counter()
        self._all = _Tally()
        self._of_route: defaultdict[str, _Tally] = defaultdict(_Tally)
        self._of_person: defaultdict[str, _Tally] = defaultdict(_Tally)
        self._shared: Counter[str] = Counter()  # approvals that somebody else decided, by person
        self._of_risk: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))

    def add(self, record: Clarification, route: str = "") -> None:
        """`route`: the name of the one by which it is asked; empty: it is not told by route."""
        if self._since is not None and record.created < self._since:
            return
        if self._until is not None and record.created >= self._until:
            return
        here = self._all, self._of_route[route]
        self._of_route[route].asked += 1
        self._statuses["open" if record.is_open else record.status] += 1
        self._outcomes[self._day(record.created)][_OUTCOMES.get(record.status, "open")] += 1
        self._escalated += record.status == "escalated" or any(e.type == "escalation" for e in record.thread)
        self._rounds += record.round
        self._rounds_max = max(self._rounds_max, record.round)
        self._askers[record.from_] += 1
        if topic := one_line(record.topic, _TOPIC):
            self._topics[self._spelled.setdefault(topic.casefold(), topic)] += 1
        for who, seconds in _answers(record):
            self._answerers[who] += 1
            for each in (*here, self._of_person[who]):
                each.seconds.append(seconds)
        for asked in record.rounds:
            if asked.question.is_confirmation:
                self._add_approval(asked, record.created, here)

    def _add_approval(self, current: Round, created: datetime, here: tuple[_Tally, ...]) -> None:
        became = _BECAME.get(current.given.response) if isinstance(current.given.response, str) else None
        ended = became or ("expired" if current.closed == "expired" else None)
        for name in filter(None, (ended, "edited" if current.consent.edits else None)):
            for each in here:
                each.approvals[name] += 1
        for person in {edit.decided_by for edit in current.consent.edits or ()}:
            self._of_person[person].approvals["edited"] += 1
        if became is None:
            return
        others = approved_by(current) if became == "approved" else [current.given.decided_by or ""]
        for person in others:
            self._of_person[person].approvals[became] += 1
            self._shared[person] += person != current.given.decided_by
        if current.given.answered_at is not None:
            since = current.question.received_at or created
            waited = max(0.0, (current.given.answered_at - since).total_seconds())
            self._of_risk[_risk(current.confirmation)].append(waited)

    def result(self, now: datetime | None = None) -> Digest:
        """Returns the figures. `now`: the end of the span, if it has no `until`."""
        total = self._statuses.total()
        seconds = sorted(self._all.seconds)
        routes = Counter({name: each.asked for name, each in self._of_route.items() if name})
        return Digest(
            since=self._since,
            total=total,
            open=self._statuses["open"],
            answered=self._statuses["answered"],
            resolved=self._statuses["resolved"],
            escalated=self._escalated,
            abandoned=self._statuses["abandoned"],
            answers=len(seconds),
            median=timedelta(seconds=median(seconds)) if seconds else None,
            p95=timedelta(seconds=nearest_rank(seconds, 95)) if seconds else None,
            rounds_mean=self._rounds / total if total else None,
            rounds_max=self._rounds_max if total else None,
            topics=_top(self._topics),
            askers=_top(self._askers),
            answerers=_top(self._answerers),
            routes=tuple(self._of_route[name].share(name) for name, _ in _ordered(routes)),
            people=tuple(self._of_person[name].share(name) for name, _ in _ordered(self._people())[:_PEOPLE]),
            approvals=Approvals(**self._all.approvals),
            decided=tuple(
                TimeToDecide(risk, len(waited), timedelta(seconds=median(waited)))
                for risk in reversed(RISKS)
                if (waited := self._of_risk[risk])
            ),
            stretches=self._stretches(self._until or now),
        )

    def _stretches(self, until: datetime | None) -> tuple[Stretch, ...]:
        if not self._outcomes:
            return ()
        first = min(self._outcomes) if self._since is None else self._day(self._since)
        last = max(self._outcomes) if until is None else self._day(until)
        length = (last - first).days + 1
        days = -(-length // _STRETCHES)
        counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for day, outcomes in self._outcomes.items():
            # Another program's clock may be ahead.
            counts[(min(day, last) - first).days // days] += outcomes
        return tuple(
            Stretch(first + timedelta(days=number * days), days, **counts[number])
            for number in range(-(-length // days))
        )

    def _day(self, moment: datetime) -> date:
        try:
            return moment.astimezone(self._zone).date()
        except OverflowError:  # the first or the last day of all
            return moment.date()

    def _people(self) -> Counter[str]:
        """Returns how often each person answered, approved with others, or edited."""
        return Counter(
            {
                who: len(each.seconds) + self._shared[who] + each.approvals["edited"]
                for who, each in self._of_person.items()
                if who.startswith(_PERSON)
            }
        )


async def add_all(
    builder: DigestBuilder,
    every: AsyncGenerator[Contents],
    route: Callable[[Clarification], str],
    may_see: Callable[[Clarification], Awaitable[bool]] | None = None,
) -> list[str]:
    """Adds the records that may be seen, each with the name of its route. Returns the clarifications that cannot be read."""
    unread: list[str] = []
    async with aclosing(every):
        async for some in every:
            unread += some.unreadable
            for record in some.records:
                if may_see is None or await may_see(record):
                    builder.add(record, route(record))
    return unread


def in_one_unit(spans: Sequence[timedelta]) -> tuple[str, list[float]]:
    """Returns the largest unit that the longest of `spans` fills, and each in that unit, to a tenth."""
    longest = max(spans).total_seconds()
    unit, size = next((each for each in _UNITS if longest >= each[1]), ("seconds", 1))
    return unit, [round(span.total_seconds() / size, 1) for span in spans]


def nearest_rank(ordered: list[float], percent: int) -> float:
    """The smallest of `ordered` (ascending, not empty) that at least `percent` of a hundred do not exceed."""
    return ordered[max(1, -(-percent * len(ordered) // 100)) - 1]


def _answers(record: Clarification) -> Iterator[tuple[str, float]]:
    """Who gave each answer, and how many seconds after its question."""
    asked = record.created
    for entry in record.thread:
        if entry.type == "question":
            asked = entry.timestamp
        elif entry.type == "answer" and entry.from_ != US:
            # By clocks that differ, an answer may come out before its question.
            yield entry.from_, max(0.0, (entry.timestamp - asked).total_seconds())


def _top(counts: Counter[str]) -> tuple[Count, ...]:
    return tuple(Count(name, times) for name, times in _ordered(counts)[:_TOP])


def _ordered(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _risk(wanted: Confirmation | None) -> str:
    """Returns the risk of an action as it counts: one that nobody said counts as medium, an unknown word as high."""
    return RISKS[risk_rank(wanted.risk_level if wanted else None)]
