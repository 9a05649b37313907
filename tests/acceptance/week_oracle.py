"""What must be true of a simulated week, by arithmetic of its own."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

from tests.acceptance.week_course import NOTICED, Course
from tests.acceptance.week_facts import Facts, Incident
from tests.acceptance.week_noise import noise
from tests.acceptance.week_plan import HOUR, MINUTE, POLICIES, SLA
from tests.acceptance.week_story import Act, CardAct, Change
from tests.acceptance.week_turns import nobody_was_there, only_who_is_on_call

_SOON = 5.0  # seconds that a due thing may take
_UNDER_WAY = 6.0  # seconds that a call to Slack may be under way when somebody acknowledges
_LANDING = 15.0
_ASKED_AGAIN = 180.0 + 30 + _SOON


@dataclass
class Verdict:
    problems: list[str] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)
    late: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        late = sorted(self.late) or [0.0]
        words = ", ".join(f"{name} {count}" for name, count in sorted(self.figures.items()))
        return f"{words}; pages late by {late[len(late) // 2]:.2f} s (median), {late[-1]:.0f} s (most)"


def judge(facts: Facts) -> Verdict:
    """All that is wrong, in words; none of it should be."""
    verdict = Verdict()
    courses = _courses(facts, verdict)
    for changes in facts.changes.values():
        _attended(facts, changes, verdict)
    _lists_are_due(facts, courses, verdict)
    _nothing_lost(facts, courses, verdict)
    _nothing_twice(facts, verdict)
    _nobody_after_acknowledging(facts, courses, verdict)
    _acts_are_kept(facts, verdict)
    verdict.problems += only_who_is_on_call(facts, courses, verdict.figures)
    verdict.problems += nobody_was_there(facts, courses, verdict.figures)
    _calendars_are_asked(facts, verdict)
    _nobody_after_taking(facts, verdict)
    _one_has_it_in_hand(facts, verdict)
    _reminders_go_to_who_has_it(facts, verdict)
    _broken_calendars_are_told(facts, verdict)
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
    slack = _SOON + (NOTICED if facts.walls.jumped(at - MINUTE, at + MINUTE) else 0)
    return facts.lives.settled(at, slack)


def _courses(facts: Facts, verdict: Verdict) -> dict[int, Course]:
    """Each escalation is one incident, and its pages come as its policy says."""
    found: dict[int, Course] = {}
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
            course = found[incident.id] = Course(facts, incident)
            course.run(ends)
            verdict.problems += course.problems
            verdict.late += course.late
            verdict.figures["escalations"] += 1
            verdict.figures["acknowledged"] += len(course.quiets)
    return found


def _lists_are_due(facts: Facts, courses: dict[int, Course], verdict: Verdict) -> None:
    """A list of what waits for somebody comes when something in it is due; it is no repeat of its own."""
    for page in {page for course in courses.values() for page in course.early}:
        others = [courses.get(number) for number in facts.due_items[page]]
        verdict.figures["lists that repeat early"] += 1
        if all(course is not None and page in course.early for course in others):
            verdict.problems.append(f"page {page}: a list of which nothing was due")


def _nothing_lost(facts: Facts, courses: dict[int, Course], verdict: Verdict) -> None:
    """What was to be sent is there, or was refused and the next step told so, or was needed by nobody any more."""
    posted = {post.key: post.at for post in facts.outer.posts}
    for page, sendings in facts.sendings.items():
        for each in sendings:
            verdict.figures[f"{each.via} {each.state}"] += 1
            if each.via == "slack" and each.state == "sent" and each.message not in posted:
                verdict.problems.append(f"{each.message}: is said to be sent, and is nowhere")
            if each.state == "wanted" and facts.page_at[page] < facts.lives.end - 10 * MINUTE:
                verdict.problems.append(f"page {page} to {each.target}: never settled")
        _failures_told(facts, page, posted, courses, verdict)
    taken = {(each.page, each.variable) for each in facts.outer.taken}
    for page, sendings in facts.sendings.items():
        for each in sendings:
            if each.via == "apprise" and each.state == "sent" and (page, each.target) not in taken:
                verdict.problems.append(f"page {page} through {each.target}: is said to be sent, and was not")


def _failures_told(
    facts: Facts, page: int, posted: dict[str, float], courses: dict[int, Course], verdict: Verdict
) -> None:
    """A message that is not there in time counts as failed, for everything that still waits."""
    latest = facts.lives.settled(facts.page_at[page], _LANDING)
    slack = [each for each in facts.sendings[page] if each.via == "slack"]
    if all(posted.get(each.message or "", float("inf")) <= latest for each in slack):
        return
    known = facts.lives.settled(facts.page_at[page], _LANDING + 60)
    for number in facts.due_items[page]:
        course = courses.get(number)
        if course is None or any(e.page == page and e.what == "failed" for e in course.incident.log):
            continue
        if not _settles(course, facts.page_at[page], known):
            verdict.problems.append(
                f"page {page} about {course.incident.key}: did not arrive, and nothing came of it"
            )


def _settles(course: Course, since: float, until: float) -> bool:
    """Whether it was acknowledged, passed on or over in between."""
    whats = {"taken", "snoozed", "handed", "closed", "not mine"}
    return any(e.what in whats and since - _UNDER_WAY <= e.at <= until for e in course.incident.log) or any(
        quiet.since <= since <= quiet.ended for quiet in course.quiets
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


def _nobody_after_acknowledging(facts: Facts, courses: dict[int, Course], verdict: Verdict) -> None:
    """Nothing arrives about what somebody has in hand, or what is over."""
    arrived = [
        (p.at, int(p.key.split(":")[1]), p.key) for p in facts.outer.posts if p.key.startswith("page:")
    ]
    arrived += [
        (each.at, each.page, f"page {each.page} through {each.variable}") for each in facts.outer.taken
    ]
    for at, page, name in arrived:
        mine = [facts.incidents[number] for number in facts.items[page]]
        if all(_is_calm(incident, courses.get(incident.id), at) for incident in mine):
            verdict.problems.append(f"{name}: arrived at {at:.0f}, when nobody was needed for {mine[0].key}")


def _is_calm(incident: Incident, course: Course | None, at: float) -> bool:
    """Whether nobody was to be paged about it for some seconds before `at`."""
    closed = next((e.at for e in incident.log if e.what == "closed"), float("inf"))
    if closed < at - _UNDER_WAY:
        return True
    quiets = course.quiets if course is not None else []
    return any(quiet.since < at - _UNDER_WAY and at < min(quiet.ended, quiet.over) for quiet in quiets)


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


def _calendars_are_asked(facts: Facts, verdict: Verdict) -> None:
    """Every few minutes, as long as there is a bot."""
    slow = [fault for fault in facts.plan.faults if fault.kind == "slow directory"]
    for policy in facts.plan.calendars:
        asked = [each.at for each in facts.outer.fetches if each.policy == policy]
        for begins, ends in facts.lives:
            for one, other in pairwise([begins, *(at for at in asked if begins < at < ends), ends]):
                if other - one > _ASKED_AGAIN and not any(f.begins < other and f.ends > one for f in slow):
                    verdict.problems.append(f"{policy}'s calendar: not asked from {one:.0f} to {other:.0f}")


def _nobody_after_taking(facts: Facts, verdict: Verdict) -> None:
    """Who is told that pages stop is not paged: by what the ledger says, whatever the log of pages does."""
    trust = {policy.name: policy.take_timeout for policy in POLICIES}
    escalated = {number: each for number, each in facts.incidents.items() if each.kind == "escalated"}
    arrived: dict[str, list[float]] = defaultdict(list)
    for post in facts.outer.posts:
        for number in facts.due_items[int(post.key.split(":")[1])] if post.key.startswith("page:") else ():
            if number in escalated:
                arrived[escalated[number].clarification or ""].append(post.at)
    given_back: dict[str, list[float]] = defaultdict(list)
    for act in facts.story.acts:
        for number in facts.items[act.page] if act.verb in {"notmine", "snooze", "hand"} else ():
            given_back[facts.incidents[number].clarification or ""].append(act.began)
    by_id = {each.clarification: each for each in escalated.values()}
    for name, changes in facts.changes.items():
        held = [c for b, c in pairwise([None, *changes]) if c and (b is None or _hold(b) != _hold(c))]
        for now, after in zip(held, [*held[1:], None], strict=True):
            if now.taken_by is None or now.status != "escalated" or name not in by_id:
                continue
            lasts = trust.get(by_id[name].policy or "", 15 * MINUTE)
            wall = facts.walls.at(now.at)
            ends = min(
                after.at if after is not None else facts.lives.end,
                facts.walls.reach(wall + lasts, now.at),
                facts.walls.falls_to(wall - lasts, now.at),
                *(at for at in given_back[name] if at > now.at),
            )
            verdict.figures["taken"] += 1
            verdict.problems += [
                f"{name}: paged at {at:.0f}, though {now.taken_by} took it at {now.at:.0f}"
                for at in arrived[name]
                if now.at + _UNDER_WAY < at < ends - 1
            ]


def _hold(change: Change) -> tuple[object, ...]:
    return change.status, change.round, change.escalated_at, change.taken_by, change.handed_to


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


def _broken_calendars_are_told(facts: Facts, verdict: Verdict) -> None:
    """The fallback channel hears of a calendar that cannot be read, once however long that lasts."""
    for policy in facts.plan.calendars:
        away: list[tuple[float, float]] = []
        for each in sorted(facts.plan.outages, key=lambda outage: outage.begins):
            if each.policy == policy:
                joins = bool(away) and each.begins <= away[-1][1] + 10 * MINUTE
                begins, ends = away.pop() if joins else (each.begins, each.ends)
                away.append((begins, max(ends, each.ends)))
        told = [
            p.at
            for p in facts.outer.posts
            if p.key.startswith(f"word:feed:{policy}:") and "cannot be" in p.draft.text
        ]
        for begins, ends in away:
            heard = sum(begins <= at <= ends for at in told)
            verdict.figures["broken calendars told"] += heard
            lasts = ends - begins > 12 * HOUR
            refused = any(
                f.kind == "channel" and f.begins < begins + HOUR and f.ends > begins
                for f in facts.plan.faults
            )
            if heard > 1 or (lasts and not heard and not refused):
                verdict.problems.append(
                    f"{policy}'s calendar was away from {begins:.0f} to {ends:.0f}: told {heard} times"
                )


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
