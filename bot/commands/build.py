"""Builds `/clarify`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bot.base import Base
from bot.commands.commands import ChangeCommands, Commands, OnCallTurns
from bot.commands.digests import Digests, WeeklyDigest
from bot.commands.lists import Access, Lists, PastDecisions
from bot.decisions.search import DecisionSearch
from bot.delivery.build import DeliveryParts
from bot.intake.intake import Sessions
from bot.oncall.build import OnCallBoard
from core.hub import Hub


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CommandParts:
    """The commands of `/clarify`, and the weekly digest if it is configured."""

    commands: Commands
    weekly_digest: WeeklyDigest | None


def build(
    base: Base,
    board: OnCallBoard,
    shown: DeliveryParts,
    sessions: Sessions,
    *,
    hear: Callable[[str, float | None], Awaitable[None]],
    to_plain: Callable[[str], str],
    refresh: Callable[[str], None],
) -> CommandParts:
    """`hear`, `to_plain`, `refresh`: see `ChangeCommands` and `Commands`."""
    settings, ledger, clock = base.settings, base.ledger, base.clock
    access = Access(board.access, board.roster, board.incidents.paged, settings)
    digests = Digests(
        ledger=ledger,
        access=access,
        clock=clock,
        people=base.people,
    )
    lists = Lists(
        index=base.index,
        ledger=ledger,
        access=access,
        permalinks=board.permalinks,
        sessions=sessions.facts,
        clock=clock,
        locale_of=base.people.known_locale,
    )
    commands = Commands(
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
        digests=digests,
        past=PastDecisions(
            search=DecisionSearch(
                storage=settings.storage.path, url=settings.database_url, people=base.people, clock=clock
            ),
            permalinks=board.permalinks,
            to_plain=to_plain,
        ),
        renderer=base.renderer,
        refresh=refresh,
    )
    weekly = (
        WeeklyDigest(
            settings.digest,
            digests=digests,
            messages=board.messages,
            delivery=shown.delivery,
            renderer=base.renderer,
            clock=clock,
        )
        if settings.digest is not None
        else None
    )
    return CommandParts(commands=commands, weekly_digest=weekly)
