"""Holds the calls of a guard: asks people about each, and lets an accepted one be sent once.

A call's row goes from held to accepted, sent, and done or doubt; or it becomes ended, which means that it was never sent. A client
marks a call as sent before it forwards it, under a random name of its own. Only that client may send it, so nothing is sent twice.
If a call was sent and its result is lost, the call is in doubt. The question and its row are stored in one transaction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import structlog

from bot.api import (
    Asked,
    Host,
    RecordChange,
    Request,
    Response,
    Route,
    RouteRefused,
    StorageUnavailable,
    Tx,
    strict_json,
)
from bot.integrations.guard.rules import PLAIN, Judged, Tool, difference, judge, shown
from bot.integrations.guard.settings import GuardSettings
from core.clarification import Clarification
from core.clock import iso
from core.errors import BadInput, ClarifyError, NotFound
from core.questions import BadField, NewQuestion, answer_in, outcome_of, status_of
from core.receipts import canonical, digest
from core.transitions import AlreadyAnswered

_log = structlog.get_logger("clarify.guard")
_T = TypeVar("_T")
_LONGEST_WAIT = 25  # seconds of one request
_GONE = timedelta(seconds=60)  # after which a client that was not heard of is gone
_LOOK = 10.0  # seconds between looks for those
_MOST_TOOLS = 1000  # of one request
_MOST_KNOWN = 5000  # tools of a guard
_AT_ONCE = 200  # rows that one transaction adds
_NOT_MADE = "The call was not made."
_LEFT = "the agent no longer waits"
_DOUBT = (
    "In doubt: the call was sent, but its result was lost. Look whether it took effect before you repeat it."
)
_RANDOM = re.compile(r"[ -~]{16,64}")
_SHA256 = re.compile(r"[A-Za-z0-9_-]{43}")
_OPEN = frozenset({"held", "accepted"})


@dataclass(frozen=True, slots=True)
class _HoldRequest:
    """A request to hold a call, as read."""

    call: str
    tool: Tool
    arguments: dict[str, Any]
    agent: str | None
    session: str | None

    @classmethod
    def read(cls, body: bytes) -> _HoldRequest:
        given = _object(body)
        arguments, call = given.get("arguments", {}), given.get("call")
        agent, session = given.get("agent"), given.get("session")
        if not isinstance(arguments, dict):
            raise BadInput("`arguments` must be an object.")
        if not isinstance(call, str) or not _RANDOM.fullmatch(call):
            raise BadInput("`call` must be a random name of 16 to 64 characters of ASCII.")
        if not all(each is None or isinstance(each, str) for each in (agent, session)):
            raise BadInput("`agent` and `session` must be strings.")
        return cls(call, Tool.read(given.get("tool")), arguments, agent, session)


@dataclass(eq=False)
class Calls:
    """The guards' routes, and the consumer of the feed that follows what people decide."""

    host: Host
    guards: Mapping[str, GuardSettings]
    name: str = "guard"
    gather: float = 0.0

    @classmethod
    def of(cls, host: Host, tables: Sequence[GuardSettings]) -> Calls:
        return cls(host, {each.name: each for each in tables})

    # What clients of the bot do

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/doubts", self._doubts),
            Route("GET", "/{guard}", self._rules),
            Route("POST", "/{guard}/tools", self._tools),
            Route("POST", "/{guard}/calls", self._hold),
            Route("GET", "/{guard}/calls/{call}", self._look),
            Route("DELETE", "/{guard}/calls/{call}", self._cancel),
            Route("POST", "/{guard}/calls/{call}/send", self._send),
            Route("POST", "/{guard}/calls/{call}/done", self._done),
        ]

    async def _doubts(self, request: Request) -> Response:
        """Lists the caller's calls that are in doubt, the newest first."""
        rows = await self.host.store.read(
            "select clarification, guard, tool, asked_at from guard_calls where state = 'doubt' and producer = :producer"
            " order by asked_at desc limit 100",
            producer=request.speaker.producer,
        )
        found = [
            {
                "id": row["clarification"],
                "guard": row["guard"],
                "tool": row["tool"],
                "asked_at": iso(datetime.fromtimestamp(row["asked_at"], UTC)),
            }
            for row in rows
        ]
        return Response(200, {"doubts": found})

    async def _rules(self, request: Request) -> Response:
        return Response(200, self._guard(request).model_dump(mode="json"))

    async def _tools(self, request: Request) -> Response:
        """Says of each tool what becomes of its calls: with "ask", of some of them at least."""
        guard, tools = self._guard(request), await self._read(request, _tools_in)
        known = await self._seen(guard, tools)
        judged = {
            each.name: judge(guard, each, None, is_changed=known.get(each.name) != each.fingerprint)
            for each in tools
        }
        said = {name: {"verdict": each.verdict, "rule": each.rule} for name, each in judged.items()}
        return Response(200, {"tools": said, "wait": guard.wait.total_seconds()})

    async def _seen(self, guard: GuardSettings, tools: Sequence[Tool]) -> dict[str, str]:
        """Returns the fingerprints of tools as a person last saw them. Those that are new count as seen, while there is room for
        them; the others are not in it.
        """
        known = await self._known(guard)
        new = [each for each in tools if each.name not in known][: max(0, _MOST_KNOWN - len(known))]
        if not new:
            return known
        for start in range(0, len(new), _AT_ONCE):
            rows = [_pinned(guard, each) for each in new[start : start + _AT_ONCE]]
            await self.host.store.write(partial(_pin, rows))
        return await self._known(guard)

    async def _known(self, guard: GuardSettings) -> dict[str, str]:
        rows = await self.host.store.read(
            "select tool, fingerprint from guard_tools where guard = :guard", guard=guard.name
        )
        return {row["tool"]: row["fingerprint"] for row in rows}

    async def _hold(self, request: Request) -> Response:
        guard, held = self._guard(request), await self._read(request, _HoldRequest.read)
        known = await self._seen(guard, [held.tool])
        is_changed = known.get(held.tool.name) != held.tool.fingerprint
        judged = judge(guard, held.tool, held.arguments, is_changed=is_changed)
        if judged.verdict == "deny":
            return Response(200, {"status": "denied", "reason": f"Not allowed by the rule {judged.rule}."})
        if judged.verdict == "allow":
            return Response(200, {"status": "allowed"})
        if await self._tell_doubt(guard, request.speaker.producer, held):
            return Response(
                200, {"status": "doubt", "reason": f"An earlier call of {held.tool.name}: {_DOUBT}"}
            )
        record = await self._asked(guard, held, judged, request, is_changed=is_changed)
        return Response(201, await self._state(record))

    async def _tell_doubt(self, guard: GuardSettings, producer: str, held: _HoldRequest) -> bool:
        """Whether an earlier call is in doubt, and its agent was not told yet, or only in response to this request."""
        store = self.host.store
        about = {"guard": guard.name, "producer": producer, "tool": held.tool.name, "call": held.call}
        found = await store.read(
            "select clarification from guard_calls where state = 'doubt' and guard = :guard and producer = :producer"
            " and tool = :tool and (told is null or told = :call)",
            **about,
        )
        for row in found:
            await store.run(
                "update guard_calls set told = :call where clarification = :id",
                id=row["clarification"],
                call=held.call,
            )
        return bool(found)

    async def _asked(
        self, guard: GuardSettings, held: _HoldRequest, judged: Judged, request: Request, *, is_changed: bool
    ) -> Clarification:
        tool, speaker = held.tool, request.speaker
        name = (
            tool.name if PLAIN.fullmatch(tool.name) else json.dumps(tool.name)
        )  # look-alikes by their codes
        context = f"The server describes {name}:\n{tool.definition['description'] or '(no description)'}"
        row = await self.host.store.read_one(
            "select definition from guard_tools where guard = :guard and tool = :tool",
            guard=guard.name,
            tool=tool.name,
        )
        if is_changed and row is not None:
            changes = difference(
                row["definition"], tool
            )  # first: a description could imitate what follows it
            context = f"The tool changed since a person last saw it:\n{changes}\n\n{context}"
        agent = held.agent if held.agent and speaker.may_be(held.agent) else None
        fields = {
            "action": f"Call {name} on {guard.name}",
            "context": context,
            "risk": judged.risk,
            "arguments": held.arguments,
            "agent": agent,
            "session": held.session,
            "timeout": guard.timeout.total_seconds(),
        }
        now = self.host.clock.now().timestamp()

        def store(tx: Tx, record: Clarification) -> None:
            tx.run(
                "insert into guard_calls (clarification, guard, producer, tool, rule, fingerprint, definition, state, asked_at,"
                " seen_at) values (:id, :guard, :producer, :tool, :rule, :fingerprint, :definition, 'held', :now, :now)",
                id=record.id,
                guard=guard.name,
                producer=speaker.producer,
                tool=tool.name,
                rule=judged.rule,
                fingerprint=tool.fingerprint,
                definition=shown(tool),
                now=now,
            )

        about = {"server": guard.name, "tool": tool.name, "schema_sha256": digest(canonical(tool.schema))}
        asked = Asked(name=self.name, about=about, store=store)
        try:
            new = NewQuestion.model_validate(fields | {"arguments_schema": tool.schema, "editable": True})
        except BadField as error:
            if not (error.field or "").startswith("arguments_schema"):
                raise
            new = NewQuestion.model_validate(fields)  # what cannot be checked cannot be edited
        record, _ = await self.host.questions.ask(new, speaker, call=held.call, by=asked)
        return record

    async def _look(self, request: Request) -> Response:
        """Returns the state of a call; with `wait`, once it changes. A client that asks counts as present."""
        row = await self._row(request)
        await self.host.store.run(
            "update guard_calls set seen_at = :now where clarification = :id",
            now=self.host.clock.now().timestamp(),
            id=row["clarification"],
        )
        wait = request.query.get("wait", "0")
        if len(wait) > len(str(_LONGEST_WAIT)) or not wait.isdecimal() or int(wait) > _LONGEST_WAIT:
            raise BadInput(f"`wait` must be a number of seconds from 0 to {_LONGEST_WAIT}.")
        questions, about = self.host.questions, (row["clarification"], request.speaker.producer)
        record = await questions.find(*about)
        if int(wait) and record.is_open:
            record = await questions.until_settled(*about, int(wait), request.ends())
        return Response(200, await self._state(record))

    async def _cancel(self, request: Request) -> Response:
        row = await self._row(request)
        if not await self._end(row["clarification"], row["producer"], _LEFT):
            raise _not_now("The call was sent already.")
        return Response(200, {"id": row["clarification"], "status": "cancelled", "reason": _NOT_MADE})

    async def _end(self, clarification: str, producer: str, why: str) -> bool:
        """Ends a call that was not sent, and withdraws its question. Returns False if it was sent."""
        await self.host.store.run(
            "update guard_calls set state = 'ended', owed = 'left'"
            " where clarification = :id and state in ('held', 'accepted')",
            id=clarification,
        )
        row = await self.host.store.read_one(
            "select state, owed from guard_calls where clarification = :id", id=clarification
        )
        if row is not None and row["owed"] == "left":
            await self._left(clarification, producer, why)
        return row is None or row["state"] not in {"sent", "done", "doubt"}

    async def _left(self, clarification: str, producer: str, why: str) -> None:
        """Withdraws the question of a call that ended, or tells people if one accepted it before."""
        try:
            await self.host.questions.withdraw(clarification, producer, why)
        except AlreadyAnswered as error:
            if _accepted(error.record) is not None:
                words = f"Accepted, but {why}. {_NOT_MADE}"
                await self.host.teller.thread(error.record, "guard-left", "Not sent", [words])
        await self._no_longer_owed(clarification)

    async def _no_longer_owed(self, clarification: str) -> None:
        await self.host.store.run(
            "update guard_calls set owed = null where clarification = :id", id=clarification
        )

    async def _send(self, request: Request) -> Response:
        """Marks an accepted call as sent, and returns what to send. Only the first that asks for it may send it."""
        row, sender = await self._row(request), _sender(_object(request.body))
        record = await self.host.questions.find(row["clarification"], request.speaker.producer)
        if (arguments := _accepted(record)) is None:
            raise _not_now("No one accepted the call.")
        tool = Tool(row["tool"], json.loads(row["definition"]), row["fingerprint"])
        if (judged := judge(self._guard(request), tool, arguments)).verdict == "deny":
            raise _not_now(f"Not allowed by the rule {judged.rule}, which is newer than the call.")
        now = self.host.clock.now().timestamp()

        def work(tx: Tx) -> bool:
            found = tx.rows(
                "update guard_calls set state = 'sent', sender = :sender, seen_at = :now where clarification = :id"
                " and (state in ('held', 'accepted') or (state = 'sent' and sender = :sender)) returning *",
                id=record.id,
                sender=sender,
                now=now,
            )
            for each in found:  # a person saw it so
                tx.run(
                    "update guard_tools set fingerprint = :fingerprint, definition = :definition"
                    " where guard = :guard and tool = :tool",
                    guard=each["guard"],
                    tool=each["tool"],
                    definition=each["definition"],
                    fingerprint=each["fingerprint"],
                )
            return bool(found)

        if not await self.host.store.write(work):
            raise _not_now("The call was sent or cancelled already.")
        await self.host.questions.picked_up(record)
        return Response(200, {"id": record.id, "status": "sent", "arguments": arguments})

    async def _done(self, request: Request) -> Response:
        """Notes what came of a call that was sent; without a result, it is in doubt."""
        row, given = await self._row(request), _object(request.body)
        sha256, is_error, sender = given.get("result_sha256"), given.get("is_error"), _sender(given)
        record = await self.host.questions.find(row["clarification"], request.speaker.producer)
        if sha256 is None:
            await self._doubt(record, sender)
        elif isinstance(sha256, str) and _SHA256.fullmatch(sha256):

            def work(tx: Tx) -> None:
                if tx.run(
                    "update guard_calls set state = 'done', owed = null where clarification = :id"
                    " and state in ('sent', 'doubt') and sender = :sender",
                    id=record.id,
                    sender=sender,
                ):
                    self.host.executed(tx, record, sha256, is_error=bool(is_error))

            await self.host.store.write(work)
            self.host.questions.wake_feed()
        else:
            raise BadInput("`result_sha256` must be the base64url SHA-256 of the result.")
        return Response(200, await self._state(record))

    async def _doubt(self, record: Clarification, sender: str) -> None:
        if await self.host.store.run(
            "update guard_calls set state = 'doubt', owed = 'doubt'"
            " where clarification = :id and state = 'sent' and sender = :sender",
            id=record.id,
            sender=sender,
        ):
            await self._doubted(record)

    async def _doubted(self, record: Clarification) -> None:
        await self.host.teller.thread(record, "guard-doubt", "In doubt", [_DOUBT])
        await self._no_longer_owed(record.id)

    async def _state(self, record: Clarification) -> dict[str, Any]:
        """Returns how a call stands, with what that means for the agent as its `reason`."""
        row = await self.host.store.read_one(
            "select state from guard_calls where clarification = :id", id=record.id
        )
        state, outcome = ("ended" if row is None else row["state"]), outcome_of(record)
        said: dict[str, Any] = {"id": record.id, "status": state}
        if state == "doubt":
            return said | {"reason": _DOUBT}
        if state not in _OPEN and state != "ended":
            return said
        if outcome.status == "waiting":
            return said | (
                {"status": "held"} if state == "held" else {"status": "cancelled", "reason": _NOT_MADE}
            )
        if (arguments := _accepted(record)) is not None:
            if state == "ended":
                return said | {"status": "cancelled", "reason": _NOT_MADE}
            return said | {"status": "accepted", "arguments": arguments}
        await self.host.questions.picked_up(record)
        return said | {"status": "refused", "reason": f"{_why(record)} {_NOT_MADE}"}

    async def _read(self, request: Request, reader: Callable[[bytes], _T]) -> _T:
        """Reads the body, a large one beside the event loop."""
        producer, body = request.speaker.producer, request.body
        return await self.host.questions.reading.run(producer, partial(reader, body), len(body))

    def _guard(self, request: Request) -> GuardSettings:
        guard = self.guards.get(request.path["guard"])
        if guard is None or request.speaker.producer not in guard.producers:
            why = "There is no such guard for you. Name it, with you in its `producers`, in a [[guard]] table of the bot's file."
            raise RouteRefused(404, "NO_GUARD", why)
        return guard

    async def _row(self, request: Request) -> Any:
        guard = self._guard(request)
        row = await self.host.store.read_one(
            "select * from guard_calls where clarification = :id and guard = :guard and producer = :producer",
            id=request.path["call"],
            guard=guard.name,
            producer=request.speaker.producer,
        )
        if row is None:
            raise NotFound(request.path["call"][:40])
        return row

    # What follows the feed

    def wants(self, change: RecordChange) -> bool:
        return any(word.startswith(("answered/", "abandoned/")) for word in change.what.split())

    def owes(self, change: RecordChange, record: Clarification, tx: Tx) -> Callable[[], None] | None:  # noqa: ARG002
        accepted = _accepted(record)
        if record.is_open:
            return None
        outcome = "rejected" if outcome_of(record).status == "answered" else None
        if accepted is not None:
            outcome = "edited" if record.consent.edits else "accepted"
        now = self.host.clock.now().timestamp()
        tx.run(
            "update guard_calls set decided_at = :now, outcome = :outcome where clarification = :id and decided_at is null",
            id=record.id,
            now=now,
            outcome=outcome,
        )
        tx.run(
            "update guard_calls set state = :state where clarification = :id and state = 'held'",
            id=record.id,
            state="ended" if accepted is None else "accepted",
        )
        return None

    async def load(self) -> None:
        """Has nothing to load."""

    async def run(self) -> None:
        """Ends calls whose client is gone, until cancelled: those that were not sent are withdrawn, the others are in doubt."""
        began = self.host.clock.now()
        while True:
            await self.host.clock.sleep(_LOOK)
            now = self.host.clock.now()
            try:
                await self.settle_owed()
                if now - began >= _GONE:  # clients could not be heard before
                    await self.end_lost(now)
            except StorageUnavailable as error:
                _log.warning("looking for lost calls later", reason=str(error))

    async def settle_owed(self) -> None:
        """Does what was still owed about calls when a bot was killed, or when a record could not be used."""
        rows = await self.host.store.read(
            "select clarification, producer, owed from guard_calls where owed is not null"
        )
        for row in rows:
            with _one_of_many(row):
                if row["owed"] == "doubt":
                    await self._doubted(await self.host.ledger.find(row["clarification"]))
                else:
                    await self._left(row["clarification"], row["producer"], _LEFT)

    async def end_lost(self, now: datetime) -> None:
        """Ends the calls whose client was not heard of for a minute."""
        rows = await self.host.store.read(
            "select clarification, producer, state, sender from guard_calls"
            " where state in ('held', 'accepted', 'sent') and seen_at < :since",
            since=(now - _GONE).timestamp(),
        )
        for row in rows:
            with _one_of_many(row):
                if row["state"] == "sent":
                    record = await self.host.ledger.find(row["clarification"])
                    await self._doubt(record, row["sender"])
                else:
                    await self._end(row["clarification"], row["producer"], _LEFT)


@contextmanager
def _one_of_many(row: Any) -> Iterator[None]:
    """Inside, a record that cannot be used does not keep the others waiting."""
    try:
        yield
    except ClarifyError as error:
        _log.warning("looking at a call later", clarification=row["clarification"], reason=str(error))


def _not_now(why: str) -> RouteRefused:
    return RouteRefused(409, "NOT_NOW", why)


def _object(body: bytes) -> dict[str, Any]:
    try:
        given = strict_json(body)
    except (ValueError, RecursionError):
        raise BadInput("The body must be JSON that every program reads alike.") from None
    if not isinstance(given, dict):
        raise BadInput("The body must be a JSON object.")
    return given


def _sender(given: Mapping[str, Any]) -> str:
    sender = given.get("sender")
    if not isinstance(sender, str) or not _RANDOM.fullmatch(sender):
        raise BadInput("`sender` must be a random name of 16 to 64 characters of ASCII.")
    return sender


def _accepted(record: Clarification) -> dict[str, Any] | None:
    """Returns the arguments with which a call was accepted; None: it was not."""
    answer, _ = answer_in(record.current)
    if status_of(record) != "answered" or not isinstance(answer, dict) or answer["decision"] != "accept":
        return None
    return dict(answer["arguments"] or {})


def _why(record: Clarification) -> str:
    """Returns why a call whose question ended is not made."""
    outcome = outcome_of(record)
    comment = f": {outcome.comment.rstrip('.')}." if outcome.comment else "."
    match outcome.status:
        case "answered":
            return f"Rejected by {outcome.by}{comment}"
        case "expired":
            return "No one decided in time."
        case "withdrawn":
            return "The question was withdrawn."
    return f"Closed by {outcome.by} without a decision{comment}"


def _tools_in(body: bytes) -> list[Tool]:
    """Returns the tools that can be read. Calls of the others are refused."""
    given = _object(body).get("tools")
    if not isinstance(given, list) or len(given) > _MOST_TOOLS:
        raise BadInput(f"`tools` must be a list of at most {_MOST_TOOLS:,}.")
    return [tool for each in given if (tool := _readable(each)) is not None]


def _readable(given: object) -> Tool | None:
    with suppress(BadInput):
        return Tool.read(given)
    return None


def _pin(rows: Sequence[dict[str, str]], tx: Tx) -> None:
    tx.many(
        "insert into guard_tools (guard, tool, fingerprint, definition)"
        " values (:guard, :tool, :fingerprint, :definition) on conflict (guard, tool) do nothing",
        rows,
    )


def _pinned(guard: GuardSettings, tool: Tool) -> dict[str, str]:
    return {
        "guard": guard.name,
        "tool": tool.name,
        "fingerprint": tool.fingerprint,
        "definition": shown(tool),
    }
