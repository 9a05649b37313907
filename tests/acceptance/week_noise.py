"""How much stands where in a simulated week (P12): no question twice in one place, nothing unread for what is over, and
no page that goes before another stands in its place.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

from tests.acceptance.week_facts import Facts
from tests.acceptance.week_parties import CONTROLS, SlackMessage
from tests.acceptance.week_plan import FALLBACK, FaultKind

_NEVER = float("inf")
_DONE = 90.0  # seconds that a change in Slack may take, in good weather: after bad one a lane rests for up to a minute
_WEATHER: tuple[FaultKind, ...] = ("unreachable", "busy", "lossy")
_UNDER_WAY = (
    6.0  # seconds that a post may be under way when what it is about ends: in a channel it stays then
)


@dataclass(frozen=True)
class Span:
    """From when to when a message in a conversation itself, or broadcast to it, names a question."""

    message: SlackMessage
    question: str  # its clarification and round
    incident: int | None
    begins: float
    ends: float

    @property
    def place(self) -> str:
        return self.message.channel


def noise(facts: Facts, figures: Counter[str]) -> Iterator[str]:
    spans = [span for post in facts.outer.posts if _is_in_sight(post) for span in _spans(facts, post)]
    yield from _unknown_cards(facts)
    yield from _twice(facts, spans, figures)
    yield from _for_what_is_over(facts, spans, figures)
    yield from _gone_too_early(facts, spans, figures)


def _is_in_sight(post: SlackMessage) -> bool:
    """Whether a conversation itself shows it, and not only a thread."""
    return post.draft.thread_ts is None or post.draft.broadcast


def _spans(facts: Facts, post: SlackMessage) -> Iterator[Span]:
    gone = facts.outer.deleted.get(post.spot, _NEVER)
    kind, _, rest = post.key.partition(":")
    if kind == "nudge":
        yield Span(post, rest.rpartition(":")[0], None, post.at, gone)
    elif not kind and post.spot in facts.cards:
        yield Span(post, facts.cards[post.spot].partition(":")[2], None, post.at, gone)
    elif kind == "page":
        versions = [*facts.outer.said[post.spot], (gone, "")]
        for number in facts.items[int(rest.partition(":")[0])]:
            incident = facts.incidents[number]
            named = re.search(r"CLR-\d+-\d+:\d+", incident.key)
            question = named[0] if named else incident.key
            for (at, text), (until, _) in pairwise(versions):
                if (incident.clarification or "") in text and at < until:
                    yield Span(post, question, number, at, until)


def _unknown_cards(facts: Facts) -> Iterator[str]:
    """A card is in Slack once; what is there besides is deleted."""
    for post in facts.outer.posts:
        if not post.key and post.spot not in {*facts.cards, *facts.outer.frozen}:
            gone = facts.outer.deleted.get(post.spot, facts.lives.end)
            if gone > _deadline(facts, post.channel, post.at):
                yield f"card at {post.at:.0f} in {post.channel}: nobody knows of it"


def _deadline(facts: Facts, place: str, due: float) -> float:
    """When it must be done in a place that is due at `due`."""
    kinds = {*_WEATHER, "dm" if place.startswith("D") else "channel"}
    bad = [(fault.begins, fault.ends) for fault in facts.plan.faults if fault.kind in kinds]
    return facts.lives.calm(due, _DONE, bad)


def _twice(facts: Facts, spans: list[Span], figures: Counter[str]) -> Iterator[str]:
    """No question has two messages in one place, but for the moment between the post of one and the end of the other."""
    there: dict[tuple[str, str], list[Span]] = defaultdict(list)
    closed, overs = _closed(facts), _overs(facts)
    for span in spans:
        # What is left of trouble with a question's card, once somebody has seen to it, is not about the question.
        incident = facts.incidents.get(span.incident or 0)
        if incident is not None and incident.kind != "escalated":
            span = replace(span, ends=min(span.ends, closed.get(incident.id, _NEVER)))  # noqa: PLW2901
        there[span.place, span.question].append(span)
    told: set[tuple[object, ...]] = set()
    for (place, question), mine in there.items():
        for one, other in combinations(sorted(mine, key=lambda span: span.message.at), 2):
            begins, ends = max(one.begins, other.begins), min(one.ends, other.ends)
            was_under_way = 0 <= other.message.at - overs.get(other.incident or 0, _NEVER) < _UNDER_WAY
            if (
                one.message is other.message
                or ends <= begins
                or was_under_way
                or _is_trouble(facts, one, other)
            ):
                continue
            figures["replaced" if ends < _NEVER else "standing twice"] += 1
            deadline = _deadline(facts, place, begins)
            names = one.message.spot, other.message.spot, question
            if ends > deadline and not _may_stay(facts, one, deadline) and names not in told:
                told.add(names)
                until = f"{ends:.0f}" if ends < _NEVER else "the end"
                yield (
                    f"{question} in {place}: {_name(one)} and {_name(other)} both stand from {begins:.0f} to {until}"
                )


def _is_trouble(facts: Facts, one: Span, other: Span) -> bool:
    """Whether a card's own channel refused it: in the fallback channel what says so may stand beside the question, and before
    its card is there.
    """
    kinds = {facts.incidents[each.incident].kind for each in (one, other) if each.incident is not None}
    return one.place == FALLBACK and (not other.message.key or kinds != {"escalated"})


def _may_stay(facts: Facts, span: Span, at: float) -> bool:
    """Whether Slack refused to delete or change it, or people talk in its thread and it has no controls any more."""
    if span.message.spot in facts.outer.frozen:
        return True
    text = next(text for since, text in reversed(facts.outer.said[span.message.spot]) if since <= at)
    return span.message.spot in facts.outer.replies and CONTROLS not in text


def _name(span: Span) -> str:
    return span.message.key or "card"


def _for_what_is_over(facts: Facts, spans: list[Span], figures: Counter[str]) -> Iterator[str]:
    """What is over and was not seen goes from direct messages. Seen: the person did something there since."""
    overs = _overs(facts)
    for span in spans:
        user, over = span.message.owner, overs.get(span.incident or 0, _NEVER)
        if user is None or over == _NEVER or span.ends < over or _is_about_more(facts, span):
            continue
        deadline = _deadline(facts, span.place, max(over, span.begins))
        active = facts.story.active.get(user, ())
        if any(span.message.at <= at <= deadline for at in active):
            figures["over and seen"] += 1
        elif span.message.spot not in facts.outer.frozen:
            figures["over and unseen"] += 1
            if span.ends > deadline:
                yield f"{_name(span)}: over at {over:.0f}, unread, and still about {span.question} at {deadline:.0f}"


def _is_about_more(facts: Facts, span: Span) -> bool:
    """Whether it is trouble with a question's card, and the message is about the question, too."""
    mine = facts.incidents[span.incident or 0]
    others = (facts.incidents[number] for number in facts.items[int(span.message.key.split(":")[1])])
    return mine.kind != "escalated" and any(
        each is not mine and each.clarification == mine.clarification for each in others
    )


def _overs(facts: Facts) -> dict[int, float]:
    """When the question of an incident was over, by what the ledger says; of other incidents, when they were closed."""
    closed, known = _closed(facts), facts.by_key()
    for changes in facts.changes.values():
        for begins, ends in facts.escalations(changes):
            incident = known.get(f"escalated:{begins.id}:{begins.round}:{begins.escalated_at}")
            if incident is not None and ends < facts.lives.end:
                closed[incident.id] = ends
    return closed


def _closed(facts: Facts) -> dict[int, float]:
    return {
        each.id: entry.at for each in facts.incidents.values() for entry in each.log if entry.what == "closed"
    }


def _gone_too_early(facts: Facts, spans: list[Span], figures: Counter[str]) -> Iterator[str]:
    """A page of what is not over goes once another stands in its place, and no card ever."""
    overs = _overs(facts)
    for span in spans:
        if span.ends == _NEVER:
            continue
        if span.incident is None:
            yield f"{_name(span)} of {span.question}: was deleted at {span.ends:.0f}"
            continue
        others = [
            other
            for other in spans
            if (other.place, other.question) == (span.place, span.question)
            and other is not span
            and other.begins <= span.ends < other.ends
        ]
        if others:
            figures["page after page"] += 1
        elif span.ends < overs.get(span.incident, _NEVER):
            yield f"{_name(span)}: gone at {span.ends:.0f}, and nothing else in {span.place} is about {span.question}"
