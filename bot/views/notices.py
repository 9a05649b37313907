"""What the notices say: errors, critical events that no card can show, tool results, ends of sessions, pages.

A notice is a message in a session's thread (or to on-call) that takes no answer. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from bot.views import inert
from bot.views.blockkit import SECTION
from bot.views.codec import LINK_ACTION
from bot.views.outline import outline
from bot.views.parts import LEARN_MORE, Budget, Button, Words, pieces
from bot.views.readout import PIECE, POINTER
from bot.views.rounds import NAME_LIMIT, sentence, words
from core import aaep
from core.aaep import Event
from core.clarification import Clarification

URL_LIMIT = 3000
_URL = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+(?:[/?#][!-~]*)?", re.IGNORECASE)
_HEADING = 150
_FACT = 300
_PRETTY = 3000
_FIRST_FIELDS = 8
_FIRST_CHOICES = 20
_ENVELOPE = frozenset(
    [
        "@context",
        "type",
        "event_id",
        "session_id",
        "timestamp",
        "producer",
        "urgency",
        "sequence_number",
        "localization_hints",
        "correlation_id",
        "extensions",
        "reply_token",
    ]
)
_CATEGORIES = {
    "transient": "transient (it may work when tried again)",
    "permanent": "permanent (trying again will not help)",
    "requires_user": "requires_user (a person has to do something first)",
    "unknown": "unknown",
}


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice before it is laid out: all of it plain text but for live facts.

    `texts` may be cut in the blocks; the whole is then in the thread. `alert`: how it stands, before all else.
    """

    heading: str
    texts: tuple[str, ...]
    facts: tuple[Words, ...] = ()
    buttons: tuple[Button, ...] = ()
    alert: tuple[Words, ...] = ()


@dataclass(frozen=True, slots=True)
class Laid:
    """A notice as it fits into one message; `text` is escaped, `more` is not."""

    text: str
    more: tuple[str, ...]
    heading: str
    sections: tuple[str, ...]
    facts: tuple[Words, ...]
    buttons: tuple[Button, ...]
    alert: tuple[Words, ...]


def laid(notice: Notice) -> Laid:
    """The notice cut to what a message holds, and the whole in pieces where it was cut."""
    texts = [words(text) for text in notice.texts if text]
    spoken = [inert.utc_dates(part.text) if part.live else part.text for part in notice.facts]
    body = "\n".join(filter(None, [*texts, " ".join(map(sentence, spoken))]))
    whole = "\n".join(filter(None, [f"{notice.heading}.", body]))
    head = _head(notice)
    room = inert.TEXT_LIMIT - inert.size(head) - 1
    text = inert.fallback(body, room)
    budget = Budget.beside(f"{head}\n{text}")
    budget.spend(notice.heading, *(part.text for part in (*notice.facts, *notice.alert)))
    fitted = budget.fit(texts)
    is_cut = budget.cut or inert.size(inert.fallback(body, len(body) * 5)) > room
    if is_cut:
        text = f"{inert.fallback(body, room - inert.size(POINTER) - 1)}\n{POINTER}"
    return Laid(
        text=f"{head}\n{text}".strip(),
        more=tuple(p for p in inert.split_unescaped(whole, PIECE) if p.strip()) if is_cut else (),
        heading=inert.clip(notice.heading, _HEADING),
        sections=tuple(piece for part in fitted for piece in pieces(part, SECTION)),
        facts=notice.facts,
        buttons=notice.buttons,
        alert=notice.alert,
    )


def _head(notice: Notice) -> str:
    """Heading and standing, escaped; people's mentions are the only live part."""
    said = (
        inert.utc_dates(part.text) if part.live else inert.fallback(part.text, 400) for part in notice.alert
    )
    return " ".join((inert.fallback(f"{notice.heading}.", 2 * _HEADING), *map(sentence, said)))


def consent_notice(record: Clarification, by: str) -> Notice:
    """Another program wrote an acceptance into a ledger: it does not count, and who waits for it should know."""
    name = inert.clip(inert.line(by), NAME_LIMIT)
    told = (
        f"A program wrote into the ledger that {name} accepts this. That does not count: it is accepted in Slack only, "
        "and is open again."
    )
    return Notice(f"Not accepted · {inert.clip(record.id, 40)}", (told,))


def error_notice(event: Event) -> Notice:
    """`agent.session.errored` (AAEP §4.1.3), also with the fields that are found in the wild."""
    category = event.text("error_category")
    said = _CATEGORIES.get(category or "unknown") or fact(category or "")
    facts = [f"Category: {said}"]
    if code := event.text("error_code"):
        facts.append(f"Code: {fact(code)}")
    if isinstance(recoverable := event.raw.get("recoverable"), bool):
        facts.append("Recoverable" if recoverable else "Not recoverable")
    summary, message = event.summary(), event.text("error_message")
    texts = [summary or message or "The agent gave no description."]
    if summary and message and message != summary:
        texts.append(f"Message: {inert.plain(message)}")
    if hint := event.text("remediation_hint"):
        texts.append(f"What to do: {inert.plain(hint)}")
    url = safe_url(event.text("error_uri"))
    link = (Button(LEARN_MORE, LINK_ACTION, "", url=url),) if url else ()
    return Notice(f"{agent_of(event)} stopped with an error", tuple(texts), _words(facts), link)


def generic_notice(event: Event) -> Notice:
    """Any critical event that no card can show. Nothing in it can be answered from Slack."""
    if event.type == aaep.CONFIRMATION:
        return _confirmation(event)
    if event.type == aaep.CLARIFICATION:
        return _broken_clarification(event)
    summary = event.summary()
    texts = [summary] if summary else list(_first_fields(event.raw))
    return Notice(
        f"{agent_of(event)} reports {fact(event.type)}",
        tuple(texts) or ("The event says nothing that can be shown.",),
        _words([_session(event)]),
    )


def unrecorded_notice(event: Event, reason: str) -> Notice:
    """A critical event that waits to be recorded: what it says, and why nobody can answer it yet."""
    question = event.question
    texts = [question.text] if question is not None else list(generic_notice(event).texts)
    if question is not None and question.choices:
        texts.append("\n".join(f"• {fact(choice.label)}" for choice in question.choices[:_FIRST_CHOICES]))
    facts = [
        f"It cannot be recorded yet, so it cannot be answered here: {fact(reason)}",
        "It is shown in its own channel as soon as it is recorded",
        _session(event),
    ]
    verb = "asks" if question is not None else "reports"
    return Notice(f"{agent_of(event)} {verb}", tuple(texts), _words(facts))


def ledgers_refuse(reason: str) -> Notice:
    """The head of a thread: no ledger can be written, or one of them cannot."""
    waits = (
        "What agents ask until this is mended is in the thread below. Nothing is lost: it is recorded, shown and can be "
        "answered as soon as it can be written."
    )
    return Notice("Questions cannot be recorded", (inert.plain(reason), waits))


def ledgers_again() -> Notice:
    """The end of that thread."""
    return Notice(
        "Questions can be recorded again",
        (
            "What was asked meanwhile is recorded, and is shown where it belongs. There is nothing left to do.",
        ),
    )


def storage_began(path: str, count: int) -> Notice:
    """There are ledgers of earlier questions, and nothing is known of what was heard and shown."""
    waits = (
        "no question is open"
        if not count
        else "1 question is open"
        if count == 1
        else f"{count} questions are open"
    )
    text = (
        f"The storage, {fact(path)}, is new, and beside it are ledgers of earlier questions: {waits} in them. They go on as "
        "they are: nothing is asked or answered a second time. Buttons of cards that could not be found again say that "
        "they are from another installation. If the storage should not be new, stop the bot and put the old one back."
    )
    return Notice("Started with a new storage beside older ledgers", (text,))


def session_notice(event: Event) -> Notice:
    """`agent.session.completed` and `agent.session.cancelled`."""
    cancelled = event.type == aaep.CANCELLED
    by, why = event.text("cancelled_by"), event.text("cancellation_reason")
    facts = [
        f"Cancelled by: {fact(by)}" if by else "",
        f"Reason: {fact(why).replace('_', ' ')}" if why else "",
    ]
    verb = "was cancelled" if cancelled else "is done"
    texts = [event.summary() or ("The session was cancelled." if cancelled else "The session is complete.")]
    if result := event.text("partial_result" if cancelled else "output_summary"):
        texts.append(f"Result: {inert.plain(result)}")
    return Notice(f"{agent_of(event)} {verb}", tuple(texts), _words(facts))


def agent_of(event: Event) -> str:
    """The agent's name on one line."""
    return inert.clip(inert.line(event.agent_name or event.agent_id) or "An agent", NAME_LIMIT)


def fact(text: str) -> str:
    """A short value of an agent's on one line."""
    return inert.clip(inert.line(text), _FACT)


def safe_url(url: str | None) -> str:
    """`url` where it is a plain http(s) link without a user part; else empty."""
    return url if url and len(url) <= URL_LIMIT and _URL.fullmatch(url) else ""


def _confirmation(event: Event) -> Notice:
    facts = ["This cannot be answered from Slack: decide it where the agent runs"]
    if risk := event.text("risk_level"):
        facts.append(f"Risk: {fact(risk)}")
    if event.raw.get("irreversible") is True or event.text("reversibility"):
        facts.append(fact(event.text("reversibility") or "irreversible").replace("_", " ").capitalize())
    if default := event.text("default_decision"):
        facts.append(f"If nobody decides: {fact(default)}")
    live = []
    if (seconds := event.raw.get("timeout_seconds")) and type(seconds) is int and 0 < seconds <= 86_400:
        live.append(Words(f"Until {inert.date(event.timestamp + timedelta(seconds=seconds))}", live=True))
    texts = [event.text("action") or event.summary() or "The agent did not say what it wants to do."]
    if consequence := event.text("consequence"):
        texts.append(f"Consequence: {inert.plain(consequence)}")
    if extra := outline(event.raw.get("extra_context"), _PRETTY):
        texts.append(f"Details:\n{extra}")
    return Notice(f"{agent_of(event)} asks for a confirmation", tuple(texts), (*_words(facts), *live))


def _broken_clarification(event: Event) -> Notice:
    texts = [event.text("question") or event.summary() or "The agent asks something that cannot be read."]
    labels = event.raw.get("choices") or event.raw.get("options")
    if labels and (listed := outline(labels, _PRETTY)):
        texts.append(f"Choices as sent:\n{listed}")
    if context := event.text("context"):
        texts.append(f"Context: {inert.plain(context)}")
    wrong = "; ".join(event.problems) or "it breaks its schema"
    facts = [f"This cannot be answered from Slack: {fact(wrong)}", _session(event)]
    return Notice(f"{agent_of(event)} asks", tuple(texts), _words(facts))


def _first_fields(raw: Mapping[str, object]) -> Iterator[str]:
    readable = (
        (key, value)
        for key, value in raw.items()
        if key not in _ENVELOPE and isinstance(value, (str, int, float)) and str(value).strip()
    )
    for _, (key, value) in zip(range(_FIRST_FIELDS), readable, strict=False):
        yield f"{fact(key)}: {inert.clip(inert.plain(str(value)), _PRETTY)}"


def _session(event: Event) -> str:
    return f"Session: {inert.clip(inert.line(event.session_id), 80)}"


def _words(facts: Sequence[str]) -> tuple[Words, ...]:
    return tuple(Words(fact) for fact in facts if fact)
