"""The parts of messages, modals and Home tabs, in the order in which they are shown; and Slack's limits.

Views choose the words and how many of them fit; the templates turn the parts into Block Kit; `check_message` and
`check_view` are the last check before sending. Agents' text is plain text here; only `Words(…, live=True)` is mrkdwn,
always the bot's own. Source: docs.slack.dev, "Blocks", "Block elements", "Composition objects", "Views". Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar, Literal

from bot.errors import RenderError
from bot.views import inert
from bot.views.codec import LINK_ACTION, MORE_ACTION, AnyPress, Press, action_id
from bot.views.inert import TEXT_LIMIT, size
from core.clarification import Clarification, Question
from core.summary import ListPage

Block = dict[str, Any]
Style = Literal["", "primary", "danger"]
Level = Literal["error", "warning", "info", "success"]

YES, NO, ANSWER, TAKE, VIEW_FULL = "Yes", "No", "Answer…", "Take", "View full"
TAKE_OVER, RELEASE, VERIFY = "Take over", "Release", "Verify"
ACCEPT, REJECT = "Accept", "Reject"
HAND, SNOOZE, NOT_MINE, TAKE_ALL = "Hand to…", "Snooze", "Not mine", "Take all"
OPEN = "Go to the question"
# The buttons of cards and pages that are the bot's own: no label of an agent may look like one.
BUTTONS = frozenset(
    [
        ACCEPT,
        REJECT,
        ANSWER,
        VIEW_FULL,
        TAKE,
        TAKE_OVER,
        RELEASE,
        VERIFY,
        HAND,
        SNOOZE,
        NOT_MINE,
        TAKE_ALL,
        OPEN,
    ]
)
POINTER = "This is only the beginning. The full text is in the thread."
SHORTENED = "Some of this is left out. Click View full to see all of it."
NEXT, PREVIOUS, SHOW_ALL, LEARN_MORE = "Next", "Previous", "Show all", "Learn more"

MESSAGE_BLOCKS = 50
VIEW_BLOCKS = 100
MESSAGE_BUDGET = 10_000  # all text of a message; Slack refuses somewhere above 11 000
VIEW_BUDGET = 240_000  # one view as JSON; Slack takes 250 KB
SECTION = 3000
OPTION = 75
BUTTON = 75
TITLE = 24
CONFIRM_TEXT = 300
ALERT = 200
FOLD_BLOCKS = 10
_SELECT = {"placeholder": 150}
# Characters of texts and strings, by the kind of element.
_LIMITS: dict[str, dict[str, int]] = {
    "section": {"text": SECTION},
    "header": {"text": 150},
    "context": {"elements": 2000},
    "alert": {"text": ALERT},
    "container": {"title": 150},
    "button": {"text": BUTTON, "value": 2000, "url": 3000, "accessibility_label": 75},
    "option": {"text": OPTION, "value": 150},
    "input": {"label": 2000, "hint": 2000},
    "confirm": {"title": 100, "text": CONFIRM_TEXT, "confirm": 30, "deny": 30},
    "modal": {"title": TITLE, "submit": TITLE, "close": TITLE, "callback_id": 255, "private_metadata": 3000},
    "home": {"callback_id": 255, "private_metadata": 3000},
    **dict.fromkeys(("static_select", "multi_static_select", "number_input", "plain_text_input"), _SELECT),
}
_COUNTS = {
    "container": ("child_blocks", FOLD_BLOCKS),
    "context": ("elements", 10),
    "actions": ("elements", 25),
    "radio_buttons": ("options", 10),
    "checkboxes": ("options", 10),
    "overflow": ("options", 5),
    "static_select": ("options", 100),
    "multi_static_select": ("options", 100),
}
_ROWS = 10  # per text of an agent on a card
# Characters of a message's words in its blocks; its text says the same, within its own limit. The first that fits both is taken.
_ROOMS = (5600, 3400, 1700, 800)
_POINTER = 100  # of the text, for saying where the rest is
_PIECE = 3890  # of a message in a thread; and the bar of a line that goes on
_MOST_PIECES = 20


@dataclass(frozen=True, slots=True)
class Words:
    """A text element: plain text or, if `live`, the bot's own mrkdwn."""

    text: str
    live: bool = False

    @property
    def mrkdwn(self) -> str:
        """The text for use within mrkdwn."""
        return self.text if self.live else inert.escape(self.text)

    @property
    def escaped(self) -> str:
        """The text for a message's top-level text, where Slack formats nothing: dates are spelled out."""
        return inert.unformatted(self.text) if self.live else inert.fallback(self.text, inert.NO_LIMIT)


@dataclass(frozen=True, slots=True)
class Dialog:
    """Slack's confirmation dialog for a control: title (≤ 100), text (≤ 300), the labels of its two buttons (≤ 30)."""

    title: str
    text: str
    confirm: str
    deny: str


@dataclass(frozen=True, slots=True)
class Button:
    """A button. `spoken` is the accessibility label, if the label alone is not enough. `style` is a colour, which
    never carries a meaning alone.
    """

    kind: ClassVar = "button"
    label: str
    action_id: str
    value: str
    spoken: str = ""
    url: str = ""
    style: Style = ""
    dialog: Dialog | None = None


@dataclass(frozen=True, slots=True)
class Select:
    """A menu; `options` are (text, value). `dialog` appears for every choice."""

    placeholder: str
    action_id: str
    options: tuple[tuple[str, str], ...]
    dialog: Dialog | None = None


@dataclass(frozen=True, slots=True)
class Overflow:
    """A menu behind three dots, for what few people need; `options` are (text, value), at most five."""

    kind: ClassVar = "overflow"
    action_id: str
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Header:
    kind: ClassVar = "header"
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """A paragraph, with a control or facts beside it."""

    kind: ClassVar = "section"
    words: Words
    control: Button | Overflow | None = None
    fields: tuple[Words, ...] = ()


@dataclass(frozen=True, slots=True)
class Alert:
    """What to see before anything else: an icon and a colour by `level`, which never carries a meaning alone. At most 200
    characters. Messages have no such block: its classic form stands there.
    """

    kind: ClassVar = "alert"
    words: Words
    level: Level


@dataclass(frozen=True, slots=True)
class Run:
    """Text in one style: any of `bold`, `italic`, `strike`, `code`. `url`: a link, which is shown as its whole address.
    `moment`: what the text says, shown in the reader's time zone.
    """

    text: str
    styles: frozenset[str] = frozenset()
    url: str = ""
    moment: datetime | None = None

    @property
    def style(self) -> dict[str, bool]:
        """The styles in Slack's form."""
        return dict.fromkeys(sorted(self.styles), True)


Runs = tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Lines:
    """Paragraphs, a quote, or code. `is_apart`: a blank line was before it; `has_bar`: a line beside it, as quotes have."""

    runs: Runs
    kind: Literal["section", "quote", "preformatted"] = "section"
    is_apart: bool = False
    has_bar: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """Items of a list, `level` deep (from 0). Numbers begin after `offset`."""

    kind: ClassVar = "list"
    items: tuple[Runs, ...]
    ordered: bool = False
    offset: int = 0
    level: int = 0
    has_bar: bool = False

    @property
    def runs(self) -> Runs:
        """All of its text."""
        return tuple(run for item in self.items for run in item)


RichElement = Lines | Items


@dataclass(frozen=True, slots=True)
class Rich:
    """Text with styles, lists, quotes and code. Slack reads it literally: nothing in it is live but links."""

    kind: ClassVar = "rich"
    elements: tuple[RichElement, ...]
    aloud: str = ""  # all of it where only text fits; empty if the part before it says it

    def __bool__(self) -> bool:
        return bool(self.elements)

    @property
    def runs(self) -> Runs:
        """All of its text."""
        return tuple(run for each in self.elements for run in each.runs)


def with_moments(parts: Iterable[Rich], times: Sequence[tuple[str, datetime]]) -> tuple[Rich, ...]:
    """Returns the parts with these texts in quotes and paragraphs as moments."""

    def split(run: Run) -> Runs:
        for said, moment in times:
            before, found, after = (replace(run, text=text) for text in run.text.partition(said))
            if found.text:
                return *split(before), replace(found, moment=moment), *split(after)
        return (run,) if run.text else ()

    def dated(element: RichElement) -> RichElement:
        runs = tuple(new for run in element.runs for new in split(run))
        return replace(element, runs=runs) if isinstance(element, Lines) else element

    return tuple(replace(part, elements=tuple(map(dated, part.elements))) for part in parts)


def code(text: str, aloud: str = "") -> Rich:
    """Returns text as it stands, in a monospaced font: a command, a diff. `aloud`: other words for it where only text fits."""
    return Rich((Lines((Run(text),), "preformatted"),), aloud or inert.with_bar(text))


def only_aloud(text: str) -> Rich:
    """Returns what only the message's text says, as its controls show it: the choices of a menu."""
    return Rich((), text)


@dataclass(frozen=True, slots=True)
class Context:
    """Small print; omitted if empty."""

    kind: ClassVar = "context"
    words: tuple[Words, ...]

    def __bool__(self) -> bool:
        return bool(self.words)


@dataclass(frozen=True, slots=True)
class Fold:
    """What unfolds by a click, in a message: all of what the parts before it show the beginning of. It never counts as seen.
    Where Slack has no such block it is left out, so the message needs another way to see it whole. Slack takes no rich text in
    it.
    """

    kind: ClassVar = "fold"
    title: str
    parts: tuple[Section, ...]

    @property
    def size(self) -> int:
        """Its characters."""
        return size(self.title) + sum(size(part.words.text) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Actions:
    """A row of controls; omitted if empty."""

    kind: ClassVar = "actions"
    buttons: tuple[Button, ...]
    selects: tuple[Select, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.buttons or self.selects)


@dataclass(frozen=True, slots=True)
class Input:
    """A field of a form. `element` is the type of its Block Kit element, `options` are (text, value). `initial`: its
    first content, as a text, as values of options, or as a moment.

    For texts: `multiline`, `least` and `most` characters; for numbers: `whole`, and bounds as digits. `sends`: Enter sends it
    at once.
    """

    kind: ClassVar = "input"
    block_id: str
    label: str
    element: str
    optional: bool = False
    hint: str = ""
    options: tuple[tuple[str, str], ...] = ()
    action_id: str = "value"
    most: int = 3000  # characters of a text: plain_text_input takes no more
    placeholder: str = ""
    initial: str | int | tuple[str, ...] = ""
    multiline: bool = True
    least: int = 0
    whole: bool = False
    lowest: str = ""
    highest: str = ""
    chosen_most: int = 0  # options of a multi-select; 0: all
    sends: bool = False

    @property
    def chosen(self) -> tuple[tuple[str, str], ...]:
        """The initially chosen options."""
        held = self.initial if isinstance(self.initial, tuple) else (self.initial,)
        return tuple(each for each in self.options if each[1] in held)

    @property
    def cost(self) -> int:
        """The largest possible size as JSON, in bytes."""
        offered = sum(json_size(text) + 90 for text, _ in (*self.options, *self.chosen))
        return 500 + json_size((self.label, self.hint, self.initial, self.placeholder)) + offered


YES_VALUE, NO_VALUE = "yes", "no"
YES_OR_NO = (("Yes", YES_VALUE), ("No", NO_VALUE))
FILL_IN, TYPE_A_NUMBER = "Fill this in to answer.", "Type a number, like 1200 or 12.5."


def chosen(state: Mapping[str, Any]) -> list[str] | None:
    """Returns the values of the chosen options of a submitted input, or None if it has no options."""
    if "selected_options" not in state and "selected_option" not in state:
        return None
    picked = state.get("selected_options") or [state.get("selected_option")]
    return [option["value"] for option in picked if option]


Part = Header | Section | Alert | Rich | Context | Fold | Actions | Input


@dataclass(frozen=True, slots=True)
class Draft:
    """A message before layout. `text` is escaped. `more`: the whole in pieces, if `text` is only the beginning.
    `stem`: the prefix of its block ids. `asked`: the question whose text it shows, which says what is clickable.
    `is_whole`: the parts and the text both leave nothing out.
    """

    stem: str
    text: str
    parts: tuple[Part, ...]
    more: tuple[str, ...] = ()
    asked: Question | None = None
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class View:
    """A modal or the Home tab before layout. `press` is packed. Without `submit`, nothing can be submitted. `asked`: see
    `Draft`.
    """

    parts: tuple[Part, ...]
    callback: str = ""
    press: str = ""
    title: str = ""
    submit: str = ""
    close: str = "Close"
    kind: Literal["modal", "home"] = "modal"
    asked: Question | None = None


@dataclass(slots=True)
class Budget:
    """The room left in a message for texts that may be cut; `cut` tells whether any were. `rows`: of a text on a screen, so that
    the buttons stay in sight.
    """

    left: int
    cut: bool = field(default=False)
    rows: int = _ROWS

    @property
    def is_endless(self) -> bool:
        """Whether nothing is cut: for the text beside parts that are."""
        return self.rows == inert.NO_LIMIT

    def most(self, limit: int) -> int:
        """Returns the limit of a text that is cut whatever room there is."""
        return inert.NO_LIMIT if self.is_endless else limit

    def spend(self, *texts: str) -> None:
        self.left -= sum(map(size, texts))

    def fold(self, title: str, *texts: str) -> tuple[Fold, ...]:
        """Returns the texts to unfold, or none if they do not fit. A line that goes on in another section keeps its bar."""
        room = SECTION - len(inert.BAR)
        parts = (piece for text in texts for piece in inert.with_bars(inert.split(text, room)))
        made = Fold(title, sections(*parts))
        if not 0 < len(made.parts) <= FOLD_BLOCKS or made.size > self.left:
            return ()
        self.left -= made.size
        return (made,)


def fixed(stem: str, parts: tuple[Part, ...]) -> Draft:
    """Returns a message of these parts, which fit; its text says what they do, as far as it fits."""
    return Draft(stem, inert.clip_escaped(aloud(parts), TEXT_LIMIT), parts)


def fitted(stem: str, build: Callable[[Budget], tuple[Part, ...]]) -> Draft:
    """Returns a message with as many of its parts as fit; `build` says in it if there are more."""
    for room in _ROOMS:
        parts = build(Budget(room))
        if size(aloud(parts)) <= TEXT_LIMIT:
            break
    return fixed(stem, parts)


def drafted(
    stem: str,
    build: Callable[[Budget], tuple[Part, ...]],
    *,
    pointer: str = POINTER,
    rest: str = "",
    asked: Question | None = None,
    beside: int = 0,
) -> Draft:
    """Returns a message whose text says what its parts do. If the parts are cut, the text has all of it or, where that does not
    fit either, as much as they do, and the whole follows in the thread.

    Args:
        stem: the prefix of its block ids.
        build: returns the parts that fit, in the order in which they are shown and read.
        pointer: says where the whole is. `SHORTENED`: it does not follow.
        rest: says where to read on after the first twenty messages of the whole; empty: all of them follow.
        asked: see `Draft`.
        beside: characters that something else needs.
    """
    most = TEXT_LIMIT - beside
    for room in _ROOMS:
        budget = Budget(room - beside, cut=room < _ROOMS[0])
        parts = build(budget)
        if size(text := aloud(parts)) <= most - budget.cut * _POINTER:
            break
    if not budget.cut:
        return Draft(stem, text, parts, asked=asked)
    whole = build(Budget(inert.NO_LIMIT, cut=True, rows=inert.NO_LIMIT))
    if size(said := aloud(whole)) <= most:
        return Draft(stem, said, parts, asked=asked, is_whole=False)
    more = _in_pieces(aloud(whole, is_sent=False), rest) if pointer != SHORTENED else ()
    text = f"{inert.clip_escaped(text, most - _POINTER)}\n{pointer}"
    return Draft(stem, text, parts, more, asked, is_whole=False)


def _in_pieces(text: str, rest: str) -> tuple[str, ...]:
    """Returns plain text as messages for a thread, each at most 3900 when sent. A line that goes on keeps its bar."""
    found = inert.with_bars(inert.split_unescaped(text, _PIECE))
    kept = [piece for piece in found if piece.strip(f"{inert.BAR}\n")]
    return (*kept[: _MOST_PIECES - 1], rest) if rest and len(kept) > _MOST_PIECES else tuple(kept)


def aloud(parts: Iterable[Part], *, is_sent: bool = True) -> str:
    """Returns what parts say as a message's text, which screen readers read: escaped, dates spelled out; controls read
    themselves. Not `is_sent`: unescaped, and without the bot's own mentions and dates.
    """

    def said(words: Words) -> str:
        return words.escaped if is_sent else "" if words.live else words.text

    found: list[str] = []
    for part in parts:
        match part:
            case Header():
                found.append(inert.sentence(said(Words(part.text))))
            case Section() | Alert():
                found.append(said(part.words))
            case Context():
                found.append(" ".join(filter(None, (inert.sentence(said(each)) for each in part.words))))
            case Rich():
                found.append(said(Words(part.aloud)))
    return "\n".join(filter(None, found))


def pieces(text: str, limit: int = SECTION) -> tuple[str, ...]:
    """Splits `text` into text objects of at most `limit`, without blank ones."""
    return tuple(piece.strip("\n") for piece in inert.split(text, limit) if piece.strip())


def sections(*texts: str) -> tuple[Section, ...]:
    """Returns plain text in as many sections as it needs."""
    return tuple(Section(Words(piece)) for text in texts for piece in pieces(text))


def alerts(level: Level, *texts: str) -> tuple[Alert, ...]:
    """Returns plain text in as many alerts as it needs."""
    return tuple(Alert(Words(piece), level) for text in texts for piece in pieces(text, ALERT))


def plain_words(*texts: str) -> tuple[Words, ...]:
    """Returns the non-empty texts as plain text."""
    return tuple(Words(text) for text in texts if text)


def live_words(*texts: str) -> tuple[Words, ...]:
    """Returns the non-empty texts as the bot's own mrkdwn."""
    return tuple(Words(text, live=True) for text in texts if text)


def button(
    press: AnyPress,
    label: str,
    spoken: str = "",
    *,
    n: int | None = None,
    style: Style = "",
    dialog: Dialog | None = None,
) -> Button:
    """Returns a button that carries `press`; `n` distinguishes buttons with the same verb in a message."""
    return Button(
        inert.clip(label, BUTTON),
        action_id(press, n),
        press.pack(),
        inert.clip(spoken, BUTTON),
        style=style,
        dialog=dialog,
    )


def answer_button(record: Clarification, number: int, n: int | None = None) -> Button:
    return button(Press("answer", record.id, number), ANSWER, f"Answer {record.id}", n=n)


def more_menu(*options: tuple[str, Press]) -> Overflow | None:
    """Returns the menu of a closed card; None without options."""
    packed = tuple((label, press.pack()) for label, press in options)
    return Overflow(MORE_ACTION, packed) if packed else None


def link_button(label: str, url: str | None) -> tuple[Button, ...]:
    """Returns a button that opens `url`, if it is a plain web address."""
    return (Button(label, LINK_ACTION, "", url=url),) if (url := inert.web_address(url)) else ()


def turning(
    page: ListPage[Any], press: Callable[[int], AnyPress], spoken: str = "", first: int = 1
) -> tuple[Button, ...]:
    """Returns the buttons to the previous and the next page. `press` makes the press for a page; `first` numbers the
    buttons.
    """
    found = [(PREVIOUS, page.number - 1, first)] if page.number > 1 else []
    found += [(NEXT, page.number + 1, first + 1)] if page.number < page.pages else []
    return tuple(
        button(press(to), label, f"{label} {spoken}" if spoken else "", n=n) for label, to, n in found
    )


# Slack rolls its newer blocks out in phases: a workspace that does not have one yet refuses the whole message, which
# `bot.slackapi.Gateway` then sends in the classic blocks that say the same.


def _classic_section(text: Block) -> Block:
    return {"type": "section", "text": text, "expand": True}


def _classic_alert(block: Block) -> list[Block]:
    """Returns an alert's text: a grave one in bold after a sign that screen readers name, a warning in bold."""
    text, level = block["text"], block["level"]
    if text["type"] == "mrkdwn" or level not in _BOLD:
        return [_classic_section(text)]
    said = f"{SIGN if level == 'error' else ''}{text['text']}"
    words = {"type": "text", "text": said, "style": {"bold": True}}
    return [{"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [words]}]}]


SIGN = "⚠ "  # before what is grave; screen readers name it
_BOLD = frozenset({"error", "warning"})
_CLASSIC: dict[str, Callable[[Block], list[Block]]] = {
    "alert": _classic_alert,
    "container": lambda _: [],  # what it unfolds is behind View full, too
}
NOT_IN_MESSAGES = frozenset({"alert"})


def newer(blocks: Iterable[Block]) -> frozenset[str]:
    """Returns the types of the newer blocks among `blocks`."""
    return frozenset(block["type"] for block in blocks) & _CLASSIC.keys()


def classic(blocks: Iterable[Block], refused: Collection[str] = _CLASSIC.keys()) -> list[Block]:
    """Returns the blocks, with classic ones in place of those of `refused` types (default: of all newer ones). The first
    takes over the block_id.
    """
    made: list[Block] = []
    for block in blocks:
        if block["type"] not in refused:
            made.append(block)
            continue
        own = {"block_id": block["block_id"]} if "block_id" in block else {}
        for stand_in in _CLASSIC[block["type"]](block):
            made.append({**stand_in, **own})
            own = {}
    return made


def check_message(text: str, blocks: Sequence[Block]) -> None:
    """Checks that Slack would accept a message, also as an update.

    Raises:
        RenderError: names the first problem and its place, never the content.
    """
    check = _LimitCheck(blocks, MESSAGE_BLOCKS)
    if not 0 < size(text) <= TEXT_LIMIT:
        check.problems.append(f"text has {size(text)} characters; expected 1 to {TEXT_LIMIT}")
    total = check.text_size + size(text)
    if total > MESSAGE_BUDGET:
        check.problems.append(f"the message has {total} characters in all; expected at most {MESSAGE_BUDGET}")
    check.done()


def check_view(view: Block) -> None:
    """Checks that Slack would accept a modal.

    Raises:
        RenderError: names the first problem and its place, never the content.
    """
    check = _LimitCheck(view.get("blocks", []), VIEW_BLOCKS)
    check.item("view", view)
    if json_size(view) > VIEW_BUDGET:
        check.problems.append(f"the view has more than {VIEW_BUDGET} bytes as JSON")
    check.done()


class _LimitCheck:
    """Walks over blocks; collects the problems and the size of all text."""

    def __init__(self, blocks: Sequence[Block], most: int) -> None:
        self.problems: list[str] = []
        self.text_size = 0
        self._actions: list[str] = []
        if not 0 < len(blocks) <= most:
            self.problems.append(f"{len(blocks)} blocks; expected 1 to {most}")
        for index, block in enumerate(blocks):
            self._walk(f"blocks[{index}]", block)
        # Fields of a form are identified by their blocks.
        actions = [] if any(block.get("type") == "input" for block in blocks) else self._actions
        for name, names in (
            ("block_id", [each["block_id"] for each in blocks if "block_id" in each]),
            ("action_id", actions),
        ):
            if len(set(names)) < len(names) or any(size(each) > 255 for each in names):
                self.problems.append(f"{name}s are not unique, or longer than 255")

    def done(self) -> None:
        if self.problems:
            raise RenderError(
                f"Slack would refuse this: {self.problems[0]} (of {len(self.problems)} problems)."
            )

    def _walk(self, where: str, item: Block) -> None:
        self.item(where, item)
        shown = ("text", "url") if item.get("type") == "link" else ("text",)
        self.text_size += sum(size(item[key]) for key in shown if isinstance(item.get(key), str))
        if isinstance(name := item.get("action_id"), str):
            self._actions.append(name)
        for value in item.values():
            for child in _children(value):
                self._walk(where, child)

    def item(self, where: str, item: Block) -> None:
        """Checks one block, element or object, without its children."""
        kind = item.get("type") or ("option" if "value" in item else "confirm" if "deny" in item else "")
        for key, most in _LIMITS.get(kind, {}).items():
            if key not in item:
                continue
            for found in item[key] if isinstance(item[key], list) else (item[key],):
                text = found if isinstance(found, str) else found["text"]
                if not text.strip() or size(text) > most:
                    self.problems.append(
                        f"{where}: {key} of {kind} has {size(text)} characters; expected 1 to {most}"
                    )
        if kind in _COUNTS:
            key, most = _COUNTS[kind]
            count = len(item.get(key, ()))
            if not 0 < count <= most:
                self.problems.append(f"{where} has {count} {key} in {kind}; expected 1 to {most}")


def _children(value: object) -> Iterator[Block]:
    """Yields the objects in a value, also in the rows of a table."""
    if isinstance(value, dict):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _children(each)


def json_size(value: Any) -> int:
    """Returns the size as JSON in pure ASCII, the longest form that a client may send."""
    return len(json.dumps(value, separators=(",", ":")))
