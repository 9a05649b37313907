"""Finds the channels that the bot needs but cannot post in, and tells people once, where they can still be reached.

If a channel was archived or deleted, or the bot was removed from it, the fallback channel says so. If that is lost, too, the people on
call get a direct message. Once the channel can be used again, the message says so. What people still need to see of a lost
channel is shown again in the fallback channel at once.

Slack's events say when to look; what is told follows from what Slack answers then. So a start finds what happened meanwhile, and
an event that comes late or twice changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.ask.inbox import counter, set_counter
from bot.errors import SlackRefusedError, SlackUnreachableError, StorageUnavailable
from bot.settings.load import Place as Key
from bot.settings.load import dotted
from bot.settings.model import Settings, parse_target
from bot.show.delivery import Delivery, word
from bot.show.messenger import Messenger
from bot.slackapi import PLACE, Place, ask
from bot.storage.store import Store
from bot.views import inert
from core.clock import Clock, backoff
from core.errors import ClarifyError

_log = structlog.get_logger("clarify.channels")
_RETRY, _LONGEST_RETRY = 1.0, 60.0  # seconds
_WHY = {
    "is_archived": ("was archived", "Unarchive it"),
    "not_in_channel": ("doesn't have the bot as a member", "Type `/invite @clarify` in it"),
}
_GONE = (
    "was deleted, or is private and doesn't have the bot as a member",
    "If it is still there, type `/invite @clarify` in it",
)


def needed_channels(settings: Settings) -> dict[str, list[str]]:
    """Returns the channels that the configuration names, each with its keys."""
    found: dict[str, list[str]] = {}
    for key, channel in _named(settings):
        if channel is not None and channel.startswith(("C", "G")):
            found.setdefault(channel, []).append(dotted(key))
    return found


def _named(settings: Settings) -> Iterator[tuple[Key, str | None]]:
    yield ("slack", "fallback_channel"), settings.slack.fallback_channel
    for index, route in enumerate(settings.routes):
        yield ("routes", index, "channel"), route.channel
    for role, responder in settings.responders.items():
        yield ("responders", role, "channel"), responder.channel
    for index, policy in enumerate(settings.on_call):
        for step in policy.steps:
            for kind, name in map(parse_target, step.notify):
                yield ("on_call", index, "steps"), name if kind == "channel" else None
    yield from settings.channels_of_integrations
    if settings.trust.checkpoint is not None:
        yield ("trust", "checkpoint", "channel"), settings.trust.checkpoint.channel


@dataclass(kw_only=True, eq=False, repr=False)
class Channels:
    """Looks at channels when asked to: `run` until cancelled. Every bot looks, for /readyz; only the one that leads tells people.

    on_call: returns the users on call for the default route.
    lost: the channels that the bot cannot use, each with Slack's code for why.
    """

    settings: Settings
    web: AsyncWebClient
    messenger: Messenger
    delivery: Delivery
    on_call: Callable[[], Awaitable[Collection[str]]]
    store: Store
    clock: Clock

    def __post_init__(self) -> None:
        self.lost: dict[str, str] = {}
        self._needed = needed_channels(self.settings)
        self._due = set(self._needed)
        self._awake = asyncio.Event()
        self._awake.set()
        self._tells = False

    def look_at(self, channel: str) -> None:
        """Have a channel looked at, if the bot needs it."""
        if channel in self._needed:
            self._due.add(channel)
            self._awake.set()

    def look_at_all(self) -> None:
        self._due.update(self._needed)
        self._awake.set()

    def begin_to_tell(self) -> None:
        """Have all channels looked at, and people told of the lost ones, from now on."""
        self._tells = True
        self.look_at_all()

    def trouble(self) -> str | None:
        """Returns which channels are lost, and why; None: none is."""
        found = (
            f"{channel} ({', '.join(self._needed[channel])}): {code}" for channel, code in self.lost.items()
        )
        return "; ".join(found) or None

    async def run(self) -> None:
        failures = 0
        while True:
            await self._awake.wait()
            self._awake.clear()
            due, self._due = self._due, set()
            try:
                await self._look(due)
                failures = 0
            except (SlackUnreachableError, StorageUnavailable, ClarifyError) as error:
                _log.warning("looking at channels later", reason=str(error))
                self._due |= due
                self._awake.set()
                await self.clock.sleep(backoff(failures, first=_RETRY, longest=_LONGEST_RETRY))
                failures += 1

    async def _look(self, due: Collection[str]) -> None:
        for channel in due:
            self._note(channel, await self._refusal(channel))
        if not self._tells:
            return
        for channel in due:
            if (code := self.lost.get(channel)) is not None:
                await self._tell_lost(channel, code)
            else:
                await self._tell_back(channel)

    def _note(self, channel: str, code: str | None) -> None:
        before = self.lost.pop(channel, None)
        if code is not None:
            self.lost[channel] = code
        if code is not None and code != before:
            _log.error("cannot post in a channel", channel=channel, reason=code)
        elif code is None and before is not None:
            _log.info("a channel can be used again", channel=channel)

    async def _refusal(self, channel: str) -> str | None:
        """Returns Slack's code for why the bot cannot post in a channel, or None."""
        try:
            call = partial(self.web.conversations_info, channel=channel)
            found = (await ask("conversations.info", call))["channel"]
        except SlackRefusedError as error:
            if error.code not in PLACE:  # it says nothing about the channel
                _log.warning("Slack does not tell about a channel", channel=channel, reason=error.code)
                return self.lost.get(channel)
            return error.code
        if found.get("is_archived"):
            return "is_archived"
        return "not_in_channel" if found.get("is_member") is False else None

    async def _tell_lost(self, channel: str, code: str) -> None:
        since = await counter(self.store, _counter(channel))
        if since is None:
            since = int(self.clock.now().timestamp() * 1000)
            await set_counter(self.store, _counter(channel), since)
        why = _WHY.get(code, _GONE)
        keys = ", ".join(f"`{each}`" for each in self._needed[channel])
        elsewhere = None if (fallback := self.settings.slack.fallback_channel) in self.lost else fallback
        said = f"*{inert.channel(channel)} {why[0]}, so the bot cannot post there.*"
        if elsewhere is not None:
            said += " What is open there is shown in the fallback channel, and so is what comes next."
        said += f" {why[1]}, or name another channel in clarify.toml ({keys}) and restart the bot."
        for place in await self._told(channel, since) or await self._places(elsewhere):
            await self.delivery.notify(word(_key(channel, since, place), Place(place), said, wanted=code))
        await self.messenger.leave(channel, code, elsewhere)

    async def _tell_back(self, channel: str) -> None:
        since = await counter(self.store, _counter(channel))
        if since is None:
            return
        said = f"The bot can post in {inert.channel(channel)} again. What was moved stays where it is, with its threads."
        for place in await self._told(channel, since):
            await self.delivery.notify(word(_key(channel, since, place), Place(place), said, wanted="again"))
        await set_counter(self.store, _counter(channel), None)

    async def _told(self, channel: str, since: int) -> list[str]:
        """Returns where people were told that a channel is lost."""
        stored = await self.delivery.messages.beginning(f"word:{_key(channel, since, '')}")
        return [each.target for each in stored]

    async def _places(self, fallback: str | None) -> Collection[str]:
        """Returns where to tell people now: the fallback channel, else the people on call, else any usable channel."""
        if fallback is not None:
            return [fallback]
        return await self.on_call() or [each for each in self._needed if each not in self.lost][:1]


def _counter(channel: str) -> str:
    """The counter that holds since when a channel is lost, in milliseconds since 1970."""
    return f"channel lost: {channel}"


def _key(channel: str, since: int, place: str) -> str:
    return f"channel:{channel}:{since}:{place}"
