"""Reconciles one Slack message with its desired state: posts it once, updates it, moves it or gives it up.

`next_step` decides the next step, from what is stored of the message and Slack's last answer; it is pure. `Messenger` carries the
steps out. A post is stored as an intent before it is sent. If its outcome is unknown (a timeout, a crash), the message is looked
up by its metadata for 5 seconds, and only then posted again. Text that does not fit continues in the thread (overflow). If a
channel refuses a message, it goes to the fallback channel.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import InitVar, dataclass
from typing import Any, Literal
from weakref import WeakValueDictionary

import structlog

from bot.errors import StorageUnavailable
from bot.settings.model import Settings
from bot.show.desired import Desired, DesiredState, Skip
from bot.show.lanes import CARD, Again, Done, Lanes, NotYet
from bot.show.messages import TAKEN_UP, Fresh, MessageRow, Messages
from bot.slackapi import GONE, Failure, Gateway, Later, Never, Outcome, Post, Sent, Unknown
from bot.views import inert
from bot.views.blockkit import classic, newer
from core.clock import Clock, ConcurrencyLimit
from core.errors import ClarifyError, LedgersAway, LedgerUnreadable, LockTimeout
from core.escalation import NewIncident, Raise
from core.ledger import Ledger

_log = structlog.get_logger("clarify.delivery")
_STORAGE_RETRY = 1.0
_AWAY_RETRY = 3.0  # longer, because it affects every card
_SECTION = 2900
_CLOCKS = 300.0  # seconds by which Slack's clock may be behind ours
_ADOPTED = "adopted"  # `shown` of a message found by a click: its overflow is still to be posted
_NOT_BUILT = "could_not_be_built"
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
MessageOutcome = Literal["sent", "failed", "dropped", "tried"]
"""The outcome of a message: it is in Slack; refused for good; not posted, because it is no longer needed; or it will
be tried again.
"""
OnOutcome = Callable[[MessageRow, MessageOutcome, str | None], Awaitable[None]]
"""Called with each outcome and its reason. If it raises StorageUnavailable, call it again."""


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


@dataclass(kw_only=True, eq=False)
class Messenger:
    """Carries out the steps of single messages; `lanes` call `deliver`. `raise_incident` pages on-call about a
    message that cannot be shown. `on_outcome` is called with each message's outcome. `acts`: people's clicks, which
    go first under load.
    """

    settings: Settings
    gateway: Gateway
    messages: Messages
    desired: DesiredState
    ledger: Ledger
    raise_incident: Raise
    on_outcome: OnOutcome
    acts: ConcurrencyLimit
    clock: Clock
    rng: InitVar[random.Random]

    def __post_init__(self, rng: random.Random) -> None:
        self.lanes = Lanes(self.deliver, self.clock, self.settings.pacing.posts_per_second, rng)
        self._fallback = self.settings.slack.fallback_channel
        self._paused = self._pages_paused = False
        self._troubles: dict[str, PostTrouble] = {}  # by key
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._adopting: set[asyncio.Task[None]] = set()

    def pause_posting(self, *, pages: bool) -> None:
        """Stops new posts until `resume_posting`, except pages unless `pages`. Posts of unknown outcome are still
        looked up.
        """
        self._paused, self._pages_paused = True, pages
        self.lanes.go_on()

    def resume_posting(self) -> None:
        """Posts what was paused, and everything from now on."""
        self._paused = self._pages_paused = False
        self.lanes.go_on()

    def adopt(self, row: MessageRow, ts: str) -> None:
        """Records that a post of unknown outcome is at `ts`, because a person clicked it there. Runs in the
        background, so that the click does not wait for the storage. If it fails, the post is looked up as usual.
        """
        task = asyncio.create_task(self._adopt(row, ts), name="adopt a post")
        self._adopting.add(task)
        task.add_done_callback(self._adopting.discard)

    async def _adopt(self, row: MessageRow, ts: str) -> None:
        try:
            await self.messages.adopt(row, ts, _ADOPTED)
        except StorageUnavailable as error:
            _log.warning("cannot store where a post is", key=row.key, reason=str(error))
        else:
            self.lanes.put(row.channel or row.target, row.key, post=False)

    async def deliver(self, key: str) -> Done | Again | NotYet:
        """Takes the message `key` one step towards its desired state. Never raises for failures outside this program.

        A lane sends several messages concurrently. One lock lets only one call work on a message. Another lets only
        one post into a session's thread at a time, so that its first message opens it and the others keep their
        order.
        """
        if not key.startswith("page:"):
            await self.acts.uncrowded()
        async with self._turn(key):
            return await self._deliver(key)

    def _now(self) -> float:
        return self.clock.now().timestamp()

    def _turn(self, name: str) -> asyncio.Lock:
        return self._turns.setdefault(name, asyncio.Lock())

    async def _deliver(self, key: str) -> Done | Again | NotYet:
        row: MessageRow | None = None
        try:
            row = await self.messages.get(key)
            if row is None or row.failed is not None:
                self._troubles.pop(key, None)
                return Done()
            if row.ts is not None or row.session_id is None:
                return await self._bring(row)
            async with self._turn(f"thread:{row.producer}:{row.session_id}"):
                return await self._bring(row)
        except (StorageUnavailable, LockTimeout) as error:
            _log.warning("delivery delayed", key=key, reason=str(error))
            return Again(_AWAY_RETRY if isinstance(error, LedgersAway) else _STORAGE_RETRY)
        except LedgerUnreadable as error:
            _log.error("cannot build a card", key=key, reason=str(error))
            return Done()
        except Exception:  # noqa: BLE001 - logged with its key, and paged
            # A bug with one message must not stop the others, and on-call has to know.
            _log.exception("cannot build a message", key=key)
            return await self._not_built(row) if row is not None else Done()

    async def _not_built(self, row: MessageRow) -> Done | Again:
        try:
            await self.messages.give_up(row, "could not be built", self._now())
            await self._unplaceable(row, _NOT_BUILT)
        except StorageUnavailable as error:
            _log.warning("delivery delayed", key=row.key, reason=str(error))
            return Again(_STORAGE_RETRY)
        return Done()

    async def _bring(self, row: MessageRow) -> Done | Again | NotYet:
        """Calls Slack and stores the outcome, until there is no next step for now."""
        desired = await self.desired.of(row)
        if isinstance(desired, Skip):
            return Done()
        if row.shown == desired.digest:
            self.messages.inherited.discard(row.key)
        tried: Tried | None = None
        while (step := self._next(row, desired, tried)).act in CALLS:
            tried = await self._call(step, row, desired)
        match step.act:
            case "landed" | "found" if tried is not None and isinstance(tried.outcome, Sent):
                await self._landed(row, desired, tried.outcome, certain=step.act == "landed")
                if step.act == "found" and (current := await self.messages.get(row.key)) is not None:
                    return await self._bring(current)
            case "deleted":
                await self.messages.deleted(row)
            case "shown":
                if row.shown == _ADOPTED:
                    await self._follow_adopted(row, desired)
                await self.messages.now_shows(row.key, desired.digest, final=desired.final)
                if desired.final:
                    self._troubles.pop(row.key, None)
            case _:
                await self._do_without(row, step, desired)
        return step.result

    def _next(self, row: MessageRow, desired: Desired, tried: Tried | None) -> Step:
        paused = self._pages_paused if row.kind == "page" else self._paused
        return next_step(row, desired, tried, paused=paused, trouble=self._trouble(row.key))

    def _trouble(self, key: str) -> PostTrouble:
        return self._troubles.get(key, NO_TROUBLE)

    def _note(self, key: str, outcome: Outcome) -> None:
        """Counts refusals of a message; a rate limit is none."""
        trouble = self._trouble(key)
        if isinstance(outcome, Unknown | Never):
            self._troubles[key] = trouble.after(_reason(outcome), self._now())
        elif isinstance(outcome, Sent) and trouble.layout == "full":
            self._troubles.pop(key, None)

    async def _call(self, step: Step, row: MessageRow, desired: Desired) -> Tried:
        if step.act == "look up":
            return Tried("look up", await self._look_up(row, desired), self._now())
        if step.act == "delete":
            return Tried("delete", await self._delete(row))
        return await (self._post(row, desired) if step.act == "post" else self._update(row, desired))

    async def _do_without(self, row: MessageRow, step: Step, desired: Desired) -> None:
        """Stores the outcome of a step that did not show the message as desired."""
        match step.act:
            case "may change":
                await self.messages.may_change(row.key, self._now())
            case "postpone" if row.intent_at is not None:
                await self.messages.put_off(row, self._now())
            case "set aside":
                await self.messages.set_aside(row.key)
            case "give up":
                await self.messages.give_up(row, step.reason, self._now())
                if row.ts is None:
                    await self.on_outcome(row, "dropped", None)
            case "move":
                if row.ts is None:
                    await self.messages.leave_thread(row.producer or "", row.session_id or "")
                await self.messages.move(row.key, row.target)
            case _:
                await self._do_otherwise(row, step, desired)

    async def _do_otherwise(self, row: MessageRow, step: Step, desired: Desired) -> None:
        """Stores that a message gets another layout or place."""
        match step.act:
            case "classic" | "plain":
                layout = step.act if newer(desired.message.blocks) else "plain"
                self._troubles[row.key] = self._trouble(row.key).plainer(layout)
                if row.ts is not None:
                    await self.messages.may_change(row.key, self._now())
            case "say below":
                await self._say_below(row, desired, step.reason)
            case "unplaceable" if not await self._unplaceable(row, step.reason) and step.result == Done():
                await self.messages.give_up(row, step.reason, self._now())

    async def _post(self, row: MessageRow, desired: Desired) -> Tried:
        channel = desired.channel
        if channel.startswith(("U", "W")):
            dm = await self.gateway.open_dm(channel)
            if not isinstance(dm, str):
                await self._failed(row, dm)
                return Tried("open", dm)
            channel = dm
        if not await self.messages.intend(
            row, channel, desired.thread_ts, self._now(), opens_thread=desired.opens_thread
        ):
            return Tried("post", None)
        outcome = await self.gateway.post(channel, self._post_for(row, desired))
        if not isinstance(outcome, Sent):
            await self._failed(row, outcome)
            if not isinstance(outcome, Unknown):
                await self.messages.not_sent(row.key)
        self._note(row.key, outcome)
        return Tried("post", outcome, self._now())

    async def _update(self, row: MessageRow, desired: Desired) -> Tried:
        if row.key in self.messages.inherited:
            await self.messages.may_change(row.key, self._now())
            self.messages.inherited.discard(row.key)
        outcome = await self.gateway.update(row.channel or "", row.ts or "", self._post_for(row, desired))
        if not isinstance(outcome, Sent):
            _log.warning("not updated", key=row.key, outcome=type(outcome).__name__, reason=_reason(outcome))
        self._note(row.key, outcome)
        return Tried("update", outcome, self._now())

    async def _delete(self, row: MessageRow) -> Outcome | None:
        """Deletes a message and its overflow, unless people replied in its thread."""
        channel, ts = row.channel or "", row.ts or ""
        own = {each.ts for each in await self.messages.overflow_of(row)}
        if row.thread_ts is None:
            replies = await self.gateway.replies(channel, ts)
            if not isinstance(replies, set):
                return replies
            if replies - own:
                return None
        for each in (*sorted(filter(None, own)), ts):
            outcome = await self.gateway.delete(channel, each)
            if not isinstance(outcome, Sent):
                _log.warning("not deleted", key=row.key, outcome=outcome.word, reason=_reason(outcome))
                return outcome
        return Sent(channel, ts)

    async def _failed(self, row: MessageRow, outcome: Failure) -> None:
        _log.warning("not posted", key=row.key, outcome=type(outcome).__name__, reason=_reason(outcome))
        if not (isinstance(outcome, Later) and outcome.after is not None):  # a rate limit is no news
            await self.on_outcome(row, "tried", _reason(outcome))

    async def _look_up(self, row: MessageRow, desired: Desired) -> Outcome | None:
        """Looks for a post of unknown outcome. Returns None if it is not in Slack."""
        if row.shown is not None and row.shown.startswith(TAKEN_UP):
            return await self._look_up_old(row, desired)
        taken = await self.messages.taken_places(row.channel or "", row.clarification, row.key)
        return await self.gateway.find(row.channel or "", row.thread_ts, desired.matches, taken)

    async def _look_up_old(self, row: MessageRow, desired: Desired) -> Outcome | None:
        """Looks for a card posted before the storage was lost, in its channel and in the fallback channel."""
        former, since = (row.shown or "").removeprefix(TAKEN_UP), (row.intent_at or 0.0) - _CLOCKS
        found: Outcome | None = None
        for place in dict.fromkeys(each for each in (row.target, self._fallback) if each is not None):
            found = await self.gateway.find_card(place, desired.matches, since, former)
            if isinstance(found, Sent | Later | Unknown):
                break
        return found

    async def _landed(self, row: MessageRow, desired: Desired, sent: Sent, *, certain: bool) -> None:
        """Records that the message is in Slack. Not `certain`: found by a look-up, so it may be outdated.

        If its thread's first message was deleted, Slack put it into the channel: the session's thread is there now.
        """
        thread_ts = sent.thread_ts
        is_astray = row.session_id is not None and desired.thread_ts is not None and thread_ts is None
        if is_astray:
            _log.warning("a thread is gone; continuing in the channel", key=row.key, channel=sent.channel)
        if not certain:
            _log.info("found a post of unknown outcome", key=row.key)
        rest = await self._overflow(row, desired, sent.channel, thread_ts, sent.ts)
        await self.messages.landed(
            row,
            sent.channel,
            sent.ts,
            desired.digest if certain else "",
            final=desired.final and certain,
            opens_thread=desired.opens_thread or is_astray,
            thread_ts=thread_ts,
            rest=rest,
        )
        _log.info("posted", key=row.key, channel=sent.channel)
        for each in rest:
            self.lanes.put(each.target, each.key, post=True)
        await self.on_outcome(row, "sent", None)

    def _post_for(self, row: MessageRow, desired: Desired) -> Post:
        blocks: list[dict[str, Any]] = desired.message.blocks
        layout = self._trouble(row.key).layout
        if layout == "classic":
            blocks = classic(blocks)
        if layout == "plain":
            said = inert.split(desired.message.text, _SECTION)
            blocks = [
                *({"type": "section", "text": {"type": "plain_text", "text": piece}} for piece in said),
                *[b for b in blocks if b["type"] == "actions"][:2],
            ]
        return Post(desired.message.text, blocks, desired.metadata, desired.thread_ts, desired.broadcast)

    async def _say_below(self, row: MessageRow, desired: Desired, code: str) -> None:
        """Says in the thread of a message that Slack no longer lets us change what it would say, and gives it up."""
        blocks = [
            {name: each for name, each in block.items() if name not in {"accessory", "block_id"}}
            for block in desired.message.blocks
            if block["type"] != "actions"
        ]
        text, thread_ts = desired.message.text, row.thread_ts or row.ts
        body = {"text": text, "blocks": blocks, "thread_ts": thread_ts}
        below = Fresh(f"word:below:{row.key}", "word", row.channel or row.target, body=body, wanted="word")
        await self.messages.want([below])
        self.lanes.put(below.target, below.key, post=True)
        await self.messages.give_up(row, code, self._now())

    async def _unplaceable(self, row: MessageRow, code: str) -> bool:
        """Pages on-call because Slack refuses a message in its place, for the reason `code`. Returns whether it gets
        another place.

        Raises:
            StorageUnavailable: nothing was decided.
        """
        if row.kind == "page":
            await self.on_outcome(row, "failed", code)
            return False
        if row.kind in {"word", "more", "post"}:  # a post is only for those who may see its channel
            _log.error("cannot show a question", key=row.key, reason=code)
            return False
        place, elsewhere = row.channel or row.target, self._fallback
        if code == _NOT_BUILT or elsewhere in {place, row.target}:
            elsewhere = None
        if elsewhere is not None:
            if row.session_id is not None:
                await self.messages.leave_thread(row.producer or "", row.session_id)
            await self.messages.move(row.key, elsewhere)
            self.lanes.put(elsewhere, row.key, post=True, priority=(CARD, 0.0))
        what = (
            "It could not be laid out for Slack; see the log for why"
            if code == _NOT_BUILT
            else f"Slack refused to post in {place}: {code}"
        )
        await self._page(row, f"unplaceable:{row.key}:{place}:{code}", f"{what}. {_shown_in(elsewhere)}")
        return elsewhere is not None

    async def leave(self, channel: str, code: str, elsewhere: str | None) -> None:
        """Shows again in `elsewhere` what people still need to see of a channel in which the bot can no longer post, and pages
        on-call. `code`: why not; `elsewhere` None: there is no such place, so it only pages.

        Raises:
            StorageUnavailable, ClarifyError: something may be left; the next call goes on.
        """
        for row in await self.messages.changing_in(channel):
            async with self._turn(row.key):
                await self._leave(row, code, elsewhere)

    async def _leave(self, before: MessageRow, code: str, elsewhere: str | None) -> None:
        row, place = await self.messages.get(before.key), before.channel
        if row is None or row.channel != place or row.kind in {"page", "word", "more", "nudge", "post"}:
            return
        desired = await self.desired.of(row)
        if isinstance(desired, Skip) or not desired.needed:
            return
        if elsewhere is not None:
            thread = await self.messages.thread_of(row.producer or "", row.session_id or "")
            if thread is not None and thread.channel == place:
                await self.messages.leave_thread(thread.producer, thread.session_id)
            if code == "not_in_channel":
                await self._delete(row)  # if Slack lets us, so that nobody clicks it
            await self.messages.move(row.key, elsewhere)
            self.lanes.put(elsewhere, row.key, post=True, priority=(CARD, 0.0))
        await self._page(
            row,
            f"unplaceable:{row.key}:{place}:{code}",
            f"The bot cannot post in {place} any more: {code}. {_shown_in(elsewhere)}",
        )

    async def _page(self, row: MessageRow, key: str, reason: str) -> None:
        title = "A card could not be posted" if row.kind == "card" else "A message could not be posted"
        if row.clarification is None:
            incident = NewIncident(key, reason, title, agent_id=(row.body or {}).get("agent"))
        else:
            try:
                record = await self.ledger.find(row.clarification)
                incident = NewIncident.about(record, key, reason, title)
            except ClarifyError as error:
                _log.warning("paging without the question's details", key=row.key, reason=str(error))
                incident = NewIncident(key, reason, f"{title} ({row.clarification})")
        await self.raise_incident(incident)

    async def _follow_adopted(self, row: MessageRow, desired: Desired) -> None:
        rest = await self._overflow(row, desired, row.channel or "", row.thread_ts, row.ts or "")
        await self.messages.want(rest)
        for each in rest:
            self.lanes.put(each.target, each.key, post=True)
        await self.on_outcome(row, "sent", None)

    async def _overflow(
        self, row: MessageRow, desired: Desired, channel: str, thread_ts: str | None, ts: str
    ) -> list[Fresh]:
        """Returns the overflow of a message: for a page in its own thread, for others in the session's. Each text
        goes into a thread once.
        """
        if not desired.message.more:
            return []
        name, producer, session_id, where = row.key, row.producer, row.session_id, None
        if row.kind == "page":
            if await self._is_in_thread(channel, thread_ts, desired.about):
                return []
            if desired.about and thread_ts:  # repeats of a page have the same text: once per thread
                name = f"{desired.about}:{row.target}:{thread_ts}"
            producer, session_id, where = None, None, thread_ts or ts
        return [
            Fresh(
                key=f"more:{name}:{number}",
                kind="more",
                target=row.target,
                producer=producer,
                session_id=session_id,
                body={"text": inert.fallback(words), "blocks": plain_blocks(words), "thread_ts": where},
                wanted="more",
            )
            for number, words in enumerate(desired.message.more)
        ]

    async def _is_in_thread(self, channel: str, thread_ts: str | None, card: str | None) -> bool:
        """Returns whether the card that a page is about is in the same thread, with its own overflow."""
        if card is None or thread_ts is None:
            return False
        first = await self.messages.get(f"more:{card}:0")
        if first is None or first.failed is not None:
            return False
        if first.ts is not None:
            return (first.channel, first.thread_ts) == (channel, thread_ts)
        thread = await self.messages.thread_of(first.producer or "", first.session_id or "")
        return thread is not None and (thread.channel, thread.ts) == (channel, thread_ts)


def _shown_in(elsewhere: str | None) -> str:
    return "It is shown in the fallback channel." if elsewhere else "It could not be shown anywhere."


def _reason(outcome: Failure) -> str:
    return outcome.code if isinstance(outcome, Never) else outcome.reason


def plain_blocks(words: str) -> list[dict[str, object]]:
    """Returns sections of plain text, unescaped: it cannot format, link or mention. A line that goes on keeps its bar."""
    return [
        {"type": "section", "text": {"type": "plain_text", "text": piece, "emoji": False}}
        for piece in inert.with_bars(inert.split(words, _SECTION - len(inert.BAR)))
        if piece.strip()
    ]


def live_blocks(text: str) -> list[dict[str, object]]:
    """Returns sections of the bot's own mrkdwn, in which other people's text is escaped already."""
    return [
        {"type": "section", "text": {"type": "mrkdwn", "text": piece, "verbatim": True}}
        for piece in inert.split_live(text, _SECTION)
        if piece.strip()
    ]
