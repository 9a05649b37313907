"""The policy's arithmetic once more, written apart from the bot's: when each step of one incident is due.

In true time, forwards through the log of one incident. A clock that is put forward brings everything nearer by as
much; one that is put back may keep it waiting for as long as nothing showed that it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.acceptance.week_facts import Entry, Facts, Incident
from tests.acceptance.week_plan import MINUTE, POLICIES, Policy, Step, open_since

LAST = -1
# Alike pages are held back and sent together: a minute at most. Seconds, like all here.
GATE, URGENT, NOTICED, EARLY = 70.0, 20.0, 65.0, 1.5
_MOMENT = 0.01  # of what is written down by two at once one comes first
_TOGETHER = 1.0  # a step's pages to several places
LOOKED_UP = 12.0  # what finding out where to may take: a step's hours may end meanwhile
_NOBODY = Policy("nobody", "users", (), 15 * MINUTE, ())


@dataclass
class Quiet:
    """Nobody is paged: from when, and when that is over at the earliest and at the latest."""

    since: float
    lasts: float
    over: float
    by: str | None
    ended: float = float("inf")


@dataclass
class Sent:
    """A step that was sent: as pages of its own, and in a person's list of all that waits for them.

    `holders`: to whom it was to go in place of who is on call; None as well, where that may be over.
    """

    at: float
    step: int
    pages: list[int]
    holders: set[str | None]
    repeats: bool


@dataclass
class Course:
    facts: Facts
    incident: Incident
    problems: list[str] = field(default_factory=list)
    quiets: list[Quiet] = field(default_factory=list)
    late: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._policy = next((p for p in POLICIES if p.name == self.incident.policy), _NOBODY)
        self._put_on = 0.0  # when the clock jumped last: nothing can be expected of the time before
        self._quiet: Quiet | None = None
        self._resume: Quiet | None = None  # a hand-over, or a last resort that failed
        self._holder: str | None = None
        self._held: tuple[Quiet, str | None] | None = None
        self.steps: list[Sent] = []
        # Lists of what waits for somebody that repeat a step before its time, as something else in them was due.
        self.early: dict[int, float] = {}
        self._begin(self.incident.log[0].at)

    def run(self, ends: float) -> None:
        """Through the log; it ends, in truth, at `ends`."""
        events: list[tuple[float, int, Entry | float]] = [(entry.at, 1, entry) for entry in self.incident.log]
        began = self.incident.log[0].at
        events += [(at, 0, by) for at, by in self.facts.walls.jumps if at > began]
        for at, _, event in sorted(events, key=lambda each: each[:2]):
            if self.problems:
                return
            if at > ends:
                if isinstance(event, Entry) and event.what == "sent" and at > ends + 3:
                    self._problem(at, "was paged after it was over")
                continue
            self._check(at)
            if isinstance(event, Entry):
                self._take_in(event)
                self._latest = at
            else:
                self._jump(at, event)
            self._seen = at
        if not self.problems:
            self._check(ends)

    def _begin(self, at: float) -> None:
        held = self._held if self._quiet is not None else None  # a snooze within a hand-over
        if self._quiet is not None:
            self._quiet.ended = at
        self._start, self._latest, self._seen, self._jumped = at, at, at, False
        self._sent: dict[int, float] = {}
        self._pulled: dict[int, float] = {}
        self._lost = 0.0  # how long what was on its way waited for the next life: it is counted from then
        self._failed: set[int] = set()
        self._pages: set[int] = set()
        self._quiet = self._resume = self._holder = self._held = None
        if held is not None and held[0].over > at:
            self._resume, self._holder = held
            self._jumped = True  # how long that was is not known to the second

    def _hours(self, step: Step, at: float) -> tuple[bool, float, float]:
        """Whether a step may go at a moment, since when, and until when, if the clock goes on as it does then."""
        wall = self.facts.walls.at(at)
        is_open, since, until = open_since(step, self.facts.plan.beginning, wall)
        return is_open, at - (wall - since), at + (until - wall)

    def _next(self, at: float) -> int:
        steps = enumerate(self._policy.steps)
        return next((n for n, each in steps if n not in self._sent and self._hours(each, at)[0]), LAST)

    def _dues(self, seen: float) -> Iterator[tuple[int, float]]:
        """What is to be sent when, as far as can be told at `seen`. A step outside of its hours leaves its moment to the
        next one, and comes when they begin.
        """
        left, repeats, may_one_go = None, self._start, False
        for number, step in enumerate(self._policy.steps):
            is_first = number not in self._sent
            due = self._pulled.get(number, self._start + step.after)
            if not is_first:
                due = self._sent[number] + (step.every or 0.0)
            elif left is not None:
                due = min(due, left)
            left = None
            if not is_first and step.every is None:
                continue
            is_open, since, until = self._hours(step, max(due, seen))
            if is_open:
                may_one_go = True
                yield number, max(due, since)
                continue
            yield number, until
            if is_first:
                left = max(due, since)
            else:
                repeats = max(repeats, due, since)
        last = self._last_resort(None if left is None else max(left, repeats), may_one_go=may_one_go)
        if last is not None:
            yield LAST, last

    def _last_resort(self, left: float | None, *, may_one_go: bool) -> float | None:
        """When it is to be asked. `left`: the moment that no step could take; `may_one_go`: one will."""
        if LAST in self._pulled:
            return self._pulled[LAST]
        if may_one_go or (not self._policy.steps and LAST in self._sent):
            return None
        if not self._policy.steps or (left is not None and LAST not in self._sent):
            return self._start if left is None else left
        return max(self._sent.values()) + self._policy.take_timeout

    def _due(self, step: int, at: float) -> float | None:
        """Since when a step might be sent that is sent at `at`."""
        known = (dict(self._dues(seen)).get(step) for seen in (self._seen, at - LOOKED_UP, at))
        return min((due for due in known if due is not None), default=None)

    def _check(self, now: float) -> None:
        """Whether something should have been sent by `now`."""
        while (waits := self._quiet or self._resume) is not None and waits.over <= now:
            self._begin(waits.over)
        if self._quiet is not None:
            return
        for step, due in self._dues(self._seen):
            slack = URGENT if step in self._pulled else GATE
            if self.facts.walls.jumped(max(due, self._put_on) - 3 * MINUTE, due + 3 * MINUTE):
                slack += NOTICED
            lost = self._lost if step in self._sent or step == LAST else 0.0
            latest = self.facts.lives.settled(max(due + lost, self._put_on), slack)
            # Where nobody was there to send it, its hours may be over, and another's have begun.
            if latest < now and dict(self._dues(latest)).get(step, now) <= latest:
                self._problem(now, f"step {step} was due at {due:.0f} and did not come")
                return

    def _take_in(self, entry: Entry) -> None:
        at = entry.at
        match entry.what:
            case "began":
                self._begin(at)
            case "sent":
                self._page(entry)
            case "failed":
                self._fail(entry)
            case "taken":
                self._be_quiet(
                    at, self._policy.take_timeout, entry.wall + self._policy.take_timeout, entry.user
                )
                self._holder, self._held, self._resume = entry.user, None, None
            case "snoozed":
                until = entry.until or 0.0
                if self._resume is not None and self._quiet is None and self._holder is not None:
                    self._held = (self._resume, self._holder)
                self._be_quiet(at, until - entry.wall, until, entry.by)
            case "handed":
                self._begin(at)
                self._pull(at)
                self._holder = entry.user
                self._resume = self._pause(at)
            case "not mine":
                self._pass_on(entry)

    def _page(self, entry: Entry) -> None:
        step, at = entry.step or 0, entry.at
        if (
            self._sent.get(step) is not None
            and 0 <= at - self._sent[step] < _TOGETHER
            and entry.page is not None
        ):
            self._pages.add(entry.page)
            if (sent := next((sent for sent in reversed(self.steps) if sent.step == step), None)) is not None:
                sent.pages.append(entry.page)
            return
        waits = self._quiet or self._resume
        due = self._due(step, at)
        is_early = due is None or due > at + EARLY
        if waits is not None and self._may_be_over(waits, at) and (self._quiet is not None or is_early):
            self._begin(at)
        if self._quiet is not None and at < self._quiet.since + _MOMENT:
            return  # both at once
        if self._quiet is not None:
            self._problem(at, f"step {step} was sent, acknowledged since {self._quiet.since:.0f}")
            return
        due = self._due(step, at)
        if not self._jumped and (due is None or due > at + EARLY):
            if self._is_listed(entry):
                self.early[entry.page or 0] = at
                due = None
            else:
                self._problem(at, f"step {step} was sent once more, due at {due}")
        if due is not None and step not in self._pulled:
            self.late.append(at - due)
        repeats = any(sent.step == step for sent in self.steps)
        self._sent[step] = at
        self._lost = max(self._lost, self.facts.lives.resumed(at) - at)
        self._pulled.pop(step, None)
        self._failed.discard(step)
        self._pages.add(entry.page or 0)
        holders = {self._holder, None} if self._jumped else {self._holder}
        self.steps.append(Sent(at, step, [entry.page or 0], holders, repeats))

    def _is_listed(self, entry: Entry) -> bool:
        """Whether it is repeated in a list, which it may be early: its own repeat counts from there."""
        step = entry.step if entry.step is not None else LAST
        if step not in self._sent or len(self.facts.items[entry.page or 0]) < 2:
            return False
        kinds = {name.partition(":")[0] for name in self._policy.steps[step].notify}
        return self._policy.steps[step].every is not None and kinds <= {"thread", "dm", "channel"}

    def _fail(self, entry: Entry) -> None:
        """With a page: it did not arrive. Without: there was nobody to send to."""
        step, at = entry.step or 0, entry.at
        if entry.page is None:
            self._page(entry)
        elif entry.page not in self._pages:
            self._jumped = True  # of a cycle before: it may hurry this one
            if step == LAST and self._quiet is None:  # and nobody asks it once more for what fails now
                self._resume = self._resume or self._pause(at)
                self._sent.setdefault(LAST, at)
                self._failed.add(LAST)
            elif self._quiet is None:  # counts as this cycle's: nothing more comes of it if that fails, too
                self._sent.setdefault(step, at)
                self._failed.add(step)
            return
        if self._quiet is not None or step in self._failed:
            return
        self._failed.add(step)
        if self._next(at) == LAST and LAST in self._failed:
            self._resume = self._resume or self._pause(at)
        else:
            self._pull(at)

    def _pass_on(self, entry: Entry) -> None:
        at = entry.at
        if self._quiet is not None:
            if entry.by != self._quiet.by:
                return
            self._begin(at)
            if (first := self._next(at)) != LAST:
                self._sent[first] = at
        elif entry.by == self._holder:
            self._begin(at)
        if self._next(at) != LAST or LAST not in self._sent:
            self._pull(at)

    def _pull(self, at: float) -> None:
        step = self._next(at)
        if step == LAST or self._start + self._policy.steps[step].after > at:
            self._pulled.setdefault(step, at)

    def _be_quiet(self, at: float, lasts: float, until: float, by: str | None) -> None:
        if self._quiet is not None:
            self._quiet.ended = at
        self._quiet = self._wait(at, lasts, until, by)
        self.quiets.append(self._quiet)

    def _wait(self, at: float, lasts: float, until: float, by: str | None) -> Quiet:
        walls = self.facts.walls
        over = min(walls.reach(until, at), walls.falls_to(until - 2 * lasts, at))
        return Quiet(at, lasts, over, by)

    def _pause(self, at: float) -> Quiet:
        """Until the next cycle, where nobody acknowledged anything: a jump moves its end like all else that is due."""
        return Quiet(at, self._policy.take_timeout, at + self._policy.take_timeout, None)

    def _may_be_over(self, waits: Quiet, at: float) -> bool:
        walls = self.facts.walls
        elapsed = at - waits.since + walls.forward(waits.since, at)
        far = walls.falls_to(walls.at(waits.since) - waits.lasts + 1, waits.since)
        return elapsed >= waits.lasts - EARLY or (waits is self._quiet and far <= at)

    def _jump(self, at: float, by: float) -> None:
        self._jumped = True
        self._put_on = at
        if self._start >= at:
            return  # the jump itself began it
        shift = -by if by > 0 else min(-by, at - self._latest + MINUTE)
        self._start += shift
        for pause in (self._resume, self._held[0] if self._held else None):
            if pause is not None:
                pause.over += shift
        for moments in (self._sent, self._pulled):
            for step in moments:
                moments[step] += shift

    def _problem(self, at: float, words: str) -> None:
        self.problems.append(f"{self.incident.key} ({self.incident.policy}): at {at:.0f} {words}")
