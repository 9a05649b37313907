from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    ApplyPatchOperation,
    ApplyPatchResult,
    ApplyPatchTool,
    CustomTool,
    Model,
    ModelResponse,
    ShellCommandRequest,
    ShellTool,
    ToolApprovalItem,
    Usage,
    function_tool,
)
from openai.types.responses import (
    ResponseApplyPatchToolCall,
    ResponseCustomToolCall,
    ResponseFunctionShellToolCall,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from tests.examples.mailing import (
    SENDS,
    UNASKABLE,
    Mailing,
    Turn,
    accepted,
    answer,
    asks_again_about_what_may_have_run,
    check_refusals,
    killed_while_asking,
    of_the_page,
    output,
    press,
    python,
)
from tests.kit.world import World, controls, said

pytestmark = pytest.mark.examples


class Scripted(Model):
    """A model that says what it is told to, by how often it spoke before."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = turns
        self.others: list[Any] = []  # calls of other kinds beside those of the first turn
        self.heard: Any = None

    async def get_response(
        self,
        system_instructions: Any,
        input: Any,  # noqa: A002 - the base class's name
        *args: Any,
        **more: Any,
    ) -> ModelResponse:
        self.heard = input
        done = (
            0
            if isinstance(input, str)
            else len({each.get("call_id", "").partition("-")[0] for each in input} - {""})
        )
        turn = self._turns[done]
        output: list[Any]
        if isinstance(turn, str):
            text = ResponseOutputText(annotations=[], text=turn, type="output_text")
            output = [
                ResponseOutputMessage(
                    id="m", content=[text], role="assistant", status="completed", type="message"
                )
            ]
        else:
            output = [
                ResponseFunctionToolCall(
                    arguments=json.dumps(args), call_id=f"{done}-{n}", name=name, type="function_call"
                )
                for n, (name, args) in enumerate(turn)
            ]
            output += self.others if done == 0 else []
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **more: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


async def test_calls_are_accepted_and_rejected(stage: World, tmp_path: Path) -> None:
    from openai_agents_in_slack import run

    mailing = Mailing()
    turn = [("send_newsletter", {"subject": each, "recipients": 1204}) for each in ("May", "June")]
    model = Scripted([turn, "Done."])
    tool = function_tool(mailing.send_newsletter, needs_approval=True)
    saved = tmp_path / "run.json"
    running = asyncio.create_task(run(Agent("mailer", model=model, tools=[tool]), "Send both.", saved))
    may, june = await stage.card("May"), await stage.card("June")
    assert saved.exists()
    await press(stage, may, "Accept")
    await answer(stage, june, Your_decision="Reject", Reason="not in summer")
    assert await running == "Done."
    assert mailing.sent == [("May", 1204)]
    outputs = [each["output"] for each in model.heard if each.get("type") == "function_call_output"]
    assert outputs == ["sent to 1204", "not in summer"]
    assert not saved.exists()


SHELL = ResponseFunctionShellToolCall.model_validate(
    {
        "id": "s1",
        "call_id": "0-shell",
        "type": "shell_call",
        "status": "completed",
        "action": {"commands": ["rm -rf /srv/shop/data", "reboot"]},
    }
)
PATCH = ResponseApplyPatchToolCall.model_validate(
    {
        "id": "p1",
        "call_id": "0-patch",
        "type": "apply_patch_call",
        "status": "completed",
        "operation": {"type": "update_file", "path": "/srv/shop/cart.go", "diff": "-old\n+new\n"},
    }
)
CUSTOM = ResponseCustomToolCall(
    call_id="0-sql", type="custom_tool_call", name="sql", input="DELETE FROM carts;"
)


class Editor:
    """An editor of files that changes none."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def create_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        self.paths.append(operation.path)
        return ApplyPatchResult(output="patched")

    update_file = delete_file = create_file


async def test_people_see_what_tools_of_other_kinds_would_run(stage: World, tmp_path: Path) -> None:
    from openai_agents_in_slack import run

    ran: list[str] = []
    editor = Editor()

    def execute(request: ShellCommandRequest) -> str:
        ran.extend(request.data.action.commands)
        return "done"

    async def query(_: Any, given: str) -> str:
        ran.append(given)
        return "deleted"

    tools: list[Any] = [
        ShellTool(executor=execute, needs_approval=True),
        ApplyPatchTool(editor=editor, needs_approval=True),
        CustomTool(name="sql", description="Runs SQL.", on_invoke_tool=query, needs_approval=True),
    ]
    model = Scripted([[], "Done."])
    model.others = [SHELL, PATCH, CUSTOM]
    running = asyncio.create_task(
        run(Agent("admin", model=model, tools=tools), "Clean up.", tmp_path / "run.json")
    )
    shell = await stage.card("Call shell")
    assert "rm -rf /srv/shop/data" in said(shell)
    assert "reboot" in said(shell)
    patch = await stage.card("Call apply_patch")
    for each in ("update_file", "/srv/shop/cart.go", "+new"):
        assert each in said(patch)
    sql = await stage.card("Call sql")
    assert "DELETE FROM carts;" in said(sql)
    await press(stage, shell, "Reject")
    await press(stage, patch, "Accept")
    await press(stage, sql, "Accept")
    assert await running == "Done."
    assert (ran, editor.paths) == (["DELETE FROM carts;"], ["/srv/shop/cart.go"])
    assert "Rejected by user:" in json.dumps([dict(each) for each in model.heard], default=str)


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "local_shell_call", "call_id": "1", "action": {"command": ["reboot"]}},
        {"type": "shell_call", "call_id": "1", "action": {"commands": []}},
        {"type": "apply_patch_call", "call_id": "1"},
        {"type": "function_call", "call_id": "1", "name": "send", "arguments": '{"to": "a", "to": "b"}'},
        {"call_id": "1"},
    ],
)
async def test_call_that_cannot_be_shown_is_rejected(stage: World, raw: dict[str, Any]) -> None:
    from openai_agents_in_slack import approve

    why = await approve(ToolApprovalItem(Agent("admin"), raw, "shell"), "key")
    assert why is not None
    assert "No one was asked" in why
    assert not stage.cards()


async def test_model_reads_why_people_were_not_asked(stage: World, tmp_path: Path) -> None:
    from openai_agents_in_slack import run

    mailing = Mailing()
    sends = [each for each in UNASKABLE if each[0] == "send_newsletter"]
    model = Scripted([sends, "Done."])
    malformed = '{"subject": "June", "recipients": 5'
    for call_id, text in (("0-cut", malformed), ("0-nan", '{"subject": "June", "recipients": NaN}')):
        call = ResponseFunctionToolCall(
            arguments=text, call_id=call_id, name="send_newsletter", type="function_call"
        )
        model.others.append(call)
    tool = function_tool(mailing.send_newsletter, needs_approval=True)
    running = asyncio.create_task(
        run(Agent("mailer", model=model, tools=[tool]), "Send all.", tmp_path / "run.json")
    )
    await press(stage, await stage.card("May"), "Reject")
    assert await running == "Done."
    *sent, cut, nan = (each["output"] for each in model.heard if each.get("type") == "function_call_output")
    check_refusals(sent)
    assert "cannot be read as JSON" in cut
    assert "NaN" in nan
    assert (mailing.sent, len(stage.cards())) == ([], 1)


async def test_run_that_is_given_up_asks_nobody(stage: World, tmp_path: Path) -> None:
    from openai_agents_in_slack import run

    tool = function_tool(Mailing().send_newsletter, needs_approval=True)
    saved = tmp_path / "run.json"
    running = asyncio.create_task(
        run(Agent("mailer", model=Scripted(SENDS), tools=[tool]), "Send it.", saved)
    )
    card = await stage.card("June")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not controls(await stage.now_says(card, "Withdrawn"))
    assert not saved.exists()


PROGRAM = python("""
import asyncio, os, sys
from pathlib import Path
from agents import Agent, function_tool
from openai_agents_in_slack import run
from tests.examples.mailing import SENDS, Mailing
from tests.examples.test_openai_agents import Scripted

mailing = Mailing()
def send_newsletter(subject: str, recipients: int) -> str:
    print("sends", flush=True)
    if "die" in sys.argv:
        os._exit(1)
    return mailing.send_newsletter(subject, recipients)

agent = Agent("mailer", model=Scripted(SENDS), tools=[function_tool(send_newsletter, needs_approval=True)])
print(asyncio.run(run(agent, "Send it.", Path(sys.argv[1]))), mailing.sent)
""")


async def test_killed_process_goes_on_where_it_was(stage: World, tmp_path: Path) -> None:
    saved = str(tmp_path / "run.json")
    card = await killed_while_asking(stage, PROGRAM, saved)
    await press(stage, card, "Accept")
    assert await output(await PROGRAM.start(saved)) == ["sends", "Done. [('June', 1204)]"]
    assert len(stage.cards()) == 1


async def test_call_that_may_have_run_is_asked_about_again(stage: World, tmp_path: Path) -> None:
    saved = str(tmp_path / "run.json")
    assert await asks_again_about_what_may_have_run(stage, PROGRAM, saved) == "Done. []"


async def test_program_of_the_page(stage: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mailing = Mailing()
    names = {"model": Scripted(SENDS), "send_newsletter": mailing.send_newsletter}
    found = await accepted(stage, of_the_page("openai_agents_in_slack", **names), "send_newsletter")
    assert found["output"] == "Done."
    assert mailing.sent == [("June", 1204)]
