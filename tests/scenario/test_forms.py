"""Agents ask for forms: shown, filled in through the modal, a reply, the shell and `/clarify`, refused when asked."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from datetime import date
from enum import Enum
from typing import Any, Literal

import httpx
import pytest
from jsonschema import Draft202012Validator
from pydantic import AnyUrl, AwareDatetime, BaseModel, Field

from tests.kit.world import World, config, controls, said, url_of
from tests.scenario.prompts import Project
from tests.scenario.test_questions import OWNED, Asker
from tests.scenario.test_shell import beside
from tests.scenario.typist import command, words
from workspace.interactions import Outcome
from workspace.seed import AGENTS, FOLAKE


class Region(Enum):
    EUROPE = "eu"
    AMERICA = "us"


class Release(BaseModel):
    """As an agent's author writes it."""

    region: Region
    replicas: int = Field(
        default=3, title="Replicas", ge=1, lt=10, description="How many run beside each other"
    )
    share: float = Field(title="Share", gt=0, le=1)
    notes: str | None = Field(default=None, title="Notes", max_length=500)
    contact: str = Field(title="Contact", json_schema_extra={"format": "email"})
    page: AnyUrl | None = Field(default=None, title="Page")
    on: date = Field(title="On")
    at: AwareDatetime | None = Field(default=None, title="At")
    canary: bool = Field(title="Canary")
    tags: list[Literal["hotfix", "feature", "chore"]] = Field(title="Tags", min_length=1, max_length=2)


FILLED: dict[str, Any] = {
    "region": "us",
    "Replicas": "9",
    "Share": "0.25",
    "Contact": "ann@example.org",
    "Page": "https://example.org/release?v=4#top",
    "On": "2026-12-01",
    "At": 1_795_000_000,
    "Canary": "No",
    "Tags": ["hotfix", "chore"],
}
ANSWER = {
    "region": "us",
    "replicas": 9,
    "share": 0.25,
    "contact": "ann@example.org",
    "page": "https://example.org/release?v=4#top",
    "on": "2026-12-01",
    "at": "2026-11-18T11:06:40Z",
    "canary": False,
    "tags": ["hotfix", "chore"],
}
SCHEMA = Release.model_json_schema()
ONE: dict[str, Any] = {
    "properties": {"port": {"type": "integer", "title": "Port", "minimum": 1, "maximum": 65535}},
    "required": ["port"],
}


@pytest.fixture
async def asker(stage: World) -> AsyncIterator[Asker]:
    async with stage.bot() as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
        yield Asker(http)


async def opened(stage: World, question: str) -> dict[str, dict[str, Any]]:
    """The inputs of the modal behind a question's Answer…, by their labels."""
    card = await stage.card(question)
    assert "Answer…" in controls(card)
    await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Answer…")
    blocks = (await stage.modal(FOLAKE)).payload["blocks"]
    return {block["label"]["text"]: block for block in blocks if block["type"] == "input"}


async def filled(stage: World, **values: Any) -> Outcome:
    return await stage.workspace.submit_view(FOLAKE, FILLED | values)


def valid(answer: object, schema: dict[str, Any] = SCHEMA) -> None:
    Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(answer)


async def test_form_is_filled_in_the_modal(stage: World, asker: Asker) -> None:
    asked = await asker.ask(question="How shall 4.1 go out?", schema=SCHEMA)
    assert asked["kind"] == "form"
    card = await stage.card("How shall 4.1 go out?")
    for shown in (card.text, said(card)):
        assert (
            "Replicas (a whole number from 1 to 9; optional; default: 3): How many run beside each other"
            in shown
        )
        assert "region (one of eu, us)" in shown
    inputs = await opened(stage, "How shall 4.1 go out?")
    elements = {label: block["element"]["type"] for label, block in inputs.items()}
    assert elements == {
        "region": "radio_buttons",
        "Replicas": "number_input",
        "Share": "number_input",
        "Notes": "plain_text_input",
        "Contact": "email_text_input",
        "Page": "plain_text_input",
        "On": "datepicker",
        "At": "datetimepicker",
        "Canary": "radio_buttons",
        "Tags": "checkboxes",
    }
    number = inputs["Replicas"]["element"]
    assert (number["is_decimal_allowed"], number["min_value"], number["max_value"]) == (False, "1", "9")
    assert number["initial_value"] == "3"
    assert [each["text"]["text"] for each in inputs["Canary"]["element"]["options"]] == ["Yes", "No"]
    assert "eu" not in [each["value"] for each in inputs["region"]["element"]["options"]]

    assert (await filled(stage)).ok
    state = await asker.look(asked, wait=30)
    assert state["answer"] == ANSWER  # what is optional and empty is left out
    valid(state["answer"])
    assert "Share: 0.25\n" in state["label"]
    card = await stage.now_says(card, "the agent has resumed")
    for shown in (card.text, said(card)):
        assert "Tags: hotfix, chore" in shown
        assert "At: 2026-11-18 11:06:40 UTC" in shown
    record = stage.record()
    assert record["thread"][-1]["body"] == state["label"]
    assert record["aaep"]["response"] == ANSWER


async def test_wrong_fields_are_named_where_they_are(stage: World, asker: Asker) -> None:
    asked = await asker.ask(question="How?", schema=SCHEMA)
    inputs = await opened(stage, "How?")
    outcome = await filled(stage, Share="0", Page="example.org", Tags=["hotfix", "feature", "chore"])
    labels = {block["block_id"]: label for label, block in inputs.items()}
    assert {labels[block]: said for block, said in outcome.errors.items()} == {
        "Share": "Expected a number above 0 and of at most 1.",
        "Page": "Expected a web address or another URI, like https://example.org.",
        "Tags": "Expected 1 to 2 of hotfix, feature, chore.",
    }
    assert (await asker.look(asked))["status"] == "waiting"
    assert (await filled(stage, Replicas="")).ok
    assert "replicas" not in (await asker.look(asked, wait=30))["answer"]


async def test_reply_in_the_thread_is_pointed_to_the_form(stage: World, asker: Asker) -> None:
    await asker.ask(question="How?", schema=SCHEMA)
    card = await stage.card("How?")
    assert "Or in this thread" not in said(card)
    await stage.workspace.post(FOLAKE, AGENTS, "eu, three of them", card.ts)
    assert "Click Answer… on its card" in (await stage.whisper(FOLAKE, "read that as an answer")).text


async def test_form_of_one_field_takes_a_reply(stage: World, asker: Asker) -> None:
    asked = await asker.ask(question="Which port?", schema=ONE, default={"port": 80})
    card = await stage.card("Which port?")
    assert "uses its default: “Port: 80”" in said(card)
    assert "Or in this thread: reply with a whole number from 1 to 65535." in said(card)
    await stage.workspace.post(FOLAKE, AGENTS, "70000", card.ts)
    await stage.whisper(FOLAKE, "Expected a whole number from 1 to 65535.")
    await stage.workspace.post(FOLAKE, AGENTS, "8080", card.ts)
    state = await asker.look(asked, wait=30)
    assert (state["answer"], state["label"], state["default"]) == ({"port": 8080}, "Port: 8080", {"port": 80})


async def test_form_is_answered_with_json(stage: World, asker: Asker) -> None:
    schema = {"properties": ONE["properties"] | {"host": {"type": "string"}}, "required": ["port"]}
    by_shell = await asker.ask(question="Shell?", schema=schema)
    project: Project = beside(stage)
    told = await project.fine("show", by_shell["id"])
    shown = json.loads(await project.fine("show", by_shell["id"], "--json"))
    assert (shown["acceptedResponseKinds"], shown["schema"]) == (["form"], schema)
    assert "• Port (a whole number from 1 to 65535)" in told
    assert f"clarify answer {by_shell['id']} '" in told
    assert '"port": …' in told
    refused = await project.run("answer", by_shell["id"], '{"port": "80", "hots": "a"}')
    assert refused.code != 0
    assert "port: Expected a whole number from 1 to 65535." in re.sub(r"\s+", " ", refused.err)
    assert "hots: The form has no such field." in re.sub(r"\s+", " ", refused.err)
    await project.fine("answer", by_shell["id"], '{"port": 80}')
    assert (await asker.look(by_shell, wait=30))["answer"] == {"port": 80}

    in_slack = await asker.ask(question="Slack?", schema=schema)
    given = json.dumps({"host": "a b", "port": 81})
    assert "is answered" in words(await command(stage, f"answer {in_slack['id']} {given}", FOLAKE))
    assert (await asker.look(in_slack, wait=30))["answer"] == {"port": 81, "host": "a b"}


@pytest.mark.needs("ledgerfiles")
async def test_what_another_program_writes_fills_in_the_form_if_it_fits(stage: World, asker: Asker) -> None:
    schema = {"properties": ONE["properties"] | {"host": {"type": "string"}}, "required": ["port"]}
    asked = await asker.ask(question="Which port?", schema=schema)
    await stage.card("Which port?")
    await stage.in_step()

    def answer(body: str) -> None:
        ledger = stage.ledger(100001)
        (record,) = ledger["clarifications"]
        entry = {"round": record["round"], "from": "operator", "type": "answer", "body": body}
        record["thread"].append(entry | {"timestamp": record["created"]})
        record["status"] = "answered"
        stage.write_ledger(100001, ledger)

    answer("8080")
    await stage.message("does not count")
    await stage.in_step()
    assert (await asker.look(asked))["status"] == "waiting"
    answer('{"port": 8080}')
    state = await asker.look(asked, wait=30)
    assert (state["answer"], state["decided_by"]) == ({"port": 8080}, "agent:operator")


async def test_secrets_in_a_form_are_replaced(stage: World) -> None:
    stage.environ["BUILDER_TOKEN"] = "t-builder"
    text = config(stage.producer.url, more=OWNED)
    headers = {"Authorization": "Bearer t-builder"}
    async with stage.bot(text) as bot, httpx.AsyncClient(base_url=url_of(bot), headers=headers) as http:
        field = {"type": "string", "title": "Not hunter2", "default": "hunter3"}
        await Asker(http).ask(question="Which?", schema={"properties": {"a": field}})
        card = await stage.card("Not [redacted]")
        assert "hunter" not in str(stage.ledger(100001)) + said(card)
        alike = {"properties": {"hunter1": {"type": "string"}, "hunter2": {"type": "string"}}}
        problem = await Asker(http).ask(question="x", schema=alike, status=422)
        assert problem["field"] == "schema.properties"


PROPERTY = "schema.properties.a"
DEEP: list[Any] = []
for _ in range(400):
    DEEP = [DEEP]


NO_FORMS: list[tuple[dict[str, Any], str]] = [
    ({}, "schema.properties"),
    ({"type": "array", "properties": {"a": {"type": "string"}}}, "schema.type"),
    ({"properties": {f"f{n}": {"type": "string"} for n in range(41)}}, "schema.properties"),
    ({"properties": {"a": {"type": "string"}}, "required": ["b"]}, "schema.required"),
    ({"properties": {"a": {"type": "string", "pattern": "(x+)+"}}}, PROPERTY),
    ({"properties": {"a": {"type": "string", "format": "phone"}}}, PROPERTY),
    ({"properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}}}}, PROPERTY),
    ({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"properties": {}}}}, PROPERTY),
    ({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}}, PROPERTY),
    ({"properties": {"a": {"$ref": "https://example.org/a"}}}, PROPERTY),
    ({"properties": {"a": {"type": "array", "items": {"type": "boolean"}}}}, PROPERTY),
    ({"type": "array", "items": {"type": "object"}}, "schema.items"),
    ({"properties": {"a": {"enum": list(range(101))}}}, PROPERTY),
    ({"properties": {"a": {"type": "array", "items": {"enum": ["x"]}, "minItems": 2}}}, PROPERTY),
    ({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}}, PROPERTY),
    ({"properties": {"a": {"type": "integer", "minimum": 1.5, "exclusiveMaximum": 2}}}, PROPERTY),
    ({"properties": {"a": {"type": "string", "default": 5}}}, PROPERTY),
    ({"properties": {"a": True}}, PROPERTY),
]


async def test_what_is_no_form_is_refused_when_it_is_asked(asker: Asker) -> None:
    refused = [await asker.ask(status=422, question="x", schema=schema) for schema, _ in NO_FORMS]
    assert [(each["error"], each["field"]) for each in refused] == [
        ("BAD_INPUT", each) for _, each in NO_FORMS
    ]


BESIDE_A_FORM: list[tuple[dict[str, Any], str]] = [
    ({"kind": "form"}, "schema"),
    ({"schema": [ONE]}, "schema"),
    ({"schema": ONE | {"examples": DEEP}}, "schema"),
    ({"schema": ONE, "default": DEEP}, "default"),
    ({"schema": ONE, "choices": ["a"]}, "schema"),
    ({"kind": "text", "schema": ONE}, "schema"),
    ({"schema": ONE, "default": {"port": 0}}, "default"),
    ({"schema": ONE, "default": "80"}, "default"),
    ({"schema": ONE, "default": {"port": [[[[[]]]]] * 2}}, "default"),
]


async def test_wrong_field_beside_a_form_is_named(asker: Asker) -> None:
    refused = [await asker.ask(status=422, question="x", **fields) for fields, _ in BESIDE_A_FORM]
    assert [each["field"] for each in refused] == [field for _, field in BESIDE_A_FORM]


ZOD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "mail": {
            "type": "string",
            "format": "email",
            "pattern": r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
        },
        "day": {"type": "string", "format": "date", "pattern": r"^2026-\d{2}-\d{2}$"},
        "at": {"type": "string", "format": "time", "pattern": r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?$"},
        "until": {"type": "string", "format": "time"},
        "run": {"type": "string", "format": "uuid"},
        "to": {"type": "array", "items": {"type": "string", "format": "email"}, "minItems": 1},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["mail", "day", "at", "until", "run", "to", "note"],
    "additionalProperties": False,
}
RUN = "123e4567-e89b-12d3-a456-426614174000"


async def test_formats_with_patterns_are_checked_at_their_fields(stage: World, asker: Asker) -> None:
    asked = await asker.ask(question="Who and when?", schema=ZOD)
    inputs = await opened(stage, "Who and when?")
    assert {label: block["element"]["type"] for label, block in inputs.items()} == {
        "mail": "email_text_input",
        "day": "datepicker",
        "at": "timepicker",
        "until": "timepicker",
        "run": "plain_text_input",
        "to": "plain_text_input",
        "note": "plain_text_input",
    }
    assert inputs["until"]["hint"]["text"] == "In UTC."
    labels = {block["block_id"]: label for label, block in inputs.items()}
    right = {
        "mail": "ann@example.org",
        "day": "2026-12-01",
        "at": "14:00",
        "until": "15:30",
        "run": RUN,
        "to": "a@b.cd\nb@c.de",
    }
    wrong = {"mail": "an..n@example.org", "day": "2027-12-01", "run": "7", "to": "a@b.cd\nb"}
    outcome = await stage.workspace.submit_view(FOLAKE, right | wrong)
    assert {labels[block]: said for block, said in outcome.errors.items()} == {
        "mail": "Expected an e-mail address.",
        "day": "Expected a date, like 2026-05-24. The agent's own pattern does not accept this one.",
        "run": f"Expected a UUID, like {RUN}.",
        "to": "Line 2: Expected an e-mail address.",
    }
    assert (await stage.workspace.submit_view(FOLAKE, right)).ok
    state = await asker.look(asked, wait=30)
    assert state["answer"] == {
        "mail": "ann@example.org",
        "day": "2026-12-01",
        "at": "14:00:00",
        "until": "15:30:00Z",
        "run": RUN,
        "to": ["a@b.cd", "b@c.de"],
        "note": None,
    }


SINGLE: list[tuple[dict[str, Any], tuple[str, str], Any]] = [
    ({"type": "integer"}, ("many", "3"), 3),
    ({"type": "boolean"}, ("perhaps", "yes"), True),
    ({"type": "string", "enum": ["eu", "us"]}, ("asia", "us"), "us"),
    ({"$ref": "#/$defs/R", "$defs": {"R": {"enum": ["eu", "us"]}}}, ("asia", "us"), "us"),
    ({"enum": [1, 2]}, ("3", "2"), 2),
    ({"type": "array", "items": {"enum": ["a", "b"]}}, ("c", "a, b"), ["a", "b"]),
    ({"type": "array", "items": {"type": "string"}}, ("Rome, Paris", "Rome\nParis"), ["Rome", "Paris"]),
    ({"type": "array", "items": {"type": "string"}}, ("Rome; Paris", '["Rome, Paris"]'), ["Rome, Paris"]),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, ("1", "1\n2"), [1, 2]),
    ({"type": "string", "format": "time"}, ("noon", "14:00"), "14:00:00Z"),
    ({"anyOf": [{"type": "number"}, {"type": "null"}]}, ("none", "1.5"), 1.5),
]


async def test_schema_of_a_single_value_is_answered_in_the_thread(stage: World, asker: Asker) -> None:
    """The first reply gets a hint, the second one counts."""
    for number, (schema, (wrong, right), answer) in enumerate(SINGLE):
        asked = await asker.ask(question=f"What {number}?", schema=schema)
        card = await stage.card(f"What {number}?")
        hints = len(stage.workspace.ephemerals(FOLAKE))
        await stage.workspace.post(FOLAKE, AGENTS, wrong, card.ts)
        await stage.until(lambda hints=hints: len(stage.workspace.ephemerals(FOLAKE)) > hints)  # type: ignore[misc]
        assert (await asker.look(asked))["status"] == "waiting"
        await stage.workspace.post(FOLAKE, AGENTS, right, card.ts)
        state = await asker.look(asked, wait=30)
        assert (state["kind"], json.dumps(state["answer"])) == ("form", json.dumps(answer))


async def test_yes_or_no_and_choices_of_a_schema_have_buttons(stage: World, asker: Asker) -> None:
    yes = await asker.ask(question="Shall I?", schema={"type": "boolean"}, default=False)
    card = await stage.card("Shall I?")
    assert {"Yes", "No"} <= set(controls(card))
    await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
    assert (await asker.look(yes, wait=30))["answer"] is True
    titled = {"oneOf": [{"const": "eu", "title": "Europe"}, {"const": "us", "title": "America"}]}
    where = await asker.ask(question="Where?", schema=titled)
    card = await stage.card("Where?")
    assert {"Europe", "America"} <= set(controls(card))
    await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="America")
    assert (await asker.look(where, wait=30))["answer"] == "us"


async def test_schema_of_a_single_value_is_filled_in_the_modal(stage: World, asker: Asker) -> None:
    schema = {"type": "array", "title": "Cities", "items": {"type": "string"}, "maxItems": 2}
    asked = await asker.ask(question="Which cities?", schema=schema, default=["Rome"])
    inputs = await opened(stage, "Which cities?")
    assert inputs["Cities"]["element"]["multiline"]
    outcome = await stage.workspace.submit_view(FOLAKE, {"Cities": "Rome\nParis\nOslo"})
    assert list(outcome.errors.values()) == ["Expected at most 2 entries, one per line."]
    assert (await stage.workspace.submit_view(FOLAKE, {"Cities": "Rome, IT\nParis"})).ok
    assert (await asker.look(asked, wait=30))["answer"] == ["Rome, IT", "Paris"]
