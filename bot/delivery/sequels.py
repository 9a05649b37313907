"""What a message's fallback text could not hold: it follows in the thread, each text once in each thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bot.delivery.messages import Fresh, Messages, Row
from bot.delivery.wishes import Wish
from bot.views import inert

_SECTION = 2900


class Sequels:
    """`notify` has a message shown; durable when it returns."""

    def __init__(self, messages: Messages, notify: Callable[[Fresh], Awaitable[None]]) -> None:
        self._messages = messages
        self._notify = notify

    async def follow(self, row: Row, wish: Wish) -> None:
        """`row` was posted: have the rest follow, of a page in its own thread, of all else in the session's.

        Raises:
            StorageUnavailable: not all of it was stored.
        """
        if row.kind == "page" and wish.message.more:
            await self._follow_page(row, wish)
        else:
            await self._tell(row.key, row, wish, None)

    async def _follow_page(self, row: Row, wish: Wish) -> None:
        there = await self._messages.get(row.key)
        if there is not None and not await self._is_told(there, wish.about):
            # Every repeat of a page is about the same: a thread holds it once, a direct message too.
            name = f"{wish.about}:{row.target}:{there.thread_ts or ''}" if wish.about else row.key
            await self._tell(name, row, wish, there.thread_ts or there.ts)

    async def _is_told(self, page: Row, card: str | None) -> bool:
        """Whether the card that a page is about stands in the same thread, and the rest of it follows there."""
        first = await self._messages.get(f"more:{card}:0") if card is not None else None
        if first is None or first.failed is not None or page.thread_ts is None:
            return False
        if first.ts is None:
            thread = await self._messages.thread_of(first.producer or "", first.session_id or "")
            return thread is not None and (thread.channel, thread.ts) == (page.channel, page.thread_ts)
        return (first.channel, first.thread_ts) == (page.channel, page.thread_ts)

    async def _tell(self, name: str, row: Row, wish: Wish, thread_ts: str | None) -> None:
        for number, words in enumerate(wish.message.more):
            body = {"text": inert.fallback(words), "blocks": plain_blocks(words), "thread_ts": thread_ts}
            await self._notify(
                Fresh(
                    key=f"more:{name}:{number}",
                    kind="more",
                    target=row.target,
                    producer=row.producer if thread_ts is None else None,
                    session_id=row.session_id if thread_ts is None else None,
                    body=body,
                    wanted="more",
                )
            )


def plain_blocks(words: str) -> list[dict[str, object]]:
    """Sections of plain text, unescaped: nothing in it formats, links or mentions."""
    return [
        {"type": "section", "text": {"type": "plain_text", "text": piece, "emoji": False}}
        for piece in inert.split(words, _SECTION)
        if piece.strip()
    ]


def live_blocks(text: str) -> list[dict[str, object]]:
    """Sections of the bot's own words, in which others' are escaped already."""
    return [
        {"type": "section", "text": {"type": "mrkdwn", "text": piece, "verbatim": True}}
        for piece in inert.split_live(text, _SECTION)
        if piece.strip()
    ]
