"""What the whole app acknowledges, by either transport."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any
from urllib.parse import urlencode

import pytest
from slack_sdk.signature import SignatureVerifier

from bot.errors import StorageUnavailable
from bot.slack.request_url import NotTaken, RequestUrl
from bot.slack.socket import Envelope, Unacknowledged
from bot.workspace.seed import ADE, AGENTS, BOT_ID, PLATFORM, TEAM
from tests.unit.bot.slack.conftest import Start
from tests.unit.bot.slack.kit import SECRET, Bot


def event(kind: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "event_callback",
        "team_id": TEAM,
        "event_id": "Ev1",
        "event": {"type": kind, "user": ADE, **more},
    }


def interaction(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "team": {"id": TEAM}, "user": {"id": ADE, "team_id": TEAM}, **more}


VIEW = {"id": "V1", "type": "modal", "callback_id": "other", "private_metadata": "", "state": {"values": {}}}


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("events_api", event("message", channel=AGENTS, ts="1.0", text="hello")),
        ("events_api", event("message", channel=AGENTS, ts="1.0", subtype="message_changed", message={})),
        ("events_api", event("message", channel=AGENTS, ts="1.0", bot_id=BOT_ID, subtype="bot_message")),
        ("events_api", event("app_mention", channel=AGENTS, ts="1.0")),
        ("events_api", event("member_joined_channel", channel=AGENTS)),
        ("events_api", event("member_left_channel", channel=AGENTS)),
        ("events_api", event("subteam_updated", subteam={"id": PLATFORM})),
        ("events_api", event("tokens_revoked")),
        ("events_api", event("something_new")),
        ("events_api", event("function_executed", function={"callback_id": "f"})),
        (
            "interactive",
            interaction("block_actions", actions=[{"action_id": "x", "type": "button", "block_id": "b"}]),
        ),
        (
            "interactive",
            interaction(
                "block_actions",
                actions=[{"action_id": "clarify.yes", "block_id": "b", "type": "button", "value": "9|?"}],
            ),
        ),
        ("interactive", interaction("view_submission", view=VIEW)),
        ("interactive", interaction("view_submission", view=VIEW | {"callback_id": "clarify.answer"})),
        ("interactive", interaction("shortcut", callback_id="s")),
        ("interactive", interaction("message_action", callback_id="s")),
        ("interactive", interaction("block_suggestion", action_id="x", block_id="b", value="")),
        ("slash_commands", {"command": "/other", "team_id": TEAM, "user_id": ADE, "text": ""}),
    ],
)
async def test_every_envelope_is_acknowledged(built: Start, kind: str, payload: dict[str, Any]) -> None:
    await (await built()).app.dispatch(Envelope(payload, id="env1", kind=kind))


async def test_event_that_cannot_be_stored_is_not_acknowledged(
    built: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bot = await built()
    dispatch = bot.app.dispatch
    reply = event("message", channel=AGENTS, ts="2.0", thread_ts="1.0", text="a secret plan", team=TEAM)

    async def full(*_: object) -> bool:
        raise StorageUnavailable("the disk is full")

    with monkeypatch.context() as patch, caplog.at_level(logging.DEBUG):
        patch.setattr(bot.memory, "take_slack_event", full)
        with pytest.raises(Unacknowledged):
            await dispatch(Envelope(reply))
    assert "secret plan" not in caplog.text
    await dispatch(Envelope(reply, 1, "timeout"))
    await bot.conversation.idle()


async def test_somebody_who_just_joined_is_not_refused_on_old_facts(bot: Bot) -> None:
    bot.ws.leave(ADE, AGENTS)
    await bot.people.members(AGENTS)
    bot.people._again = 0.0
    bot.ws.context.options = type(bot.ws.context.options)(events=frozenset())
    bot.ws.join(ADE, AGENTS)
    record, ts = await bot.asked()

    await bot.ws.click(ADE, AGENTS, ts, label="Yes")

    assert (await bot.find(record)).given.response is True


class Slack:
    """Sends to a bot what a test wants sent."""

    def __init__(self, bot: Bot, url: RequestUrl) -> None:
        self.bot = bot
        self.url = url

    async def send(self, body: bytes, content_type: str) -> int:
        at = str(int(self.bot.clock.now().timestamp()))
        signature = str(SignatureVerifier(SECRET).generate_signature(timestamp=at, body=body))
        headers = {
            "x-slack-request-timestamp": at,
            "x-slack-signature": signature,
            "content-type": content_type,
        }
        try:
            await self.url.take(headers, body)
        except NotTaken as error:
            return error.status
        return 200

    async def event(self, **event: Any) -> int:
        payload = {"type": "event_callback", "team_id": TEAM, "event_id": "Ev1", "event": event}
        return await self.send(json.dumps(payload).encode(), "application/json")

    async def form(self, **fields: str) -> int:
        return await self.send(urlencode(fields).encode(), "application/x-www-form-urlencoded")


@pytest.fixture
async def slack(built: Start) -> Slack:
    bot = await built(mode="http")
    await bot.start()
    url = bot.app.request_url
    assert url is not None
    return Slack(bot, url)


def reply(thread_ts: str, text: str = "yes") -> dict[str, Any]:
    return {
        "type": "message",
        "channel": AGENTS,
        "channel_type": "channel",
        "user": ADE,
        "text": text,
        "ts": "1900000000.000100",
        "thread_ts": thread_ts,
    }


async def test_p4_event_is_kept_before_it_is_acknowledged(
    slack: Slack, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, ts = await slack.bot.asked()
    keep, kept, free = slack.bot.memory.take_slack_event, asyncio.Event(), asyncio.Event()

    async def slowly(key: str, body: dict[str, object]) -> bool:
        kept.set()
        await free.wait()
        return await keep(key, body)

    monkeypatch.setattr(slack.bot.memory, "take_slack_event", slowly)
    sent = asyncio.create_task(slack.event(**reply(ts)))
    await asyncio.wait_for(kept.wait(), 60)
    done, _ = await asyncio.wait({sent}, timeout=0.05)
    assert not done
    free.set()
    assert await sent == 200
    assert (await slack.bot.until_answered(record)).given.response is True


async def test_p4_event_that_cannot_be_kept_is_asked_for_again_and_counts_once(
    slack: Slack, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, ts = await slack.bot.asked()

    async def full(key: str, body: dict[str, object]) -> bool:
        raise StorageUnavailable("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(slack.bot.memory, "take_slack_event", full)
        assert await slack.event(**reply(ts)) == 500
    for _ in range(3):
        assert await slack.event(**reply(ts)) == 200
    answered = await slack.bot.until_answered(record)
    await slack.bot.conversation.idle()
    assert [entry.type for entry in (await slack.bot.find(answered)).thread].count("answer") == 1
