"""Several questions at once: the replies to commands, an agent's roll-up card with its list, “Which question did you mean?”, and the
Home tab. Agents' text is plain text; mentions and dates are the bot's own. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args

from bot.routing import audience_of
from bot.views import inert, phrases
from bot.views.blockkit import (
    ANSWER,
    OPTION,
    SHOW_ALL,
    TAKE,
    VIEW_FULL,
    Actions,
    Button,
    Context,
    Dialog,
    Draft,
    Header,
    Input,
    Part,
    Section,
    Select,
    View,
    Words,
    answer_button,
    button,
    fixed,
    only_aloud,
    plain_words,
    sections,
    turning,
)
from bot.views.card import CANCEL, MEANT, MEANT_THIS, MENU_OPTIONS, reply_dialog
from bot.views.codec import (
    HOME_CALLBACK,
    HOME_PRESS,
    LIST_CALLBACK,
    LONGEST_SEARCH,
    SEARCH_ACTION,
    SEARCH_CALLBACK,
    WHICH_ACTION,
    HomePress,
    HomeSection,
    HomeVerb,
    ListPress,
    Press,
)
from bot.views.locale import directed, in_words
from bot.views.markdown import plain
from bot.views.wording import (
    ID_LIMIT,
    TAMPERED,
    ShownRound,
    decided_plainly,
    decided_words,
    listed_words,
    name_of,
    reminder_words,
    round_of,
    until_words,
)
from core.clarification import Clarification, Round
from core.index import AgentNode, ReadyItem
from core.summary import Decided, ListPage, PastDecision, Seen, page_of, several

PAGE_SIZE = 8  # of a command's list
LINES = 10
ROLLUP_PAGE = 20
WHICH = "Which question is this an answer to?"
_HEADING, _PIECE = 150, 2900
_QUESTION, _LABEL = 200, 120
_SHORT, _NAMED, _DEEPEST = 40, 3, 8  # so that a page of lines fits into a message and its text
_INDENT = "\u2003"  # an em space: Slack trims ordinary ones
_LINK = re.compile(r"https?://[^\s<>|]{1,300}")
_ROLLUP_ROWS = 5
_ENDED = {"expired": "expired", "withdrawn": "withdrawn by the agent", "closed": "closed without an answer"}
_ROW, _LISTED = 300, 200
_WHICH_BUTTONS = 10
_GRAVE = Dialog(
    MEANT_THIS,
    "Some of these are high risk or irreversible. Read the one you chose in full on its card first.",
    MEANT,
    CANCEL,
)


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """A question in a list of any surface: `/clarify`, search, Home and the shell only lay it out.

    `question`: all of it, plain text. `at`: when it was asked, or decided. `state`: how it stands or ended, as plain text,
    unless people `decided` it. `open`: what was asked, while it is open; its stakes come before the question. `to`: the agent that
    was asked, if one was.
    """

    id: str
    agent: str
    question: str
    at: datetime
    decided: Decided | None = None
    state: str = ""
    open: Round | None = None
    to: str = ""

    def asked(self, limit: int) -> str:
        """Returns the question in quotation marks, as plain text."""
        if self.open is not None:
            return listed_words(self.open, self.question, limit)
        return inert.quoted(self.question, limit)

    def stands(self, limit: int) -> str:
        """Returns how it stands, as our own mrkdwn. `limit`: of an answer in words."""
        if self.decided is not None:
            return decided_words(self.decided, limit)
        return inert.escaped_line(self.state, 2 * limit)

    def stands_plainly(self, limit: int) -> str:
        """Returns the same as plain text, with names in place of mentions."""
        return self.state if self.decided is None else decided_plainly(self.decided, limit)


ListRow = tuple[Part, ...]
"""One clarification in a list."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a person may do with a clarification, and the link to its card."""

    answer: bool = False
    take: bool = False
    link: str | None = None


def linked(name: str, link: str | None) -> str:
    """Returns a name as mrkdwn that leads to `link`, if that is a web address."""
    words = inert.escape(name)
    return f"<{link}|{words}>" if link and _LINK.fullmatch(link) else words


def said(words: str, *, heading: str = "", live: bool = True) -> Draft:
    """Returns a message with only text. `live`: our own words, with mentions and dates; otherwise plain text."""
    words = words if live else inert.plain(words)
    return _listing(heading, [Section(Words(each, live=live)) for each in inert.split(words, _PIECE)])


def listing(heading: str, page: ListPage[ListRow], *, query: str, notes: Iterable[str] = ()) -> Draft:
    """Returns a page of clarifications. `query` repeats the list; `notes` are plain text."""
    where = f"Page {page.number} of {page.pages}" if page.pages > 1 else ""
    above = "\n".join(note for note in (*notes, where) if note)
    shown = [part for row in page.items for part in row]
    return _listing(inert.line(heading, _HEADING), (*sections(above), *shown, Actions(_turning(page, query))))


def choice_of(heading: str, records: Sequence[Clarification], query: str) -> Draft:
    """Returns clarifications to choose from, at most a page, without controls."""
    rows = [row(each, Offer(), n) for n, each in enumerate(records[:PAGE_SIZE])]
    return listing(heading, page_of(rows, 1, PAGE_SIZE), query=query)


def agent_row(agent: AgentNode) -> ListRow:
    """Returns the row of an agent and whom it waits for."""
    parts = [f"{_INDENT * min(agent.depth, _DEEPEST)}*{_short(agent.name or agent.agent)}*:"]
    parts.append(phrases.waiting(agent.status, agent.on, _several))
    if agent.since is not None:
        parts.append(f"since {inert.date(agent.since)}")
    if agent.waits:
        parts.append(f"({_several(agent.blocked_by)})")
    return (Section(Words(" ".join(parts), live=True)),)


def session_row(item: ReadyItem) -> ListRow:
    """Returns the row of a session and what blocks it."""
    name = f"*{_short(item.name or item.agent)}*, issue {item.issue}"
    since = f" since {inert.date(item.since)}" if item.since else ""
    state = f"blocked by {_several(item.blocked_by)}{since}" if item.blocked_by else "ready"
    return (Section(Words(f"{name}: {state}", live=True)),)


def row_of(shown: ShownRound, *, is_tampered: bool = False) -> QuestionRow:
    """Returns the row of a round. `is_tampered`: it does not agree with its receipt."""
    record = shown.record
    is_open = shown.stage == "open"
    if is_tampered:
        state = TAMPERED
    elif record.status == "escalated" and is_open:
        why = "overdue" if shown.attention.escalated_for == "stale" else shown.attention.escalated_for
        state = f"escalated ({why})" if why else "escalated"
    elif is_open:
        state = "reminded" if shown.attention.nudges else "open"
    else:
        state = "" if shown.decided is not None else shown.why_closed(_LABEL)
    return QuestionRow(
        inert.line(record.id),
        shown.agent,
        shown.question if is_open else shown.plain_question,
        (None if is_open else shown.answered_at) or record.asked_last,
        None if is_tampered else shown.decided,
        state,
        shown.current if is_open else None,
        shown.target,
    )


def past_row(decision: PastDecision) -> QuestionRow:
    """Returns the row of a decision that search found."""
    return QuestionRow(
        inert.line(decision.clarification),
        name_of(decision.agent),
        plain(decision.question),
        decision.at,
        decision.decided,
        _ENDED.get(decision.outcome, inert.line(decision.outcome, _SHORT)),
    )


def row(record: Clarification, offer: Offer, n: int, *, is_tampered: bool = False) -> ListRow:
    """Returns a clarification's row. `n` distinguishes its buttons from other rows'. `is_tampered`: it
    does not agree with its receipt.
    """
    shown = round_of(record)
    made = row_of(shown, is_tampered=is_tampered)
    state = made.stands(_LABEL)
    if shown.stage == "open" and not is_tampered:
        state = " · ".join([state, *_moments(shown)])
    buttons = [
        button(Press("view", record.id, shown.number, "1"), VIEW_FULL, f"View {record.id} in full", n=n)
    ]
    if shown.stage == "open" and offer.answer:
        buttons.insert(0, answer_button(record, shown.number, n))
    if shown.stage == "open" and offer.take:
        buttons.append(button(ListPress("take", record.id), TAKE, f"Take {record.id}", n=n))
    return (*_laid_out(made, offer.link, state), Actions(tuple(buttons)))


def decision_row(made: QuestionRow, link: str | None = None) -> ListRow:
    """Returns the row of a question that was decided, in a search or on a Home tab. `link`: to its card."""
    return _laid_out(made, link, f"{made.stands(_LABEL)}, {inert.date(made.at)}")


def _laid_out(made: QuestionRow, link: str | None, state: str) -> ListRow:
    facts = (Words(linked(made.id, link), live=True), Words(made.agent), Words(state, live=True))
    return Section(Words(made.asked(_QUESTION))), Context(facts)


def search_modal(draft: Draft) -> View:
    """Returns a window with what a search found, or why there is nothing."""
    return View(draft.parts, SEARCH_CALLBACK, title="Decisions")


def unread(clarification_id: str, topic: str) -> ListRow:
    """Returns the row of a clarification that cannot be read now."""
    facts = plain_words(clarification_id, "cannot be read right now")
    return Section(Words(inert.quoted(topic, _QUESTION))), Context(facts)


def rollup(
    records: Sequence[Clarification],
    count: int,
    oldest: datetime | None,
    agent: str,
    reminded: datetime | None = None,
) -> Draft:
    """Returns one card for many questions.

    Args:
        records: the most urgent ones first; the first five get a row. Empty: nothing is open any more.
        count: how many are open in all.
        oldest: the earliest deadline, if there is one.
        agent: the agent, by its id.
        reminded: the time of the latest reminder, if there was one.
    """
    if not records:
        none = (Header(f"{name_of(agent)}: no open questions"), Context((Words("All closed"),)))
        return fixed("rollup", none)
    shown = [round_of(directed(record)) for record in records[:_ROLLUP_ROWS]]
    named = shown[0].agent
    heading = f"{named}: {count} open question{'s' if count > 1 else ''}"
    first = (until_words(oldest, "First deadline:"),) if oldest else ()
    how = Words("Answer them here or under Show all; they get no cards of their own for now")
    more = f"And {count - len(shown)} more" if count > len(shown) else ""
    show_all = Press("list", shown[0].record.id, shown[0].number, "1")
    parts: tuple[Part, ...] = (
        Header(inert.clip(heading, _HEADING)),
        Context((*first, *reminder_words(reminded), how)),
        *_answerable(shown),
        Context(plain_words(more)),
        Actions((button(show_all, SHOW_ALL, f"Show all of {named}"),)),
    )
    return fixed("rollup", parts)


def rollup_modal(page: ListPage[Clarification]) -> View:
    """Returns a page of the open questions of a roll-up card."""
    if not page.items:
        return View(sections("No open questions left here."), LIST_CALLBACK, title="Open questions")
    anchor, shown = page.items[0], [round_of(directed(record)) for record in page.items]
    return View(
        (
            *sections(f"{page.total} open questions · page {page.number} of {page.pages}"),
            *_answerable(shown),
            Actions(turning(page, lambda to: Press("page", anchor.id, anchor.round, str(to)))),
        ),
        LIST_CALLBACK,
        Press("list", anchor.id, anchor.round, str(page.number)).pack(),
        title="Open questions",
    )


def which_question(records: Sequence[Clarification], text_id: str) -> Draft:
    """Asks which of several open questions a reply belongs to; `text_id` names the waiting reply. A few questions get
    a button each, more get a menu of at most a hundred.
    """
    shown = [round_of(directed(record)) for record in records[:MENU_OPTIONS]]
    room = max(20, min(_LISTED, 3000 // max(1, len(shown)) - 30))
    lines = "\n".join(
        f"{n}. {inert.line(each.record.id)}: {row_of(each).asked(room)}" for n, each in enumerate(shown, 1)
    )
    choices = [
        (
            f"{n}. {inert.quoted(each.plain_question, _ROW)}",
            Press("which", each.record.id, each.number, text_id),
        )
        for n, each in enumerate(shown, 1)
    ]
    # These must not be decided by one click.
    grave = [
        wanted if (wanted := each.current.confirmation) and wanted.asks_twice else None for each in shown
    ]
    beside: Sequence[Part] = sections(lines)
    if len(shown) <= _WHICH_BUTTONS:
        controls = Actions(
            tuple(
                button(
                    press,
                    inert.clip(label, 30),
                    label,
                    n=n,
                    dialog=reply_dialog(wanted) if wanted else None,
                )
                for n, ((label, press), wanted) in enumerate(zip(choices, grave, strict=True))
            )
        )
    else:
        width = min(OPTION, 6000 // len(shown))
        options = tuple((inert.clip(label, width), press.pack()) for label, press in choices)
        menu = Select("Choose a question", WHICH_ACTION, options, _GRAVE if any(grave) else None)
        controls, beside = Actions((), (menu,)), [only_aloud(lines)]
    return fixed("which", (*sections(WHICH), *beside, controls))


def _listing(heading: str, parts: Iterable[Part]) -> Draft:
    header: ListRow = (Header(heading),) if heading else ()
    made = (*header, *parts)
    return fixed("listing", made)


def _turning(page: ListPage[Any], query: str) -> tuple[Button, ...]:
    return turning(page, lambda to: ListPress("page", query, to))


def _several(names: Sequence[str]) -> str:
    return several(list(map(_short, names)), _NAMED)


def _short(text: str) -> str:
    return inert.escape(inert.as_name(text, _SHORT) or inert.BLANK)


def _moments(shown: ShownRound) -> Iterable[str]:
    """Yields when an open question was asked, until when it can be answered, and who has it, as our own mrkdwn."""
    yield f"asked {inert.date(shown.record.asked_last)}"
    if shown.asked.expires_at is not None:
        yield f"until {inert.date(shown.asked.expires_at)}"
    if held := shown.holder:
        yield held


def _answerable(shown: Sequence[ShownRound]) -> Iterable[Section]:
    """Yields each question on one line, with its button."""
    for n, each in enumerate(shown):
        line = f"{inert.line(each.record.id, ID_LIMIT)}: {row_of(each).asked(_ROW)}"
        yield Section(Words(line), answer_button(each.record, each.number, n))


SECTIONS: tuple[HomeSection, ...] = get_args(HomeSection)
# A view has at most 100 blocks. A question takes three, a decision two, a line one, each section a heading and a row of buttons,
# and there may be two notes above.
PAGE_SIZES: Mapping[HomeSection, int] = {
    "inbox": 10,
    "taken": 5,
    "agents": 15,
    "ready": 10,
    "duty": 8,
    "answers": 8,
}
UNSURE = "Slack did not say which questions you may answer, so this list may be incomplete."
STRANGER = "You don't answer any agents here. Questions you are paged about appear in your inbox."
HEADINGS: Mapping[HomeSection, str] = {
    "inbox": "My inbox",
    "taken": "Claimed by me",
    "agents": "Agents",
    "ready": "Ready queue",
    "duty": "On call",
    "answers": "Recent decisions",
}
_NOTHING: Mapping[HomeSection, str] = {
    "inbox": "No questions are waiting for you.",
    "taken": "You haven't claimed any questions.",
    "agents": "None of the agents you answer is running.",
    "ready": "None of the sessions you answer is running.",
    "duty": "No on-call policy is configured.",
    "answers": "No decisions yet.",
}
_SEARCH = Input(
    "search",
    "Search decisions in your channels",
    "plain_text_input",
    action_id=SEARCH_ACTION,
    most=LONGEST_SEARCH,
    placeholder="rotate keys since 30d",
    multiline=False,
    sends=True,
)
_HOME_QUESTION, _SAID, _SESSION, _USERS, _NAMES = 300, 120, 14, 20, 5


@dataclass(frozen=True, slots=True)
class DutyLine:
    """Who is on call by one policy: `users` are Slack ids, `source` says why."""

    policy: str
    users: tuple[str, ...]
    source: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """What one person sees. People who are on call or were paged see all agents and sessions; others see those whose
    questions they may answer. `stranger`: the person may answer nothing, so the agents are omitted. `locale`: the person's.
    """

    user: str
    inbox: ListPage[Seen]
    taken: ListPage[Seen]
    agents: ListPage[AgentNode]
    ready: ListPage[ReadyItem]
    duty: ListPage[DutyLine]
    answers: ListPage[QuestionRow]
    unsure: bool = False
    stranger: bool = False
    locale: str = ""


def home(shown: Chosen) -> View:
    """Returns a person's Home tab."""
    several = Counter(each.name or each.agent for each in shown.ready.items)
    made: list[Part] = list(sections(UNSURE if shown.unsure else "", STRANGER if shown.stranger else ""))
    made += _part(shown, "inbox", _questions("inbox", shown.inbox, shown.user))
    made += _part(shown, "taken", _questions("taken", shown.taken, shown.user))
    if not shown.stranger:
        made += _part(shown, "agents", [Context(tuple(_agent(each))) for each in shown.agents.items])
        ready = [_ready(each, told_apart=several[each.name or each.agent] > 1) for each in shown.ready.items]
        made += _part(shown, "ready", [Context((Words(each),)) for each in ready])
    made += _part(shown, "duty", [Context(tuple(_duty(each))) for each in shown.duty.items])
    if not shown.stranger:
        rows = [part for each in shown.answers.items for part in decision_row(each)]
        made += _part(shown, "answers", rows)
        made.append(_SEARCH)
    return View(tuple(made), HOME_CALLBACK, HOME_PRESS, kind="home")


def _part(shown: Chosen, section: HomeSection, rows: Sequence[Part]) -> Iterator[Part]:
    page: ListPage[Any] = getattr(shown, section)
    heading = HEADINGS[section] + (f" ({page.total})" if page.total else "")
    if page.pages > 1:
        heading += f", page {page.number} of {page.pages}"
    turns = turning(
        page,
        lambda to: HomePress("page", section, to),
        f"page of {HEADINGS[section]}",
        2 * SECTIONS.index(section) + 1,
    )
    yield Header(in_words(heading, shown.locale))
    yield from rows or [Context((Words(_NOTHING[section]),))]
    yield Actions(turns)


def _questions(section: HomeSection, page: ListPage[Seen], user: str) -> list[Part]:
    first = 100 * SECTIONS.index(section)
    return [part for n, each in enumerate(page.items, first) for part in _question(each, n, user)]


def _question(question: Seen, n: int, user: str) -> tuple[Part, Part]:
    again = f", round {question.round}" if question.round > 1 else ""
    state, whole = _state(question, user), question if isinstance(question, Clarification) else None
    agent = (whole.asked.agent_name if whole else None) or audience_of(question).agent
    facts = (
        Words(f"{_id(question.id)} · {name_of(agent)}{again}"),
        # Everything beside a question is mrkdwn.
        Words(until_words(question.expires_at).text, live=True),
        *((Words(state, live=True),) if state else ()),
    )
    buttons = _press("answer", question, ANSWER, n), _press("view", question, VIEW_FULL, n)
    said = (whole and whole.question) or question.short_topic
    words = (
        listed_words(whole.current, said, _HOME_QUESTION)
        if whole
        else inert.quoted(plain(said), _HOME_QUESTION)
    )
    return Section(Words(words), fields=facts), Actions(buttons)


def _press(verb: HomeVerb, question: Seen, label: str, n: int) -> Button:
    press = HomePress(verb, question.id, question.round)
    return button(press, label, f"{label.rstrip('…')} {_id(question.id)}", n=n)


def _state(question: Seen, user: str) -> str:
    """Returns the holder, if there is one; in the bot's own words."""
    escalated = "Escalated" if question.status == "escalated" else ""
    holder = ""
    if question.claimed_by is not None:
        holder = (
            "Claimed by you" if question.claimed_by == user else f"Claimed by {_who(question.claimed_by)}"
        )
    elif question.offered_to is not None:
        holder = "Handed to you" if question.offered_to == user else f"Handed to {_who(question.offered_to)}"
    return " · ".join(filter(None, (escalated, holder)))


def _agent(line: AgentNode) -> Iterator[Words]:
    nested = _INDENT * min(line.depth, _DEEPEST) + ("└ " if line.depth else "")
    state = phrases.waiting(line.status, line.on, lambda names: several(list(map(name_of, names)), _NAMES))
    ids = line.blocked_by or line.asked
    about = f" ({several(list(map(_id, ids)), _NAMES)})" if ids else ""
    yield Words(f"{nested}{name_of(line.name or line.agent)}: {state}{about}")
    if line.since is not None:
        yield Words(f"since {inert.date(line.since)}", live=True)


def _ready(line: ReadyItem, *, told_apart: bool) -> str:
    """Names a session by its agent, and by its id if the agent has several: most ids are random."""
    session = inert.as_value(line.session_id or "", _SESSION) if told_apart else ""
    named = name_of(line.name or line.agent) + (f", session {session}" if session else "")
    if not line.blocked_by:
        return f"🟢 ready: {named}"
    return f"⛔ blocked: {named}; waiting for {several(list(map(_id, line.blocked_by)), _NAMES)}"


def _duty(line: DutyLine) -> Iterator[Words]:
    users = [inert.mention(user) for user in line.users if inert.is_user(user)]
    yield Words(f"{name_of(line.policy)}:")
    yield Words(several(users, _USERS) or "no one", live=True)
    yield from plain_words(inert.line(line.source, _SAID))
    if line.until is not None:
        yield Words(f"until {inert.date(line.until)}", live=True)


def _who(user: str) -> str:
    return inert.mention(user) if inert.is_user(user) else "someone else"


def _id(text: str) -> str:
    return inert.line(text, ID_LIMIT)
