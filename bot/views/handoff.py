"""`agent.handoff.requested` (AAEP chapter 4): what an agent hands over, to whom, and how its card tells who has it.

The card follows the incident that on-call is paged for: taken there or here, both say so. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from bot.views import inert
from bot.views.blockkit import BUTTON
from bot.views.notices import Notice, agent_of, fact
from bot.views.outline import outline
from bot.views.pagecard import HAND, TAKE
from bot.views.pagecodec import PagePress, PageVerb, action_id
from bot.views.pagesheet import Matter, standing_words
from bot.views.parts import Button, Words
from core.aaep import Event

CONTEXT_LIMIT = (
    100_000  # of what an agent packs up, in characters; the protocol asks for events of at most 64 KiB
)
_TO = {
    "human": "a human",
    "specialist_agent": "a specialist agent",
    "escalation_queue": "an escalation queue",
}
_NOT_FORWARDED = "clarify-bot does not pass this on: whoever takes it sees that it gets there"
_HINT = "Nobody has it yet. Press Take to say that it is yours."


@dataclass(frozen=True, slots=True)
class Handoff:
    """What an event hands over, as it is kept beside its card: the agent's own words, not yet inert, but for `context`.

    `context` is the packaged context as indented lines. Empty: it was not sent.
    """

    agent: str
    session: str
    reason: str
    target_kind: str = ""
    target_uri: str = ""
    urgency: str = ""
    context: str = ""

    def as_json(self) -> dict[str, str]:
        return asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Handoff:
        """What `as_json` made, also by another release."""
        return cls(**{each.name: str(kept.get(each.name, "")) for each in fields(cls)})


def handoff_of(event: Event) -> Handoff:
    """What an `agent.handoff.requested` says; of one that breaks its schema whatever can be read."""
    return Handoff(
        agent=agent_of(event),
        session=event.session_id,
        reason=event.text("reason") or event.summary() or "",
        target_kind=event.text("target_kind") or "",
        target_uri=event.text("target_uri") or "",
        urgency=event.text("urgency_for_handoff") or "",
        context=_packed(event.raw.get("packaged_context")),
    )


def handoff_title(handoff: Handoff) -> str:
    """What on-call is told in one line, plain."""
    return f"{handoff.agent} hands over to {_TO.get(handoff.target_kind, 'a human')}"


def handoff_body(handoff: Handoff) -> str:
    """All of it for a page, the agent's words among ours: the renderer makes them inert."""
    parts = [_reason(handoff), ". ".join(_facts(handoff)), _handed(handoff)]
    return "\n".join(filter(None, parts))


def handoff_notice(handoff: Handoff, matter: Matter) -> Notice:
    """The card: `matter` is its incident as it stands."""
    alert = tuple(standing_words(matter)) or (Words(_HINT),)
    return Notice(
        handoff_title(handoff),
        tuple(filter(None, (_reason(handoff), _handed(handoff)))),
        tuple(map(Words, (*_facts(handoff), f"Session: {inert.clip(inert.line(handoff.session), 80)}"))),
        buttons=_controls(handoff, matter),
        alert=alert,
    )


def _controls(handoff: Handoff, matter: Matter) -> tuple[Button, ...]:
    if matter.state == "closed":
        return ()
    take = _control(matter, "take", TAKE, f"Take what {handoff.agent} hands over")
    hand = _control(matter, "hand", HAND, f"Hand what {handoff.agent} hands over to somebody")
    return (hand,) if matter.state == "taken" else (take, hand)


def _control(matter: Matter, verb: PageVerb, label: str, spoken: str) -> Button:
    """On no page: it is about the incident alone."""
    return Button(
        label, action_id(verb), PagePress(verb, 0, matter.incident).pack(), inert.clip(spoken, BUTTON)
    )


def _reason(handoff: Handoff) -> str:
    return handoff.reason or "The agent gave no reason."


def _handed(handoff: Handoff) -> str:
    return f"What it hands over:\n{handoff.context}" if handoff.context else ""


def _facts(handoff: Handoff) -> list[str]:
    said = {
        "To": fact(handoff.target_kind).replace("_", " "),
        "At": fact(handoff.target_uri),
        "Urgency": fact(handoff.urgency),
    }
    to_others = handoff.target_kind in {"specialist_agent", "escalation_queue"}
    return [
        *(f"{label}: {value}" for label, value in said.items() if value),
        *([_NOT_FORWARDED] if to_others else []),
    ]


def _packed(context: object) -> str:
    """The lines of a packaged context. What is beyond any message says so."""
    lines = outline(context, CONTEXT_LIMIT)
    if not lines.endswith("…") or inert.size(lines) < CONTEXT_LIMIT - inert.size("…") - 100:
        return lines
    return f"{lines}\n(It is longer than clarify-bot shows: the rest is with the agent.)"
