"""What a card shows, decided: words, controls, and how much of each fits. The layout is the template's.

Pure. Agents' words are plain text here; only `Words(…, live=True)` is mrkdwn, all of it the bot's own.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.views import consent, inert
from bot.views.blockkit import OPTION, SECTION
from bot.views.codec import Press, action_id
from bot.views.parts import ANSWER, NO, VIEW_FULL, YES, Budget, Button, Select, Words, button, pieces
from bot.views.rounds import (
    HOW_TO_COMMENT,
    Round,
    Verbosity,
    closed_words,
    default_words,
    escalation_reason,
    holder_words,
    instead_words,
    reason_hides,
    reply_words,
    words,
)
from bot.views.submission import MENU_OPTIONS
from core import answers

CHOOSE = "Choose an answer"
BUTTON_CHOICES = 5
BUTTON_LABEL = 30  # longer labels clip on screen
MENU = 3500  # characters of a menu in all
_LEAST_OPTION, _LEAST_LINE = 12, 20
_LEAST_WORDS = 1500  # what a menu leaves to the question
_LINES = 10  # of choices that no menu holds
_CONTEXT = 2000
_SMALL = 500
_NAMED = 40  # where two names share a heading
_OWN_LABELS = frozenset(label.casefold() for label in (YES, NO, ANSWER, VIEW_FULL))


@dataclass(frozen=True, slots=True)
class Card:
    """The parts of a card in the order in which they are shown; empty ones are left out."""

    heading: str
    alert: tuple[Words, ...] = ()
    question: tuple[str, ...] = ()
    topic: tuple[Words, ...] = ()
    choices: tuple[str, ...] = ()
    context: tuple[Words, ...] = ()
    answer: tuple[str, ...] = ()
    facts: tuple[Words, ...] = ()
    buttons: tuple[Button, ...] = ()
    selects: tuple[Select, ...] = ()
    hint: tuple[Words, ...] = ()


def open_card(shown: Round, verbosity: Verbosity, text: str, instead_of: str | None) -> Card:
    """A card that takes an answer. `text` is the message's fallback, which counts against the same budget;
    `instead_of` the channel that the card could not be posted to.
    """
    terse = verbosity == "terse"
    facts = _deadline(shown, terse=terse and shown.asked.confirmation is None)
    hint = () if terse else (Words(_hint(shown)),)
    alert = tuple(Words(line, live) for line, live in _alerts(shown, instead_of))
    topic = () if terse or not shown.topic else (Words(f"Topic: {inert.clip(shown.topic, _SMALL)}"),)
    budget = Budget.beside(text)
    budget.spend(*(part.text for part in (*facts, *hint, *alert, *topic)), shown.agent, shown.target)
    selects = () if uses_buttons(shown) else _selects(shown, budget.left - _LEAST_WORDS)
    budget.spend(*(option for select in selects for option, _ in select.options))
    budget.spend(*(shown.labels if uses_buttons(shown) else ()))
    said = (_consent if shown.asked.confirmation else _question)(shown, budget, verbosity)
    cut = budget.cut or said.hides or _is_cut_default(shown) or reason_hides(shown, _SMALL)
    return Card(
        heading=_heading(shown),
        alert=alert,
        question=said.question,
        topic=topic,
        choices=pieces(said.choices, SECTION),
        context=tuple(Words(piece) for aside in said.asides for piece in pieces(aside, _CONTEXT)),
        facts=facts,
        buttons=_buttons(shown, cut=cut),
        selects=selects,
        hint=hint,
    )


@dataclass(frozen=True, slots=True)
class _Said:
    """The agent's words as they fit; `hides`: some are left out on purpose."""

    question: tuple[str, ...]
    choices: str
    asides: tuple[str, ...]
    hides: bool


def _question(shown: Round, budget: Budget, verbosity: Verbosity) -> _Said:
    terse, listed = verbosity == "terse", bool(shown.labels) and not uses_buttons(shown)
    context = "" if terse else inert.plain(shown.asked.context or "").strip()
    question, context, detail, choices = budget.fit(
        [
            *map(budget.brief, (words(shown.question), context, _detail(shown, verbosity))),
            shown.numbered if listed else "",
        ]
    )
    if listed and (inert.size(choices) < inert.size(shown.numbered) or not _has_control(shown)):
        choices = _clipped_choices(shown, inert.size(choices))
    return _Said(
        question=pieces(question, SECTION),
        choices=choices,
        asides=(f"Context: {context}" if context else "", f"Details: {detail}" if detail else ""),
        hides=(terse and bool(shown.asked.context or shown.asked.default_response))
        or not _has_control(shown),
    )


def _consent(shown: Round, budget: Budget, verbosity: Verbosity) -> _Said:
    """What is to be done and what follows from it; how grave that is stands there in full, whatever is cut."""
    wanted, terse = shown.asked.confirmation, verbosity == "terse"
    if wanted is None:
        return _question(shown, budget, verbosity)
    stakes = [consent.risk_words(wanted), consent.warning_words(wanted)]
    again = consent.dialog(wanted)
    budget.spend(*stakes, again.title, again.text, again.confirm, again.deny, *consent.LABELS.values())
    extra = consent.extra_words(wanted)
    action, consequence, aside, detail = budget.fit(
        [
            budget.brief(consent.action_words(wanted)),
            budget.brief(consent.consequence_words(wanted)),
            "" if terse else budget.brief(extra),
            budget.brief(_detail(shown, verbosity)),
        ]
    )
    said = (*pieces(action, SECTION), *pieces(consequence, SECTION), *filter(None, stakes))
    return _Said(said, "", (aside, f"Summary: {detail}" if detail else ""), terse and bool(extra))


def _detail(shown: Round, verbosity: Verbosity) -> str:
    return inert.plain(shown.asked.summary_detailed or "").strip() if verbosity == "detailed" else ""


def settled_card(shown: Round, text: str) -> Card:
    """A card that takes no answer any more: no controls but View full where words were cut."""
    answered = shown.stage == "answered"
    facts = [Words(_who(shown), live=True)] if answered else []
    facts += [Words(shown.answered_by)] if answered and not shown.slack_user else []
    if answered and shown.answered_at:
        facts.append(Words(inert.date(shown.answered_at), live=True))
    if state := reply_words(shown.asked):
        facts.append(Words(state))
    if not answered or (shown.is_current and shown.record.status == "abandoned"):
        facts.append(Words(closed_words(shown, _SMALL)))
    facts += _closed_by(shown)
    budget = Budget.beside(text)
    budget.spend(shown.agent, shown.target, *(part.text for part in facts))
    answer = f"Answer: {shown.answer_label}" if answered else ""
    question, answer, reason = budget.fit(
        [*map(budget.brief, (words(shown.question), answer, shown.reason if answered else ""))]
    )
    cut = budget.cut or (not answered and shown.asked.closed == "expired" and _is_cut_default(shown))
    return Card(
        heading=_heading(shown),
        question=pieces(question, SECTION),
        answer=(*pieces(answer, SECTION), *pieces(reason, SECTION)),
        facts=tuple(facts),
        buttons=(_view_full(shown),) if cut else (),
    )


def uses_buttons(shown: Round) -> bool:
    """Whether each choice gets a button: few, short, and told apart at a glance."""
    labels = [label.casefold() for label in shown.labels]
    return (
        not shown.asked.multi_select
        and 0 < len(labels) <= BUTTON_CHOICES
        and all(inert.size(label) <= BUTTON_LABEL for label in shown.labels)
        and len(set(labels)) == len(labels)
        and not _OWN_LABELS & set(labels)
    )


def has_modal(shown: Round) -> bool:
    """Whether Answer… is offered: for what no button or menu can say."""
    kinds = shown.asked.kinds
    several = shown.asked.multi_select and bool(shown.labels)
    return (
        several
        or not _has_control(shown)
        or "confirmation" in kinds
        or "numeric" in kinds
        or "freetext" in kinds
        or not kinds
    )


def _has_control(shown: Round) -> bool:
    """Whether a control holds every choice."""
    return len(shown.labels) <= MENU_OPTIONS


def options(shown: Round, room: int = MENU_OPTIONS * OPTION) -> list[str]:
    """The choices' labels as options: numbered, 75 characters at most, fewer where `room` is less than all need."""
    width = min(OPTION, max(_LEAST_OPTION, room // max(1, len(shown.labels))))
    return [inert.clip(f"{n}. {label}", width) for n, label in enumerate(shown.labels, 1)]


def _buttons(shown: Round, *, cut: bool) -> tuple[Button, ...]:
    found: list[Button] = []
    if uses_buttons(shown):
        found += [
            button(shown.record, shown.number, "choice", label, n=n, arg=str(n))
            for n, label in enumerate(shown.labels)
        ]
    if shown.asked.confirmation:
        found += consent.decisions(shown.record, shown.number, shown.asked.confirmation)
    if "yes_no" in shown.asked.kinds:
        found += [
            button(shown.record, shown.number, "yes", YES),
            button(shown.record, shown.number, "no", NO),
        ]
    if has_modal(shown):
        found.append(button(shown.record, shown.number, "answer", ANSWER, spoken=f"Answer {shown.record.id}"))
    return (*found, _view_full(shown)) if cut else tuple(found)


def _view_full(shown: Round) -> Button:
    return button(
        shown.record, shown.number, "view", VIEW_FULL, arg="1", spoken=f"View all of {shown.record.id}"
    )


def _selects(shown: Round, room: int) -> tuple[Select, ...]:
    if not shown.labels or shown.asked.multi_select or not _has_control(shown):
        return ()
    values = [Press("choice", shown.record.id, shown.number, str(n)).pack() for n in range(len(shown.labels))]
    return (
        Select(CHOOSE, action_id("select"), tuple(zip(options(shown, min(MENU, room)), values, strict=True))),
    )


def _clipped_choices(shown: Round, room: int) -> str:
    """The choices numbered, the long ones cut; the last ones left out where there are too many to read here."""
    most = len(shown.labels) if _has_control(shown) else _LINES
    labels = shown.labels[: max(1, min(most, (room - 2 * _LEAST_LINE) // _LEAST_LINE))]
    left = len(shown.labels) - len(labels)
    more = f"\n… and {left} more under {VIEW_FULL}" if left else ""
    numbers = [f"{n}. " for n in range(1, len(labels) + 1)]
    given = inert.shares(
        [inert.size(label) for label in labels], room - len(more) - sum(len(number) + 1 for number in numbers)
    )
    clipped = (inert.clip(label, max(10, share)) for label, share in zip(labels, given, strict=True))
    return "\n".join(map("".join, zip(numbers, clipped, strict=True))) + more


def _heading(shown: Round) -> str:
    notes = [f"round {shown.number}"] if shown.number > 1 or not shown.is_current else []
    if shown.stage == "open" and shown.record.status in ("stale", "escalated"):
        notes.append(shown.record.status)
    if shown.stage != "open":
        notes.append({"answered": "answered", "closed": "closed"}[shown.stage])
    agent, target = inert.clip(shown.agent, _NAMED), inert.clip(shown.target, _NAMED)
    said = f"{agent} {shown.verb} {target}" if target else f"{shown.agent} {shown.verb}"
    return " · ".join((said, inert.clip(shown.record.id, 40), *notes))


def _alerts(shown: Round, instead_of: str | None) -> list[tuple[str, bool]]:
    found = [(escalation_reason(shown, _SMALL), False), (holder_words(shown), True)]
    found += [(line, False) for line in instead_words(shown, _SMALL)]
    if instead_of and inert.is_channel(instead_of):
        found.append((f"Posted here because {inert.channel(instead_of)} could not be used.", True))
    elif instead_of:
        found.append((inert.clip(f"Posted here instead of {inert.line(instead_of)}.", _SMALL), False))
    return [(text, live) for text, live in found if text]


def _deadline(shown: Round, *, terse: bool) -> tuple[Words, ...]:
    expires = shown.asked.expires_at
    until = Words(f"Answer by {inert.deadline(expires)}", live=True) if expires else Words("No time limit")
    default = "" if terse else default_words(shown.asked, _SMALL)
    return (until, Words(default)) if default else (until,)


def _is_cut_default(shown: Round) -> bool:
    return inert.size(answers.default_label(shown.asked)) > _SMALL


def _who(shown: Round) -> str:
    return f"Answered by {inert.mention(shown.slack_user)}" if shown.slack_user else "Answered by"


def _closed_by(shown: Round) -> list[Words]:
    """Who closed it by hand."""
    entry = shown.closed_by
    if entry is None:
        return []
    if shown.closer:
        return [Words(f"By {inert.mention(shown.closer)}", live=True)]
    return [Words(f"By {inert.clip(inert.line(entry.from_) or 'somebody', 256)}")]


def _hint(shown: Round) -> str:
    hint = answers.hint(shown.asked)
    return f"Or in this thread: {hint[0].lower()}{hint[1:]} {HOW_TO_COMMENT}"
