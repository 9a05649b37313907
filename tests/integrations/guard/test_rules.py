"""What becomes of a call, by the rules of a guard."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from bot.integrations.guard import integration
from bot.integrations.guard.rules import Tool, difference, judge, shown
from bot.integrations.guard.settings import GuardSettings
from core.errors import BadInput


def rules(**more: Any) -> GuardSettings:
    return GuardSettings.model_validate({"name": "prod", "producers": ("local",)} | more)


def tool(name: str = "transfer", **more: Any) -> Tool:
    return Tool.read({"name": name, "inputSchema": {"type": "object"}} | more)


MIXED: dict[str, Any] = {
    "deny": ("drop_*", "both"),
    "ask": ("delete_*", "both", "asks"),
    "allow": ("get_*", "both", "asks", "*x"),
}


@pytest.mark.parametrize(
    ("name", "verdict", "rule"),
    [
        ("drop_table", "deny", 'deny "drop_*"'),
        ("both", "deny", 'deny "both"'),
        ("asks", "ask", 'ask "asks"'),
        ("delete_user", "ask", 'ask "delete_*"'),
        ("get_user", "allow", 'allow "get_*"'),
        ("GET_user", "ask", 'other = "ask"'),
        ("Drop_table", "ask", 'other = "ask"'),
        ("get_us\u0435r", "ask", 'other = "ask"'),
        ("get_ user", "ask", 'other = "ask"'),
        ("get_\nx", "ask", 'other = "ask"'),
        ("get_x\n", "ask", 'other = "ask"'),
        ("a/b.c-x", "allow", 'allow "*x"'),
    ],
)
def test_deny_comes_before_ask_and_ask_before_allow(name: str, verdict: str, rule: str) -> None:
    found = judge(rules(**MIXED), tool(name), {})
    assert (found.verdict, found.rule) == (verdict, rule)


@pytest.mark.parametrize(
    ("other", "name", "verdict"),
    [("allow", "x", "allow"), ("allow", "\u0445", "ask"), ("deny", "x", "deny"), ("deny", "\u0445", "deny")],
)
def test_other_is_for_what_no_rule_names(other: str, name: str, verdict: str) -> None:
    assert judge(rules(other=other), tool(name), {}).verdict == verdict


@pytest.mark.parametrize(
    ("wanted", "arguments", "asks"),
    [
        ("> 1000", {"amount": 1001}, True),
        ("> 1000", {"amount": 1000}, False),
        ("> 1000", {"amount": 1000.5}, True),
        (">= 1000", {"amount": 1000}, True),
        ("< -1.5", {"amount": -2}, True),
        ("<= 3", {"amount": 4}, False),
        ("== 3", {"amount": 3.0}, True),
        ("!= 3", {"amount": 3}, False),
        ("> 1000", {}, True),
        ("> 1000", {"amount": "5"}, True),
        ("> 1000", {"amount": None}, True),
        ("> 1000", {"amount": True}, True),
        ("> 1000", {"amount": [5]}, True),
        ("> 1000", {"Amount": 5}, True),
        ("> 1000", {"amount": 5, "Amount": 5000}, True),
        ("> 1000", {"amount": 5, "AMOUNT": 5}, True),
        ("> 1000", {"amount": 10**400}, True),
        (7, {"amount": 7}, True),
        (7, {"amount": 8}, False),
        (7, {"amount": "8"}, True),
        (True, {"amount": True}, True),
        (True, {"amount": False}, False),
        (True, {"amount": 0}, True),
        ("prod*", {"amount": "production"}, True),
        ("prod*", {"amount": "staging"}, False),
        ("prod*", {"amount": 5}, True),
    ],
)
def test_condition_that_cannot_be_judged_counts_as_if_it_held(
    wanted: Any, arguments: dict[str, Any], asks: bool
) -> None:
    found = judge(
        rules(ask=({"tool": "transfer", "where": {"amount": wanted}},), allow=("transfer",)),
        tool(),
        arguments,
    )
    assert found.verdict == ("ask" if asks else "allow")


def test_all_conditions_must_hold_and_any_arguments_may_fulfil_them() -> None:
    both = rules(ask=({"tool": "*", "where": {"a": "> 1", "b": "x"}},), allow=("*",))
    assert judge(both, tool(), {"a": 2, "b": "y"}).verdict == "allow"
    assert judge(both, tool(), {"a": 2, "b": "x"}).verdict == "ask"
    assert judge(both, tool(), None).verdict == "ask"


@pytest.mark.parametrize(
    ("risks", "annotations", "risk"),
    [
        ((None,), {}, "medium"),
        (("low",), {}, "low"),
        (("low", "high"), {}, "high"),
        (("low",), {"destructiveHint": True}, "high"),
        ((None,), {"destructiveHint": "yes"}, "medium"),
        (("high",), {"readOnlyHint": True}, "high"),
        ((None,), {"readOnlyHint": True}, "medium"),
    ],
)
def test_risk_is_the_highest_that_a_rule_or_the_tool_names(risks: Any, annotations: Any, risk: str) -> None:
    asking = rules(ask=tuple({"tool": "*", "risk": each} for each in risks))
    assert judge(asking, tool(annotations=annotations), {}).risk == risk


def test_tool_that_changed_asks_though_it_is_allowed() -> None:
    pinned, loose = rules(allow=("*",)), rules(allow=("*",), pin=False)
    assert judge(pinned, tool(), {}, is_changed=True).rule == "pin"
    assert judge(loose, tool(), {}, is_changed=True).verdict == "allow"
    assert judge(rules(deny=("*",)), tool(), {}, is_changed=True).verdict == "deny"


@pytest.mark.parametrize(
    "change",
    [
        {"description": "b"},
        {"inputSchema": {"type": "object", "x": 1}},
        {"annotations": {"readOnlyHint": True}},
    ],
)
def test_change_of_what_a_person_is_told_is_seen(change: dict[str, Any]) -> None:
    before, after = tool(description="a"), tool(**{"description": "a"} | change)
    assert before.fingerprint != after.fingerprint
    assert "\n+" in difference(shown(before), after)


def test_tool_with_the_same_definition_has_not_changed() -> None:
    one = tool(description="a", inputSchema={"a": 1, "b": [1.5]}, title="x")
    other = tool(inputSchema={"b": [1.5], "a": 1}, description="a", icons=[])
    assert (one.fingerprint, shown(one)) == (other.fingerprint, shown(other))


@pytest.mark.parametrize(
    "given",
    [None, [], {}, {"name": ""}, {"name": 1}, {"name": "x"}, {"name": "x", "inputSchema": []}]
    + [
        {"name": "x", "inputSchema": {}, key: value}
        for key, value in (("description", 1), ("annotations", ["x"]))
    ]
    + [{"name": "x", "inputSchema": {"a": "\ud800"}}, {"name": "x", "inputSchema": {"a": float("nan")}}],
)
def test_definition_that_cannot_be_read_is_refused(given: Any) -> None:
    with pytest.raises(BadInput):
        Tool.read(given)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"name": "a b"}, "expected letters"),
        ({"name": "doubts"}, "not "),
        ({"producers": ()}, "at least 1"),
        ({"allow": ({"tool": "x"},)}, "valid string"),
        ({"deny": ({"tool": "x"},)}, "valid string"),
        ({"ask": ({"tool": "x", "where": {"a": "> many"}},)}, "expected an operator"),
        ({"ask": ({"tool": "x", "where": {"a": [1]}},)}, "valid"),
        ({"ask": ({"where": {"a": 1}},)}, "required"),
        ({"other": "maybe"}, "'allow', 'ask' or 'deny'"),
        ({"url": "https://mcp.example.com/mcp"}, "Extra inputs"),
        ({"token_env": "TOKEN"}, "Extra inputs"),
        ({"wait": "0s"}, "greater than or equal"),
    ],
)
def test_table_that_makes_no_sense_is_refused(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        TypeAdapter(integration.settings).validate_python([{"name": "prod", "producers": ["a"]} | table])


async def test_check_says_what_a_guard_does_and_which_patterns_never_count() -> None:
    tables = (rules(allow=("get_*",)), rules(name="b", allow=("x", "y"), deny=("x",), ask=({"tool": "y"},)))
    assert integration.check is not None
    found = [each async for each in integration.check(tables, str)]
    assert [(each.subject, each.warns) for each in found] == [("guard prod", False), ("guard b", True)]
    assert found[0].text == "for local; all other calls: ask"
    assert found[1].text == "`allow` names what is denied or asked about: x, y"


def test_guard_of_a_name_that_stands_twice_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"duplicates that of guard\[0\]"):
        TypeAdapter(integration.settings).validate_python([{"name": "prod", "producers": ["a"]}] * 2)
