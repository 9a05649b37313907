"""Which clarifications a page is about, by where in Slack it stands: a reply in its thread is an answer."""

from __future__ import annotations

from bot.delivery.inflight import InFlight
from bot.delivery.store import Store
from bot.ports import PagePlace


class PagePlaces:
    def __init__(self, store: Store, in_flight: InFlight) -> None:
        self._store = store
        self._in_flight = in_flight

    async def clarifications_at(self, channel: str, ts: str) -> tuple[str, ...]:
        """The clarifications of the page whose message is at `ts`; none where it is no page.

        Raises:
            StorageUnavailable: it is not known now.
        """
        while True:
            # A reply can be here before it is known that the page arrived.
            change = self._in_flight.next_change() if self._in_flight.any_in(channel) else None
            found = await self._at(channel, ts)
            if found or change is None:
                return found
            await change.wait()

    async def open_pages(self) -> list[PagePlace]:
        """The pages about questions that somebody still has to take, which begin threads of their own.

        Raises:
            StorageUnavailable: they are not known now.
        """
        rows = await self._store.read(
            """select distinct m.channel, m.ts, i.clarification from incidents i
               join page_items p on p.incident = i.id
               join page_sendings s on s.page = p.page join messages m on m.key = s.message
               where i.closed_at is null and i.clarification is not null
                 and m.ts is not null and m.thread_ts is null"""
        )
        return [PagePlace(row["channel"], row["ts"], row["clarification"]) for row in rows]

    async def _at(self, channel: str, ts: str) -> tuple[str, ...]:
        rows = await self._store.read(
            """select distinct i.clarification from messages m
               join page_sendings s on s.message = m.key
               join page_items p on p.page = s.page
               join incidents i on i.id = p.incident
               where m.channel = ? and m.ts = ? and i.clarification is not null order by i.id""",
            channel,
            ts,
        )
        return tuple(row["clarification"] for row in rows)
