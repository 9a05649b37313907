"""Draws a page in its current state, from the log of its incidents and the ledger."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import compress

import structlog

from bot.oncall.incidents import Incident, Incidents
from bot.oncall.outside import PagerText
from bot.oncall.pages import Page, Pages, sending_of
from bot.oncall.roster import Policies
from bot.show.desired import Drawn
from bot.show.messages import MessageRow, Messages, Permalinks
from bot.views.inert import is_user
from bot.views.notices import Handoff, handoff_card
from bot.views.page import LISTED, ItemState, PageContent, PageItem, outside_words, page_card, subject
from bot.views.render import RenderedMessage, Renderer
from core.clarification import Clarification
from core.errors import ClarifyError
from core.escalation import Began, Handed, Snoozed, Taken
from core.ledger import Ledger

_log = structlog.get_logger("clarify.paging")
_PAGED_WITHIN = timedelta(seconds=10)
_STATES: dict[str, ItemState] = {"paging": "live", "taken": "taken", "snoozed": "snoozed", "closed": "closed"}


@dataclass(kw_only=True, eq=False)
class PageView:
    """Draws pages and the cards of handoffs."""

    incidents: Incidents
    pages: Pages
    policies: Policies
    messages: Messages
    ledger: Ledger
    renderer: Renderer
    permalinks: Permalinks

    async def draw(self, row: MessageRow) -> Drawn | None:
        """The desired message of a page or of a handoff's card; None if there is no such page or handoff.

        Raises:
            StorageUnavailable
        """
        return await (self._draw_handoff(row) if row.kind == "handoff" else self._draw_page(row))

    async def _draw_handoff(self, row: MessageRow) -> Drawn | None:
        incident = await self.incidents.named(f"handoff:{row.key.partition(':')[2]}")
        if incident is None or row.body is None:
            return None
        # Read again after the incident: if that was paged meanwhile, the card says whom it mentions.
        sending = sending_of(await self.messages.get(row.key) or row)
        mentions = sending.destination.mentions if sending is not None else ()
        item = self._standing(incident)
        handoff = Handoff(**row.body["handoff"])
        return Drawn(
            self.renderer.message(handoff_card(handoff, item, mentions)),
            needed=item.state != "closed",
            final=item.state == "closed",
            waits=self._is_to_be_paged(incident),
        )

    def _is_to_be_paged(self, incident: Incident) -> bool:
        """Whether the pager is about to decide whom a new handoff's card mentions: an edit would notify no one."""
        age = self.policies.clock.now() - incident.began_at
        is_new = (
            all(isinstance(each, Began) for each in incident.history) and timedelta(0) <= age < _PAGED_WITHIN
        )
        return is_new and bool(self.policies.wants(incident).send)

    async def _draw_page(self, row: MessageRow) -> Drawn | None:
        sending = sending_of(row)
        if sending is None:
            return None
        covered = await self.pages.is_covered(row)
        mentions = sending.destination.mentions
        content = await self._content(sending.page, covered=covered, mentions=mentions, row=row)
        if content is None:
            return None
        needed = not covered and content.left > 0 and content.is_awaited
        final = covered or content.is_closed
        # Read again after the content: a click that closed it was stored before that.
        now = await self.messages.get(row.key) if content.is_closed and is_user(row.target) else None
        unread = now is not None and not now.seen
        # In a thread, since its full text can be large.
        message = await asyncio.to_thread(self._message, content)
        return Drawn(
            message,
            needed=needed,
            final=final,
            about=subject(content),
            gone=covered or (content.is_closed and unread),
            alone=await self._is_alone(content),
        )

    async def _is_alone(self, content: PageContent) -> bool:
        """Whether the channel shows the page's question nowhere else: its card stands in a thread only."""
        item = content.only
        if item is None:
            return True
        if item.record is None:
            incident = await self.incidents.get(item.incident)
            return incident is None or await self.messages.get(incident.notice_key) is None
        if self.policies.audiences.route(item.record).broadcast == "all":
            return False
        card = await self.messages.get(f"card:{item.record.id}:{item.record.round}")
        return card is None or card.thread_ts is not None

    async def outside_text(self, page: Page) -> PagerText | None:
        """A page's text for outside pagers; None if it is not needed any more.

        Raises:
            StorageUnavailable
        """
        content = await self._content(page)
        if content is None or not content.left or not content.is_awaited:
            return None
        return PagerText(*outside_words(content))

    async def _content(
        self,
        page: Page,
        *,
        covered: bool = False,
        mentions: tuple[str, ...] = (),
        row: MessageRow | None = None,
    ) -> PageContent | None:
        """The content of a page at the place of `row` (None: outside Slack); None if its incidents are gone."""
        incidents = await self.incidents.all(page.incidents)
        if not incidents:
            return None
        items = [self._standing(each) for each in incidents]
        if len(items) > 1 and any(each.state != "closed" for each in items):
            left = [each.state != "closed" for each in items]
            incidents, items = list(compress(incidents, left)), list(compress(items, left))
        awaited = any(each.state == "live" for each in items)
        listed = [
            await self._item(incident, item, row)
            for incident, item in list(zip(incidents, items, strict=True))[:LISTED]
        ]
        return PageContent(
            page=page.number,
            sent_at=page.at,
            note=page.note,
            items=tuple(listed),
            count=len(items),
            left=sum(each.state != "closed" for each in items),
            covered=covered,
            mentions=tuple(user for user in mentions if is_user(user)),
            is_awaited=awaited,
        )

    def _message(self, content: PageContent) -> RenderedMessage:
        try:
            return self.renderer.message(page_card(content))
        except Exception:  # noqa: BLE001 - a bare page is better than none
            _log.exception("cannot lay out a page", page=content.page)
            return self.renderer.message(page_card(content.bare()))

    async def item(self, incident: Incident) -> PageItem:
        """An open incident as a page lists it."""
        return await self._item(incident, self._standing(incident), None)

    def _standing(self, incident: Incident) -> PageItem:
        """The state of an incident, without its question and links."""
        history, want = incident.history, self.policies.wants(incident)
        state: ItemState = "closed" if not incident.is_open else _STATES[want.state]
        closing = (Taken,) if state == "closed" else (Taken, Handed)
        last = next((each for each in reversed(history) if isinstance(each, closing)), None)
        snooze = next((each for each in reversed(history) if isinstance(each, Snoozed)), None)
        who = want.holder or (last.user if state in {"taken", "closed"} and isinstance(last, Taken) else None)
        return PageItem(
            incident=incident.id,
            kind=incident.kind,
            title=incident.title,
            reason=incident.reason,
            body=incident.body,
            state=state,
            who=who,
            handed=isinstance(last, Handed) and last.user == want.holder,
            asleep_by=snooze.by if snooze is not None else None,
            until=snooze.until if snooze is not None else None,
            since=incident.began_at,
            expires_at=incident.expires_at,
            clarification=incident.clarification,
        )

    async def _item(self, incident: Incident, item: PageItem, page: MessageRow | None) -> PageItem:
        """Adds the question and a link to its card, unless the page is in that card's thread. Leaves out the text of a handoff whose
        card is in the same channel.
        """
        if incident.clarification is None:
            card = await self.messages.get(incident.notice_key)
            link = await self._link(card)
            is_handoff = incident.kind == "handoff" and link is not None
            if is_handoff and card is not None and page is not None and card.channel == page.channel:
                item = replace(item, reason="", body="")
            return item.with_question(None, link)
        if (record := await self._record(incident.clarification)) is None:
            return item.with_question(None, None)
        card = await self.messages.get(f"card:{record.id}:{record.round}")
        if _is_below(page, card):
            return replace(item.with_question(record, None), is_below_card=True)
        return item.with_question(record, await self._link(card))

    async def _record(self, clarification: str) -> Clarification | None:
        try:
            return await self.ledger.find(clarification)
        except ClarifyError as error:
            _log.warning("showing a page without its question", id=clarification, reason=str(error))
            return None

    async def _link(self, row: MessageRow | None) -> str | None:
        """The permalink of a message; None if it is not posted, or Slack does not return it."""
        if row is None or row.ts is None or row.channel is None:
            return None
        return await self.permalinks.permalink(row.channel, row.ts)


def _is_below(page: MessageRow | None, card: MessageRow | None) -> bool:
    """Returns whether a page is in the thread of a card that is posted."""
    if page is None or page.thread_ts is None or card is None or card.ts is None:
        return False
    return card.channel == page.channel and page.thread_ts in (card.ts, card.thread_ts)
