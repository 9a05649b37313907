# ruff: noqa: PLC0415, T201 - it starts before each step of an agent, and prints its decision
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
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
_SERVER = "clarify"  # the default name of our MCP server
_OWN_TOOLS = frozenset({"ask_human", "ask_approval", "wait_for_answer", "withdraw_question"})
_AWAY = 5.0  # seconds to wait for a bot that is away, before giving up
_MARGIN = 30  # seconds that the question outlives its caller, who withdraws it
_PLAN = "ExitPlanMode"
_ACTIONS = {  # by tool: what it does, and the field that names its object
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
    _PLAN: ("Carry out this plan", None),
}
_UNNAMED = "any"  # in place of a `tool_use_id`
_LETTERS = str.maketrans("0123456789", "ghijklmnop")
_NAMED = re.compile(rb'"hook_event_name"\s*:\s*"(PermissionRequest|PreToolUse)"')  # even in broken JSON


class NoDecision(Exception):
    """No one decided; the message says why."""


class _Interrupted(BaseException):
    """`--timeout` is over, or the agent that waits for the decision has ended."""


@dataclass(frozen=True)
class Options:
    """The arguments of `clarify hook`."""

    agent: Agent
    timeout: float
    on_silence: Literal["deny", "pass"] | None
    url: str | None
    escalate: bool
    server: str


def main(argv: Sequence[str]) -> int:
    """Decide on the event from standard input, or `--install` the hook. Returns the exit code."""
    arguments = _parser().parse_args(argv)
    if arguments.install:
        from bot.cli.install import install_hook

        return install_hook(arguments, _TIMEOUTS[arguments.agent])
    options = Options(
        arguments.agent,
        arguments.timeout if arguments.timeout is not None else _TIMEOUTS[arguments.agent],
        arguments.on_silence,
        arguments.url,
        arguments.escalate,
        arguments.server_name or _SERVER,
    )
    return _decide(sys.stdin.buffer.read(), options)


def _parser() -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        prog="clarify hook",
        description="Lets people in Slack answer a coding agent's permission requests.",
    )
    parser.add_argument("agent", choices=sorted(_TIMEOUTS))
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help="how long people have to decide (default: 540; Codex: 60)",
    )
    parser.add_argument(
        "--on-silence", choices=["deny", "pass"], help="without a decision: deny, or let the agent decide"
    )
    parser.add_argument("--escalate", action="store_true", help="page the person on call if no one answers")
    parser.add_argument(
        "--server-name",
        type=_server_name,
        metavar="NAME",
        help=f"the agent's name for clarify's MCP server, whose tools need no permission (default: {_SERVER})",
    )
    parser.add_argument("--url", help="the bot's address (default: CLARIFY_URL, or http://127.0.0.1:8787)")
    parser.add_argument("--install", action="store_true", help="add the hook to the agent's settings")
    parser.add_argument("--project", action="store_true", help="with --install: use this folder's settings")
    parser.add_argument(
        "--tools", metavar="MATCHER", help="with --install: ask before these tools, in every permission mode"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="with --install: show the change, write nothing"
    )
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 1 <= value <= 86_400:
        raise ValueError
    return value


def _server_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", text):
        raise ValueError
    return text


def _decide(data: bytes, options: Options) -> int:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict) or not isinstance(event.get("hook_event_name"), str):
        _explain("cannot read the event on standard input: it must be a JSON object with hook_event_name")
        if (named := _NAMED.search(data)) is not None:
            _silence(named[1].decode(), "No decision: clarify hook cannot read the event.", options)
        # 0 leaves the decision to the agent, which asks in its own way; 2 blocks the tool.
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
    except Exception as error:  # noqa: BLE001 - if the hook failed, the tool would run
        why = str(error) or type(error).__name__
        _explain(f"no decision: {why}")
        _silence(name, f"No decision from Slack: {why}", options)
    return 0


def _explain(words: str) -> None:
    print(f"clarify hook: {words}", file=sys.stderr)


def _silence(name: str, why: str, options: Options) -> None:
    """Deny, or print nothing, since there is no decision."""
    default = "deny" if name == "PreToolUse" else "pass"
    if (options.on_silence or default) == "deny" and name in {"PermissionRequest", "PreToolUse"}:
        print(json.dumps(_output(name, "deny", why, None)))


def _output(name: str, behavior: Literal["allow", "deny"], why: str | None, updated: Json | None) -> Json:
    """Returns a decision in the format that the event expects."""
    if name == "PreToolUse":
        decided: Json = {
            "permissionDecision": behavior,
            "permissionDecisionReason": why or "Approved in Slack.",
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
    """Returns a person's decision: allow or deny, why, and the tool's new input if they changed it.

    Raises:
        NoDecision: no one decided.
    """
    tool, given, session = (event.get(name) for name in ("tool_name", "tool_input", "session_id"))
    if not isinstance(tool, str) or not isinstance(given, dict) or not isinstance(session, str):
        raise NoDecision("cannot read the event: it must have tool_name, tool_input and session_id")
    if tool in {f"mcp__{options.server}__{each}" for each in _OWN_TOOLS}:
        return "allow", "clarify's own tools need no permission.", None
    said = _question(tool, given, event, options.agent)
    fields = said | {"agent": options.agent, "session": _session(session), "escalate": options.escalate}
    state = _wait(client, _Call.of(event, fields), fields, options)
    if state["status"] != "answered":
        words = {"expired": "no one answered in time", "withdrawn": AT_THE_TERMINAL}
        raise NoDecision(
            f"no decision: {words.get(state['status']) or state.get('comment') or 'the question was closed'}"
        )
    if "action" not in said:
        return "allow", None, given | {"answers": _answers(given, state)}
    if state["answer"]["decision"] != "accept":
        return "deny", state.get("comment") or f"Rejected in Slack by {state['decided_by']}.", None
    if tool == _PLAN:
        return "allow", None, given
    arguments = clarify.Approval(state, given).arguments
    is_edited = not clarify.is_same(arguments, given)
    by = " and ".join(state.get("approved_by") or [state["decided_by"]])
    return "allow", f"Approved in Slack by {by}.", arguments if is_edited else None


def _question(tool: str, given: Json, event: Json, agent: Agent) -> Json:
    """Returns the question's fields: an approval, or the agent's questions to its user, with all of the tool's input. The
    bot refuses an input that is too long to show.
    """
    if tool == "AskUserQuestion":
        return _user_questions(given)
    about = {"Folder": event.get("cwd"), "Mode": event.get("permission_mode")}
    context = "\n".join(
        f"{name}: {value}" for name, value in about.items() if isinstance(value, str) and value
    )
    return {
        "action": _action(tool, given),
        "arguments": given,
        "editable": agent == "claude-code" and tool != _PLAN,  # Codex takes no changed input
        "context": context or None,
    }


def _action(tool: str, given: Json) -> str:
    """Returns a description of what the tool is about to do."""
    words, what = _ACTIONS.get(tool, (f"Use the tool {tool}", None))
    named = given.get(what) if what else None
    return f"{words} {named}" if isinstance(named, str) else words


def _user_questions(given: Json) -> Json:
    """Turns one question of the agent to its user into choices, several into a form; the rest becomes context."""
    questions = given["questions"]
    if len({each["question"] for each in questions}) < len(questions):
        raise NoDecision(
            "no decision: two questions have the same text, so their answers could not be told apart"
        )
    beside = "\n".join(_beside(given)) or None
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
            "context": beside,
        }
    properties: Json = {}
    for number, each in enumerate(questions, 1):
        offered = {
            "oneOf": [
                {"const": one["label"], "title": one["label"], "description": one.get("description")}
                for one in each["options"]
            ]
        }
        asked = {"title": each.get("header") or f"Question {number}", "description": each["question"]}
        properties[f"q{number}"] = asked | (
            {"type": "array", "items": offered} if each.get("multiSelect") else offered
        )
        properties[f"q{number}_other"] = {"type": "string", "title": f"{asked['title']}: in your own words"}
    words = "\n".join(f"{number}. {each['question']}" for number, each in enumerate(questions, 1))
    return {
        "question": words,
        "schema": {"type": "object", "properties": properties},
        "context": beside,
    }


def _beside(given: Json) -> Iterator[str]:
    """Yields the other content of the agent's questions, such as previews of the options, line by line."""
    several = len(given["questions"]) > 1
    yield from _left_over(given, {"questions", "answers"})
    for number, each in enumerate(given["questions"], 1):
        where = f"Question {number}, " if several else ""
        title = {"header"} if several else set()
        yield from _left_over(each, {"question", "options", "multiSelect"} | title, where)
        for option in each["options"]:
            yield from _left_over(option, {"label", "description"}, f"{where}{option['label']}, ")


def _left_over(said: Json, shown: Collection[str], where: str = "") -> Iterator[str]:
    for name, each in said.items():
        if name not in shown and each is not None:
            value = each if isinstance(each, str) else json.dumps(each, indent=2, ensure_ascii=False)
            yield f"{where}{name}:{chr(10) if chr(10) in value else ' '}{value}"


def _answers(given: Json, state: Json) -> dict[str, str]:
    """Returns the answer to each question: the chosen labels, joined by commas, or the person's own words."""
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


@dataclass(frozen=True)
class _Call:
    """A tool call, as questions' keys identify it. `what`: session, tool and input; `use`: its `tool_use_id`, if the event
    has one; `asked`: the whole question.
    """

    what: str
    use: str
    asked: str = ""

    @classmethod
    def of(cls, event: Json, asked: Json | None = None) -> Self:
        use = event.get("tool_use_id")
        what = _digest(event["session_id"], event["tool_name"], event["tool_input"])
        return cls(what, _digest(use) if use else _UNNAMED, _digest(asked))

    @classmethod
    def in_key(cls, key: str | None) -> Self | None:
        """Returns the call that a question's key names; None if it is not a hook's, or of an earlier release."""
        parts = (key or "").split("-")
        return cls(*parts[1:4]) if len(parts) == 5 and parts[0] == "hook" else None

    def new_key(self) -> str:
        """Returns a new, unique key."""
        return f"hook-{self.what}-{self.use}-{self.asked}-{_letters(os.urandom(12))}"

    def may_be(self, other: Self | None) -> bool:
        """Whether both may be the same call, as far as their ids tell."""
        if other is None or self.what != other.what:
            return False
        return self.use == other.use or _UNNAMED in {self.use, other.use}

    def found_in(self, waiting: Iterable[Json]) -> list[Json]:
        """Returns the questions that ask the same about the same call; none if that is ambiguous."""
        calls = [(each, self.in_key(each.get("key"))) for each in waiting]
        same = [
            (each, call) for each, call in calls if call and self.may_be(call) and self.asked == call.asked
        ]
        named = [each for each, call in same if call.use == self.use]
        return named or ([each for each, _ in same] if len(same) == 1 else [])


class _Neighbours:
    """Coordinates this user's hooks by locks on bytes of one file, which end with the processes that hold them."""

    def __init__(self) -> None:
        folder = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - see the check of its owner
        path = f"{folder}/clarify-hooks-{os.getuid()}"
        self._file: int | None = None
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        if os.fstat(self._file).st_uid != os.getuid():
            self._file = None

    @contextmanager
    def one_at_a_time(self, call: str) -> Iterator[None]:
        """Keeps other hooks from asking about this call within the block."""
        self._lock(fcntl.LOCK_EX, call)
        try:
            yield
        finally:
            self._lock(fcntl.LOCK_UN, call)

    def join(self, key: str) -> None:
        """Wait for the question of this key, together with others; blocks while a hook withdraws it."""
        self._lock(fcntl.LOCK_SH, key)

    def leave(self, key: str) -> None:
        """Stop waiting for the question."""
        self._lock(fcntl.LOCK_UN, key)

    def is_last(self, key: str) -> bool:
        """Stop waiting; returns whether no other hook waits. If so, `join` blocks others until this process ends."""
        self.leave(key)
        try:
            self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB, key)
        except OSError:
            return False
        return True

    def _lock(self, how: int, name: str) -> None:
        if self._file is not None:
            fcntl.lockf(self._file, how, 1, int(hashlib.sha256(name.encode()).hexdigest()[:15], 16))


def _wait(client: clarify.Client, call: _Call, fields: Json, options: Options) -> Json:
    """Ask, or join another hook's question about this call, and wait for the decision; returns the question's state.

    Raises:
        NoDecision: no one decided in time, or the agent ended.
    """
    neighbours, asking = _Neighbours(), None
    more: clarify._More = {"timeout": options.timeout + _MARGIN, "url": options.url}
    with _Ending(options.timeout) as ending, ExitStack() as turn:
        try:
            turn.enter_context(neighbours.one_at_a_time(call.what))
            known = _joined(client, call, fields["session"], neighbours)
            key = known["key"] if known else call.new_key()
            asking = clarify.Asking(
                fields | {"key": key}, more, known=known["id"] if known else None, told=turn.close
            )
            if known:
                turn.close()
            else:
                neighbours.join(key)
            ending.start_again()  # people get the full time
            return asking.carry()
        except _Interrupted:
            ending.ignore()
            if asking is not None and neighbours.is_last(key):
                state = asking.withdraw("no one answered in time" if ending.is_timeout else AT_THE_TERMINAL)
                if state.get("status") == "answered":
                    return state
            raise NoDecision(
                f"no decision within {options.timeout:.0f} s" if ending.is_timeout else AT_THE_TERMINAL
            ) from None


def _joined(client: clarify.Client, call: _Call, session: str, neighbours: _Neighbours) -> Json | None:
    """Returns the open question about this call, which we join; a decision made before that does not count."""
    for each in call.found_in(_waiting(client, session)):
        neighbours.join(each["key"])
        reply = _patiently(client, clarify.Call("GET", f"/questions/{each['id']}", patience=_AWAY))
        if reply.status == 200 and reply.json["status"] == "waiting":
            return each
        neighbours.leave(each["key"])
    return None


class _Ending:
    """Raises `_Interrupted` in the main thread: after `seconds`, at SIGTERM or SIGINT, or at the end of the parent process."""

    def __init__(self, seconds: float) -> None:
        self.is_timeout = False
        self._seconds = seconds
        self._parent = os.getppid()
        self._left = threading.Event()

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, self._end)
        self.start_again()
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ignore()

    def start_again(self) -> None:
        """Restart the time."""
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def ignore(self) -> None:
        """Ignore the time, the signals and the parent from now on."""
        self._left.set()
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)

    def _end(self, number: int, _frame: object) -> None:
        self.is_timeout = number == signal.SIGALRM
        raise _Interrupted

    def _watch(self) -> None:
        """Polls for the parent's end, since no portable call reports it."""
        while not self._left.wait(0.5):
            if os.getppid() != self._parent:
                os.kill(os.getpid(), signal.SIGTERM)
                return


def _withdraw_waiting(client: clarify.Client, event: Json, options: Options) -> None:
    """Withdraw questions whose tool ran or whose session ended."""
    mine = _Call.of(event) if event["hook_event_name"] in _AFTER_TOOL else None
    for state in _waiting(client, _session(event["session_id"])):
        key = state.get("key") or ""
        is_mine = mine.may_be(_Call.in_key(key)) if mine else key.startswith("hook-")
        if is_mine and state["agent"] == options.agent:
            words = AT_THE_TERMINAL if mine else SESSION_OVER
            client.call(clarify.Call("DELETE", f"/questions/{state['id']}", query={"comment": words}))


def _waiting(client: clarify.Client, session: str) -> list[Json]:
    """Returns the session's open questions, newest first. Waits a moment for a bot that is starting.

    Raises:
        NoDecision: the bot is away, or refuses the request.
    """
    found: list[Json] = []
    asked = {"session": session, "status": "waiting"}
    while True:
        reply = _patiently(client, clarify.Call("GET", "/questions", query=asked, patience=_AWAY))
        if reply.status >= 400:
            raise NoDecision(f"no decision: {reply.refusal()}")
        found += reply.json["questions"]
        if (following := reply.json.get("next")) is None:
            return found
        asked["after"] = following


def _patiently(client: clarify.Client, call: clarify.Call) -> clarify.Reply:
    ends = time.monotonic() + _AWAY
    while True:
        try:
            return client.call(call)
        except OSError as error:
            if time.monotonic() > ends:
                raise NoDecision(
                    f"no decision: clarify-bot at {client.url} cannot be reached: {error}"
                ) from None
        time.sleep(0.2)


def _digest(*said: Any) -> str:
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return _letters(hashlib.sha256(text.encode()).digest()[:16])


def _letters(data: bytes) -> str:
    """Encodes bytes as letters only, so that `redact` patterns for card numbers do not match."""
    return data.hex().translate(_LETTERS)


def _session(session: str) -> str:
    return session if len(session) <= 200 else hashlib.sha256(session.encode()).hexdigest()
