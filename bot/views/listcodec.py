"""What the controls of lists carry, besides the answer controls of `bot.views.codec`: `1|page|2|stale`, `1|take|0|CLR-42-001`.

action_ids are `list.<verb>` or `list.<verb>.<n>`. A list is asked for again by its query, so nothing is kept. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

from bot.errors import BadPress

ListVerb = Literal["page", "take"]
VERSION = "1"
PREFIX = "list"
_LIMIT = 150
_NUMBER = re.compile(r"[0-9]{1,6}")


@dataclass(frozen=True, slots=True)
class ListPress:
    """`page`: show page `number` (from 1) of what `arg` asks for. `take`: `arg` is the clarification."""

    verb: ListVerb
    arg: str
    number: int = 0

    def pack(self) -> str:
        return f"{VERSION}|{self.verb}|{self.number}|{self.arg}"

    @classmethod
    def unpack(cls, text: str) -> ListPress:
        """Read what `pack` wrote.

        Raises:
            BadPress: anything else; the message never repeats the content.
        """
        parts = text.split("|", 3)
        if len(text) > _LIMIT or len(parts) != 4 or parts[0] != VERSION:
            raise BadPress("A list's control is not of this release: its payload is of another form.")
        _, verb, number, arg = parts
        if verb not in get_args(ListVerb) or not _NUMBER.fullmatch(number):
            raise BadPress("A list's control names an unknown verb, or no number.")
        return cls(cast("ListVerb", verb), arg, int(number))


def action_id(verb: ListVerb, n: int) -> str:
    """The action_id of a control; `n` tells apart several of one verb in a message."""
    return f"{PREFIX}.{verb}.{n}"
