"""What a control on the Home tab carries: typed, versioned, size-checked; action_ids are `home.<verb>.<n>`.

A press is packed as `1|answer|CLR-42-001|1`, or `1|page|inbox|2`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

from bot.codec import LIMIT, VERSION, Press
from bot.errors import BadPress
from core.clarification import ID

HomeVerb = Literal["answer", "view", "page"]
Section = Literal["inbox", "taken", "agents", "ready", "duty", "answers"]
SECTIONS: tuple[Section, ...] = get_args(Section)
CALLBACK = "home"
ACTIONS = re.compile(r"home\..+")
_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class HomePress:
    """One press. `subject`: a clarification's id, or for `page` a section; `number`: its round, or the page from 1."""

    verb: HomeVerb
    subject: str
    number: int

    def pack(self) -> str:
        """The press as text of at most 150 characters.

        Raises:
            BadPress: longer than that, or a field that could not be read back.
        """
        text = "|".join((VERSION, self.verb, self.subject, str(self.number)))
        HomePress.unpack(text)
        return text

    @classmethod
    def unpack(cls, text: str) -> HomePress:
        """Read what `pack` wrote.

        Raises:
            BadPress: anything else; the message never repeats the content.
        """
        parts = text.split("|")
        if len(text) > LIMIT or not text.isascii() or len(parts) != 4 or parts[0] != VERSION:
            raise BadPress(
                f"A control of the Home tab is not of version {VERSION}: it is of another release."
            )
        _, verb, subject, number = parts
        named = subject in SECTIONS if verb == "page" else ID.fullmatch(subject) is not None
        if verb not in get_args(HomeVerb) or not named or not _NUMBER.fullmatch(number):
            raise BadPress("A control of the Home tab names nothing that is there; expected 1|page|inbox|2.")
        return cls(cast("HomeVerb", verb), subject, int(number))

    def on_question(self) -> Press:
        """The same as a control on a card would carry it.

        Raises:
            BadPress: it turns a page, and is about no question.
        """
        if self.verb == "page":
            raise BadPress("A control that turns pages is about no question.")
        return Press(self.verb, self.subject, self.number, "1" if self.verb == "view" else "")


def action_id(verb: HomeVerb, n: int) -> str:
    """The action_id of a control; `n` tells apart several of one verb."""
    return f"{CALLBACK}.{verb}.{n}"
