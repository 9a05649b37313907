# ruff: noqa: PLC0415, T201 - it starts before each step of an agent, and what it prints is its decision
"""`clarify hook`: a coding agent's permission requests, decided by people in Slack.

Reads one hook event from standard input, asks, and prints the decision as the agent expects it. Only a person's Accept
allows anything: without a decision, whatever the reason, `PermissionRequest` prints nothing, so that the agent asks in its
own way, and `PreToolUse` denies, since silence there would run the tool. Imports nothing but the standard library and
`clarify`.

Sources: "Hooks reference" (code.claude.com/docs/en/hooks), "Hooks" (developers.openai.com/codex/hooks).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import clarify

if TYPE_CHECKING:
    import argparse

Agent = Literal["claude-code", "codex"]
Json = dict[str, Any]
AT_THE_TERMINAL = "decided at the terminal"
SESSION_OVER = "the session ended"
_TIMEOUTS: dict[Agent, int] = {
    "claude-code": 540,
    "codex": 60,
}  # seconds; Codex asks at its terminal only afterwards
_AFTER_TOOL = {"PostToolUse", "PostToolUseFailure"}
_SESSION_ENDS = {"SessionEnd", "Stop"}
_OWN_TOOLS = "mcp__clarify__"
_AWAY = 5.0  # seconds that a bot may take to come back before nobody is asked
_MARGIN = 30  # seconds by which the question outlives its caller, who withdraws it
_ACTIONS = {  # by tool: what it does, and the field that says to what
    "Bash": ("Run a shell command", None),
    "shell": ("Run a shell command", None),
    "apply_patch": ("Apply a patch", None),
    "Write": ("Write", "file_path"),
    "Edit": ("Edit", "file_path"),
    "MultiEdit": ("Edit", "file_path"),
    "NotebookEdit": ("Edit", "notebook_path"),
    "Read": ("Read", "file_path"),
    "WebFetch": ("Fetch", "url"),
    "WebSearch": ("Search the web for", "query"),
}
_MOST = 16_000  # characters of an action or a question
_NAMED = re.compile(rb'"hook_event_name"\s*:\s*"(PermissionRequest|PreToolUse)"')  # in what is no JSON, too


class NoDecision(Exception):
    """Nobody decided; the message says why."""


class _Over(BaseException):
    """The time is over (`--timeout`), or who waits for the decision has ended."""


@dataclass(frozen=True)
class Options:
    """What was typed after `clarify hook`."""

    agent: Agent
    timeout: float
    on_silence: Literal["deny", "pass"] | None
    url: str | None
    escalate: bool


def main(argv: Sequence[str]) -> int:
    """Decide on the event from standard input, or `--install` the hook. Returns the exit code."""
    arguments = _parser().parse_args(argv)
    if arguments.install:
        from bot.cli import hook_install

        return hook_install.install(arguments)
    options = Options(
        arguments.agent,
        arguments.timeout if arguments.timeout is not None else _TIMEOUTS[arguments.agent],
        arguments.on_silence,
        arguments.url,
        arguments.escalate,
    )
    return _decide(sys.stdin.buffer.read(), options)


def _parser() -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        prog="clarify hook",
        description="Has people in Slack decide on what a coding agent asks permission for.",
    )
    parser.add_argument("agent", choices=sorted(_TIMEOUTS))
    parser.add_argument(
        "--timeout", type=_seconds, metavar="SECONDS", help="how long a person has (540; Codex: 60)"
    )
    parser.add_argument(
        "--on-silence", choices=["deny", "pass"], help="without a decision: deny, or leave it to the agent"
    )
    parser.add_argument("--escalate", action="store_true", help="page the person on call if nobody answers")
    parser.add_argument("--url", help="where the bot is (default: CLARIFY_URL, or http://127.0.0.1:8787)")
    parser.add_argument("--install", action="store_true", help="add the hook to the agent's settings")
    parser.add_argument("--project", action="store_true", help="with --install: to this folder's settings")
    parser.add_argument(
        "--tools", metavar="MATCHER", help="with --install: ask before these tools, in any mode"
    )
    parser.add_argument("--dry-run", action="store_true", help="with --install: only show the change")
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 1 <= value <= 86_400:
        raise ValueError
    return value


def _decide(data: bytes, options: Options) -> int:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict) or not isinstance(event.get("hook_event_name"), str):
        _explain("the event on standard input is not understood: expected an object with hook_event_name")
        if (named := _NAMED.search(data)) is not None:
            _silence(named[1].decode(), "No decision: the hook's event is not understood.", options)
        # Both exit codes leave it to the agent, which asks in its own way, but for 2, which blocks whatever it is.
        return 2 if named is None and options.on_silence == "deny" else 0
    name = event["hook_event_name"]
    try:
        client = clarify.Client(options.url)
        if name in _AFTER_TOOL | _SESSION_ENDS:
            _withdraw_waiting(client, event, options)
        elif name in {"PermissionRequest", "PreToolUse"}:
            print(json.dumps(_output(name, *_asked(client, event, options))))
    except NoDecision as error:
        _explain(str(error))
        _silence(name, str(error), options)
    except Exception as error:  # noqa: BLE001 - whatever it is: a hook that fails lets the tool run
        why = str(error) or type(error).__name__
        _explain(f"no decision: {why}")
        _silence(name, f"No decision from Slack: {why}", options)
    return 0


def _explain(words: str) -> None:
    print(f"clarify hook: {words}", file=sys.stderr)


def _silence(name: str, why: str, options: Options) -> None:
    """No decision: deny, or print nothing."""
    default = "deny" if name == "PreToolUse" else "pass"
    if (options.on_silence or default) == "deny" and name in {"PermissionRequest", "PreToolUse"}:
        print(json.dumps(_output(name, "deny", why, None)))


def _output(name: str, behavior: Literal["allow", "deny"], why: str | None, updated: Json | None) -> Json:
    """A decision as the event's own output has it."""
    if name == "PreToolUse":
        decided: Json = {
            "permissionDecision": behavior,
            "permissionDecisionReason": why or "Accepted in Slack.",
        }
        if updated is not None:
            decided["updatedInput"] = updated
        return {"hookSpecificOutput": {"hookEventName": name} | decided}
    decision: Json = {"behavior": behavior}
    if behavior == "deny":
        decision["message"] = why or "Rejected in Slack."
    if updated is not None:
        decision["updatedInput"] = updated
    return {"hookSpecificOutput": {"hookEventName": name, "decision": decision}}


Decision = tuple[Literal["allow", "deny"], str | None, Json | None]


def _asked(client: clarify.Client, event: Json, options: Options) -> Decision:
    """What a person decided: allow or deny, why, and the tool's input where it is another one now.

    Raises:
        NoDecision: nobody did.
    """
    tool, given, session = event["tool_name"], event["tool_input"], event["session_id"]
    if not isinstance(tool, str) or not isinstance(given, dict) or not isinstance(session, str):
        raise NoDecision("the event is not understood: expected tool_name, tool_input and session_id")
    if tool.startswith(_OWN_TOOLS):
        return "allow", "clarify's own tools ask people themselves.", None
    said = _question(tool, given, event, options.agent)
    with _among_callers(client.url, _digest(session, tool, given)) as is_last:
        fields = said | {
            "agent": options.agent,
            "session": _session(session),
            "escalate": options.escalate,
            "key": _key(client, session, tool, given),
        }
        state = _wait(fields, options, is_last)
    if state["status"] != "answered":
        words = {"expired": "nobody answered in time", "withdrawn": AT_THE_TERMINAL}
        raise NoDecision(
            f"no decision: {words.get(state['status']) or state.get('comment') or 'it was closed'}"
        )
    if "action" not in said:
        return "allow", None, given | {"answers": _answers(given, state)}
    if state["answer"]["decision"] != "accept":
        return "deny", state.get("comment") or f"Rejected in Slack by {state['decided_by']}.", None
    if tool == "ExitPlanMode":
        return "allow", None, given
    arguments = clarify.unredacted(state["answer"]["arguments"], given)
    return "allow", f"Accepted in Slack by {state['decided_by']}.", None if arguments == given else arguments


def _question(tool: str, given: Json, event: Json, agent: Agent) -> Json:
    """The question's own fields: an approval, or what the agent asks its user."""
    if tool == "AskUserQuestion":
        return _user_questions(given["questions"])
    about = {"Folder": event.get("cwd"), "Mode": event.get("permission_mode")}
    context = "\n".join(
        f"{name}: {value}" for name, value in about.items() if isinstance(value, str) and value
    )
    if tool == "ExitPlanMode":
        plan = str(given.get("plan") or "")[:_MOST]
        return {"action": "Carry out this plan", "question": plan or None, "context": context or None}
    return {
        "action": _action(tool, given),
        "arguments": given,
        "editable": agent == "claude-code",  # Codex runs what it asked, or nothing
        "context": context or None,
    }


def _action(tool: str, given: Json) -> str:
    """What the tool is about to do, in words."""
    words, what = _ACTIONS.get(tool, (f"Use the tool {tool}", None))
    named = given.get(what) if what else None
    return f"{words} {named}"[:_MOST] if isinstance(named, str) else words[:_MOST]


def _user_questions(questions: Sequence[Json]) -> Json:
    """One question of the agent's to its user as choices, several as one form."""
    if len(questions) == 1:
        (one,) = questions
        return {
            "question": one["question"],
            "choices": [
                {"value": each["label"], "label": each["label"], "description": each.get("description")}
                for each in one["options"]
            ],
            "multiple": bool(one.get("multiSelect")),
            "other": True,
        }
    properties: Json = {}
    for number, each in enumerate(questions, 1):
        labels = [option["label"] for option in each["options"]]
        asked = {"title": each.get("header") or f"Question {number}", "description": each["question"]}
        properties[f"q{number}"] = asked | (
            {"type": "array", "items": {"enum": labels}} if each.get("multiSelect") else {"enum": labels}
        )
        properties[f"q{number}_other"] = {"type": "string", "title": f"{asked['title']}: in your own words"}
    words = "\n".join(f"{number}. {each['question']}" for number, each in enumerate(questions, 1))
    return {"question": words, "schema": {"type": "object", "properties": properties}}


def _answers(given: Json, state: Json) -> dict[str, str]:
    """By question: the labels chosen, with commas, or own words."""
    questions, answer = given["questions"], state["answer"]
    if len(questions) == 1:
        chosen = answer if isinstance(answer, list) else [answer] if answer is not None else []
        return {questions[0]["question"]: state.get("other") or ", ".join(chosen)}
    found = {}
    for number, each in enumerate(questions, 1):
        chosen = answer.get(f"q{number}_other") or answer.get(f"q{number}")
        if chosen:
            found[each["question"]] = ", ".join(chosen) if isinstance(chosen, list) else chosen
    return found


@contextmanager
def _among_callers(*call: str) -> Iterator[Callable[[], bool]]:
    """Counts as one that waits for the decision on a call, of which several hooks may have been told. Gives a function that
    leaves and says whether nobody else waits: who begins to wait then waits for our end first.

    Each holds a shared lock on the call's own byte of a file of this user's, for as long as its process lives.
    """
    place = int(hashlib.sha256(" ".join(call).encode()).hexdigest()[:15], 16)
    folder = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - see the check of its owner
    path = f"{folder}/clarify-hooks-{os.getuid()}"
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        file = None
    if file is None or os.fstat(file).st_uid != os.getuid():
        yield lambda: True
        return

    def is_last() -> bool:
        fcntl.lockf(file, fcntl.LOCK_UN, 1, place)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except OSError:
            return False
        return True

    fcntl.lockf(file, fcntl.LOCK_SH, 1, place)
    try:
        yield is_last
    finally:
        os.close(file)


def _wait(fields: Mapping[str, Any], options: Options, is_last: Callable[[], bool]) -> Json:
    """Ask, and wait: until it is decided, the time is over, or nobody waits for the decision any more.

    Raises:
        NoDecision: nobody decided.
    """
    asking = clarify.Asking(fields, {"timeout": options.timeout + _MARGIN, "url": options.url})
    with _Ending(options.timeout) as ending:
        try:
            return asking.carry()
        except _Over:
            ending.ignore()
            if is_last():
                state = asking.withdraw("nobody answered in time" if ending.is_timeout else AT_THE_TERMINAL)
                if state.get("status") == "answered":
                    return state
            raise NoDecision(
                f"no decision within {options.timeout:.0f} s" if ending.is_timeout else AT_THE_TERMINAL
            ) from None


class _Ending:
    """Raises `_Over` in the main thread: after `seconds`, at SIGTERM or SIGINT, or at the end of the parent process."""

    def __init__(self, seconds: float) -> None:
        self.is_timeout = False
        self._seconds = seconds
        self._parent = os.getppid()
        self._left = threading.Event()

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, self._end)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ignore()

    def ignore(self) -> None:
        """Let nothing come between any more."""
        self._left.set()
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)

    def _end(self, number: int, _frame: object) -> None:
        self.is_timeout = number == signal.SIGALRM
        raise _Over

    def _watch(self) -> None:
        """No system tells a process of its parent's end in a portable way."""
        while not self._left.wait(0.5):
            if os.getppid() != self._parent:
                os.kill(os.getpid(), signal.SIGTERM)
                return


def _withdraw_waiting(client: clarify.Client, event: Json, options: Options) -> None:
    """After a tool ran, or at the end of a session, nobody needs a decision any more."""
    session, name = event["session_id"], event["hook_event_name"]
    mine = None
    if name in _AFTER_TOOL:
        mine = _digest(session, event["tool_name"], event["tool_input"])
    for state in _known(client, session, status="waiting"):
        key = str(state.get("key") or "")
        if key.startswith(f"hook-{mine}-" if mine else "hook-") and state["agent"] == options.agent:
            words = AT_THE_TERMINAL if mine else SESSION_OVER
            client.call(clarify.Call("DELETE", f"/questions/{state['id']}", query={"comment": words}))


def _known(client: clarify.Client, session: str, **query: str) -> list[Json]:
    """What this session asked, the newest first. A bot that is just starting has a moment to come back.

    Raises:
        NoDecision: it is away, or does not let us ask.
    """
    call = clarify.Call("GET", "/questions", query={"session": _session(session), **query}, patience=_AWAY)
    reply = _patiently(lambda: client.call(call), client)
    if reply.status >= 400:
        raise NoDecision(f"no decision: {reply.refusal()}")
    found: list[Json] = reply.json["questions"]
    return found


def _patiently(call: Callable[[], clarify.Reply], client: clarify.Client) -> clarify.Reply:
    ends = time.monotonic() + _AWAY
    while True:
        try:
            return call()
        except OSError as error:
            if time.monotonic() > ends:
                raise NoDecision(
                    f"no decision: clarify-bot at {client.url} cannot be reached: {error}"
                ) from None
        time.sleep(0.2)


def _key(client: clarify.Client, session: str, tool: str, given: Json) -> str:
    """The same for one call, seen by however many hooks at once; another one for the same call later on."""
    name = f"hook-{_digest(session, tool, given)}-"
    mine = [each for each in _known(client, session) if str(each.get("key") or "").startswith(name)]
    latest = max((int(each["key"].removeprefix(name)) for each in mine), default=0)
    waits = any(each["status"] == "waiting" and each["key"] == f"{name}{latest}" for each in mine)
    return f"{name}{latest if waits else latest + 1}"


def _digest(session: str, tool: str, given: Json) -> str:
    said = json.dumps([session, tool, given], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def _session(session: str) -> str:
    return session if len(session) <= 200 else hashlib.sha256(session.encode()).hexdigest()
