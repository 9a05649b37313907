"""Files: the three steps of an upload, what is refused, what a message then carries, what the page shows."""

from __future__ import annotations

import json
import re
from io import BytesIO
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.workspace import Workspace
from bot.workspace.seed import ADE, AGENTS, ARCHIVED, BOT_ID, BOT_TOKEN, BOT_USER, RANDOM
from bot.workspace.state import KEPT_FILES
from tests.unit.bot.workspace.kit import Json, StartBot, listening

PNG = b"\x89PNG\r\n\x1a\nnot much of one"
ALT = 'Two "bars"'


async def put(url: str, content: bytes) -> int:
    async with aiohttp.ClientSession() as session, session.post(url, data=BytesIO(content)) as answer:
        return answer.status


async def fetched(url: str) -> tuple[int, str, bytes]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, answer.content_type, await answer.read()


async def uploaded(client: AsyncWebClient, content: bytes = PNG, name: str = "bars.png") -> str:
    """A file that is there, and not completed."""
    ticket = await client.files_getUploadURLExternal(filename=name, length=len(content), alt_txt=ALT)
    assert await put(ticket["upload_url"], content) == 200
    return str(ticket["file_id"])


async def completed(client: AsyncWebClient, file: str, **more: Any) -> None:
    await client.files_completeUploadExternal(files=[{"id": file, "title": "Bars"}], **more)


async def refused(call: Any) -> str:
    with pytest.raises(SlackApiError) as caught:
        await call
    return str(caught.value.response["error"])


async def test_shared_file_is_in_one_message_and_one_event(
    ws: Workspace, client: AsyncWebClient, start: StartBot
) -> None:
    await start(listening(ws))
    file = await uploaded(client)
    assert not ws.messages(AGENTS)

    await completed(client, file, channel_id=AGENTS, initial_comment="Two bars.")

    (message,) = (await client.conversations_history(channel=AGENTS))["messages"]
    assert (message["text"], message["user"], message["bot_id"]) == ("Two bars.", BOT_USER, BOT_ID)
    (shown,) = message["files"]
    assert shown | {"id": file, "title": "Bars", "alt_txt": ALT, "mimetype": "image/png"} == shown
    assert await fetched(shown["url_private"]) == (200, "image/png", PNG)
    line = await ws.wait_for(
        lambda: next((each for each in ws.context.traffic.lines if each.title == "file_share"), None)
    )
    assert line
    event: Json = json.loads(line.text())["event"]
    assert (event["type"], event["channel"], event["files"]) == ("message", AGENTS, [shown])


async def test_sdk_upload_works(ws: Workspace, client: AsyncWebClient) -> None:
    await client.files_upload_v2(channel=AGENTS, content=PNG, filename="bars.png", title="Bars")
    assert len(ws.messages(AGENTS)[0].files) == 1


async def test_without_a_channel_nothing_is_posted(ws: Workspace, client: AsyncWebClient) -> None:
    await completed(client, await uploaded(client))
    assert not ws.messages(AGENTS)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"length": 5}, "invalid_arguments"),
        ({"filename": "a.png"}, "invalid_arguments"),
        ({"filename": "a.png", "length": 0}, "invalid_arguments"),
        ({"filename": "a.png", "length": "many"}, "invalid_arguments"),
        ({"filename": "a.png", "length": 5 * 1024 * 1024 + 1}, "file_upload_size_restricted"),
        ({"filename": "a.png", "length": 5, "alt_txt": "x" * 1001}, "alt_txt_too_large"),
    ],
)
async def test_ticket_is_refused(client: AsyncWebClient, arguments: Json, error: str) -> None:
    assert await refused(client.api_call("files.getUploadURLExternal", data=arguments)) == error


@pytest.mark.parametrize(
    ("channel", "more", "error"),
    [
        (RANDOM, {}, "not_in_channel"),
        (ARCHIVED, {}, "is_archived"),
        ("C0NOWHERE", {}, "channel_not_found"),
        (ADE, {}, "channel_not_found"),
        (AGENTS, {"thread_ts": "1.000000"}, "thread_not_found"),
    ],
)
async def test_refused_sharing_leaves_the_file_to_be_shared(
    ws: Workspace, client: AsyncWebClient, channel: str, more: Json, error: str
) -> None:
    file = await uploaded(client)
    assert await refused(completed(client, file, channel_id=channel, **more)) == error
    await completed(client, file, channel_id=AGENTS)
    assert len(ws.messages(AGENTS)) == 1
    assert await refused(completed(client, file, channel_id=AGENTS)) == "file_not_found"  # a second time


async def test_what_was_not_uploaded_cannot_be_shared(client: AsyncWebClient) -> None:
    ticket = await client.files_getUploadURLExternal(filename="bars.png", length=5)
    assert await refused(completed(client, ticket["file_id"], channel_id=AGENTS)) == "file_not_found"
    assert await refused(completed(client, "F0NONE", channel_id=AGENTS)) == "file_not_found"
    for files in ("", "[]", "{}"):
        call = client.api_call("files.completeUploadExternal", data={"files": files})
        assert await refused(call) == "invalid_arguments"


async def test_scope_is_needed(ws: Workspace, client: AsyncWebClient) -> None:
    ws.state.tokens[BOT_TOKEN] = ws.state.tokens[BOT_TOKEN] - {"files:write"}
    assert await refused(client.files_getUploadURLExternal(filename="a", length=1)) == "missing_scope"
    assert await refused(completed(client, "F1")) == "missing_scope"


async def test_upload_takes_what_was_announced(ws: Workspace, client: AsyncWebClient) -> None:
    ticket = await client.files_getUploadURLExternal(filename="bars.png", length=5)
    url = ticket["upload_url"]
    assert [await put(url, content) for content in (b"1234", b"123456", b"12345")] == [400, 413, 200]
    assert await put(f"{ws.url}upload/nothing", b"12345") == 404
    assert (await fetched(f"{ws.url}file/{ticket['file_id']}"))[0] == 404  # not completed
    await completed(client, ticket["file_id"])
    assert (await fetched(f"{ws.url}file/{ticket['file_id']}"))[1] == "application/octet-stream"
    assert await put(url, b"54321") == 404


async def test_five_mebibytes_are_taken(client: AsyncWebClient) -> None:
    await completed(client, await uploaded(client, b"x" * 5 * 1024 * 1024, "big.bin"))


async def test_old_files_are_forgotten(ws: Workspace, client: AsyncWebClient) -> None:
    for _ in range(KEPT_FILES + 1):
        await completed(client, await uploaded(client), channel_id=AGENTS)
    messages = (await client.conversations_history(channel=AGENTS))["messages"]
    assert messages[-1]["files"] == [{"id": ws.messages(AGENTS)[0].files[0], "mode": "tombstone"}]
    assert len(ws.state.files) == KEPT_FILES
    assert (await fetched(ws.url))[0] == 200


async def test_page_shows_the_picture_with_its_words(ws: Workspace, client: AsyncWebClient) -> None:
    file = await uploaded(client)
    await completed(client, file, channel_id=AGENTS)
    _, _, page = await fetched(f"{ws.url}?as={ADE}&channel={AGENTS}")
    found = re.search(r'<a href="([^"]+)"><img src="([^"]+)" alt="([^"]+)">', page.decode())
    assert found
    assert found.groups() == (f"/file/{file}", f"/file/{file}", "Two &#34;bars&#34;")


async def test_traffic_has_the_calls_and_not_the_bytes(ws: Workspace, client: AsyncWebClient) -> None:
    await completed(client, await uploaded(client), channel_id=AGENTS, initial_comment="Two bars.")
    lines = [(line.title, line.detail) for line in ws.context.traffic.lines if "files." in line.title]
    assert lines == [
        ("files.getUploadURLExternal", "bars.png"),
        ("files.completeUploadExternal", "#agents · Two bars."),
    ]
    assert not [line for line in ws.context.traffic.lines if "not much" in line.text()]
