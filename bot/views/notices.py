"""Notices, which take no answer: errors, critical events without a card, tool results, ends of sessions, handoffs,
reminders.

The card of a handoff (AAEP chapter 4) follows the incident for which on-call is paged: taken on either, both show it.
A reminder appears in the question's thread and mentions the answerers. They answer on the card or in the thread. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from bot.views import inert
from bot.views.arguments import outline
from bot.views.blockkit import (
    HAND,
    LEARN_MORE,
    OPEN,
    RELEASE,
    TAKE,
    VERIFY,
    Actions,
    Budget,
    Button,
    Context,
    Draft,
    Header,
    Part,
    Section,
    Words,
    button,
    drafted,
    fixed,
    link_button,
    live_words,
    pieces,
    plain_words,
    sections,
)
from bot.views.card import shows_whole
from bot.views.codec import PagePress
from bot.views.locale import directed
from bot.views.markdown import Quote, fit
from bot.views.page import PageItem, called_words, standing_words
from bot.views.wording import (
    ACTION,
    CONSEQUENCE,
    CONTEXT,
    DETAILS,
    ID_LIMIT,
    NAME_LIMIT,
    name_of,
    risk_word,
    risk_words,
    round_of,
    undo_words,
    until_words,
    warning_words,
    words,
)
from core import aaep, answers
from core.aaep import Event
from core.clarification import Clarification

# Characters of a handoff's context; the protocol asks for events of at most 64 KiB.
CONTEXT_LIMIT = 100_000
_HEADING = 150
_FACT = 300
_PRETTY = 3000
_FIRST_FIELDS = 8
_FIRST_CHOICES, _FIRST_IDS = 20, 20
_BEGINNING, _DEFAULT = 300, 200  # of a question and of its default, in a reminder
_TOOL, _SUMMARY = 80, 400
_TOOLS = 3600  # of the text, so that no place splits it
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
    "transient": "transient (retrying may help)",
    "permanent": "permanent (retrying will not help)",
    "requires_user": "requires_user (a person has to act first)",
    "unknown": "unknown",
}
_TO = {
    "human": "someone",
    "specialist_agent": "a specialist agent",
    "escalation_queue": "an escalation queue",
}
_ON_ITS_CARD = "Answer on its card: this message does not show all of it."
_NOT_FORWARDED = "clarify-bot does not forward this: whoever takes it has to pass it on"
_NO_REASON, _HANDED = "The agent gave no reason.", "Handed over:\n"
_UNTAKEN = "Unclaimed. Click Take to claim it."


@dataclass(frozen=True, slots=True)
class ToolLine:
    """One `agent.tool.completed`: `status` is success, error, timeout, or another word as sent."""

    tool: str
    status: str
    summary: str = ""
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Handoff:
    """What an agent hands over, as stored beside its card: the agent's own text, not yet inert, except `context`.

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


def error_notice(event: Event) -> Draft:
    """`agent.session.errored` (AAEP §4.1.3), including fields found in the wild."""
    category = event.text("error_category") or "unknown"
    can_go_on = event.raw.get("recoverable")
    facts = (
        f"Category: {_CATEGORIES.get(category) or _fact(category)}",
        _labelled("Code", event.text("error_code")),
        ("Recoverable" if can_go_on else "Not recoverable") if isinstance(can_go_on, bool) else "",
    )
    summary, message = event.summary(), event.text("error_message")
    texts = [
        _quote(summary or message) or "The agent gave no description.",
        _quote(message if summary and message != summary else None, "Message: "),
        _quote(event.text("remediation_hint"), "What to do: "),
    ]
    link = link_button(LEARN_MORE, event.text("error_uri"))
    return _notice(f"{agent_of(event)} stopped with an error", texts, plain_words(*facts), link)


def generic_notice(event: Event) -> Draft:
    """Any critical event without a card. It cannot be answered from Slack."""
    if event.type == aaep.CONFIRMATION:
        return _confirmation(event)
    if event.type == aaep.CLARIFICATION:
        return _broken_clarification(event)
    summary = _quote(event.summary()) or _quote("\n".join(_first_fields(event.raw)), is_data=True)
    return _notice(
        f"{agent_of(event)} reports {_fact(event.type)}",
        [summary or "The event contains nothing to show."],
        plain_words(_session(event.session_id)),
    )


def session_notice(event: Event) -> Draft:
    cancelled = event.type == aaep.CANCELLED
    facts = plain_words(
        _labelled("Cancelled by", event.text("cancelled_by")),
        _labelled("Reason", (event.text("cancellation_reason") or "").replace("_", " ")),
    )
    verb = "was cancelled" if cancelled else "is done"
    result = event.text("partial_result" if cancelled else "output_summary")
    texts = [
        _quote(event.summary())
        or ("The session was cancelled." if cancelled else "The session is complete."),
        _quote(result, "Result: "),
    ]
    return _notice(f"{agent_of(event)} {verb}", texts, facts)


def unclaimed_notice(record: Clarification) -> Draft:
    """Tells the answerer that the agent never fetched the answer."""
    told = "The agent never picked up the answer. It may have ended or lost track of its question. The answer stays here in case it asks."
    return _notice(f"Not picked up · {inert.clip(record.id, ID_LIMIT)}", [told])


def callback_notice(record: Clarification, host: str, why: str) -> Draft:
    """Tells the answerer that the agent's callback was given up."""
    told = (
        f"The agent asked to be called back at {inert.as_value(host, NAME_LIMIT)}. The bot gave up: {inert.line(why, NAME_LIMIT)}. "
        "The outcome stays here in case the agent asks."
    )
    return _notice(f"Not called back · {inert.clip(record.id, ID_LIMIT)}", [told])


def tampered_notice(issue: int, ids: Sequence[str]) -> Draft:
    """Tells the operator that decided records do not agree with their receipts."""
    told = (
        f"After it was decided, somebody changed {'it' if len(ids) == 1 else 'them'} in the database (issue {issue}). The "
        "bot no longer gives the answer to the agent, to GitHub or to anyone else. The card still shows the decision. "
        f"To see what was signed, choose {VERIFY} in the card's menu. To see what the database says now, run: clarify show {ids[0]}"
    )
    which, names = _named(issue, ids)
    return _notice(f"{which} changed after the decision", [told, *names])


def key_notice(trouble: str) -> Draft:
    """Tells the operator that the key that signs receipts cannot be read."""
    told = (
        "Decisions count as usual. Their receipts, with which agents can verify them, follow as soon as the key can be "
        "read. To see what is wrong, run: clarify check"
    )
    return _notice("Receipts cannot be signed", [inert.plain(f"The signing key {trouble}."), told])


def another_key_notice(kid: str) -> Draft:
    """Tells the operator that another key signs, which the key before did not announce."""
    use = (
        "If you lost or replaced the key, that is why. What the old key signed can still be verified. To verify the log, run: "
        f"clarify verify --log FILE --accept-key {kid}"
    )
    otherwise = "If nobody here did, someone else replaced the key: stop the bot, and find out who can write its folder."
    return _notice(
        "Another key signs decisions now", [f"The key before did not announce it: {kid}", use, otherwise]
    )


def checkpoint_notice(entry: str, head: int) -> Draft:
    """Shows a checkpoint of the log of decisions."""
    use = (
        "Keep a copy in a file that the bot cannot change. To see whether anything before it was changed or cut off since, run: "
        "clarify log > log.jsonl && clarify verify --log log.jsonl --checkpoint FILE"
    )
    return _notice(f"Checkpoint of the log of decisions: entry {head}", [entry, use])


def _named(issue: int, ids: Sequence[str]) -> tuple[str, list[str]]:
    """`CLR-7-001 was`, or `50 records of issue 7 were` and which these are."""
    if len(ids) == 1:
        return f"{inert.clip(ids[0], ID_LIMIT)} was", []
    return f"{len(ids)} records of issue {issue} were", [f"They are {listed(ids)}."]


def listed(names: Sequence[str]) -> str:
    """`CLR-7-001, CLR-7-002 and 3 more`."""
    first = ", ".join(inert.clip(each, ID_LIMIT) for each in names[:_FIRST_IDS])
    return f"{first} and {len(names) - _FIRST_IDS} more" if len(names) > _FIRST_IDS else first


def storage_began(path: str, count: int) -> Draft:
    """Tells the operator that earlier ledger files exist, but that the database does not know what was heard and shown."""
    waits = {0: "none is open", 1: "1 is open"}.get(count, f"{count} are open")
    text = (
        f"The database at {inert.line(path, _FACT)} is new, but the ledger files beside it hold earlier questions, of which {waits}. "
        "They continue as they are: nothing is asked or answered twice. Buttons on cards that the bot could not find again will say that "
        "they are from another installation. If the database should not be new, stop the bot and put the old one back."
    )
    return _notice("Started with a new database beside older ledger files", [text])


def agent_of(event: Event) -> str:
    """Returns the agent's name on one line."""
    return name_of(event.agent_name or event.agent_id)


def handoff_of(event: Event) -> Handoff:
    """Reads an `agent.handoff.requested`, as far as it is readable."""
    return Handoff(
        agent=event.agent_name or event.agent_id,
        session=event.session_id,
        reason=event.text("reason") or event.summary() or "",
        target_kind=event.text("target_kind") or "",
        target_uri=event.text("target_uri") or "",
        urgency=event.text("urgency_for_handoff") or "",
        context=_packed(event.raw.get("packaged_context")),
    )


def handoff_title(handoff: Handoff) -> str:
    """Returns one line for on-call, plain."""
    return f"{name_of(handoff.agent)} needs {_TO.get(handoff.target_kind, 'someone')} to take over"


def handoff_body(handoff: Handoff) -> str:
    """Returns the whole handoff for a page, which shows all of it as the agent's."""
    handed = f"{_HANDED}{handoff.context}" if handoff.context else ""
    return "\n".join(filter(None, (handoff.reason or _NO_REASON, ". ".join(_handoff_facts(handoff)), handed)))


def handoff_card(handoff: Handoff, item: PageItem, mentions: Sequence[str] = ()) -> Draft:
    """Returns the card of a handoff; `item` is the current state of its incident, `mentions` the users to notify."""
    name = name_of(handoff.agent)
    take = button(PagePress("take", 0, item.incident), TAKE, f"Take the handoff from {name}")
    hand = button(PagePress("hand", 0, item.incident), HAND, f"Hand the handoff from {name} to someone")
    return _notice(
        handoff_title(handoff),
        _handed(handoff),
        plain_words(*_handoff_facts(handoff), _session(handoff.session)),
        {"closed": (), "taken": (hand,)}.get(item.state, (take, hand)),
        alert=(*live_words(called_words(mentions)), *(standing_words(item) or (Words(_UNTAKEN),))),
    )


def tools_notice(lines: Sequence[ToolLine]) -> Draft:
    """Returns several tool results in one message, oldest first: a line per failure, one line for all successes. If
    there are too many, the oldest failures are only counted.
    """
    done = [line for line in lines if line.status == "success"]
    failures = [_failed(line) for line in lines if line.status != "success"]
    tail = [_folded(done)] if done else []
    room = _TOOLS - sum(map(inert.size, tail))
    kept: list[str] = []
    for text in reversed(failures):
        room -= inert.size(text) + 1
        if room < 0:
            break
        kept.insert(0, text)
    dropped = len(failures) - len(kept)
    head = [f"{dropped} earlier failures are not listed."] if dropped else []
    said = "\n".join([*head, *kept, *tail]) or "No tool has finished yet."
    return fixed("tools", tuple(Context((Words(each),)) for each in pieces(said, 2000)))


def nudge(record: Clarification, answerers: Sequence[str], owner: str = "") -> Draft:
    """Returns the reminder of an open question.

    Args:
        record: as found in the ledger.
        answerers: of its route, as configured: users (U…) and groups (S…) are mentioned, `members` are not.
        owner: the holder, who alone is mentioned.
    """
    shown = round_of(directed(record))
    wanted = shown.wanted
    # All questions say what silence does.
    grave = (risk_words(wanted), warning_words(wanted), shown.missing_words) if wanted else ()
    stakes = " ".join(filter(None, grave))
    default = shown.default_words(_DEFAULT)
    hint, by_words = answers.hint(shown.asked), answers.takes_words(shown.asked)
    if wanted and not shows_whole(record):
        hint, by_words = _ON_ITS_CARD, False
    hint = f"Answer on its card, or in this thread: {hint[0].lower()}{hint[1:]}" if by_words else hint
    if owner:
        hint = f"{hint} If you can't, click {RELEASE} on its card: everyone is reminded then."
    return _reminder(
        f"{shown.agent} is still waiting · {shown.id}",
        (owner,) if owner else answerers,
        (until_words(shown.asked.expires_at), *plain_words(default)),
        hint=hint,
        asked=(*shown.subject(_BEGINNING).parts, *sections(stakes)),
    )


def owner_of(record: Clarification) -> str:
    """Returns the Slack user who holds an open question and can answer it alone; otherwise an empty text."""
    holder = record.attention.taken_by
    is_one = holder is not None and record.asked.needed <= 1 and inert.is_user(holder.user)
    return holder.user if holder is not None and is_one else ""


def taken_over(record: Clarification, by: str, link: str | None) -> Draft:
    """Tells the former holder of an open question that the Slack user `by` took it over. `link`: to its card."""
    shown = round_of(directed(record))
    name = inert.clip(record.id, ID_LIMIT)
    took = Words(f"{inert.mention(by)} took {inert.escape(name)} over from you", live=True)
    theirs = "You won't be reminded of it any more. You can still answer it, or take it back, on its card."
    return _notice(
        f"Taken over · {name}",
        [shown.subject(_BEGINNING), theirs],
        buttons=link_button(OPEN, link),
        alert=(took,),
    )


def rollup_nudge(agent: str, count: int, oldest: datetime | None, answerers: Sequence[str]) -> Draft:
    """Returns the reminder of `count` open questions on an agent's roll-up card. `oldest`: the earliest deadline, if
    any.
    """
    named = name_of(agent)
    several = f"{count} question{'' if count == 1 else 's'}"
    return _reminder(
        f"{named} is still waiting · {several}",
        answerers,
        (until_words(oldest, "First deadline:"),),
        hint="Click Show all on their shared card to answer.",
    )


def nudge_over(record: Clarification, number: int | None) -> Draft:
    """Returns a reminder's text after the round `number` has ended. How it ended is said once in the thread, on the card."""
    shown = round_of(directed(record), number)
    return _reminder_over(f"{shown.agent} is no longer waiting · {shown.id}")


def rollup_nudge_over() -> Draft:
    """Returns a reminder's text once no question waits on the roll-up card."""
    return _reminder_over("These questions are no longer waiting")


def _reminder_over(words: str) -> Draft:
    return fixed("nudge", (Context((Words(words),)),))


def plain_notice(heading: str, texts: Sequence[str]) -> Draft:
    """Says something in the bot's own words."""
    return _notice(heading, texts)


def _notice(
    heading: str,
    texts: Sequence[str | Quote | None],
    facts: tuple[Words, ...] = (),
    buttons: tuple[Button, ...] = (),
    alert: tuple[Words, ...] = (),
) -> Draft:
    """Returns a notice cut to fit a message, and the whole in pieces if it was cut. All of it is plain text except
    live facts and `alert`, which comes first and says how it stands.
    """
    said = [each if isinstance(each, Quote) else words(each) for each in texts if each]

    def build(budget: Budget) -> tuple[Part, ...]:
        budget.spend(heading, *(part.text for part in (*facts, *alert)))
        texts = [Quote(each.text if isinstance(each, Quote) else each) for each in said]
        shown = [
            part
            for each, cut in zip(said, fit(budget, texts, at_length=range(len(texts))), strict=True)
            for part in (
                replace(each, text=cut.text).parts if isinstance(each, Quote) else sections(cut.text)
            )
        ]
        top = Header(inert.clip(heading, _HEADING))
        return (top, Context(alert), *shown, Context(facts), Actions(buttons))

    return drafted("notice", build)


def _reminder(
    heading: str,
    answerers: Sequence[str],
    facts: tuple[Words, ...],
    *,
    hint: str,
    asked: tuple[Part, ...] = (),
) -> Draft:
    """Returns a reminder, which mentions its answerers."""
    called = " ".join(inert.mentions(list(dict.fromkeys(answerers))))
    call = (Section(Words(called, live=True)),) if called else ()
    return fixed("nudge", (Header(heading), *call, *asked, Context(facts), Context((Words(hint),))))


def _fact(text: str) -> str:
    """Returns an agent's short value on one line."""
    return inert.as_value(text, _FACT)


def _labelled(label: str, text: str | None) -> str:
    """Returns an agent's short value after its label; empty if there is none."""
    return f"{label}: {shown}" if (shown := _fact(text or "")) else ""


def _quote(text: str | None, label: str = "", *, is_data: bool = False) -> Quote | None:
    """Returns an agent's text after its label, whole; None if nothing visible is left."""
    shown = inert.plain(text or "")
    return Quote(shown, label, is_data) if shown.strip() else None


def _confirmation(event: Event) -> Draft:
    undo = (event.text("reversibility") or "").strip().casefold()
    undo = "irreversible" if not undo and event.raw.get("irreversible") is True else undo
    risk = (event.text("risk_level") or "").strip().casefold()
    facts = (
        "This cannot be answered from Slack: decide it where the agent runs",
        f"Risk: {risk_word(risk)}" if risk else "",
        undo_words(undo) if undo else "",
        _labelled("If no one decides", event.text("default_decision")),
    )
    live = []
    if (seconds := event.raw.get("timeout_seconds")) and type(seconds) is int and 0 < seconds <= 86_400:
        live.append(Words(f"Until {inert.date(event.timestamp + timedelta(seconds=seconds))}", live=True))
    extra = outline(event.raw.get("extra_context"), _PRETTY)
    texts = [
        _quote(event.text("action") or event.summary(), ACTION)
        or "The agent did not say what it wants to do.",
        _quote(event.text("consequence"), CONSEQUENCE),
        _quote(extra, DETAILS, is_data=True),
    ]
    return _notice(f"{agent_of(event)} asks for approval", texts, (*plain_words(*facts), *live))


def _broken_clarification(event: Event) -> Draft:
    listed = outline(event.raw.get("choices") or event.raw.get("options"), _PRETTY)
    texts = [
        _quote(event.text("question") or event.summary()) or "The agent's question cannot be read.",
        _quote(listed, "Choices as sent:\n", is_data=True),
        _quote(event.text("context"), CONTEXT),
    ]
    wrong = "; ".join(event.problems) or "it does not match its schema"
    facts = [f"This cannot be answered from Slack: {inert.line(wrong, _FACT)}", _session(event.session_id)]
    return _notice(f"{agent_of(event)} asks", texts, plain_words(*facts))


def _first_fields(raw: Mapping[str, object]) -> Iterator[str]:
    readable = (
        (key, value)
        for key, value in raw.items()
        if key not in _ENVELOPE and isinstance(value, (str, int, float)) and str(value).strip()
    )
    for _, (key, value) in zip(range(_FIRST_FIELDS), readable, strict=False):
        yield f"{inert.name_words(key, _FACT)}: {inert.clip(inert.plain(str(value)), _PRETTY)}"


def _session(session: str) -> str:
    return f"Session: {inert.as_value(session, 80)}"


def _handed(handoff: Handoff) -> list[str | Quote | None]:
    """Returns the reason, and what is handed over."""
    return [
        _quote(handoff.reason) or _NO_REASON,
        _quote(handoff.context, _HANDED, is_data=True),
    ]


def _handoff_facts(handoff: Handoff) -> list[str]:
    said = (
        _labelled("To", handoff.target_kind.replace("_", " ")),
        _labelled("At", handoff.target_uri),
        _labelled("Urgency", handoff.urgency),
        _NOT_FORWARDED if handoff.target_kind in {"specialist_agent", "escalation_queue"} else "",
    )
    return [each for each in said if each]


def _packed(context: object) -> str:
    """Returns the lines of a packaged context. Says so if it is too long for any message."""
    lines = outline(context, CONTEXT_LIMIT)
    if not lines.endswith("…") or inert.size(lines) < CONTEXT_LIMIT - inert.size("…") - 100:
        return lines
    return f"{lines}\n(Too long to show here: the agent has the rest.)"


def _failed(line: ToolLine) -> str:
    verb = {"error": "failed", "timeout": "timed out"}.get(line.status) or inert.as_name(line.status, 40)
    return _with_summary(f"Tool {_tool(line)} {verb or 'finished'}{_took(line)}", line)


def _folded(done: Sequence[ToolLine]) -> str:
    last = done[-1]
    if len(done) == 1:
        return _with_summary(f"Tool {_tool(last)} done{_took(last)}", last)
    return _with_summary(f"{len(done)} tools done, the latest {_tool(last)}{_took(last)}", last)


def _with_summary(head: str, line: ToolLine) -> str:
    summary = inert.line(line.summary)
    return f"{head}: {inert.quoted(summary, _SUMMARY)}" if summary else inert.sentence(head)


def _tool(line: ToolLine) -> str:
    return inert.as_value(line.tool, _TOOL) or "(unnamed)"


def _took(line: ToolLine) -> str:
    if line.duration_ms is None:
        return ""
    if line.duration_ms < 1000:
        return f" ({line.duration_ms} ms)"
    seconds = line.duration_ms / 1000
    return f" ({seconds:.1f} s)" if seconds < 60 else f" ({seconds / 60:.0f} min)"
