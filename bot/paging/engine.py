"""The pages as the rest of the bot sees them: raise what has to be taken, tell what ledgers say, press a control.

An incident is one thing that somebody has to take; see `bot.paging.model`. The policy is `core.escalation`'s, the work is
`bot.paging.loop`'s, people's controls are `bot.paging.controls`'.
"""

from __future__ import annotations

from collections.abc import Callable

from bot.audience import Audiences
from bot.delivery.messages import Messages, Row
from bot.delivery.pages import Drawn, Page
from bot.delivery.store import Store
from bot.paging.admission import Admission
from bot.paging.codec import PagePress
from bot.paging.controls import Controls
from bot.paging.loop import Loop
from bot.paging.mirror import Mirror
from bot.paging.model import FreshIncident, Incident, kind_of
from bot.paging.policies import Policies
from bot.paging.ports import Crew, Gate, Holding, Known, Outlet, Outside, Permalinks, Records, Targets
from bot.paging.sheets import Sheets
from bot.paging.words import Announcer
from bot.people import Person, Reaction
from bot.ports import Place
from bot.render import Renderer
from bot.settings.model import RouteSettings, Settings
from core.clock import Clock
from core.escalation import Closed
from core.index import Summary


class _Outlet:
    """The delivery, which is built with the pages and after them."""

    delivery: Outlet | None = None

    def send(self, target: str, key: str, *, post: bool = True) -> None:
        self._there.send(target, key, post=post)

    async def say(
        self, place: Place, key: str, text: str, blocks: list[dict[str, object]] | None = None
    ) -> None:
        await self._there.say(place, key, text, blocks)

    @property
    def _there(self) -> Outlet:
        if self.delivery is None:
            raise RuntimeError("Paging.use(delivery) comes before anything is paged")
        return self.delivery


class Paging:
    """Built by main, then `use(delivery)`; `restore` after the index was filled, then `run`; `admit_by(gate)` once
    Slack told who we are. Implements `bot.delivery.pages.Paging`.

    `links` is `bot.permalinks`; `crew` and `targets` are the roster's; `told` is called when a page was sent or
    something happened to what it is about.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        store: Store,
        messages: Messages,
        records: Records,
        index: Known,
        renderer: Renderer,
        targets: Targets,
        outside: Outside,
        links: Permalinks,
        router: Holding,
        crew: Crew,
        clock: Clock,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        policies, outlet = Policies(settings), _Outlet()
        self._route_for, self._outlet = settings.route_for, outlet
        self._gate: Gate | None = None
        self._clock = clock
        self.loop = Loop(
            store=store,
            policies=policies,
            targets=targets,
            outside=outside,
            outlet=outlet,
            words=self._words,
            clock=clock,
            told=told,
        )
        self.sheets = Sheets(
            incidents=self.loop.incidents,
            shown=self.loop.shown,
            messages=messages,
            records=records,
            policies=policies,
            renderer=renderer,
            links=links,
            clock=clock,
        )
        self._mirror = Mirror(self.loop, records, index, self._policy_of, clock)
        self.loop.before = self._mirror.work
        self._controls = Controls(
            loop=self.loop,
            router=router,
            records=records,
            admission=Admission(settings, self.loop.board, crew, lambda: self._gate, index),
            modals=renderer,
            hand_modal=renderer,
            announcer=Announcer(index, messages, outlet, Audiences(settings)),
            clock=clock,
        )

    def use(self, delivery: Outlet) -> None:
        """What posts messages; before anything else."""
        self._outlet.delivery = delivery

    def admit_by(self, gate: Gate) -> None:
        """Who decides about people; before that nobody can change anything of a page."""
        self._gate = gate

    async def raise_incident(self, fresh: FreshIncident) -> None:
        """Somebody has to take this. Once per key; durable when this returns.

        Raises:
            StorageUnavailable: it was not kept.
        """
        await self.loop.begin(fresh)

    async def page(self, page: Page, route: RouteSettings | None, link: str | None = None) -> None:
        """See `bot.delivery.pages.Paging`."""
        record = page.record
        await self.raise_incident(
            FreshIncident(
                key=page.key,
                kind=kind_of(page.key),
                title=page.title,
                reason=page.reason,
                body=page.body,
                policy=route.on_call if route is not None else None,
                agent_id=page.agent_id
                or (record.asked.agent_id or record.from_ if record is not None else None),
                clarification=record.id if record is not None else None,
                link=link,
                expires_at=record.asked.expires_at if record is not None and record.is_open else None,
            )
        )

    def note(self, summary: Summary) -> None:
        """A clarification was written: escalated ones are paged, those that are not any more are let go."""
        self._mirror.note(summary)

    async def over(self, beginning: str) -> None:
        """What was paged under keys that begin so is over by itself: nobody has to take it any more.

        Raises:
            StorageUnavailable: it was not kept.
        """
        now = self._clock.now()
        mine = [each.incident for each in self.loop.board if each.incident.key.startswith(beginning)]
        if mine:
            await self.loop.happened([(each.id, Closed(now)) for each in mine])

    async def ended(self, key: str, state: str, note: str | None = None) -> None:
        """See `bot.delivery.pages.Paging`."""
        await self.loop.ended(key, state, note)

    def landed(self, key: str) -> None:
        """See `bot.delivery.pages.Paging`."""
        about = key.partition(":")[2]
        self.loop.touch(
            each.incident.id for each in self.loop.board if each.incident.key.partition(":")[2] == about
        )

    def stumbled(self, key: str) -> None:
        """See `bot.delivery.pages.Paging`."""
        self.loop.sender.hurry(key)
        self.loop.wake()

    async def show_again(self, clarification: str) -> None:
        """See `bot.delivery.pages.Paging`."""
        self.loop.touch(each.incident.id for each in self.loop.board.about(clarification))

    async def draw(self, row: Row) -> Drawn | None:
        """What a page's message should be now."""
        return await self.sheets.draw(row)

    def of(self, clarification: str) -> Incident | None:
        """The newest open incident about a clarification."""
        about = self.loop.board.about(clarification)
        return about[-1].incident if about else None

    def paged(self, clarification: str) -> frozenset[str]:
        """The Slack users to whom the open incidents about a clarification were sent."""
        return frozenset(user for each in self.loop.board.about(clarification) for user in each.paged)

    async def press(self, press: PagePress, person: Person, place: Place) -> Reaction:
        """A control of a page was pressed; see `bot.paging.controls`."""
        return await self._controls.press(press, person, place)

    async def submit_hand(self, press: PagePress, user: str, person: Person, place: Place) -> Reaction:
        """Hand to… was sent with `user` chosen (empty: nobody)."""
        return await self._controls.submit_hand(press, user, person, place)

    async def restore(self) -> None:
        """On start: take up what is open and owed.

        Raises:
            StorageUnavailable: it could not be read.
        """
        await self.loop.restore()
        self._mirror.restore()

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            await self.loop.run()
        finally:
            await self._controls.close()

    def _policy_of(self, agent: str) -> str | None:
        return self._route_for(agent).on_call

    async def _words(self, page: int) -> tuple[str, str] | None:
        return await self.sheets.words(page)
