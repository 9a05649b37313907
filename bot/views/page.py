"""A page to the people on call: what happened, what they need to decide, the controls; and the same as plain text for pagers outside
Slack. Also the direct messages about turns on call.

A page about one question is its card, with the page's heading and controls; a page about several lists them. The text for pagers
outside stands alone. At a change of shift, who comes on call hears for how long, what is open and what the others noted; who
leaves hears who took over. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Literal

from bot.views import inert
from bot.views.arguments import main_argument
from bot.views.blockkit import (
    HAND,
    NOT_MINE,
    OPEN,
    SHORTENED,
    SNOOZE,
    TAKE,
    TAKE_ALL,
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
    fitted,
    link_button,
    live_words,
    plain_words,
    sections,
)
from bot.views.card import REST, Card, closed_card, open_card, pointer_of, view_full
from bot.views.codec import PagePress
from bot.views.lists import linked
from bot.views.locale import directed
from bot.views.markdown import Quote, fit
from bot.views.wording import (
    CONTEXT,
    ShownRound,
    action_of,
    capital,
    consequence_of,
    decided_words,
    round_of,
    stakes_words,
    words,
)
from core import answers
from core.clarification import Clarification
from core.transitions import amended

ItemState = Literal["live", "taken", "snoozed", "closed"]
OPEN_ONE = "Open"
WHY = "Why: "
OPEN_OTHER = "Go to the message"  # for a handoff or an error
LISTED = 20
_NOTES: dict[ItemState, str] = {
    "live": "",
    "taken": " · claimed",
    "snoozed": " · snoozed",
    "closed": " · closed",
}
_ROW, _LEAST_ROW, _FACT, _HEADING = 220, 40, 300, 150
_ARGUMENT = 500
_BARE = 2000
_WHY = 1200  # of why on-call is paged
_OUTSIDE = 3000
_POINTER = "This is only the beginning. The full text is in this thread."
_UNKNOWN = "An agent needs attention, but the bot cannot show why"
_IN_SLACK = "This is only the beginning. The full text is in Slack."
SHIFT_LISTED = 10  # open items in one message
_SHIFT_HEADING = "On call"
_POLICY, _NOTE = 60, 500
_MOST = 45  # parts


@dataclass(frozen=True, slots=True)
class PageItem:
    """One incident of a page; `kind` as in `bot.oncall.incidents`.

    `who`: the Slack user who took it, or to whom it was handed. `asleep_by` and `until`: a snooze. `record`: its
    question, if it has one that can be read. `since`: when on-call was first needed. `link`: a web address. `is_below_card`: the
    page is in the thread of its question's card.
    """

    incident: int
    kind: str
    title: str
    reason: str
    body: str = ""
    state: ItemState = "live"
    who: str | None = None
    handed: bool = False
    asleep_by: str | None = None
    until: datetime | None = None
    since: datetime | None = None
    expires_at: datetime | None = None
    clarification: str | None = None
    record: Clarification | None = None
    link: str | None = None
    is_below_card: bool = False

    @property
    def name(self) -> str:
        """What people call it: the clarification's id, or its title."""
        return inert.line(self.clarification or self.title, _HEADING) or "Something"

    @property
    def shown(self) -> ShownRound | None:
        """The question's current state."""
        return round_of(self.record) if self.record is not None else None

    def with_question(self, record: Clarification | None, link: str | None) -> PageItem:
        # The page shows its own holder; the ledger may still name one whose time ran out. It is not changed any more
        # once it is closed, so it leaves out what becomes of the reply.
        if record is not None and record.rounds:
            record = amended(record, taken_by=None, handed_to=None, reply=None)
        return replace(self, record=record and directed(record), link=link)

    def bare(self) -> PageItem:
        """Returns the id and the beginning of the question as plain text, which can always be shown."""
        record = self.record
        asked = f"{record.question[:_BARE]}\n{answers.hint(record.asked)}" if record is not None else ""
        title = f"{self.clarification} is escalated" if self.clarification else _UNKNOWN
        return replace(
            self, title=title, reason="The bot's log has the reason", body=asked, record=None, link=None
        )


@dataclass(frozen=True, slots=True)
class PageContent:
    """The content of a page. `items`: the first ones, open ones first; `count`: all of them; `left`: those not
    closed; `is_awaited`: whether some of these are unclaimed. `covered`: a newer page to the same place covers it.
    `note`: why other people are paged than those on call.
    """

    page: int
    sent_at: datetime
    items: tuple[PageItem, ...]
    count: int
    left: int
    covered: bool = False
    mentions: tuple[str, ...] = ()
    is_awaited: bool = True
    note: str = ""

    @property
    def only(self) -> PageItem | None:
        """The only incident of the page, if there is just one."""
        return self.items[0] if self.count == 1 and self.items else None

    @property
    def is_closed(self) -> bool:
        return self.left == 0

    @property
    def all_claimed(self) -> bool:
        """Whether it is about several incidents, of which each is claimed."""
        return 1 < self.count == len(self.items) and all(each.state == "taken" for each in self.items)

    @property
    def waiting(self) -> ShownRound | None:
        """The question that can be answered on the page."""
        shown = self.only.shown if self.only is not None and self.only.state != "closed" else None
        return shown if shown is not None and shown.record.is_open and not self.covered else None

    @property
    def closed(self) -> ShownRound | None:
        """The question of the page, if it takes no answer any more."""
        shown = self.only.shown if self.only is not None else None
        return shown if shown is not None and shown.stage != "open" else None

    def bare(self) -> PageContent:
        """Returns the content for a page that cannot be laid out."""
        return replace(self, items=tuple(each.bare() for each in self.items))


def page_card(content: PageContent) -> Draft:
    """Returns the message; its whole text follows in the thread if it is cut (`subject`)."""
    item, shown = content.only, content.waiting or content.closed
    if item is None:
        return fitted(f"page.{content.page}", partial(_list_parts, content))
    pointer = _POINTER if shown is None else SHORTENED if content.closed else pointer_of(shown, _POINTER)
    asked = item.record.asked if item.record is not None else None
    return drafted(
        f"page.{content.page}",
        partial(_built, content, item),
        pointer=pointer,
        rest=REST if shown is not None else "",
        asked=asked,
    )


def _built(content: PageContent, item: PageItem, budget: Budget) -> tuple[Part, ...]:
    """Returns the parts that fit: of a question, its card with the page's heading and controls."""
    if (shown := content.waiting) is not None:
        card = _question_card(content, item, shown, budget)
    elif (shown := content.closed) is not None:
        card = _closed_card(content, item, shown, budget)
    else:
        card = _item_card(content, item, budget)
    link = link_button(OPEN if item.record else OPEN_OTHER, item.link)
    is_quiet = item.is_below_card and content.is_closed
    head = Context((Words(heading(content)),)) if is_quiet else Header(heading(content))
    return replace(card, heading=head, buttons=(*card.buttons, *link), controls=_controls(content)).parts


def subject(content: PageContent) -> str | None:
    """Returns the name of the page's `more`: for an open question the card's key, since both are the same; otherwise
    the incident's. None: a list of several, which belongs to this page only.
    """
    item, shown = content.only, content.waiting
    if item is None:
        return None
    return f"card:{shown.record.id}:{shown.number}" if shown is not None else f"incident:{item.incident}"


def outside_words(content: PageContent) -> tuple[str, str]:
    """Returns a title of one line and a text, both plain, for pagers, e-mail and the like."""
    item = content.only
    if item is None:
        lines = [_outside_line(each, content.sent_at) for each in content.items]
        lines += filter(None, [more_words(content.count - len(lines))])
        body = inert.clip("\n".join(lines), _OUTSIDE)
    else:
        body = _item_outside(content, item)
    links = [each.link for each in content.items if each.link][:1]
    note = [inert.line(content.note, _FACT)] if content.note else []
    return inert.clip(heading(content), 120), "\n".join([body or heading(content), *note, *links])


def heading(content: PageContent) -> str:
    """Returns what it is and how it stands, in one line."""
    item = content.only
    if item is None:
        many = f"{content.left} of {content.count}" if content.left < content.count else str(content.count)
        note = _NOTES["taken"] if content.all_claimed else ""
        return f"Escalated: {many} waiting{note}" if content.left else f"Escalated: {content.count} · closed"
    note = _note(item)
    title = inert.line(item.title) or _UNKNOWN
    if item.kind == "escalated" and (shown := item.shown) is not None:
        title = f"Escalated: {shown.agent} {'was' if item.state == 'closed' else 'is'} waiting · {item.name}"
    elif item.clarification and item.clarification not in title:
        title = f"{item.clarification}: {title}"
    return inert.clip(title, _HEADING - 12) + note


def state_words(content: PageContent) -> list[Words]:
    """Returns the holder, the snooze, the outcome, where it continues, and why other people are paged."""
    item = content.only
    # Its card says how a question ended.
    is_said = content.closed is not None and item is not None and item.state == "closed"
    found = standing_words(item) if item is not None and not is_said else []
    if content.note and not content.is_closed:
        found.append(Words(inert.line(content.note, _FACT)))
    if content.covered and not content.is_closed:
        found.append(Words("Paged again below."))
    return found


def why_words(item: PageItem) -> str:
    """Returns why on-call is paged: for a question, its escalation with both sides' positions."""
    reason = item.reason
    if item.kind == "escalated" and (shown := item.shown) is not None:
        said = shown.escalation
        reason = (said.partition("\n")[0] if shown.has_one_side else said) or reason
    reason, _, sides = inert.plain(reason).strip().partition("\n")
    return "\n".join(
        filter(None, (f"{WHY}{reason}" if reason else "", inert.with_bar(sides) if sides else ""))
    )


def _why_parts(why: str) -> tuple[Part, ...]:
    """Returns `why_words`, or the beginning of it, as formatted."""
    reason, _, sides = why.partition("\n")
    lines = (each.removeprefix(inert.BAR) for each in sides.split("\n"))
    return (*sections(reason), *Quote("\n".join(lines), is_data=True).parts)


def left_words(ends: datetime | None, sent_at: datetime) -> str:
    """Returns how much time was left when the page was sent; empty without a limit."""
    if ends is None:
        return ""
    minutes = int((ends - sent_at).total_seconds() // 60)
    if minutes < 1:
        return "Less than a minute was left when this was sent"
    hours = minutes // 60
    left = f"{minutes} min" if minutes < 120 else f"{hours} h" if hours < 48 else f"{hours // 24} days"
    return f"{left} left when this was sent"


def more_words(more: int) -> str:
    """Returns that there are more, and where; empty if all are listed."""
    return f"And {more} more. “/clarify” and the Home tab list all open questions." if more > 0 else ""


def item_words(item: PageItem, sent_at: datetime) -> Words:
    """Returns an item of a list: who asks what, then since when, how much time is left, and who has it."""
    since = f"Since {inert.date(item.since)}" if item.since is not None else ""
    facts = filter(None, (since, _left(item, sent_at), *(each.mrkdwn for each in standing_words(item))))
    return Words(
        "\n".join(filter(None, (inert.clip_escaped(inert.escape(_asked(item)), _ROW), " · ".join(facts)))),
        live=True,
    )


def _outside_line(item: PageItem, sent_at: datetime) -> str:
    """Returns the same for pagers outside Slack: plain text, without names of people, its time in UTC."""
    since = f"since {inert.utc(item.since)}" if item.since is not None else ""
    facts = ", ".join(filter(None, (since, _left(item, sent_at))))
    return f"{_asked(item)}{_note(item)}{f' ({facts})' if facts else ''}"


def _asked(item: PageItem) -> str:
    shown = item.shown
    known = item.name if shown is None else f"{item.name} · {shown.agent}"
    room = max(_LEAST_ROW, _ROW - inert.size(known) - 10)  # for what stands around it
    if shown is not None:
        return f"{known}: {shown.brief_line(room)}"
    said = inert.quoted(item.body, room) if item.body.strip() else inert.line(item.reason, room)
    return f"{known}: {said}" if said else known


def _left(item: PageItem, sent_at: datetime) -> str:
    return left_words(item.expires_at, sent_at) if item.state != "closed" else ""


def _note(item: PageItem) -> str:
    """Returns how it stands, for its heading or its line."""
    shown = item.shown
    if item.state == "closed" and shown is not None and shown.decided is not None:
        return f" · {shown.decided.outcome}"
    return _NOTES[item.state]


def standing_words(item: PageItem) -> list[Words]:
    """Returns the holder, the snooze or the outcome; nothing while it is unclaimed."""
    who = inert.mention(item.who) if inert.is_user(item.who) else None
    if item.state == "closed":
        return _ending(item, who)
    if item.state == "snoozed" and item.until is not None:
        by = f" by {inert.mention(item.asleep_by)}" if inert.is_user(item.asleep_by) else ""
        return [Words(f"Snoozed until {inert.date(item.until)}{by}", live=True)]
    if item.state == "taken":
        return [Words(f"Claimed by {who}", live=True) if who else Words("Claimed")]
    return [Words(f"Handed to {who}", live=True)] if who and item.handed else []


def _ending(item: PageItem, who: str | None) -> list[Words]:
    shown = item.shown
    if shown is None and who:
        return [*live_words(f"{'Claimed' if item.kind == 'handoff' else 'Seen'} by {who}")]
    if shown is None or shown.decided is None:
        return [Words(shown.why_closed(_FACT) if shown is not None and shown.stage == "closed" else "Closed")]
    when = inert.date(shown.answered_at) if shown.answered_at else ""
    return [*live_words(capital(decided_words(shown.decided)), when)]


def _question_card(content: PageContent, item: PageItem, shown: ShownRound, budget: Budget) -> Card:
    """Returns the question's own card, with the reason for the page and the page's controls."""
    whole, alert = why_words(item), (*_alert(content), *plain_words(shown.too_few_words))
    why, left = inert.clip(whole, budget.most(_WHY)), left_words(shown.asked.expires_at, content.sent_at)
    budget.cut |= why != whole
    budget.spend(why, left, *(each.text for each in alert))
    card = open_card(shown, "normal", budget)
    return replace(card, alert=alert, below=_why_parts(why), facts=(*card.facts, *plain_words(left)))


def _closed_card(content: PageContent, item: PageItem, shown: ShownRound, budget: Budget) -> Card:
    """Returns the closed question's own card, and why on-call is paged about it until that is over, or paged elsewhere. In the
    thread of that card it does not say again what that says.
    """
    is_over = item.state == "closed" or content.covered
    why, alert = "" if is_over else inert.clip(why_words(item), _WHY), _alert(content)
    budget.spend(why, *(each.text for each in alert))
    card = Card(Header("")) if item.is_below_card else closed_card(shown, budget)
    return replace(card, alert=alert, below=(*card.below, *_why_parts(why)))


def _item_card(content: PageContent, item: PageItem, budget: Budget) -> Card:
    """Returns a page without a question, or that a newer one covers."""
    record, over = item.record, item.state == "closed" or content.covered
    alert, why = _alert(content), "" if over and record is not None else why_words(item)
    budget.spend(heading(content), *(each.text for each in alert))
    subject, reason = fit(budget, [_subject(item), Quote(why)], at_length=range(2))
    return Card(
        Header(heading(content)),
        alert=alert,
        question=subject.parts,
        below=_why_parts(reason.text),
        buttons=(view_full(record, record.round),) if budget.cut and record is not None else (),
    )


def _list_parts(content: PageContent, budget: Budget) -> tuple[Part, ...]:
    """Returns as many of the incidents as fit."""
    items: list[Section] = []
    for number, each in enumerate(content.items):
        words = item_words(each, content.sent_at)
        budget.spend(words.text)
        if budget.left < 0:
            break
        show = PagePress("show", content.page, each.incident)
        opens = button(show, OPEN_ONE, f"{OPEN_ONE} {each.name}", n=number)
        items.append(Section(words, None if content.covered else opens))
    return (
        Header(heading(content)),
        Context(_alert(content)),
        *items,
        Context(plain_words(more_words(content.count - len(items)))),
        Actions(_controls(content)),
    )


def _called(content: PageContent) -> str:
    """Returns the mentions; none once everything is closed."""
    return "" if content.is_closed else called_words(content.mentions)


def called_words(mentions: Iterable[str]) -> str:
    """Returns the mentions of users; empty without any."""
    called = inert.mentions(list(filter(inert.is_user, mentions)))
    return f"For {', '.join(called)}" if called else ""


def _alert(content: PageContent) -> tuple[Words, ...]:
    return (*live_words(_called(content)), *state_words(content))


def _controls(content: PageContent) -> tuple[Button, ...]:
    """Returns the controls. A claimed incident can only be handed on, not taken or snoozed."""
    if content.covered or content.is_closed:
        return ()
    take = button(PagePress("take", content.page), TAKE if content.only is not None else TAKE_ALL)
    hand = button(PagePress("hand", content.page), HAND)
    state = content.only.state if content.only is not None else "taken" if content.all_claimed else "live"
    if state in ("taken", "snoozed"):
        return (hand,) if state == "taken" else (take, hand)
    snooze, not_mine = PagePress("snooze", content.page), PagePress("notmine", content.page)
    return take, hand, button(snooze, SNOOZE), button(not_mine, NOT_MINE)


def _item_outside(content: PageContent, item: PageItem) -> str:
    """Returns all that is needed to decide; long parts are cut so that none displaces another."""
    asked, ends = [Quote(_subject(item).text).aloud], ""
    if (shown := item.shown) is not None:
        record, wanted = shown.record, shown.wanted
        context = Quote(shown.context, CONTEXT).aloud
        with_what = main_argument(shown.current.arguments, _ARGUMENT) if wanted else ""
        quotes = (action_of(wanted), consequence_of(wanted)) if wanted else (Quote(words(shown.question)),)
        said = (*(each.aloud for each in quotes), with_what, shown.numbered)
        asked = ["\n".join(filter(None, said)), context]
        left = f" ({left_words(shown.asked.expires_at, content.sent_at)})"
        until = shown.until_aloud(300, left) if shown.asked.expires_at else ""
        people = (shown.too_few_words, shown.missing_words) if record.is_open else ()
        ends = "\n".join(filter(None, (stakes_words(wanted) if wanted else "", *people, until)))
    parts = [part for part in (*asked, why_words(item)) if part]
    budget = _OUTSIDE - inert.size(ends) - len(parts) - 1 - inert.size(_IN_SLACK)
    fitted = inert.shared(parts, budget)
    return "\n".join(filter(None, (*fitted, ends, _IN_SLACK if fitted != parts else "")))


def _subject(item: PageItem) -> Quote:
    """Returns its subject, in the words of others."""
    if (shown := item.shown) is not None:
        return shown.subject(inert.NO_LIMIT)
    return Quote(inert.plain(item.body) if item.body.strip() else "", is_data=True)


@dataclass(frozen=True, slots=True)
class Note:
    """A comment that someone left in the thread of an open question or handoff; `about`: what people call that."""

    user: str
    about: str
    text: str


@dataclass(frozen=True, slots=True)
class ShiftBegins:
    """Someone comes on call by a policy, until `until` if that is known. `after`: who leaves; `beside`: who else is on call;
    `by`: who arranged it, if another person did. `items`: the first open ones of `count`. `why`: why it is not who the
    calendar or PagerDuty names, in plain words.
    """

    policy: str
    until: datetime | None
    after: Sequence[str]
    beside: Sequence[str]
    by: str | None
    items: Sequence[PageItem]
    count: int
    notes: Sequence[Note]
    why: str = ""


@dataclass(frozen=True, slots=True)
class ShiftEnds:
    """Someone leaves a policy, and `by` are on call now. `held`: what they claimed and still hold, by name."""

    policy: str
    by: Sequence[str]
    held: Sequence[str]


def shift_card(begins: Sequence[ShiftBegins], ends: Sequence[ShiftEnds], now: datetime) -> Draft:
    """Returns the one message about all policies that change for a person. What does not fit is left out, which it says."""
    turns = [Section(Words(_end_words(end), live=True)) for end in ends]
    turns += [Section(Words(_begin_words(begin), live=True)) for begin in begins]
    entries = list(turns)
    for begin in begins:
        entries += [Section(_item_words(item, now)) for item in begin.items]
        entries += [Section(Words(_note_words(note), live=True)) for note in begin.notes]
    count = len(turns) + sum(begin.count + len(begin.notes) for begin in begins)

    def build(budget: Budget) -> tuple[Part, ...]:
        shown: list[Section] = []
        for each in entries[:_MOST]:
            budget.spend(each.words.text)
            if budget.left < 0:
                break
            shown.append(each)
        rest = "There is more. “/clarify oncall” and “/clarify stale” list it."
        return Header(_SHIFT_HEADING), *shown, Context(plain_words("" if len(shown) == count else rest))

    return fitted("shift", build)


def _item_words(item: PageItem, now: datetime) -> Words:
    """Returns an open item."""
    words = item_words(item, now).text + ("" if standing_words(item) else " · Unclaimed")
    if item.link:
        words += f" · {linked(OPEN if item.record is not None else OPEN_OTHER, item.link)}"
    return Words(words, live=True)


def _begin_words(begin: ShiftBegins) -> str:
    until = f" until {inert.date(begin.until)}" if begin.until is not None else ""
    after = f", after {_people(begin.after)}" if begin.after else ""
    words = [f"You are on call for {_policy(begin.policy)}{until}{after}."]
    if begin.by is not None:
        words.append(f"{inert.mention(begin.by)} handed it over.")
    if begin.why:
        words.append(f"{inert.escape(inert.line(capital(begin.why), _NOTE))}.")
    if begin.beside:
        words.append(f"On call with you: {_people(begin.beside)}.")
    words.append(f"Open now: {begin.count}." if begin.count else "Nothing is open.")
    return " ".join(words)


def _end_words(end: ShiftEnds) -> str:
    policy = _policy(end.policy)
    words = f"You are no longer on call for {policy}: {_people(end.by)} took over."
    if not end.by:
        words = f"Your shift for {policy} is over. No one is on call now; pages go to the fallback channel."
    if end.held:
        words += f" You still hold {inert.escape(', '.join(end.held))}."
    return words


def _note_words(note: Note) -> str:
    about, text = inert.escape(inert.line(note.about, _POLICY)), inert.escape(inert.clip(note.text, _NOTE))
    return f"Note by {inert.mention(note.user)} on {about}: {text}"


def _policy(name: str) -> str:
    return inert.escaped_line(name, _POLICY)


def _people(users: Iterable[str]) -> str:
    return ", ".join(map(inert.mention, users))
