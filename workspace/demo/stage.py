"""`clarify demo`: the local workspace and the agents in this process, the bot as a child of it.

The bot is connected exactly as in production: `clarify run` on a configuration file, tokens in its environment, Socket Mode
and Web API to the workspace, AAEP over HTTP to one agent, `/questions` and `clarify mcp` for the other.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shlex
import shutil
import socket
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from uuid import uuid4

from workspace import Options, Way, Workspace
from workspace.demo import DemoError
from workspace.demo.agent import AGENT_ID, AGENT_NAME, live
from workspace.demo.captain import CAPTAIN_ID, Captain
from workspace.demo.producer import DemoProducer
from workspace.demo.reviewer import ROLE
from workspace.demo.wire import wire
from workspace.seed import AGENTS, APP_TOKEN, BOT_TOKEN, FALLBACK, ONCALL

STOP_SECONDS = 15
USUAL_PORT = 8787  # where clients look for a bot unless told otherwise
HOOK_PORT = 8799  # where a visitor's agent is called back, if it is free
SLA = "1m"  # a visitor should see a nudge, and then a page, without waiting long
Say = Callable[[str], object]


def bot_command(configuration_file: Path) -> list[str]:
    """Return the command that starts the bot."""
    return [sys.executable, "-m", "bot.cli", "run", "--config", str(configuration_file)]


async def play(
    *, port: int, folder: Path | None, say: Say, command: Callable[[Path], list[str]] = bot_command
) -> None:
    """Run the demo until it is cancelled. `folder` None: a temporary one, removed at the end.

    `command` gives what to start on the configuration file that was written.

    Raises:
        DemoError: the port is taken, the folder cannot be used, or the bot stopped; then the
            folder stays, with the bot's log.
    """
    place = _folder(folder)
    try:
        async with AsyncExitStack() as stack:
            listener = stack.enter_context(_listener(USUAL_PORT, 0))
            bot_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            with _listener(0) as trial, _listener(HOOK_PORT, 0) as other:
                bot_port, hook_port = trial.getsockname()[1], other.getsockname()[1]
            options = Options(connect=ways_to_connect(bot_url, hook_port))
            workspace = await _workspace(stack, port, options)
            agent = DemoProducer(AGENT_ID, agent_name=AGENT_NAME, watch=workspace.traffic.aaep)
            producer = await stack.enter_async_context(agent)
            file = place / "clarify.toml"
            file.write_text(configuration(producer.url, bot_port, hook_port), encoding="utf-8")
            _write_workflow(place)
            to_bot = wire(listener, f"http://127.0.0.1:{bot_port}", workspace.traffic)
            await stack.enter_async_context(to_bot)
            _greet(say, workspace.url, bot_url, place, is_kept=folder is not None)
            token = secrets.token_urlsafe()
            bot = await stack.enter_async_context(_bot(command(file), place, workspace.api_url, token))

            await _go_on(producer, Captain(bot_url, token), bot, place, say)
    except asyncio.CancelledError:
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)
            say(
                "Stopped. The database and the log are deleted; `clarify demo --keep-folder FOLDER` keeps them."
            )
        else:
            say(f"Stopped. The database and the log are in {place}.")
        raise


async def _workspace(stack: AsyncExitStack, port: int, options: Options) -> Workspace:
    try:
        return await stack.enter_async_context(Workspace(port, options))
    except OSError as error:
        raise DemoError(f"cannot use port {port}: {error.strerror}. Choose another with --port") from error


def _listener(*ports: int) -> socket.socket:
    """Listens on the first of these ports that is free; 0 is any."""
    for port in ports:
        try:
            return socket.create_server(("127.0.0.1", port))
        except OSError as error:
            why = error.strerror
    raise DemoError(f"no free port for agents: {why}")


def ways_to_connect(bot_url: str, hook_port: int) -> tuple[Way, ...]:
    """Returns what the page offers to copy for a visitor's own agent: each a command for a terminal."""
    clarify = shlex.quote(str(Path(sys.executable).with_name("clarify")))
    python = shlex.quote(sys.executable)
    asked = json.dumps({"question": "Which database?", "choices": ["PostgreSQL", "SQLite"]})
    return (
        Way(
            "Claude Code",
            "The address works for any MCP client. With MCP tasks, no call is held while people decide.",
            f"claude mcp add --transport http clarify {bot_url}/mcp",
        ),
        Way(
            "MCP over stdio",
            "For MCP clients that start a command: enter this in their settings, not in a terminal.",
            f"{clarify} mcp --url {bot_url}",
        ),
        Way(
            "Shell",
            "Exits with 0 only if someone approves. Elsewhere, the one file clarify.py does the same.",
            f'{clarify} approve "Deploy 4.2" --risk high --url {bot_url} && echo Deploying',
        ),
        Way("Python", "", f"{python} -c {shlex.quote(_PYTHON.format(bot_url=bot_url))}"),
        Way(
            "HTTP",
            f"For every other language. All requests and fields: {bot_url}/openapi.json",
            f"curl -H 'Content-Type: application/json' '{bot_url}/questions?wait=55' -d '{asked}'",
        ),
        Way(
            "After a restart",
            "Lists what your agent asked, with the answers.",
            f"curl -s '{bot_url}/questions' | {python} -m json.tool --no-ensure-ascii",
        ),
        Way(
            "Called back instead of waiting",
            "Asks, then listens until the bot posts the answer to it.",
            f"{python} -c {shlex.quote(_CALLED_BACK.format(bot_url=bot_url, hook=hook_port))}",
        ),
    )


_PYTHON = """\
import clarify
answer = clarify.ask("Which colour?", choices=["Blue", "Green"], url="{bot_url}")
print(answer.value, answer.decided_by)"""

_CALLED_BACK = """\
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.request import Request, urlopen

class Hook(BaseHTTPRequestHandler):
    def do_POST(self):
        state = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        print(state["answer"], state["decided_by"])
        self.send_response(204)
        self.end_headers()

hook = HTTPServer(("127.0.0.1", {hook}), Hook)
question = {{"question": "Which logo?", "choices": ["Round", "Square"], "callback_url": "http://127.0.0.1:{hook}/"}}
headers = {{"Content-Type": "application/json"}}
urlopen(Request("{bot_url}/questions", json.dumps(question).encode(), headers))
hook.handle_request()"""


def configuration(producer_url: str, bot_port: int, hook_port: int) -> str:
    """Write the demo's clarify.toml."""
    return f"""\
[slack]
mode = "socket"
fallback_channel = "{FALLBACK}"

[http]
listen = "127.0.0.1:{bot_port}"

[monitor]
sla = "{SLA}"

[[producers]]
name = "demo"
url = "{producer_url}"
dialect = "standard"

[[producers]]
name = "{CAPTAIN_ID}"
token_env = "CAPTAIN_TOKEN"

[[producers]]
name = "my-agent"
callbacks = ["http://127.0.0.1:{hook_port}/*"]

[[routes]]
channel = "{AGENTS}"
answerers = ["members"]
on_call = "demo"

[responders.{ROLE}]
command = {json.dumps([sys.executable, "-m", "workspace.demo.reviewer"])}

[[on_call]]
name = "demo"
users = ["{ONCALL}"]
take_timeout = "5m"
steps = [
  {{after = "0s", notify = ["thread", "dm"], every = "2m"}},
  {{after = "3m", notify = ["channel:{FALLBACK}"]}},
]
"""


def _write_workflow(place: Path) -> None:
    """Let the agent ask the other one."""
    folder = place / ".agentx" / "workflows"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "release.toml").write_text(
        f'[[steps]]\nagent = "{AGENT_ID}"\ncan_clarify = ["{ROLE}"]\n', encoding="utf-8"
    )


def _folder(wanted: Path | None) -> Path:
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="clarify-demo-"))
    try:
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DemoError(f"cannot use {wanted} as a folder: {error.strerror}") from error
    return wanted.resolve()


def _greet(say: Say, page: str, bot_url: str, place: Path, *, is_kept: bool) -> None:
    say("")
    say(f"  Open this page:  {page}")
    say("")
    say(
        "  Channel #agents: answer with a button, a menu, Answer… or a reply in the thread; approve or reject."
    )
    say("  Or wait: a reminder after one minute; after two, Noor, who is on call, is paged.")
    say("  Your own agent:  click Connect an agent on the page")
    if not bot_url.endswith(f":{USUAL_PORT}"):
        say(
            f"                   Port {USUAL_PORT} is in use, so the bot is elsewhere: export CLARIFY_URL={bot_url}"
        )
    say(f"  Files:           {place} (clarify.toml, clarify.db, bot.log)")
    say(
        "  Stop:            Ctrl-C"
        + ("" if is_kept else ", which deletes these files (--keep-folder keeps them)")
    )
    say("")


async def _go_on(producer: DemoProducer, captain: Captain, bot: Process, place: Path, say: Say) -> None:
    """Runs the agents until the bot ends; raises DemoError then."""

    async def greet() -> None:
        await producer.wait_for_subscriber()
        say("The bot is connected to the agents and the workspace.")

    async def announce() -> None:
        await producer.wait_for_subscriber()
        await captain.live()

    async with asyncio.TaskGroup() as group:
        agents = (live(producer, new_id=lambda: uuid4().hex), announce(), greet())
        others = [group.create_task(each) for each in agents]
        code = await bot.wait()
        for task in others:
            task.cancel()
    raise DemoError(
        f"the bot stopped with exit code {code}. See its log, {place / 'bot.log'}:\n{_tail(place)}"
    )


@asynccontextmanager
async def _bot(command: list[str], place: Path, api_url: str, token: str) -> AsyncIterator[Process]:
    """Starts `clarify run` in its own session, so that Ctrl-C reaches only us; we shut it down gracefully."""
    environment = {
        # slack_sdk would send calls to loopback through a proxy too
        **{name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
        "SLACK_API_URL": api_url,
        "SLACK_BOT_TOKEN": BOT_TOKEN,
        "SLACK_APP_TOKEN": APP_TOKEN,
        "CAPTAIN_TOKEN": token,
    }
    with (place / "bot.log").open("ab") as log:
        bot = await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield bot
    finally:
        await asyncio.shield(_stop(bot))


async def _stop(bot: Process) -> None:
    if bot.returncode is not None:
        return
    bot.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await bot.wait()
    except TimeoutError:
        bot.kill()
        await bot.wait()


def _tail(place: Path) -> str:
    lines = (place / "bot.log").read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(f"  {line[:300]}" for line in lines[-5:])
