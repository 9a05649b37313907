"""Where a page goes: what a policy says (`notify`) and who is on call, into addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from bot.audience import Audiences
from bot.settings.model import RouteSettings, Settings
from core.index import Session, Summary

LAST_RESORT = "last resort"


@dataclass(frozen=True, slots=True)
class Address:
    """A channel or user id in Slack; or the name of the environment variable with an address for apprise.

    thread: the session (producer, id) in whose thread of the channel it is posted.
    mentions: users whom the post has to mention to reach them.
    """

    kind: Literal["slack", "apprise"]
    target: str
    thread: Session | None = None
    mentions: tuple[str, ...] = ()


class Crew(Protocol):
    """Never raises."""

    async def on_call(self, policy_name: str) -> tuple[str, ...]: ...
    async def members(self, group: str) -> tuple[str, ...]: ...
    async def active(self, users: Iterable[str]) -> tuple[str, ...]: ...


class About(Protocol):
    """What somebody is paged about."""

    @property
    def agent_id(self) -> str | None: ...
    @property
    def clarification(self) -> str | None: ...


class Targets:
    """`known(clarification)`: it as it is now; None: it is in no thread any more."""

    def __init__(self, settings: Settings, crew: Crew, known: Callable[[str], Summary | None]) -> None:
        self._settings = settings
        self._audiences = Audiences(settings)
        self._crew = crew
        self._known = known

    async def addresses(
        self, notify: str, policy: str | None, incident: About, holder: str | None
    ) -> tuple[Address, ...]:
        """The addresses behind one entry of a step's `notify`, or behind LAST_RESORT; empty: nobody is there.

        `holder`: who was handed it; pages go to them instead of the people on call.
        """
        kind, _, name = notify.partition(":")
        if kind == "apprise":
            return (Address("apprise", name),)
        if kind == "group":
            return _direct(await self._crew.members(name))
        people = await self._people(policy, holder)
        if kind == "dm":
            return _direct(people)
        if kind == "channel":
            return (Address("slack", name, None, people),)
        return (
            self._thread(incident, people)
            if kind == "thread"
            else self._last_resort(incident, people, holder)
        )

    async def _people(self, policy: str | None, holder: str | None) -> tuple[str, ...]:
        """The person who was deactivated since does not get it: the people on call do."""
        if holder is not None and (held := await self._crew.active((holder,))):
            return held
        return await self._crew.on_call(policy) if policy is not None else ()

    def _thread(self, incident: About, people: tuple[str, ...]) -> tuple[Address, ...]:
        route = self._route(incident)
        about = self._about(incident)
        session = None if about is None else self._audiences.thread(about)
        return () if route is None else (Address("slack", route.channel, session, people),)

    def _last_resort(
        self, incident: About, people: tuple[str, ...], holder: str | None
    ) -> tuple[Address, ...]:
        route = self._route(incident)
        place = self._settings.slack.fallback_channel or (route.channel if route is not None else None)
        held = _direct(people) if holder is not None else ()
        return (*held, *(() if place is None else (Address("slack", place, None, people),)))

    def _route(self, incident: About) -> RouteSettings | None:
        """Where the question is shown; without an agent (an unreadable ledger, the bot's own trouble) the default one."""
        about = self._about(incident)
        try:
            if about is not None:
                return self._audiences.route(about)
            return self._settings.route_for(incident.agent_id or "")
        except LookupError:
            return None

    def _about(self, incident: About) -> Summary | None:
        return None if incident.clarification is None else self._known(incident.clarification)


def _direct(users: Iterable[str]) -> tuple[Address, ...]:
    return tuple(Address("slack", user) for user in users)
