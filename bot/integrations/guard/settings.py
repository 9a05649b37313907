"""The tables `[[guard]]`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from bot.api import Duration, SettingsTable

_COMPARISON = re.compile(r"(<=|>=|==|!=|<|>)\s*(-?\d+(?:\.\d+)?)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
Verdict = Literal["allow", "ask", "deny"]
Risk = Literal["low", "medium", "high"]
Pattern = Annotated[str, Field(min_length=1, max_length=200)]


def comparison(text: str) -> tuple[str, float] | None:
    """Returns the operator and the number of a condition such as "> 1000"; None: it is a pattern for text."""
    found = _COMPARISON.fullmatch(text.strip())
    return (found[1], float(found[2])) if found else None


def _condition(value: str | float | bool) -> str | float | bool:  # noqa: FBT001 - pydantic's
    if isinstance(value, str) and value.lstrip()[:1] in {"<", ">", "=", "!"} and comparison(value) is None:
        raise ValueError('expected an operator and a number, such as "> 1000", or a pattern for text')
    return value


def _rule(value: Any) -> Any:
    return {"tool": value} if isinstance(value, str) else value


def _guard_name(value: str) -> str:
    if not _NAME.fullmatch(value) or value == "doubts":
        raise ValueError('expected letters, digits, "-" and "_"; not "doubts"')
    return value


Condition = Annotated[bool | int | float | str, AfterValidator(_condition)]


class RuleSettings(SettingsTable):
    """Which calls a rule is about."""

    tool: Pattern
    """The tool's name, as a pattern."""
    where: dict[str, Condition] = Field(default={})
    """By argument: "> 1000" and the like for a number, a pattern for text, or a value. All of them must hold. An argument that is
    missing, or is of another type, counts as if its condition held.
    """
    risk: Risk | None = None
    """How much damage a mistake would do; without it, `medium`. It is `high` for all tools that say that they destroy something."""


class GuardSettings(SettingsTable):
    """Holds calls of an MCP server's tools until a person approved them."""

    name: Annotated[str, AfterValidator(_guard_name)]
    """What commands, cards and the log call it."""
    producers: Annotated[tuple[str, ...], Field(min_length=1)]
    """Which producers may use it, by name. A producer that has no table is called `local`."""
    deny: tuple[Pattern, ...] = ()
    """Tools that are never called, by name, with `*`, `?` and `[…]`. Case counts."""
    ask: tuple[Annotated[RuleSettings, BeforeValidator(_rule)], ...] = ()
    """Tools whose calls need an approval, if `deny` does not name them: patterns, or tables."""
    allow: tuple[Pattern, ...] = ()
    """Tools whose calls pass without an approval, if neither `deny` nor `ask` names them."""
    other: Verdict = "ask"
    """What becomes of all other calls. Only with "allow" do requests pass that are not in the protocol."""
    timeout: Annotated[Duration, Field(ge=timedelta(seconds=1), le=timedelta(days=30))] = timedelta(hours=1)
    """How long people have to decide. After that, the call is not made."""
    wait: Annotated[Duration, Field(ge=timedelta(seconds=1), le=timedelta(hours=1))] = timedelta(seconds=45)
    """How long a call waits for them. After that, the agent is told to go on waiting with the tool `wait_for_call`."""
    pin: bool = True
    """Whether a tool whose description or schema changed since a person last saw it needs an approval, even if `allow` names it."""


def each_once(tables: tuple[GuardSettings, ...]) -> tuple[GuardSettings, ...]:
    """Refuses a name that stands twice."""
    names = [each.name for each in tables]
    for number, name in enumerate(names):
        if (first := names.index(name)) != number:
            raise ValueError(f"[{number}].name: duplicates that of guard[{first}]")
    return tables
