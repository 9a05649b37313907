"""What the parts of the workspace share: options, state, records of what happened, and who waits for it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from .faults import Faults
from .seed import SIGNING_SECRET
from .state import Json, State
from .traffic import Traffic

log = logging.getLogger(__name__)
T = TypeVar("T")

TAB: ContextVar[str] = ContextVar("tab", default="")
"""The browser tab that acts; "" for what tests and other processes do."""
COMPLAINTS: ContextVar[list[str] | None] = ContextVar("complaints", default=None)
"""Where the acting request collects what its person is told of; each request has a list of its own."""

EVENTS = frozenset(
    {
        "message",
        "app_mention",
        "member_joined_channel",
        "member_left_channel",
        "app_home_opened",
        "channel_archive",
        "channel_unarchive",
        "channel_deleted",
        "channel_id_changed",
        "channel_left",
        "group_archive",
        "group_unarchive",
        "group_deleted",
        "group_left",
        "user_change",
        "subteam_updated",
        "subteam_members_changed",
        "tokens_revoked",
        "app_uninstalled",
    }
)


class Way(NamedTuple):
    """A way to connect an agent: `command` is what the page offers to copy, `about` what it does."""

    title: str
    about: str
    command: str


@dataclass(frozen=True)
class Options:
    """How strict and how fast the workspace is; times in seconds. The defaults are Slack's.

    request_url: where events, interactions and commands go over HTTP, signed with `signing_secret`, instead of to
    Socket Mode.
    connect: the ways to connect an agent that the page offers.
    without_blocks: types of blocks that are refused, as in a workspace to which Slack has not rolled them out.
    """

    ack_timeout: float = 3.0
    retry_delays: tuple[float, ...] = (0.0, 60.0, 300.0)
    trigger_lifetime: float = 3.0
    response_lifetime: float = 1800.0
    response_uses: int = 5
    events: frozenset[str] = EVENTS
    clock: Callable[[], float] = time.time
    request_url: str | None = None
    signing_secret: str = SIGNING_SECRET
    connect: tuple[Way, ...] = ()
    without_blocks: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Call:
    """One Web API call as it came in. `args` lack the token; `outcome` is "ok" or the error's name."""

    method: str
    args: Json
    time: float
    outcome: str
    status: int
    fault: str | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Ack:
    """One envelope or request and how it fared; `seconds` is None where it was not acknowledged in time.

    `status` is HTTP's, where there is one.
    """

    envelope_id: str
    kind: str
    payload_type: str
    time: float
    attempt: int = 0
    seconds: float | None = None
    failure: str | None = None
    response: Any = None
    status: int | None = None

    @property
    def ok(self) -> bool:
        return self.failure is None


@dataclass(frozen=True)
class Shown:
    """What a person saw go wrong."""

    user: str
    text: str
    time: float
    reason: str


class Changes:
    """A condition that anybody can wait on, and a feed of the topics that changed.

    Topics: `channel:{id}`, `user:{id}` (ephemerals, errors), `modal:{user}`, `home:{user}`,
    `sidebar`, `record`.
    """

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()
        self._listening: set[asyncio.Queue[str | None]] = set()
        self.version = 0
        self.seen = 0  # as `version`, without what no page shows

    def notify(self, *topics: str) -> None:
        """Wake all that wait, and put the topics on every feed."""
        self.version += 1
        self.seen += any(topic != "record" for topic in topics)
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)
        for queue in self._listening:
            for topic in topics:
                queue.put_nowait(topic)

    def end(self) -> None:
        """Let those who listen go."""
        for queue in self._listening:
            queue.put_nowait(None)

    async def wait(self, predicate: Callable[[], T], timeout: float) -> T:
        """The predicate's first truthy value; it is asked again at every change.

        Raises:
            TimeoutError: it was not truthy within `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            while not (value := predicate()):
                future = asyncio.get_running_loop().create_future()
                self._waiting.add(future)
                await future
            return value

    @contextmanager
    def listen(self) -> Iterator[asyncio.Queue[str | None]]:
        """A feed of topics, for as long as the block lasts; None: there will be no more."""
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._listening.add(queue)
        try:
            yield queue
        finally:
            self._listening.discard(queue)


class Context:
    """Shared by every part; made once per workspace."""

    def __init__(self, options: Options, state: State) -> None:
        self.options = options
        self.state = state
        self.changes = Changes()
        self.traffic = Traffic(state, lambda: self.changes.notify("record"))
        self.faults = Faults()
        self.calls: list[Call] = []
        self.acks: list[Ack] = []
        self.shown: list[Shown] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def now(self) -> float:
        return self.options.clock()

    def record_call(self, call: Call) -> None:
        self.calls.append(call)
        self.traffic.called(call)  # tells that there is something new

    def record_ack(self, ack: Ack, payload: Json) -> None:
        self.acks.append(ack)
        self.traffic.delivered(ack, payload)

    def show_error(self, user: str, text: str, reason: str) -> None:
        """Tell the acting person that it did not work."""
        self.shown.append(Shown(user, text, self.now(), reason))
        if (complaints := COMPLAINTS.get()) is not None:
            complaints.append(text)
        self.changes.notify(f"user:{user}")

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run in the background until done or until the workspace closes; a failure is logged by name."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Cancel what runs in the background and wait until it is gone; end the feeds."""
        self.changes.end()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("local workspace: %s failed", task.get_name(), exc_info=error)
