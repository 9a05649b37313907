"""`clarify` in processes of their own: beside each other, beside a running bot, and when they are stopped."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import termios
from pathlib import Path

import httpx
import psutil
import pytest

from tests.docs.snippets import snippets
from tests.kit import world
from tests.kit.processes import ended
from tests.kit.until import until
from tests.kit.world import World, config, controls, url_of
from tests.scenario.prompts import ASK, Project
from workspace.seed import AGENTS, FOLAKE, ONCALL

SOON = 60.0


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.at(tmp_path, database=world.new_database() if world.new_database else None)


def beside(stage: World) -> Project:
    """A prompt in the folder of the bot."""
    text = config(stage.producer.url).replace(
        'directory = "ledgers"', 'directory = "ledgers"\nworkflows = "workflows"'
    )
    return Project.beside(stage, text)


async def test_shell_waits_in_one_process_for_the_answer_that_another_gives(project: Project) -> None:
    async with project.started(*ASK, "Which database?", "--wait", "--timeout", "60s") as waiting:
        await until(project.records, SOON)
        await project.fine("answer", "42", "PostgreSQL", "--as", "architect")
        said = await ended(waiting)
    assert (said.code, said.out) == (0, "PostgreSQL\n")


async def test_shell_processes_that_ask_at_once_lose_nothing(project: Project) -> None:
    ids = await asyncio.gather(*(project.fine(*ASK, f"Question {n}?") for n in range(4)))
    assert sorted(ids) == [f"CLR-42-00{n}\n" for n in range(1, 5)]
    assert len(project.records()) == 4


async def test_shell_answers_at_once_and_exactly_one_is_first(project: Project) -> None:
    await project.fine(*ASK, "Which?")
    said = await asyncio.gather(*(project.run("answer", "CLR-42-001", f"answer {n}") for n in range(3)))
    assert sorted(each.code for each in said) == [0, 5, 5]
    winner = next(each.out for each in said if each.code == 0)
    kept = [entry["body"] for entry in project.records()[0]["thread"] if entry["type"] == "answer"]
    assert len(kept) == 1
    assert kept[0] in winner
    assert all(kept[0] in each.err for each in said if each.code == 5)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_shell_that_waits_is_stopped_without_a_traceback(
    project: Project, number: signal.Signals, code: int
) -> None:
    async with project.started(*ASK, "Which?", "--wait") as waiting:
        await until(project.records, SOON)
        assert waiting.stderr is not None
        assert b"Created an empty database" in await waiting.stderr.readline()
        assert b"Asked architect: CLR-42-001" in await waiting.stderr.readline()
        waiting.send_signal(number)
        said = await ended(waiting)
    assert (said.code, said.out, said.err) == (code, "", "")
    assert project.records()[0]["status"] == "pending"


async def test_shell_that_is_stopped_stops_the_responder_that_it_runs(project: Project) -> None:
    project.answering(
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open('pids.part', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "os.rename('pids.part', 'pids')\n"
        "time.sleep(600)"
    )
    pids = project.folder / "pids"
    async with project.started(*ASK, "Which?", "--wait") as waiting:
        await until(pids.exists, SOON)
        waiting.send_signal(signal.SIGINT)
        said = await ended(waiting)
    assert said.code == 130
    assert "Traceback" not in said.err
    started = [int(pid) for pid in pids.read_text().split()]
    await until(lambda: not any(map(_lives, started)), SOON)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_shell_stops_a_responder_whose_question_somebody_else_answers(project: Project) -> None:
    project.answering("import time; open('begun', 'w').close(); time.sleep(600)")
    async with project.started(*ASK, "Which?", "--wait") as waiting:
        await until((project.folder / "begun").exists, SOON)
        await project.fine("answer", "42", "by a person")
        said = await ended(waiting)
    assert (said.code, said.out) == (0, "by a person\n")


async def test_shell_whose_reader_has_enough_ends_quietly(project: Project) -> None:
    await project.fine(*ASK, "Which?")
    reading, writing = os.pipe()
    os.close(reading)
    async with project.started("list", "--all", stdout=writing) as process:
        os.close(writing)
        said = await ended(process)
    assert "Traceback" not in said.err
    assert "unexpected" not in said.err


async def test_shell_on_a_terminal_fits_its_width(project: Project) -> None:
    await project.fine(*ASK, "Should we move the payment tables to another database before the release?")
    shown = await _on_terminal(project, 60, "list")
    assert max(len(line) for line in shown.splitlines()) <= 60
    for words in ("CLR-42-001", "open", "just now", "payment"):
        assert words in shown


async def _on_terminal(project: Project, columns: int, *arguments: str) -> str:
    """What a terminal of so many columns gets, without colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    try:
        async with project.started(*arguments, stdout=theirs) as process:
            said = await ended(process)
            assert said.code == 0, said
        text = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    return re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r\n", "\n")


async def test_shell_answers_an_agents_question_and_the_bot_sends_the_reply(stage: World) -> None:
    project = beside(stage)
    async with stage.bot():
        card = await stage.ask()
        said = await project.run("answer", "100001", "yes")
        assert (said.code, said.err) == (0, "")
        reply = await stage.reply()
        assert reply["response"] is True
        assert reply["decided_by"].startswith("user:os/")
        shown = await stage.now_says(card, "user:os/")
        assert controls(shown) == ["Verify"]
        late = await project.run("answer", "CLR-100001-001", "no")
        assert (late.code, "already answered: “Yes” by user:os/" in late.err) == (5, True)
    assert len(stage.producer.replies) == 1


async def test_shell_escalates_and_abandons_and_the_bot_shows_it(stage: World) -> None:
    project = beside(stage)
    async with stage.bot():
        card = await stage.ask()
        await project.fine("escalate", "100001", "nobody here knows")
        await stage.page("nobody here knows", ONCALL)
        await project.fine("abandon", "100001", "not needed")
        assert not controls(await stage.now_says(card, "Closed without an answer"))


async def test_shell_asks_people_and_prints_what_one_of_them_replied_in_slack(stage: World) -> None:
    project = beside(stage)
    people = ("request", "--from", "engineer", "--to", "human", "--issue", "42", "Which database?")
    async with stage.bot():
        await stage.connected()
        async with project.started(*people, "--wait", "--timeout", "60s") as waiting:
            card = await stage.card("Which database?", timeout=SOON)
            await stage.workspace.post(FOLAKE, AGENTS, "PostgreSQL", thread_ts=card.ts)
            said = await ended(waiting)
    assert (said.code, said.out) == (0, "PostgreSQL\n")
    assert said.err == "Asked human: CLR-42-001, round 1.\n"


GATED = """
import json, os, sys, time
asked = json.load(sys.stdin)
open(f"asked-{os.getpid()}", "w").close()
while not os.path.exists("go"):
    time.sleep(0.02)
print("PostgreSQL, said by", os.getpid())
"""


async def test_shell_that_waits_does_no_harm_to_a_bot_that_starts_meanwhile(stage: World) -> None:
    project = beside(stage).answering(GATED)

    def askers() -> list[Path]:
        return list(project.folder.glob("asked-*"))

    async with project.started(*ASK, "Which?", "--wait", "--timeout", "60s") as waiting:
        await until(askers, SOON)
        async with stage.bot():
            await until(lambda: len(askers()) == 2, SOON)  # each has its own architect at work
            (project.folder / "go").touch()
            said = await ended(waiting)
            record = project.records()[0]
    answers = [entry["body"] for entry in record["thread"] if entry["type"] == "answer"]
    assert (said.code, [said.out]) == (0, [f"{answer}\n" for answer in answers])
    assert (record["status"], record["aaep"]["decidedBy"]) == ("answered", "agent:architect")


async def test_shell_that_waits_beside_a_bot_leaves_the_responder_to_it(stage: World) -> None:
    project = beside(stage).answering("print('PostgreSQL')")
    async with stage.bot():
        said = await project.run(*ASK, "Which?", "--wait", "--timeout", "60s")
    assert (said.code, said.out) == (0, "PostgreSQL\n")
    assert said.err == "Asked architect: CLR-42-001, round 1.\n"


def commands_of_the_page(of: str) -> list[list[str]]:
    """The commands of the page on agents that ask agents that name `of`, as a shell would split them."""
    page = [each for each in snippets() if each.page.name == "agent-to-agent.md" and of in each.text]
    return [words for each in page for words in each.commands]


async def test_ways_to_ask_of_the_page_are_two_questions(stage: World) -> None:
    """One after the other, as somebody who follows the page does: neither follows up on the other."""
    project = beside(stage)
    (over_http,) = commands_of_the_page("/clarifications -d")
    (in_a_shell,) = commands_of_the_page("clarify request")
    headers = dict(over_http[at + 1].split(": ") for at, word in enumerate(over_http) if word == "-H")
    asked = over_http[over_http.index("-d") + 1]
    async with stage.bot() as bot:
        async with httpx.AsyncClient(base_url=url_of(bot), trust_env=False, headers=headers) as client:
            first = await client.post("/clarifications", content=asked)
            again = await client.post("/clarifications", content=asked)
        assert (first.status_code, again.json()["id"]) == (201, first.json()["id"])
        await stage.card("Which database?")
        second = (await project.fine(*in_a_shell[1:])).strip()
        await stage.card(in_a_shell[-1])
    assert second != first.json()["id"]
    kept = [project.records(int(name.split("-")[1])) for name in (first.json()["id"], second)]
    assert [(each["round"], each["status"]) for records in kept for each in records] == [(1, "pending")] * 2
