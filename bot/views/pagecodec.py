"""What a page's own controls carry: `1|verb|page|incident`, small enough for an option's value.

action_ids are `oncall.<verb>` or `oncall.<verb>.<n>`; the modal behind Hand to… has the callback `oncall.hand` and
carries the packed press in `private_metadata`. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

from bot.errors import BadPress

PageVerb = Literal["take", "hand", "snooze", "notmine", "show"]

VERSION = "1"
PREFIX = "oncall"
HAND_CALLBACK = f"{PREFIX}.hand"
HAND_BLOCK = "hand"
HAND_ACTION = f"{PREFIX}.user"
_VERBS = frozenset(get_args(PageVerb))
_NUMBER = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class PagePress:
    """One press of a page's control. `incident` 0: all that the page is about."""

    verb: PageVerb
    page: int
    incident: int = 0

    def pack(self) -> str:
        return f"{VERSION}|{self.verb}|{self.page}|{self.incident}"

    @classmethod
    def unpack(cls, text: str) -> PagePress:
        """Read what `pack` wrote.

        Raises:
            BadPress: anything else; the message never repeats the content.
        """
        parts = text.split("|", 3)
        if len(parts) != 4:
            raise BadPress(f"A page's control has {len(parts)} parts; expected 4.")
        version, verb, page, incident = parts
        if version != VERSION:
            raise BadPress(f"A page's control is not of version {VERSION}: it is of another release.")
        if verb not in _VERBS:
            raise BadPress(f"A page's control names an unknown verb; expected one of {', '.join(_VERBS)}.")
        if not _NUMBER.fullmatch(page) or not _NUMBER.fullmatch(incident):
            raise BadPress("A page's control names no page and incident; expected two numbers.")
        return cls(cast("PageVerb", verb), int(page), int(incident))


def action_id(verb: PageVerb, n: int | None = None) -> str:
    """The action_id of a control; `n` tells apart several of one verb in a message."""
    return f"{PREFIX}.{verb}" if n is None else f"{PREFIX}.{verb}.{n}"
