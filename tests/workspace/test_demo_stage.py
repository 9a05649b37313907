from __future__ import annotations

import asyncio
import re
import socket
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from workspace.demo import DemoError
from workspace.demo.stage import play

# Stands in for the bot where only the stage is looked at: reads its configuration, joins the agent,
# and tells in `stopped` by which signal it was stopped.
CHILD = dedent(
    """
    import json, os, pathlib, signal, sys, tomllib, urllib.request
    file = pathlib.Path(sys.argv[1])
    url = tomllib.loads(file.read_text())["producers"][0]["url"]
    urllib.request.urlopen(os.environ["SLACK_API_URL"] + "auth.test").read()
    body = {"type": "subscription.request", "aaep_version": "1.0.0", "subscriber_id": "child",
            "capabilities": {"supports_clarification_reply": True}}
    request = urllib.request.Request(url + "/aaep/v1/subscriptions", json.dumps(body).encode())
    where = urllib.request.urlopen(request).headers["Location"]
    def stop(number, _frame):
        (file.parent / "stopped").write_text(str(number))
        sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    events = urllib.request.urlopen(url + where)
    while events.readline():  # until the producer is gone
        pass
    signal.pause()
    """
)


def child(file: Path) -> list[str]:
    return [sys.executable, "-c", CHILD, str(file)]


class Said:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.joined = asyncio.Event()

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        if "is connected" in line:
            self.joined.set()


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_demo_says_where_the_bot_is_if_its_usual_port_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Said()
    with socket.create_server(("127.0.0.1", 0)) as other:
        usual = other.getsockname()[1]
        monkeypatch.setattr("workspace.demo.stage.USUAL_PORT", usual)
        task = asyncio.create_task(play(port=0, folder=tmp_path, say=said, command=child))
        async with asyncio.timeout(60):
            await said.joined.wait()
            await stopped(task)
    (line,) = [line for line in said.lines if "CLARIFY_URL" in line]
    assert f"Port {usual} is in use" in line
    assert re.search(r"export CLARIFY_URL=http://127\.0\.0\.1:\d+$", line)


async def test_demo_removes_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    said = Said()
    task = asyncio.create_task(play(port=0, folder=None, say=said, command=child))
    async with asyncio.timeout(60):
        await said.joined.wait()
        (name,) = names_in(tmp_path)
        assert name.startswith("clarify-demo-")
        await stopped(task)
    assert names_in(tmp_path) == []
    assert "deleted; `clarify demo --keep-folder FOLDER` keeps them" in said.lines[-1]


async def test_demo_says_so_when_the_bot_dies(tmp_path: Path) -> None:
    def dying(_file: Path) -> list[str]:
        return [sys.executable, "-c", "import sys; print('last words'); sys.exit(3)"]

    with pytest.raises(DemoError) as caught:
        await play(port=0, folder=tmp_path, say=Said(), command=dying)
    assert "the bot stopped with exit code 3" in str(caught.value)
    assert str(tmp_path / "bot.log") in str(caught.value)
    assert "last words" in str(caught.value)


async def test_demo_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DemoError, match="as a folder"):
        await play(port=0, folder=tmp_path / "file" / "sub", say=Said())
