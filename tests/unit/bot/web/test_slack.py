"""The route of Slack's request URL: what passes through it unchanged, and what never gets there."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
import pytest

from bot.slack.request_url import RequestUrl, UrlAnswer
from bot.web.callers import Callers
from bot.web.server import build_app
from bot.web.slack import slack_routes
from core.clock import SystemClock


class Noted(RequestUrl):
    def __init__(self, answer: UrlAnswer) -> None:
        super().__init__(signing_secret="made-up", on_gap=lambda: None, clock=SystemClock())
        self.answer = answer
        self.seen: list[tuple[Mapping[str, str], bytes]] = []

    async def take(self, headers: Mapping[str, str], body: bytes) -> UrlAnswer:
        self.seen.append((headers, body))
        return self.answer


def client(url: RequestUrl) -> httpx.AsyncClient:
    app = build_app([slack_routes(url)], Callers({}))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://slack.test")


@pytest.mark.parametrize(
    ("answer", "content_type"),
    [
        (UrlAnswer(200), "text/plain; charset=utf-8"),
        (UrlAnswer(200, "abc", "text/plain;charset=utf-8"), "text/plain;charset=utf-8"),
        (
            UrlAnswer(200, '{"response_action": "clear"}', "application/json;charset=utf-8"),
            "application/json;charset=utf-8",
        ),
        (UrlAnswer.trouble(503, "NOT_READY", "later"), "application/json"),
    ],
)
async def test_answer_is_passed_on(answer: UrlAnswer, content_type: str) -> None:
    async with client(Noted(answer)) as http:
        got = await http.post("/slack/events", content=b"x")
    assert (got.status_code, got.text, got.headers["content-type"]) == (
        answer.status,
        answer.body,
        content_type,
    )


async def test_body_and_headers_are_passed_on_as_they_came() -> None:
    noted, body = Noted(UrlAnswer(200)), bytes(range(256))
    async with client(noted) as http:
        await http.post("/slack/events", content=body, headers={"X-Slack-Signature": "v0=abc"})
        await http.post("/slack/events", content=b"", headers=[(b"X-Slack-Signature", b"\xff\xfe")])
    assert [sent for _, sent in noted.seen] == [body, b""]
    assert noted.seen[0][0]["x-slack-signature"] == "v0=abc"
    assert noted.seen[1][0]["x-slack-signature"] == "ÿþ"


async def test_openapi_tells_of_both_kinds_of_body() -> None:
    async with client(Noted(UrlAnswer(200))) as http:
        paths = (await http.get("/openapi.json", headers={"Host": "localhost"})).json()["paths"]
    body = paths["/slack/events"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "application/x-www-form-urlencoded"}
