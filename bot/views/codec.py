"""The payloads of our controls: typed, versioned, size-checked, and sealed.

| press | packed | its controls | action_ids |
| --- | --- | --- | --- |
| `Press` | `1|verb|CLR-42-001|round|arg` | of questions | `clarify.<verb>` |
| `PagePress` | `1|verb|page|incident` | of pages to on-call | `oncall.<verb>` |
| `ListPress` | `1|verb|number|arg` | of the lists that commands answer with | `list.<verb>` |
| `HomePress` | `1|verb|subject|number` | of the Home tab | `home.<verb>` |

Each fits an option's value, Slack's smallest field. It names the question, never the answer's words: those are looked
up in the record. An action_id ends in `.<n>` if a message has several with the same verb. Modals carry the packed
press in `private_metadata`.

The seal, `2|installation|packed`, names the installation that posted a control. All installations number
clarifications, pages and rounds from 1, and Slack may hand a click to any bot on the app: without a seal, a click on
another bot's card would decide one of our questions. A control without a seal is not ours. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast, get_args

from bot.errors import BadPress
from core.clarification import ID

Verb = Literal[
    "yes",
    "no",
    "choice",
    "select",
    "answer",
    "view",
    "verify",
    "which",
    "list",
    "page",
    "accept",
    "review",
    "reject",
    "take",
    "letgo",
]
PageVerb = Literal["take", "hand", "snooze", "notmine", "show"]
ListVerb = Literal["page", "take"]
HomeVerb = Literal["answer", "view", "page"]
HomeSection = Literal["inbox", "taken", "agents", "ready", "duty", "answers"]

VERSION = "1"
LIMIT = 150
LINK_ACTION = "clarify.link"  # a button that opens a web page: Slack reports clicks on it, too
SELECT_ACTION = "clarify.select"
MORE_ACTION = "clarify.more"  # the menu of a closed card
WHICH_ACTION = "clarify.which"
ANSWER_CALLBACK = "clarify.answer"
ACCEPT_CALLBACK = "clarify.accept"
VIEW_CALLBACK = "clarify.view"
VERIFY_CALLBACK = "clarify.verify"
LIST_CALLBACK = "clarify.list"
HAND_CALLBACK = "oncall.hand"
HAND_BLOCK = "hand"
HAND_ACTION = "oncall.user"
HOME_CALLBACK = "home"
SEARCH_ACTION = "search.decisions"  # the box on the Home tab: its value is what a person typed
LONGEST_SEARCH = 130  # characters of what is searched: the buttons that turn its pages carry it
HOME_PRESS = "1|home"  # sealed, it says whose Home tab it is
SEARCH_CALLBACK = "search.decisions"
_NUMBER = re.compile(r"[0-9]{1,15}")
_ROUND = re.compile(r"[0-9]{1,9}")
_SEALED = re.compile(r"2\|([0-9a-f]{16})\|(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Press:
    """One press of a control about a question.

    `arg` by verb: choice: the choice's index from 0; view, list, page: the page from 1; which: the id of the reply
    that waits for its question; accept, and the modals of answer and accept: the version of the arguments shown
    (`core.approvals`), if the agent asked directly; review: the page from 1, a point, and that version; take: `over`
    if the card names a holder; otherwise empty. `list` and `page` name one clarification of the agent whose questions
    are listed.
    """

    PREFIX: ClassVar = "clarify"
    verb: Verb
    clarification: str
    round: int
    arg: str = ""

    def pack(self) -> str:
        """Returns the press as text of at most 150 characters. Raises `BadPress` if it could not be read back."""
        text = "|".join((VERSION, self.verb, self.clarification, str(self.round), self.arg))
        if len(text) > LIMIT or not text.isascii():
            raise BadPress(
                f"A press of “{self.verb}” does not fit: expected at most {LIMIT} ASCII characters."
            )
        Press.unpack(text)
        return text

    @classmethod
    def unpack(cls, text: str) -> Press:
        """Reads what `pack` wrote. Raises `BadPress`, which never repeats the content, for anything else."""
        verb, clarification, number, arg = _fields(text, 5, get_args(Verb))
        if not ID.fullmatch(clarification) or not _ROUND.fullmatch(number):
            raise BadPress(
                "A control's payload names no clarification and round; expected the form CLR-42-001|1."
            )
        return cls(cast("Verb", verb), clarification, int(number), arg)

    def number(self) -> int:
        """Returns `arg` as a whole number; for review, its page. Raises `BadPress` if it is not a number."""
        number = self.arg.partition(".")[0] if self.verb == "review" else self.arg
        if not _ROUND.fullmatch(number):
            raise BadPress(f"A control's payload for “{self.verb}” has no number; expected one.")
        return int(number)

    @property
    def version(self) -> str:
        """The version of the arguments that were shown; empty if there are none."""
        return self.arg.partition(".")[2] if self.verb == "review" else self.arg


@dataclass(frozen=True, slots=True)
class PagePress:
    """One press of a page's control. `incident` 0: everything that the page is about."""

    PREFIX: ClassVar = "oncall"
    verb: PageVerb
    page: int
    incident: int = 0

    def pack(self) -> str:
        return f"{VERSION}|{self.verb}|{self.page}|{self.incident}"

    @classmethod
    def unpack(cls, text: str) -> PagePress:
        verb, page, incident = _fields(text, 4, get_args(PageVerb))
        if not _NUMBER.fullmatch(page) or not _NUMBER.fullmatch(incident):
            raise BadPress("A page's control names no page and incident; expected two numbers.")
        return cls(cast("PageVerb", verb), int(page), int(incident))


@dataclass(frozen=True, slots=True)
class ListPress:
    """`page`: show page `number` (from 1) of the query `arg`, which is run again. `take`: `arg` is the clarification."""

    PREFIX: ClassVar = "list"
    verb: ListVerb
    arg: str
    number: int = 0

    def pack(self) -> str:
        return f"{VERSION}|{self.verb}|{self.number}|{self.arg}"

    @classmethod
    def unpack(cls, text: str) -> ListPress:
        verb, number, arg = _fields(text, 4, get_args(ListVerb))
        if not _ROUND.fullmatch(number):
            raise BadPress("A list's control has no number; expected one.")
        return cls(cast("ListVerb", verb), arg, int(number))


@dataclass(frozen=True, slots=True)
class HomePress:
    """One press on the Home tab. `subject`: a clarification's id, or for `page` a section; `number`: its round, or
    the page from 1.
    """

    PREFIX: ClassVar = "home"
    verb: HomeVerb
    subject: str
    number: int

    def pack(self) -> str:
        text = f"{VERSION}|{self.verb}|{self.subject}|{self.number}"
        HomePress.unpack(text)
        return text

    @classmethod
    def unpack(cls, text: str) -> HomePress:
        verb, subject, number = _fields(text, 4, get_args(HomeVerb))
        named = subject in get_args(HomeSection) if verb == "page" else ID.fullmatch(subject) is not None
        if not named or not _ROUND.fullmatch(number):
            raise BadPress("A control of the Home tab names nothing that is there; expected 1|page|inbox|2.")
        return cls(cast("HomeVerb", verb), subject, int(number))

    def on_question(self) -> Press:
        """Returns the press that the same control on a card would carry. Raises `BadPress` for a page turn."""
        if self.verb == "page":
            raise BadPress("A control that turns pages is about no question.")
        return Press(self.verb, self.subject, self.number, "1" if self.verb == "view" else "")


AnyPress = Press | PagePress | ListPress | HomePress


def action_id(press: AnyPress, n: int | None = None) -> str:
    """Returns the action_id of a press's control; `n` distinguishes several with the same verb in a message."""
    return f"{press.PREFIX}.{press.verb}" if n is None else f"{press.PREFIX}.{press.verb}.{n}"


def seal(installation: str, packed: str) -> str:
    """Prepends the installation's id to `packed`."""
    return f"2|{installation}|{packed}"


def unseal(text: str) -> tuple[str, str]:
    """Returns the installation's id, and what was packed. Raises `BadPress` if there is no seal."""
    if (found := _SEALED.fullmatch(text)) is None:
        raise BadPress("A control's payload has no seal; expected 2|installation|payload.")
    return found[1], found[2]


def seal_controls(installation: str, blocks: Iterable[dict[str, Any]]) -> None:
    """Seals the values of buttons and menus, but not the inputs."""
    for carrier in _carriers(blocks):
        carrier["value"] = seal(installation, carrier["value"])


def carried(blocks: Iterable[dict[str, Any]]) -> set[str]:
    """Returns the values of a message's buttons and menus, unsealed."""
    return {unseal(carrier["value"])[1] for carrier in _carriers(blocks)}


def _fields(text: str, count: int, verbs: tuple[str, ...]) -> list[str]:
    """Returns the `count` parts of a packed press, without the version."""
    version, *fields = text.split("|", count - 1)
    if len(text) > LIMIT or len(fields) != count - 1:
        raise BadPress(
            f"A control's payload has {len(fields) + 1} parts in {len(text)} characters; expected {count}."
        )
    if version != VERSION:
        raise BadPress(f"A control's payload is not of version {VERSION}: the message is of another release.")
    if fields[0] not in verbs:
        raise BadPress(f"A control's payload has an unknown verb; expected one of {', '.join(verbs)}.")
    return fields


def _carriers(blocks: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields the buttons and the options of menus. Inputs, which have an `element`, are skipped."""
    for block in blocks:
        for control in (*block.get("elements", ()), block.get("accessory")):
            if isinstance(control, dict) and "action_id" in control:
                carriers = (control, *control.get("options", ()))
                yield from (each for each in carriers if each.get("value"))
