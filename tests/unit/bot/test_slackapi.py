"""Calls to Slack: what a failure means, how long is waited, when Slack counts as back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import aiohttp
import pytest
from aiohttp import web as http
from aiohttp.connector import Connection
from aiohttp.test_utils import TestServer
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import NotLeading, SlackUnreachableError
from bot.slackapi import (
    NETWORK_ERRORS,
    Availability,
    Gateway,
    Later,
    Never,
    Outcome,
    Place,
    Post,
    Sent,
    SlackBusyError,
    SlackClient,
    Unknown,
    ask,
    failure,
)
from bot.telemetry import Telemetry
from bot.views import blockkit
from tests.kit.builders import counted
from tests.kit.clocks import ManualClock
from tests.unit.bot.slack.kit import settings
from workspace import Workspace
from workspace.seed import ADE, AGENTS, BOT_TOKEN


class Response:
    def __init__(self, status: int, data: Any, headers: dict[str, Any] | None = None) -> None:
        self.status_code, self.data, self.headers = status, data, headers or {}


def api_error(message: str, response: Response) -> SlackApiError:
    return SlackApiError(message, response)  # type: ignore[no-untyped-call]


def refusal(code: str, status: int = 200, **headers: Any) -> SlackApiError:
    data = {"ok": False, "error": code}
    return api_error(code, Response(status, data, {k.replace("_", "-"): v for k, v in headers.items()}))


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (refusal("ratelimited", 429, Retry_After="30"), Later("ratelimited", 30.0)),
                        (refusal("ratelimited", 429), Later("ratelimited", None)),
        (refusal("ratelimited", 429, Retry_After="soon"), Later("ratelimited", None)),
                (refusal("ratelimited", 429, Retry_After="999999"), Later("ratelimited", 3600.0)),
        (refusal("ratelimited", 429, Retry_After="nan"), Later("ratelimited", None)),
                (refusal("rate_limited"), Later("rate_limited", None)),
        (refusal("service_unavailable", 503), Later("service_unavailable", None)),
                (refusal("internal_error"), Unknown("internal_error")),
                        (api_error("x", Response(502, "<html>")), Unknown("HTTP 502")),
                (refusal("invalid_blocks"), Never("invalid_blocks", "content")),
                (refusal("a_new_code"), Never("a_new_code", "unknown")),
        (refusal("is_archived"), Never("is_archived", "place")),
        (refusal("message_not_found"), Never("message_not_found", "message")),
        (refusal("token_revoked"), Never("token_revoked", "app")),
        (TimeoutError(), Unknown("TimeoutError")),
        (ConnectionResetError(), Unknown("ConnectionResetError")),
        (aiohttp.ServerDisconnectedError(), Unknown("ServerDisconnectedError")),
        (aiohttp.ClientPayloadError(), Unknown("ClientPayloadError")),
        (aiohttp.ConnectionTimeoutError(), Later("no connection (ConnectionTimeoutError)")),
                    ],
)  # fmt: skip
def test_failure_table(error: BaseException, outcome: Later | Unknown | Never) -> None:
    assert failure(error) == outcome


@pytest.mark.parametrize("error", [ValueError(), asyncio.CancelledError(), KeyError()])
def test_failure_of_our_own_is_raised(error: BaseException) -> None:
    with pytest.raises(type(error)):
        failure(error)


@pytest.fixture
def web(ws: Workspace) -> AsyncWebClient:
    return AsyncWebClient(BOT_TOKEN, base_url=ws.api_url, retry_handlers=[])


@pytest.mark.parametrize(
    ("fault", "after"), [("429:7", 7.0), ("429:1.5", 1.5), ("429", 5.0), ("refuse:ratelimited", 5.0)]
)
async def test_rate_limit_says_how_long(web: AsyncWebClient, ws: Workspace, fault: str, after: float) -> None:
    ws.faults.add("users.info", fault, times=1)
    with pytest.raises(SlackBusyError) as caught:
        await ask("users.info", lambda: web.users_info(user=ADE))
    assert caught.value.after == after


async def test_call_that_hangs_is_given_up(web: AsyncWebClient, ws: Workspace) -> None:
    ws.faults.add("users.info", "delay:30", times=1)
    with pytest.raises(SlackUnreachableError, match="TimeoutError"):
        await ask("users.info", lambda: web.users_info(user=ADE), timeout=0.05)


async def test_rest_ends_when_slack_is_back_and_not_before_a_second() -> None:
    clock = ManualClock()
    availability = Availability(clock)
    back = asyncio.create_task(availability.is_back())
    availability.failed()
    early, late = asyncio.create_task(availability.rest(30)), asyncio.create_task(availability.rest(600))
    await clock.advance(0.5)
    availability.answered()
    availability.answered()
    await clock.advance(0.1)
    assert not early.done()
    await clock.advance(0.5)
    assert early.done()
    assert late.done()
    assert back.done()


@pytest.mark.parametrize(
    ("fault", "is_back"),
    [("", True), ("refuse:channel_not_found", True), ("429:5", True), ("5xx:503", False), ("drop", False)],
)
async def test_every_call_tells_whether_slack_answers(
    ws: Workspace, tmp_path: Path, fault: str, is_back: bool
) -> None:
    availability = Availability(ManualClock())
    back = asyncio.create_task(availability.is_back())
    await asyncio.sleep(0)
    client = SlackClient(
        settings(tmp_path, api=ws.api_url), availability, telemetry := Telemetry(ManualClock())
    )
    availability.failed()
    if fault:
        ws.faults.add("auth.test", fault)
    with suppress(*NETWORK_ERRORS):
        await client.auth_test()
    await client.close()
    assert back.done() == is_back
    back.cancel()
    assert counted(telemetry.rate_limited) == ({"auth.test": 1} if fault.startswith("429") else {})


NUDGE = {"event_type": "clarify_notice", "event_payload": {"key": "nudge:CLR-1-001:1"}}


class Unconnected(aiohttp.TCPConnector):
    """Fails to connect so many times."""

    def __init__(self, times: int, failure: type[Exception]) -> None:
        super().__init__()
        self.left = times
        self.failure = failure

    async def connect(self, req: Any, traces: Any, timeout: aiohttp.ClientTimeout) -> Connection:
        assert timeout.connect is not None, "a timeout of the whole would not tell whether anything was sent"
        if not self.left:
            return await super().connect(req, traces, timeout)
        self.left -= 1
        if self.failure is TimeoutError:
            raise TimeoutError
        raise aiohttp.ClientConnectorError(req.connection_key, ConnectionRefusedError(111, "refused"))


@pytest.mark.parametrize(
    ("times", "failure", "left", "outcome"),
    [
        (1, ConnectionRefusedError, 0, Sent),
        (3, ConnectionRefusedError, 1, Later),
        (2, TimeoutError, 1, Later),
    ],
)
async def test_post_that_could_not_connect_goes_again_at_once_and_is_never_in_doubt(  # noqa: PLR0917
    ws: Workspace, tmp_path: Path, times: int, failure: type[Exception], left: int, outcome: type[Outcome]
) -> None:
    made = settings(tmp_path, api=ws.api_url)
    client = SlackClient(made, Availability(ManualClock()), telemetry := Telemetry(ManualClock()))
    await client.auth_test()
    assert client.session is not None
    assert client.session.connector is not None
    await client.session.connector.close()
    client.session._connector = connector = Unconnected(times, failure)
    posted = await Gateway(client, "inst", telemetry).post(AGENTS, Post("Deploy?", [], NUDGE))
    await client.close()
    assert isinstance(posted, outcome)
    assert connector.left == left
    assert [call.method for call in ws.calls] == ["auth.test", *["chat.postMessage"] * (outcome is Sent)]


@pytest.mark.parametrize("kind", ["page", "nudge"])
@pytest.mark.parametrize(
    ("error", "word", "paged"),
    [
        (None, "sent", "sent"),
        (TimeoutError(), "unknown", None),
        (refusal("ratelimited", 429), "later", None),
        (refusal("channel_not_found"), "never", "failed"),
    ],
    ids=["sent", "unknown", "later", "never"],
)
async def test_every_try_is_counted(kind: str, error: Exception | None, word: str, paged: str | None) -> None:
    telemetry, web = Telemetry(ManualClock()), AsyncWebClient()

    async def call(*_: Any, **__: Any) -> Mapping[str, str]:
        if error is not None:
            raise error
        return {"channel": "C1", "ts": "1.1"}

    web.chat_postMessage = web.chat_update = web.chat_postEphemeral = call  # type: ignore[method-assign,assignment]
    gateway = Gateway(web, "0" * 16, telemetry)
    metadata = {"event_type": "clarify_page", "event_payload": {"key": "page:1"}} if kind == "page" else NUDGE
    draft = Post("text", [], metadata)
    await gateway.post("C1", draft)
    await gateway.update("C1", "1.1", draft)
    assert await gateway.tell("U1", Place("C1"), "psst") is (error is None)
    assert counted(telemetry.deliveries) == {(kind, word): 2, ("whisper", word): 1}
    assert set(counted(telemetry.retries)) == ({kind} if word in {"later", "unknown"} else set())
    assert counted(telemetry.pages) == ({("slack", paged): 1} if paged and kind == "page" else {})


async def test_only_what_this_installation_posted_is_ours(ws: Workspace, tmp_path: Path) -> None:
    made = settings(tmp_path, api=ws.api_url)
    client = SlackClient(made, Availability(ManualClock()), Telemetry(ManualClock()))
    gateway, other = (Gateway(client, each, Telemetry(ManualClock())) for each in ("inst", "another"))
    posts = [await each.post(AGENTS, Post("text", [], NUDGE)) for each in (gateway, other)]
    await client.chat_postMessage(channel=AGENTS, text="without metadata")
    await client.chat_postMessage(channel=AGENTS, text="of no installation", metadata=dict(NUDGE))
    first = posts[0]
    assert isinstance(first, Sent)
    reply = await gateway.post(AGENTS, Post("text", [], NUDGE, thread_ts=first.ts))
    assert isinstance(reply, Sent)
    payload: Any = NUDGE["event_payload"]
    signed = {**NUDGE, "event_payload": {**payload, "installation": "inst"}}
    assert await gateway.ours(AGENTS, None, 0.0) == {first.ts: signed}
    assert await gateway.ours(AGENTS, first.ts, 0.0) == {first.ts: signed, reply.ts: signed}
    assert await gateway.ours(AGENTS, None, float(first.ts) + 1) == {}
    assert await gateway.ours("C0NOWHERE", None, 0.0) == Never("channel_not_found", "place")
    await client.close()


@pytest.mark.parametrize(
    "refused", [None, "compliance_exports_prevent_deletion", "message_not_found", "fatal_error"]
)
async def test_message_is_removed_or_emptied_where_slack_keeps_it(
    ws: Workspace, tmp_path: Path, refused: str | None
) -> None:
    made = settings(tmp_path, api=ws.api_url)
    client = SlackClient(made, Availability(ManualClock()), Telemetry(ManualClock()))
    gateway = Gateway(client, "inst", Telemetry(ManualClock()))
    post = await gateway.post(AGENTS, Post("text", [], NUDGE))
    assert isinstance(post, Sent)
    if refused is not None:
        ws.faults.add("chat.delete", f"refuse:{refused}")
    outcome = await gateway.remove(AGENTS, post.ts, "instead")
    there = [each.text for each in ws.messages(AGENTS) if each.ts == post.ts]
    match refused:
        case None:
            assert (outcome, there) == (post, [])
        case "compliance_exports_prevent_deletion":
            assert (outcome, there) == (post, ["instead"])
        case "message_not_found":  # it is gone already
            assert outcome == post
        case _:
            assert not isinstance(outcome, Sent)
            assert there == ["text"]
    await client.close()


def not_leading() -> NoReturn:
    raise NotLeading


async def test_who_does_not_lead_sends_nothing_that_stays_and_reads_all_the_same(
    ws: Workspace, tmp_path: Path
) -> None:
    availability = Availability(ManualClock())
    made = settings(tmp_path, api=ws.api_url)
    client = SlackClient(made, availability, telemetry := Telemetry(ManualClock()), not_leading)
    gateway = Gateway(client, "inst", telemetry)
    outcome = await gateway.post(AGENTS, Post("text", [], NUDGE))
    assert outcome == Later("This bot does not lead now; nothing was sent.")
    assert await gateway.update(AGENTS, "1.1", Post("text", [], NUDGE)) == outcome
    with pytest.raises(NotLeading):
        await client.chat_delete(channel=AGENTS, ts="1.1")
    with pytest.raises(NotLeading):
        await client.views_publish(user_id=ADE, view={})
    await client.auth_test()
    await client.close()
    assert [call.method for call in ws.calls] == ["auth.test"]


TEXT = {"type": "section", "text": {"type": "plain_text", "text": "a: 1"}, "block_id": "b2"}
FOLD = {
    "type": "container",
    "title": {"type": "plain_text", "text": "Context"},
    "is_collapsible": True,
    "block_id": "b1",
    "child_blocks": [{**TEXT, "block_id": "b3"}],
}


def tried(ws: Workspace) -> list[tuple[str, list[str]]]:
    """What became of each post or change, and the types of its blocks."""
    return [
        (call.outcome, [block["type"] for block in call.args["blocks"]])
        for call in ws.calls
        if call.method in {"chat.postMessage", "chat.update"}
    ]


def older(ws: Workspace) -> None:
    ws.context.options = replace(ws.context.options, without_blocks=frozenset({"container"}))


async def test_refused_blocks_are_sent_once_more_as_classic_ones_and_then_at_once(
    web: AsyncWebClient, ws: Workspace
) -> None:
    older(ws)
    clock = ManualClock()
    gateway, post = Gateway(web, "inst", Telemetry(clock)), Post("x", [FOLD, TEXT], NUDGE)
    sent = await gateway.post(AGENTS, post)
    assert isinstance(sent, Sent)
    (message,) = ws.messages(AGENTS)
    assert message.blocks == [TEXT]
    assert await gateway.update(AGENTS, sent.ts, post) == sent
    refused, classic = ("invalid_blocks", ["container", "section"]), ("ok", ["section"])
    assert tried(ws) == [refused, classic, classic]
    assert counted(gateway.telemetry.deliveries) == {("nudge", "sent"): 2}
    await clock.advance(timedelta(days=1).total_seconds())
    assert await gateway.update(AGENTS, sent.ts, post) == sent
    assert tried(ws)[3:] == [refused, classic], "a day later Slack may have them"


@pytest.mark.parametrize(
    "fault", ["refuse:channel_not_found", "429:1", "accept_then_drop", "refuse:msg_too_long"]
)
async def test_other_refusals_are_no_reason_for_classic_blocks(
    web: AsyncWebClient, ws: Workspace, fault: str
) -> None:
    ws.faults.add("chat.postMessage", fault)
    gateway, post = Gateway(web, "inst", Telemetry(ManualClock())), Post("x", [FOLD, TEXT], NUDGE)
    assert not isinstance(await gateway.post(AGENTS, post), Sent)
    assert len(tried(ws)) == 1
    assert isinstance(await gateway.post(AGENTS, post), Sent)
    assert tried(ws)[1] == ("ok", ["container", "section"])


async def test_blocks_are_not_remembered_as_refused_where_the_classic_ones_are_too(
    web: AsyncWebClient, ws: Workspace
) -> None:
    gateway = Gateway(web, "inst", Telemetry(ManualClock()))
    wrong = Post("x", [FOLD, {"type": "nonsense"}], NUDGE)
    assert await gateway.post(AGENTS, wrong) == Never("invalid_blocks", "content")
    assert [outcome for outcome, _ in tried(ws)] == ["invalid_blocks"] * 2
    await gateway.post(AGENTS, Post("x", [FOLD, TEXT], NUDGE))
    assert tried(ws)[2] == ("ok", ["container", "section"])


@pytest.mark.parametrize(
    ("status", "body", "taken"),
    [
        (200, "ok", True),
        (200, "", True),
        (200, '{"ok":true}', True),
        (200, '{"ok":false,"error":"used_url"}', False),
        (404, "used_url", False),
    ],
)
async def test_what_a_response_url_answers(status: int, body: str, taken: bool) -> None:
    async def answer(_: http.Request) -> http.Response:
        return http.Response(status=status, text=body)

    app = http.Application()
    app.router.add_post("/r", answer)
    async with TestServer(app) as server:
        gateway = Gateway(AsyncWebClient(), "inst", Telemetry(ManualClock()))
        assert await gateway.respond(str(server.make_url("/r")), {"text": "x"}) is taken


HEADER = {"type": "header", "text": {"type": "plain_text", "text": "High risk"}, "block_id": "b1"}
STAND_IN = {"type": "section", "text": {"type": "plain_text", "text": "High risk"}}
MODAL = {"type": "modal", "title": {"type": "plain_text", "text": "Accept this?"}, "blocks": [HEADER, TEXT]}
OF_VIEWS = {"views.open", "views.push", "views.update", "views.publish"}


def without_headers(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers stand for a block that the workspace does not have yet."""
    monkeypatch.setitem(blockkit._CLASSIC, "header", lambda _: [STAND_IN])
    ws.context.options = replace(ws.context.options, without_blocks=frozenset({"header"}))


def shown(ws: Workspace) -> list[tuple[str, list[str]]]:
    """What became of each view, and the types of its blocks."""
    return [
        (call.outcome, [block["type"] for block in call.args["view"]["blocks"]])
        for call in ws.calls
        if call.method in OF_VIEWS
    ]


REFUSED, CLASSIC_VIEW = ("invalid_arguments", ["header", "section"]), ("ok", ["section", "section"])


@pytest.mark.parametrize("spent", ["exchanged_trigger_id", "expired_trigger_id"])
async def test_where_a_refusal_uses_up_the_trigger_the_next_click_opens_classic_blocks(
    web: AsyncWebClient, ws: Workspace, monkeypatch: pytest.MonkeyPatch, spent: str
) -> None:
    without_headers(ws, monkeypatch)
    ws.faults.add("views.open", "refuse:invalid_arguments", times=1)
    ws.faults.add("views.open", f"refuse:{spent}", times=1)
    gateway = Gateway(web, "inst", Telemetry(ManualClock()))
    assert await gateway.show(web.views_open, MODAL, trigger_id=ws.board.trigger(ADE)) == Never(
        spent, "unknown"
    )
    assert await gateway.show(web.views_open, MODAL, trigger_id=ws.board.trigger(ADE)) is None
    assert shown(ws) == [REFUSED, (spent, ["section", "section"]), CLASSIC_VIEW]


async def test_refused_trigger_is_no_reason_for_classic_blocks(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slack also says it as invalid_arguments, with the field in its messages."""
    monkeypatch.setitem(blockkit._CLASSIC, "header", lambda _: [STAND_IN])
    calls: list[Any] = []

    async def views_open(**arguments: Any) -> Any:
        calls.append(arguments)
        about = {"messages": ["[ERROR] `trigger_id` expired [json-pointer:/trigger_id]"]}
        data = {"ok": False, "error": "invalid_arguments", "response_metadata": about}
        raise api_error("invalid_arguments", Response(200, data))

    gateway = Gateway(AsyncWebClient(), "inst", Telemetry(ManualClock()))
    for _ in range(2):
        assert await gateway.show(views_open, MODAL, trigger_id="1.2.3") == Never(
            "invalid_arguments", "content"
        )
    assert [call["view"] for call in calls] == [MODAL, MODAL]
