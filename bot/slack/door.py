"""The Slack side as one part: who we are, what was missed, then the open door for clicks and replies."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import structlog
from slack_bolt.authorization import AuthorizeResult
from slack_sdk.web.async_client import AsyncWebClient

from bot.delivery.memory import SqliteSlackMemory
from bot.desk import Desk
from bot.errors import ConfigurationError, SlackRefusedError, SlackUnreachableError
from bot.ports import Teller
from bot.render import Renderer
from bot.replies import ThreadReplies
from bot.settings import Settings
from bot.slack import mrkdwn
from bot.slack.app import build_app, dispatcher, who_am_i
from bot.slack.backfill import Backfill
from bot.slack.gate import Gate
from bot.slack.intake import Intake
from bot.slack.later import Later
from bot.slack.people import People
from bot.slack.socket import SlackSocket
from bot.slack.surface import Surface
from core.clarification import Clarification
from core.clock import Clock
from core.index import Index
from core.ledger import FileLedger
from core.router import Router

_log = structlog.get_logger("clarify.slack")
_RETRY = 5.0


class SlackDoor:
    """`introduce`, `catch_up`, `open`, in this order; `close` at any time."""

    def __init__(
        self,
        *,
        settings: Settings,
        web: AsyncWebClient,
        people: People,
        router: Router,
        ledger: FileLedger,
        memory: SqliteSlackMemory,
        renderer: Renderer,
        index: Index,
        teller: Teller,
        refresh: Callable[[str], None],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._settings = settings
        self._web = web
        self._people = people
        self._router = router
        self._ledger = ledger
        self._memory = memory
        self._renderer = renderer
        self._index = index
        self._teller = teller
        self._refresh = refresh
        self._clock = clock
        self._rng = rng
        self._later = Later()
        self.ready = asyncio.Event()  # clicks are taken
        self._intake: Intake | None = None
        self._backfill: Backfill | None = None
        self._socket: SlackSocket | None = None

    @property
    def connected(self) -> bool:
        """Whether clicks reach us now."""
        return self._socket is not None and self._socket.connected

    async def introduce(self) -> None:
        """Learn from Slack who we are and who may answer; waits for as long as Slack is away.

        Raises:
            ConfigurationError: a token that Slack refuses, or a route that nobody could answer.
        """
        while True:
            try:
                me = await who_am_i(self._web, self._clock)
                gate = Gate(self._people, self._settings, me.team_id or "")
                await gate.check()
                break
            except SlackUnreachableError as error:
                _log.warning("Slack does not answer", reason=str(error))
                await self._clock.sleep(_RETRY)
            except SlackRefusedError as error:
                raise ConfigurationError(
                    [f"Slack refuses the token in SLACK_BOT_TOKEN: {error.code}"]
                ) from error
        self._build(me, gate)

    def _build(self, me: AuthorizeResult, gate: Gate) -> None:
        desk = Desk(
            router=self._router,
            records=self._ledger,
            memory=self._memory,
            gate=gate,
            modals=self._renderer,
            index=self._index,
            clock=self._clock,
            to_plain=lambda text: mrkdwn.plain(text, self._people.known_name),
            refresh=self._refresh,
        )
        self._intake = Intake(
            replies=ThreadReplies(
                desk=desk, records=self._ledger, memory=self._memory, which=self._which, clock=self._clock
            ),
            memory=self._memory,
            teller=self._teller,
            clock=self._clock,
            later=self._later,
            bot_user=me.bot_user_id or "",
            home_team=me.team_id or "",
            name_of=self._people.known_name,
        )
        surface = Surface(
            desk=desk,
            teller=self._teller,
            web=self._web,
            intake=self._intake,
            people=self._people,
            later=self._later,
        )
        app = build_app(web=self._web, me=me, surface=surface)
        self._backfill = Backfill(web=self._web, memory=self._memory, intake=self._intake, clock=self._clock)
        token = self._settings.secrets.app_token
        self._socket = SlackSocket(
            web=self._web,
            app_token=token.get_secret_value() if token else "",
            dispatch=dispatcher(app),
            clock=self._clock,
            jitter=self._rng.random,
            on_return=self._backfill.run,
        )

    async def catch_up(self) -> None:
        """Take in what people wrote while nobody listened."""
        if self._intake is None or self._backfill is None:
            raise RuntimeError("catch_up() before introduce()")
        await self._intake.resume()
        await self._backfill.run()
        await self._intake.idle()

    async def open(self) -> None:
        """Take clicks and replies, until `close` or until the supervision dies."""
        if self._socket is None:
            raise RuntimeError("open() before introduce()")
        try:
            await self._socket.start()
        except SlackRefusedError as error:
            raise ConfigurationError([f"Slack refuses the token in SLACK_APP_TOKEN: {error.code}"]) from error
        self.ready.set()
        _log.info("ready for clicks")
        await self._socket.wait()

    async def close(self) -> None:
        """Take nothing more; what is in work finishes and is acknowledged."""
        if self._socket is not None:
            await self._socket.stop()
        await self._later.drain()

    def _which(self, records: list[Clarification], text_id: str) -> tuple[str, list[dict[str, Any]]]:
        message = self._renderer.which_question(records, text_id)
        return message.text, message.blocks
