"""The app behind the request URL: nothing is answered with 200 before it is kept, and slow people are not waited for."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlencode

import pytest

from bot.errors import StorageUnavailable
from bot.people import _budget
from bot.slack.http import SIGNATURE, TIMESTAMP, Answer, RequestUrl, signed
from bot.workspace.seed import ADE, AGENTS, TEAM
from tests.unit.bot.slack.conftest import Start
from tests.unit.bot.slack.kit import SECRET, Bot


class Slack:
    """Sends to a bot what a test wants sent."""

    def __init__(self, bot: Bot, url: RequestUrl) -> None:
        self.bot = bot
        self.url = url

    async def send(self, body: bytes, content_type: str) -> Answer:
        at = str(int(self.bot.clock.now().timestamp()))
        headers = {TIMESTAMP: at, SIGNATURE: signed(SECRET, at, body), "content-type": content_type}
        return await self.url.take(headers, body)

    async def event(self, **event: Any) -> Answer:
        payload = {"type": "event_callback", "team_id": TEAM, "event_id": "Ev1", "event": event}
        return await self.send(json.dumps(payload).encode(), "application/json")

    async def form(self, **fields: str) -> Answer:
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
    assert (await sent).status == 200
    assert (await slack.bot.until_answered(record)).asked.response is True


async def test_p4_event_that_cannot_be_kept_is_asked_for_again_and_counts_once(
    slack: Slack, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, ts = await slack.bot.asked()

    async def full(key: str, body: dict[str, object]) -> bool:
        raise StorageUnavailable("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(slack.bot.memory, "take_slack_event", full)
        assert (await slack.event(**reply(ts))).status == 500
    for _ in range(3):
        assert (await slack.event(**reply(ts))).status == 200
    answered = await slack.bot.until_answered(record)
    await slack.bot.conversation.idle()
    assert [entry.type for entry in (await slack.bot.find(answered)).thread].count("answer") == 1


async def test_command_is_limited_and_event_is_not(slack: Slack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slack waits three seconds; who somebody is has to be known well before."""
    limited: dict[str, bool] = {}
    obey, take = slack.bot.interactions.obey, slack.bot.memory.take_slack_event

    async def obeying(order: Any) -> Any:
        limited["command"] = _budget.get() is not None
        return await obey(order)

    async def taking(key: str, body: dict[str, object]) -> bool:
        limited["event"] = _budget.get() is not None
        return await take(key, body)

    monkeypatch.setattr(slack.bot.interactions, "obey", obeying)
    monkeypatch.setattr(slack.bot.memory, "take_slack_event", taking)
    _, ts = await slack.bot.asked()
    await slack.form(command="/clarify", text="help", user_id=ADE, team_id=TEAM, channel_id=AGENTS)
    await slack.event(**reply(ts))
    assert limited == {"command": True, "event": False}


async def test_command_is_answered_with_a_message_for_the_person_alone(slack: Slack) -> None:
    fields = {"command": "/clarify", "text": "help", "user_id": ADE, "team_id": TEAM, "channel_id": AGENTS}
    answer = await slack.form(**fields)
    assert answer.status == 200
    assert answer.content_type.startswith("application/json")
    assert json.loads(answer.body)["response_type"] == "ephemeral"


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "event_callback", "event": {"type": "of a later year"}},
        {"type": "event_callback", "event": {"type": "message", "subtype": "message_changed"}},
        {"type": "block_actions", "actions": [{"action_id": "x", "block_id": "y", "type": "button"}]},
        {"type": "view_closed", "view": {"callback_id": "x", "type": "modal"}},
    ],
)
async def test_what_nobody_wants_is_acknowledged(slack: Slack, payload: dict[str, Any]) -> None:
    person = {"team": {"id": TEAM}, "user": {"id": ADE}, "team_id": TEAM}
    answer = await slack.send(json.dumps(person | payload).encode(), "application/json")
    assert answer.status == 200
