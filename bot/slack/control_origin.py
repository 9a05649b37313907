"""Checks that a press belongs to us before it counts.

A press counts if its message is ours and shows that question, or if the control carries our installation id. Anything
else decides nothing, and the person is told why.

A post whose outcome is not known yet can be pressed all the same: the press tells where it is, and is not lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from bot.delivery.messages import Messages, Row
from bot.delivery.rollups import rolled_up
from bot.oncall.incidents import Incidents
from bot.oncall.pages import Pages
from bot.routing import Group
from bot.slack.payloads import ControlOrigin
from bot.views import phrases
from bot.views.codec import ListPress, PagePress, Press, carried

_log = structlog.get_logger("clarify.slack")
AnyPress = Press | PagePress | ListPress
# An unsealed press adopts a post that was begun before its message was sent: our clock and Slack's differ by no more.
_CLOCKS = 300.0
_MOST_LOCATED = 1000


@dataclass(kw_only=True, eq=False, repr=False)
class OriginCheck:
    """Decides whether a press counts, and why not.

    `adopt(row, ts)` records that a post of unknown outcome is at `ts`; `group_of` tells whose roll-up card a question would be
    on; None: that is not known. `foreign` is told when a press came here that was meant for another installation.
    """

    installation: str
    messages: Messages
    incidents: Incidents
    pages: Pages
    adopt: Callable[[Row, str], None]
    group_of: Callable[[str], Group | None]
    foreign: Callable[[], None]

    def __post_init__(self) -> None:
        # Posts of unknown outcome, by the place where a press showed them: until that is recorded, a list may show another page already.
        self._located: dict[tuple[str, str], Row] = {}

    def elsewhere(self, control: ControlOrigin) -> str | None:
        """Why a control that stands on no message of ours counts for nothing here; None: it counts."""
        if control.installation == self.installation:
            return None
        _log.warning(
            "ignored a click on another installation's message",
            installation=control.installation or "none",
            channel=control.channel,
        )
        if not control.installation:
            return phrases.OPEN_AGAIN
        self.foreign()
        return phrases.ANOTHERS

    async def refusal(self, press: AnyPress, control: ControlOrigin) -> str | None:
        """Why a press counts for nothing, as words for the person; None: it counts.

        Raises:
            StorageUnavailable: it cannot be known now.
        """
        if not control.ts or (control.installation and control.installation != self.installation):
            return self.elsewhere(control)
        row = await self._row(press, control)
        if row is None and control.installation and isinstance(press, Press) and press.verb == "view":
            return (
                None  # it decides nothing; what closed long ago is in its ledger when its card is forgotten
            )
        if row is not None and await self._shows(row, press):
            return None
        _log.warning("ignored a click on an unknown or changed message", channel=control.channel)
        return phrases.UNKNOWN_CARD

    async def _row(self, press: AnyPress, control: ControlOrigin) -> Row | None:
        """The message where the press was. Its place may become known while we look."""
        row = await self.messages.at(control.channel, control.ts) or self._located.get(
            (control.channel, control.ts)
        )
        if row is not None:
            return row
        begun = [
            each
            for each in await self.messages.begun_in(control.channel)
            if control.installation or float(control.ts) > (each.intent_at or 0.0) - _CLOCKS
        ]
        meant = [each for each in begun if await self._posts(each, press)]
        if len(meant) == 1:
            if len(self._located) >= _MOST_LOCATED:
                self._located.clear()
            self._located[control.channel, control.ts] = meant[0]
            self.adopt(meant[0], control.ts)
            _log.info(
                "a click confirmed a post of unknown outcome", key=meant[0].key, channel=control.channel
            )
        # With several the message stays in doubt until it is looked up; which of them it is does not matter here.
        return meant[0] if meant else await self.messages.at(control.channel, control.ts)

    async def _shows(self, row: Row, press: AnyPress) -> bool:
        """Whether a message of ours may carry this control. The lists in direct messages change in their place."""
        turned = row.kind == "word" and (isinstance(press, ListPress) or press.verb in {"answer", "view"})
        return turned or await self._posts(row, press)

    async def _posts(self, row: Row, press: AnyPress) -> bool:
        """Whether the message carries this control when it is posted."""
        if row.kind == "word":
            return press.pack() in carried((row.body or {}).get("blocks") or ())
        if isinstance(press, PagePress):
            if row.kind != "handoff":
                sending = await self.pages.sending_of(row.key)
                return sending is not None and sending.page == press.page
            handed = await self.incidents.get(press.incident)
            return handed is not None and handed.key == f"handoff:{row.key.partition(':')[2]}"
        return isinstance(press, Press) and await self._asks(row, press)

    async def _asks(self, row: Row, press: Press) -> bool:
        """Whether a message shows the question of a press."""
        if row.kind == "card":
            return (press.clarification, press.round) == (row.clarification, row.round)
        if row.kind == "rollup":
            listed = press.verb in {"answer", "list"}
            return listed and self.group_of(press.clarification) in {None, rolled_up(row)}
        return row.kind == "page" and press.clarification in await self.pages.clarifications_of(row.key)
