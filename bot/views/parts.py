"""The parts that cards, notices and lists are made of, and the budget that their words share. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from bot.views import inert
from bot.views.blockkit import BUTTON, MESSAGE_BUDGET
from bot.views.codec import Press, Verb, action_id
from core.clarification import Clarification

YES, NO, ANSWER, VIEW_FULL = "Yes", "No", "Answer…", "View full"
NEXT, PREVIOUS, SHOW_ALL, LEARN_MORE = "Next", "Previous", "Show all", "Learn more"
ROWS = 10  # of each of an agent's texts on a card
_RESERVE = 400  # numbering, labels such as "Context: ", rounding


@dataclass(frozen=True, slots=True)
class Words:
    """A text element: plain text, or the bot's own mrkdwn where `live`."""

    text: str
    live: bool = False


@dataclass(frozen=True, slots=True)
class Dialog:
    """What Slack asks again before a press counts: title (≤ 100), text (≤ 300), the labels of its two buttons (≤ 30)."""

    title: str
    text: str
    confirm: str
    deny: str


Style = Literal["", "primary", "danger"]


@dataclass(frozen=True, slots=True)
class Button:
    """`spoken` is the accessibility label, where the label alone does not say it all. `style` is a colour, and never
    all that tells something.
    """

    label: str
    action_id: str
    value: str
    spoken: str = ""
    url: str = ""
    style: Style = ""
    dialog: Dialog | None = None


@dataclass(frozen=True, slots=True)
class Select:
    """A menu; `options` are (text, value). `dialog` is asked of whatever is chosen."""

    placeholder: str
    action_id: str
    options: tuple[tuple[str, str], ...]
    dialog: Dialog | None = None


@dataclass(slots=True)
class Budget:
    """What a message's text leaves for words that may be cut; `cut` tells whether any were."""

    left: int
    cut: bool = field(default=False)

    @classmethod
    def beside(cls, text: str) -> Budget:
        """What blocks may hold beside the message's `text`: both count."""
        return cls(MESSAGE_BUDGET - inert.size(text) - _RESERVE)

    def spend(self, *texts: str) -> None:
        self.left -= sum(map(inert.size, texts))

    def brief(self, text: str) -> str:
        """`text`, or its first lines: nobody should have to scroll past a question to its buttons."""
        shown = inert.clip_rows(text, ROWS)
        self.cut = self.cut or shown != text
        return shown

    def fit(self, texts: list[str]) -> list[str]:
        """Each text, or its beginning where it does not fit."""
        given = inert.shares([inert.size(text) for text in texts], max(self.left, 10 * len(texts)))
        fitted = [inert.clip(text, share) for text, share in zip(texts, given, strict=True)]
        self.cut = self.cut or fitted != texts
        self.spend(*fitted)
        return fitted


def pieces(text: str, limit: int) -> tuple[str, ...]:
    """`text` in text objects of at most `limit`, none of them blank."""
    return tuple(piece.strip("\n") for piece in inert.split(text, limit) if piece.strip())


def button(
    record: Clarification,
    number: int,
    verb: Verb,
    label: str,
    *,
    n: int | None = None,
    arg: str = "",
    spoken: str = "",
    style: Style = "",
    dialog: Dialog | None = None,
) -> Button:
    """A button about round `number` of `record`."""
    value = Press(verb, record.id, number, arg).pack()
    return Button(label, action_id(verb, n), value, inert.clip(spoken, BUTTON), style=style, dialog=dialog)
