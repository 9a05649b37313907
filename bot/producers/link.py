"""One producer, whole: its client, its subscriber, its intake, its replies."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import httpx
import structlog

from bot.errors import StorageError
from bot.http import NETWORK, json_body, open_client, post, words
from bot.ports import Inbox, Refused, Reply, ReplyOutcome, TellTrouble, TryAgain
from bot.producers import dialects
from bot.producers.backlog import Backlog
from bot.producers.config import ProducerConfig
from bot.producers.intake import Counters, Intake
from bot.producers.offset import ClockOffset
from bot.producers.push import Push
from bot.producers.pushing import PushedReplies
from bot.producers.replies import send_reply
from bot.producers.subscriber import Subscriber
from core.clock import Clock
from core.workflow import Speaker

_DRAIN = 5.0
_CLOSE = 2.0
_REMEMBERED = 1000
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Around:
    """What all producers share. `version` is ours; `on_connected(producer)` is told of every connection.

    `pushed`: where replies to those that push are kept; without it these get none, and nothing is taken from them.
    """

    inbox: Inbox
    clock: Clock
    rng: random.Random
    tell_trouble: TellTrouble
    on_connected: Callable[[str], None]
    version: str
    pushed: PushedReplies | None = None


class Link:
    """Everything about one producer. One that pushes has no connection of ours."""

    def __init__(self, config: ProducerConfig, around: Around) -> None:
        self.offset = ClockOffset()
        self._config = config
        self._clock = around.clock
        self._inbox = around.inbox
        self._counters = Counters()
        self._backlog = Backlog()
        self._tasks: list[asyncio.Task[None]] = []
        self._gone_for: dict[str, str] = {}
        self._client: httpx.AsyncClient | None = None
        self._subscriber: Subscriber | None = None
        self._intake = Intake(
            Speaker(config.name, config.agents),
            self._backlog,
            inbox=around.inbox,
            clock=around.clock,
            rng=around.rng,
            tell_trouble=around.tell_trouble,
            offset=self.offset,
            counters=self._counters,
            waits=not _pushes(config),
        )
        self.push = self._pushing(around.pushed, around) if around.pushed and _pushes(config) else None
        if config.url is not None and not _pushes(config):
            self._client = open_client(config.token)
            self._subscriber = self._subscribe(config.url, self._client, around)

    def _pushing(self, pushed: PushedReplies, around: Around) -> Push:
        return Push(
            self._config.name,
            self._intake,
            kept=pushed,
            clock=around.clock,
            rng=around.rng,
            on_connected=around.on_connected,
        )

    def _subscribe(self, url: str, client: httpx.AsyncClient, around: Around) -> Subscriber:
        return Subscriber(
            self._config,
            url,
            client=client,
            backlog=self._backlog,
            inbox=around.inbox,
            clock=around.clock,
            rng=around.rng,
            counters=self._counters,
            on_connected=around.on_connected,
            version=around.version,
        )

    def start(self) -> list[asyncio.Task[None]]:
        """The background tasks, started: the reader first, then what stores."""
        if self._subscriber is None:
            return []
        name = self._config.name
        self._tasks = [
            asyncio.create_task(self._subscriber.run(), name=f"producer {name}: read"),
            asyncio.create_task(self._intake.run(), name=f"producer {name}: store"),
        ]
        return self._tasks

    async def first_contact(self) -> None:
        """Returns once it cannot be reached, or what it had for us is stored."""
        if self._subscriber is not None:
            await self._subscriber.caught_up()

    async def stop(self, *, close: bool) -> None:
        """Stops reading, stores what was read, closes the subscription if told so. Again: does nothing."""
        if self._client is None:
            return
        for task in self._tasks[:1]:
            await _cancelled(task)
        if self._tasks and not self._tasks[1].done():
            try:
                async with asyncio.timeout(_DRAIN):
                    await self._backlog.drained()
            except TimeoutError:
                log.warning(
                    "stopped with events unstored", producer=self._config.name, count=len(self._backlog)
                )
        for task in self._tasks[1:]:
            await _cancelled(task)
        if close:
            await self._close(self._client)
        client, self._client = self._client, None
        await client.aclose()

    async def _close(self, client: httpx.AsyncClient) -> None:
        subscription = self._subscriber.subscription if self._subscriber else None
        if subscription is None or subscription.dialect != "standard":
            return
        try:
            async with asyncio.timeout(_CLOSE):
                await post(
                    client, subscription.replies, json_body(dialects.subscription_close(subscription.id))
                )
            await self._inbox.keep_subscription(self._config.name, None)
        except NETWORK as error:
            log.info("subscription not closed", producer=self._config.name, reason=words(error))
        except StorageError as error:
            log.info("closed subscription not forgotten", producer=self._config.name, reason=str(error))

    async def send(self, reply: Reply) -> ReplyOutcome:
        """One try to hand over a reply, on the current subscription."""
        if self.push is not None:
            return await self.push.send(reply)
        subscriber = self._subscriber
        if subscriber is None or self._client is None or subscriber.subscription is None:
            refused = subscriber.last_error if subscriber and subscriber.unauthorized else None
            return TryAgain(refused or "not connected", may_have_arrived=False, blocked=refused is not None)
        subscription = subscriber.subscription
        outcome, gone = await send_reply(
            self._client,
            subscription,
            reply,
            connected=subscriber.connected,
            now=self._clock.now(),
        )
        if not gone:
            self._gone_for.pop(reply.reply_token, None)
            return outcome
        return self._gone(reply.reply_token, subscription.id, subscriber, outcome)

    def _gone(
        self, token: str, subscription_id: str, subscriber: Subscriber, outcome: ReplyOutcome
    ) -> ReplyOutcome:
        """A new subscription for the reply; but one that is not found on two of them is what is unknown."""
        if self._gone_for.setdefault(token, subscription_id) != subscription_id:
            del self._gone_for[token]
            return Refused("it does not know this question, on a new subscription neither")
        if len(self._gone_for) > _REMEMBERED:
            self._gone_for.pop(next(iter(self._gone_for)))
        if subscriber.subscription is not None and subscriber.subscription.id == subscription_id:
            subscriber.renew()
        return outcome

    def status(self) -> dict[str, Any]:
        subscriber, push = self._subscriber, self.push
        subscription = subscriber.subscription if subscriber else None
        configured = self._config.dialect if subscriber else "push"
        party = subscriber or push
        return {
            "connected": party is not None and party.connected,
            "dialect": subscription.dialect if subscription else configured,
            "since": party.since if party else None,
            "last_error": subscriber.last_error if subscriber else None,
            "last_heard": push.last_heard if push else None,
            "offset_seconds": self.offset.offset.total_seconds(),
            "backlog": len(self._backlog),
            **asdict(self._counters),
        }


def _pushes(config: ProducerConfig) -> bool:
    return config.url is None or config.dialect == "push"


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
