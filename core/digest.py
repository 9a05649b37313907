"""Statistics over ledgers: how much was asked, how fast it was answered, by whom. Pure.

Records are added one by one; it keeps only a few numbers for each answer, and a count for each topic and name.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from core.clarification import US, Clarification, one_line
from core.clock import spoken

_TOPIC = 120
_TOP, _PEOPLE = 5, 10
_PERSON = "user:"  # how the names of people begin


@dataclass(frozen=True, slots=True)
class Count:
    name: str
    times: int


def _counted(answers: int) -> str:
    return "1 answer" if answers == 1 else f"{answers} answers"


@dataclass(frozen=True, slots=True)
class Share:
    """The figures of one route or person: clarifications asked, answers to them, and the median time to answer."""

    name: str
    asked: int
    answers: int
    median: timedelta | None

    @property
    def speed(self) -> str:
        if self.median is None:
            return "no answer"
        return f"{_counted(self.answers)}, median {spoken(self.median)}"


@dataclass(frozen=True, slots=True)
class Digest:
    """Figures of the clarifications created since `since` (None: of all).

    `total` = `open` + `answered` + `resolved` + `abandoned`, by current status. `escalated` counts all that were ever
    escalated, open or not. Times to answer run from the question and cover every answer; `p95` is the nearest rank.
    `topics` and `askers` count clarifications, `answerers` answers: the most frequent first, at most five. `routes`: those
    with questions; `people`: those with the most answers, at most ten.
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

    def words(self) -> list[tuple[str, str]]:
        """The figures in words: (name, value)."""
        became = [f"{getattr(self, each)} {each}" for each in ("resolved", "answered", "open", "abandoned")]
        found = [("Asked", f"{self.total} ({', '.join(became)})"), ("Escalated", str(self.escalated))]
        if self.median is not None and self.p95 is not None:
            times = f"median {spoken(self.median)}, 95 % within {spoken(self.p95)}"
            found.append(("Time to answer", f"{times} ({_counted(self.answers)})"))
        if self.rounds_mean is not None:
            found.append(("Rounds", f"{self.rounds_mean:.1f} on average, {self.rounds_max} at most"))
        return found

    def shares(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """The figures by route, if there are several, and by person, in words: a title with rows of (name, value)."""
        routes = [
            ("all others" if each.name == "*" else each.name, f"{each.asked} asked, {each.speed}")
            for each in self.routes
        ]
        people = [(each.name, each.speed) for each in self.people]
        found = [("By route", routes if len(routes) > 1 else []), ("By person", people)]
        return [(title, rows) for title, rows in found if rows]

    def names(self) -> tuple[tuple[str, tuple[Count, ...]], ...]:
        """The counts by name, each list with its title."""
        return ("Top topics", self.topics), ("Top askers", self.askers), ("Top answerers", self.answerers)


class DigestBuilder:
    """`add` every record, then `result`.

    Args:
        since: clarifications created before are left out.
        until: those created from then on, too.
    """

    def __init__(self, since: datetime | None = None, until: datetime | None = None) -> None:
        self._since = since
        self._until = until
        self._statuses: Counter[str] = Counter()
        self._escalated = 0
        self._seconds = array("d")
        self._rounds = 0
        self._rounds_max = 0
        self._topics: Counter[str] = Counter()
        self._spelled: dict[str, str] = {}
        self._askers: Counter[str] = Counter()
        self._answerers: Counter[str] = Counter()
        self._routes: Counter[str] = Counter()
        self._of_route: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
        self._of_person: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))

    def add(self, record: Clarification, route: str = "") -> None:
        """`route`: the name of the one by which it is asked; empty: it is not told by route."""
        if self._since is not None and record.created < self._since:
            return
        if self._until is not None and record.created >= self._until:
            return
        if route:
            self._routes[route] += 1
        self._statuses["open" if record.is_open else record.status] += 1
        self._escalated += record.status == "escalated" or any(e.type == "escalation" for e in record.thread)
        self._rounds += record.round
        self._rounds_max = max(self._rounds_max, record.round)
        self._askers[record.from_] += 1
        if topic := one_line(record.topic, _TOPIC):
            self._topics[self._spelled.setdefault(topic.casefold(), topic)] += 1
        for who, seconds in _answers(record):
            self._answerers[who] += 1
            self._seconds.append(seconds)
            if who.startswith(_PERSON):
                self._of_person[who].append(seconds)
            if route:
                self._of_route[route].append(seconds)

    def result(self) -> Digest:
        total = self._statuses.total()
        seconds = sorted(self._seconds)
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
            routes=tuple(_share(name, self._of_route[name], asked) for name, asked in _ordered(self._routes)),
            people=tuple(
                _share(name, self._of_person[name])
                for name, _ in _ordered(Counter({who: len(each) for who, each in self._of_person.items()}))[
                    :_PEOPLE
                ]
            ),
        )


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


def _share(name: str, seconds: Sequence[float], asked: int = 0) -> Share:
    return Share(name, asked, len(seconds), timedelta(seconds=median(seconds)) if seconds else None)
