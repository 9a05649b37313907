"""Builds the Slack app."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from bot.base import Base
from bot.commands.commands import Commands, build_commands
from bot.commands.grammar import Added
from bot.decisions.log import channel_renamed
from bot.home import HomeTabs
from bot.intake.intake import Sessions
from bot.oncall.actions import PageActions
from bot.oncall.build import OnCallBoard
from bot.routing import Group
from bot.show.build import DeliveryParts
from bot.show.desired import RollupThreads
from bot.show.memory import SlackMemory
from bot.slack import mrkdwn
from bot.slack.answering import Answering, Interactions
from bot.slack.app import RequestUrl, SlackApp
from bot.slack.conversation import Backfill, CatchUp, Conversation
from bot.slack.listeners import Handlers, OriginCheck
from bot.slack.socket import Background, SlackSocket
from bot.slack.threads import Threads, Unread
from bot.slack.typed import TypedMessages
from bot.views.verify import Proof
from core.clarification import Clarification


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SlackParts:
    """The Slack app and its commands."""

    app: SlackApp
    commands: Commands


def build(
    base: Base,
    board: OnCallBoard,
    shown: DeliveryParts,
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
        rollups=RollupThreads(messages, shown.rollups),
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
        shown,
        sessions,
        hear=unread.hear,
        to_plain=lambda text: mrkdwn.plain(text, people.known_name, drop=people.bot_user),
        refresh=refresh,
        added=added,
    )

    def group_of(clarification: str) -> Group | None:
        summary = base.index.get(clarification)
        return None if summary is None else shown.rollups.group(summary)

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
        delivery=shown.delivery,
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
                adopt=shown.messenger.adopt,
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
