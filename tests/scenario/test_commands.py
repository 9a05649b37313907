"""Each form of `/clarify` that reads, on the bot as a whole: what is listed, for whom, and what it cannot do.

Nothing here changes anything, so all tests share one bot.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.kit.world import World, scene
from tests.scenario.typist import (
    FREE,
    HOSTILE,
    LIN,
    assert_inert,
    buttons,
    command,
    direct,
    ids,
    of_issue,
    outsider,
    words,
)
from workspace.seed import ADE, AGENTS, EVA, FOLAKE, GIO, ONCALL, RANDOM

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG: dict[str, Any] = {"timeout_seconds": 3600}
CHANGES = ("answer CLR-42-001 yes", "resolve CLR-42-001 yes", "escalate CLR-42-001", "abandon CLR-42-001")
DEPLOY, PORT, KEYS = "Deploy to production?", "Which port?", "Rotate the keys?"
FORMS = (
    "/clarify",
    "list [#42]",
    "show ID",
    "#42",
    "CLR-42-001",
    "stale",
    "mine",
    "answer ID text",
    "resolve ID text",
    "escalate ID [reason]",
    "abandon ID [reason]",
    "oncall",
    "agents",
    "ready",
    "digest [7d]",
    "help [topic]",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Open: two of issue 42, an escalated one of issue 7, one of an agent that wants to break out. Answered: one."""
    async with scene(tmp_path_factory.mktemp("desk")) as stage, stage.bot():
        outsider(stage)
        await stage.ask("rpl_1", session="sess_1", question=DEPLOY, timeout_seconds=3000, **of_issue(42))
        await stage.ask("rpl_2", session="sess_2", question=PORT, **(LONG | FREE), **of_issue(42))
        await stage.ask("rpl_3", session="sess_3", question=KEYS, **LONG, **of_issue(7))
        await stage.ask("rpl_4", session="sess_4", question="Again?", **of_issue(7))
        evil = {"agent_id": "evil", "agent_name": HOSTILE}
        await stage.emit("rpl_5", session=HOSTILE, question=HOSTILE, producer=evil, **LONG, **of_issue(66))
        await stage.card("CLR-66-001")
        await command(stage, "escalate CLR-7-001", FOLAKE)
        await command(stage, "answer CLR-7-002 yes", FOLAKE)
        await stage.reply("rpl_4")
        # The last that is written by itself; from here on, only tests change what is there.
        await stage.until(lambda: _records(stage, 7)[1]["status"] == "resolved")
        yield stage


def _records(stage: World, issue: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stage.ledger(issue)["clarifications"]
    return found


READING = [
    ("", ("Open questions: 4", DEPLOY, PORT, KEYS), ("Again?",)),
    ("/clarify", ("Open questions: 4",), ()),
    ("#42", ("Issue 42: 2 clarifications, 2 open", DEPLOY, PORT), (KEYS,)),
    ('"#42"', ("Issue 42: 2 clarifications, 2 open",), ()),
    ("#7", ("Issue 7: 2 clarifications, 1 open", KEYS, f"answered: “Yes” by <@{FOLAKE}>"), (DEPLOY,)),
    ("list 42", ("Issue 42: 2 clarifications, 2 open",), ()),
    ("show CLR-42-001", ("CLR-42-001", DEPLOY), (PORT,)),
    ("CLR-42-001", ("CLR-42-001", DEPLOY), (PORT,)),
    ("clr-42-2", ("CLR-42-002", PORT), (DEPLOY,)),
    ("`CLR-42-002`", ("CLR-42-002", PORT), (DEPLOY,)),
    ("CLR-7-002", (f"answered: “Yes” by <@{FOLAKE}>",), (KEYS,)),
    ("stale", ("Overdue questions: 1", KEYS, "escalated (by hand)"), (DEPLOY, PORT)),
    ("‘Stale’", ("Overdue questions: 1",), ()),
    ("mine", ("Waiting for you: 4",), ()),
    ("agents", ("Planner", "waiting for a person", "CLR-42-001"), ()),
    ("Ready", ("issue 42: blocked by CLR-42-001", "issue 7: ready"), ()),
    ("digest", ("Last 7 days", "Asked*: 5 (", "4 open", "Escalated*: 1", f"<@{FOLAKE}>"), ()),
    ("digest", ("By person", f"<@{FOLAKE}>: 1 answer, median "), ()),
    ("digest 24h", ("Last 24 hours", "Asked*: 5 ("), ()),
    ("DIGEST 2 weeks", ("Last 14 days",), ()),
    ("oncall", (f"platform: <@{ONCALL}>",), ()),
    ("oncall who PLATFORM", (f"platform: <@{ONCALL}>",), ()),
    ("help", FORMS, ()),
    ("help answer", ("answer ID text", "Example"), ()),
    ("Help On-Call", ("oncall take 2h", "Example"), ()),
]
HINTS = [
    ("stael", "Did you mean “/clarify stale”?"),
    ("CLR_42_001", "Did you mean “/clarify CLR-42-001”?"),
    ("stale #42", "Did you mean “/clarify stale”?"),
    ("answer CLR-42-001", "What is the answer?"),
    ("resolve #42", "How was it resolved?"),
    ("oncall hand", "Who takes over?"),
    ("oncall who platfrom", "Did you mean “platform”?"),
    ("digest often", "“/clarify digest 7d”"),
    ("help anser", "Did you mean “/clarify help answer”?"),
    ("CLR-9-009", "There is no question CLR-9-009"),
    ("#999", "Issue 999 has no questions"),
    ("answer CLR-9-009 yes", "There is no question CLR-9-009"),
    ("resolve CLR-42-099 yes", "There is no question CLR-42-099"),
    ("escalate CLR-9-009", "There is no question CLR-9-009"),
    ("abandon CLR-9-009", "There is no question CLR-9-009"),
    ("answer #999 yes", "No question is open for issue 999"),
    ("answer #42 yes", "2 questions are open for issue 42. Nothing was changed"),
    ("answer CLR-42-001 perhaps", "Not answered"),
    ("answer CLR-7-002 no", "was already answered"),
    ("abandon CLR-7-002", "already answered"),
]


@pytest.mark.needs("digest")
@pytest.mark.parametrize("where", ["channel", "direct messages"])
async def test_reading_form_answers_to_its_author_alone(desk: World, where: str) -> None:
    channel = AGENTS if where == "channel" else direct(desk, ADE)
    for text, said, unsaid in READING:
        told = await command(desk, text, ADE, channel)
        assert told.channel == channel
        shown = words(told)
        assert [each for each in said if each not in shown] == [], (text, shown)
        assert [each for each in unsaid if each in shown] == [], (text, shown)
        assert_inert(told)
        assert told.text not in [message.text for message in desk.workspace.messages(channel)]


@pytest.mark.needs("digest")
async def test_what_cannot_be_done_is_said_and_changes_nothing(desk: World) -> None:
    before = [desk.ledger(n) for n in (7, 42)]
    for text, said in HINTS:
        told = await command(desk, text)
        assert said in words(told), (text, words(told))
        assert [desk.ledger(n) for n in (7, 42)] == before, text


async def test_list_has_links_and_what_can_be_done_row_by_row(desk: World) -> None:
    told = await command(desk, "")
    assert ids(told) == ["CLR-42-001", "CLR-42-002", "CLR-7-001", "CLR-66-001"]  # by time left
    for name, card in (("CLR-42-001", DEPLOY), ("CLR-7-001", KEYS)):
        link = desk.workspace.permalink(AGENTS, (await desk.card(card)).ts)
        assert f"<{link}|{name}>" in words(told)
    row = ["Answer…", "View full"]
    assert buttons(told) == [*row, *row, *row, "Take", *row]
    assert "CLR-42-001" in told.text  # read aloud, it is all said
    assert DEPLOY in told.text


@pytest.mark.needs("digest")
@pytest.mark.parametrize("text", ["", "mine", "#66", "CLR-66-001", "agents", "ready", "digest 7d"])
async def test_p8_agents_words_are_inert_in_every_list(desk: World, text: str) -> None:
    told = await command(desk, text)
    assert "Ping" in words(told)
    assert_inert(told)


async def test_p8_what_a_person_typed_is_inert_in_the_hint(desk: World) -> None:
    assert_inert(await command(desk, HOSTILE))
    assert_inert(await command(desk, f"answer {HOSTILE}"))
    assert_inert(await command(desk, f"answer CLR-42-001 {HOSTILE}"))


@pytest.mark.parametrize(("user", "why"), [(GIO, "a guest"), (EVA, "not a member of this workspace")])
async def test_p6_who_may_not_answer_sees_the_channels_questions_without_controls(
    desk: World, user: str, why: str
) -> None:
    told = await command(desk, "", user)
    assert "0 for you, 4 more in this channel" in words(told)
    assert set(buttons(told)) == {"View full"}
    assert "No questions are waiting for you" in words(await command(desk, "mine", user))
    for text in CHANGES:
        assert why in words(await command(desk, text, user)), text
    assert why in words(await command(desk, "oncall take 2h", user))
    assert desk.record(42)["status"] == "pending"


@pytest.mark.parametrize("text", ["", "mine", "stale", "#42", "CLR-42-001", "agents", "ready", "digest"])
async def test_p6_who_is_not_in_the_channel_sees_nothing_of_it(desk: World, text: str) -> None:
    told = words(await command(desk, text, LIN, RANDOM))
    assert not [each for each in (DEPLOY, PORT, KEYS, "Planner", "Asked*: 5") if each in told], told


async def test_p6_who_is_not_in_the_channel_changes_nothing_and_is_told_so(desk: World) -> None:
    for text in CHANGES:
        told = words(await command(desk, text, LIN, RANDOM))
        assert "you are not in the channel" in told, told
    assert desk.record(42)["status"] == "pending"


@pytest.mark.parametrize("name", ["CLR-42-001", "CLR-7-001", "CLR-7-002", "CLR-9-009"])
async def test_p6_question_of_a_foreign_channel_is_told_from_none_by_no_command(
    desk: World, name: str
) -> None:
    """Open, escalated, answered, or not there at all."""
    forms = (name, f"show {name}", *(text.replace("CLR-42-001", name) for text in CHANGES))
    told = {words(await command(desk, text, LIN, RANDOM)) for text in forms}
    assert told == {f"There is no question {name}, or you are not in the channel where it was asked."}


async def test_elsewhere_only_what_waits_for_the_person_is_listed(desk: World) -> None:
    assert "Open questions: 4" in words(await command(desk, "", ADE, RANDOM))
    assert "No questions are waiting for you" in words(await command(desk, "", GIO, RANDOM))
