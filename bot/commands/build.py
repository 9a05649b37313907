"""Builds `/clarify`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bot.base import Base
from bot.commands.commands import ChangeCommands, Commands, OnCallTurns
from bot.commands.grammar import Added
from bot.commands.lists import Access, Lists, PastDecisions
from bot.commands.slackhost import SlackHost
from bot.decisions.search import DecisionSearch
from bot.intake.intake import Sessions
from bot.oncall.build import OnCallBoard
from bot.show.build import DeliveryParts
from core.hub import Hub


def build(
    base: Base,
    board: OnCallBoard,
    shown: DeliveryParts,
    sessions: Sessions,
    *,
    hear: Callable[[str, float | None], Awaitable[None]],
    to_plain: Callable[[str], str],
    refresh: Callable[[str], None],
    added: Added,
) -> Commands:
    """`hear`, `to_plain`, `refresh`, `added`: see `ChangeCommands` and `Commands`."""
    settings, ledger, clock = base.settings, base.ledger, base.clock
    access = Access(board.access, board.roster, board.incidents.paged, settings)
    lists = Lists(
        index=base.index,
        ledger=ledger,
        access=access,
        permalinks=board.permalinks,
        sessions=sessions.facts,
        clock=clock,
        locale_of=base.people.known_locale,
    )
    return Commands(
        lists=lists,
        changes=ChangeCommands(
            hub=Hub(router=base.router, ledger=ledger, scopes=base.scopes, clock=clock),
            lists=lists,
            access=access,
            hear=hear,
            to_plain=to_plain,
        ),
        turns=OnCallTurns(
            roster=board.roster,
            access=access,
            delivery=shown.delivery,
            settings=settings,
            clock=clock,
        ),
        past=PastDecisions(
            search=DecisionSearch(
                storage=settings.storage.path, url=settings.database_url, people=base.people, clock=clock
            ),
            permalinks=board.permalinks,
            to_plain=to_plain,
        ),
        added=added,
        host=SlackHost(
            ledger=ledger,
            clock=clock,
            access=access,
            people=base.people,
            messages=board.messages,
            delivery=shown.delivery,
            renderer=base.renderer,
        ),
        renderer=base.renderer,
        refresh=refresh,
    )
