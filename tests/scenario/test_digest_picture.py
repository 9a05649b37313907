"""`digest png`: the figures also as a picture, for the one who asked alone; and what they are told without one."""

from __future__ import annotations

import sys

import pytest

from bot.workspace.seed import ADE, AGENTS, BOT_TOKEN, BOT_USER, FOLAKE, RANDOM
from bot.workspace.state import File, Message
from tests.kit.world import World
from tests.scenario.typist import LIN, command, direct, of_issue, outsider, words

PNG = b"\x89PNG\r\n\x1a\n"
SHELL = "`clarify digest --png FILE` draws it in a shell."


async def picture(stage: World, user: str = ADE) -> tuple[Message, File]:
    """The message with the picture, in the person's direct messages, once it is there."""
    message: Message = await stage.until(
        lambda: next((m for m in stage.workspace.direct(user) if m.files), None)
    )
    return message, stage.workspace.state.files[message.files[0]]


def pictures(stage: World) -> list[str]:
    """The conversations that pictures were shared in."""
    channels = stage.workspace.state.channels.values()
    return [each.id for each in channels for message in each.messages.values() if message.files]


@pytest.mark.parametrize("where", ["channel", "direct messages", "mention"])
async def test_picture_comes_to_the_direct_messages(stage: World, where: str) -> None:
    async with stage.bot():
        await stage.ask("rpl_1", session="s1", **of_issue(42, topic="deploys"))
        await stage.ask("rpl_2", session="s2", question="And now?", **of_issue(42))
        await command(stage, "answer CLR-42-001 yes")
        if where == "mention":
            await stage.workspace.post(ADE, AGENTS, f"<@{BOT_USER}> digest 7d png")
            told = await stage.whisper(ADE, "Last")
        else:
            told = await command(
                stage, "digest png 7d", channel=AGENTS if where == "channel" else direct(stage, ADE)
            )
        message, file = await picture(stage)

    assert "Asked*: 2 (" in words(told)
    assert "A picture of these figures will arrive in our DM." in words(told)
    assert file.content is not None
    assert file.content.startswith(PNG)
    assert (file.name, file.title) == ("digest.png", "Last 7 days")
    assert message.text.startswith("Last 7 days. Asked: 2 (")
    assert "1 open" in message.text
    assert "Time to answer: median " in message.text
    assert message.text in file.alt
    assert "Top answerers: ade 1" in file.alt
    assert pictures(stage) == [direct(stage, ADE)]
    assert stage.workspace.direct(FOLAKE) == []


async def test_without_the_word_there_is_no_picture(stage: World) -> None:
    async with stage.bot():
        told = await command(stage, "digest 7d")
    assert "picture" not in words(told)
    assert not stage.calls("files.getUploadURLExternal", ok=False)


async def test_p6_picture_counts_only_what_its_reader_may_see(stage: World) -> None:
    outsider(stage)
    async with stage.bot():
        await stage.ask()
        await command(stage, "digest png", LIN, RANDOM)
        message, _ = await picture(stage, LIN)
    assert message.text.startswith("Last 7 days. Asked: 0 (")


@pytest.mark.parametrize(
    ("method", "fault", "said"),
    [
        ("files.getUploadURLExternal", "refuse:file_uploads_disabled", "Slack says file_uploads_disabled. "),
        ("files.completeUploadExternal", "429:5", "Slack is busy or out of reach, please try again in a minute. "),
        ("files.completeUploadExternal", "accept_then_drop", "it may have arrived anyway. "),
        ("conversations.open", "refuse:user_disabled", "Slack says user_disabled. "),
    ],
)  # fmt: skip
async def test_failed_upload_is_told_where_it_was_asked_for(
    stage: World, method: str, fault: str, said: str
) -> None:
    async with stage.bot():
        stage.workspace.faults.add(method, fault)
        await command(stage, "digest 7d png")
        told = await stage.whisper(ADE, "The picture could not be sent: ")
        assert stage.calls(method, ok=False) == 1  # it is not tried again
    assert told.channel == AGENTS
    assert told.text.endswith(said + SHELL)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("bytes", "Slack did not take the file ("),
        ("drawing", f"The picture could not be sent: something went wrong (TypeError). {SHELL}"),
        ("scope", "the app lacks the scope files:write; see manifest.yml. "),
    ],
)
async def test_picture_that_cannot_be_sent_is_told_and_the_figures_are_there(
    stage: World, monkeypatch: pytest.MonkeyPatch, broken: str, said: str
) -> None:
    tokens = stage.workspace.state.tokens
    if broken == "bytes":
        monkeypatch.setattr("bot.workspace.api.MOST_BYTES", 100)
    elif broken == "drawing":
        monkeypatch.setattr("bot.charts._figure", None)
    else:
        tokens[BOT_TOKEN] = tokens[BOT_TOKEN] - {"files:write"}
    async with stage.bot():
        assert "Asked*: 0" in words(await command(stage, "digest png"))
        told = await stage.whisper(ADE, "The picture could not be sent: ")
    assert said in told.text
    assert not pictures(stage)


async def test_where_the_bot_is_no_member_a_failure_is_told_in_the_direct_messages(stage: World) -> None:
    async with stage.bot():
        stage.workspace.faults.add("files.getUploadURLExternal", "refuse:file_uploads_disabled")
        await command(stage, "digest png", ADE, RANDOM)
        told = await stage.whisper(ADE, "The picture could not be sent: ")
    assert told.channel == direct(stage, ADE)


async def test_acknowledgement_does_not_wait_for_the_picture(stage: World) -> None:
    async with stage.bot():
        stage.workspace.faults.add("files.getUploadURLExternal", "delay:3")
        told = await command(stage, "digest png")
        assert "Asked*: 0" in words(told)
        assert not pictures(stage)
        await picture(stage)


async def test_without_what_draws_the_figures_come_with_how_to_get_it(
    stage: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    async with stage.bot():
        told = await command(stage, "digest png")
    assert "Asked*: 0" in words(told)
    assert "pip install 'clarify-bot[charts]'" in words(told)
    assert not stage.calls("files.getUploadURLExternal", ok=False)
