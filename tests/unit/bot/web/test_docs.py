"""The page that people read, made from what programs read."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import unescape
from html.parser import HTMLParser
from importlib.metadata import version
from typing import Annotated, Literal

import httpx
from fastapi import APIRouter, Query, Security
from fastapi.security import HTTPBearer
from pydantic import BaseModel, Field

from bot.web.callers import Callers
from bot.web.docs import page
from bot.web.server import build_app

_VOID = {"meta", "input"}


class Inner(BaseModel):
    """What stands <inside>."""

    kind: Literal["a", "b"]


class Outer(BaseModel):
    inner: Inner | None = None
    names: list[str] = Field(description="Names with `code` & <b>")


class Checker(HTMLParser):
    """Every element is closed in its order; knows all text and all places that are linked."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.add(value or "")
            if name in {"href", "src"}:
                self.links.add(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


async def answer() -> httpx.Response:
    bearer = HTTPBearer(auto_error=False, scheme_name="agent", description="Its <token>")
    router = APIRouter(tags=["Shapes"], dependencies=[Security(bearer)])

    @router.post("/shapes/{name}", summary="Make one")
    async def make(
        name: str, outer: Outer, size: Annotated[int, Query(description="How <big>")] = 1
    ) -> Outer:
        """Makes a `shape`."""
        return outer

    app = build_app([router], Callers({}))
    async with httpx.AsyncClient(base_url="http://localhost", transport=httpx.ASGITransport(app)) as client:
        return await client.get("/docs")


async def test_page_says_all_of_an_operation() -> None:
    shown = Checker((await answer()).text)
    for words in (
        f"clarify-bot {version('clarify-bot')}", "Shapes", "POST /shapes/{name}", "Make one", "Makes a shape.", "name, required", "How <big>",
        "Outer as application/json", "ErrorBody as application/json", "What stands <inside>.", "Inner or null",
        "agent, bearer: Its <token>", "list of string", "Names with code & <b>", "a, b",
    ):  # fmt: skip
        assert words in shown.text


async def test_page_needs_nothing_from_elsewhere() -> None:
    got = await answer()
    shown = Checker(got.text)
    assert all(link.startswith(("/", "#")) for link in shown.links)
    assert {link[1:] for link in shown.links if link.startswith("#")} <= shown.ids
    policy = got.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    for element, directive in (("style", "style-src"), ("script", "script-src")):
        (inside,) = re.findall(f"<{element}>(.*?)</{element}>", got.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert "<script " not in got.text


async def test_page_has_a_form_for_each_operation_with_an_example_of_its_body() -> None:
    html = (await answer()).text
    assert '<form data-method="POST" data-path="/shapes/{name}">' in html
    fields = re.findall(r"<input name='(\w+)' data-in='(\w+)'( placeholder=\"1\")?( required)?>", html)
    assert [(name, where, bool(needed)) for name, where, _, needed in fields] == [
        ("name", "path", True),
        ("size", "query", False),
    ]
    (body,) = re.findall(r"<textarea[^>]*>(.*?)</textarea>", html, re.DOTALL)
    assert json.loads(unescape(body)) == {"names": []}


def test_prose_makes_paragraphs_and_code() -> None:
    info = {"title": "T", "version": "1", "description": "One\ntwo `a<b`.\n\nThree"}
    assert "<p>One two <code>a&lt;b</code>.</p><p>Three</p>" in page({"info": info})
