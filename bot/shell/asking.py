"""What `clarify request` asks: from its options to a request, and what is to be expected of it."""

from __future__ import annotations

from dataclasses import dataclass

from bot.shell.desk import Shell
from bot.shell.finding import by_id
from bot.shell.presence import bot_runs
from bot.shell.waiting import is_served_here
from bot.shell.words import given
from core.clarification import HUMAN, Clarification, agent_key
from core.errors import BadInput
from core.hub import Request

_EXAMPLE = 'clarify request --from engineer --to architect --issue 42 "Which database?"'


@dataclass(frozen=True, slots=True)
class Further:
    """A further question about what was answered; `from_`: who says that they asked it, if they say so."""

    id: str
    from_: str | None
    question: str
    context: str | None


Wish = Request | Further


def wish_of(
    question: str | None,
    question_option: str | None,
    from_: str | None,
    to: str | None,
    issue: int | None,
    *,
    topic: str | None,
    blocking: bool,
    context: str | None,
    follow_up: str | None,
) -> Wish:
    """What the options say; reads standard input where the question is `-`.

    Raises:
        BadInput: what is missing, given twice, or not as it may be.
    """
    if question is None and question_option is None:
        raise BadInput(f"What is the question? For example: {_EXAMPLE}")
    if question is not None and question_option is not None:
        raise BadInput(f"The question was given twice; give it once. For example: {_EXAMPLE}")
    missing = [name for name, value in (("--from", from_), ("--to", to), ("--issue", issue)) if value is None]
    if follow_up is not None:
        _alone(to, issue, topic)
    elif missing:
        raise BadInput(f"{', '.join(missing)} must be given. For example: {_EXAMPLE}")
    text = given(question if question is not None else question_option or "")
    if follow_up is not None:
        return Further(follow_up, from_, text, context)
    assert from_ is not None and to is not None and issue is not None  # noqa: S101, PT018 - `missing` is empty
    return Request(issue, from_, to, topic or "", text, blocking, context)


def _alone(to: str | None, issue: int | None, topic: str | None) -> None:
    given_too = [
        name for name, value in (("--to", to), ("--issue", issue), ("--topic", topic)) if value is not None
    ]
    if given_too:
        raise BadInput(
            f"{', '.join(given_too)}: not with --follow-up, which keeps whom, where and what about it was asked. "
            'For example: clarify request --follow-up CLR-42-001 "And which version?"'
        )


async def asked(shell: Shell, wish: Wish) -> Clarification:
    """Write it down.

    Raises:
        ScopeViolation, BlockingNotAllowed, MaxRoundsExceeded, and what else `core.hub.Hub` raises.
    """
    if isinstance(wish, Request):
        return await shell.hub.request(wish)
    record = await by_id(shell, wish.id)
    if wish.from_ is not None and agent_key(wish.from_) != agent_key(record.from_):
        raise BadInput(f"{record.id} was asked by {record.from_}: only {record.from_} asks further there.")
    return await shell.hub.follow_up(record.id, wish.question, wish.context)


def prospect(shell: Shell, record: Clarification, *, waits: bool) -> str:
    """Who will answer, in a line; without --wait only what stands in the way."""
    told = f"Asked {record.to}: {record.id}, round {record.round}." if waits else ""
    settings = shell.settings
    if bot_runs(settings.storage.path):
        return told
    if is_served_here(shell, record):
        return told or f"No bot runs: {record.to} is asked when `clarify run` is started, or with --wait."
    roles = {agent_key(role) for role in settings.responders}
    people = agent_key(record.to) in {HUMAN, *roles}
    who = "people see it" if people else f"{record.to} has no responder: people see it"
    return (
        f"{told} No bot runs: {who} when `clarify run` is started. Or: clarify answer {record.id} …".strip()
    )
