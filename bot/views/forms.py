"""The modals about a question: the form behind Answer…, how a submission is read, and the full view.

A submission is `view["state"]["values"]`: `{block_id: {action_id: {"type": …, "value" | "selected_option" |
"selected_options": …}}}` (docs.slack.dev, "view_submission payloads"). Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from bot.views import inert
from bot.views.arguments import (
    argument_parts,
    argument_pieces,
    change_words,
    editable,
    overflows,
    read_changes,
    shows_originals,
)
from bot.views.blockkit import (
    FILL_IN,
    SECTION,
    TITLE,
    TYPE_A_NUMBER,
    VIEW_BLOCKS,
    YES_OR_NO,
    YES_VALUE,
    Actions,
    Alert,
    Button,
    Context,
    Input,
    Part,
    Rich,
    Section,
    View,
    Words,
    chosen,
    json_size,
    live_words,
    plain_words,
    sections,
    turning,
)
from bot.views.card import (
    CANCEL,
    CHOICES,
    MENU_OPTIONS,
    plain_text,
)
from bot.views.codec import (
    ACCEPT_CALLBACK,
    ANSWER_CALLBACK,
    HAND_ACTION,
    HAND_BLOCK,
    HAND_CALLBACK,
    VIEW_CALLBACK,
    PagePress,
    Press,
)
from bot.views.fields import fits_option, form_inputs, form_words, hides, options_of, read_fields
from bot.views.locale import directed, in_words
from bot.views.markdown import Quote
from bot.views.verify import verify_button
from bot.views.wording import (
    ASK_AGAIN,
    CONTEXT,
    DEFAULT,
    DETAILS,
    LABELS,
    REASON,
    SUMMARY,
    ShownRound,
    action_of,
    capital,
    consequence_of,
    decided_words,
    default_of,
    extras_of,
    risk_words,
    round_of,
    stakes_alerts,
    until_words,
    words,
)
from core import answers
from core.approvals import LEAST_REASON, check_reason, check_seen, edit_problems, version_of
from core.clarification import (
    DECISIONS,
    Answer,
    Approval,
    Clarification,
    Confirmation,
    Decision,
    Edit,
    Question,
    Round,
    round_with,
)
from core.errors import AnswerRejected, ReasonWanted
from core.questions import REDACTED
from core.router import BODY_LIMIT
from core.summary import ListPage, page_of

_HIDDEN = f"Where it says {REDACTED}, the agent uses its original value."
CHOICES_BLOCK = "answer.choices"
YES_NO_BLOCK = "answer.yes_no"
NUMERIC_BLOCK = "answer.numeric"
FREETEXT_BLOCK = "answer.freetext"
DECISION_BLOCK = "answer.decision"
RATIONALE_BLOCK = "answer.rationale"
_FIELDS, _ANSWER = "Fields:\n", "Answer:\n"
_Shown = Section | Alert | Context | Rich
_Said = str | Quote | _Shown
VALUE_ACTION = "value"
# Radio buttons cannot be cleared: with several kinds of answer, this option means "not this one".
NONE_VALUE = "none"
_TEXT_LIMIT = 3000  # plain_text_input takes no more
_PAGE_BLOCKS = 90
_PAGE_BYTES = 200_000  # of a view's 250 KB
_IN_SIGHT = 3_000  # of a page whose top is seen from its end
_NONE = "None of these"
_LABELS = {
    CHOICES_BLOCK: "Your choice",
    YES_NO_BLOCK: "Yes or no",
    NUMERIC_BLOCK: "Number",
    FREETEXT_BLOCK: "Your answer",
}
_MORE = "There is more: close this and click View full on the card."
_MORE_TO_ACCEPT = (
    "There is more than fits here. To see all of it and accept it, close this and click Accept on the card."
)
_APPROVED_BEFORE = "You have approved this. Accepting it again changes nothing; you can still reject it."
_LAST_ACCEPTS = "Accept is on the last page."
_CHANGE = "You can edit what the agent sent before you accept. Fields you don't change are sent as they are."
_ONE_OF_SEVERAL = "Fill in one of these."
_CHOICE_OR_OWN = "Pick a choice or write your own."
_REASON_TOO_SHORT = f"To accept this, give a reason of at least {LEAST_REASON} characters, in words."
_TOO_MANY = "Fill in only one of these, and clear the others."


class SubmissionErrors(Exception):
    """Errors in a submitted modal: block_id → what to correct, in the form of Slack's `errors`."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__(f"The form has errors in {', '.join(errors)}.")
        self.errors = dict(errors)


def answer_modal(record: Clarification, locale: str = "", reader: str = "") -> View:
    """Returns the modal behind Answer…: the current round's question in full, and its inputs. `reader`: a Slack user, who is told
    if they have approved it, and their `locale`.
    """
    shown = round_of(directed(record))
    asked, wanted = shown.asked, shown.wanted
    form = asked.form
    kinds = _fields(asked)
    if form:
        inputs = form_inputs(form)
    elif wanted:
        inputs = _decision_inputs(shown, wanted.allowed, locale)
    else:
        inputs = tuple(_input(shown, block, locale, several=len(kinds) > 1) for block in kinds)
    fields = tuple(editable(shown.current).values())
    every: tuple[_Shown, ...] = ()
    if any(each.user == reader for each in shown.consent.approvals or ()):
        every = sections(f"{_APPROVED_BEFORE} {shown.more_approvals}")
    every += _consent_parts(shown, wanted) if wanted else Quote(words(shown.question)).parts
    if _types_choices(asked) or shown.described or not all(map(fits_option, shown.labels)):
        every += Quote(shown.numbered, CHOICES, is_data=True).parts
    if form and hides(form, inputs):
        every += Quote(form_words(form), _FIELDS, is_data=True).parts
    every += Quote(shown.context, CONTEXT).parts
    taken = sum(each.cost for each in (*inputs, *fields))
    first = next(_pages(every, _PAGE_BYTES - taken, _PAGE_BLOCKS - len(inputs) - len(fields)))
    is_whole, more = len(first) == len(every), _MORE
    if wanted and not is_whole and "accept" in wanted.allowed:
        more = _MORE_TO_ACCEPT
        rest = tuple(each for each in wanted.allowed if each != "accept")
        inputs, fields = _decision_inputs(shown, rest, locale) if rest else (), ()
    facts = () if is_whole else plain_words(more)
    facts += (until_words(asked.expires_at),) if asked.expires_at else ()
    facts += plain_words(shown.default_words(1000))
    guide = _one_of(asked) if len(inputs) > 1 and not wanted and not form else ""
    version = version_of(shown.current) if asked.direct is not None and wanted is not None else ""
    return View(
        (*first, Context(facts), *sections(guide), *inputs, *sections(_CHANGE if fields else ""), *fields),
        ANSWER_CALLBACK,
        Press("answer", record.id, shown.number, version).pack(),
        title="Answer",
        submit="Send answer" if inputs else "",
        close=CANCEL,
        asked=shown.asked,
    )


def plain_answer_modal(record: Clarification) -> View:
    """Replaces a form that cannot be laid out."""
    shown = round_of(directed(record))
    return message_modal(
        "Answer", f"Please answer in the thread.\n{plain_text(shown, Quote(words(shown.question)).aloud)}"
    )


def full_view(
    record: Clarification,
    *,
    round: int | None = None,  # noqa: A002 - the protocol's word
    page: int = 1,
) -> View:
    """Returns the modal behind View full: page `page` (from 1; clamped) of everything."""
    shown = round_of(directed(record), round)
    on = page_of(_laid_out((*_decision(shown), *_asked(shown), *_standing(shown))), page, 1)

    def press(to: int) -> Press:
        return Press("view", record.id, shown.number, str(to))

    return View(
        _page(on, press, more=verify_button(shown)),
        VIEW_CALLBACK,
        press(on.number).pack(),
        title="Full text",
        asked=shown.asked,
    )


def accept_modal(record: Clarification, page: int = 1, locale: str = "") -> View:
    """Returns the modal behind Accept on a card that leaves something out: page `page` (from 1) of what is accepted.
    Only the last page, which is reached through all others, accepts it.
    """
    shown = round_of(directed(record))
    version = version_of(shown.current) if shown.asked.direct is not None else ""
    on = page_of(_laid_out(_asked(shown)), page, 1)
    is_last = on.number == on.pages

    def press(to: int) -> Press:
        return Press("review", record.id, shown.number, f"{to}.{version}")

    wanted = shown.wanted
    top = stakes_alerts(wanted) if wanted and on.number > 1 else ()
    is_long = sum(map(_cost, on.items[0])) > _IN_SIGHT
    stakes = (risk_words(wanted) if wanted and is_long else "") if is_last else _LAST_ACCEPTS
    why = (_reason_input(shown, locale, optional=False),) if is_last and shown.asked.reason_wanted else ()
    return View(
        (*top, *_page(on, press, stakes), *why),
        ACCEPT_CALLBACK,
        (Press("accept", record.id, shown.number, version) if is_last else press(on.number)).pack(),
        title=ASK_AGAIN,
        submit=LABELS["accept"] if is_last else "",
        close=CANCEL,
        asked=shown.asked,
    )


def _page(
    on: ListPage[tuple[_Shown, ...]],
    press: Callable[[int], Press],
    said: str = "",
    more: tuple[Button, ...] = (),
) -> tuple[Part, ...]:
    """Returns one of several pages, followed by `said`, the buttons to its neighbours, and `more`."""
    note = f"Page {on.number} of {on.pages}" if on.pages > 1 else ""
    return (*on.items[0], Context(plain_words(note, said)), Actions((*turning(on, press), *more)))


def message_modal(title: str, text: str) -> View:
    return View(sections(words(text))[:VIEW_BLOCKS], title=inert.line(title, TITLE) or "Notice")


def hand_modal(press: PagePress, what: str) -> View:
    """Returns the modal behind Hand to…; `what` is handed over, one line."""
    told = f"Hand over {inert.line(what, 200)}. They are paged right away."
    return View(
        (
            Section(Words(told)),
            Input(
                HAND_BLOCK, "Hand to", "users_select", action_id=HAND_ACTION, placeholder="Choose a person"
            ),
        ),
        HAND_CALLBACK,
        press.pack(),
        title="Hand over",
        submit="Hand over",
        close="Cancel",
    )


def read_submission(values: Mapping[str, Any], record: Clarification, version: str = "") -> Answer:
    """Returns the answer that a submitted modal gives.

    Args:
        values: the view's state values; fields that the question does not ask for are ignored.
        record: with the round's question.
        version: of the arguments that the modal showed.

    Raises:
        ArgumentsChanged: the arguments have changed since the modal was opened.
        SubmissionErrors: nothing or more than one thing was filled in, or it cannot be read.
    """
    asked = record.asked
    if "confirmation" in asked.kinds:
        return _read_decision(values, record, version)
    if (form := asked.form) is not None:
        given, errors = read_fields(values, form)
        if errors:
            raise SubmissionErrors(errors)
        return answers.from_form(asked, given)
    shown = _fields(asked)
    filled = {block: said for block in shown if (said := _field_values(values, block))}
    if not filled:
        raise SubmissionErrors(dict.fromkeys(shown, FILL_IN if len(shown) == 1 else _one_of(asked)))
    if len(filled) > 1:
        raise SubmissionErrors(dict.fromkeys(filled, _TOO_MANY))
    ((block, said),) = filled.items()
    try:
        return _read(block, said, asked)
    except AnswerRejected as error:
        raise SubmissionErrors({block: str(error)}) from error


def _one_of(asked: Question) -> str:
    """Returns what to do if a question takes several kinds of answer."""
    return _CHOICE_OR_OWN if set(asked.kinds) == {"multiple_choice", "freetext"} else _ONE_OF_SEVERAL


def _read_decision(values: Mapping[str, Any], record: Clarification, version: str) -> Answer:
    """A decision is required, a reason only where accepting wants one. Edited arguments count if the action is accepted."""
    asked = record.asked
    decided, why = _field_values(values, DECISION_BLOCK), _field_values(values, RATIONALE_BLOCK)
    found = next((each for each in DECISIONS if decided == [each]), None)
    if found is None:
        raise SubmissionErrors({DECISION_BLOCK: FILL_IN})
    try:
        answer = answers.from_decision(asked, found, "".join(why))
    except AnswerRejected as error:
        raise SubmissionErrors({RATIONALE_BLOCK if why else DECISION_BLOCK: str(error)}) from error
    if found == "accept":
        _check_reason(asked, answer)
    if found != "accept" or not editable(record.current):
        return answer
    check_seen(record, version)
    changed, errors = read_changes(values, record.current)
    if errors or (errors := _misfits(record.current, changed)):
        raise SubmissionErrors(errors)
    return replace(answer, changed=changed) if changed else answer


def _misfits(current: Round, changed: Mapping[str, Any]) -> dict[str, str]:
    """Returns where edited arguments do not fit the agent's schema: at the field, or at the first one that was edited."""
    if not changed:
        return {}
    blocks = {name: each.block_id for name, each in editable(current).items()}
    edited = blocks[next(iter(changed))]
    try:
        problems = edit_problems(current, changed)
    except AnswerRejected as error:
        return {edited: str(error)}
    errors: dict[str, str] = {}
    for each in problems:
        block = blocks.get(str(each.path[0]), edited) if each.path else edited
        errors.setdefault(block, inert.plain(each.sentence))
    return errors


def read_accept(values: Mapping[str, Any], record: Clarification) -> Answer:
    """Returns the accept that a submitted `accept_modal` gives.

    Raises:
        SubmissionErrors: it wants a longer reason.
        AnswerRejected: the action cannot be accepted, or the reason is too long.
    """
    reason = "".join(_field_values(values, RATIONALE_BLOCK))
    answer = answers.from_decision(record.asked, "accept", reason)
    _check_reason(record.asked, answer)
    return answer


def _check_reason(asked: Question, answer: Answer) -> None:
    try:
        check_reason(asked, answer.rationale)
    except ReasonWanted as error:
        raise SubmissionErrors({RATIONALE_BLOCK: _REASON_TOO_SHORT}) from error


def _read(block: str, said: list[str], asked: Question) -> Answer:
    if block == CHOICES_BLOCK and _types_choices(asked):
        return answers.from_choice_text(asked, said[0])
    if block == CHOICES_BLOCK:
        return answers.from_choices(asked, [int(each) if each.isdecimal() else -1 for each in said])
    if block == YES_NO_BLOCK:
        return answers.from_yes_no(asked, said[0] == YES_VALUE)
    if block == FREETEXT_BLOCK:
        return answers.from_free_text(said[0])
    value = answers.number(said[0].strip())
    if value is None:
        raise AnswerRejected(TYPE_A_NUMBER)
    return Answer(value, answers.describe(value))


def _field_values(values: Mapping[str, Any], block: str) -> list[str]:
    """Returns a field's content as a list of strings; empty if it was left out."""
    state = values.get(block, {}).get(VALUE_ACTION) or {}
    if (picked := chosen(state)) is not None:
        return [value for value in picked if value != NONE_VALUE]
    text = state.get("value") or ""
    return [text] if text.strip() else []


def _consent_parts(shown: ShownRound, wanted: Confirmation) -> tuple[_Shown, ...]:
    """Returns what is to be accepted, without the arguments that an input shows in full."""
    fields = editable(shown.current)
    left = {
        name: each
        for name, each in shown.current.arguments.items()
        if name not in fields or overflows(fields[name])
    }
    heading = shown.change_heading
    people = live_words(shown.people_words, heading)
    return (
        *stakes_alerts(wanted),
        *action_of(wanted).parts,
        *consequence_of(wanted).parts,
        *argument_parts(argument_pieces(left)),
        *sections(_HIDDEN if _hides(shown.asked, left) else ""),
        *(part for each in extras_of(wanted) for part in each.parts),
        *((Context(people),) if people else ()),
        *Quote("\n".join(change_words(shown.current)), is_data=True).parts,
        *(() if shows_originals(shown.current) else _originals(shown.asked)),
    )


def _hides(asked: Question, arguments: Mapping[str, Any]) -> bool:
    """Returns whether some of these arguments are redacted. A person's own `[redacted]` does not count."""
    sent = asked.sent_arguments
    texts = {name: json.dumps(each) for name, each in arguments.items()}
    return any(REDACTED in text and text == json.dumps(sent.get(name)) for name, text in texts.items())


def _whole_consent(shown: ShownRound, wanted: Confirmation) -> Iterator[_Said]:
    """Yields everything: the arguments as they are, each change, and as the agent sent them."""
    asked, decided = shown.asked, shown.decided
    yield from (action_of(wanted), consequence_of(wanted))
    if shown.consent.edits:
        approved = decided is not None and decided.outcome == "approved"
        yield "The arguments as approved:" if approved else "The arguments as edited:"
    yield from argument_parts(argument_pieces(shown.current.arguments))
    yield from extras_of(wanted)
    for number, edit in enumerate(shown.consent.edits or (), 1):
        until = round_with(shown.current, edits=(shown.consent.edits or ())[:number])
        yield _by("Edited by", edit, ":")
        yield Quote("\n".join(change_words(until)), is_data=True)
    yield from _originals(asked) if shown.consent.edits else ()
    for each in shown.consent.lapsed or ():
        yield _by("No longer counts: approved by", each, "")
    for each in shown.consent.approvals or ():
        yield _by("Approved by", each, ":" if each.rationale else "")
        yield words(each.rationale) if each.rationale else ""


def _originals(asked: Question) -> tuple[Section | Rich, ...]:
    """Returns the arguments as the agent sent them."""
    heading = "The original arguments, as the agent sent them:"
    return (*sections(heading), *argument_parts(argument_pieces(asked.sent_arguments)))


def _by(did: str, what: Approval | Edit, end: str) -> Section:
    """Returns who did something, and when."""
    named = inert.escape(inert.as_value(what.decided_by, 256) or inert.BLANK)
    who = inert.mention(what.user) if inert.is_user(what.user) else named
    return Section(Words(f"{did} {who}, {inert.date(what.at)}{end}", live=True))


def _laid_out(every: Iterable[_Said]) -> list[tuple[_Shown, ...]]:
    """Splits texts into pages; nothing is left out."""
    return list(_pages(tuple(part for each in every for part in _parts(each))))


def _parts(said: _Said) -> tuple[_Shown, ...]:
    """Returns what shows it. A text that does not fit a section has a bar, as all of it is not ours."""
    if isinstance(said, str):
        return sections(said) if inert.size(said) <= SECTION else Quote(said, is_data=True).parts
    return said.parts if isinstance(said, Quote) else (said,)


def _asked(shown: ShownRound) -> Iterator[_Said]:
    """Yields the whole question, and what happens without an answer."""
    asked, form = shown.asked, shown.asked.form
    again = f" · round {shown.number}" if shown.number > 1 or not shown.is_current else ""
    yield from stakes_alerts(shown.wanted) if shown.wanted else ()
    yield " · ".join(filter(None, (shown.agent, shown.producer, f"{shown.id}{again}")))
    if shown.wanted:
        yield from _whole_consent(shown, shown.wanted)
    else:
        yield Quote(words(shown.question))
    yield Quote(shown.numbered, CHOICES, is_data=True)
    if form:
        yield Quote(form_words(form), _FIELDS, is_data=True)
    if asked.context:
        yield Quote(words(asked.context), CONTEXT)
    if asked.summary_detailed:
        yield Quote(words(asked.summary_detailed), SUMMARY if shown.wanted else DETAILS)
    yield from _around(shown)


def _around(shown: ShownRound) -> Iterator[_Said]:
    """Yields the topic, who may not approve, what happens without an answer, and why it was escalated."""
    asked = shown.asked
    if shown.topic:
        yield f"Topic: {inert.quoted(shown.topic)}"
    if said := shown.requester_words():
        yield Section(Words(said, live=True))
    if default := default_of(shown.asked):
        yield Quote(default, DEFAULT)
    elif asked.default_response is not None or shown.stage == "open":
        yield shown.default_words(inert.NO_LIMIT)
    if asked.expires_at and shown.stage == "open":
        yield Section(until_words(asked.expires_at))
    escalation, _, sides = shown.escalation_words(SECTION).partition("\n")
    yield escalation
    yield Quote(sides, is_data=True)


def _decision(shown: ShownRound) -> Iterator[_Said]:
    """Yields how it was decided, by whom and why; nothing if it was not."""
    if (decided := shown.decided) is None:
        return
    when = f", {inert.date(shown.answered_at)}" if shown.answered_at else ""
    yield Section(Words(f"*{capital(decided_words(decided))}*{when}", live=True))
    if decided.outcome == "answered":
        yield Quote(decided.answer, _ANSWER)
    yield Quote(shown.reason, REASON, is_data=True)


def _standing(shown: ShownRound) -> Iterator[_Said]:
    """Yields the reply's state or why it was closed, and what was said before."""
    if shown.stage == "answered":
        yield shown.reply_words
    if shown.stage == "closed":
        yield shown.why_closed(inert.NO_LIMIT)
    yield from _history(shown)


def _history(shown: ShownRound) -> Iterator[_Said]:
    thread = shown.record.thread
    if len(thread) > 1:
        yield "Thread:"
        for entry in thread:
            is_agent = entry.from_ == shown.record.from_
            name = shown.agent if is_agent else inert.as_value(entry.from_, 256) or inert.BLANK
            yield Context(live_words(f"{inert.date(entry.timestamp)} · {entry.type} · {inert.escape(name)}"))
            yield Quote(words(entry.body))


def _pages(
    every: tuple[_Shown, ...], most: int = _PAGE_BYTES, blocks: int = _PAGE_BLOCKS
) -> Iterator[tuple[_Shown, ...]]:
    """Splits what is shown into at least one page, each with at most so many bytes and blocks."""
    page: list[_Shown] = []
    room = most
    for part in every:
        cost = _cost(part)
        if page and (len(page) == blocks or cost > room):
            yield tuple(page)
            page, room = [], most
        page.append(part)
        room -= cost
    yield tuple(page)


def _cost(part: _Shown) -> int:
    """Returns the largest size as JSON, in bytes."""
    match part:
        case Context():
            return 200 + json_size([each.text for each in part.words])
        case Section() | Alert():
            return 200 + json_size(part.words.text)
        case Rich():
            return 200 + sum(json_size(run.text) + 120 for run in part.runs)


def _fields(asked: Question) -> tuple[str, ...]:
    """Returns the block_ids of the inputs in a question's modal, in order."""
    found = []
    if "multiple_choice" in asked.kinds and asked.choices:
        found.append(CHOICES_BLOCK)
    if "yes_no" in asked.kinds:
        found.append(YES_NO_BLOCK)
    if "numeric" in asked.kinds:
        found.append(NUMERIC_BLOCK)
    if "freetext" in asked.kinds or not found:
        found.append(FREETEXT_BLOCK)
    return tuple(found)


def _types_choices(asked: Question) -> bool:
    """Returns whether a choice is typed, because a menu cannot hold all of them (and "None of these" with other
    kinds).
    """
    none = len(_fields(asked)) > 1 and not asked.multi_select
    return len(asked.choices) + none > MENU_OPTIONS


def _decision_inputs(shown: ShownRound, allowed: Iterable[Decision], locale: str) -> tuple[Input, ...]:
    """Returns the inputs for the decision, without a default, and for a reason."""
    offered = tuple((LABELS[decision], decision) for decision in allowed)
    return (
        Input(DECISION_BLOCK, "Your decision", "radio_buttons", options=offered),
        _reason_input(shown, locale, optional=True),
    )


def _reason_input(shown: ShownRound, locale: str, *, optional: bool) -> Input:
    """Returns the input for a reason. `optional`: also for a reject, which needs none."""
    wanted = shown.asked.reason_wanted
    least = f" At least {LEAST_REASON} characters{' to accept it' if optional else ''}." if wanted else ""
    hint = f"Sent to the agent with your decision.{least} {_up_to(shown, locale)}."
    few = 0 if optional else LEAST_REASON
    return Input(
        RATIONALE_BLOCK,
        "Reason",
        "plain_text_input",
        optional=optional,
        hint=hint,
        most=_most(shown),
        least=few,
    )


def _input(shown: ShownRound, block: str, locale: str, *, several: bool) -> Input:
    """Returns the input for one kind of answer; if there are `several`, only one may be filled in."""
    label, element, hint = _LABELS[block], "radio_buttons", ""
    offered: tuple[tuple[str, str], ...] = ()
    if block == NUMERIC_BLOCK:
        element, hint = "number_input", "Use a point for decimals, like 1200 or 12.5."
    elif block == FREETEXT_BLOCK:
        element, hint = "plain_text_input", _up_to(shown, locale)
        hint += "; for a longer answer, reply in the thread." if _is_events(shown) else "."
    elif block == YES_NO_BLOCK:
        offered = YES_OR_NO
    elif _types_choices(shown.asked):
        element, hint = "plain_text_input", answers.hint_to_choose(shown.asked)
    else:
        element, offered = _choice_element(shown, several=several), options_of(shown.labels, _NONE)
    if block == CHOICES_BLOCK and shown.asked.multi_select:
        label = "Your choices"
    if several and element in ("radio_buttons", "static_select"):
        offered = (*offered, (_NONE, NONE_VALUE))
    return Input(block, label, element, several, hint, offered, most=_most(shown))


def _is_events(shown: ShownRound) -> bool:
    """Returns whether a producer's event asked it, so that AAEP's limits apply."""
    return shown.asked.reply_token is not None


def _most(shown: ShownRound) -> int:
    return _TEXT_LIMIT if _is_events(shown) else BODY_LIMIT


def _up_to(shown: ShownRound, locale: str) -> str:
    return in_words(f"Up to {_most(shown)} characters", locale)


def _choice_element(shown: ShownRound, *, several: bool) -> str:
    labels = shown.labels
    few = len(labels) <= (9 if several else 10) and all(map(fits_option, labels))
    if shown.asked.multi_select:
        return "checkboxes" if few else "multi_static_select"
    return "radio_buttons" if few else "static_select"
