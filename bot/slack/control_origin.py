"""Checks that a click is on one of our controls.

A click counts if the control carries our installation id and, if it is on a message, that message shows the question. Any
other click is rejected with a reason.

A click on a post of unknown outcome counts, too: it shows where the post is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from bot.errors import StorageUnavailable
from bot.oncall.incidents import Incidents
from bot.oncall.pages import Pages
from bot.routing import Group
from bot.show.messages import MessageRow, Messages
from bot.show.rollups import rolled_up
from bot.slack.payloads import ControlOrigin, Submission
from bot.views import phrases
from bot.views.codec import AnyPress, ListPress, PagePress, Press, carried
from bot.views.phrases import Tell, Told, Unrecorded, explained

_log = structlog.get_logger("clarify.slack")
_MOST_LOCATED = 1000


@dataclass(kw_only=True, eq=False, repr=False)
class OriginCheck:
    """Decides whether a click counts, and why not.

    `adopt(row, ts)` records that a post of unknown outcome is at `ts`. `group_of` returns the group whose roll-up card
    would show a question; None: not known. `foreign` is called when Slack sends us another installation's click.
    """

    installation: str
    messages: Messages
    incidents: Incidents
    pages: Pages
    adopt: Callable[[MessageRow, str], None]
    group_of: Callable[[str], Group | None]
    foreign: Callable[[], None]

    def __post_init__(self) -> None:
        # Posts of unknown outcome by the place of a click, until `adopt` is recorded: a list may show another page by then.
        self._located: dict[tuple[str, str], MessageRow] = {}

    def elsewhere(self, control: ControlOrigin) -> Tell | None:
        """Returns the reason to reject a control outside our messages (modal, Home tab), or None."""
        if control.installation == self.installation:
            return None
        _log.warning(
            "ignored a click on another installation's message",
            installation=control.installation or "none",
            channel=control.channel,
        )
        if not control.installation:
            return Tell(phrases.UNKNOWN_CARD)
        self.foreign()
        return Tell(phrases.ANOTHERS)

    def modal_refusal(self, sent: Submission) -> Unrecorded | None:
        """Returns the reason to reject this modal, or None."""
        if (why := self.elsewhere(sent.control)) is not None:
            return Unrecorded(why.text)
        return None if sent.opened_by == sent.person.user else Unrecorded(phrases.NOT_YOUR_WINDOW)

    async def refusal(self, press: AnyPress, control: ControlOrigin) -> Told | None:
        """Returns the reason to reject this click, or None."""
        if not control.ts or control.installation != self.installation:
            return self.elsewhere(control)
        try:
            row = await self._row(press, control)
            if row is None and isinstance(press, Press) and press.verb in {"view", "verify"}:
                return None  # it only shows what the record has, also after the card is forgotten
            if row is not None and await self._shows(row, press):
                return None
        except StorageUnavailable as error:
            return explained(error, "this message")
        _log.warning("ignored a click on an unknown or changed message", channel=control.channel)
        return Tell(phrases.UNKNOWN_CARD)

    async def _row(self, press: AnyPress, control: ControlOrigin) -> MessageRow | None:
        """Returns the message that was clicked. Its place may become known meanwhile."""
        row = await self.messages.at(control.channel, control.ts) or self._located.get(
            (control.channel, control.ts)
        )
        if row is not None:
            return row
        begun = await self.messages.begun_in(control.channel)
        meant = [each for each in begun if await self._posts(each, press)]
        if len(meant) == 1:
            if len(self._located) >= _MOST_LOCATED:
                self._located.clear()
            self._located[control.channel, control.ts] = meant[0]
            self.adopt(meant[0], control.ts)
            _log.info(
                "a click confirmed a post of unknown outcome", key=meant[0].key, channel=control.channel
            )
        # With several, the post stays in doubt until it is looked up; here any of them will do.
        return meant[0] if meant else await self.messages.at(control.channel, control.ts)

    async def _shows(self, row: MessageRow, press: AnyPress) -> bool:
        """Returns whether our message may carry this control. Lists in direct messages change their pages in place."""
        turned = row.kind == "word" and (isinstance(press, ListPress) or press.verb in {"answer", "view"})
        return turned or await self._posts(row, press)

    async def _posts(self, row: MessageRow, press: AnyPress) -> bool:
        """Returns whether the message carried this control when it was posted."""
        posts = False
        match row.kind, press:
            case "word", _:
                posts = press.pack() in carried((row.body or {}).get("blocks") or ())
            case "handoff", PagePress():
                handed = await self.incidents.get(press.incident)
                posts = handed is not None and handed.key == f"handoff:{row.key.partition(':')[2]}"
            case _, PagePress():
                posts = row.page == press.page
            case "card", Press():
                posts = (press.clarification, press.round) == (row.clarification, row.round)
            case "rollup", Press(verb="answer" | "list"):
                posts = self.group_of(press.clarification) in {None, rolled_up(row)}
            case "page", Press():
                posts = press.clarification in await self.pages.clarifications_of(row)
        return posts
