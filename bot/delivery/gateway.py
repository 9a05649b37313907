"""The calls to Slack that post, update and look up messages; every failure becomes an `Outcome`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.delivery.outcomes import Later, Never, Outcome, Sent, Unknown, failure

# A post whose outcome is unknown is recent. A channel's history comes newest first, a thread's replies oldest first.
# No bound in time: Slack's clock is not ours.
_HISTORY_PAGES, _REPLIES_PAGES = 5, 50
_INSTALLATION = "installation"


@dataclass(frozen=True, slots=True)
class Draft:
    """A message to post. `metadata` is readable by every app of the workspace: no secrets."""

    text: str
    blocks: list[dict[str, Any]]
    metadata: Mapping[str, Any]
    thread_ts: str | None = None
    broadcast: bool = False


class Gateway:
    """`client` has no retry handlers: the default one repeats a dropped post, which makes two messages.

    `installation`: our id, which the metadata of every post names: what another one posted is not taken for ours.
    """

    def __init__(self, client: AsyncWebClient, installation: str) -> None:
        self._client = client
        self._installation = installation

    async def post(self, channel: str, draft: Draft) -> Outcome:
        """chat.postMessage, once."""
        arguments: dict[str, Any] = {"thread_ts": draft.thread_ts} if draft.thread_ts else {}
        if draft.thread_ts and draft.broadcast:
            arguments["reply_broadcast"] = True
        try:
            response = await self._client.chat_postMessage(
                channel=channel,
                text=draft.text,
                blocks=draft.blocks,
                metadata=self._signed(draft.metadata),
                mrkdwn=False,
                parse="none",
                unfurl_links=False,
                unfurl_media=False,
                **arguments,
            )
            return Sent(str(response["channel"]), str(response["ts"]))
        except Exception as error:  # noqa: BLE001 - failure() raises what it does not know
            return failure(error)

    async def update(self, channel: str, ts: str, draft: Draft) -> Outcome:
        """chat.update, once. An update whose outcome is unknown is simply repeated: it says the same."""
        try:
            await self._client.chat_update(
                channel=channel,
                ts=ts,
                text=draft.text,
                blocks=draft.blocks,
                metadata=self._signed(draft.metadata),
                parse="none",
            )
            return Sent(channel, ts)
        except Exception as error:  # noqa: BLE001 - as above
            return failure(error)

    async def open_dm(self, user: str) -> str | Later | Unknown | Never:
        """The channel of the direct messages with a user."""
        try:
            response = await self._client.conversations_open(users=user)
            return str(response["channel"]["id"])
        except Exception as error:  # noqa: BLE001 - as above
            return failure(error)

    async def find(
        self, channel: str, thread_ts: str | None, matches: Mapping[str, Any], known: set[str]
    ) -> Sent | Later | Unknown | Never | None:
        """The message whose metadata holds `matches`, and no other installation's id, and whose ts is not `known`; None if
        there is none.

        Reads conversations.replies or .history.
        """
        try:
            async for message in self._messages(channel, thread_ts):
                if message.get("ts") not in known and self._carries(message, matches):
                    return Sent(channel, str(message["ts"]))
        except Exception as error:  # noqa: BLE001 - as above
            return failure(error)
        return None

    async def find_card(
        self, channel: str, matches: Mapping[str, Any], since: float, former: str
    ) -> Sent | Later | Unknown | Never | None:
        """The latest message of a channel, threads' broadcasts included, that holds `matches` and was posted after
        `since` (seconds since 1970) by us or under our `former` id. A user's id: their direct messages.
        """
        try:
            place = channel
            if channel.startswith(("U", "W")):
                opened = await self._client.conversations_open(users=channel)
                place = str(opened["channel"]["id"])
            async for message in self._messages(place, None, since):
                if self._carries(message, matches, former):
                    root, ts = message.get("thread_ts"), str(message["ts"])
                    return Sent(place, ts, str(root) if root and root != ts else None)
        except Exception as error:  # noqa: BLE001 - as above
            return failure(error)
        return None

    async def _messages(
        self, channel: str, thread_ts: str | None, since: float | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        cursor: str | None = None
        for _ in range(_HISTORY_PAGES if thread_ts is None and since is None else _REPLIES_PAGES):
            arguments: dict[str, Any] = {
                "channel": channel,
                "limit": 200,
                "include_all_metadata": True,
            } | ({"cursor": cursor} if cursor else {})
            if since is not None:
                arguments["oldest"] = f"{since:.6f}"
            if thread_ts:
                response = await self._client.conversations_replies(ts=thread_ts, **arguments)
            else:
                response = await self._client.conversations_history(**arguments)
            for message in response.get("messages") or []:
                yield message
            cursor = (response.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                return

    async def whisper(
        self,
        user: str,
        channel: str,
        thread_ts: str | None,
        text: str,
        blocks: list[dict[str, Any]] | None = None,
    ) -> Outcome:
        """chat.postEphemeral, once. `text` is ours, with what people or agents said already made inert."""
        try:
            await self._client.chat_postEphemeral(
                channel=channel, user=user, text=text, thread_ts=thread_ts, blocks=blocks
            )
            return Sent(channel, "")
        except Exception as error:  # noqa: BLE001 - as above
            return failure(error)

    def _signed(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        payload = {**metadata["event_payload"], _INSTALLATION: self._installation}
        return {**metadata, "event_payload": payload}

    def _carries(
        self, message: Mapping[str, Any], matches: Mapping[str, Any], former: str | None = None
    ) -> bool:
        metadata = message.get("metadata")
        if not isinstance(metadata, Mapping) or metadata.get("event_type") != matches["event_type"]:
            return False
        payload = metadata.get("event_payload")
        wanted: Mapping[str, Any] = matches["event_payload"]
        if not isinstance(payload, Mapping):
            return False
        # Earlier releases did not say whose it is.
        if payload.get(_INSTALLATION, self._installation) not in {self._installation, former}:
            return False
        return all(payload.get(key) == value for key, value in wanted.items())
