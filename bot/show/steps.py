"""Decides the next step of one message towards its desired state, from what is stored of it and Slack's last answer.

Pure: `bot.show.messenger` carries the steps out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.show.desired import Desired
from bot.show.lanes import Again, Done, NotYet
from bot.show.messages import MessageRow
from bot.slackapi import GONE, Later, Never, Outcome, Sent, Unknown

# Seconds for which a post that timed out is looked up before it is posted again: it may still arrive.
LANDING = 5.0
_LOOKS = (0.5, 1.0, 2.0, LANDING)  # most late posts arrive within the first
_LOOK_AGAIN = 1.0
_APP_RETRY = 30.0
_ALONE_RETRY = 15.0
_UNKNOWN_CODE = 300.0  # seconds during which an unknown error code counts as temporary
_STUBBORN = 3  # server errors for the same layout: then a plainer one is tried
_SERVER_ERRORS = frozenset({"internal_error", "fatal_error"})
NOT_NEEDED = "not needed any more"

Call = Literal["look up", "open", "post", "update", "delete"]
"""The calls to Slack: find a post of unknown outcome, open a person's direct messages, post, update, delete."""
Act = Literal[
    "look up", "post", "update", "delete", "landed", "found", "shown", "deleted", "may change",
    "postpone", "set aside", "give up", "classic", "plain", "move", "say below", "unplaceable",
]  # fmt: skip
"""One of `CALLS`, or how to store an outcome."""


CALLS = frozenset({"look up", "post", "update", "delete"})
_DONE = Done()


Layout = Literal["full", "classic", "plain"]
"""As it should look; in Slack's classic blocks; as plain text with its controls."""


@dataclass(frozen=True, slots=True)
class PostTrouble:
    """Why Slack last refused a message: `count` times in this layout, in any layout since `since` (seconds since 1970)."""

    layout: Layout = "full"
    reason: str = ""
    count: int = 0
    since: float = 0.0

    def after(self, reason: str, at: float) -> PostTrouble:
        """Returns the trouble after one more refusal."""
        is_same = reason == self.reason
        return PostTrouble(
            self.layout, reason, self.count + 1 if is_same else 1, self.since if is_same else at
        )

    def plainer(self, layout: Layout) -> PostTrouble:
        """Returns the trouble with another layout."""
        return PostTrouble(layout, self.reason, 0, self.since)


NO_TROUBLE = PostTrouble()


@dataclass(frozen=True, slots=True)
class Tried:
    """A call that ended at `at` (seconds since 1970). `outcome` None: a look-up found nothing; nothing was posted,
    because the message is already there or another one may be opening its thread; or nothing was deleted, because
    people replied in its thread.
    """

    call: Call
    outcome: Outcome | None
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """`act` first, then return `result` to the lane; after a call to Slack comes another step. `reason`: why the
    message is given up, or cannot be shown in its place.
    """

    act: Act | None = None
    result: Done | Again | NotYet = _DONE
    reason: str = ""


def next_step(
    row: MessageRow, desired: Desired, tried: Tried | None, *, paused: bool, trouble: PostTrouble = NO_TROUBLE
) -> Step:
    """Returns what to do with the message of `row`. `tried`: the call just made; `paused`: begin no new posts; `trouble`: with
    the message so far, this call included.
    """
    if tried is None:
        return _first_step(row, desired, paused=paused)
    if tried.call == "look up":
        return _after_look_up(row, desired, tried, paused=paused)
    if tried.call == "delete" and isinstance(tried.outcome, Sent | Never | None):
        # What has to stay, or cannot be deleted, loses its controls.
        return Step("deleted" if isinstance(tried.outcome, Sent) else "update")
    match tried.outcome:
        case Sent():
            return Step("landed", Done(posted=True)) if tried.call == "post" else Step("shown")
        case Never() as never:
            return _refused(row, desired, tried, never, trouble)
    return _not_taken(tried, trouble)


def _not_taken(tried: Tried, trouble: PostTrouble) -> Step:
    posted = tried.call == "post"
    match tried.outcome:
        case Later(after=after, alone=alone):
            return Step(result=Again(_ALONE_RETRY if alone else after, pause=not alone, posted=posted))
        case Unknown(reason) if reason in _SERVER_ERRORS and trouble.count >= _STUBBORN:
            return _server_fails(reason, trouble.layout, posted=posted)
        case Unknown() if not posted:
            return Step("may change" if tried.call == "update" else None, Again(pause=True))
        case Unknown():
            return Step(result=Again(_LOOKS[0], posted=True))
    return Step(result=Again(_LOOK_AGAIN))


def _server_fails(reason: str, layout: Layout, *, posted: bool) -> Step:
    """Returns the step after Slack failed several times with this layout: the content may be the cause. Never gives the message
    up, because during an outage Slack answers every message like that.
    """
    if layout != "plain":
        return Step("classic" if layout == "full" else "plain", Again(_LOOKS[0], posted=posted))
    return Step("unplaceable" if posted else "may change", Again(_APP_RETRY, posted=posted), reason)


def _first_step(row: MessageRow, desired: Desired, *, paused: bool) -> Step:
    if row.ts is not None:
        if row.shown != desired.digest:
            return Step("delete" if desired.gone else "update")
        return Step("shown" if desired.final and not row.final else None)
    if row.intent_at is not None:
        return Step("look up")
    if desired.waits:
        return Step(result=Again(_LOOK_AGAIN))
    return _post(row, desired, paused=paused)


def _post(row: MessageRow, desired: Desired, *, paused: bool) -> Step:
    """For a message that is not in Slack, as far as we know."""
    if desired.unwanted:
        if row.kind == "card" and row.intent_at is None:
            return Step("set aside")
        return Step("give up", reason=NOT_NEEDED)
    return Step("postpone", NotYet()) if paused else Step("post")


def _after_look_up(row: MessageRow, desired: Desired, tried: Tried, *, paused: bool) -> Step:
    match tried.outcome:
        case Sent():
            return Step("found")
        case Later(after=after):
            return Step(result=Again(after, pause=True))
        case Unknown():
            return Step(result=Again(_LOOK_AGAIN))
        case Never(what="app" | "content" | "unknown"):
            return Step(result=Again(_APP_RETRY))
        case None:
            passed = tried.at - (row.intent_at or 0.0)
            look = next((look for look in _LOOKS if look > passed >= 0), None)
            if look is not None:
                return Step(result=Again(look - passed))
    return _post(row, desired, paused=paused)


def _refused(row: MessageRow, desired: Desired, tried: Tried, outcome: Never, trouble: PostTrouble) -> Step:
    """After Slack refused for good: changes what is wrong, or gives the message up."""
    if outcome.what == "unknown" and tried.at - trouble.since < _UNKNOWN_CODE:
        return Step(result=Again(_ALONE_RETRY, posted=tried.call == "post"))
    if tried.call == "update" and outcome.what in {"place", "message"} and not desired.needed:
        is_there = outcome.what == "message" and outcome.code not in GONE
        return Step("say below" if is_there else "give up", reason=outcome.code)
    if outcome.what == "app":
        return Step(result=Again(_APP_RETRY))
    if outcome.what in {"content", "unknown"} and trouble.layout != "plain":
        return Step("plain", Again(0.0))
    in_thread = desired.thread_ts is not None and row.session_id is not None
    if outcome.what == "message" and (row.ts is not None or in_thread):
        return Step("move", Again(0.0))
    return Step("unplaceable", reason=outcome.code)
