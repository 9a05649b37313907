from __future__ import annotations

import asyncio
import json
import os
import subprocess
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.examples.mailing import (
    ELSEWHERE,
    IN_OWN_WORDS,
    SENDS,
    UNASKABLE,
    Program,
    answer,
    answer_in_own_words,
    asks_again_about_what_may_have_run,
    check_refusals,
    fields,
    killed_while_asking,
    on_the_page,
    output,
    press,
)
from tests.kit import node
from tests.kit.models import Block, Model, calls, scripted
from tests.kit.world import World, controls

pytestmark = pytest.mark.examples
FRAMEWORKS = ("vercel_ai", "mastra")
GIVEN = 'import { model as scripted, send, show } from "./scripted.ts";\nconst model: any = scripted;\n'


def agent(node_program: Path, project: Path, name: str, turns: Sequence[Any] = SENDS) -> Program:
    (project / "turns.json").write_text(json.dumps(turns))
    return Program([str(node_program), f"{name}.ts"], project)


async def shown(program: Program, saved: Path) -> Any:
    *_, last = await output(await program.start(str(saved)))
    return json.loads(last)


def test_types(project: Path) -> None:
    for name in ("vercel_ai", "mastra", "claude_agent_sdk"):
        page = on_the_page("ts", f"./{name}_in_slack.ts")
        (project / f"page_{name}.ts").write_text(GIVEN + page)
    compiler = node.FOLDER / "node_modules/.bin/tsc"
    done = subprocess.run([compiler, "-p", project], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0


@pytest.mark.parametrize("name", FRAMEWORKS)
async def test_calls_are_accepted_edited_rejected_and_answered(
    stage: World, node_program: Path, project: Path, name: str
) -> None:
    turn = [("send_newsletter", {"subject": each, "recipients": 1204}) for each in ("May", "June", "July")]
    asks = ("ask_person", {"question": "Which list?", "choices": ["all", "staff"], **ELSEWHERE})
    program = agent(node_program, project, name, [[*turn, asks], "Done."])
    running = asyncio.create_task(shown(program, project / "run.json"))
    await press(stage, await stage.card("May"), "Accept")
    await answer(stage, await stage.card("June"), Your_decision="Accept", recipients="12")
    await answer(stage, await stage.card("July"), Your_decision="Reject", Reason="not in summer")
    await press(stage, await stage.card("Which list?"), "staff")
    assert await running == {
        "text": "Done.",
        "sent": [["June", 12], ["May", 1204]],
        "results": {"0-0": "sent to 1204", "0-1": "sent to 12", "0-2": "not in summer", "0-3": "staff"},
    }
    assert not (project / "run.json").exists()
    assert len({each.thread_ts or each.ts for each in stage.cards()}) == 1  # one session


@pytest.mark.parametrize("name", FRAMEWORKS)
async def test_own_words_reach_the_model(stage: World, node_program: Path, project: Path, name: str) -> None:
    program = agent(node_program, project, name, [IN_OWN_WORDS, "Done."])
    running = asyncio.create_task(shown(program, project / "run.json"))
    words = await answer_in_own_words(stage)
    assert list((await running)["results"].values()) == words


@pytest.mark.parametrize("name", FRAMEWORKS)
async def test_model_reads_why_people_were_not_asked(
    stage: World, node_program: Path, project: Path, name: str
) -> None:
    rounded = ("send_newsletter", {"subject": "July", "recipients": 1187654321098765433})  # by JavaScript
    program = agent(node_program, project, name, [[*UNASKABLE, rounded], "Done."])
    running = asyncio.create_task(shown(program, project / "run.json"))
    await press(stage, await stage.card("May"), "Reject")
    found = await running
    assert (found["text"], found["sent"], len(stage.cards())) == ("Done.", [], 1)
    *refusals, of_rounded = [found["results"][f"0-{n}"] for n in range(4)]
    check_refusals(refusals)
    assert "No one was asked" in str(of_rounded)
    assert "2^53" in str(of_rounded)


async def test_calls_that_the_provider_runs_cannot_be_edited(
    stage: World, node_program: Path, project: Path
) -> None:
    program = agent(node_program, project, "vercel_ai", [[("hosted", {"query": "June"})], "Done."])
    running = asyncio.create_task(shown(program, project / "run.json"))
    card = await stage.card("Call hosted")
    assert await fields(stage, card) == ["Your decision", "Reason"]
    await press(stage, card, "Accept")
    assert await running == {"text": "Done.", "sent": [], "results": {"approval": True}}


async def test_mastra_calls_that_need_approval_run_as_they_are(
    stage: World, node_program: Path, project: Path
) -> None:
    turn = [("send_now", {"subject": each, "recipients": 1204}) for each in ("May", "June")]
    program = agent(node_program, project, "mastra", [[*turn], "Done."])
    running = asyncio.create_task(shown(program, project / "run.json"))
    may = await stage.card("May")
    await press(stage, may, "Accept")
    await answer(stage, await stage.card("June"), Your_decision="Reject", Reason="not in summer")
    found = await running
    assert found["sent"] == [["May", 1204]]
    assert found["results"] == {"0-0": "sent to 1204", "0-1": "not in summer"}


async def test_mastra_without_storage_fails(stage: World, node_program: Path, project: Path) -> None:
    process = await agent(node_program, project, "mastra").start(str(project / "run.json"), "forget")
    assert await output(process) == []
    assert process.returncode == 1
    assert not stage.cards()


@pytest.mark.parametrize("name", FRAMEWORKS)
async def test_same_call_once_more_is_a_question_of_its_own(
    stage: World, node_program: Path, project: Path, name: str
) -> None:
    call = ("send_newsletter", {"subject": "June", "recipients": 1204}, "the-same-id")
    program = agent(node_program, project, name, [[call], [call], "Done."])
    running = asyncio.create_task(shown(program, project / "run.json"))
    await press(stage, await stage.card("June"), "Accept")
    await stage.until(lambda: len(stage.cards()) == 2)
    await answer(stage, stage.cards()[-1], Your_decision="Reject", Reason="once is enough")
    found = await running
    assert found["sent"] == [["June", 1204]]
    assert found["results"] == {"the-same-id": "once is enough"}


@pytest.mark.parametrize("name", FRAMEWORKS)
async def test_killed_process_continues_where_it_was(
    stage: World, node_program: Path, project: Path, name: str
) -> None:
    program = agent(node_program, project, name)
    card = await killed_while_asking(stage, program, str(project / "run.json"))
    await answer(stage, card, Your_decision="Accept", recipients="12")
    found = await shown(program, project / "run.json")
    assert (found["text"], found["sent"]) == ("Done.", [["June", 12]])
    assert len(stage.cards()) == 1


@pytest.mark.parametrize("name", FRAMEWORKS)
async def test_call_that_may_have_run_is_asked_about_again(
    stage: World, node_program: Path, project: Path, name: str
) -> None:
    program = agent(node_program, project, name)
    last = await asks_again_about_what_may_have_run(stage, program, str(project / "run.json"))
    assert json.loads(last) == {"text": "Done.", "sent": [], "results": {"0-0": "it was sent"}}


@pytest.mark.parametrize("name", FRAMEWORKS)
async def test_program_of_the_page(stage: World, node_program: Path, project: Path, name: str) -> None:
    program = GIVEN + on_the_page("ts", f"./{name}_in_slack.ts") + "show(text);\n"
    (project / "page.ts").write_text(program)
    running = asyncio.create_task(shown(agent(node_program, project, "page"), project / "run.json"))
    await press(stage, await stage.card("send_newsletter"), "Accept")
    assert await running == {"text": "Done.", "sent": [["June", 1204]], "results": {"0-0": "sent to 1204"}}


@asynccontextmanager
async def claude(
    node_program: Path, project: Path, *turn: Block, name: str = "claude_agent_sdk"
) -> AsyncIterator[tuple[Model, Process]]:
    """Claude Code runs in the project, with a model that calls the tools of this turn."""
    home = project.with_name("home")
    home.mkdir()
    async with scripted() as model:
        model.will(list(turn))
        process = await asyncio.create_subprocess_exec(
            node_program,
            f"{name}.ts",
            cwd=project,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "CLAUDE_CONFIG_DIR": str(home),
                "CLARIFY_URL": os.environ["CLARIFY_URL"],
                "ANTHROPIC_BASE_URL": model.url,
                "ANTHROPIC_API_KEY": "scripted",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
            },
            stdin=PIPE,
            stdout=PIPE,
        )
        try:
            yield model, process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()


def sends(subject: str, number: int = 1) -> Block:
    return calls("Bash", number, command=f"echo {subject} 1204 >> sent.txt", description="Sends it")


async def test_claude_asks_for_permission(stage: World, node_program: Path, project: Path) -> None:
    questions = [
        {
            "question": asked,
            "header": "List",
            "multiSelect": several,
            "options": [{"label": each, "description": each} for each in ("all", "staff", "press")],
        }
        for asked, several in (("Which list?", False), ("Who else?", True))
    ]
    turn = [
        *(sends(subject, n) for n, subject in enumerate(("May", "June", "July"))),
        calls("AskUserQuestion", 3, questions=questions),
    ]
    async with claude(node_program, project, *turn) as (model, process):
        await press(stage, await stage.card("echo May"), "Accept")
        edited = "echo June 12 >> sent.txt"
        await answer(stage, await stage.card("echo June"), Your_decision="Accept", command=edited)
        await answer(stage, await stage.card("echo July"), Your_decision="Reject", Reason="not in summer")
        await press(stage, await stage.card("Which list?"), "staff")
        await answer(stage, await stage.card("Who else?"), Your_choices=["all", "press"])
        assert await output(process) == ["Done."]
    assert (project / "sent.txt").read_text().splitlines() == ["May 1204", "June 12"]
    *_, rejected, answered = model.results
    assert rejected == "not in summer"
    assert '"Which list?"="staff"' in answered
    assert '"Who else?"="all, press"' in answered


async def test_claude_aborted_withdraws(stage: World, node_program: Path, project: Path) -> None:
    async with claude(node_program, project, sends("May")) as (_, process):
        card = await stage.card("echo May")
        assert process.stdin is not None
        process.stdin.write(b"abort\n")
        await stage.now_says(card, "Withdrawn")
        assert not controls(card)
        await output(process)
    assert not (project / "sent.txt").exists()


async def test_claude_call_that_cannot_be_shown_whole_is_denied(
    stage: World, node_program: Path, project: Path
) -> None:
    async with claude(node_program, project, sends("x" * 300_000)) as (model, process):
        assert await output(process) == ["Done."]
    assert "at most 262144 are allowed" in model.results[0]
    assert not stage.cards()
    assert not (project / "sent.txt").exists()


async def test_claude_program_of_the_page(stage: World, node_program: Path, project: Path) -> None:
    (project / "page.ts").write_text(on_the_page("ts", "./claude_agent_sdk_in_slack.ts"))
    async with claude(node_program, project, sends("May"), name="page") as (_, process):
        await press(stage, await stage.card("echo May"), "Accept")
        assert await output(process) == ["Done."]
    assert (project / "sent.txt").read_text() == "May 1204\n"
