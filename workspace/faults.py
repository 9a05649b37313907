"""What keeps a Web API call from going well: faults on demand.

A fault says what goes wrong, for which method, how many times:

| kind | what happens |
| --- | --- |
| `refuse:CODE` | nothing is done; the answer is `{"ok": false, "error": CODE}` |
| `delay:S` | S seconds pass, then the call is handled as usual |
| `accept_then_drop` | the call is done, then the connection is closed without an answer |
| `accept_then_delay:S` | the call is done, its answer comes S seconds later |
| `accept_then_error:CODE` | the call is done, the answer says that it failed with CODE |
| `drop` | nothing is done, the connection is closed without an answer |
| `429:S`, `429` | nothing is done; too many requests, with `Retry-After: S` or without the header |
| `5xx:STATUS` | nothing is done; the HTTP status, with a body that is not JSON; also for `response_url` |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

_S = r":\d+(\.\d+)?"
_KINDS = {
    "refuse": ":.+",
    "delay": _S,
    "accept_then_drop": "",
    "accept_then_delay": _S,
    "accept_then_error": ":.+",
    "drop": "",
    "429": f"({_S})?",
    "5xx": r":5\d*",
}


@dataclass
class Fault:
    """One fault; `method` may hold wildcards (`chat.*`); `channel` narrows it to calls on that channel."""

    method: str
    kind: str
    times: int = 1
    channel: str | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(_KINDS.get(self.name, "(?!)"), self.kind.removeprefix(self.name)):
            msg = f"fault {self.kind!r} for {self.method!r}: expected one of the kinds in workspace/faults.py"
            raise ValueError(msg)

    @property
    def name(self) -> str:
        return self.kind.partition(":")[0]

    @property
    def detail(self) -> str:
        return self.kind.partition(":")[2]


class Faults:
    """The faults that are still to happen, oldest first."""

    def __init__(self) -> None:
        self._pending: list[Fault] = []

    def add(self, method: str, kind: str, times: int = 1, channel: str | None = None) -> None:
        """Let the next `times` calls of `method` (on `channel`, if given) go wrong.

        Raises:
            ValueError: the kind is unknown.
        """
        self._pending.append(Fault(method, kind, times, channel))

    def take(self, method: str, channel: str | None = None) -> Fault | None:
        """The fault that this call meets, which is thereby used up once."""
        for fault in self._pending:
            if fnmatchcase(method, fault.method) and fault.channel in {None, channel}:
                fault.times -= 1
                if fault.times <= 0:
                    self._pending.remove(fault)
                return fault
        return None

    def clear(self) -> None:
        self._pending.clear()

    def pending(self) -> bool:
        """Whether some are still to happen."""
        return bool(self._pending)
