"""A copy of clarify.py as a program: nothing else of ours is there, and not all of the interpreter's own modules are."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from argparse import ArgumentTypeError
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import yaml  # type: ignore[import-untyped]

import clarify
from bot.app import Bot
from tests.docs.references import ROOT
from tests.kit.served import accepting
from tests.kit.until import until
from tests.kit.world import World, config, controls, said, url_of
from tests.scenario.test_hooks import event
from tests.scenario.typist import command as typed
from workspace.seed import ADE, AGENTS, FOLAKE

NOWHERE = "http://127.0.0.1:9"
WITHOUT = """
import os, runpy, signal, sys
for name in ("fcntl", "termios", "tty", "pwd", "grp", "resource", "multiprocessing", "asyncio", "bot", "core"):
    sys.modules[name] = None
for name in ("SIGALRM", "SIGHUP", "SIGPIPE", "setitimer", "alarm", "pthread_kill"):
    delattr(signal, name)
for name in ("getuid", "geteuid", "fork"):
    delattr(os, name)
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""  # as on Windows


class Ended(NamedTuple):
    code: int | None
    out: str
    err: str


class OneFile:
    """A copy of the file, and how to run it."""

    def __init__(self, folder: Path, url: str) -> None:
        folder.mkdir(exist_ok=True)
        self.path = Path(shutil.copy(ROOT / "clarify.py", folder))
        self.environ = {"CLARIFY_URL": url, "XDG_RUNTIME_DIR": str(folder / "runtime")}
        self.before: tuple[str, ...] = ()

    async def start(self, *words: str, **more: Any) -> Process:
        streams = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE} | more
        command = (sys.executable, "-I", "-S", *self.before, str(self.path), *words)
        return await asyncio.create_subprocess_exec(
            *command, cwd=self.path.parent, env=self.environ, **streams
        )

    async def run(self, *words: str, sent: bytes = b"", **more: Any) -> Ended:
        return await ended(await self.start(*words, **more), sent)

    def locks(self) -> list[Path]:
        """Of hooks that wait for a question."""
        return list(self.path.parent.glob("runtime/clarify-hooks/hook-*"))

    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.environ["CLARIFY_URL"], trust_env=False)


async def ended(process: Process, sent: bytes = b"") -> Ended:
    out, err = await process.communicate(sent)
    return Ended(process.returncode, (out or b"").decode(), (err or b"").decode())


@pytest.fixture
async def bot(stage: World) -> AsyncIterator[Bot]:
    async with stage.bot() as made:
        yield made


@pytest.fixture(params=["as it is", "without what Windows lacks"])
def file(bot: Bot, tmp_path: Path, request: pytest.FixtureRequest) -> OneFile:
    made = OneFile(tmp_path / "copy", url_of(bot))
    if request.param != "as it is":
        made.before = ("-c", WITHOUT)
    return made


@pytest.fixture
def plain(bot: Bot, tmp_path: Path) -> OneFile:
    return OneFile(tmp_path / "copy", url_of(bot))


@pytest.fixture
def alone(tmp_path: Path) -> OneFile:
    """Its bot is away."""
    return OneFile(tmp_path / "copy", NOWHERE)


# -- ask


@pytest.mark.parametrize(
    ("words", "label", "printed"),
    [
        (("--kind", "yes_no"), "Yes", "yes\n"),
        (("--kind", "yes_no"), "No", "no\n"),
        (("--choice", "eu", "--choice", "us"), "us", "us\n"),
    ],
)
async def test_click_is_printed(
    stage: World, file: OneFile, words: tuple[str, ...], label: str, printed: str
) -> None:
    process = await file.start("ask", "Which way?", *words)
    card = await stage.card("Which way?")
    assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label=label)).ok
    done = await ended(process)
    assert (done.code, done.out) == (0, printed), done
    assert "\r" not in done.err


@pytest.mark.parametrize(
    ("words", "typed", "printed"),
    [
        ((), "the blue\n\none, café", "the blue\n\none, café\n"),
        (("--kind", "number"), "2.5", "2.5\n"),
        (("--choice", "a", "--other"), "neither", "neither\n"),
        (("--choice", "a", "--choice", "b", "--choice", "c", "--multiple"), "a, c", "a\nc\n"),
    ],
)
async def test_typed_answer_is_printed(
    stage: World, plain: OneFile, words: tuple[str, ...], typed: str, printed: str
) -> None:
    process = await plain.start("ask", "Which one?", *words)
    card = await stage.card("Which one?")
    await stage.workspace.post(FOLAKE, AGENTS, typed, card.ts)
    done = await ended(process)
    assert (done.code, done.out) == (0, printed), done


async def test_state_is_printed_as_json(stage: World, plain: OneFile) -> None:
    process = await plain.start("ask", "Go on?", "--kind", "yes_no", "--json")
    await stage.workspace.click(FOLAKE, AGENTS, (await stage.card("Go on?")).ts, label="Yes")
    done = await ended(process)
    state = json.loads(done.out)
    assert (done.code, state["status"], state["answer"]) == (0, "answered", True)


@pytest.mark.parametrize("command", ["ask", "approve"])
@pytest.mark.parametrize("default", [(), ("--default", "eu")])
async def test_expired_question_exits_with_3(
    stage: World, plain: OneFile, command: str, default: tuple[str, ...]
) -> None:
    if command == "approve" and default:
        default = ("--reason",)
    done = await plain.run(command, "Which region?", "--timeout", "1", *default)
    assert (done.code, done.out) == (3, "eu\n" if "eu" in default else ""), done
    assert "No one answered in time." in done.err


@pytest.mark.parametrize("command", ["ask", "approve"])
async def test_question_that_ends_without_an_answer_exits_with_4(
    stage: World, plain: OneFile, command: str
) -> None:
    withdrawn = await plain.start(command, "First?")
    await stage.card("First?")
    async with plain.http() as http:
        assert (await http.delete("/questions/CLR-100001-001")).status_code == 200
    done = await ended(withdrawn)
    assert (done.code, done.out) == (4, ""), done
    closed = await plain.start(command, "Second?")
    await stage.card("Second?")
    async with plain.http() as http:
        (asked,) = (await http.get("/questions", params={"status": "waiting"})).json()["questions"]
    await typed(stage, f"abandon {asked['id']} not needed", FOLAKE)
    done = await ended(closed)
    assert (done.code, done.out) == (4, ""), done
    assert "not needed" in done.err


@pytest.mark.parametrize(("command", "code"), [("ask", 1), ("approve", 5)])
async def test_bot_that_is_away_or_refuses_is_no_answer(plain: OneFile, command: str, code: int) -> None:
    for more, why in (
        (("--url", NOWHERE, "--timeout", "1"), "cannot be reached"),
        (("--url", "no address", "--timeout", "1"), "not an HTTP address"),
        (("--agent", "x" * 1000), "agent"),
    ):
        done = await plain.run(command, "Anybody?", *more)
        assert (done.code, done.out) == (code, ""), done
        assert why in done.err
        assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("ask",),
        ("ask", "Which?", "--kind", "form"),
        ("approve",),
        ("approve", "--help"),
        ("approve", "-h"),
        ("approve", "--url=http://127.0.0.1:9"),
        ("approve", "Deploy", "more"),
        ("approve", "Deploy", "--timeout", "soon"),
        ("hook", "codex", "--timeout", "25h"),
        ("approve", "Deploy", "--argument", "version"),
        ("approve", "Deploy", "--argument", "=4"),
        ("approve", "Deploy", "--argument", "n:={"),
        ("approve", "Deploy", "--argument", "n=1", "--argument", "n:=2"),
        ("nonsense",),
    ],
)
async def test_usage_exits_with_2(alone: OneFile, words: tuple[str, ...]) -> None:
    """Also an action that is `--help`, since it may come from a variable that others can set."""
    done = await alone.run(*words)
    assert done.code == 2
    assert "Traceback" not in done.err


async def test_help_says_the_exit_codes(alone: OneFile) -> None:
    for command, code in (("ask", 0), ("approve", 2)):
        done = await alone.run(command, "--help")
        assert done.code == code
        assert "3 expired" in done.out
    done = await alone.run("--help")
    assert (done.code, done.err) == (0, "")
    for words in ("ask ", "approve ", "hook ", "mcp ", "Copilot", "CLARIFY_URL"):
        assert words in done.out


def test_older_python_is_told_in_a_sentence() -> None:
    code = (
        "import runpy, sys; sys.version_info = (3, 10, 0); runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, ROOT / "clarify.py"], stderr=PIPE, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("clarify needs Python 3.11 or newer; this is Python 3.")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172_800), ("0.5", 0.5), ("1.5h", 5400)],
)
def test_durations_are_read_as_everywhere(text: str, seconds: float) -> None:
    assert clarify._duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-5", "10 m", "1m1h", "1.2.3s", "inf", "nan", "10M"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is not a duration"):
        clarify._duration(text)


# -- approve


async def test_accept_and_nothing_else_exits_with_0(stage: World, file: OneFile) -> None:
    words = ("--argument", "version=4.2", "--argument", "replicas:=3", "--risk", "high", "--irreversible")
    accepted = await file.start("approve", "Deploy", *words)
    card = await stage.card("Deploy")
    assert stage.record()["aaep"]["arguments"] == {"version": "4.2", "replicas": 3}
    assert "High" in said(card) or "high" in said(card)
    assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")).ok
    await confirmed(stage)
    done = await ended(accepted)
    assert (done.code, done.out) == (0, ""), done
    assert f"Approved by user:slack/T0LOCAL/{FOLAKE}" in done.err


async def confirmed(stage: World) -> None:
    """Confirm in the window that asks once more before what cannot be undone, if there is one."""
    if stage.workspace.views(FOLAKE):
        assert (await stage.workspace.submit_view(FOLAKE, {})).ok


@pytest.mark.parametrize("number", ["0", "-1", "6"])
async def test_approval_by_nobody_cannot_be_asked_for(plain: OneFile, number: str) -> None:
    done = await plain.run("approve", "Deploy", "--approvals", number)
    assert (done.code, "approvals" in done.err) == (5, True), done


async def test_rejection_exits_with_1_and_prints_the_reason(stage: World, file: OneFile) -> None:
    process = await file.start("approve", "Deploy 4.2")
    card = await stage.card("Deploy 4.2")
    await stage.workspace.post(FOLAKE, AGENTS, "reject: wait for the tests", card.ts)
    done = await ended(process)
    assert (done.code, done.out) == (1, "wait for the tests\n"), done


async def test_one_approval_of_two_is_none(stage: World, plain: OneFile) -> None:
    process = await plain.start("approve", "Deploy 4.2", "--approvals", "2", "--reason")
    card = await stage.card("Deploy 4.2")
    assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")).ok
    assert process.stderr is not None
    while b"(1 of 2)" not in (line := await process.stderr.readline()):
        assert line
    assert process.returncode is None
    await stage.workspace.post(ADE, AGENTS, "accept: the tests are green", card.ts)
    done = await ended(process)
    assert (done.code, done.out) == (0, "the tests are green\n"), done


ACCEPTED = {"status": "answered", "answer": {"decision": "accept", "arguments": {}}, "decided_by": "x"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"accept",
        b'"accept"',
        b"later",
        json.dumps(ACCEPTED).encode(),  # of no question
        json.dumps(ACCEPTED | {"id": 5}).encode(),
        json.dumps(ACCEPTED | {"id": "x", "status": "expired"}).encode(),
        json.dumps(ACCEPTED | {"id": "x", "status": "ok"}).encode(),
        json.dumps(ACCEPTED | {"id": "x", "answer": "accept"}).encode(),
        json.dumps(ACCEPTED | {"id": "x", "answer": True}).encode(),
        json.dumps(ACCEPTED | {"id": "x", "answer": {}}).encode(),
        json.dumps(ACCEPTED | {"id": "x", "answer": {"decision": "Accept"}}).encode(),
        json.dumps(ACCEPTED | {"id": "x", "answer": {"decision": ["accept"]}}).encode(),
        json.dumps(ACCEPTED | {"id": "x"}).encode(),  # of other arguments
        json.dumps(
            ACCEPTED | {"id": "x", "answer": {"decision": "accept", "arguments": {"v": "6"}}}
        ).encode(),
        b"[" * 100_000,
        b'{"id": "x", "status": "answered", "answer": {"decision": "acc',
    ],
)
async def test_server_that_is_no_bot_approves_nothing(alone: OneFile, body: bytes) -> None:
    async def answer(received: asyncio.StreamReader, sent: asyncio.StreamWriter) -> None:
        await received.readuntil(b"\r\n\r\n")
        status = b"503 Later\r\nRetry-After: \xb2" if body == b"later" else b"200 OK"
        sent.write(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
        sent.close()

    async with accepting(answer) as port:
        alone.environ["CLARIFY_URL"] = f"http://127.0.0.1:{port}"
        done = await alone.run("approve", "Deploy", "--argument", "v=4", "--timeout", "1")
    assert done.code in {1, 3, 4, 5}
    assert "Traceback" not in done.err
    assert body != b"later" or "cannot be reached" in done.err


@pytest.mark.parametrize("label", ["Yes", "No"])
async def test_answer_that_cannot_be_printed_is_none(stage: World, plain: OneFile, label: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = await plain.start("ask", "Go on?", "--kind", "yes_no", stdout=writing)
    os.close(writing)
    await stage.workspace.click(FOLAKE, AGENTS, (await stage.card("Go on?")).ts, label=label)
    done = await ended(process)
    assert done.code not in {0, None}
    assert "Traceback" not in done.err


async def test_answer_is_printed_whatever_the_encoding(stage: World, plain: OneFile) -> None:
    plain.environ |= {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    plain.before = ("-X", "utf8=0")
    process = await plain.start("ask", "Which colour?")
    await stage.workspace.post(FOLAKE, AGENTS, "grün 🟢", (await stage.card("Which colour?")).ts)
    done = await ended(process)
    assert (done.code, bool(done.out)) == (0, True), done


# -- while it waits


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", ["ask", "approve"])
async def test_signal_withdraws_the_question(
    stage: World, plain: OneFile, number: signal.Signals, command: str
) -> None:
    process = await plain.start(command, "Still needed?")
    card = await stage.card("Still needed?")
    process.send_signal(number)
    done = await ended(process)
    assert (done.code, done.out) == (128 + number, ""), done
    assert "The question was withdrawn." in done.err
    assert not controls(await stage.now_says(card, "Withdrawn"))


async def test_terminal_shows_the_link_who_claimed_it_and_the_time_left(stage: World, plain: OneFile) -> None:
    ours, theirs = pty.openpty()
    shown = bytearray()

    def read() -> None:
        shown.extend(os.read(ours, 65_536))

    loop = asyncio.get_running_loop()
    loop.add_reader(ours, read)
    try:
        process = await plain.start("ask", "Which?", "--choice", "a", "--timeout", "3000", stderr=theirs)
        card = await stage.card("Which?")
        await until(lambda: b"http" in shown, 30)
        assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Take")).ok
        await until(lambda: f"Claimed by {FOLAKE}".encode() in shown, 30)
        await until(lambda: len(set(re.findall(rb"\r(.) Waiting for an answer, 0:49:\d\d left", shown))) == 4)
        assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="a")).ok
        done = await ended(process)
        await until(lambda: shown.endswith(b" " * 40 + b"\r"))  # nothing of the line is left
    finally:
        loop.remove_reader(ours)
        os.close(ours)
        os.close(theirs)
    assert (done.code, done.out) == (0, "a\n")


async def test_each_change_is_a_line_where_there_is_no_terminal(stage: World, plain: OneFile) -> None:
    process = await plain.start("approve", "Deploy")
    card = await stage.card("Deploy")
    assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Take")).ok
    assert process.stderr is not None
    lines: list[str] = []
    while not {"Claimed", "http"} <= {re.split("[ s:]", each)[0] for each in lines}:
        lines.append((await process.stderr.readline()).decode())
        assert lines[-1]
    assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")).ok
    done = await ended(process)
    assert done.code == 0
    first, *between, last = [*lines, *done.err.splitlines(keepends=True)]
    assert first == "Asked in Slack: CLR-100001-001\n"
    assert sorted(re.sub(r"https?://\S+", "link", each) for each in between) == [
        f"Claimed by {FOLAKE}\n",
        "link\n",
    ]
    assert last == f"Approved by user:slack/T0LOCAL/{FOLAKE}.\n"


async def test_steps_of_one_run_share_a_thread(stage: World, plain: OneFile) -> None:
    plain.environ["GITHUB_RUN_ID"] = "4711"
    for command in ("ask", "approve"):
        assert (await plain.run(command, "Which?", "--timeout", "1")).code == 3
    async with plain.http() as http:
        listed = (await http.get("/questions", params={"session": "4711"})).json()["questions"]
    assert [each["kind"] for each in listed] == ["approval", "text"]


# -- hook


@pytest.mark.parametrize("agent", ["claude-code", "codex"])
@pytest.mark.parametrize("label", ["Accept", "Reject"])
async def test_hook_runs_from_the_file_alone(stage: World, file: OneFile, agent: str, label: str) -> None:
    process = await file.start("hook", agent)
    asked = asyncio.create_task(ended(process, json.dumps(event()).encode()))
    card = await stage.card("Run a shell command")
    if label == "Accept":
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label=label)
    else:
        await stage.workspace.post(FOLAKE, AGENTS, "reject: not now", card.ts)
    done = await asked
    assert (done.code, done.err) == (0, "")
    behavior = json.loads(done.out)["hookSpecificOutput"]["decision"]["behavior"]
    assert behavior == ("allow" if label == "Accept" else "deny")


async def test_hooks_from_the_file_find_each_other(stage: World, file: OneFile) -> None:
    sent = json.dumps(event()).encode()
    both = [asyncio.create_task(file.run("hook", "claude-code", sent=sent)) for _ in range(2)]
    card = await stage.card("Run a shell command")
    await until(lambda: waiting(stage) == 2)
    await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")
    assert all("allow" in done.out for done in await asyncio.gather(*both))
    assert len(stage.cards()) == 1


def waiting(stage: World) -> int:
    return sum(len(bot.agents.questions._waiting.get("CLR-100001-001", ())) for bot in stage.bots)


async def test_end_of_a_hook_takes_the_card_away(stage: World, file: OneFile) -> None:
    sent = json.dumps(event("PreToolUse")).encode()
    late = asyncio.create_task(file.run("hook", "claude-code", "--timeout", "5", sent=sent))
    card = await stage.card("Run a shell command")
    done = await late
    assert "no decision within 5 s" in done.err
    assert json.loads(done.out)["hookSpecificOutput"]["permissionDecision"] == "deny"
    await stage.now_says(card, "Withdrawn: “no one answered in time”")
    assert file.locks() == []


@pytest.mark.parametrize("words", [("hook", "claude-code"), ("mcp",)])
async def test_file_alone_installs_nothing(alone: OneFile, words: tuple[str, ...]) -> None:
    done = await alone.run(*words, "--install")
    assert done.code == 2
    assert "only where clarify-bot is installed" in done.err
    assert sorted(each.name for each in alone.path.parent.iterdir()) == ["clarify.py"]


def folder_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path | None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(path))
    return clarify._lock_folder()


def test_locks_are_in_a_folder_that_nobody_else_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = folder_of(tmp_path, monkeypatch)
    assert made is not None
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o770)
    assert folder_of(tmp_path, monkeypatch) is None
    made.chmod(0o700)
    moved = made.rename(tmp_path / "moved")
    made.symlink_to(moved)
    assert folder_of(tmp_path, monkeypatch) is None
    assert folder_of(tmp_path / "moved" / "file", monkeypatch) is not None
    (tmp_path / "file").write_text("")
    assert folder_of(tmp_path / "file", monkeypatch) is None


def test_locks_of_killed_hooks_are_cleared_after_days(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = folder_of(tmp_path, monkeypatch)
    assert made is not None
    for name, age in (("hook-old", 3 * 86_400), ("hook-new", 86_400), ("turn-gg", 3 * 86_400)):
        (made / name).write_text("")
        at = (made / name).stat().st_mtime - age
        os.utime(made / name, (at, at))
    folder_of(tmp_path, monkeypatch)
    assert sorted(each.name for each in made.iterdir()) == ["hook-new", "turn-gg"]


HOLDS = """
import sys, clarify
locks = clarify._Locks(lambda: None)
for line in sys.stdin:
    match line.split():
        case ["take", name, how]:
            print(locks.take(name, shared=how == "shared"), flush=True)
        case ["leave", name]:
            print(locks.is_last(name), flush=True)
        case ["drop", name]:
            print(locks.drop(name), flush=True)
"""


class Holder:
    """A process that takes locks when it is told to."""

    def __init__(self, process: Process) -> None:
        self.process = process

    @classmethod
    async def started(cls) -> Holder:
        command = (sys.executable, "-c", HOLDS)
        return cls(await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=PIPE, stdout=PIPE))

    def tell(self, *words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(words).encode() + b"\n")

    async def said(self) -> str:
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode().strip()

    async def told(self, *words: str) -> str:
        self.tell(*words)
        return await self.said()

    async def end(self) -> None:
        self.process.kill()
        await self.process.communicate()


@pytest.mark.parametrize("how", ["shared", "alone"])
async def test_locks_end_with_their_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    other = await Holder.started()
    assert await other.told("take", "key", how) == "True"
    ours = clarify._Locks(lambda: None)
    assert ours.take("key", waits=False) is False
    assert ours.take("key", shared=True, waits=False) == (how == "shared")
    assert not ours.is_last("key")
    assert ours.take("another", waits=False)
    await other.end()
    assert ours.is_last("key")
    left = sorted(each.name for each in (tmp_path / "clarify-hooks").iterdir())
    assert left == ["another", "key", "leaving"]  # and nothing of SQLite's beside them
    assert all(each.stat().st_size == 0 for each in (tmp_path / "clarify-hooks").iterdir())


async def test_of_hooks_that_leave_together_one_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    holders = [await Holder.started() for _ in range(3)]
    for turn in range(100):
        key = f"hook-{turn}"
        assert [await each.told("take", key, "shared") for each in holders] == ["True"] * 3
        for each in holders:
            each.tell("leave", key)
        assert sorted([await each.said() for each in holders]) == ["False", "False", "True"]
        for each in holders:
            await each.told("drop", key)
    for each in holders:
        await each.end()


@pytest.mark.parametrize("broken", ["no SQLite", "no folder"])
async def test_hooks_ask_without_locks_where_there_can_be_none(
    stage: World, plain: OneFile, broken: str
) -> None:
    if broken == "no SQLite":
        plain.before = ("-c", WITHOUT.replace('("fcntl"', '("sqlite3", "fcntl"'))
    else:
        (plain.path.parent / "runtime").write_text("")
    asked = asyncio.create_task(plain.run("hook", "claude-code", sent=json.dumps(event()).encode()))
    await stage.workspace.click(FOLAKE, AGENTS, (await stage.card("Run a shell")).ts, label="Accept")
    assert "allow" in (await asked).out


# -- GitHub Actions


class Workflow:
    """The steps of examples/github_actions.yml, as a runner runs them."""

    def __init__(self, file: OneFile) -> None:
        self.folder = file.path.parent
        self._file = file
        self.says = yaml.safe_load((ROOT / "examples/github_actions.yml").read_text())
        (self.folder / "tools").mkdir()
        file.path.rename(self.folder / "tools/clarify.py")
        (self.folder / "deploy.sh").write_text('#!/bin/sh\necho "$1" > deployed\n')
        (self.folder / "deploy.sh").chmod(0o755)

    @property
    def deployed(self) -> str | None:
        """The version that was deployed."""
        file = self.folder / "deployed"
        return file.read_text() if file.exists() else None

    async def start(self, place: int, version: str) -> Process:
        """The step at a place of the job; the first one checks the repository out."""
        step = self.says["jobs"]["deploy"]["steps"][place]
        assert step["shell"] == "bash"
        known = {
            "secrets.CLARIFY_URL": self._file.environ["CLARIFY_URL"],
            "secrets.CLARIFY_TOKEN": "secret",
            "inputs.version": version,
            "github.ref_name": "main",
            "github.sha": "c0ffee",
            "github.server_url": "https://github.com",
            "github.repository": "acme/shop",
            "github.run_id": "4711",
            "github.run_attempt": "2",
        }
        given = {
            name: re.sub(r"\$\{\{ (\S+) \}\}", lambda found: known[found[1]], value)
            for name, value in step["env"].items()
        }
        runner = {
            "PATH": os.environ["PATH"],
            "GITHUB_ACTOR": "ann",
            "GITHUB_TRIGGERING_ACTOR": "ben",
            "GITHUB_RUN_ID": "4711",
        }
        script = self.folder / f"step{place}.sh"
        script.write_text(step["run"])
        return await asyncio.create_subprocess_exec(
            *("bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)),
            cwd=self.folder,
            env=runner | given,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )

    async def run(self, version: str) -> Ended:
        """The job: its second step begins only if the gate went well."""
        gate = await ended(await self.start(1, version))
        return await ended(await self.start(2, version)) if gate.code == 0 else gate


@pytest.fixture
async def workflow(stage: World, tmp_path: Path) -> AsyncIterator[Workflow]:
    text = config(stage.producer.url, more='[[producers]]\nname = "ci"\ntoken_env = "CI_TOKEN"\n')
    stage.environ["CI_TOKEN"] = "secret"
    async with stage.bot(text) as bot:
        yield Workflow(OneFile(tmp_path / "copy", url_of(bot)))


HOSTILE = "4.2\"; touch deployed; --help $(touch deployed) `touch deployed` '--default accept"


@pytest.mark.parametrize("version", ["4.2", HOSTILE, "--help"])
async def test_workflow_deploys_what_people_approve(stage: World, workflow: Workflow, version: str) -> None:
    running = asyncio.create_task(workflow.run(version))
    card = await stage.card("to production")
    asked = stage.record()["aaep"]
    assert asked["arguments"] == {
        "version": version,
        "branch": "main",
        "commit": "c0ffee",
        "actor": "ben",
        "run": "https://github.com/acme/shop/actions/runs/4711/attempts/2",
    }
    assert workflow.deployed is None
    await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")
    assert (await running).code == 0
    assert workflow.deployed == f"{version}\n"


async def test_workflow_deploys_nothing_that_people_reject(stage: World, workflow: Workflow) -> None:
    running = asyncio.create_task(workflow.run("4.2"))
    card = await stage.card("to production")
    await stage.workspace.post(FOLAKE, AGENTS, "reject: not on a Friday", card.ts)
    done = await running
    assert (done.code, done.out, workflow.deployed) == (1, "not on a Friday\n", None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_workflow_that_is_cancelled_withdraws_its_question(
    stage: World, workflow: Workflow, number: signal.Signals
) -> None:
    step = await workflow.start(1, "4.2")
    card = await stage.card("to production")
    step.send_signal(number)  # to the shell alone, as the runner does before it kills
    assert (await ended(step)).code == 128 + number
    await stage.now_says(card, "Withdrawn")
    assert workflow.deployed is None


def test_workflow_is_one_job_that_never_runs_twice_at_once() -> None:
    """Otherwise a failed deployment could be repeated without asking, or an older one could follow a newer one."""
    says = yaml.safe_load((ROOT / "examples/github_actions.yml").read_text())
    assert says["concurrency"] == {"group": "deploy-production", "cancel-in-progress": False}
    assert says["permissions"] == {"contents": "read"}
    (job,) = says["jobs"].values()
    checkout, gate, deployment = job["steps"]
    assert checkout["uses"].startswith("actions/checkout@")
    assert checkout["with"] == {"persist-credentials": False}
    assert job["environment"] == "production"
    assert {"if", "continue-on-error"}.isdisjoint(job.keys() | gate.keys() | deployment.keys())
    assert "secrets." not in str(deployment)
