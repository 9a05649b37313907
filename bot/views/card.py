"""The card of a question. Its text, which a screen reader reads aloud and a notification shows, says what its parts do.

An action is never approved by its beginning: if the card or its text leaves something out, Accept opens all of it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from bot.views import inert
from bot.views.arguments import (
    CHANGED,
    argument_parts,
    argument_pieces,
    argument_texts,
    change_words,
    changed_in_all,
    fits_line,
    main_argument,
    shows_originals,
)
from bot.views.blockkit import (
    ANSWER,
    CONFIRM_TEXT,
    NO,
    OPTION,
    POINTER,
    RELEASE,
    SECTION,
    SHORTENED,
    TAKE,
    TAKE_OVER,
    VERIFY,
    VIEW_FULL,
    YES,
    Actions,
    Alert,
    Budget,
    Button,
    Context,
    Dialog,
    Draft,
    Header,
    Overflow,
    Part,
    Section,
    Select,
    Style,
    Words,
    answer_button,
    button,
    drafted,
    live_words,
    more_menu,
    only_aloud,
    plain_words,
    sections,
    with_moments,
)
from bot.views.codec import SELECT_ACTION, Press
from bot.views.fields import form_words, numbered_options
from bot.views.locale import directed
from bot.views.markdown import Quote, fit
from bot.views.wording import (
    ACTION,
    ASK_AGAIN,
    CONTEXT,
    DECIDED,
    DETAILS,
    HOW_TO_COMMENT,
    LABELS,
    REASON,
    SUMMARY,
    ShownRound,
    Verbosity,
    action_of,
    capital,
    consequence_of,
    dated,
    decided_words,
    default_of,
    extras_of,
    reminder_words,
    risk_words,
    round_of,
    stakes_alerts,
    until_words,
    warning_words,
    words,
)
from core import answers
from core.approvals import version_of
from core.clarification import Clarification, Confirmation, Entry

CHOOSE = "Choose an answer"
CANCEL = "Cancel"
MEANT, MEANT_THIS = "It does", "Does your reply decide this?"
CONTEXT_IN_FULL, ARGUMENTS_IN_FULL = "Context in full", "Arguments in full"
ACCEPT_SHOWS_ALL = "Some of this is hidden on the card. Click Accept to see all of it, and accept it there."
MENU = 3500  # characters of a whole menu
MENU_OPTIONS = 100  # Slack's menus take no more
_BUTTON_CHOICES = 5
_BUTTON_LABEL = 30  # longer labels clip on screen
_LEAST_OPTION, _LEAST_LINE = 12, 20
_LEAST_WORDS = 1500  # reserved for the question beside a menu
_LINES = 10  # of choices that fit no menu
_ANSWER_IS, _FORM_IS = "Answer: ", "Answer:\n"
_SMALL = 500
_BRIEF = 250  # of a dialog, as a message may have ten
_LINE = 120  # of the question, its main argument and the answer, on a one-line card
_NAMED = 40  # per name, if two share a heading
_STANDING = {"stale": "overdue", "escalated": "escalated"}
REST = "The rest is under View full."
_BESIDE_ON_PAGE = 2400  # characters: why on-call is paged, and what stands around it
_BESIDE_ON_CARD = 700  # why it is in another channel, and that an agent is asked, too
CHOICES = "Choices:\n"


@dataclass(frozen=True, slots=True)
class Card:
    """The parts of a card, or of a page with a question, in the order in which they are shown."""

    heading: Header | Context
    ended: tuple[Section, ...] = ()  # how, by whom and when
    stakes: tuple[Alert, ...] = ()  # of an open approval
    alert: tuple[Words, ...] = ()
    question: tuple[Part, ...] = ()
    topic: tuple[Words, ...] = ()
    choices: tuple[Part, ...] = ()
    context: tuple[Part, ...] = ()
    below: tuple[Part, ...] = ()  # the answer and its reason; on a page: why on-call is paged
    facts: tuple[Words, ...] = ()
    buttons: tuple[Button, ...] = ()
    selects: tuple[Select, ...] = ()
    controls: tuple[Button, ...] = ()  # that do not answer
    hint: tuple[Words, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        return (
            self.heading,
            *self.ended,
            *self.stakes,
            Context(self.alert),
            *self.question,
            Context(self.topic),
            *self.choices,
            *self.context,
            *self.below,
            Context(self.facts),
            Actions(self.buttons, self.selects),
            Actions(self.controls),
            Context(self.hint),
        )


def card(
    record: Clarification,
    *,
    round: int | None = None,  # noqa: A002 - the protocol's word
    verbosity: Verbosity = "normal",
    posted_to_fallback: str | None = None,
    asks_an_agent: bool = False,
    shrinks: bool = False,
) -> Draft:
    """Returns the card of a round: the current one, or an earlier one, which is always closed.

    Args:
        record: as found in the ledger.
        round: from 1; None is the current one.
        verbosity: of the route.
        posted_to_fallback: the channel id that this card was meant for, if it could not be used.
        asks_an_agent: an agent is asked for the answer, too.
        shrinks: shorten a closed card to one line, because it is also in the channel, beside its thread. The text for
            screen readers stays complete.
    """
    shown = replace(round_of(directed(record), round), asks_an_agent=asks_an_agent)
    stem = f"{record.id}.{record.revision}"
    if shown.stage == "open":
        return _open_draft(shown, verbosity, posted_to_fallback, stem)
    made = drafted(
        stem, lambda budget: closed_card(shown, budget).parts, pointer=SHORTENED, asked=shown.asked
    )
    line = _line(shown) if shrinks else None
    return made if line is None else replace(made, parts=line, asked=None)


def _open_draft(
    shown: ShownRound, verbosity: Verbosity, instead_of: str | None, stem: str, *, beside: int = 0
) -> Draft:
    def build(budget: Budget) -> tuple[Part, ...]:
        return replace(open_card(shown, verbosity, budget, instead_of), controls=_owner_buttons(shown)).parts

    return drafted(stem, build, pointer=pointer_of(shown), rest=REST, asked=shown.asked, beside=beside)


def pointer_of(shown: ShownRound, pointer: str = POINTER) -> str:
    """Returns where the whole of an open question is. Arguments would fill the thread; View full shows them."""
    return SHORTENED if shown.wanted else pointer


def shows_whole(record: Clarification, verbosity: Verbosity = "normal") -> bool:
    """Returns whether the card of an open question, and a page about it, show everything that is decided on, in their blocks and
    their text alike. Only then does an accept count without a further view.
    """
    shown = round_of(directed(record))
    is_paged = record.status == "escalated"
    levels: tuple[Verbosity, ...] = (verbosity, "normal") if is_paged else (verbosity,)
    beside = _BESIDE_ON_PAGE if is_paged else _BESIDE_ON_CARD
    return all(_open_draft(shown, each, None, "", beside=beside).is_whole for each in levels)


def plain_card(record: Clarification, round: int | None = None) -> Draft:  # noqa: A002 - the protocol's word
    """Returns a card that can always be laid out: the id, the question and how to answer, or how it ended."""
    shown = round_of(directed(record), round)

    def build(budget: Budget) -> tuple[Part, ...]:
        (question,) = fit(budget, [Quote(Quote(words(shown.question)).aloud)])
        return sections(plain_text(shown, question.text))

    return drafted("plain", build, asked=shown.asked)


def open_card(shown: ShownRound, verbosity: Verbosity, budget: Budget, instead_of: str | None = None) -> Card:
    """Returns a card that takes an answer. `instead_of`: the channel in which it could not be posted."""
    wanted = shown.wanted
    if budget.is_endless and verbosity == "terse":
        verbosity = "normal"
    terse, small = verbosity == "terse", budget.most(_SMALL)
    default = "" if terse and wanted is None else shown.default_words(small)
    people = live_words(shown.people_words)
    until = until_words(shown.asked.expires_at)
    facts = (*people, until, *reminder_words(shown.reminded_at), *plain_words(default, shown.producer))
    alert = tuple(_alerts(shown, instead_of, small))
    topic = () if terse or not shown.topic else (Words(f"Topic: {inert.quoted(shown.topic, small)}"),)
    budget.spend(*(part.text for part in (*facts, *alert, *topic)), shown.agent, shown.target)
    budget.spend(ACCEPT_SHOWS_ALL if wanted else "", _hint(shown))
    selects = () if uses_buttons(shown) else _selects(shown, budget.left - _LEAST_WORDS)
    budget.spend(*(option for select in selects for option, _ in select.options))
    said = _consent(shown, wanted, budget, verbosity) if wanted else _question(shown, budget, verbosity)
    budget.cut |= _cuts_default(shown) or shown.reason_hides(_SMALL)
    opens = ACCEPT_SHOWS_ALL if wanted and budget.cut and "accept" in wanted.allowed else ""
    return replace(
        said,
        alert=alert,
        topic=topic,
        facts=facts,
        buttons=_buttons(shown, cut=budget.cut),
        selects=selects,
        hint=plain_words(opens if terse else _hint(shown, opens)),
    )


def _question(shown: ShownRound, budget: Budget, verbosity: Verbosity) -> Card:
    """A question in its agent's words, cut to fit."""
    terse = verbosity == "terse"
    listed = not uses_buttons(shown) or bool(shown.described)
    form = shown.asked.form
    said = (
        words(shown.question),
        "" if terse else shown.context,
        _detail(shown, verbosity),
        shown.numbered or (form_words(form, brief=True) if form else ""),
    )
    question, context, detail, offered = fit(budget, list(map(Quote, said)), at_length=(3,))
    choices, has_control = offered.text, _has_control(shown)
    are_cut = inert.size(choices) < inert.size(shown.numbered) or not has_control
    if shown.labels and are_cut and not budget.is_endless:
        choices = _clipped_choices(shown, inert.size(choices))
    budget.cut |= (
        (terse and bool(shown.asked.context or shown.asked.default_response))
        or not has_control
        or (form is not None and form_words(form, brief=True) != form_words(form))
    )
    asked = Quote(choices, CHOICES if shown.labels else "", is_data=True).parts
    is_cut = context.text != shown.context and not terse
    whole = Quote(shown.context, CONTEXT).aloud if is_cut else ""
    given = [
        replace(each, label=label) for each, label in ((context, CONTEXT), (detail, DETAILS)) if each.text
    ]
    return Card(
        heading=Header(_heading(shown)),
        question=question.parts,
        choices=asked if listed else tuple(only_aloud(part.aloud) for part in asked),
        context=(*(part for each in given for part in each.parts), *budget.fold(CONTEXT_IN_FULL, whole)),
    )


def _consent(shown: ShownRound, wanted: Confirmation, budget: Budget, verbosity: Verbosity) -> Card:
    """An action and its consequence. The stakes are always shown in full, whatever else is cut."""
    terse, extra = verbosity == "terse", extras_of(wanted)
    stakes, again = stakes_alerts(wanted), _dialog(shown, wanted)
    budget.spend(*(each.words.text for each in stakes), *LABELS.values())
    if again is not None:
        budget.spend(again.title, again.text, again.confirm, again.deny)
    with_what = argument_pieces(shown.current.arguments)
    heading = shown.change_heading
    budget.spend(heading, *(each.title for each in with_what))
    budget.cut |= bool(terse and extra) or not shows_originals(shown.current)
    detail = _detail(shown, verbosity)
    besides = [*(() if terse else extra), *([Quote(detail, SUMMARY, exact=True)] if detail else ())]
    quotes = (
        action_of(wanted),
        consequence_of(wanted),
        Quote("\n".join(change_words(shown.current)), is_data=True),
        *besides,
        *(Quote(each.text) for each in with_what),
    )
    action, consequence, changes, *rest = fit(budget, quotes)
    besides, texts = rest[: len(besides)], rest[len(besides) :]
    shorter = [replace(each, text=cut.text) for each, cut in zip(with_what, texts, strict=True)]
    said: list[Part] = [*action.parts, *consequence.parts, *argument_parts(shorter)]
    if any(each.text != whole.text for each, whole in zip(shorter, with_what, strict=True)):
        said += budget.fold(ARGUMENTS_IN_FULL, *argument_texts(shown.current.arguments))
    if heading:
        said += [Context(live_words(heading)), *changes.parts]
    return Card(
        heading=Header(_heading(shown)),
        stakes=stakes,
        question=tuple(said),
        context=tuple(part for each in besides for part in each.parts),
    )


def _detail(shown: ShownRound, verbosity: Verbosity) -> str:
    return inert.plain(shown.asked.summary_detailed or "").strip() if verbosity == "detailed" else ""


def closed_card(shown: ShownRound, budget: Budget) -> Card:
    """Returns a card that takes no answer any more: how it ended, by whom and when, what was asked, and in small print what was
    at stake. Its only control is a menu.
    """
    wanted, decided, facts = shown.wanted, shown.decided, _closing_facts(shown)
    answer, is_exact = _answer(shown)
    is_below = "\n" in answer.strip() or inert.size(answer) > DECIDED
    ended = _ended(shown, with_answer=not is_below)
    budget.spend(shown.agent, shown.target, ended.text, *(part.text for part in facts))
    quotes = (
        action_of(wanted) if wanted else Quote(words(shown.question)),
        consequence_of(wanted) if wanted else Quote(""),
        Quote(main_argument(shown.current.arguments, _LINE) if wanted else "", is_data=True),
        Quote(answer if is_below else "", _ANSWER_IS if shown.asked.form is None else _FORM_IS),
        Quote(changed_in_all(shown.current), CHANGED, is_data=True),
        Quote(shown.reason, REASON, is_data=True),
    )
    # A form's answer has a line per field: it is cut only for its length.
    question, consequence, argument, given, change, reason = fit(
        budget, quotes, at_length=(3,) if shown.asked.form is not None else ()
    )
    budget.cut |= decided is None and shown.current.closed == "expired" and _cuts_default(shown)
    hides = decided is not None and (_leaves_out(shown) or not (is_below or is_exact))
    return Card(
        heading=Context((Words(_heading(shown)),)),
        ended=(Section(ended, _menu(shown, hides=hides or budget.cut)),),
        question=(*question.parts, *consequence.parts, *argument.parts),
        below=(*with_moments(given.parts, decided.times if decided else ()), *change.parts, *reason.parts),
        facts=facts,
    )


def _line(shown: ShownRound) -> tuple[Part, ...] | None:
    """Returns what a closed card says in one line, with its menu. None if it does not fit a line."""
    wanted = shown.wanted
    asked = Quote(words(shown.question)) if wanted is None else action_of(wanted)
    whole = (asked.plain, main_argument(shown.current.arguments, inert.NO_LIMIT))
    said = [inert.line(each, _LINE) for each in whole]
    told = (
        shown.agent_within(_NAMED),
        shown.id,
        _round_words(shown),
        *(inert.quoted(each) for each in said if each),
        f"{REASON}{inert.quoted(shown.reason, _LINE)}" if shown.reason else "",
    )
    facts = (each.mrkdwn for each in _closing_facts(shown))
    line = " · ".join((_ended(shown).mrkdwn, *(inert.escape(each) for each in told if each), *facts))
    if inert.size(line) > SECTION:
        return None
    hides = said != [*whole] or not _answer(shown)[1] or _cuts_default(shown) or _leaves_out(shown)
    return (Section(Words(line, live=True), _menu(shown, hides=hides)),)


def _ended(shown: ShownRound, *, with_answer: bool = True) -> Words:
    """Returns how it ended, in bold if people decided it, then by whom and when."""
    if shown.decided is None:
        return Words(inert.sentence(shown.why_closed(_SMALL)))
    said = f"*{capital(decided_words(shown.decided, with_answer=with_answer))}*"
    when = f" · {inert.date(shown.answered_at)}" if shown.answered_at else ""
    return Words(f"{said}{when}", live=True)


def _answer(shown: ShownRound) -> tuple[str, bool]:
    """Returns a question's answer, empty for an approval, and whether `_ended` has all of it, as it was given."""
    decided = shown.decided
    if decided is None or decided.outcome != "answered":
        return "", True
    whole = dated(inert.fallback(decided.answer, inert.NO_LIMIT), decided)
    return decided.answer, f"“{whole}”" in _ended(shown).text


def _closing_facts(shown: ShownRound) -> tuple[Words, ...]:
    """Returns the risk, who changed it and said what before, the reply's state, and who closed it."""
    facts = list(plain_words(risk_words(shown.wanted) if shown.wanted else ""))
    facts += live_words(shown.accepted_before, shown.change_heading.rstrip(":"))
    facts += plain_words(shown.reply_words)
    if shown.decided is not None and shown.is_current and shown.record.status == "abandoned":
        facts.append(Words(shown.why_closed(_SMALL)))
    if who := shown.closed_by(256):
        facts.append(Words(f"By {who.text}", who.live))
    return (*facts, *plain_words(shown.producer))


def _leaves_out(shown: ShownRound) -> bool:
    """Returns whether View full has something that no closed card shows, however short it is."""
    asked, wanted, consent = shown.asked, shown.wanted, shown.consent
    found = (
        shown.agent != shown.agent_within(_NAMED),
        shown.context,
        asked.summary_detailed,
        shown.labels,
        asked.form,
        shown.topic,
        shown.current.closed != "expired" and default_of(asked),
        shown.requester_words(),
        wanted and (extras_of(wanted) or warning_words(wanted)),
        consent.edits or consent.approvals or consent.lapsed,
        not fits_line(shown.current.arguments, _LINE),
        shown.record.round > 1,
        not all(_is_shown(shown, each) for each in shown.record.thread),
    )
    return any(found)


def _is_shown(shown: ShownRound, entry: Entry) -> bool:
    """Returns whether a closed card says what this line of the thread does."""
    if entry.type == "resolution":
        said = entry.body.removeprefix(f"Abandoned: {shown.current.closed}.").strip()
        return not said or inert.quoted(said) in shown.why_closed(_SMALL)
    return entry.type in ("question", "answer")


def _menu(shown: ShownRound, *, hides: bool) -> Overflow | None:
    """Returns the menu of a closed card: View full if it `hides` something, and Verify if it has a receipt. None if no one decided
    and the card shows everything.
    """
    offered = [(VIEW_FULL, Press("view", shown.record.id, shown.number, "1"))] if hides else []
    if shown.current.receipt is not None and (hides or shown.decided is not None):
        offered.append((VERIFY, Press("verify", shown.record.id, shown.number)))
    return more_menu(*offered)


def uses_buttons(shown: ShownRound) -> bool:
    """Returns whether each choice gets a button: they are few, short and easy to tell apart."""
    labels = [label.casefold() for label in shown.labels]
    return (
        not shown.asked.multi_select
        and 0 < len(labels) <= _BUTTON_CHOICES
        and all(inert.size(label) <= _BUTTON_LABEL for label in shown.labels)
        and len(set(labels)) == len(labels)
        and not shown.confusing
    )


def view_full(record: Clarification, number: int) -> Button:
    return button(Press("view", record.id, number, "1"), VIEW_FULL, f"{VIEW_FULL}: {record.id}")


def reply_dialog(wanted: Confirmation) -> Dialog:
    """Returns the dialog that asks whether a reply decides the question, before it counts."""
    before = f"{risk_words(wanted)}\n{ACTION}"
    action = inert.clip(_action_line(wanted), _BRIEF - inert.size(before))
    return Dialog(MEANT_THIS, f"{before}{action}", MEANT, CANCEL)


def _has_modal(shown: ShownRound) -> bool:
    """Returns whether Answer… is offered: if buttons and menus cannot give every answer."""
    kinds = shown.asked.kinds
    several = shown.asked.multi_select and bool(shown.labels)
    by_form = {"confirmation", "numeric", "freetext", "form"}
    return several or not _has_control(shown) or bool(by_form & set(kinds)) or not kinds


def _has_control(shown: ShownRound) -> bool:
    """Returns whether a control offers every choice."""
    return len(shown.labels) <= MENU_OPTIONS


def _buttons(shown: ShownRound, *, cut: bool) -> tuple[Button, ...]:
    record, number, wanted = shown.record, shown.number, shown.wanted
    found: list[Button] = []
    if uses_buttons(shown):
        found += [
            button(Press("choice", record.id, number, str(n)), label, n=n)
            for n, label in enumerate(shown.labels)
        ]
    if wanted:
        found += _decisions(shown, wanted, cut=cut)
    if "yes_no" in shown.asked.kinds:
        found += [button(Press("yes", record.id, number), YES), button(Press("no", record.id, number), NO)]
    if _has_modal(shown):
        found.append(answer_button(record, number))
    return (*found, view_full(record, number)) if cut else tuple(found)


def _owner_buttons(shown: ShownRound) -> tuple[Button, ...]:
    """Returns Take, or Take over and Release. No buttons if several people must approve. An escalated question is
    released on the page of the person who claimed it.
    """
    record, number, holder = shown.record, shown.number, shown.attention.taken_by
    if shown.asked.needed > 1:
        return ()
    if holder is None:
        return (
            button(
                Press("take", record.id, number), TAKE, f"Take {record.id}: others see that you are on it"
            ),
        )
    over = button(Press("take", record.id, number, "over"), TAKE_OVER, f"Take over {record.id}")
    if record.status == "escalated":
        return (over,)
    return over, button(Press("letgo", record.id, number), RELEASE, f"Release {record.id}, if you claimed it")


def _decisions(shown: ShownRound, wanted: Confirmation, *, cut: bool) -> Iterable[Button]:
    """Yields a button for each decision that the agent accepts. With high stakes, Accept asks for confirmation. On a
    `cut` card, where a reason is wanted, or where the dialog could not name the whole action, it opens the whole action
    instead, which also asks. The colour that warns is on the button that does harm: Accept where the risk is high, else
    Reject.
    """
    again = _dialog(shown, wanted) if wanted.asks_twice else None
    opens = cut or bool(shown.asked.reason_wanted) or (wanted.asks_twice and again is None)
    styles: dict[bool, Style] = (
        {True: "danger", False: ""} if wanted.is_high_risk else {True: "primary", False: "danger"}
    )
    for decision in wanted.allowed:
        accepts = decision == "accept"
        version = version_of(shown.current) if accepts and shown.asked.direct is not None else ""
        press = Press(decision, shown.record.id, shown.number, version)
        yield button(
            replace(press, verb="review", arg=f"1.{version}") if accepts and opens else press,
            LABELS[decision],
            f"{LABELS[decision]}: {inert.visible_line(wanted.action, prose=True)}",
            style=styles[accepts],
            dialog=again if accepts and not opens else None,
        )


def _dialog(shown: ShownRound, wanted: Confirmation) -> Dialog | None:
    """Returns the dialog before Accept counts, which names the stakes and the action, or None if they do not fit: several
    lines would not be told apart. It also has the command and the consequence, each if there is room.
    """
    said = [risk_words(wanted), f"{ACTION}{_action_line(wanted)}"]
    if "\n" in wanted.action.strip() or inert.size("\n".join(said)) > CONFIRM_TEXT:
        return None
    command = main_argument(shown.current.arguments, inert.NO_LIMIT, only_code=True)
    for more in (command, consequence_of(wanted).aloud):
        if more and "\n" not in more and inert.size("\n".join([*said, more])) <= CONFIRM_TEXT:
            said.append(more)
    return Dialog(ASK_AGAIN, "\n".join(said), LABELS["accept"], CANCEL)


def _action_line(wanted: Confirmation) -> str:
    """Returns the action on one line, without markup."""
    return inert.line(action_of(wanted).plain)


def _selects(shown: ShownRound, room: int) -> tuple[Select, ...]:
    if not shown.labels or shown.asked.multi_select or not _has_control(shown):
        return ()
    values = [Press("choice", shown.record.id, shown.number, str(n)).pack() for n in range(len(shown.labels))]
    width = min(OPTION, max(_LEAST_OPTION, min(MENU, room) // len(shown.labels)))
    offered = zip(numbered_options(shown.labels, width), values, strict=True)
    return (Select(CHOOSE, SELECT_ACTION, tuple(offered)),)


def _clipped_choices(shown: ShownRound, room: int) -> str:
    """Returns the choices numbered, long ones cut, the last ones omitted if there are too many."""
    most = len(shown.labels) if _has_control(shown) else _LINES
    labels = shown.labels[: max(1, min(most, (room - 2 * _LEAST_LINE) // _LEAST_LINE))]
    left = len(shown.labels) - len(labels)
    more = f"\n… and {left} more under {VIEW_FULL}" if left else ""
    numbers = [f"{n}. " for n in range(1, len(labels) + 1)]
    budget = room - len(more) - sum(len(number) + 1 for number in numbers)
    clipped = inert.shared(labels, budget, lambda label, share: inert.clip(label, max(10, share)))
    return "\n".join(map("".join, zip(numbers, clipped, strict=True))) + more


def _heading(shown: ShownRound) -> str:
    standing = _STANDING.get(shown.record.status, "") if shown.stage == "open" else ""
    target = shown.target_within(_NAMED)
    said = f"{shown.agent_within(_NAMED)} {shown.verb} {target}" if target else f"{shown.agent} {shown.verb}"
    return " · ".join(filter(None, (said, shown.id, _round_words(shown), standing)))


def _round_words(shown: ShownRound) -> str:
    return f"round {shown.number}" if shown.number > 1 or not shown.is_current else ""


def _alerts(shown: ShownRound, instead_of: str | None, limit: int) -> Iterable[Words]:
    yield from plain_words(shown.escalation_reason(limit), shown.too_few_words)
    yield from live_words(shown.holder)
    yield from plain_words(*shown.instead_words(limit))
    if instead_of and inert.is_channel(instead_of):
        yield Words(f"Posted here because {inert.channel(instead_of)} could not be used.", live=True)
    elif instead_of:
        yield Words(inert.clip(f"Posted here instead of {inert.line(instead_of)}.", _SMALL))


def _cuts_default(shown: ShownRound) -> bool:
    return inert.size(answers.default_label(shown.asked)) > _SMALL


def _hint(shown: ShownRound, before: str = "") -> str:
    """Returns how to answer in words, and how to comment, after `before`: that the card is not whole, and so cannot be accepted
    in words. That a form also takes JSON is only said after an unreadable reply.
    """
    asked, wanted = shown.asked, shown.wanted
    if before and wanted is not None:
        asked = asked.copied(wanted=wanted.copied(allowed_replies=("reject",)))
    how = answers.hint(asked) if not before or (wanted and "reject" in wanted.allowed) else ""
    if not answers.takes_words(shown.asked):
        how = f"Click {ANSWER} to fill in the form."
    elif how:
        how = f"Or in this thread: {how[0].lower()}{how[1:]}"
    return " ".join(filter(None, (before, how, HOW_TO_COMMENT)))


def plain_text(shown: ShownRound, question: str) -> str:
    """Returns the text of a card that cannot be laid out (not escaped), with the id, the question and how to answer."""
    standing = answers.hint(shown.asked) if shown.stage == "open" else shown.why_closed(_SMALL)
    return "\n".join(filter(None, (f"{_heading(shown)}:", question, standing)))
