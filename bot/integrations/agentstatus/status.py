"""The agent-status file of the Clarification Protocol (§6.2), for programs: which agents wait, and which answer.

Other implementations write it too, perhaps in place, under a lock marker as for ledgers. Their agents and fields are kept; a
file that is no JSON object under the lock is quarantined.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.clarification import HUMAN, ID, agent_key
from core.clock import Clock, backoff, iso
from core.errors import LedgerUnwritable, LockTimeout, StatusUnavailable
from core.files import make_folder, quarantine, reason, replacing
from core.locks import HeldLock, Locks
from core.summary import Seen

_log = logging.getLogger("clarify.status")
BLOCKED, CLARIFYING = "blocked-clarification", "clarifying"
StatusEntry = dict[str, Any]
Entries = dict[str, Any]  # by agent; others may have written something else than a `StatusEntry`
_FREE: StatusEntry = {"status": "working", "clarificationId": None, "waitingOn": None, "respondingTo": None}
_BETWEEN = 0.25  # seconds between two writes: others that wait for the lock back off by 200 ms or more
_FIRST_RETRY, _LONGEST_RETRY = 1.0, 60.0


class StatusFile:
    """The agent-status file at `path`: which agents wait, and which answer.

    A requester is blocked while it has an open blocking clarification with an agent. Its target is clarifying while a
    responder works on it, or while people answer for that role (`roles_of_people`).
    """

    def __init__(
        self,
        path: Path,
        known: Callable[[], Iterable[Seen]],
        roles_of_people: Collection[str],
        clock: Clock,
        *,
        mode: int = 0o600,
        patience: float = 2.0,
    ) -> None:
        """`known` returns all open clarifications; called in a thread. `mode`: of a new file; `patience`: seconds to wait
        for its lock.
        """
        self.path = path
        self._known = known
        self._people = frozenset(map(agent_key, roles_of_people)) - {HUMAN}
        self._clock = clock
        self._mode = mode
        self._patience = patience
        self._locks = Locks(path.parent, mode)
        self._responding: set[tuple[str, int]] = set()  # clarifications and rounds that responders work on
        self._shown: dict[str, StatusEntry] | None = None
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()

    def record_changed(self, record: Seen) -> None:
        """Schedule a write if the clarification is between agents."""
        if _is_agent(record.to):
            self._wake.set()

    def working(self, record: Seen, begun: bool) -> None:  # noqa: FBT001 - a callback's signature
        """Note that a responder began work on a clarification's round, or ended it."""
        change = self._responding.add if begun else self._responding.discard
        change((record.id, record.round))
        self._wake.set()

    async def run(self) -> None:
        """Write at once and after every change, until cancelled. Retries failed writes, first after a second."""
        failures = 0
        while True:
            try:
                await self._write()
            except StatusUnavailable as error:
                if not failures:
                    _log.warning("agent status delayed: %s", error)
                await self._clock.sleep(backoff(failures, first=_FIRST_RETRY, longest=_LONGEST_RETRY))
                failures += 1
            else:
                failures = 0
                await self._clock.sleep(_BETWEEN)
                await self._wake.wait()

    async def settle(self) -> None:
        """Write once. Only logs errors."""
        try:
            await self._write()
        except StatusUnavailable as error:
            _log.warning("agent status not written: %s", error)

    async def close(self) -> None:
        """Write what is owed, and end."""
        if self._wake.is_set():
            await self.settle()
        self._locks.close()

    async def _write(self) -> None:
        async with self._turn:
            self._wake.clear()
            try:
                await asyncio.to_thread(self._update)
            except BaseException:
                self._wake.set()
                raise

    def _update(self) -> None:
        """Update the file, unless nothing changed since we wrote it."""
        if self._shown == self._doing(self._open()):
            return
        with self._held() as held:
            open_ones = self._open()
            doing = self._doing(open_ones)
            entries = self._read(held)
            if news := self._news(entries, doing, open_ones):
                with replacing(self.path, self._encode(entries | news), self._locks.private, self._mode):
                    self._check(held)  # as late as possible
            self._shown = doing

    def _open(self) -> list[Seen]:
        return sorted(
            (each for each in self._known() if each.is_open), key=lambda each: (each.asked_last, each.id)
        )

    def _doing(self, open_ones: list[Seen]) -> dict[str, StatusEntry]:
        """The entries of agents that wait or answer, by name. The oldest clarification counts, and waiting before answering."""
        responding = frozenset(self._responding)
        spelled: dict[str, str] = {}
        waits: dict[str, Seen] = {}
        answers: dict[str, Seen] = {}
        for each in open_ones:
            if not _is_agent(each.to):
                continue
            if each.blocking and _is_agent(each.from_):
                waits.setdefault(_key(each.from_, spelled), each)
            for_people = each.is_with_target and agent_key(each.to) in self._people
            if for_people or (each.id, each.round) in responding:
                answers.setdefault(_key(each.to, spelled), each)
        doing = {key: _entry(BLOCKED, each) | {"waitingOn": each.to} for key, each in waits.items()}
        for key, each in answers.items():
            doing.setdefault(key, _entry(CLARIFYING, each))["respondingTo"] = each.from_
        return {spelled[key]: entry for key, entry in doing.items()}

    def _news(self, entries: Entries, doing: Mapping[str, StatusEntry], open_ones: list[Seen]) -> Entries:
        """The entries to change, by their names in the file. A status is reset only if its clarification is over, or if this
        process wrote it.
        """
        spelled = {agent_key(name): name for name in reversed(entries)}
        wanted = {spelled.get(agent_key(agent), agent): entry for agent, entry in doing.items()}
        ours = {(agent_key(agent), entry["clarificationId"]) for agent, entry in (self._shown or {}).items()}
        still = {(BLOCKED, each.id) for each in open_ones}
        still |= {(CLARIFYING, each.id) for each in open_ones if each.is_with_target}
        for name, entry in entries.items():
            if name in wanted or not isinstance(entry, dict):
                continue
            status, named = entry.get("status"), entry.get("clarificationId")
            if status not in (BLOCKED, CLARIFYING) or not isinstance(named, str) or not ID.fullmatch(named):
                continue
            if (status, named) not in still or (agent_key(name), named) in ours:
                wanted[name] = _FREE | {"issue": entry.get("issue")}
        at = iso(self._clock.now())
        news: Entries = {}
        for name, fields in wanted.items():
            entry = entries.get(name, {})
            if isinstance(entry, dict) and not fields.items() <= entry.items():
                news[name] = {**entry, **fields, "lastActivity": at}
        return news

    @contextmanager
    def _held(self) -> Iterator[HeldLock]:
        try:
            make_folder(self._locks.private)
            with self._locks.hold_file(self.path.stem, 0, self._patience) as held:
                yield held
        except LockTimeout:
            why = f"it could not be locked within {self._patience:.1f} s"
            raise StatusUnavailable(self.path.name, why) from None
        except (LedgerUnwritable, OSError) as error:
            refused = error if isinstance(error, OSError) else error.__cause__
            why = reason(refused) if isinstance(refused, OSError) else "its lock file"
            raise StatusUnavailable(self.path.name, why) from error

    def _check(self, held: HeldLock) -> None:
        """Raises StatusUnavailable if the lock was lost, as after a long suspend."""
        if not held.is_there():
            raise StatusUnavailable(self.path.name, "its lock was lost while this process slept")

    def _read(self, held: HeldLock) -> Entries:
        """The file's entries by agent. Quarantines a file that is no JSON object."""
        try:
            entries = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except (ValueError, RecursionError):
            entries = None
        if isinstance(entries, dict):
            return entries
        self._check(held)  # without the lock, another process may be half way through writing it
        quarantined = quarantine(self.path)
        if quarantined is None:
            raise StatusUnavailable(self.path.name, "it is not a JSON object and cannot be quarantined")
        _log.error("%s is not a JSON object; quarantined as %s", self.path.name, quarantined.name)
        return {}

    def _encode(self, entries: Entries) -> bytes:
        try:
            return json.dumps(entries).encode()
        except RecursionError:
            raise StatusUnavailable(self.path.name, "others' fields are nested too deeply") from None


def _entry(status: str, of: Seen) -> StatusEntry:
    return _FREE | {"status": status, "issue": of.issue_number, "clarificationId": of.id}


def _is_agent(name: str) -> bool:
    return agent_key(name) not in {"", HUMAN}


def _key(agent: str, spelled: dict[str, str]) -> str:
    key = agent_key(agent)
    spelled.setdefault(key, agent)
    return key
