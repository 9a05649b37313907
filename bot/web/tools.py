"""Runs the MCP tools in the bot, for one request to `/mcp` at a time.

Imports the MCP SDK, which loads slowly, so `bot.web.server` imports this module at the first call.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import json
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil
from typing import Any

import structlog
from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, CallToolResult
from starlette.types import Message, Receive, Scope, Send

from bot.ask.questions import KEYS_KEPT, LARGE, Forgotten, Questions
from bot.ask.tools import (
    Task,
    UnknownTask,
    add_tasks,
    created,
    declares,
    error_result,
    make_server,
    read_arguments,
    say,
    state_result,
    wait_in,
)
from bot.errors import ClarifyBotError
from bot.telemetry import Telemetry
from bot.web.guard import BODY_LIMIT, answer_to
from bot.web.questions import Waiting
from clarify import ASKING, DEFAULT_WAIT
from core.clarification import ID, Clarification, one_line, parse_id
from core.clock import FairLimit, iso
from core.errors import ClarifyError, NotFound, Tampered
from core.questions import BadField, NewQuestion
from core.transitions import AlreadyAnswered
from core.workflow import Speaker

_STATUS = 300  # characters of a task's status message; its result has all
_RESULT = b'"result"'  # in the part of a response that has the result, as JSON or as an event
_log = structlog.get_logger("clarify.mcp")
logging.getLogger("mcp").setLevel(logging.WARNING)  # it logs each request


@dataclass(eq=False)
class Call:
    """Serves one request, and records that its answer was picked up once the response is written. `name`: the caller's
    name for this call, if it may repeat it. `polled`: the tasks that clients poll.
    """

    questions: Questions
    waiting: Waiting
    speaker: Speaker
    stopping: Callable[[], Awaitable[Any]]
    telemetry: Telemetry
    name: str | None
    polled: Polled
    _handed: Clarification | None = field(default=None, init=False)
    _written: Clarification | None = field(default=None, init=False)
    _gone: bool = field(default=False, init=False)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        server = make_server(self._carry)
        add_tasks(server, self)
        manager = StreamableHTTPSessionManager(
            server,
            stateless=True,
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=BODY_LIMIT,
        )

        async def read() -> Message:
            message = await receive()
            self._gone = self._gone or message["type"] == "http.disconnect"
            return message

        try:
            async with manager.run():
                await manager.handle_request(scope, read, functools.partial(self._write, send))
        finally:
            if self._written is not None:
                await self.questions.picked_up(self._written)

    async def _write(self, send: Send, message: Message) -> None:
        """Sends a part of the response. An answer counts as picked up if the caller is still there at its end."""
        body = message.get("body", b"")
        if self._handed is None or _RESULT not in body:
            await send(message)
            return
        record, self._handed = self._handed, None
        await send({**message, "body": body[:-1], "more_body": True})
        await asyncio.sleep(0)  # a closed connection accepts any data, but `_gone` is set by now
        if not self._gone:
            self._written = record
        await send({**message, "body": body[-1:]})

    async def _carry(
        self, name: str, arguments: dict[str, Any], context: ServerRequestContext[Any, Any]
    ) -> CallToolResult | dict[str, Any]:
        outcome = "left"  # the caller hung up first
        try:
            result, outcome = await self._result(
                name, arguments, as_task=name in ASKING and declares(context)
            )
            return result
        finally:
            self.telemetry.tools.labels(name, outcome).inc()

    async def _result(
        self, name: str, arguments: dict[str, Any], *, as_task: bool
    ) -> tuple[CallToolResult | dict[str, Any], str]:
        """`as_task`: if no one has decided yet, the client gets a task."""
        try:
            record, state = await self._settled(name, arguments, 0 if as_task else DEFAULT_WAIT)
            if as_task and record.is_open:
                return created(self._task_of(self._task_id(record.id), record, state)), "done"
        except Exception as error:  # noqa: BLE001 - reported as on the routes; unexpected errors are logged
            answer = _body_of(error)
            failed = answer["error"] == "INTERNAL_ERROR"
            if failed:
                _log.exception("tool failed", tool=name)
            return error_result(answer), "failed" if failed else "refused"
        self._handed = record
        return state_result(state, record.current.receipt), "done"

    async def get(self, task_id: str) -> Task:
        try:
            record = await self._of_task(task_id)
        except Tampered as error:
            return self._tampered(task_id, error)
        (state,) = await self.waiting.states([record])
        task = self._task_of(task_id, record, state)
        if "result" in task:
            self._handed = record
        return task

    async def look(self, task_ids: Collection[str]) -> Mapping[str, Task]:
        records, found = {}, {}
        for each in task_ids:
            async with self.polled.looking.slot(self.speaker.producer):
                await asyncio.sleep(0)
                try:
                    records[each] = await self._of_task(each)
                except UnknownTask:
                    continue
                except Tampered as error:
                    found[each] = self._tampered(each, error)
        states = await self.waiting.states(list(records.values()))
        for (each, record), state in zip(records.items(), states, strict=True):
            async with self.polled.looking.slot(self.speaker.producer):
                await asyncio.sleep(0)
                found[each] = self._task_of(each, record, state)
        return found

    async def cancel(self, task_id: str) -> None:
        with suppress(AlreadyAnswered, Tampered):
            record = await self._of_task(task_id)
            if record.is_open:
                await self._tried(self.questions.withdraw(record.id, self.speaker.producer))

    async def changes(self, task_ids: Collection[str]) -> AsyncGenerator[str]:
        ids = {each.rpartition(".")[0]: each for each in task_ids}
        async with aclosing(self.questions.changes(ids, self.stopping)) as changes:
            async for name in changes:
                yield ids[name]

    async def _of_task(self, task_id: str) -> Clarification:
        """Returns a task's question.

        Raises:
            UnknownTask: the caller has no such task. Tampered: see `Questions.find`.
        """
        name, _, _ = task_id.rpartition(".")
        if not (task_id.isascii() and ID.fullmatch(name)):
            raise UnknownTask
        if not hmac.compare_digest(self._task_id(name), task_id):
            raise UnknownTask
        if (waiting := self.questions.waiting(name)) is not None:
            return waiting
        return await self._tried(self.questions.find(name, self.speaker.producer))

    async def _tried(self, work: Awaitable[Clarification]) -> Clarification:
        """Returns the result of `work`; what cannot be done now is an error of the protocol, and the client tries again.

        Raises:
            UnknownTask: its question was deleted. Tampered, AlreadyAnswered.
        """
        try:
            return await work
        except (NotFound, Forgotten):
            raise UnknownTask from None
        except (Tampered, AlreadyAnswered):
            raise
        except (ClarifyError, ClarifyBotError) as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from error

    def _task_id(self, name: str) -> str:
        """Returns the id of the task for a question of this caller."""
        return f"{name}.{self.questions.token('task', self.speaker.producer, name)}"

    def _tampered(self, task_id: str, error: Tampered) -> Task:
        now = self.questions.clock.now()
        task = self._task(task_id, "completed", str(error), created=now, changed=now, expires=now)
        return task | {"result": _dumped(error_result({"message": str(error)}))}

    def _task_of(self, task_id: str, record: Clarification, state: Mapping[str, Any]) -> Task:
        status = {"waiting": "working", "withdrawn": "cancelled"}.get(state["status"], "completed")
        claimed = record.attention.taken_by
        people = [*((claimed.at,) if claimed else ()), *(each.at for each in record.consent.approvals or ())]
        task = self._task(
            task_id,
            status,
            _message(state) if status == "working" else one_line(say(state), _STATUS),
            created=record.created,
            changed=max([record.last_change, *people]),
            expires=record.asked.expires_at or record.created,
        )
        if status == "completed":
            task["result"] = _dumped(state_result(state, record.current.receipt))
        return task

    def _task(
        self,
        task_id: str,
        status: str,
        words: str,
        *,
        created: datetime,
        changed: datetime,
        expires: datetime,
    ) -> Task:
        if status == "working":
            self.polled.note(task_id)
        else:
            self.polled.drop(task_id)
        return {
            "taskId": task_id,
            "status": status,
            "statusMessage": words,
            "createdAt": iso(created),
            "lastUpdatedAt": iso(changed),
            "ttlMs": ceil((expires - created + KEYS_KEPT).total_seconds()) * 1000,
            "pollIntervalMs": self.polled.interval_ms,
        }

    async def _settled(
        self, name: str, arguments: dict[str, Any], default_wait: int
    ) -> tuple[Clarification, dict[str, Any]]:
        """Runs a tool. Returns the question that it is about, and its state."""
        producer, arguments = self.speaker.producer, read_arguments(name, arguments)
        if name == "withdraw_question":
            try:
                record = await self.questions.withdraw(_id_in(arguments), producer)
            except AlreadyAnswered as error:
                record = error.record
            (state,) = await self.waiting.states([record])
            return record, state
        try:
            wait = wait_in(arguments, default_wait)
        except ValueError as error:
            raise BadField("wait", str(error)) from None
        if name == "wait_for_answer":
            record = await self.questions.find(_id_in(arguments), producer)
        else:
            if "callback_url" in arguments:  # a model must not choose whom the bot calls
                raise BadField("callback_url", "`callback_url` is not an argument of this tool. Remove it.")
            if name == "ask_approval":
                arguments.setdefault("kind", "approval")
            elif arguments.get("kind") == "approval":  # whose action this tool cannot take
                raise BadField("kind", "`kind` cannot be approval here. Call ask_approval, with `action`.")
            new = await self.questions.reading.run(
                producer,
                functools.partial(NewQuestion.model_validate, arguments),
                LARGE if arguments.get("arguments") else 0,
            )
            record, _ = await self.questions.ask(new, self.speaker, repeats=True, call=self.name)
        record, state, _ = await self.waiting.settled(record, producer, wait, self.stopping)
        return record, state


class Polled:
    """The open tasks that clients polled lately, by which the interval of polls grows, so that they cost the bot little.

    A listener holds `looking` while it looks at one of its tasks: if many begin at once, clicks come between two tasks, and no
    producer's listeners wait for all of another's.
    """

    _LATELY, _SHORTEST, _EACH = 600.0, 5000, 20  # seconds, milliseconds, milliseconds

    def __init__(self) -> None:
        self.looking = FairLimit(1)
        self._at: OrderedDict[str, float] = OrderedDict()

    def note(self, task_id: str) -> None:
        now = time.monotonic()
        self._at[task_id] = now
        self._at.move_to_end(task_id)
        while self._at and next(iter(self._at.values())) < now - self._LATELY:
            self._at.popitem(last=False)

    def drop(self, task_id: str) -> None:
        self._at.pop(task_id, None)

    @property
    def interval_ms(self) -> int:
        return max(self._SHORTEST, self._EACH * len(self._at))


def _message(state: Mapping[str, Any]) -> str:
    """Returns how a question that waits stands, with the link to it."""
    who = f"claimed by {state['claimed_by']}." if state["claimed_by"] else "waiting for a person."
    escalated = " Escalated: the person on call was paged." if state["escalated"] else ""
    needed, count = state["approvals_needed"] or 1, len(state["approved_by"])
    approved = f" {count} of {needed} approvals." if needed > 1 else ""
    link = f" {state['link']}" if state.get("link") else ""
    return f"Asked in Slack; {who}{approved}{escalated}{link}"


def _dumped(result: CallToolResult) -> dict[str, Any]:
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


def _id_in(arguments: dict[str, Any]) -> str:
    """Returns the id in a call's arguments. A task's id counts as its question's: models may be told no other.

    Raises:
        BadField: it is missing, or there are other arguments.
        BadInput: it is no clarification's id.
    """
    if others := sorted(set(arguments) - {"id"}):
        raise BadField(others[0][:64], f"`{others[0][:64]}` is not an argument of this tool. Remove it.")
    given = arguments.get("id")
    if not isinstance(given, str):
        raise BadField(
            "id",
            "`id` is required: pass the id returned by ask_human or ask_approval, such as CLR-100001-001.",
        )
    name = given.partition(".")[0]
    parse_id(name)
    return name


def _body_of(error: Exception) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(bytes(answer_to(error).body))
    return body
