"""Which clarifications a page is about, by where in Slack it stands: a reply in its thread is an answer."""

from __future__ import annotations

from bot.delivery.store import Store
from bot.ports import PagePlace


class PagePlaces:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def clarifications_at(self, channel: str, ts: str) -> tuple[str, ...]:
        """The clarifications of the page whose message is at `ts`; none where it is no page.

        Raises:
            StorageUnavailable: it is not known now.
        """
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
