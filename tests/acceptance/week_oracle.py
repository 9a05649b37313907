"""What must be true of a simulated week, by arithmetic of its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tests.acceptance.week_facts import Entry, Facts, Incident
from tests.acceptance.week_noise import noise
from tests.acceptance.week_plan import GROUPS, MINUTE, POLICIES, SLA
from tests.acceptance.week_story import Act, CardAct, Change

_SOON = 5.0  # seconds that a due thing may take
_UNDER_WAY = 6.0  # seconds that a call to Slack may be under way when somebody acknowledges
_LANDING = 15.0
_GATE = 70.0  # alike pages are held back and sent together: a minute at most
_NOTICED = 65.0  # until a clock that jumped is noticed
LAST = -1  # the last resort, in place of a step
_PAUSES = {policy.name: policy.longest_pause for policy in POLICIES}
_ON_CALL: dict[str, set[str | None]] = {
    policy.name: {
        *policy.users,
        *(
            user
            for step in policy.steps
            for to in step.notify
            if to.startswith("group:")
            for user in GROUPS[to[6:]]
        ),
    }
    for policy in POLICIES
}


@dataclass
class Verdict:
    problems: list[str] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return ", ".join(f"{name} {count}" for name, count in sorted(self.figures.items()))


def judge(facts: Facts) -> Verdict:
    """All that is wrong, in words; none of it should be."""
    verdict = Verdict()
    _paged(facts, verdict)
    _called(facts, verdict)
    for changes in facts.changes.values():
        _attended(facts, changes, verdict)
    _nothing_lost(facts, verdict)
    _nothing_twice(facts, verdict)
    _nobody_after_acknowledging(facts, verdict)
    _acts_are_kept(facts, verdict)
    _one_has_it_in_hand(facts, verdict)
    _reminders_go_to_who_has_it(facts, verdict)
    _consent_of_different_people(facts, verdict)
    verdict.problems += noise(facts, verdict.figures)
    verdict.figures["questions"] = len(facts.plan.questions)
    verdict.figures["lives"] = len(facts.story.lives)
    verdict.figures["pages"] = len(facts.page_at)
    verdict.figures["posts"] = len(facts.outer.posts)
    verdict.figures["outside"] = len(facts.outer.taken)
    verdict.figures["refused"] = len(facts.outer.refusals) + len(facts.outer.refused_outside)
    return verdict


def _attended(facts: Facts, changes: list[Change], verdict: Verdict) -> None:
    """Nudged, escalated and abandoned when the clock said so, and not before."""
    reminded = changes[0]
    for now, after in zip(changes, [*changes[1:], None], strict=True):
        if (now.round, now.nudges) != (reminded.round, reminded.nudges):
            reminded = now
        if now.status == "pending":
            _chased(facts, now, after, reminded.wall.timestamp(), verdict)
        if now.status not in {"pending", "escalated"} or now.expires_at is None:
            continue
        expiry = _due(facts, now, now.expires_at.timestamp())
        if (after.at if after is not None else facts.lives.end) > expiry:
            verdict.problems.append(f"{now.id}: open at {expiry:.0f}, when its time had run out")


def _chased(facts: Facts, now: Change, after: Change | None, reminded: float, verdict: Verdict) -> None:
    """One that waits is nudged, or escalated, in time. `reminded`: when it last was, by the clock."""
    asked = now.asked_last.timestamp()
    left = now.expires_at.timestamp() - asked if now.expires_at is not None else None
    if now.nudges == 0:
        kind, wall = "nudged", asked + (SLA if left is None else min(SLA, left / 2))
    else:
        again = reminded + SLA
        limit = float("inf") if left is None else max(reminded, asked + left * 0.75)
        kind, wall = "escalated", min(again, limit)
    due = _due(facts, now, wall)
    if (after.at if after is not None else facts.lives.end) > due:
        verdict.problems.append(f"{now.id} round {now.round}: not {kind} by {due:.0f}")
    if after is None or after.round != now.round:
        return
    nudged, escalated = after.nudges > now.nudges, after.escalated_for == "stale" != now.escalated_for
    if (nudged and kind == "nudged") or (escalated and kind == "escalated"):
        verdict.figures[kind] += 1
        if after.wall.timestamp() < wall - 0.01:
            verdict.problems.append(f"{now.id}: {kind} at {after.at:.0f}, too early")
    elif nudged or escalated:
        verdict.problems.append(f"{now.id}: at {after.at:.0f} it should have been {kind}")


def _due(facts: Facts, now: Change, wall: float) -> float:
    """When it must be done that is due when the clock says `wall`."""
    at = facts.walls.reach(wall, now.at)
    slack = _SOON + (_NOTICED if facts.walls.jumped(at - MINUTE, at + MINUTE) else 0)
    return facts.lives.settled(at, slack)


def _paged(facts: Facts, verdict: Verdict) -> None:
    """Each escalation is one incident, about which people are paged until somebody has it."""
    known = facts.by_key()
    for changes in facts.changes.values():
        for begins, ends in facts.escalations(changes):
            key = f"escalated:{begins.id}:{begins.round}:{begins.escalated_at}"
            incident = known.get(key)
            if incident is None or incident.log[0].at > facts.lives.settled(begins.at, _SOON):
                if facts.lives.settled(begins.at, _SOON) < ends:
                    verdict.problems.append(f"{key}: escalated at {begins.at:.0f}, and nobody was to know")
                if incident is None:
                    continue
            verdict.figures["escalations"] += 1
            verdict.figures["acknowledged"] += len(facts.quiets(incident))
            verdict.problems += _paged_until_somebody_has_it(facts, incident, ends)


def _paged_until_somebody_has_it(facts: Facts, incident: Incident, ends: float) -> Iterator[str]:
    """At once, then within each pause of the policy; at once again where a page failed, or was passed on."""
    watch = _Watch(facts, incident)
    began = incident.log[0].at
    jumps = [(at, None) for at, _ in facts.walls.jumps if at > began]
    for at, entry in sorted([*((each.at, each) for each in incident.log), *jumps], key=lambda each: each[0]):
        if at <= ends:
            if watch.latest < at:
                break
            watch.take_in(at, entry)
        elif entry is not None and entry.what == "sent" and at > ends + 3:
            yield f"{incident.key}: paged at {at:.0f}, after it was over"
    if watch.latest < min(ends, facts.lives.end):
        yield f"{incident.key} ({incident.policy}): nobody was paged by {watch.latest:.0f}"


class _Watch:
    """When the next page about an incident is due, by what happened so far."""

    def __init__(self, facts: Facts, incident: Incident) -> None:
        self._facts = facts
        self._pause = _PAUSES.get(incident.policy or "", float("inf"))
        self._quiets = facts.quiets(incident)
        self._due = incident.log[0].at
        self._pages, self._failed = set[int | None](), set[int | None]()  # since it began anew

    @property
    def latest(self) -> float:
        """When it must be there."""
        jumped = self._facts.walls.jumped(self._due - 3 * MINUTE, self._due + 3 * MINUTE)
        return self._facts.lives.settled(self._due, _GATE + (_NOTICED if jumped else 0))

    def take_in(self, at: float, entry: Entry | None) -> None:
        """None: the clock jumps. One that is put back may keep it waiting for as long again."""
        if (quiet := next((each for each in self._quiets if each.covers(at)), None)) is not None:
            self._due = quiet.over
        elif entry is None:
            self._due = at + self._pause + MINUTE
        elif entry.what in {"began", "handed"}:
            self._due, self._pages, self._failed = at, set(), set()
        elif entry.what == "not mine" and any(each.ended == at for each in self._quiets):
            self._due = at
        elif entry.what == "sent" or (entry.what == "failed" and entry.page is None):
            self._due = self._facts.lives.resumed(at) + self._pause
            self._pages.add(entry.page)
            self._failed.discard(entry.step)
        elif entry.what == "failed" and entry.page in self._pages and entry.step not in self._failed:
            self._failed.add(entry.step)
            self._due = self._due if LAST in self._failed else at


def _called(facts: Facts, verdict: Verdict) -> None:
    """A page calls those on call for its policy, those whom its steps name, and who was handed what it is about."""
    for page in facts.pages:
        logs = [facts.incidents[number].log for number in facts.items[page.id]]
        may_be = {entry.user for log in logs for entry in log if entry.what in {"taken", "handed"}}
        may_be |= _ON_CALL.get(page.policy or "", set())
        named = {user for each in facts.sendings[page.id] for user in (each.target, *each.mentions)}
        verdict.figures["pages judged"] += 1
        if others := {user for user in named if user.startswith("U")} - may_be:
            verdict.problems.append(f"page {page.id} ({page.policy}) at {page.at:.0f}: called {others}")


def _nothing_lost(facts: Facts, verdict: Verdict) -> None:
    """What was to be sent is there, or was refused and the next step told so, or was needed by nobody any more."""
    posted = {post.key: post.at for post in facts.outer.posts}
    for page, sendings in facts.sendings.items():
        for each in sendings:
            verdict.figures[f"{each.via} {each.state}"] += 1
            if each.via == "slack" and each.state == "sent" and each.message not in posted:
                verdict.problems.append(f"{each.message}: is said to be sent, and is nowhere")
            if each.state == "wanted" and facts.page_at[page] < facts.lives.end - 10 * MINUTE:
                verdict.problems.append(f"page {page} to {each.target}: never settled")
        _failures_told(facts, page, posted, verdict)
    taken = {(each.page, each.variable) for each in facts.outer.taken}
    for page, sendings in facts.sendings.items():
        for each in sendings:
            if each.via == "apprise" and each.state == "sent" and (page, each.target) not in taken:
                verdict.problems.append(f"page {page} through {each.target}: is said to be sent, and was not")


def _failures_told(facts: Facts, page: int, posted: dict[str, float], verdict: Verdict) -> None:
    """A message that is not there in time counts as failed, for everything that still waits."""
    latest = facts.lives.settled(facts.page_at[page], _LANDING)
    slack = [each for each in facts.sendings[page] if each.via == "slack"]
    if all(posted.get(each.message or "", float("inf")) <= latest for each in slack):
        return
    known = facts.lives.settled(facts.page_at[page], _LANDING + 60)
    for number in facts.due_items[page]:
        incident = facts.incidents[number]
        if incident.kind != "escalated":
            continue
        is_told = any(e.page == page and e.what == "failed" for e in incident.log)
        if not is_told and not _settles(facts, incident, facts.page_at[page], known):
            verdict.problems.append(
                f"page {page} about {incident.key}: did not arrive, and nothing came of it"
            )


def _settles(facts: Facts, incident: Incident, since: float, until: float) -> bool:
    """Whether it was acknowledged, passed on or over in between."""
    whats = {"taken", "snoozed", "handed", "closed", "not mine"}
    return any(e.what in whats and since - _UNDER_WAY <= e.at <= until for e in incident.log) or any(
        quiet.since <= since <= quiet.ended for quiet in facts.quiets(incident)
    )


def _nothing_twice(facts: Facts, verdict: Verdict) -> None:
    """A page is in each place once; a pager outside gets it again only where a life ended meanwhile."""
    for key, count in Counter((post.key, post.channel) for post in facts.outer.posts if post.key).items():
        if count > 1:
            verdict.problems.append(f"{key[0]}: is {count} times in {key[1]}")
    ends = sorted(end for _, end in facts.story.lives)
    outside: dict[tuple[int, str], list[float]] = {}
    for each in facts.outer.taken:
        outside.setdefault((each.page, each.variable), []).append(each.at)
    for (page, variable), times in outside.items():
        for one, other in pairwise(times):
            if not any(one <= end <= other for end in ends):
                verdict.problems.append(
                    f"page {page}: twice through {variable}, at {one:.0f} and {other:.0f}"
                )


def _nobody_after_acknowledging(facts: Facts, verdict: Verdict) -> None:
    """Nothing arrives about what somebody has in hand, or what is over."""
    arrived = [
        (p.at, int(p.key.split(":")[1]), p.key) for p in facts.outer.posts if p.key.startswith("page:")
    ]
    arrived += [
        (each.at, each.page, f"page {each.page} through {each.variable}") for each in facts.outer.taken
    ]
    for at, page, name in arrived:
        mine = [facts.incidents[number] for number in facts.items[page]]
        if all(_is_calm(facts, incident, at) for incident in mine):
            verdict.problems.append(f"{name}: arrived at {at:.0f}, when nobody was needed for {mine[0].key}")


def _is_calm(facts: Facts, incident: Incident, at: float) -> bool:
    """Whether nobody was to be paged about it for some seconds before `at`."""
    closed = next((e.at for e in incident.log if e.what == "closed"), float("inf"))
    if closed < at - _UNDER_WAY:
        return True
    return any(quiet.since < at - _UNDER_WAY and quiet.covers(at) for quiet in facts.quiets(incident))


def _acts_are_kept(facts: Facts, verdict: Verdict) -> None:
    """What somebody was told was done is in the log."""
    whats = {"take": "taken", "snooze": "snoozed", "notmine": "not mine", "hand": "handed"}
    for act in facts.story.acts:
        if not act.confirmed:
            continue
        verdict.figures[act.verb] += 1
        logs = [facts.incidents[number].log for number in facts.items[act.page]]
        done = any(e.what in {whats[act.verb], "closed"} and e.at <= act.at + 1 for log in logs for e in log)
        if not done:
            verdict.problems.append(f"page {act.page}: {act.verb} by {act.user} at {act.at:.0f} is not kept")


def _one_has_it_in_hand(facts: Facts, verdict: Verdict) -> None:
    """A card is in hand of who took it first, until they let go, somebody takes it over, or it is escalated."""
    for name, changes in facts.changes.items():
        acts = [act for act in facts.story.card_acts if act.clarification == name]
        paged = [
            act
            for act in facts.story.acts
            if any(facts.incidents[n].clarification == name for n in facts.items[act.page])
        ]
        for before, now in pairwise(changes):
            same = (before.escalated_at, before.round) == (now.escalated_at, now.round)
            if before.taken_by == now.taken_by or not same:
                continue
            verdict.figures["changed hands"] += 1
            allowed = {("over", now.taken_by), ("take", now.taken_by if before.taken_by is None else None)}
            if now.taken_by is None:
                allowed = {("letgo", before.taken_by)}
            both: list[Act | CardAct] = [*acts, *paged]
            doing = [a for a in both if a.began <= now.at <= a.at + 1]
            if not any(
                (a.verb, a.user) in allowed or (a in paged and a.verb in {"take", "hand"}) for a in doing
            ):
                verdict.problems.append(
                    f"{name}: from {before.taken_by} to {now.taken_by} at {now.at:.0f} by nobody's act"
                )
        for act in acts:
            if not act.confirmed or act.verb not in {"take", "over", "letgo"}:
                continue
            verdict.figures[f"card {act.verb}"] += 1
            until = [each for each in changes if each.at <= act.at]
            here = [each.taken_by for each in until if each.at >= act.began] + [until[-1].taken_by]
            # What is escalated is not let go of: it is given back on its page.
            is_kept = (
                act.user in here if act.verb != "letgo" else None in here or until[-1].status != "pending"
            )
            if not is_kept:
                verdict.problems.append(f"{name}: {act.verb} by {act.user} at {act.at:.0f} is not kept")


def _reminders_go_to_who_has_it(facts: Facts, verdict: Verdict) -> None:
    """A reminder calls who has the card in hand, and else nobody by name; nor where several people have to accept."""
    for post in facts.outer.posts:
        if not post.key.startswith("nudge:"):
            continue
        _, name, number, nudges = post.key.split(":")
        changes = facts.changes[name]
        since = next(c.at for c in changes if (c.round, c.nudges) == (int(number), int(nudges)))
        meanwhile = [c for c in changes if since <= c.at <= post.at]
        owners = {c.taken_by if c.needed == 1 else None for c in meanwhile}
        if len(owners) > 1 or any(c.status != "pending" for c in meanwhile):
            continue
        verdict.figures["reminded in hand" if owners != {None} else "reminded"] += 1
        if (named := set(re.findall(r"<@(U\w+)>", post.draft.text))) != owners - {None}:
            verdict.problems.append(f"{post.key}: called {named}, in hand of {owners}")


def _consent_of_different_people(facts: Facts, verdict: Verdict) -> None:
    """As many different people accepted as were needed, each by a press, and no accept is lost; one reject decides."""
    for name, changes in facts.changes.items():
        acts = [act for act in facts.story.card_acts if act.clarification == name]
        needed, last = facts.world.asked(name).needs, changes[-1]
        pressed = {verb: {act.user for act in acts if act.verb == verb} for verb in ("accept", "reject")}
        told = {verb: {a.user for a in acts if a.verb == verb and a.confirmed} for verb in pressed}
        kept = [*last.accepted, *([last.decided or ""] if last.response == "accept" else [])]
        right = (
            len(kept) == len(set(kept)) == needed if last.response == "accept" else len(kept) < needed,
            pressed["accept"].issuperset(kept),
            last.response == "reject" or told["accept"].issubset(kept),
            last.decided in pressed["reject"] if last.response == "reject" else not told["reject"],
        )
        if needed and last.response is not None:
            verdict.figures[f"{last.response} by {needed}"] += 1
        if needed and not all(right):
            verdict.problems.append(f"{name}: {needed} were to accept, {kept} did; {right}, {pressed}")
