"""Agents ask people over HTTP: asked, answered, waited for, withdrawn, asked again with the same key."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from bot.web.questions import _brief
from core.clarification import Clarification
from core.ledger import Ledger
from tests.kit.clocks import LeapClock
from tests.kit.databases import Server
from tests.kit.fake_github import PREFIX, TOKEN, serving
from tests.kit.lives import beside
from tests.kit.receivers import receiving
from tests.kit.until import until
from tests.kit.world import World, config, controls, said, scene, url_of
from tests.scenario.other_parties import change_row
from tests.scenario.typist import command
from tests.scenario.typist import words as shown
from workspace.seed import ADE, AGENTS, FOLAKE, ONCALL


class Asker:
    """A caller of `/questions`."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def ask(self, status: int = 201, **fields: Any) -> dict[str, Any]:
        return self.body(await self.http.post("/questions", json=fields), status)

    async def look(self, asked: dict[str, Any], wait: int = 0, status: int = 200) -> dict[str, Any]:
        return self.body(await self.http.get(f"/questions/{asked['id']}", params={"wait": wait}), status)

    async def withdraw(self, asked: dict[str, Any], status: int = 200) -> dict[str, Any]:
        return self.body(await self.http.delete(f"/questions/{asked['id']}"), status)

    def body(self, answer: httpx.Response, status: int) -> dict[str, Any]:
        assert answer.status_code == status, answer.text
        found: dict[str, Any] = answer.json()
        return found


@pytest.fixture
async def asker(stage: World) -> AsyncIterator[Asker]:
    async with stage.bot() as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
        yield Asker(http)


async def test_question_is_answered_while_the_caller_waits(stage: World, asker: Asker) -> None:
    asked = await asker.ask(question="Which age?", choices=["65", "67"], context="For the plan")
    assert (asked["status"], asked["kind"], asked["agent"]) == ("waiting", "choice", "local")
    card = await stage.card("Which age?")
    assert controls(card) == ["65", "67", "Take"]
    waiting = asyncio.create_task(asker.look(asked, wait=30))
    await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="67")
    state = await waiting
    assert (state["status"], state["answer"], state["label"]) == ("answered", "67", "67")
    assert state["decided_by"].startswith("user:slack/")
    assert "Not picked up" not in said(await stage.now_says(card, "the agent has resumed"))
    assert stage.record()["status"] == "resolved"


LIKE_A_BUTTON = (
    "`choices[1]` looks like one of the bot's own buttons. Give it another label, in more words. To have an action accepted "
    "or rejected, ask for an approval instead."
)
ALIKE = "`choices` has labels that people cannot tell apart. Numbers {} and {} look the same: give each its own label."


TAKEN_FOR_ANOTHER: list[tuple[list[Any], str, str]] = [
    *(
        (["Go", label], "choices.1", LIKE_A_BUTTON)
        for label in (
            "Take",
            "Ta\u200bke",
            "T\u0430ke",
            "accept",
            "Reject",
            "Answer…",
            "View full",
            "Hand to…",
        )
    ),
    *((["Go", label], "choices.1", LIKE_A_BUTTON) for label in ("Snooze", "Not mine", "Release", "Verify")),
    ([{"value": "a", "label": "Go"}, {"value": "b", "label": "Go"}], "choices", ALIKE.format(1, 2)),
    (["Go", "Stop", "G\u043e"], "choices", ALIKE.format(1, 3)),
    (
        ["Go", "\u200b"],
        "choices",
        "`choices` has labels that people cannot tell apart. Number 2 is invisible: give it a label.",
    ),
]


async def test_choices_that_could_be_taken_for_another_are_refused(asker: Asker) -> None:
    for choices, field, message in TAKEN_FOR_ANOTHER:
        refused = await asker.ask(status=422, question="Which?", choices=choices)
        assert (refused["field"], refused["message"]) == (field, message), choices


async def test_choices_of_a_form_that_look_the_same_are_refused(asker: Asker) -> None:
    offered = {"oneOf": [{"const": "a", "title": "Go"}, {"const": "b", "title": "G\u043e"}]}
    schema = {"type": "object", "properties": {"way": offered}}
    refused = await asker.ask(status=422, question="Which?", schema=schema)
    assert (refused["field"], refused["message"]) == (
        "schema.properties.way",
        (
            "`schema.properties.way` has choices that people cannot tell apart. Numbers 1 and 2 look the same: give each its own "
            "label."
        ),
    )


async def test_yes_and_no_are_choices_like_others(stage: World, asker: Asker) -> None:
    asked = await asker.ask(question="Ship it?", choices=["Yes", "No", "Approve", "Decline"])
    card = await stage.card("Ship it?")
    assert controls(card) == ["Yes", "No", "Approve", "Decline", "Take"]
    await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="No")
    assert (await asker.look(asked, wait=30))["answer"] == "No"


async def test_state_of_a_question_says_what_was_asked(stage: World) -> None:
    bare = '[[producers]]\nname = "bare"\nredact = ["hunter[0-9]"]\n'
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"question": "Is it hunter2?"}, {"kind": "text", "question": "Is it [redacted]?"}),
        (
            {
                "question": "Which?",
                "context": "x" * 60_000,
                "choices": ["a", {"value": "b", "label": "B", "description": "hunter3"}],
                "multiple": True,
                "default": ["a"],
            },
            {
                "kind": "choice",
                "question": "Which?",
                "context": "x" * 60_000,
                "choices": [
                    {"value": "a", "label": "a"},
                    {"value": "b", "label": "B", "description": "[redacted]"},
                ],
                "multiple": True,
                "default": ["a"],
            },
        ),
        ({"question": "Plan", "schema": schema}, {"kind": "form", "question": "Plan", "schema": schema}),
        (
            {"question": "Go?", "kind": "yes_no", "default": False},
            {"kind": "yes_no", "question": "Go?", "default": False},
        ),
        (
            {"action": "Send", "question": "Now?", "context": "Why", "consequence": "Gone", "risk": "high"}
            | {"irreversible": True, "arguments": {"to": "hunter4", "n": 1.0}, "approvals": 2},
            {
                "kind": "approval",
                "action": "Send",
                "question": "Now?",
                "context": "Why",
                "consequence": "Gone",
            }
            | {
                "risk": {"claimed": "high", "counted": "high"},
                "irreversible": True,
                "arguments": {"to": "[redacted]", "n": 1.0},
                "approvals": 2,
            },
        ),
    ]
    async with (
        stage.bot(config(stage.producer.url, more=bare)) as bot,
        httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http,
    ):
        asker = Asker(http)
        for fields, expected in cases:
            asked = await asker.ask(**fields)
            for state in (asked, await asker.look(asked), await asker.withdraw(asked)):
                assert state["asked"] == expected
        listed = (await http.get("/questions")).json()["questions"]
    assert [each["asked"] for each in listed] == [expected for _, expected in reversed(cases)]


async def test_list_leaves_out_long_arguments_and_hands_out_no_approved_ones(
    stage: World, asker: Asker
) -> None:
    asked = [await asker.ask(action=f"Run {n}", arguments={"sql": "x" * n}) for n in (17_000, 16_000, 10)]
    card = await stage.card("Run 10")
    assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")).ok
    newest, shown, cut = asker.body(await asker.http.get("/questions"), 200)["questions"]
    assert [newest["asked"], shown["asked"]] == [asked[2]["asked"], asked[1]["asked"]]
    assert cut["asked"] == {name: each for name, each in asked[0]["asked"].items() if name != "arguments"}
    assert newest["answer"] == {"decision": "accept"}


async def test_answer_that_nobody_fetches_is_not_picked_up(stage: World, asker: Asker) -> None:
    asked = await asker.ask(question="Go on?", kind="yes_no")
    card = await stage.card("Go on?")
    await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
    await stage.now_says(card, "Not picked up by the agent yet")
    assert stage.record()["status"] == "answered"
    assert (await asker.look(asked))["answer"] is True
    await stage.now_says(card, "the agent has resumed")


async def test_answer_is_handed_out_once_to_one_of_many_who_ask_for_it_so(
    stage: World, postgres_server: Server
) -> None:
    """By whatever route and replica."""
    stage.keep_in(postgres_server.new())
    async with stage.bot() as one, stage.bot() as other, AsyncExitStack() as opened:
        ways = [
            Asker(await opened.enter_async_context(httpx.AsyncClient(base_url=url_of(bot), timeout=60)))
            for bot in (one, other)
        ]
        fields: dict[str, Any] = {"action": "Deploy 4.2", "key": "deploy-4.2"}
        asked = await ways[0].ask(**fields)
        card = await stage.card("Deploy 4.2")
        place, once = f"/questions/{asked['id']}", {"once": "true"}
        waits = [asyncio.create_task(each.http.get(place, params=once | {"wait": 50})) for each in ways * 3]
        await until(lambda: sum(len(bot.agents.questions._waiting[asked["id"]]) for bot in stage.bots) == 6)
        assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")).ok
        more = [
            call
            for each in ways
            for call in (
                each.http.get(place, params=once),
                each.http.post("/questions", params=once, json=fields),
                each.http.delete(place, params=once),
            )
        ]
        answers = [each.json() for each in await asyncio.gather(*waits, *more)]
        assert [each["answer"] for each in answers if "answer" in each] == [
            {"decision": "accept", "arguments": {}}
        ]
        assert [each["error"] for each in answers if "error" in each] == ["ALREADY_PICKED_UP"] * 11
        assert (await ways[1].look(asked))["status"] == "answered"
        await stage.now_says(card, "the agent has resumed")


async def test_answer_that_was_picked_up_is_not_handed_out_once_more(stage: World, asker: Asker) -> None:
    asked = await asker.ask(question="Go on?", kind="yes_no")
    place = f"/questions/{asked['id']}"
    card = await stage.card("Go on?")
    assert asker.body(await asker.http.get(place, params={"once": "true"}), 200)["status"] == "waiting"
    await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
    assert (await asker.look(asked))["answer"] is True
    await stage.now_says(card, "the agent has resumed")
    refused = asker.body(await asker.http.get(place, params={"once": "true"}), 409)
    assert refused["error"] == "ALREADY_PICKED_UP"


async def test_two_bots_that_are_asked_the_same_at_once_ask_it_once(
    stage: World, postgres_server: Server
) -> None:
    stage.keep_in(postgres_server.new())
    async with stage.bot() as one, stage.bot() as other:
        async with AsyncExitStack() as opened:
            ways = [
                await opened.enter_async_context(httpx.AsyncClient(base_url=url_of(bot), timeout=60))
                for bot in (one, other)
            ]
            asked = [{"question": f"Which of {each}?", "key": f"key-{each}"} for each in range(10)]
            answers = await asyncio.gather(
                *(http.post("/questions", json=each) for each in asked for http in ways)
            )
        assert {answer.status_code for answer in answers} == {200, 201}, [each.text for each in answers]
        assert len({answer.json()["id"] for answer in answers}) == len(asked)


async def test_what_waits_is_listed_by_every_bot_at_once(stage: World, postgres_server: Server) -> None:
    """Each answers from what is stored, even before it hears what another wrote."""
    stage.keep_in(postgres_server.new())
    async with stage.bot() as one, stage.bot() as other, AsyncExitStack() as opened:
        for bot in (one, other):
            bot.watch.changed = lambda _: None
        ways = [
            await opened.enter_async_context(httpx.AsyncClient(base_url=url_of(bot), timeout=60))
            for bot in (one, other)
        ]
        for http, elsewhere in (ways, ways[::-1]):
            done, kept = [
                (await http.post("/questions", json={"question": f"{name}?", "session": "s"})).json()["id"]
                for name in ("Done", "Kept")
            ]
            await elsewhere.delete(f"/questions/{done}")
            for session in ({}, {"session": "s"}):
                for way in ways:
                    asked = {"status": "waiting"} | session
                    listed = (await way.get("/questions", params=asked)).json()["questions"]
                    assert [each["id"] for each in listed][:1] == [kept]
                    assert done not in {each["id"] for each in listed}


@pytest.mark.either_database(always=True)
async def test_same_key_is_the_same_question(stage: World, asker: Asker) -> None:
    first = await asker.ask(question="Which one?", key="k 1", agent="planner")
    again = await asker.ask(question="Which one?", key="k 1", agent="planner", timeout=60, status=200)
    assert again["id"] == first["id"]
    problem = await asker.ask(question="Which other?", key="k 1", agent="planner", status=409)
    assert problem["error"] == "KEY_REUSED"
    assert "one?" not in problem["message"]
    other = await asker.ask(question="Which other?", key="k 1", agent="reviewer")
    assert other["id"] != first["id"]
    await stage.card("Which other?")
    assert len(stage.cards()) == 2


async def test_withdrawn_question_loses_its_controls(stage: World, asker: Asker) -> None:
    asked = await asker.ask(question="Still needed?", kind="yes_no")
    card = await stage.card("Still needed?")
    assert (await asker.withdraw(asked))["status"] == "withdrawn"
    assert not controls(await stage.now_says(card, "Withdrawn"))
    assert (await asker.withdraw(asked))["status"] == "withdrawn"


async def test_withdrawal_after_an_answer_gets_the_answer(stage: World, asker: Asker) -> None:
    asked = await asker.ask(question="How many?", kind="number")
    card = await stage.card("How many?")
    await stage.workspace.post(FOLAKE, AGENTS, "12.5", card.ts)
    await stage.now_says(card, "Answered: “12.5”")
    state = await asker.withdraw(asked, status=409)
    assert (state["status"], state["answer"]) == ("answered", 12.5)


async def test_approval_is_rejected_with_a_reason(stage: World, asker: Asker) -> None:
    asked = await asker.ask(
        action="Drop the table customers",
        consequence="All are gone",
        risk="high",
        irreversible=True,
        arguments={"table": "customers", "rows": 1204},
    )
    assert asked["kind"] == "approval"
    card = await stage.card("Drop the table customers")
    assert "1204" in said(card)
    await stage.workspace.post(FOLAKE, AGENTS, "reject: not on a Friday", card.ts)
    state = await asker.look(asked, wait=30)
    assert state["answer"] == {"decision": "reject", "arguments": {"table": "customers", "rows": 1204}}
    assert state["comment"] == "not on a Friday"


HALF = "half of a character"  # all of them would become the same character: two names would be one
WRONG: list[tuple[str, str, str, str]] = [
    ("/questions?wait=soon", '{"question": "x"}', "wait", "`wait` must be a whole number."),
    ("/questions?wait=56", '{"question": "x"}', "wait", "`wait` must be at most 55."),
    ("/questions?wiat=5", '{"question": "x"}', "wiat", ""),
    ("/questions", '["x"]', "", "A question must be a JSON object."),
    ("/questions", "{}", "question", ""),
    ("/questions", '{"question": "x", "timeout": "60"}', "timeout", ""),
    ("/questions", '{"question": "x", "choices": ["a", 7]}', "choices.1", ""),
    ("/questions", '{"question": "x", "to": "U0NOBODY"}', "to", ""),  # only Slack knows that
    *(
        ("/questions", f'{{"action": "Wait", "arguments": {{"for": [{number}]}}}}', "arguments", "")
        for number in ("NaN", "-Infinity", "1e999")
    ),
    ("/questions", r'{"action": "x", "arguments": {"of": [{"\ud800": 1, "\ud801": 2}]}}', "arguments", HALF),
    ("/questions", r'{"action": "x", "arguments": {"of": ["\udfff"]}}', "arguments", HALF),
    (
        "/questions",
        r'{"question": "x", "schema": {"properties": {"\ud800": {}, "\ud801": {}}}}',
        "schema",
        HALF,
    ),
    ("/questions", r'{"question": "x", "default": {"\ud800": 1}}', "default", HALF),
    ("/questions", r'{"question": "x", "agent": "mailer-\ud800"}', "agent", HALF),
    ("/clarifications", '{"from": "a"}', "to", "`to` is required."),
]


async def test_wrong_request_is_refused_at_its_field_in_plain_words(asker: Asker) -> None:
    """All that can be wrong with a question: see tests/unit/core/test_questions.py."""
    for path, body, field, words in WRONG:
        headers = {"Content-Type": "application/json"}
        problem = asker.body(await asker.http.post(path, content=body, headers=headers), 422)
        assert problem["error"] == "BAD_INPUT", body
        assert problem.get("field", "") == field, body
        assert words in problem["message"], body


async def test_no_question_has_that_id(asker: Asker) -> None:
    for name in ("nope", "CLR-1-1", "CLR-100001-002", "CLR-%00-001", "CLR-" + "9" * 400 + "-001"):
        for method in ("GET", "DELETE"):
            answer = await asker.http.request(method, f"/questions/{name}")
            assert (answer.status_code, answer.json()["error"]) == (404, "NOT_FOUND")


async def test_expired_question_says_what_to_assume(tmp_path: Path) -> None:
    async with (
        scene(tmp_path, clock=LeapClock(600)) as stage,
        stage.bot() as bot,
        httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http,
    ):
        asked = await Asker(http).ask(question="Which?", choices=["a", "b"], default="b", timeout=60)
        await stage.now_says(await stage.card("Which?"), "Expired")
        state = await Asker(http).look(asked)
        assert (state["status"], state["answer"], state["default"]) == ("expired", None, "b")


@pytest.mark.either_database
async def test_question_outlives_a_restart(stage: World) -> None:
    async with stage.bot() as bot, httpx.AsyncClient(base_url=url_of(bot)) as http:
        asked = await Asker(http).ask(question="Before?", key="one", session="s")
        card = await stage.card("Before?")
    async with stage.bot() as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
        asker = Asker(http)
        assert (await asker.ask(question="Before?", key="one", session="s", status=200))["id"] == asked["id"]
        listed = (await http.get("/questions", params={"status": "waiting", "session": "s"})).json()
        assert [each["id"] for each in listed["questions"]] == [asked["id"]]
        await stage.workspace.post(FOLAKE, AGENTS, "after", card.ts)
        assert (await asker.look(asked, wait=30))["answer"] == "after"


@pytest.mark.either_database
async def test_answer_that_is_never_picked_up_is_told_in_the_thread(tmp_path: Path) -> None:
    clock = LeapClock()
    async with (
        scene(tmp_path, clock=clock) as stage,
        stage.bot() as bot,
        httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http,
    ):
        asked = await Asker(http).ask(question="Go on?", kind="yes_no")
        card = await stage.card("Go on?")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        asked_until = datetime.fromisoformat(asked["expires_at"])  # until then its asker may come
        clock.leap(asked_until + timedelta(minutes=59) - clock.now())
        await stage.ask(session="another", question="Meanwhile?")
        assert not [m for m in stage.workspace.messages(AGENTS) if "never picked up" in m.text]
        clock.leap(timedelta(minutes=1))
        told = await stage.message("never picked up the answer")
        assert told.thread_ts == card.ts
        await stage.now_says(card, "The agent never picked it up")
        assert (await Asker(http).look(asked))["answer"] is True
        await stage.now_says(card, "the agent has resumed")


@pytest.mark.needs("webhooks")
@pytest.mark.either_database
async def test_what_is_closed_after_nobody_picked_it_up_is_told_outside_too(tmp_path: Path) -> None:
    """By whichever of several bots: the one that leads had stopped following it."""
    clock = LeapClock()
    async with (
        serving(clock.seconds) as github,
        receiving() as hook,
        scene(tmp_path, clock=clock) as stage,
    ):
        stage.environ |= {"GITHUB_TOKEN": TOKEN, "HOOK_SECRET": "s3cret-of-the-hook"}
        outside = (
            f'[[webhooks]]\nurl = "{hook.url}"\nsecret_env = "HOOK_SECRET"\n[github]\nrepo = "acme/app"\n'
            f'token_env = "GITHUB_TOKEN"\napi_url = "{github.address}{PREFIX}"\n'
        )
        async with (
            stage.bot(config(stage.producer.url) + outside) as bot,
            httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http,
        ):
            asked = [await Asker(http).ask(question=f"Go on with {n}?", issue=n) for n in (42, 43)]
            for each in asked:
                await stage.workspace.command(FOLAKE, AGENTS, "/clarify", f"answer {each['id']} Yes")
            await until(lambda: {"answered CLR-42-001", "answered CLR-43-001"} <= {*hook.events})
            clock.leap(datetime.fromisoformat(asked[1]["expires_at"]) + timedelta(minutes=60) - clock.now())
            for number in (42, 43):
                card = await stage.card(f"Go on with {number}?")
                await stage.now_says(card, "The agent never picked it up")
            # Slack gives them to the bots in turn.
            words = (f"resolve {each['id']} Done by hand" for each in asked)
            await asyncio.gather(
                *(stage.workspace.command(FOLAKE, AGENTS, "/clarify", each) for each in words)
            )
            await until(lambda: {"resolved CLR-42-001", "resolved CLR-43-001"} <= {*hook.events})
            assert len(hook.events) == 6
            await until(lambda: all("Done by hand" in "".join(github.bodies(n)) for n in (42, 43)))


async def test_only_the_person_asked_answers(stage: World, asker: Asker) -> None:
    await asker.ask(question="Your view?", kind="yes_no", to=ADE)
    card = await stage.card("Your view?")
    for shown_ in (card.text, json.dumps(card.blocks)):
        assert f"This question is for <@{ADE}>." in shown_
    await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
    await stage.whisper(FOLAKE, "this question is for someone else")
    assert stage.record()["status"] == "pending"
    await stage.workspace.click(ADE, AGENTS, card.ts, label="No")
    await stage.now_says(card, f"<@{ADE}>")


async def test_session_is_one_thread_and_each_card_is_in_the_channel_while_it_waits(
    stage: World, asker: Asker
) -> None:
    await asker.ask(question="First?", session="s1")
    first = await stage.card("First?")
    await asker.ask(question="Second?", kind="yes_no", context="It\nis long", session="s1")
    second = await stage.card("Second?")
    assert (second.thread_ts, second.broadcast) == (first.ts, True)
    await asker.ask(question="Elsewhere?")
    assert (await stage.card("Elsewhere?")).thread_ts is None
    await stage.workspace.click(FOLAKE, AGENTS, second.ts, label="Yes")
    shrunk = await stage.now_says(second, "Answered: ")
    (line,) = shrunk.blocks
    for part in (f"*Answered: “Yes” by <@{FOLAKE}>*", "Second?"):
        assert part in line["text"]["text"]
    assert "\n" not in line["text"]["text"]
    await stage.workspace.click(ADE, AGENTS, second.ts, label="View full")
    view = await stage.modal(ADE)
    assert r"It\nis long" in json.dumps(view.payload["blocks"])


async def test_route_may_show_the_first_question_of_a_session_alone(stage: World) -> None:
    text = config(stage.producer.url).replace("[[routes]]", '[[routes]]\nbroadcast = "first"')
    async with stage.bot(text) as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
        await Asker(http).ask(question="First?", session="s1")
        first = await stage.card("First?")
        await Asker(http).ask(question="Second?", session="s1")
        second = await stage.card("Second?")
        assert (second.thread_ts, second.broadcast) == (first.ts, False)
        await stage.workspace.command(FOLAKE, AGENTS, "/clarify", "escalate CLR-100001-002 it is urgent")
        paged = await stage.message("is waiting")
        assert (paged.thread_ts, paged.broadcast, "Second?" in said(paged)) == (first.ts, True, True)


async def test_reminder_and_page_of_an_approval_say_what_is_to_be_done_with_what(tmp_path: Path) -> None:
    clock = LeapClock()
    async with (
        scene(tmp_path, clock=clock) as stage,
        stage.bot() as bot,
        httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http,
    ):
        command = f"rm -rf /srv/old <!channel> && echo {'x' * 900}"
        await Asker(http).ask(action="Run a command", arguments={"note": "hm", "command": command})
        card = await stage.card("Run a command")
        clock.leap(timedelta(minutes=31))
        nudge = await stage.message("still waiting")
        assert (nudge.thread_ts, nudge.broadcast) == (card.ts, False)
        for words in (nudge.text, json.dumps(nudge.blocks, ensure_ascii=False)):
            assert "Run a command" in words
            assert "command: rm -rf /srv/old" in words
            assert "x…" in words
        clock.leap(timedelta(minutes=15))
        await until(lambda: stage.workspace.direct(ONCALL))
        page = stage.workspace.direct(ONCALL)[0]
        assert "Run a command" in page.text
        assert "rm -rf /srv/old" in page.text


async def test_question_that_may_not_escalate_pages_nobody(tmp_path: Path) -> None:
    clock = LeapClock()
    async with (
        scene(tmp_path, clock=clock) as stage,
        stage.bot() as bot,
        httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http,
    ):
        asked = await Asker(http).ask(question="Quietly?", escalate=False)
        card = await stage.card("Quietly?")
        clock.leap(timedelta(minutes=31))
        await stage.until(lambda: len(stage.workspace.thread(AGENTS, card.ts)) == 2)  # a reminder
        clock.leap(datetime.fromisoformat(asked["expires_at"]) - clock.now())
        await stage.now_says(card, "Expired")
        assert stage.record()["aaep"]["nudges"] == 1
        assert not stage.workspace.direct(ONCALL)


OWNED = """
[[producers]]
name = "builder"
token_env = "BUILDER_TOKEN"
max_open = 2
redact = ["hunter[0-9]"]
agents = ["builder-*"]
"""


async def test_caller_sees_its_own_questions_only(stage: World) -> None:
    stage.environ["BUILDER_TOKEN"] = "t-builder"
    text = config(stage.producer.url, more=OWNED + '[[producers]]\nname = "other"\n')
    async with (
        stage.bot(text) as bot,
        httpx.AsyncClient(base_url=url_of(bot), headers={"Authorization": "Bearer t-builder"}) as builder,
        httpx.AsyncClient(base_url=url_of(bot)) as other,
    ):
        mine = await Asker(builder).ask(question="The password is hunter2?")
        assert mine["agent"] == "builder"
        card = await stage.card("The password is [redacted]?")
        assert "hunter" not in str(stage.ledger(100001)) + said(card)
        assert (await Asker(other).look(mine, status=404))["error"] == "NOT_FOUND"
        assert (await Asker(other).withdraw(mine, status=404))["error"] == "NOT_FOUND"
        assert (await Asker(other).ask(question="And mine?"))["agent"] == "other"
        problem = await Asker(builder).ask(question="As whom?", agent="planner", status=403)
        assert (problem["error"], problem["field"]) == ("OTHER_AGENT", "agent")
        await Asker(builder).ask(question="Two?", agent="builder-2")
        busy = await builder.post("/questions", json={"question": "Three?"})
        assert (busy.status_code, busy.json()["error"], busy.headers["Retry-After"]) == (
            429,
            "TOO_MANY_OPEN",
            "5",
        )
        builder.headers.pop("Authorization")
        assert (await Asker(builder).ask(question="Mine, too?"))["agent"] == "other"


async def test_accept_counts_for_what_was_redacted_too(stage: World) -> None:
    bare = '[[producers]]\nname = "bare"\nredact = ["hunter[0-9]"]\n'
    text = config(stage.producer.url, more=bare)
    asked: dict[str, Any] = {"action": "Log in", "arguments": {"password": "hunter1"}, "key": "k"}
    other = asked | {"arguments": {"password": "hunter2"}}
    hidden = asked | {"arguments": {"password": "[redacted]"}}
    async with stage.bot(text) as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
        first = await Asker(http).ask(**asked)
        card = await stage.card("Log in")
        assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")).ok
        for each in (other, hidden):
            assert (await Asker(http).ask(**each, status=409))["error"] == "KEY_REUSED"
    async with stage.bot(text) as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
        assert (await Asker(http).ask(**asked, status=200))["id"] == first["id"]
        assert (await Asker(http).ask(**other, status=409))["error"] == "KEY_REUSED"
    if (database := stage.folder / "clarify.db").exists():
        assert b"hunter1" not in database.read_bytes()


async def test_numbers_are_redacted_and_nothing_vanishes(stage: World) -> None:
    bare = '[[producers]]\nname = "bare"\nredact = ["hunter[0-9]", "[0-9]{16}"]\n'
    async with (
        stage.bot(config(stage.producer.url, more=bare)) as bot,
        httpx.AsyncClient(base_url=url_of(bot)) as http,
    ):
        asker = Asker(http)
        await asker.ask(action="Charge the card", arguments={"card": 4111111111111111, "cents": [1250]})
        card = await stage.card("Charge the card")
        assert "4111111111111111" not in said(card) + str(stage.ledger(100001))
        assert stage.record()["aaep"]["arguments"] == {"card": "[redacted]", "cents": [1250]}
        problem = await asker.ask(question="Which?", choices=["hunter1", "hunter2"], status=422)
        assert problem["field"] == "choices"
        both = {"of": [{"hunter1": 1, "hunter2": 2}]}
        assert (await asker.ask(action="Log in", arguments=both, status=422))["field"] == "arguments"


async def test_state_has_its_link_everywhere(stage: World, asker: Asker) -> None:
    asked = await asker.ask(question="Go on?", kind="yes_no", key="k")
    card = await stage.card("Go on?")
    while (link := (await asker.look(asked))["link"]) is None:
        pass  # the card is there before it is noted where
    assert link == stage.workspace.permalink(AGENTS, card.ts)
    again = await asker.http.post("/questions", json={"question": "Go on?", "kind": "yes_no", "key": "k"})
    assert (again.status_code, again.headers["Location"]) == (200, f"/questions/{asked['id']}")
    (listed,) = (await asker.http.get("/questions")).json()["questions"]
    assert listed["link"] == link
    assert (await asker.withdraw(asked))["link"] == link


async def test_caller_without_a_token_is_refused_where_all_have_one(stage: World) -> None:
    stage.environ["BUILDER_TOKEN"] = "t-builder"
    async with (
        stage.bot(config(stage.producer.url, more=OWNED)) as bot,
        httpx.AsyncClient(base_url=url_of(bot)) as http,
    ):
        assert (await Asker(http).ask(question="x", status=401))["error"] == "UNAUTHORIZED"


async def test_somebody_who_left_is_not_asked_anew(stage: World, asker: Asker) -> None:
    asked = await asker.ask(question="Your view?", to=ADE, key="k")
    await stage.card("Your view?")
    stage.workspace.change_user(ADE, deleted=True)
    await stage.heard("user_change")
    problem = await asker.ask(question="And yours?", to=ADE, status=422)
    assert (problem["field"], "deactivated" in problem["message"]) == ("to", True)
    assert (await asker.ask(question="Your view?", to=ADE, key="k", status=200))["id"] == asked["id"]


async def test_nobody_has_that_address(stage: World, asker: Asker) -> None:
    problem = await asker.ask(question="Your view?", to="nobody@example.com", status=422)
    assert (problem["field"], "no user with this email address" in problem["message"]) == ("to", True)
    stage.workspace.faults.add("users.lookupByEmail", "refuse:missing_scope", times=9)
    assert (await asker.ask(question="And yours?", to="someone@example.com"))["status"] == "waiting"


async def test_answer_that_was_waited_for_has_the_link_to_the_card_that_came_meanwhile(
    stage: World, asker: Asker
) -> None:
    waited = asyncio.create_task(
        asker.http.post("/questions", params={"wait": 50}, json={"question": "Go on?", "kind": "yes_no"})
    )
    card = await stage.card("Go on?")
    while (await asker.look({"id": "CLR-100001-001"}))["link"] is None:
        pass  # the card is there before it is noted where
    assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
    state = (await waited).json()
    assert (state["answer"], state["link"]) == (True, stage.workspace.permalink(AGENTS, card.ts))


async def test_person_is_asked_while_slack_does_not_tell_who_that_is(stage: World, asker: Asker) -> None:
    stage.workspace.faults.add("users.info", "5xx:500", times=9)
    assert (await asker.ask(question="Your view?", to=ONCALL))["status"] == "waiting"


async def test_names_are_redacted_and_keys_that_would_be_are_refused(stage: World) -> None:
    bare = '[[producers]]\nname = "bare"\nredact = ["hunter[0-9]"]\n'
    async with (
        stage.bot(config(stage.producer.url, more=bare)) as bot,
        httpx.AsyncClient(base_url=url_of(bot)) as http,
    ):
        asker = Asker(http)
        asked = await asker.ask(question="Go on?", agent="bot-hunter2", session="of-hunter2")
        assert (asked["agent"], asked["session"]) == ("bot-[redacted]", "of-[redacted]")
        card = await stage.card("Go on?")
        assert "hunter" not in said(card) + str(stage.ledger(100001))
        (listed,) = (await http.get("/questions", params={"session": "of-hunter2"})).json()["questions"]
        assert listed["id"] == asked["id"]
        problem = await asker.ask(question="Go on?", key="k-hunter2", status=422)
        assert problem["field"] == "key"
        assert "hunter" not in problem["message"]
        problem = await asker.ask(question="Go on?", agent="bot-hunter2", key="k", status=422)
        assert problem["field"] == "agent"  # another agent's key would be the same
        why = {"comment": "I found hunter3 myself"}
        await http.delete(f"/questions/{asked['id']}", params=why)
        assert "hunter" not in said(await stage.now_says(card, "I found [redacted] myself"))


SLOW = """
[[producers]]
name = "mailer"
token_env = "MAILER_TOKEN"
redact = ["sk-[a-z0-9]{20}", "[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+[.][A-Za-z]{2,}"]
[[producers]]
name = "other"
redact = ["hunter[0-9]"]
"""


async def test_text_that_takes_too_long_to_redact_is_refused_and_holds_nobody_up(stage: World) -> None:
    stage.environ["MAILER_TOKEN"] = "t-mailer"
    async with (
        stage.bot(config(stage.producer.url, more=SLOW)) as bot,
        httpx.AsyncClient(
            base_url=url_of(bot), headers={"Authorization": "Bearer t-mailer"}, timeout=60
        ) as mailer,
        httpx.AsyncClient(base_url=url_of(bot), timeout=60) as other,
    ):
        await Asker(mailer).ask(question="Write to ann@example.org?")
        assert "ann@" not in said(await stage.card("Write to [redacted]?"))
        turns = 0

        async def watch() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.01)
                turns += 1

        watching = asyncio.create_task(watch())
        nasty = {"question": "Write?", "context": "a" * 60_000 + "@"}
        asking = [asyncio.create_task(Asker(mailer).ask(status=422, **nasty)) for _ in range(6)]
        asked = await Asker(other).ask(question="The password is hunter2?", kind="yes_no")
        card = await stage.card("The password is [redacted]?")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        assert (await Asker(other).look(asked, wait=30))["answer"] is True
        assert not all(each.done() for each in asking)
        problems = await asyncio.gather(*asking)
        watching.cancel()
        assert {each["field"] for each in problems} == {"context"}
        assert all("redact[1]" in each["message"] and "aaa" not in each["message"] for each in problems)
        assert turns > 100, "the patterns run beside the event loop"
        listed = await mailer.get("/questions", params={"session": "a" * 250 + "@"})
        assert listed.json()["questions"] == []


async def test_forgotten_question_is_gone_also_for_who_waits(stage: World) -> None:
    async with stage.bot() as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
        asker = Asker(http)
        asked = await asker.ask(question="Still there?", key="k", session="s")
        other = await asker.ask(question="And this?", session="s")
        await stage.card("Still there?")
        waiting = asyncio.create_task(http.get(f"/questions/{asked['id']}", params={"wait": 55}))
        await until(lambda: any(asked["id"] in each.agents.questions._waiting for each in stage.bots))
        began = time.monotonic()
        forgotten = await beside(stage, "forget", asked["id"], "--abandon", "-y")
        assert forgotten.code == 0, forgotten.err
        told = await waiting  # it is closed first, which may be seen
        assert told.json().get("error", told.json().get("status")) in {"FORGOTTEN", "closed"}
        assert time.monotonic() - began < 30
        assert (await asker.look(asked, status=410))["error"] == "FORGOTTEN"
        await asker.withdraw(asked, status=410)
        await asker.ask(question="Still there?", key="k", session="s", status=410)
        (listed,) = (await http.get("/questions", params={"session": "s"})).json()["questions"]
        assert listed["id"] == other["id"]


async def test_texts_hold_no_character_that_a_database_does_not(asker: Asker) -> None:
    asked = await asker.ask(question="Go\0on?", session="s", choices=["\0a", "b"])
    (listed,) = (await asker.http.get("/questions", params={"session": "s"})).json()["questions"]
    assert listed["id"] == asked["id"]
    assert (await asker.http.get("/questions", params={"session": "s\0"})).json()["questions"] == []


async def listed(asker: Asker, **query: str) -> list[list[dict[str, Any]]]:
    """All pages."""
    pages: list[list[dict[str, Any]]] = []
    while True:
        page = asker.body(await asker.http.get("/questions", params=query), 200)
        pages.append(page["questions"])
        if page["next"] is None:
            return pages
        query["after"] = page["next"]


async def test_questions_are_listed_page_by_page(stage: World, asker: Asker) -> None:
    ids = [(await asker.ask(question=f"Step {number}?", session="s"))["id"] for number in range(43)]
    await asker.ask(question="Elsewhere?", session="t")
    for each in ids[3:40]:
        await asker.withdraw({"id": each})
    await stage.level()
    pages = await listed(asker, session="s")
    assert [len(page) for page in pages] == [20, 20, 3]
    assert [each["id"] for page in pages for each in page] == ids[::-1]
    waiting = await listed(asker, session="s", status="waiting")
    assert [[each["id"] for each in page] for page in waiting] == [ids[:39:-1] + ids[2::-1]]
    gone = await listed(asker, session="s", status="withdrawn")
    assert [len(page) for page in gone][:1] == [20]
    assert [each["id"] for page in gone for each in page] == ids[39:2:-1]
    assert len([each for page in await listed(asker) for each in page]) == 44
    assert (await asker.http.get("/questions", params={"after": "CLR-1-001"})).status_code == 404


async def test_list_reads_each_question_once_and_shows_no_large_arguments(
    stage: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage.bot() as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
        asker, about = Asker(http), {"rows": [{"to": f"ann{n}@example.com"} for n in range(1500)]}
        asked = [await asker.ask(action="Send 0", arguments=about, session="s")]
        card = await stage.card("Send 0")
        await stage.workspace.post(FOLAKE, AGENTS, "reject: no", card.ts)
        await until(lambda: stage.record()["status"] == "answered")
        asked += [
            await asker.ask(action=f"Send {number}", arguments=about, session="s", issue=number % 3 + 1)
            for number in range(1, 9)
        ]
        assert stage.issues() == [1, 2, 3, 100001]
        read: list[str] = []
        for each in stage.bots:
            monkeypatch.setattr(each.agents.questions, "ledger", Counted(each.base.ledger, read))
        (page,) = await listed(asker, session="s")
    assert [each["id"] for each in page] == [each["id"] for each in reversed(asked)]
    assert page[-1]["answer"] == {"decision": "reject"}
    assert (page[-1]["asked"]["action"], "arguments" in page[-1]["asked"]) == ("Send 0", False)
    assert sorted(read) == sorted(each["id"] for each in asked)


async def test_question_whose_row_somebody_broke_is_left_out_of_lists(stage: World, asker: Asker) -> None:
    broken = await asker.ask(question="Step 0?", session="s")
    ids = [(await asker.ask(question=f"Step {number}?", session="s"))["id"] for number in (1, 2)]
    change_row(stage, lambda record: record.update(status=7))
    for filters in ({}, {"session": "s"}):
        assert [[each["id"] for each in page] for page in await listed(asker, **filters)] == [ids[::-1]]
    answer = await asker.http.get(f"/questions/{broken['id']}")
    assert (answer.status_code, answer.json()["error"]) == (503, "LEDGER_UNREADABLE")


class Counted:
    """Reads records, and notes which."""

    def __init__(self, ledger: Ledger, noted: list[str]) -> None:
        self._ledger = ledger
        self._noted = noted

    async def find(self, clarification_id: str) -> Clarification:
        self._noted.append(clarification_id)
        return await self._ledger.find(clarification_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


async def test_page_of_large_questions_is_bounded_and_made_beside_the_loop(
    stage: World, asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    where: list[threading.Thread] = []

    def brief(record: Clarification) -> dict[str, Any]:
        where.append(threading.current_thread())
        return _brief(record)

    monkeypatch.setattr("bot.web.questions._brief", brief)
    about = "\N{GRINNING FACE}" * 65_536
    for number in range(21):
        await asker.ask(question=f"Step {number}?", context=about)
    page = await asker.http.get("/questions")
    assert len(page.content) < 1_100_000
    pages = await listed(asker)
    assert [each["asked"]["question"] for page in pages for each in page] == [
        f"Step {number}?" for number in range(20, -1, -1)
    ]
    assert {each["asked"]["context"] for page in pages for each in page} == {about}
    assert threading.main_thread() not in where


async def test_session_keeps_its_issue_unless_it_names_others_and_its_thread_always(
    stage: World, asker: Asker
) -> None:
    first = await asker.ask(question="Which branch?", session="s")
    card = await stage.card("Which branch?")
    many = {"text": "x" * 200_000}
    later = [await asker.ask(action="Send 0", arguments=many, session="s")]
    later += [await asker.ask(action=f"Send {n}", arguments=many, session="s", issue=n) for n in (1, 2)]
    assert [each["id"] for each in (first, *later)] == [
        "CLR-100001-001",
        "CLR-100001-002",
        "CLR-1-001",
        "CLR-2-001",
    ]
    for each in range(3):
        assert (await stage.card(f"Send {each}")).thread_ts == card.ts
    for withdrawn in later:
        await asker.withdraw(withdrawn)
    await stage.level()
    await stage.workspace.post(FOLAKE, AGENTS, "main", card.ts)
    assert (await asker.look(first, wait=30))["answer"] == "main"


async def test_session_that_asked_directly_is_listed_after_a_restart(stage: World) -> None:
    async with stage.bot() as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
        asker = Asker(http)
        asked = await asker.ask(question="Go on?", kind="yes_no", agent="captain")
        await stage.workspace.click(FOLAKE, AGENTS, (await stage.card("Go on?")).ts, label="Yes")
        assert (await asker.look(asked, wait=30))["answer"] is True
        await until(lambda: bot.base.index.get(asked["id"]) is None)
        assert "captain*, issue 100001: ready" in shown(await command(stage, "ready"))
    async with stage.bot():
        assert "captain*, issue 100001: ready" in shown(await command(stage, "ready"))


async def test_sessions_that_asked_directly_leave_the_lists_once_their_answers_are_taken(
    tmp_path: Path,
) -> None:
    clock = LeapClock()
    async with (
        scene(tmp_path, clock=clock) as stage,
        stage.bot() as bot,
        httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http,
    ):
        asker = Asker(http)
        taken = [await asker.ask(question=f"Step {n}?", kind="yes_no", agent="captain") for n in range(2)]
        left = await asker.ask(question="Left lying?", kind="yes_no", agent="mate")
        await asker.ask(question="Still open?", kind="yes_no", agent="cook")
        for words in ("Step 0?", "Step 1?", "Left lying?"):
            await stage.workspace.click(FOLAKE, AGENTS, (await stage.card(words)).ts, label="Yes")
        clock.leap(timedelta(minutes=20))
        for each in taken:
            assert (await asker.look(each))["answer"] is True
        await until(lambda: not any(bot.base.index.get(each["id"]) for each in taken))
        clock.leap(timedelta(minutes=9))
        told = shown(await command(stage, "ready"))
        assert [told.count(f"captain*, issue 10000{n}: ready") for n in (1, 2, 3)] == [1, 1, 0]
        clock.leap(timedelta(minutes=2))
        for text in ("ready", "agents"):
            told = shown(await command(stage, text))
            assert "captain" not in told
            assert "mate" in told, "nobody took its answer"
            assert "cook" in told
        assert (await asker.look(left))["answer"] is True
        # Its row alone comes before the bot has seen to it.
        await until(lambda: bot.base.index.get(left["id"]) is None)
        clock.leap(timedelta(minutes=11))
        assert "mate" not in shown(await command(stage, "ready"))
