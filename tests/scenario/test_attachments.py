"""Pasted tables, forwarded messages and files in what people type: part of an answer, or its author hears that they are not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.world import World, controls
from tests.scenario.test_confirmations import confirm
from tests.scenario.typist import FREE, YES_NO, command, direct, of_issue, words
from workspace.seed import ADE, AGENTS, FOLAKE, ONCALL, RANDOM, USE_AS_ANSWER
from workspace.state import Message

TABLE = [["region", "cost"], ["eu-west", "12"]]
ROWS = "region | cost\neu-west | 12"
ME = "<@U0BOT>"


async def elsewhere(stage: World, text: str = "use the *old* one\nplease") -> tuple[str, str]:
    """What Folake said in another channel, to forward."""
    said = await stage.workspace.post(FOLAKE, RANDOM, text)
    return RANDOM, said.ts


async def reply(stage: World, card: Message, text: str = "", user: str = ADE, **along: Any) -> Message:
    return await stage.workspace.post(user, AGENTS, text, thread_ts=card.ts, **along)


async def test_table_and_forwarded_message_are_part_of_the_answer(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(**FREE)
        await reply(stage, card, "these:", table=TABLE, forward=await elsewhere(stage))
        forwarded = "Forwarded from @Folake:\n> use the *old* one\n> please"
        assert (await stage.reply())["response"] == f"these:\n\n{ROWS}\n\n{forwarded}"
        assert not stage.workspace.ephemerals(ADE)


async def test_table_alone_is_an_answer(stage: World) -> None:
    async with stage.bot():
        await reply(stage, await stage.ask(**FREE), table=TABLE)
        assert (await stage.reply())["response"] == ROWS


async def test_forwarded_message_alone_is_an_answer_and_its_mentions_are_nobody_s_talk(stage: World) -> None:
    async with stage.bot():
        await reply(stage, await stage.ask(**FREE), forward=await elsewhere(stage, "ask @lin"))
        assert (await stage.reply())["response"].startswith("Forwarded from @Folake:\n> ask @")


async def test_answer_that_cannot_hold_what_is_attached_is_asked_for_again(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(**YES_NO)
        await reply(stage, card, "yes", table=TABLE)
        told = await stage.whisper(ADE, "What you attached can't be part of this answer")
        assert "If you mean yes, reply with just yes" in told.text
        await reply(stage, card, "no")
        assert (await stage.reply())["response"] is False


async def test_author_hears_that_a_file_did_not_go_with_the_answer(stage: World) -> None:
    async with stage.bot():
        await reply(stage, await stage.ask(**YES_NO), "yes", files=["plan.pdf"])
        told = await stage.whisper(ADE, "agents get text only")
        assert "is answered: “Yes”" in told.text
        assert (await stage.reply())["response"] is True


async def test_forwarded_message_without_text_is_not_ignored_in_silence(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(**FREE)
        upload = await stage.workspace.post(FOLAKE, RANDOM, "", files=["plan.pdf"])
        await reply(stage, card, forward=(RANDOM, upload.ts))
        await stage.whisper(ADE, "A file alone is not an answer")


@pytest.mark.parametrize("consent", ["accept", "accept.", "accept: as we agreed"])
@pytest.mark.parametrize("along", ["table", "forward", "files"])
async def test_typed_consent_with_something_attached_never_counts(
    stage: World, consent: str, along: str
) -> None:
    async with stage.bot():
        card = await confirm(stage)
        sent: Any = {"table": TABLE, "files": ["conditions.pdf"]}.get(along) or await elsewhere(
            stage, "only staging"
        )
        for _ in range(2):  # not even in silence, the second time
            before = len(stage.workspace.ephemerals(ADE))
            await reply(stage, card, consent, **{along: sent})
            await stage.until(lambda seen=before: len(stage.workspace.ephemerals(ADE)) > seen)  # type: ignore[misc]
        told = await stage.whisper(ADE, "An accept doesn't count if something is attached to it")
        assert "Reply with accept or reject" in told.text
        assert controls(stage.cards()[0]) == ["Accept", "Reject", "Answer…", "Take"]
        await reply(stage, card, "reject")
        assert (await stage.reply())["decision"] == "reject"


@pytest.mark.parametrize("along", ["table", "forward"])
async def test_what_is_attached_is_never_a_decision(stage: World, along: str) -> None:
    async with stage.bot():
        card = await confirm(stage)
        for decision in ("accept", "reject"):
            sent: Any = [[decision]] if along == "table" else await elsewhere(stage, decision)
            await reply(stage, card, user=FOLAKE if decision == "reject" else ADE, **{along: sent})
        await stage.whisper(ADE, "Reply with accept or reject")
        await stage.whisper(FOLAKE, "Reply with accept or reject")
        assert stage.record()["status"] == "pending"


async def test_rejection_counts_and_what_is_attached_is_its_reason(stage: World) -> None:
    async with stage.bot():
        card = await confirm(stage)
        await reply(
            stage, card, "reject, see:", forward=await elsewhere(stage, "I accept nothing on Fridays")
        )
        answer = await stage.reply()
        assert answer["decision"] == "reject"
        assert answer["decision_rationale"] == (
            "see:\n\nForwarded from @Folake:\n> I accept nothing on Fridays"
        )


async def test_edit_adds_the_table_that_answers(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(**FREE)
        mine = await reply(stage, card, "note: table follows", table=[["draft"]])
        await stage.workspace.edit(ADE, AGENTS, mine.ts, "", table=TABLE)
        assert (await stage.reply())["response"] == ROWS
        await stage.workspace.edit(ADE, AGENTS, mine.ts, "", table=[["other"]])
        await stage.message("Editing or deleting a reply does not change the answer")


async def test_consent_counts_once_its_author_removes_what_is_attached(stage: World) -> None:
    async with stage.bot():
        card = await confirm(stage)
        mine = await reply(stage, card, "accept", table=TABLE)
        await stage.whisper(ADE, "An accept doesn't count")
        await stage.workspace.edit(ADE, AGENTS, mine.ts, "accept", table=[])
        assert (await stage.reply())["decision"] == "accept"


async def test_preview_of_a_link_changes_nothing(stage: World) -> None:
    """Slack adds it to the message a moment later; the history has it from the beginning."""
    async with stage.bot():
        card = await confirm(stage)
        mine = await reply(stage, card, "accept: as in https://example.com/plan")
        preview = {"id": 1, "from_url": "https://example.com/plan", "title": "Plan", "text": "The plan"}
        before = mine.edited
        stage.workspace.board.change(mine, ADE, {"attachments": [preview], "edited": before})
        assert (await stage.reply())["decision"] == "accept"
    assert not [m for m in stage.workspace.messages(AGENTS) if "Editing" in m.text]


@pytest.mark.either_database
async def test_what_was_attached_while_the_bot_was_down_counts_alike(stage: World) -> None:
    async with stage.bot():
        first = await stage.ask("rpl_1", question="First?", session="one", **FREE)
        second = await confirm(stage, "rpl_2", session="two")
    preview = {"id": 1, "from_url": "https://example.com", "title": "Example"}
    await reply(stage, first, "see https://example.com", table=TABLE)
    stage.workspace.messages(AGENTS)[-1].attachments.append(preview)
    await reply(stage, second, "accept", forward=await elsewhere(stage))
    async with stage.bot():
        assert (await stage.reply("rpl_1"))["response"] == f"see https://example.com\n\n{ROWS}"
        await stage.whisper(ADE, "An accept doesn't count")
        assert len(stage.producer.replies) == 1


async def test_reply_with_several_open_questions_keeps_its_table(stage: World) -> None:
    async with stage.bot():
        first = await stage.ask("rpl_1", question="Deploy now?", **FREE)
        await stage.ask("rpl_2", question="Which region?", **FREE)
        await reply(stage, first, "this", table=TABLE, files=["plan.pdf"])
        asked = await stage.message("Which question is this an answer to?")
        label = next(label for label in controls(asked) if "Which region" in label)
        await stage.workspace.click(ADE, AGENTS, asked.ts, label=label)
        assert (await stage.reply("rpl_2"))["response"] == f"this\n\n{ROWS}"
        await stage.whisper(ADE, "agents get text only")


async def test_use_as_answer_takes_the_table_along_and_no_consent_with_one(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask("rpl_1", question="First?", session="one", **FREE)
        mine = await reply(stage, card, "note: this", user=FOLAKE, table=TABLE)
        await stage.workspace.shortcut(ADE, USE_AS_ANSWER, mine.ts, AGENTS)
        assert (await stage.reply("rpl_1"))["response"] == f"this\n\n{ROWS}"
        action = await confirm(stage, "rpl_2", session="two")
        comment = await reply(stage, action, "note: accept", user=FOLAKE, files=["conditions.pdf"])
        await stage.workspace.shortcut(ADE, USE_AS_ANSWER, comment.ts, AGENTS)
        await stage.whisper(ADE, "An accept doesn't count")
        upload = await reply(stage, action, user=FOLAKE, files=["conditions.pdf"])
        await stage.workspace.shortcut(ADE, USE_AS_ANSWER, upload.ts, AGENTS)
        await stage.whisper(ADE, "A file alone is not an answer")
        assert len(stage.producer.replies) == 1


async def paged(stage: World) -> Message:
    await stage.ask(question="Which plan?", **FREE, **of_issue(42))
    await command(stage, "escalate CLR-42-001")
    return await stage.page("Which plan?")


@pytest.mark.parametrize("in_thread", [True, False])
async def test_direct_message_answers_a_page_with_what_it_forwards(stage: World, in_thread: bool) -> None:
    async with stage.bot():
        page = await paged(stage)
        forward, thread = await elsewhere(stage, "plan B"), page.ts if in_thread else None
        await stage.workspace.post(ONCALL, page.channel, "", files=["plan.pdf"], thread_ts=thread)
        await stage.message("A file alone is not an answer", page.channel)
        await stage.workspace.post(ONCALL, page.channel, "", forward=forward, thread_ts=thread)
        assert (await stage.reply())["response"] == "Forwarded from @Folake:\n> plan B"


async def test_direct_message_that_answers_nothing_is_not_ignored_in_silence(stage: World) -> None:
    async with stage.bot():
        channel = direct(stage, ADE)
        await stage.workspace.post(ADE, channel, "", forward=await elsewhere(stage))
        await stage.message("I don't know which question this answers", channel)


async def test_command_that_changes_something_takes_no_attachment(stage: World) -> None:
    async with stage.bot():
        await stage.ask(**FREE, **of_issue(42))
        channel = direct(stage, ADE)
        await stage.workspace.post(ADE, channel, "answer CLR-42-001 these", table=TABLE)
        await stage.message("a command takes no attachments", channel)
        await stage.workspace.post(ADE, AGENTS, f"{ME} answer CLR-42-001 these", table=TABLE)
        told = await stage.whisper(ADE, "a command takes no attachments")
        assert "Nothing was changed" in words(told)
        await stage.workspace.post(ADE, channel, "list", files=["plan.pdf"])
        await stage.message("CLR-42-001", channel)
        assert stage.record(42)["status"] == "pending"


async def test_mention_of_the_bot_with_a_table_alone_is_an_answer(stage: World) -> None:
    async with stage.bot():
        await reply(stage, await stage.ask(**FREE), ME, table=TABLE)
        assert (await stage.reply())["response"] == ROWS
