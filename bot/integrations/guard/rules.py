"""Decides what becomes of a call: deny, ask or allow, by the rules of a guard. Pure."""

from __future__ import annotations

import difflib
import json
import operator
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from bot.integrations.guard.settings import GuardSettings, Risk, RuleSettings, Verdict, comparison
from core.errors import BadInput
from core.names import whole_characters
from core.receipts import canonical, digest

PLAIN = re.compile(r"[A-Za-z0-9_./-]+")
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_RISKS: tuple[Risk, ...] = ("low", "medium", "high")
CHANGED = "pin"


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as its server defines it. `definition`: what people see of it; `fingerprint`: the digest of that."""

    name: str
    definition: Mapping[str, Any] = field(repr=False)
    fingerprint: str = ""

    @classmethod
    def read(cls, given: object) -> Tool:
        """Raises BadInput if it is no definition."""
        if not isinstance(given, dict) or not isinstance(name := given.get("name"), str) or not name:
            raise BadInput("A tool's definition must be an object with a `name`.")
        if "\0" in name or whole_characters(name) != name:
            raise BadInput("A tool's name must be text.")
        schema, annotations = given.get("inputSchema"), given.get("annotations") or {}
        description = given.get("description") or ""
        if (
            not isinstance(schema, dict)
            or not isinstance(annotations, dict)
            or not isinstance(description, str)
        ):
            raise BadInput(
                "A tool's definition needs an `inputSchema`, and may have `description` and `annotations`."
            )
        definition = {"description": description, "inputSchema": schema, "annotations": annotations}
        try:
            return cls(name, definition, digest(canonical(definition)))
        except (ValueError, RecursionError):
            raise BadInput(
                "A tool's definition cannot be read: it is no JSON, or nested too deeply."
            ) from None

    @property
    def schema(self) -> dict[str, Any]:
        return dict(self.definition["inputSchema"])


@dataclass(frozen=True, slots=True)
class Judged:
    """What becomes of a call. `rule`: which one says so; `risk`: of a call that is held."""

    verdict: Verdict
    rule: str
    risk: Risk = "medium"


def judge(
    rules: GuardSettings, tool: Tool, arguments: Mapping[str, Any] | None, *, is_changed: bool = False
) -> Judged:
    """Returns what becomes of a call. `arguments`: None: any, so a rule that may match does. `is_changed`: the tool is not as a
    person last saw it.
    """
    for pattern in rules.deny:
        if fnmatchcase(tool.name, pattern):
            return Judged("deny", f'deny "{pattern}"')
    asking = [rule for rule in rules.ask if _matches(rule, tool.name, arguments)]
    if asking:
        risks = [each.risk for each in asking if each.risk is not None]
        return Judged("ask", _named(asking[0]), _risk(tool, risks))
    is_plain = PLAIN.fullmatch(tool.name) is not None
    found = next((each for each in rules.allow if is_plain and fnmatchcase(tool.name, each)), None)
    verdict: Verdict = rules.other if found is None else "allow"
    rule_name = f'other = "{rules.other}"' if found is None else f'allow "{found}"'
    if verdict == "allow" and not is_plain:
        return Judged("ask", "odd name", _risk(tool, []))
    if verdict == "allow" and is_changed and rules.pin:
        return Judged("ask", CHANGED, _risk(tool, []))
    return Judged(verdict, rule_name, _risk(tool, []))


def _named(rule: RuleSettings) -> str:
    """Returns a rule as people know it from the file."""
    where = ", ".join(f"{name} {value}" for name, value in rule.where.items())
    return f'ask "{rule.tool}"' + (f" where {where}" if where else "")


def _risk(tool: Tool, said: list[Risk]) -> Risk:
    if tool.definition["annotations"].get("destructiveHint") is True:
        return "high"
    return max(said, key=_RISKS.index, default="medium")


def _matches(rule: RuleSettings, tool: str, arguments: Mapping[str, Any] | None) -> bool:
    if not fnmatchcase(tool, rule.tool):
        return False
    return arguments is None or all(_holds(name, wanted, arguments) for name, wanted in rule.where.items())


def _holds(name: str, wanted: object, arguments: Mapping[str, Any]) -> bool:
    """Whether a condition holds, or cannot be judged: some servers take an argument's name in any case, or as an alias such as
    `maxAmount` for `max_amount`, and then read another one than we do.
    """
    alike = [each for each in arguments if _letters(each) == _letters(name)]
    if alike != [name]:
        return True
    value = arguments[name]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if isinstance(wanted, bool):
        return not isinstance(value, bool) or value == wanted
    if isinstance(wanted, (int, float)):
        return not is_number or value == wanted
    text = str(wanted)
    if (compared := comparison(text)) is not None:
        return not is_number or _OPERATORS[compared[0]](value, compared[1])
    return (
        not isinstance(value, str) or fnmatchcase(value, text) or fnmatchcase(_folded(value), _folded(text))
    )


def _folded(text: str) -> str:
    """Returns text as servers that ignore case, space around it and forms of characters read it."""
    return unicodedata.normalize("NFKC", text).casefold().strip()


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, _folded(name)))


def difference(before: str, tool: Tool) -> str:
    """Returns the lines of a definition that changed. `before`: the earlier one, as `shown` returns it."""
    lines = difflib.unified_diff(
        before.splitlines(), shown(tool).splitlines(), "before", "now", lineterm="", n=1
    )
    return "\n".join(lines)


def shown(tool: Tool) -> str:
    """Returns a definition as text, the same for the same definition."""
    return json.dumps(tool.definition, indent=1, sort_keys=True, ensure_ascii=False)
