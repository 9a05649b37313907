"""The Slack app: our identity, the connection (Socket Mode, or a request URL), the listeners, and the catch-up on missed
messages; and how it is built.

Bolt dispatches to the listeners. Its other habits, each seen by running it, and what we do about them:

* it acknowledges events before their listener ran → `process_before_response`;
* if its first auth.test fails, it answers events with "please reinstall" → `authorize` with a result that we have;
* it never acknowledges an envelope without a listener → ours take everything;
* it logs exceptions together with the payload → an error handler that logs the envelope only.

Over HTTP, every event, click, command and modal is a signed request to one URL, `/slack/events` (`RequestUrl`). Sources:
docs.slack.dev, "Using HTTP Request URLs", "Verifying requests from Slack", "The Events API", "Handling user interaction". The
web server hands over headers and body. The first that applies answers a request:

1. not signed by Slack → 401 and a line in the log. (Bolt's own check answers malformed headers with 500.)
2. a challenge → sent back, even before we are ready: Slack sends it while the app is being set up;
3. not ready → 503: Slack resends an event, and shows an error to the person who clicked;
4. else the app, as in Socket Mode, whose listeners store a message before they acknowledge it.

Slack tries an event at once, after one minute and after five, then drops it without a word. While it drops events, either
others arrive as retries, or nothing arrives for minutes: `MissedEvents` notices both on the next request. A quiet hour
looks like an outage; then reading the history costs a few calls and finds nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import parse_qsl

import structlog
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse
from slack_sdk.signature import Clock as SignatureClock
from slack_sdk.signature import SignatureVerifier
from slack_sdk.web.async_client import AsyncWebClient

from bot.base import Base
from bot.commands.commands import Commands, build_commands
from bot.commands.grammar import Added
from bot.decisions.log import channel_renamed
from bot.errors import (
    ClarifyBotError,
    ConfigurationError,
    SlackError,
    SlackRefusedError,
    SlackUnreachableError,
    StorageUnavailable,
)
from bot.home import HomeTabs
from bot.intake.intake import Sessions
from bot.oncall.actions import PageActions
from bot.oncall.build import OnCallBoard
from bot.oncall.outside import REMOVED
from bot.people.access import require_answerers
from bot.routing import Group
from bot.settings.model import Settings
from bot.show.delivery import ShowParts
from bot.show.desired import RollupThreads
from bot.show.memory import SlackMemory
from bot.slack import mrkdwn
from bot.slack.answering import Answering, Interactions
from bot.slack.conversation import Backfill, CatchUp, Conversation
from bot.slack.listeners import Handlers, OriginCheck
from bot.slack.socket import Background, Envelope, Json, SlackSocket, Unacknowledged
from bot.slack.threads import Threads, Unread
from bot.slack.typed import TypedMessages
from bot.slackapi import Availability, SlackBusyError, ask
from bot.views import phrases
from bot.views.verify import Proof
from core.clarification import Clarification
from core.clock import Clock, ConcurrencyLimit, backoff

_log = structlog.get_logger("clarify.slack")
_listener_log = logging.getLogger("clarify.slack")
# Short, since cards wait until Slack has told us who we are. Seconds.
_FIRST_RETRY, _LONGEST_RETRY = 0.5, 4.0
_ANY = re.compile("")
_url_log = structlog.get_logger("clarify.slack.request_url")
LULL = timedelta(minutes=4)  # shorter than the five minutes after which Slack drops an event
APART = timedelta(minutes=1)  # between two looks into the history
_DRAIN = 10.0  # seconds
_MOST_FIELDS = 100  # a command has about 15
_UNSIGNED = (
    "The signature does not fit: not from Slack, SLACK_SIGNING_SECRET is another app's, or signed more than 5 minutes ago"
    " (sent again, or this machine's clock is wrong)."
)


@dataclass(kw_only=True, eq=False, repr=False)
class SlackApp:
    """Connects to Slack, passes requests to the listeners, starts the catch-up on missed messages.

    Call `introduce`, `look_back`, `run`, in this order; `stop` at any time.

    `ready` is set when clicks are taken. `availability`: whether Slack answers. `later` runs work after an acknowledgement.
    `acts` limits how many clicks and commands run at once: together they would all be late. `passed` is called for each
    request from Slack.
    """

    settings: Settings
    web: AsyncWebClient
    transport: SlackSocket | RequestUrl
    handlers: Handlers
    backfill: Backfill
    later: Background
    availability: Availability
    acts: ConcurrencyLimit
    passed: Callable[[], None]
    clock: Clock

    def __post_init__(self) -> None:
        self.ready = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._looked_back = False
        self._bolt: AsyncApp | None = None

    @property
    def request_url(self) -> RequestUrl | None:
        """In mode "http": the handler for Slack's requests, from the start on."""
        return self.transport if isinstance(self.transport, RequestUrl) else None

    @property
    def connected(self) -> bool:
        """Whether clicks reach us now, or other replicas."""
        return self.transport.connected or self.is_spare

    @property
    def is_spare(self) -> bool:
        """Whether other replicas have all connections that Slack gives the app."""
        return isinstance(self.transport, SlackSocket) and self.transport.spare

    async def trouble(self) -> str | None:
        """Returns why people cannot use the bot in Slack now, or None. If Slack refused the bot, asks again: nothing else may."""
        if self.availability.refused is not None:
            with suppress(SlackError):
                await ask("auth.test", self.web.auth_test)
        if (code := self.availability.refused) is not None:
            return f"Slack refuses the bot ({code}): {REMOVED}"
        return None if self.connected else "not connected to Slack"

    @property
    def deaf_since(self) -> datetime | None:
        """When we lost the connection to Slack; None: we are connected, or never were."""
        return None if self.connected or not self.ready.is_set() else self.transport.since

    @property
    def other_bots(self) -> str | None:
        """A warning if another bot shares our Slack app, else None."""
        others = self.transport.others if isinstance(self.transport, SlackSocket) else 0
        return f"{phrases.OTHER_BOT} (connections besides ours: {others})" if others else None

    async def introduce(self) -> None:
        """Learn from Slack who we are and who may answer; waits as long as Slack is away.

        Raises:
            ConfigurationError: Slack refuses the token, or a route has no answerers.
        """
        for failures in count():
            try:
                await self.handlers.people.installation()
                await require_answerers(self.settings, self.handlers.people)
            except SlackBusyError as error:
                _log.warning("Slack does not respond", reason=str(error))
                await self.clock.sleep(error.after)
            except SlackUnreachableError as error:
                _log.warning("Slack does not respond", reason=str(error))
                await self.availability.rest(backoff(failures, first=_FIRST_RETRY, longest=_LONGEST_RETRY))
            except SlackRefusedError as error:
                raise ConfigurationError(
                    [f"Slack refuses the token in SLACK_BOT_TOKEN: {error.code}"]
                ) from error
            else:
                self._bolt = bolt_app(self.web, self.handlers)
                return

    def look_back(self) -> None:
        """Start reading, in the background, what people wrote while the bot was away."""
        if not self._looked_back:
            self._looked_back = True
            self.watch_for_gaps()
            self.backfill.catch_up.schedule()

    def watch_for_gaps(self) -> None:
        """Start the background task that catches up whenever that is scheduled."""
        if self._looking is None:
            self._looking = asyncio.create_task(self.backfill.run(), name="what was missed")

    async def run(self) -> None:
        """Take clicks and replies, until `stop` or until the connection fails for good."""
        try:
            await self.transport.start(self.dispatch)
        except SlackRefusedError as error:
            raise ConfigurationError([f"Slack refuses the token in SLACK_APP_TOKEN: {error.code}"]) from error
        self.ready.set()
        _log.info("ready for clicks")
        await self.transport.wait()

    async def stop(self) -> None:
        """Take nothing more; finish and acknowledge what is running."""
        await self.transport.stop()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self.later.drain()

    async def dispatch(self, envelope: Envelope) -> Json | None:
        """Hand an envelope to the listeners; returns the payload of its acknowledgement.

        Raises:
            Unacknowledged: they did not take it. Slack resends an event, and shows an error to the person who clicked.
        """
        body = envelope.payload
        if self._bolt is None:
            raise Unacknowledged("it is not known yet who we are")
        self.passed()
        request = AsyncBoltRequest(mode="socket_mode", body=body)
        if body.get("type") == "event_callback":  # without a slot: no person waits for an event
            response = await self._bolt.async_dispatch(request)
            if response.status != 200:
                self.backfill.catch_up.schedule()
        else:
            async with self.acts.slot():
                response = await self._bolt.async_dispatch(request)
        if response.status != 200:
            raise Unacknowledged(f"status {response.status}")
        return json.loads(response.body) if response.body else None


def bolt_app(web: AsyncWebClient, to: Handlers) -> AsyncApp:
    """Returns a Bolt app that hands everything to `to`. `bot.slack.app` has checked the signatures of its requests."""
    logger = logging.getLogger("slack_bolt.clarify")
    # Bolt warns about SLACK_BOT_TOKEN in the environment, where it belongs.
    logger.setLevel(logging.ERROR)

    async def authorize() -> AuthorizeResult:
        return AuthorizeResult(
            enterprise_id=None, team_id=to.people.team, bot_user_id=to.people.bot_user, bot_token=web.token
        )

    app = AsyncApp(
        name="clarify-bot",
        logger=logger,
        client=AsyncWebClient(base_url=web.base_url, ssl=web.ssl, proxy=web.proxy),
        authorize=authorize,
        request_verification_enabled=False,
        ssl_check_enabled=False,
        process_before_response=True,
        ignoring_self_events_enabled=False,  # we need to know when a card of ours is deleted
        attaching_conversation_kwargs_enabled=False,
    )
    logger.setLevel(logging.WARNING)

    async def hear(ack: AsyncAck, body: dict[str, Any]) -> None:
        await to.hear(body)
        await ack()

    async def act(ack: AsyncAck, body: dict[str, Any]) -> None:
        answer = await to.act(body)
        await (ack() if answer is None else ack(answer))

    event: Any = app.event  # its type lacks patterns, which the method takes
    event(_ANY)(hear)
    for kind in (app.action, app.view, app.view_closed, app.shortcut, app.command, app.options):
        kind(_ANY)(act)
    app.error(_failed)
    return app


async def _failed(error: Exception, body: dict[str, Any]) -> BoltResponse:
    """Log an error; without an acknowledgement Slack resends an event, and shows an error to the person who clicked."""
    envelope = {"type": body.get("type"), "event_id": body.get("event_id"), "team": body.get("team_id")}
    if isinstance(error, (Unacknowledged, SlackError, StorageUnavailable)):
        _listener_log.warning("listener gave up: %s %s", error, envelope)
    else:
        _listener_log.error("listener failed: %s %s", type(error).__name__, envelope, exc_info=error)
    return BoltResponse(status=500, body="")


class NotTaken(ClarifyBotError):
    """A request was not taken. Slack resends an event, and shows an error to the person who clicked."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class MissedEvents:
    """Notices, from the requests that arrive, that Slack may have dropped others.

    Call `opened` once when requests are taken, then `arrived` for each request.
    """

    def __init__(self) -> None:
        self._last: datetime | None = None
        self._looked: datetime | None = None
        self._owed: datetime | None = None  # not before then

    def opened(self, now: datetime) -> None:
        """Start counting silence."""
        self._last = now

    def arrived(self, now: datetime, *, retried: bool = False, dropped: bool = False) -> bool:
        """Returns whether to read the history now.

        retried: an earlier attempt failed. dropped: Slack says that it drops events for a minute.
        """
        lull = self._last is not None and now - self._last >= LULL
        self._last = now
        if dropped:
            self._owe(now + APART)
        elif retried or lull:
            self._owe(now)
        if self._owed is None or now < max(self._owed, (self._looked or now - APART) + APART):
            return False
        self._owed, self._looked = None, now
        return True

    def _owe(self, since: datetime) -> None:
        # The later of two: a look then finds what was dropped until then.
        self._owed = since if self._owed is None else max(self._owed, since)


class _Now(SignatureClock):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.now().timestamp()


@dataclass(kw_only=True, eq=False, repr=False)
class RequestUrl:
    """Answers Slack's requests: `respond` works at any time, and calls the handler between `start` and `stop`.

    Calls `on_gap` when Slack may have dropped events. `since`: when `connected` last changed.
    """

    signing_secret: str
    on_gap: Callable[[], None]
    clock: Clock
    drain: float = _DRAIN

    def __post_init__(self) -> None:
        self._verifier = SignatureVerifier(self.signing_secret, _Now(self.clock))
        self._missed = MissedEvents()
        self._handling = Background()
        self._open = False
        self._turned_away = False  # whether an event came before `start`
        self.since = self.clock.now()
        self._stopped = asyncio.Event()

    @property
    def connected(self) -> bool:
        """Whether requests are handled. Whether Slack's requests reach us is not known here."""
        return self._open

    async def start(self, handle: Callable[[Envelope], Awaitable[Json | None]]) -> None:
        """Hand requests to `handle` from now on. It returns the JSON to respond with, if any."""
        self._handle = handle
        self._missed.opened(self.clock.now())
        self._open, self.since = not self._stopped.is_set(), self.clock.now()
        if self._turned_away:  # it may have come after the catch-up read the history
            self.on_gap()

    def suspect(self) -> None:
        """Do nothing: unlike connections, bots that share a request URL cannot be counted."""

    async def wait(self) -> None:
        """Returns after `stop`."""
        await self._stopped.wait()

    async def stop(self) -> None:
        """Handle nothing more; wait, for a while, until running requests are answered."""
        self._open, self.since = False, self.clock.now()
        self._stopped.set()
        await self._handling.drain(self.drain)

    async def respond(self, headers: Mapping[str, str], body: bytes) -> Json | None:
        """Handles a POST with these headers (names in lower case) and this unchanged body; returns the JSON to respond with.

        Raises:
            NotTaken: says why.
        """
        if not self._is_signed(headers, body):
            _url_log.warning("refused a request to /slack/events", reason=_UNSIGNED)
            raise NotTaken(401, "NOT_FROM_SLACK", _UNSIGNED)
        try:
            envelope = _envelope(headers, body)
        except (ValueError, RecursionError):
            _url_log.warning("cannot read a signed request", characters=len(body))
            raise NotTaken(
                400, "BAD_INPUT", "The body must be a JSON object, or a form that Slack sends."
            ) from None
        if envelope.payload.get("type") == "url_verification":
            return {"challenge": envelope.payload.get("challenge")}
        if envelope.payload.get("ssl_check") == "1":  # Slack only checks the certificate
            return None
        return await self._admitted(envelope)

    def _is_signed(self, headers: Mapping[str, str], body: bytes) -> bool:
        try:
            return self._verifier.is_valid_request(body, headers)
        except (ValueError, TypeError):  # of malformed headers, and of bodies that are no text
            return False

    async def _admitted(self, envelope: Envelope) -> Json | None:
        kind = _kind(envelope.payload)
        if not self._open:
            _url_log.warning("not ready for a request from Slack", type=kind)
            self._turned_away = self._turned_away or envelope.payload.get("type") == "event_callback"
            raise NotTaken(503, "NOT_READY", "The bot is not ready for events and clicks.")
        dropped = envelope.payload.get("type") == "app_rate_limited"
        if self._missed.arrived(self.clock.now(), retried=envelope.attempt > 0, dropped=dropped):
            _url_log.info("events may have been missed; looking for them")
            self.on_gap()
        if dropped:
            _url_log.warning("Slack dropped events: rate limit reached")
            return None
        # In a task of its own, so that the end of the connection or the server does not cancel a listener halfway.
        task = self._handling.run(self._handled(envelope), kind)
        try:
            answer = await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise NotTaken(503, "STOPPING", "The bot stopped before it took this.") from None
        if isinstance(answer, NotTaken):
            raise answer
        return answer

    async def _handled(self, envelope: Envelope) -> Json | NotTaken | None:
        try:
            return await self._handle(envelope)
        except Unacknowledged as error:
            _url_log.warning("not acknowledged", type=_kind(envelope.payload), reason=str(error))
        except Exception:  # noqa: BLE001 - Slack gets a 500, and the next request may work
            _url_log.exception("cannot handle a request from Slack", type=_kind(envelope.payload))
        return NotTaken(500, "NOT_TAKEN", "Not taken; the log says why.")


def _envelope(headers: Mapping[str, str], body: bytes) -> Envelope:
    """Decodes a request.

    Raises:
        ValueError, RecursionError: it cannot be read.
    """
    retry = headers.get("x-slack-retry-num", "")
    attempt = int(retry) if retry.isascii() and retry.isdigit() and len(retry) < 4 else 0
    reason = headers.get("x-slack-retry-reason", "") if attempt else ""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    payload = json.loads(body) if media_type == "application/json" else _form(body)
    if not isinstance(payload, dict):
        raise ValueError("not an object")  # noqa: TRY004 - the request is wrong, not an argument
    return Envelope(payload, attempt, reason)


def _form(body: bytes) -> Any:
    """Returns a command's fields, or an interaction's JSON from the field `payload`.

    Bolt takes any form that contains the word "payload" for an interaction, and would lose such commands.
    """
    text = body.decode()
    fields = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"))
    if not fields:
        raise ValueError("no fields")
    return json.loads(fields["payload"]) if "payload" in fields and "command" not in fields else fields


def _kind(payload: Json) -> str:
    """Returns the kind of a payload, for the log."""
    event = payload.get("event")
    kind = event.get("type") if isinstance(event, dict) else payload.get("type") or payload.get("command")
    return str(kind)[:40]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SlackParts:
    """The Slack app and its commands."""

    app: SlackApp
    commands: Commands


def build(
    base: Base,
    board: OnCallBoard,
    show: ShowParts,
    *,
    sessions: Sessions,
    page_actions: PageActions,
    home: HomeTabs,
    unread: Unread,
    catch_up: CatchUp,
    events_missed: Callable[[], None],
    refresh: Callable[[str], None],
    prove: Callable[[Clarification, int], Awaitable[Proof]],
    passed: Callable[[], None],
    counted: Callable[[int], Coroutine[Any, Any, None]],
    replicas: Callable[[], int],
    look_at: Callable[[str], None],
    app_removed: Callable[[], None],
    added: Added,
) -> SlackParts:
    """`added`: the commands of integrations. `look_at`, `app_removed`: see `Handlers`. Calls `events_missed` when Slack may have had events that we did not get, `refresh`
    when someone saw outdated controls of a clarification, `passed` for each request from Slack; `prove`
    checks the receipt of a round; `counted` and `replicas`: see `SlackSocket`.
    """
    settings, clock, people, messages = base.settings, base.clock, base.people, board.messages
    transport = _transport(base, events_missed, counted, replicas)
    memory, later = SlackMemory(base.store), Background()
    threads = Threads(
        messages=messages,
        pages=board.pages,
        rollups=RollupThreads(messages, show.rollups),
        index=base.index,
        ledger=base.ledger,
        audiences=base.audiences,
        paged=board.incidents.paged,
    )
    answering = Answering(
        router=base.router,
        ledger=base.ledger,
        memory=memory,
        messages=messages,
        access=board.access,
        people=people,
        renderer=base.renderer,
        index=base.index,
        audiences=base.audiences,
        unread=unread,
        clock=clock,
        refresh=refresh,
        prove=prove,
    )
    commands = build_commands(
        base,
        board,
        show,
        sessions,
        hear=unread.hear,
        to_plain=lambda text: mrkdwn.plain(text, people.known_name, drop=people.bot_user),
        refresh=refresh,
        added=added,
    )

    def group_of(clarification: str) -> Group | None:
        summary = base.index.get(clarification)
        return None if summary is None else show.rollups.group(summary)

    interactions = Interactions(
        answering=answering,
        commands=commands,
        gateway=base.gateway,
        later=later,
    )
    typed = TypedMessages(
        answering=answering,
        commands=commands,
        threads=threads,
        memory=memory,
        messages=messages,
        people=people,
        unread=unread,
        clock=clock,
    )
    conversation = Conversation(
        typed=typed,
        memory=memory,
        messages=messages,
        unread=unread,
        delivery=show.delivery,
        gateway=base.gateway,
        clock=clock,
        later=later,
        catch_up=catch_up.schedule,
    )
    backfill = Backfill(
        web=base.web,
        memory=memory,
        messages=messages,
        threads=threads,
        unread=unread,
        availability=base.availability,
        conversation=conversation,
        catch_up=catch_up,
        clock=clock,
    )
    app = SlackApp(
        settings=settings,
        web=base.web,
        transport=transport,
        handlers=Handlers(
            answering=answering,
            interactions=interactions,
            origin=OriginCheck(
                installation=base.store.installation,
                messages=messages,
                incidents=board.incidents,
                pages=board.pages,
                adopt=show.messenger.adopt,
                group_of=group_of,
                foreign=transport.suspect,
            ),
            typed=typed,
            page_actions=page_actions,
            conversation=conversation,
            people=people,
            home=home,
            tell_others=base.store.tell,
            channel_renamed=partial(channel_renamed, base.store),
            look_at=look_at,
            app_removed=app_removed,
        ),
        backfill=backfill,
        later=later,
        availability=base.availability,
        acts=base.acts,
        passed=passed,
        clock=clock,
    )
    return SlackParts(app=app, commands=commands)


def _transport(
    base: Base,
    events_missed: Callable[[], None],
    counted: Callable[[int], Coroutine[Any, Any, None]],
    replicas: Callable[[], int],
) -> SlackSocket | RequestUrl:
    settings = base.settings
    if settings.slack.mode == "http" and settings.signing_secret is not None:
        return RequestUrl(
            signing_secret=settings.signing_secret.get_secret_value(),
            on_gap=events_missed,
            clock=base.clock,
        )
    return SlackSocket(
        web=base.web,
        app_token=settings.app_token.get_secret_value() if settings.app_token else "",
        clock=base.clock,
        jitter=base.rng.random,
        counted=counted,
        replicas=replicas,
        on_return=events_missed,
        availability=base.availability,
    )
