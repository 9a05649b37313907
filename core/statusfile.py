"""The agent-status file: what each agent does, for all who work beside it (the Clarification Protocol's §6.2).

It is shared: others write it too, behind the same lock marker as the ledgers', and maybe in place. Their agents and
fields are kept, a file that is torn is read again under the lock, and one that is no JSON object is set aside.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from core.clock import Clock, iso
from core.deadlock import agent_key
from core.errors import LedgerUnwritable, LockTimeout, StatusUnavailable
from core.files import make_folder, reason, replacing, set_aside
from core.locks import Held, Locks

_log = logging.getLogger("clarify.status")
BLOCKED: Literal["blocked-clarification"] = "blocked-clarification"
CLARIFYING: Literal["clarifying"] = "clarifying"
Entries = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AgentState:
    """What an agent does. `waiting_on`, `responding_to`: agents.

    `ended`: clarifications that are over for it. What the file says of any other one is not taken back by "working",
    nor a wait by "clarifying".
    """

    status: Literal["working", "clarifying", "blocked-clarification"]
    issue: int | None = None
    clarification_id: str | None = None
    waiting_on: str | None = None
    responding_to: str | None = None
    ended: frozenset[str] = frozenset()


class StatusFile:
    """The file at `path`, whose folder exists. `patience`: for its lock, in seconds; `mode`: of a new one."""

    def __init__(self, path: Path, clock: Clock, patience: float = 2.0, mode: int = 0o600) -> None:
        self.path = path
        self._mode = mode
        self._clock = clock
        self._patience = patience
        self._locks = Locks(path.parent, mode)

    async def update(self, changes: Mapping[str, AgentState]) -> None:
        """Have the file say what these agents do. If it says so already, or has nothing to take back, it stays.

        Raises:
            StatusUnavailable: its lock was not had, or the disk refused; the file is as it was.
        """
        await asyncio.to_thread(self._update, changes)

    def read(self) -> Entries:
        """What the file says, by agent; nothing if there is none. Values are as others wrote them. Blocking.

        Raises:
            StatusUnavailable: it cannot be read, or is torn and its lock was not had.
        """
        entries = self._glance()
        if entries is None:
            with self._held() as held:
                entries = self._open(held)
        return entries

    def close(self) -> None:
        """Nothing may be under way any more."""
        self._locks.close()

    def _update(self, changes: Mapping[str, AgentState]) -> None:
        at = iso(self._clock.now())
        entries = self._glance()
        if entries is not None and not _news(entries, changes, at):
            return
        with self._held() as held:
            entries = self._open(held)
            if news := _news(entries, changes, at):
                with replacing(
                    self.path, _encode(self.path, entries | news), self._locks.private, self._mode
                ):
                    self._check(held)  # as late as can be

    @contextmanager
    def _held(self) -> Iterator[Held]:
        try:
            make_folder(self._locks.private)
            with self._locks.hold_file(self.path.stem, 0, self._patience) as held:
                yield held
        except LockTimeout:
            why = f"its lock was not had within {self._patience:.1f} s"
            raise StatusUnavailable(self.path.name, why) from None
        except (LedgerUnwritable, OSError) as error:
            refused = error if isinstance(error, OSError) else error.__cause__
            why = reason(refused) if isinstance(refused, OSError) else "its lock file"
            raise StatusUnavailable(self.path.name, why) from error

    def _glance(self) -> Entries | None:
        """What it says, read without its lock; None: torn, or not a status file."""
        try:
            return _decode(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError:
            return None
        except OSError as error:
            raise StatusUnavailable(self.path.name, reason(error)) from error

    def _check(self, held: Held) -> None:
        """This process may have slept for longer than a marker counts, and others went on."""
        if not held.is_there():
            raise StatusUnavailable(self.path.name, "its lock was lost while this process slept")

    def _open(self, held: Held) -> Entries:
        """What it says, under its lock."""
        entries = self._glance()
        if entries is not None:
            return entries
        self._check(held)  # else it may be half of what its holder is writing
        aside = set_aside(self.path)
        if aside is None:
            raise StatusUnavailable(self.path.name, "it is no JSON object, and cannot be set aside")
        _log.error("%s is no JSON object; it was set aside as %s", self.path.name, aside.name)
        return {}


def _decode(content: bytes) -> Entries:
    try:
        entries = json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(entries, dict):
        raise ValueError("no object")  # noqa: TRY004 - one error for "no status file"
    return entries


def _encode(path: Path, entries: Entries) -> bytes:
    for indent in (2, None):  # without one, it can be nested more deeply
        try:
            return json.dumps(entries, indent=indent).encode()
        except RecursionError:
            continue
    raise StatusUnavailable(path.name, "others' fields are nested too deeply")


def _news(entries: Entries, changes: Mapping[str, AgentState], at: str) -> Entries:
    """The agents' entries that have to be different, by their names in the file."""
    spelled = {agent_key(name): name for name in reversed(entries)}
    news: Entries = {}
    for agent, state in changes.items():
        name = agent if agent in entries else spelled.get(agent_key(agent), agent)
        entry = entries.get(name, {})
        if not isinstance(entry, dict):
            _log.debug("an agent's status has a form of its own, and stays")
        elif fields := _fields(entry, state):
            news[name] = {**entry, **fields, "lastActivity": at}
    return news


def _fields(entry: Entries, state: AgentState) -> Entries:
    """What has to be written into an agent's entry; nothing if it says so, or says what must not be taken back."""
    says, named = entry.get("status"), entry.get("clarificationId")
    is_over = isinstance(named, str) and named in state.ended
    if state.status == "working" and not (says in (BLOCKED, CLARIFYING) and is_over):
        return {}
    if state.status == CLARIFYING and says == BLOCKED and not is_over:
        return {}
    fields: Entries = {
        "status": state.status,
        "issue": entry.get("issue") if state.status == "working" else state.issue,
        "clarificationId": state.clarification_id,
        "waitingOn": state.waiting_on,
        "respondingTo": state.responding_to,
    }
    return {} if all(entry.get(key) == value for key, value in fields.items()) else fields
