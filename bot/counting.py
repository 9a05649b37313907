"""Parties outside, counted: each stands in front of the one that does the work and tells how every try ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bot.slackapi import Draft, Gateway, Later, Never, Outcome, Sent, Unknown
from bot.telemetry import Telemetry

_KINDS = frozenset({"card", "page", "rollup", "notice", "handoff", "nudge", "tools", "word", "more"})


class CountedGateway(Gateway):
    """Posts and updates, by the kind of message. Look-ups are no deliveries."""

    def __init__(self, inner: Gateway, telemetry: Telemetry) -> None:
        self._inner = inner
        self._telemetry = telemetry

    async def post(self, channel: str, draft: Draft) -> Outcome:
        kind, outcome = kind_of(draft.metadata), await self._inner.post(channel, draft)
        if kind == "page" and isinstance(outcome, Sent | Never):
            self._telemetry.paged("slack", "sent" if isinstance(outcome, Sent) else "failed")
        return self._counted(kind, outcome)

    async def update(self, channel: str, ts: str, draft: Draft) -> Outcome:
        return self._counted(kind_of(draft.metadata), await self._inner.update(channel, ts, draft))

    async def whisper(
        self,
        user: str,
        channel: str,
        thread_ts: str | None,
        text: str,
        blocks: list[dict[str, Any]] | None = None,
    ) -> Outcome:
        """Said once: what fails is not tried again."""
        outcome = await self._inner.whisper(user, channel, thread_ts, text, blocks)
        self._telemetry.tried_once("whisper", _word(outcome))
        return outcome

    async def open_dm(self, user: str) -> str | Later | Unknown | Never:
        return await self._inner.open_dm(user)

    async def find(
        self, channel: str, thread_ts: str | None, matches: Mapping[str, Any], known: set[str]
    ) -> Sent | Later | Unknown | Never | None:
        return await self._inner.find(channel, thread_ts, matches, known)

    async def find_card(
        self, channel: str, matches: Mapping[str, Any], since: float, former: str
    ) -> Sent | Later | Unknown | Never | None:
        return await self._inner.find_card(channel, matches, since, former)

    def _counted(self, kind: str, outcome: Outcome) -> Outcome:
        self._telemetry.delivered(kind, _word(outcome))
        return outcome


def kind_of(metadata: Mapping[str, Any]) -> str:
    """What kind of message carries this metadata; "notice" where it does not say."""
    kind = str(metadata.get("event_type", "")).removeprefix("clarify_")
    if kind == "notice":
        kind = str(metadata.get("event_payload", {}).get("key", "")).partition(":")[0]
    return kind if kind in _KINDS else "notice"


def _word(outcome: object) -> str:
    """A kind of outcome as a word: TryAgain → try_again."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(outcome).__name__).lower()
