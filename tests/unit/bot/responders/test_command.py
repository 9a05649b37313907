"""Commands as responders: real processes, small programs written for each case."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
import os
import sys
import textwrap
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
import structlog

from bot.responders import children
from bot.responders.command import MOST, CommandResponder
from core.dispatch import Inquiry
from core.errors import AgentError
from tests.clocks import until

LONG = timedelta(seconds=60)
FOREVER = "import time; time.sleep(600)"


def program(folder: Path, text: str) -> list[str]:
    """A Python program as a command; without site, it starts quickly."""
    path = folder / "agent.py"
    path.write_text(textwrap.dedent(text))
    return [sys.executable, "-S", "-E", str(path)]


def responder(
    folder: Path, text: str, timeout: timedelta = LONG, env: Mapping[str, str] | None = None
) -> CommandResponder:
    return CommandResponder(program(folder, text), timeout, folder, env)


def ours() -> list[psutil.Process]:
    """Our children, zombies too."""
    return psutil.Process().children()


def is_gone(pid: int) -> bool:
    """Dead, whoever has to reap it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def pid_in(path: Path) -> int:
    with suppress(FileNotFoundError, ValueError):
        return int(path.read_text())
    return 0


async def test_command_gets_json_and_its_output_is_the_answer(tmp_path: Path, inquiry: Inquiry) -> None:
    echo = """
        import json, os, sys
        told = json.loads(sys.stdin.buffer.read().decode("utf-8"))
        print("  " + told["question"], told["clarificationId"], os.getcwd(), "süß  ")
    """
    # In UTF-8, whatever the surroundings say.
    agent = responder(tmp_path, echo, env={"PYTHONUTF8": "1"})
    agent = CommandResponder([sys.executable, "-S", "-X", "utf8", *agent._argv[3:]], LONG, tmp_path)
    answer = await agent.answer(inquiry)
    assert answer == f"{inquiry.question} CLR-42-001 {tmp_path} süß"
    assert not ours()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import sys; print('JSON'); sys.exit(3)", "ended with exit code 3"),
        ("import os; os.kill(os.getpid(), 11)", "was ended by SIGSEGV"),
        ("import os; os.kill(os.getpid(), 40)", "was ended by signal 40"),
        ("print('  ')", "gave no answer: it wrote nothing on standard output"),
        ("import sys; sys.stdout.buffer.write(b'caf\\xe9')", "gave an answer that is not UTF-8"),
        (f"print('x' * {MOST})", "gave more than 64 KiB"),
        ("while True: print('x' * 4096)", "gave more than 64 KiB"),
    ],
)
async def test_command_failures_say_what_happened(
    tmp_path: Path, inquiry: Inquiry, text: str, message: str
) -> None:
    with pytest.raises(AgentError) as failed:
        await responder(tmp_path, text).answer(inquiry)
    assert str(failed.value) == f"architect (command) {message}"
    assert not ours()


async def test_command_64_kib_are_an_answer(tmp_path: Path, inquiry: Inquiry) -> None:
    text = f"import sys; sys.stdout.write('x' * {MOST})"
    assert await responder(tmp_path, text).answer(inquiry) == "x" * MOST


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["./no-such-agent"], "cannot be started: ./no-such-agent: No such file or directory"),
        (["/"], "cannot be started: /: Permission denied"),
        (["a\0b"], "cannot be started: it has a character that no command may have"),
    ],
)
async def test_command_that_is_not_there(
    tmp_path: Path, inquiry: Inquiry, argv: list[str], message: str
) -> None:
    with pytest.raises(AgentError) as failed:
        await CommandResponder(argv, LONG, tmp_path).answer(inquiry)
    assert str(failed.value) == f"architect (command) {message}"


async def test_command_whose_folder_is_not_there(tmp_path: Path, inquiry: Inquiry) -> None:
    folder = tmp_path / "gone"
    with pytest.raises(AgentError) as failed:
        await CommandResponder([sys.executable], LONG, folder).answer(inquiry)
    assert str(failed.value) == f"architect (command) cannot be started: {folder}: No such file or directory"


async def test_command_that_reads_nothing_answers_all_the_same(tmp_path: Path, inquiry: Inquiry) -> None:
    """Its input is more than a pipe holds; it closes it, or just ends."""
    long = dataclasses.replace(inquiry, context="x" * 500_000)
    for text in ("print('JSON')", "import os; os.close(0); print('JSON')"):
        assert await responder(tmp_path, text).answer(long) == "JSON"


async def test_command_that_reads_late_gets_all(tmp_path: Path, inquiry: Inquiry) -> None:
    long = dataclasses.replace(inquiry, context="ü" * 300_000)
    text = "import json, sys; print('x' * 60000); print(len(json.load(sys.stdin)['context']))"
    assert (await responder(tmp_path, text).answer(long)).endswith("x\n300000")


async def test_command_that_closes_its_output_is_waited_for(tmp_path: Path, inquiry: Inquiry) -> None:
    text = "import os, sys; print('JSON', flush=True); os.close(1); sys.stdin.read(); os._exit(4)"
    with pytest.raises(AgentError, match="exit code 4"):
        await responder(tmp_path, text).answer(inquiry)


STUBBORN = """
    import os, signal, subprocess, sys, time
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-S", "-E", "-c",
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"])
    with open("child.new", "w") as file:
        file.write(str(child.pid))
    os.replace("child.new", "child.pid")
    {then}
"""


async def test_command_over_its_time_is_killed_with_its_children(tmp_path: Path, inquiry: Inquiry) -> None:
    """Though all of them ignore SIGTERM, and hold the pipes."""
    agent = responder(tmp_path, STUBBORN.format(then="time.sleep(600)"), timedelta(seconds=1))
    with pytest.raises(AgentError) as failed:
        await agent.answer(inquiry)
    assert str(failed.value) == "architect (command) did not end within 1 s"
    child = pid_in(tmp_path / "child.pid")
    if child:  # it got as far within its time
        await until(lambda: is_gone(child))
    assert not ours()


async def test_command_stopped_while_it_runs_is_killed_with_its_children(
    tmp_path: Path, inquiry: Inquiry
) -> None:
    work = asyncio.create_task(responder(tmp_path, STUBBORN.format(then="time.sleep(600)")).answer(inquiry))
    await until(lambda: pid_in(tmp_path / "child.pid"))
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await until(lambda: is_gone(pid_in(tmp_path / "child.pid")))
    assert not ours()


async def test_command_stopped_twice_leaves_nothing_behind(tmp_path: Path, inquiry: Inquiry) -> None:
    work = asyncio.create_task(responder(tmp_path, STUBBORN.format(then="time.sleep(600)")).answer(inquiry))
    await until(lambda: pid_in(tmp_path / "child.pid"))
    work.cancel()
    await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await until(lambda: is_gone(pid_in(tmp_path / "child.pid")) and not ours())


@pytest.mark.parametrize("shows", [True, False], ids=["as here", "where no environments are shown"])
async def test_command_that_ends_leaves_no_children_and_waits_for_none(
    tmp_path: Path, inquiry: Inquiry, monkeypatch: pytest.MonkeyPatch, *, shows: bool
) -> None:
    """They hold its output open: the answer does not wait for that."""
    if not shows:
        monkeypatch.setattr(children, "_PROCESSES", tmp_path / "nothing")
    began = time.monotonic()
    assert await responder(tmp_path, STUBBORN.format(then="print('JSON')")).answer(inquiry) == "JSON"
    assert time.monotonic() - began < 60, "they would have slept for ten minutes"
    await until(lambda: is_gone(pid_in(tmp_path / "child.pid")))
    assert not ours()


DAEMON = """
    import os, sys, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with open("child.new", "w") as file:
                file.write(str(os.getpid()))
            os.replace("child.new", "child.pid")
            time.sleep(600)
        os._exit(0)
    while not os.path.exists("child.pid"):
        time.sleep(0.01)
    print("JSON", flush=True)
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="this system does not show environments")
async def test_command_daemons_go_with_it_too(tmp_path: Path, inquiry: Inquiry) -> None:
    assert await responder(tmp_path, DAEMON).answer(inquiry) == "JSON"
    await until(lambda: is_gone(pid_in(tmp_path / "child.pid")))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="this system does not show environments")
async def test_command_that_has_others_asked_by_commands_takes_them_along(
    tmp_path: Path, inquiry: Inquiry
) -> None:
    nested = f"""
        import asyncio, os, sys
        from pathlib import Path
        from bot.responders.children import Children

        INNER = "import os, pathlib, time; pathlib.Path('inner').write_text(str(os.getpid())); time.sleep(600)"

        async def main():
            await Children([sys.executable, "-S", "-c", INNER], Path({str(tmp_path)!r}), dict(os.environ)).ended()

        asyncio.run(main())
        """
    path = tmp_path / "outer.py"
    path.write_text(textwrap.dedent(nested))
    root = str(Path(__file__).parents[4])
    outer = CommandResponder([sys.executable, str(path)], LONG, tmp_path, {**os.environ, "PYTHONPATH": root})
    task = asyncio.create_task(outer.answer(inquiry))
    await until(lambda: pid_in(tmp_path / "inner") > 0)
    task.cancel()
    await asyncio.wait([task])
    await until(lambda: is_gone(pid_in(tmp_path / "inner")))


async def test_command_many_at_once_leave_nothing_open(tmp_path: Path, inquiry: Inquiry) -> None:
    agent = responder(tmp_path, "import sys; print(len(sys.stdin.read()) > 0)")
    await agent.answer(inquiry)
    before = psutil.Process().num_fds()
    answers = await asyncio.gather(*(agent.answer(inquiry) for _ in range(8)))
    gc.collect()
    assert answers == ["True"] * 8
    assert psutil.Process().num_fds() <= before  # less, where something of before was collected meanwhile
    assert not ours()


async def test_command_logs_an_envelope_only(tmp_path: Path, inquiry: Inquiry) -> None:
    text = "import sys; said = sys.stdin.read(); print('s3cret'); print(said, file=sys.stderr); sys.exit(3)"
    with structlog.testing.capture_logs() as logs, pytest.raises(AgentError):
        await responder(tmp_path, text).answer(inquiry)
    (line,) = logs
    assert line.pop("seconds") >= 0
    assert line == {
        "event": "a command ended", "log_level": "info", "id": "CLR-42-001", "role": "architect", "code": 3,
    }  # fmt: skip


async def test_command_sees_the_environment_it_is_given(tmp_path: Path, inquiry: Inquiry) -> None:
    text = "import json, os; print(json.dumps(dict(os.environ)))"
    seen = json.loads(await responder(tmp_path, text, env={"AGENT": "1"}).answer(inquiry))
    assert seen.pop("AGENT") == "1"
    assert "PATH" not in seen
    seen = json.loads(await responder(tmp_path, text).answer(inquiry))
    assert seen["PATH"] == os.environ["PATH"]
