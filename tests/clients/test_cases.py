"""`cases.json`, run against clarify.py here and against clarify.ts by Node's test runner: both say and understand the same."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import clarify
from tests.clients.conftest import ROOT
from tests.kit.served import reserved_port, served

Json = dict[str, Any]
TABLE: Json = json.loads((Path(__file__).parent / "cases.json").read_text())
CASES: list[Json] = TABLE["cases"]
TOLERANCE = 0.02  # seconds: clocks differ


class Script:
    """A server that follows a case's script."""

    def __init__(self, case: Json, cancel: asyncio.Event) -> None:
        self.url = ""
        self.problems: list[str] = []
        self._made_key = "key" not in case.get("with", {})
        self._keys: set[str] = set()
        self._rest: list[Json] = list(case.get("script", []))
        self._began = self._at = time.monotonic()
        self._is_first = True
        self._kind = "text"
        self._cancel = cancel

    async def handle(self, request: web.Request) -> web.StreamResponse:
        waited, self._at = time.monotonic() - self._at, time.monotonic()
        if not self._rest:
            self.problems.append(f"unexpected: {request.method} {request.path_qs}")
            return web.json_response({"error": "OVER", "message": "The script is over."}, status=400)
        step = self._rest[0] if self._rest[0].get("always") else self._rest.pop(0)
        body = await request.json() if request.can_read_body else None
        if body is not None:
            kinds = {"choices": "choice", "schema": "form"}
            self._kind = body.get("kind") or next((kinds[each] for each in kinds if each in body), "text")
        self._check(step, request, body, waited)
        await asyncio.sleep(step.get("holds", 0))
        return await self._respond(step, request)

    def ended(self) -> list[str]:
        left = [each["gets"] for each in self._rest if not each.get("always")]
        return [*self.problems, *(f"never came: {each}" for each in left)]

    def _check(self, step: Json, request: web.Request, body: Any, waited: float) -> None:
        if body is not None and self._made_key:
            self._keys.add(key := body.pop("key", ""))
            if not re.fullmatch(r"(py|ts)-[0-9a-f-]{24,}", key) or len(self._keys) > 1:
                self.problems.append(f"keys: {self._keys}")
        found: Json = {
            "gets": f"{request.method} {request.path}",
            "query": dict(request.query),
            "body": body,
            "headers": {name: request.headers.get(name) for name in step.get("headers", {})},
        }
        if isinstance(body, dict) and "timeout" in step.get("body", {}):
            lost = 0 if self._is_first else 1  # seconds of the question's time, meanwhile
            within = abs(body.get("timeout", 1e9) - step["body"]["timeout"]) <= lost
            body["timeout"] = step["body"]["timeout"] if within else body.get("timeout")
        self._is_first = False
        self.problems += [
            f"{part}: {found[part]}, expected {step[part]}"
            for part in found
            if part in step
            and json.dumps(found[part], sort_keys=True) != json.dumps(step[part], sort_keys=True)
        ]
        if not step.get("not_before", 0) - TOLERANCE <= waited <= step.get("within", 1e9):
            self.problems.append(f"{step['gets']} came {waited:.3f} s after the last request")
        if (passed := self._at - self._began) < step.get("after", 0) - TOLERANCE:
            self.problems.append(f"{step['gets']} came {passed:.3f} s after the beginning")

    async def _respond(self, step: Json, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        if step.get("cancels"):
            asyncio.get_running_loop().call_later(0.1 if step.get("drops") else 0, self._cancel.set)
        if step.get("drops"):
            request.transport.abort()
            return web.Response()
        if step.get("cancels") or step.get("silent"):
            await asyncio.Event().wait()  # until the client hangs up
        content = (
            {**TABLE["state"], "kind": self._kind, **step["state"]} if "state" in step else step.get("json")
        )
        data = (step["text"] if "text" in step else json.dumps(content, ensure_ascii=False)).encode()
        data += b" " * step.get("spaces", 0)
        given = {name: value.format(url=self.url) for name, value in step.get("response_headers", {}).items()}
        response = web.StreamResponse(status=step.get("status", 200), headers=given)
        if step.get("chunked"):
            response.enable_chunked_encoding()
        else:
            response.content_length = len(data) + (1 if step.get("breaks_off") else 0)
        await response.prepare(request)
        for start in range(0, len(data), 65_536) if not step.get("chunked") else range(len(data)):
            await response.write(data[start : start + (1 if step.get("chunked") else 65_536)])
        if step.get("breaks_off"):
            request.transport.close()
        else:
            await response.write_eof()
        return response


async def outcome(case: Json, url: str, how: str, cancel: asyncio.Event) -> Json:
    """Returns what a case ends with, in the words of the table."""
    address = url.replace("://", f"://{case.get('userinfo', '')}") + case.get("path", "")
    options = {"url": address, **case.get("with", {})}
    call = getattr(clarify if how == "sync" else clarify.aio, case["call"])
    work = (
        asyncio.to_thread(call, case["says"], **options) if how == "sync" else call(case["says"], **options)
    )
    asking, cancelling = asyncio.ensure_future(work), asyncio.create_task(cancel.wait())
    await asyncio.wait({asking, cancelling}, return_when=asyncio.FIRST_COMPLETED)
    cancelling.cancel()
    if cancel.is_set():
        asking.cancel()
    try:
        result = await asking
    except asyncio.CancelledError:
        return {"raises": "cancelled"}
    except (clarify.ClarifyError, ValueError) as error:
        return {"raises": type(error).__name__, "message": str(error), **facts(error)}
    return facts(result) | ({"approved": bool(result)} if case["call"] == "approve" else {})


def facts(result: object) -> Json:
    names = {name for case in CASES for name in case["ends"]} - {"raises", "message", "approved"}
    return {name: getattr(result, name) for name in names if hasattr(result, name)}


WAYS = [
    pytest.param(case, how, id=f"{case['name']} - {how}")
    for case in CASES
    for how in ("sync", "asyncio")
    if how == "asyncio" or not (case.get("is_slow") or case["ends"].get("raises") == "cancelled")
]


@pytest.mark.parametrize(("case", "how"), WAYS)
async def test_python(case: Json, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLARIFY_URL", "CLARIFY_TOKEN", "CLARIFY_PRODUCER"):
        monkeypatch.delenv(name, raising=False)
    cancel = asyncio.Event()
    script = Script(case, cancel)
    with reserved_port() as nobody:
        async with served(script.handle) as url:
            script.url = f"http://127.0.0.1:{nobody}" if case.get("away") else url
            found = await outcome(case, script.url, how, cancel)
    assert script.ended() == []
    expected = json.loads(json.dumps(case["ends"]).replace("{url}", script.url))
    begins = expected.pop("message_begins", "")
    assert json.dumps({name: found.get(name, "nothing") for name in expected}, sort_keys=True) == json.dumps(
        expected, sort_keys=True
    )
    assert str(found.get("message", "")).startswith(begins)


def test_typescript(node_program: Path) -> None:
    files = ("tests/clients/cases.test.ts", "tests/clients/client.test.ts")
    command = [str(node_program), "--no-warnings", "--test", "--test-reporter=tap", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = set(re.findall(r"^ *ok \d+ - (.+)$", done.stdout, re.MULTILINE))
    assert {case["name"] for case in CASES} <= passed
