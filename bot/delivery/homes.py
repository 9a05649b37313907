"""Home tabs: the call to Slack that publishes one, and what must not be forgotten of who looks at theirs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.delivery.store import Store
from bot.home.facts import Viewer
from bot.slackapi import Outcome, Sent, failure


class HomeGateway:
    """`client` has no retry handlers: pace and backoff are the caller's."""

    def __init__(self, client: AsyncWebClient) -> None:
        self._client = client

    async def publish(self, user: str, view: Mapping[str, Any]) -> Outcome:
        """views.publish, once. One whose outcome is unknown is simply repeated: it says the same."""
        try:
            await self._client.views_publish(user_id=user, view=dict(view))
            return Sent(user, "")
        except Exception as error:  # noqa: BLE001 - failure() raises what it does not know
            return failure(error)


class Homes:
    """The homes table. Every method raises StorageUnavailable if nothing could be stored or read."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def all(self) -> list[Viewer]:
        """Everybody who is not forgotten."""
        return [_viewer(row) for row in await self._store.read("select * from homes order by user")]

    async def seen(self, viewer: Viewer) -> None:
        """Somebody opened their Home tab."""
        await self._store.execute(
            """insert into homes (user, team, channel, opened_at, pages, digest) values (?, ?, ?, ?, ?, ?)
               on conflict (user) do update set team = excluded.team, channel = excluded.channel,
               opened_at = excluded.opened_at, pages = excluded.pages, digest = excluded.digest""",
            viewer.user,
            viewer.team,
            viewer.channel,
            viewer.opened_at,
            json.dumps(dict(viewer.pages)),
            viewer.digest,
        )

    async def shows(self, user: str, digest: str | None) -> None:
        """What Slack shows somebody now; None: not known any more."""
        await self._store.execute("update homes set digest = ? where user = ?", digest, user)

    async def turned(self, user: str, pages: Mapping[str, int]) -> None:
        """Somebody looks at other pages of their sections."""
        await self._store.execute("update homes set pages = ? where user = ?", json.dumps(dict(pages)), user)

    async def forget(self, users: Collection[str]) -> None:
        """Nothing is published to them any more, until they open their Home tab again."""
        await self._store.execute(
            "delete from homes where user in (select value from json_each(?))", json.dumps(sorted(users))
        )


def _viewer(row: sqlite3.Row) -> Viewer:
    pages: dict[str, int] = json.loads(row["pages"])
    return Viewer(row["user"], row["team"], row["channel"], row["opened_at"], pages, row["digest"])
