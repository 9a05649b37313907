"""What people have to know before they accept or reject what an agent is about to do, and the controls for it.

Pure. Risk, reversibility and what silence does are always said in words, never by colour alone (AAEP §6.4).
"""

from __future__ import annotations

from bot.views import inert
from bot.views.blockkit import BUTTON, CONFIRM_TEXT
from bot.views.outline import outline
from bot.views.parts import Button, Dialog, button
from core.aaep import UNTOLD, Confirmation, Decision
from core.clarification import Clarification

ACCEPT, REJECT = "Accept", "Reject"
CANCEL, ASK_AGAIN = "Cancel", "Accept this?"
MEANT, MEANT_THIS = "It does", "Does your reply decide this?"
LABELS: dict[Decision, str] = {"accept": ACCEPT, "reject": REJECT}
_NO_LIMIT = 10**9
_WORD = 60
_BRIEF = 250  # of a dialog of which there may be ten in a message
_UNDO = {
    "irreversible": "Irreversible: it cannot be undone",
    "reversible_with_effort": "Reversible, with effort",
    "reversible": "Reversible",
}
_DEFAULTS: dict[Decision | None, str] = {
    "accept": "the agent goes ahead, as if accepted",
    "reject": "the agent does not go ahead, as if rejected",
    None: "the agent did not say what it does",
}
_TOLD: dict[Decision, str] = {
    "accept": "Expired; the agent was told to go ahead, as if accepted",
    "reject": "Expired; the agent was told not to go ahead, as if rejected",
}
_WARNING = (
    "Warning: if nobody answers, this is carried out although it cannot be undone. "
    "The protocol demands that silence rejects it; the agent breaks that rule."
)


def risk_words(wanted: Confirmation) -> str:
    """How grave it is and whether there is a way back, in two sentences; what was not said is said to be so."""
    risk = _word(wanted.risk_level) or "the agent did not say"
    return f"Risk: {risk}. {_undo(wanted)}."


def stakes_words(wanted: Confirmation) -> str:
    """What must be read whole, in one line: risk, way back, what silence does, and that it must not do it."""
    silence = f"{silence_words(wanted)}."
    return " ".join(filter(None, (risk_words(wanted), silence, warning_words(wanted))))


def warning_words(wanted: Confirmation) -> str:
    """That silence would set off what must not happen by itself; empty where it would not."""
    return _WARNING if wanted.breaks_default_rule else ""


def silence_words(wanted: Confirmation) -> str:
    """What happens if nobody answers."""
    return f"If nobody answers, {_DEFAULTS[wanted.default_decision]}"


def expired_words(wanted: Confirmation) -> str:
    """What happened, as nobody answered; empty where the agent did not say."""
    return _TOLD[wanted.default_decision] if wanted.default_decision else ""


def action_words(wanted: Confirmation) -> str:
    return f"Action: {inert.plain(wanted.action)}"


def consequence_words(wanted: Confirmation) -> str:
    return f"Consequence: {inert.plain(wanted.consequence or UNTOLD)}"


def extra_words(wanted: Confirmation) -> str:
    """What the agent sent along, in full, as indented lines; or empty."""
    told = outline(wanted.extra_context, _NO_LIMIT) if wanted.extra_context else ""
    return f"Details:\n{told}" if told.strip() else ""


def whole_words(wanted: Confirmation) -> list[str]:
    """All of it but the time: what is done, what follows, how grave it is, what else is known."""
    risk = " ".join(filter(None, (risk_words(wanted), warning_words(wanted))))
    return [
        part for part in (action_words(wanted), consequence_words(wanted), risk, extra_words(wanted)) if part
    ]


def decisions(record: Clarification, number: int, wanted: Confirmation) -> list[Button]:
    """A button for each decision that the agent takes. Accept asks again where the stakes are high."""
    again = dialog(wanted) if wanted.asks_twice else None
    return [
        button(
            record,
            number,
            decision,
            LABELS[decision],
            spoken=inert.clip(f"{LABELS[decision]}: {inert.line(wanted.action)}", BUTTON),
            style="primary" if decision == "accept" else "danger",
            dialog=again if decision == "accept" else None,
        )
        for decision in wanted.allowed
    ]


def dialog(wanted: Confirmation) -> Dialog:
    """The second question before Accept counts; it names the action, or its beginning, and the stakes in full."""
    return Dialog(ASK_AGAIN, _named(wanted, CONFIRM_TEXT), ACCEPT, CANCEL)


def reply_dialog(wanted: Confirmation) -> Dialog:
    """The same before a reply counts whose author has just said that this is what it decides."""
    return Dialog(MEANT_THIS, _named(wanted, _BRIEF), MEANT, CANCEL)


def _named(wanted: Confirmation, limit: int) -> str:
    stakes = risk_words(wanted)
    action = inert.clip(inert.line(wanted.action), limit - inert.size(stakes) - 1)
    return f"{action}\n{stakes}"


def _undo(wanted: Confirmation) -> str:
    said = _word(wanted.reversibility)
    if wanted.irreversible is True and said not in ("", "irreversible"):
        return f"{_UNDO['irreversible']} (the agent also calls it {said.replace('_', ' ')})"
    if wanted.is_irreversible:
        return _UNDO["irreversible"]
    if said:
        return _UNDO.get(said) or f"Reversibility: {said}"
    return "Reversible" if wanted.irreversible is False else "Whether it can be undone, the agent did not say"


def _word(text: str | None) -> str:
    return inert.clip(inert.line(text or ""), _WORD)
