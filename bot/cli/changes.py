"""`clarify answer`, `resolve`, `escalate`, `abandon`, `request`, through the same router and locks as the bot."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable

from bot.cli.lists import by_id, one
from bot.cli.running import Shell, answered, is_served_here, seconds_of
from bot.views import inert
from bot.views.wording import ASK_AGAIN, whole_words
from core import answers
from core.approvals import check_reason, version_of
from core.clarification import (
    HUMAN,
    Answer,
    Ask,
    Clarification,
    Decider,
    Question,
    agent_key,
    answer_of,
)
from core.errors import AnswerRejected, BadInput, ConsentRefused
from core.names import whole_characters
from core.records import record_json

_EXAMPLE = 'clarify request --from engineer --to architect --issue 42 "Which database?"'
_LONGEST = 1 << 20  # bytes of standard input; far more than any answer may have


Asking = Callable[[Shell], Awaitable[Clarification]]
"""Asks a question and returns its record. Raises what `core.hub.Hub` raises."""


def text_of(words: list[str] | None, usage: str = "") -> str:
    """Returns the text argument. Call it before opening anything, so that Ctrl-C ends it at once. `usage`: an example, for
    commands that require a text.

    Raises:
        BadInput: nothing was said, or standard input is no text.
    """
    if words:
        return _given(" ".join(words))
    if usage:
        raise BadInput(f"text is required. For example: clarify {usage}")
    return ""


def question_of(
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
) -> Asking:
    """Returns how to ask the question that the options describe; `-` reads it from standard input.

    Raises:
        BadInput: an option is missing, given twice, or wrong.
    """
    if question is None and question_option is None:
        raise BadInput(f"question is required. For example: {_EXAMPLE}")
    if question is not None and question_option is not None:
        raise BadInput(f"question was given twice. For example: {_EXAMPLE}")
    given = {"--from": from_, "--to": to, "--issue": issue, "--topic": topic}
    missing = [name for name in ("--from", "--to", "--issue") if given[name] is None]
    besides = [name for name in ("--to", "--issue", "--topic") if given[name] is not None]
    if follow_up is None and missing:
        raise BadInput(f"{', '.join(missing)} required. For example: {_EXAMPLE}")
    if follow_up is not None and besides:
        raise BadInput(
            f"{', '.join(besides)}: not allowed with --follow-up, which keeps the role, issue and topic. "
            'For example: clarify request --follow-up CLR-42-001 "And which version?"'
        )
    text = _given(question if question is not None else question_option or "")
    if follow_up is not None:
        return lambda shell: _follow_up(shell, follow_up, from_, text, context)
    assert from_ is not None and to is not None and issue is not None  # noqa: S101, PT018 - `missing` is empty
    ask = Ask(from_, text, to, topic, blocking, Question(context=context))
    return lambda shell: shell.hub.request(issue, ask)


async def answer(
    shell: Shell, name: str | None, said: str, role: str | None, seen: int | None, *, yes: bool
) -> None:
    """Answer a question. `seen`: the round that the person saw, if they say so. `yes`: accept without confirmation."""
    decider = shell.decider(role)
    record, version = await one(shell, name), None
    if _is_consent(record, said):
        check_reason(record.asked, _reads(said)(record).rationale)
        try:
            _ask_back(shell, record, decider, yes=yes)
        except ConsentRefused:
            shell.router.note_refusal(record, decider, "not in Slack", "accept")
            raise
        # Pins the round and the arguments that the person read: a newer round may be another action.
        seen, version = record.round if seen is None else seen, version_of(record.current)
    after = await shell.router.answer(
        record.id, _reads(said), decider, shell.clock.now(), seen, version=version
    )
    label = inert.clip(inert.line(after.given.label or ""), 200)
    _tell(shell, after, f"{after.id} is {after.status}: “{label}”.")


async def resolve(shell: Shell, name: str | None, said: str, role: str | None) -> None:
    """Close a question with a decision."""
    decider = shell.decider(role)
    record = await one(shell, name, is_open=False)
    after = await shell.hub.resolve(record.id, said, decider)
    _tell(shell, after, f"{after.id} is {after.status}.")


async def escalate(shell: Shell, name: str | None, said: str) -> None:
    """Escalate a question to the person on call."""
    record = await one(shell, name)
    after = await shell.hub.escalate(record.id, shell.decider(), said)
    was = " already" if record.status == "escalated" else ""
    _tell(shell, after, f"{after.id} is escalated{was}.")


async def abandon(shell: Shell, name: str | None, said: str) -> None:
    """Close a question without an answer."""
    record = await one(shell, name)
    after = await shell.hub.abandon(record.id, shell.decider(), said)
    _tell(shell, after, f"{after.id} is closed without an answer.")


async def request(shell: Shell, ask: Asking, timeout: str | None, *, wait: bool) -> None:
    """Have one agent ask another; with `wait`, wait for the answer and print it."""
    seconds = seconds_of(timeout)
    record = await ask(shell)
    await shell.settle()
    if note := _prospect(shell, record, waits=wait):
        shell.out.note(note)
    if not wait:
        shell.out.show(record_json(record), record.id)
        return
    after = await answered(shell, record, seconds)
    entry = answer_of(after, record.round)
    shell.out.show(record_json(after), entry.body if entry else "")


def _given(text: str) -> str:
    """Returns an argument's text; `-` reads standard input, without its last line break.

    Raises:
        BadInput: standard input is not text.
    """
    if text != "-":
        return whole_characters(text)
    if sys.stdin.isatty():
        sys.stderr.write("Type the text, then press Ctrl-D on an empty line.\n")
    try:
        # As bytes: in some locales, text may hold lone surrogates.
        text = sys.stdin.buffer.read(_LONGEST).decode("utf-8")
        return whole_characters(text).removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise BadInput("Standard input is not UTF-8 text.") from None


async def _follow_up(
    shell: Shell, name: str, from_: str | None, question: str, context: str | None
) -> Clarification:
    """Asks a follow-up. `from_`: the role given with `--from`, if any."""
    record = await by_id(shell, name)
    if from_ is not None and agent_key(from_) != agent_key(record.from_):
        raise BadInput(f"{record.id} was asked by {record.from_}: only {record.from_} can follow up on it.")
    return await shell.hub.follow_up(record.id, question, context)


def _prospect(shell: Shell, record: Clarification, *, waits: bool) -> str:
    """Returns who will answer; without --wait, only what prevents an answer."""
    told = f"Asked {record.to}: {record.id}, round {record.round}." if waits else ""
    if shell.has_bot:
        return told
    if is_served_here(shell, record):
        return (
            told
            or f"The bot is not running: {record.to} will be asked once you start `clarify run`. Or use --wait."
        )
    roles = {agent_key(role) for role in shell.settings.responders}
    people = agent_key(record.to) in {HUMAN, *roles}
    who = "people see it" if people else f"{record.to} has no responder, so people will see it"
    return f"{told} The bot is not running: {who} once you start `clarify run`. Or answer here: clarify answer {record.id} …".strip()


def _is_consent(record: Clarification, said: str) -> bool:
    try:
        return record.asked.is_confirmation and _reads(said)(record).response == "accept"
    except AnswerRejected:
        return False


def _ask_back(shell: Shell, record: Clarification, decider: Decider, *, yes: bool) -> None:
    """Show the person at the prompt what they accept, and ask for confirmation.

    Raises:
        ConsentRefused: the shell, or this agent, may not accept it.
        BadInput, typer.Abort: see `Shell.ask_back`.
    """
    wanted = record.current.confirmation
    asked = record.asked
    if wanted is None or not decider.may_accept or asked.needed > 1 or asked.four_eyes is not None:
        raise ConsentRefused(record.id)
    if not yes:
        shell.ask_back(ASK_AGAIN, reading=whole_words(wanted, record.current.arguments))


def _tell(shell: Shell, after: Clarification, sentence: str) -> None:
    """Print the result, and when the agent gets its reply."""
    shell.out.show(record_json(after), sentence)
    if after.delivery.reply == "sending" and not shell.has_bot:
        shell.out.note("The bot is not running: the agent gets its reply once you start `clarify run`.")


def _reads(text: str) -> Callable[[Clarification], Answer]:
    return lambda record: answers.from_text(record.asked, text)
