"""What the shell can complete besides typer's own: IDs, agents, and the options of the commands that agents start."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import clarify
from bot.cli.install import hook_parser, mcp_parser
from bot.cli.lists import each_record
from bot.cli.output import Output
from bot.cli.running import open_shell
from bot.settings.load import load_shell_settings, read_environment
from bot.views import inert
from bot.views.wording import round_of
from core.clarification import Clarification
from core.summary import order

_QUESTION = 60
# Shells evaluate what they are offered, and agents write it.
_NAME = re.compile(r"[A-Za-z0-9_.@/-]+")
_UNSAFE = re.compile(r"[^\w ,.?!-]+")
PARSERS = {
    "ask": lambda: clarify.shell_parser("ask"),
    "approve": lambda: clarify.shell_parser("approve"),
    "hook": hook_parser,
    "mcp": mcp_parser,
    "guard": clarify.guard_parser,
}


def ids(ctx: Any, incomplete: str) -> list[tuple[str, str]]:
    """Returns the open questions whose IDs begin so, the most urgent first, with what they ask."""
    found = sorted((each for each in _open_ones(ctx) if each.id.startswith(incomplete.upper())), key=order)
    return [(each.id, inert.clip(_harmless(round_of(each).question), _QUESTION)) for each in found]


def agents(ctx: Any, incomplete: str) -> list[str]:
    """Returns the agents and roles that begin so: of open questions and of the configuration."""
    names = {name for each in _open_ones(ctx) for name in (each.from_, each.to)}
    with suppress(Exception):
        names |= {*load_shell_settings(ctx.params.get("config"), read_environment()).responders}
    return sorted(each for each in names if each.startswith(incomplete) and _NAME.fullmatch(each))


def _harmless(text: str) -> str:
    """Returns a text as one line of words, without what means something to a shell or to rich."""
    return " ".join(_UNSAFE.sub(" ", inert.line(text)).split())


def of_parser(command: str, words: Sequence[str], incomplete: str) -> list[tuple[str, str]]:
    """Returns what may follow `words` of a command of argparse's: options, or the choices of an option or argument."""
    actions = PARSERS[command]()._actions  # noqa: SLF001 - argparse has no other list of them
    by_option = {option: each for each in actions for option in each.option_strings}
    before = by_option.get(words[-1]) if words else None
    if before is not None and before.nargs != 0:
        found = [(str(each), "") for each in before.choices or ()]
    elif incomplete.startswith("-"):
        found = [(option, each.help or "") for option, each in by_option.items() if option.startswith("--")]
    else:
        found = [(str(each), "") for one in actions if not one.option_strings for each in one.choices or ()]
    return [(value, about) for value, about in found if value.startswith(incomplete)]


def _open_ones(ctx: Any) -> list[Clarification]:
    """Reads the open questions. None if that fails, since there is no place for an error."""
    found: list[Clarification] = []

    async def read() -> None:
        async with open_shell(ctx.params.get("config"), Output(json=False), creates=False) as shell:
            await each_record(shell.ledger.every(waiting=True), found.append)

    with suppress(Exception):
        asyncio.run(read())
    return [each for each in found if each.is_open]
