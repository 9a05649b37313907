"""What a control carries: typed, versioned, size-checked.

A press is packed as `1|verb|CLR-42-001|round|arg`: small enough for an option's value, the tightest place
that Slack has. It names the question, never the answer's words: those are looked up in the ledger.

action_ids are `clarify.<verb>` or `clarify.<verb>.<n>`, unique within a message or view. Modals carry the
packed press in `private_metadata`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

from bot.errors import BadPress
from core.clarification import ID

Verb = Literal["yes", "no", "choice", "select", "answer", "view", "which", "list", "page", "accept", "reject"]

VERSION = "1"
LIMIT = 150
PREFIX = "clarify"
LINK_ACTION = f"{PREFIX}.link"  # a button that opens a web page: Slack tells us of it all the same
ANSWER_CALLBACK = f"{PREFIX}.answer"
VIEW_CALLBACK = f"{PREFIX}.view"
LIST_CALLBACK = f"{PREFIX}.list"
_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Press:
    """One press of a control.

    `arg` by verb: choice: the choice's index from 0; view, list, page: the page from 1; which: the id of
    the reply that waits for its question; otherwise empty. `list` and `page` name one clarification of
    the agent whose questions are listed.
    """

    verb: Verb
    clarification: str
    round: int
    arg: str = ""

    def pack(self) -> str:
        """The press as text of at most 150 characters.

        Raises:
            BadPress: longer than that, or a field that could not be read back.
        """
        text = "|".join((VERSION, self.verb, self.clarification, str(self.round), self.arg))
        if len(text) > LIMIT or not text.isascii():
            raise BadPress(
                f"A press of “{self.verb}” does not fit: expected at most {LIMIT} ASCII characters."
            )
        Press.unpack(text)
        return text

    @classmethod
    def unpack(cls, text: str) -> Press:
        """Read what `pack` wrote.

        Raises:
            BadPress: anything else; the message never repeats the content.
        """
        parts = text.split("|", 4)
        if len(text) > LIMIT or len(parts) != 5:
            raise BadPress(
                f"A control's payload has {len(parts)} parts in {len(text)} characters; expected 5."
            )
        version, verb, clarification, number, arg = parts
        if version != VERSION:
            raise BadPress(
                f"A control's payload is not of version {VERSION}: the message is of another release."
            )
        if verb not in get_args(Verb):
            raise BadPress(
                f"A control's payload has an unknown verb; expected one of {', '.join(get_args(Verb))}."
            )
        if not ID.fullmatch(clarification) or not _NUMBER.fullmatch(number):
            raise BadPress(
                "A control's payload names no clarification and round; expected the form CLR-42-001|1."
            )
        return cls(cast("Verb", verb), clarification, int(number), arg)

    def number(self) -> int:
        """`arg` as a whole number.

        Raises:
            BadPress: it is none.
        """
        if not _NUMBER.fullmatch(self.arg):
            raise BadPress(f"A control's payload for “{self.verb}” has no number; expected one.")
        return int(self.arg)


def action_id(verb: Verb, n: int | None = None) -> str:
    """The action_id of a control; `n` tells apart several of one verb in a message."""
    return f"{PREFIX}.{verb}" if n is None else f"{PREFIX}.{verb}.{n}"
