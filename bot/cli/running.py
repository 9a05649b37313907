"""Runs a command: opens the ledgers for it, waits for an answer, and turns expected errors into exit codes.

If no bot runs, a command that waits also runs the target's responder. An error is one line on stderr, and with --json an object
on stdout, too.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bot.cli.output import Output
from bot.cli.records import refusal
from bot.errors import ClarifyBotError, ConfigurationError, StorageUnavailable, driver_required
from bot.logs import configure_logging
from bot.settings.load import load_shell_settings, os_identity, read_environment
from bot.settings.model import ShellSettings, duration
from core.clarification import HUMAN, Clarification, Decider, agent_key
from core.clock import Clock
from core.errors import AgentError, BadInput, ClarifyError
from core.hub import Dispatcher, Hub
from core.ledger import Ledger
from core.router import Router
from core.workflow import ROLE_LIMIT, Scopes, is_role

if TYPE_CHECKING:
    from bot.integrated import Watchers
    from bot.storage.store import Store

# Seconds to wait for a ledger's lock: longer than for a click, since a person waits at the prompt.
PATIENCE = 10.0
EXIT_CODES = {
    "CONFIGURATION": 2,
    "BAD_INPUT": 2,
    "ANSWER_REJECTED": 2,
    "NOT_FOUND": 3,
    "SCOPE_VIOLATION": 4,
    "CONSENT_REFUSED": 4,
    "NOT_COUNTED": 4,
    "MAX_ROUNDS_EXCEEDED": 4,
    "ALREADY_ANSWERED": 5,
    "CLOSED": 5,
    "TAMPERED": 5,
    "NOT_OPEN": 5,
    "SUPERSEDED": 5,
    "ARGUMENTS_CHANGED": 5,
    "ILLEGAL_TRANSITION": 5,
    "LOCK_TIMEOUT": 6,
    "LEDGER_UNWRITABLE": 6,
    "AGENT_ERROR": 7,
    "TIMEOUT": 8,
}
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class WaitedTooLong(ClarifyBotError):
    """There was no answer in the time given with --timeout."""

    code = "TIMEOUT"


@dataclass(frozen=True)
class Shell:
    """The open ledgers and settings of a command.

    `store`: the storage with the ledgers. `may_accept`: whether the bot lets the shell accept approvals, and these settings do,
    too: whoever runs a command can point it to settings of their own. `me`: who decides, unless `--as` names a role.
    `listeners` get every record that was written; `between_agents` are those of them that agents ask each other.
    """

    settings: ShellSettings
    router: Router
    ledger: Ledger
    store: Store
    clock: Clock
    may_accept: bool
    me: str
    out: Output
    listeners: list[Callable[[Clarification], None]]
    between_agents: list[Clarification]

    @cached_property
    def hub(self) -> Hub:
        scopes = Scopes(self.settings.ledger.workflows)
        return Hub(router=self.router, ledger=self.ledger, scopes=scopes, clock=self.clock, via="shell")

    @cached_property
    def watchers(self) -> Watchers:
        from bot.integrated import Watchers  # noqa: PLC0415 - most commands need nothing of it

        return Watchers(self.settings, _open_ones(self.ledger), self.clock)

    @property
    def has_bot(self) -> bool:
        """Whether a bot runs on the same storage."""
        from bot.storage.opening import kept_at  # noqa: PLC0415 - most commands need no database

        return kept_at(self.settings.storage.path, self.settings.database_url).is_in_use()

    async def settle(self) -> None:
        """Record who was refused, and have integrations notice what changed, unless a running bot does."""
        await self.router.write_refusals()
        if self.settings.database_url is None and self.between_agents and not self.has_bot:
            for record in self.between_agents:
                self.watchers.record_changed(record)
            await self.watchers.close()

    def decider(self, role: str | None = None) -> Decider:
        """Returns who decides: the person at the prompt, or the agent whose role was given with `--as`.

        Raises:
            BadInput: not a role.
        """
        if role is not None:
            return Decider(f"agent:{checked_role(role)}", "shell")
        return Decider(self.me, "shell", consent=self.may_accept)

    def ask_back(self, question: str, *, reading: Sequence[str] = ()) -> None:
        """Show `reading` to the person at the prompt, and ask for confirmation.

        Raises:
            BadInput: not at a terminal; typer.Abort: they said no.
        """
        if not self.out.terminal:
            raise BadInput("Not a terminal, so I can't ask. Add --yes to confirm.")
        for line in reading:
            self.out.note(line)
        typer.confirm(question, abort=True, err=True)

    def tell_problems(self, problems: list[str]) -> None:
        """Print what could not be read.

        Raises:
            typer.Exit: there are problems, so the output may be incomplete.
        """
        for problem in problems:
            self.out.note(f"clarify: {problem}")
        if problems:
            raise typer.Exit(1)


def run(
    work: Callable[[Shell], Awaitable[object]], out: Output, config: Path | None, *, creates: bool = False
) -> None:
    """Open the shell, do `work`, close it. `creates`: a missing database is created.

    Raises:
        typer.Exit: a signal ended it.
    """

    async def session() -> None:
        configure_logging("warning", json=False)  # or structlog prints to stdout, where answers go
        async with open_shell(config, out, creates=creates) as shell:
            await work(shell)

    stopped_by = asyncio.run(supervised(session()))
    if stopped_by is not None:
        raise typer.Exit(128 + stopped_by)


@contextmanager
def trouble_told(*, json: bool) -> Iterator[Output]:
    """Print expected errors of the block, and exit with their code.

    Raises:
        typer.Exit: with any code but 0.
    """
    out = Output(json=json)
    try:
        with driver_required():
            yield out
    except (ClarifyError, ClarifyBotError) as error:
        is_configuration = isinstance(error, ConfigurationError)
        code = "CONFIGURATION" if is_configuration else str(getattr(error, "code", "ERROR"))
        out.failed(code, refusal(error, datetime.now(UTC)))
        raise typer.Exit(EXIT_CODES.get(code, 1)) from None
    except KeyboardInterrupt:
        raise typer.Exit(128 + signal.SIGINT) from None


def require_storage(settings: ShellSettings) -> None:
    """Raises StorageUnavailable if SQLite's file is not there: a command that reads must not create it."""
    path = settings.storage.path
    if settings.database_url is None and not path.exists():
        raise StorageUnavailable(f"{path} is not there: no bot has used it yet.")


def checked_role(name: str) -> str:
    """Returns a role that was given with `--as`.

    Raises:
        BadInput: empty, longer than 80 characters, or with invisible characters.
    """
    if not is_role(name):
        raise BadInput(f"--as: expected a role of 1 to {ROLE_LIMIT} printable characters, such as architect.")
    return name


async def supervised(
    work: Coroutine[Any, Any, None], signals: Sequence[signal.Signals] = _SIGNALS
) -> int | None:
    """Do the work; a signal cancels it and whatever it started. Returns the signal's number."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    caught: list[int] = []

    def stop(number: int) -> None:
        caught.append(number)
        task.cancel()

    for number in signals:
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not caught:
            raise
    return caught[0] if caught and task.cancelled() else None


@asynccontextmanager
async def open_shell(config: Path | None, out: Output, *, creates: bool) -> AsyncIterator[Shell]:
    """Opens the shell by `config` (default: clarify.toml in this folder, if it exists).

    Raises:
        ConfigurationError: the file cannot be used. StorageError: the database cannot be used.
    """
    settings = load_shell_settings(config, read_environment())
    if not creates:
        require_storage(settings)
    async with _ledgers(settings, out.note) as (ledger, store):
        listeners: list[Callable[[Clarification], None]] = []
        between_agents: list[Clarification] = []

        def changed(record: Clarification) -> None:
            if agent_key(record.to) != HUMAN:
                between_agents.append(record)
            for listener in tuple(listeners):
                listener(record)

        router = Router(ledger, store.clock, settings.monitor.sla, changed, patience=PATIENCE)
        may_accept = settings.shell.consent and await store.shell_consents()
        shell = Shell(
            settings,
            router,
            ledger,
            store,
            store.clock,
            may_accept,
            os_identity(),
            out,
            listeners,
            between_agents,
        )
        try:
            yield shell
        finally:
            await shell.settle()


def _open_ones(ledger: Ledger) -> Callable[[], list[Clarification]]:
    """Returns a function that reads the records that need something; call that in a thread."""
    loop = asyncio.get_running_loop()

    async def read() -> list[Clarification]:
        return [record async for some in ledger.every(waiting=True) for record in some.records]

    return lambda: asyncio.run_coroutine_threadsafe(read(), loop).result()


@asynccontextmanager
async def _ledgers(
    settings: ShellSettings, note: Callable[[str], None]
) -> AsyncIterator[tuple[Ledger, Store]]:
    """Opens the ledgers and the database that they are in. Creates a missing SQLite file, with a note, since it may be the
    wrong place.

    Raises:
        StorageError: it cannot be opened.
    """
    from bot.routing import Audiences  # noqa: PLC0415 - as above
    from bot.show.messages import owe_card  # noqa: PLC0415 - hooks ask over HTTP, and start fast
    from bot.signing import StoredKeys  # noqa: PLC0415 - as above
    from bot.storage.ledger import DatabaseLedger  # noqa: PLC0415 - as above
    from bot.storage.opening import open_storage  # noqa: PLC0415 - as above

    url, path = settings.database_url, settings.storage.path
    is_new = url is None and not path.exists()
    store = await open_storage(url or path, beside=True)
    if is_new:
        note(f"Created an empty database at {path}.")
    try:
        ledger = DatabaseLedger(store)
        ledger.receipts = StoredKeys(settings.storage.path, url)
        if settings.file is not None:
            ledger.owes = partial(owe_card, Audiences(settings))
        yield ledger, store
    finally:
        await store.close()


def seconds_of(text: str | None, option: str = "--timeout") -> float | None:
    """Returns an option such as `--timeout` in seconds, or None if not given.

    Raises:
        BadInput: not a duration.
    """
    if text is None:
        return None
    try:
        return duration(text).total_seconds()
    except ValueError:
        raise BadInput(f"{option} {text[:40]!r}: expected a duration such as 90s, 30m or 1h30m.") from None


async def answered(shell: Shell, record: Clarification, seconds: float | None) -> Clarification:
    """Returns the record once its current round has an answer.

    Raises:
        Closed, Superseded: it was closed, or got a new round, without an answer.
        AgentError: the time is over; a responder failed, and people have the question now.
        WaitedTooLong: the time is over.
    """
    async with _responding(shell, record):
        try:
            return await shell.hub.wait(record.id, timeout=seconds, round=record.round)
        except TimeoutError:
            now = await shell.ledger.find(record.id)
            said = failure(now)
            if said is not None:
                raise AgentError(
                    f"{said} {record.id} was escalated to people and has no answer yet."
                ) from None
            raise WaitedTooLong(
                f"{record.id} has no answer after {seconds:g} s; it stays {now.status}."
            ) from None


def failure(record: Clarification) -> str | None:
    """Returns how a responder failed, if the question was escalated for that, else None."""
    if record.status != "escalated" or record.attention.escalated_for != "agent failed":
        return None
    said = next((entry.body for entry in reversed(record.thread) if entry.type == "escalation"), "")
    return (said.splitlines() or [""])[0].removeprefix(f"{AgentError.code}: ")


def is_served_here(shell: Shell, record: Clarification) -> bool:
    """Whether the target has a responder that this command must run, since no bot does."""
    kinds = {agent_key(role): each.kind for role, each in shell.settings.responders.items()}
    kind = kinds.get(agent_key(record.to))
    return kind in {"command", "http"} and not shell.has_bot


@asynccontextmanager
async def _responding(shell: Shell, record: Clarification) -> AsyncIterator[None]:
    """Runs the target's responder during the block, unless a bot does."""
    if not (record.is_open and is_served_here(shell, record)):
        yield
        return
    from bot.responders import responders_of  # noqa: PLC0415 - brings an HTTP client

    settings = shell.settings
    key = agent_key(record.to)
    asked = {role: table for role, table in settings.responders.items() if agent_key(role) == key}
    try:
        responders = responders_of(asked, settings.by_variable, settings.folder)
    except ConfigurationError as error:
        shell.out.note(f"{error}; waiting for someone else to answer.")
        yield
        return
    dispatcher = Dispatcher(
        responders=responders,
        router=shell.router,
        ledger=shell.ledger,
        clock=shell.clock,
        working=shell.watchers.working,
    )

    def heard(changed: Clarification) -> None:
        shell.watchers.record_changed(changed)
        if changed.id == record.id:
            dispatcher.record_changed(changed)
            if (said := failure(changed)) is not None:
                shell.out.note(f"{said} Escalated to people; still waiting.")

    dispatcher.record_changed(record)
    shell.listeners.append(heard)
    try:
        async with _beside(dispatcher.run(), shell.watchers.run()):
            yield
    finally:
        shell.listeners.remove(heard)


@asynccontextmanager
async def _beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs `work` during the block; an error in it ends the block, too."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
            yield
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as broken:
        raise broken.exceptions[0] from None
