"""Decides by the workflow files which agent may ask which: guards 1 and 2 of the Clarification Protocol (§7).

A workflow is a TOML file with `[[steps]]`. These keys of a step are read here, others are ignored:

    agent = "engineer"              the role that asks
    can_clarify = ["architect"]     whom it may ask; default: no agent
    clarify_max_rounds = 5          default: 5 if it waits for the answer, 6 if not
    clarify_sla_minutes = 30        default: as configured for the monitor
    clarify_blocking_allowed = true whether it may wait for the answer
"""

from __future__ import annotations

import logging
import re
import threading
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from core.clarification import HUMAN, LONGEST_SLA, agent_key, one_line
from core.errors import BlockingNotAllowed, ScopeViolation

_log = logging.getLogger("clarify.workflow")
ROLE_LIMIT = 80
CONTROLS = (
    r"\x00-\x1f\x7f-\x9f\u2028\u2029"  # in a class of a regular expression: control characters, line breaks
)
ROUNDS_BLOCKING, ROUNDS = 5, 6
_MOST_ROUNDS = 100
_CONTROL = re.compile(f"[{CONTROLS}]")
_WHERE = re.compile(r"\(at (line \d+, column \d+|end of document)\)$")


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits of a request. `sla`: the time to the first nudge; None: the configured one."""

    max_rounds: int
    sla: timedelta | None


@dataclass(frozen=True, slots=True)
class WorkflowStep:
    """One step of a workflow whose agent may ask others."""

    agent: str
    can_clarify: tuple[str, ...]
    max_rounds: int | None
    sla: timedelta | None
    blocking_allowed: bool

    def limits(self, *, blocking: bool) -> RequestLimits:
        return RequestLimits(self.max_rounds or _rounds(blocking=blocking), self.sla)


@dataclass(frozen=True, slots=True)
class _WorkflowFile:
    """A workflow file as read. `content`: None: it cannot be read, or is not TOML."""

    content: bytes | None
    steps: tuple[WorkflowStep, ...]
    problems: tuple[str, ...]


class Scopes:
    """The workflows of a folder: its `*.toml` files, checked for changes on every call.

    If several steps name the same agent, it may ask all of their targets, within the limits of the first step that allows it
    (files by name, steps in their order). If a file becomes unreadable, its last readable content counts. Names are compared
    without regard to case and spaces. Methods block while they list the folder; thread-safe.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` need not exist: then there are no workflows."""
        self._folder = folder
        self._files: dict[str, _WorkflowFile] = {}
        self._folder_problem: str | None = None
        self._guard = threading.Lock()

    def check(self, asker: str, target: str, *, blocking: bool) -> RequestLimits:
        """The limits of a request. Every agent may ask a human.

        Raises:
            BlockingNotAllowed: it may ask, but not wait for the answer.
            ScopeViolation: it may not ask; names the roles that it may ask.
        """
        steps = self._steps_of(asker)
        key = agent_key(target)
        allowing = [step for step in steps if key in map(agent_key, step.can_clarify)]
        fitting = [step for step in allowing if step.blocking_allowed or not blocking]
        if fitting:
            return fitting[0].limits(blocking=blocking)
        if key == HUMAN:
            return RequestLimits(_rounds(blocking=blocking), None)
        allowed = _targets(steps)
        if allowing:
            raise BlockingNotAllowed(self._may_not_wait(asker, target), allowed)
        raise ScopeViolation(self._may_not_ask(asker, target, allowed), allowed)

    def allowed(self, asker: str) -> tuple[str, ...]:
        """The roles that `asker` may ask, besides people, as its steps write them."""
        return _targets(self._steps_of(asker))

    @property
    def problems(self) -> tuple[str, ...]:
        """The invalid parts of the files: file, step, key and what was expected, without quoting the files."""
        return tuple(problem for file in self._look() for problem in file.problems) + self._of_folder()

    def _of_folder(self) -> tuple[str, ...]:
        return () if self._folder_problem is None else (self._folder_problem,)

    def _steps_of(self, asker: str) -> list[WorkflowStep]:
        key = agent_key(asker)
        return [step for file in self._look() for step in file.steps if agent_key(step.agent) == key]

    def _may_not_ask(self, asker: str, target: str, allowed: tuple[str, ...]) -> str:
        which = (
            f"its workflow allows only {', '.join(allowed)}"
            if allowed
            else "no workflow allows it to ask anyone"
        )
        return f"{role_name(asker)} may not ask {role_name(target)}: {which}.{self._unusable()}"

    def _may_not_wait(self, asker: str, target: str) -> str:
        return (
            f"{role_name(asker)} may ask {role_name(target)}, but its workflow does not allow blocking "
            f"questions. Ask without blocking.{self._unusable()}"
        )

    def _unusable(self) -> str:
        """A sentence about the unreadable files, which may be the reason."""
        with self._guard:
            names = sorted(name for name, file in self._files.items() if file.problems)
        said = (
            f" These workflow files cannot be read in full: {', '.join(map(role_name, names))}."
            if names
            else ""
        )
        return said + (" The workflow folder cannot be read." if self._folder_problem else "")

    def _look(self) -> list[_WorkflowFile]:
        """The current files, sorted by name."""
        with self._guard:
            known = self._files
            try:
                paths = sorted(path for path in self._folder.iterdir() if _is_workflow(path))
            except FileNotFoundError:
                paths = []
            except OSError as error:
                self._folder_problem = f"The workflow folder cannot be read: {error.strerror}."
                return [known[name] for name in sorted(known)]
            self._folder_problem = None
            read = {path.name: _read(path, known.get(path.name)) for path in paths}
            self._files = {name: file for name, file in read.items() if file is not None}
            return list(self._files.values())


def is_role(text: str) -> bool:
    """Whether it can be the name of an agent's role: one line of 1 to 80 printable characters."""
    return bool(text.strip()) and len(text) <= ROLE_LIMIT and text.isprintable()


def _read(path: Path, known: _WorkflowFile | None) -> _WorkflowFile | None:
    """The current file, or `known` if it did not change; None if it is gone or no regular file."""
    try:
        if not path.is_file():
            return None
        content = path.read_bytes()
        if known is not None and known.content == content:
            return known
        raw = tomllib.loads(content.decode())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        counts = "the earlier version stays in force" if known and known.steps else "it is ignored"
        problem = f"{role_name(path.name)}: {_why(error)}; {counts}."
        if known is None or problem not in known.problems:
            _log.warning("invalid workflow file: %s", problem)
        return _WorkflowFile(None, known.steps if known else (), (problem,))
    steps, problems = _steps(path.name, raw)
    for problem in problems if known is None or known.problems != problems else ():
        _log.warning("invalid workflow file: %s", problem)
    return _WorkflowFile(content, steps, problems)


def _is_workflow(path: Path) -> bool:
    """Whether a path is a workflow file; editors' drafts begin with a dot."""
    return path.suffix == ".toml" and not path.name.startswith(".")


def _why(error: Exception) -> str:
    """The error in words, without the parser's message, which may quote the file."""
    if isinstance(error, OSError):
        return f"cannot be read ({error.strerror})"
    where = _WHERE.search(str(error))
    return "is not valid TOML" + (f" ({where.group(1)})" if where else "")


def _steps(name: str, raw: dict[str, Any]) -> tuple[tuple[WorkflowStep, ...], tuple[str, ...]]:
    items = raw.get("steps", [])
    if not isinstance(items, list):
        return (), (f"{role_name(name)}: steps: expected tables, [[steps]].",)
    steps: list[WorkflowStep] = []
    problems: list[str] = []
    for number, item in enumerate(items, 1):
        try:
            steps += _step(item)
        except _Unexpected as error:
            problems.append(f"{role_name(name)}: step {number}: {error}; the step is ignored.")
    return tuple(steps), tuple(problems)


class _Unexpected(Exception):
    """A key, and what was expected."""

    def __init__(self, key: str, expected: str) -> None:
        super().__init__(f"{key}: expected {expected}")


def _step(item: object) -> Iterator[WorkflowStep]:
    """The step, if it has any key about asking."""
    if not isinstance(item, dict):
        raise _Unexpected("steps", "a table, [[steps]]")
    if not any(key in item for key in _KEYS if key != "agent"):
        return
    for key, (fits, expected) in _KEYS.items():
        if (key in item or key == "agent") and not fits(item.get(key)):
            raise _Unexpected(key, expected)
    minutes = item.get("clarify_sla_minutes")
    yield WorkflowStep(
        agent=item["agent"],
        can_clarify=tuple(item.get("can_clarify", ())),
        max_rounds=item.get("clarify_max_rounds"),
        sla=None if minutes is None else timedelta(minutes=minutes),
        blocking_allowed=item.get("clarify_blocking_allowed", True),
    )


def _is_role(value: Any) -> bool:
    return isinstance(value, str) and is_role(value)


# The keys of a step, the check of its value, and the expected value in words.
_KEYS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "agent": (_is_role, f"a role of 1 to {ROLE_LIMIT} characters"),
    "can_clarify": (
        lambda value: isinstance(value, list) and all(map(_is_role, value)),
        'a list of roles, ["architect"]',
    ),
    "clarify_max_rounds": (
        lambda value: type(value) is int and 1 <= value <= _MOST_ROUNDS,
        f"a whole number from 1 to {_MOST_ROUNDS}",
    ),
    "clarify_sla_minutes": (
        lambda value: type(value) in {int, float} and 0 < value <= LONGEST_SLA,
        f"a number above 0, at most {LONGEST_SLA}",
    ),
    "clarify_blocking_allowed": (lambda value: isinstance(value, bool), "true or false"),
}


def _rounds(*, blocking: bool) -> int:
    return ROUNDS_BLOCKING if blocking else ROUNDS


def _targets(steps: list[WorkflowStep]) -> tuple[str, ...]:
    by_key: dict[str, str] = {}
    for role in (role for step in steps for role in step.can_clarify):
        by_key.setdefault(agent_key(role), role)
    return tuple(by_key.values())


def role_name(role: str) -> str:
    """A role as printable text on one line, at most 80 characters: others may write anything there."""
    return one_line("".join(char if char.isprintable() else " " for char in role), ROLE_LIMIT)


_FOR = ", for "  # between a subagent's name and the agent's that it works for


@dataclass(frozen=True, slots=True)
class Speaker:
    """A producer, and the patterns of the agents for which it may speak besides its own name; None: all."""

    producer: str
    agents: tuple[str, ...] | None = None

    def may_be(self, agent_id: str) -> bool:
        """Whether an event may name this agent; case counts, as in routes."""
        return self._may_be(agent_id, self.producer, self.agents)

    def may_be_role(self, role: str) -> bool:
        """Whether it may use this role, in any spelling."""
        patterns = self.agents and tuple(agent_key(pattern) for pattern in self.agents)
        return self._may_be(agent_key(role), agent_key(self.producer), patterns)

    @staticmethod
    def _may_be(name: str, own: str, patterns: tuple[str, ...] | None) -> bool:
        if patterns is None or name == own:
            return True
        # A pattern's `*` matches anything, but text after a line break would look like another agent's.
        return not _CONTROL.search(name) and (
            main_agent(name) == own or any(is_named(name, pattern) for pattern in patterns)
        )


def is_named(agent_id: str, pattern: str) -> bool:
    """Returns whether a pattern matches an agent; case matters. A subagent ("Explore, for coder") matches the patterns of the agent
    that it works for, and patterns that name both ("Explore, for *").
    """
    return fnmatchcase(agent_id if _FOR in pattern else main_agent(agent_id), pattern)


def main_agent(agent_id: str) -> str:
    """Returns the agent that a subagent ("Explore, for coder") works for; any other agent itself."""
    return agent_id.rpartition(_FOR)[2]
