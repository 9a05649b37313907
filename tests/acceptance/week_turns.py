"""Who is on call in a simulated week, by arithmetic of its own: from the plan's intervals, and what the bot could know."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import product

from tests.acceptance.week_calendar import NOBODY, Turn
from tests.acceptance.week_course import LAST, Course, Sent
from tests.acceptance.week_facts import Facts
from tests.acceptance.week_parties import Fetch
from tests.acceptance.week_plan import DAY, FALLBACK, GROUPS, MINUTE, POLICIES, ROUTES, Policy, rotation_turn
from tests.acceptance.week_story import Override

_LOOKED_UP = 4.0  # seconds that may have passed since the bot looked who it is
_KEPT = 5.0  # seconds until what was fetched is stored
_MATCHED = 20 * MINUTE  # until it is stored while Slack is slow to tell who somebody is
_DARK = {"directory", "slow directory", "unreachable"}


class OnCall:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._plan, self._walls = facts.plan, facts.walls
        self._fetched = {
            name: [each for each in facts.outer.fetches if each.policy == name and each.version is not None]
            for name in facts.plan.calendars
        }

    def is_dark(self, since: float, until: float) -> bool:
        """Whether Slack did not tell of people: then it is as last known, or not known."""
        return any(f.kind in _DARK and f.begins <= until and since <= f.ends for f in self._plan.faults)

    def may_be(self, policy: Policy, at: float, holders: set[str | None]) -> set[tuple[str, ...]]:
        """All that can be right for a page that was written down at `at`: at the edges of a shift there are two."""
        moments = (at, at - _LOOKED_UP / 2, at - _LOOKED_UP)
        held: set[tuple[str, ...]] = {
            (user,) for user in holders for moment in moments if user and self._is_active(user, moment)
        }
        if held and None not in holders and all(self._is_active(user, at) for (user, *_) in held):
            return held
        return held | {
            who
            for moment, overrides, copy in product(
                moments, self._overrides(policy.name, at), self._copies(policy.name, at)
            )
            for who in self._who(policy, moment, overrides, copy)
        }

    def known(self, policy: Policy, at: float) -> bool:
        """Whether Slack told of people whenever it was asked who is on call."""
        copies = [copy.at for copy in self._copies(policy.name, at) if copy is not None]
        return not self.is_dark(at - MINUTE, at) and not any(
            self.is_dark(each - 1, each + _MATCHED) for each in copies
        )

    def anybody(self, policy: Policy, at: float) -> set[str]:
        """Whom one of its sources names, whatever Slack says of them."""
        found = {*policy.users, *(GROUPS["S0INFRA"] if policy.source == "group" else ())}
        found |= {each.user for overrides in self._overrides(policy.name, at) for each in overrides}
        fetched = [each for each in self._fetched.get(policy.name, ()) if each.at <= at]
        for copy in [each for each in fetched if each.at > at - _MATCHED] or fetched[-1:]:
            for moment in (at, at - MINUTE):
                found |= {turn.user for turn in self._at(copy, moment)}
        return found

    def members_of(self, policy: Policy, step: int, at: float) -> set[str]:
        """Whom a step calls besides: the members of groups."""
        groups = (
            [name[6:] for name in policy.steps[step].notify if name[:6] == "group:"] if step != LAST else []
        )
        return {user for group in groups for user in GROUPS[group] if self._is_active(user, at)}

    def _who(
        self, policy: Policy, at: float, overrides: list[Override], copy: Fetch | None
    ) -> Iterator[tuple[str, ...]]:
        wall = self._walls.at(at)
        standing = [each for each in overrides if each.since <= wall < each.until]
        if standing and self._is_active(standing[-1].user, at):
            yield (standing[-1].user,)
            return
        match policy.source:
            case "calendar":
                for planned in self._by_calendar(copy, at):
                    yield planned or self._active(policy.users, at)
            case "rotation":
                turn = rotation_turn(wall) % len(policy.users)
                yield self._active((*policy.users[turn:], *policy.users[:turn]), at)[:1]
            case "users":
                yield self._active(policy.users, at)
            case "group":
                there = self._active(sorted(policy.users), at)
                present = [user for user in there if self._facts.outer.is_present_at(user, at)]
                yield tuple(present[:1]) or there

    def _by_calendar(self, copy: Fetch | None, at: float) -> Iterator[tuple[str, ...]]:
        """Who is found in Slack when the calendar is fetched, and there when they are paged; of them the highest level."""
        if copy is None:
            yield ()
            return
        age = self._walls.at(at) - self._walls.at(copy.at)
        if age > DAY - _KEPT:
            yield ()
        if age > DAY + _KEPT:
            return
        for asked in (copy.at, copy.at + _LOOKED_UP):
            turns = [
                turn
                for turn in self._at(copy, at)
                if self._is_active(turn.user, asked) and self._is_active(turn.user, at)
            ]
            highest = max((turn.level for turn in turns), default=0)
            yield tuple(dict.fromkeys(turn.user for turn in turns if turn.level == highest))

    def _at(self, copy: Fetch, at: float) -> list[Turn]:
        assert copy.version is not None
        wall, turns = self._walls.at(at), self._plan.calendars[copy.policy][copy.version].turns
        return [turn for turn in turns if turn.begins <= wall < turn.ends and turn.user != NOBODY]

    def _copies(self, policy: str, at: float) -> list[Fetch | None]:
        """The copy that the bot has; also the one before, where a life may have ended before it was stored."""
        fetched = self._fetched.get(policy, [])
        number = bisect_right([each.at for each in fetched], at)
        found: list[Fetch | None] = [fetched[number - 1] if number else None]
        while number and self._facts.lives.was_cut(fetched[number - 1].at, _KEPT, at):
            number -= 1
            found.append(fetched[number - 1] if number else None)
        return found

    def _overrides(self, policy: str, at: float) -> list[list[Override]]:
        """In the order of making; with and without what was just being made or taken back."""
        found: list[list[Override]] = [[]]
        made = sorted(self._facts.story.overrides, key=lambda each: each.made[1])
        for each in made:
            if each.policy != policy or each.made[0] > at or (each.gone is not None and each.gone[1] <= at):
                continue
            # Whoever makes another one clears away what is over by the clock, for good.
            if any(
                each.made[1] < other.made[1] <= at and each.until <= self._walls.at(other.made[1])
                for other in made
            ):
                continue
            in_doubt = at < each.made[1] + _LOOKED_UP or (each.gone is not None and each.gone[0] <= at)
            found = [[*rest, each] for rest in found] + (found if in_doubt else [])
        return found

    def _is_active(self, user: str, at: float) -> bool:
        return not any(a.user == user and a.begins <= at < a.ends for a in self._plan.absences)

    def _active(self, users: Iterable[str], at: float) -> tuple[str, ...]:
        return tuple(user for user in users if self._is_active(user, at))


def only_who_is_on_call(facts: Facts, courses: Mapping[int, Course], figures: Counter[str]) -> Iterator[str]:
    """A page calls who is on call, all of them in their order and nobody else; or who was handed what it is about. Where
    there is nobody the next step goes.
    """
    turns, policies = OnCall(facts), {policy.name: policy for policy in POLICIES}
    judged: set[tuple[int, ...]] = set()
    for course in courses.values():
        for sent in course.steps:
            names = tuple(sent.pages)
            if course.incident.policy in policies and sent.pages[0] in facts.page_at and names not in judged:
                judged.add(names)
                yield from _judged(turns, policies[course.incident.policy], sent, course, figures)


def _judged(
    turns: OnCall, policy: Policy, sent: Sent, course: Course, figures: Counter[str]
) -> Iterator[str]:
    facts, at, names = course.facts, course.facts.page_at[sent.pages[0]], f"page {sent.pages} ({policy.name})"
    sendings = [each for page in sent.pages for each in facts.sendings[page] if each.via == "slack"]
    called = {each.target: each.mentions for each in sendings}
    named = {user for each in sendings for user in (each.target, *each.mentions) if user[0] == "U"}
    members = turns.members_of(policy, sent.step, at)
    if not turns.known(policy, at):
        figures["pages judged loosely"] += 1
        if others := named - turns.anybody(policy, at) - members - sent.holders:
            yield f"{names} at {at:.0f}: called {others}"
        return
    figures[f"pages judged of {policy.source}"] += 1
    may_be = turns.may_be(policy, at, sent.holders)
    wanted = [_called(policy, sent.step, who, members, sent.holders) for who in may_be]
    if _is_listed(facts, sent):
        figures["steps in a list"] += 1
        wanted += [{place: () for place in each if place[0] == "U"} for each in wanted]
    also = _only_listed(facts, sent, course)
    if all(
        {place: to for place, to in called.items() if place in each or place not in also} != each
        for each in wanted
    ):
        yield f"{names}, step {sent.step}, at {at:.0f}: called {called}, not {may_be}"
    failed = any(e.what == "failed" and e.page in sent.pages for e in course.incident.log)
    nobody = policy.source == "calendar" and may_be == {()} and sent.step != LAST
    if nobody and called and not members and not failed:
        yield f"{names} at {at:.0f}: called nobody, and nothing came of it"


def _is_listed(facts: Facts, sent: Sent) -> bool:
    """Whether it may be in people's lists alone: a repeat, or one of many at once."""
    lists = [page for page in sent.pages if len(facts.items[page]) > 1]
    return bool(lists) and (sent.repeats or any(len(facts.due_items[page]) > 1 for page in lists))


def _only_listed(facts: Facts, sent: Sent, course: Course) -> set[str]:
    """Who has it in a list of what else they were paged for, as they were paged for it before."""
    before = {
        each.target
        for other in course.steps
        if other.at < sent.at
        for page in other.pages
        for each in facts.sendings[page]
    }
    lists = (page for page in sent.pages if len(facts.items[page]) > 1)
    return {each.target for page in lists for each in facts.sendings[page] if each.target[0] == "U"} & before


def nobody_was_there(facts: Facts, courses: Mapping[int, Course], figures: Counter[str]) -> Iterator[str]:
    """A first step that went nowhere had nobody to go to."""
    turns, policies = OnCall(facts), {policy.name: policy for policy in POLICIES}
    for course in courses.values():
        policy = policies.get(course.incident.policy or "")
        for entry in course.incident.log if policy is not None else ():
            if policy is None or entry.what != "failed" or entry.page is not None or entry.step != 0:
                continue
            figures["nobody was there"] += 1
            if turns.known(policy, entry.at) and () not in turns.may_be(policy, entry.at, {None}):
                yield f"{course.incident.key}: at {entry.at:.0f} there was somebody to call"


def _called(
    policy: Policy, step: int, who: tuple[str, ...], members: set[str], holders: set[str | None]
) -> dict[str, tuple[str, ...]]:
    """Where a step leads, and who is called there."""
    channel = next(channel for channel, name in ROUTES.values() if name == policy.name)
    found: dict[str, tuple[str, ...]] = dict.fromkeys(members, ())
    for notify in ("last",) if step == LAST else policy.steps[step].notify:
        kind, _, name = notify.partition(":")
        if kind == "dm" or (kind == "last" and len(who) == 1 and who[0] in holders):
            found |= dict.fromkeys(who, ())
        if kind in {"thread", "channel", "last"}:
            found[{"thread": channel, "last": FALLBACK}.get(kind, name)] = who
    return found
