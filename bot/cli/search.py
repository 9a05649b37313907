"""`clarify search`: finds decisions again, also those that no channel shows, whether the bot runs or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bot.cli.output import Output
from bot.cli.records import exact, table
from bot.cli.running import require_storage
from bot.decisions.query import Search, Token, parsed, tokens_of
from bot.decisions.search import find
from bot.settings.load import load_shell_settings, read_environment
from bot.views.lists import past_row
from core.clock import iso, moment_of
from core.errors import BadInput
from core.summary import PastDecision

_EVERYTHING = 10**9


def decisions(
    out: Output,
    config: Path | None,
    words: Sequence[str],
    *,
    by: str | None,
    agent: str | None,
    since: str | None,
    until: str | None,
    limit: int,
) -> None:
    """Print the decisions that match, newest first. `by`, `agent`, `since`: as the words after these names. `limit`: how many
    to print at most; 0: all.

    Raises:
        BadInput: says what was expected.
        StorageUnavailable: the storage cannot be read.
    """
    now = datetime.now(UTC)
    search = _search(words, {"by": by, "agent": agent}, since, until, now)
    settings = load_shell_settings(config, read_environment())
    require_storage(settings)
    most = limit or _EVERYTHING
    found = find(settings.storage.path, settings.database_url, search, now, most=most + 1)
    shown = found[:most]
    span = f" since {exact(now - search.span)}" if search.span else ""
    span += f" until {exact(search.until)}" if search.until else ""
    nothing = f"Nothing found in the questions, answers, comments, IDs and agents' names of decisions{span}."
    data = {"decisions": [_as_json(each) for each in shown], "more": len(found) > most}
    out.show(data, table(map(past_row, shown), now, nothing))
    if len(found) > most:
        out.note(f"clarify: these are the newest {most}; --limit 0 shows all")


def _search(
    words: Sequence[str],
    given: Mapping[str, str | None],
    since: str | None,
    until: str | None,
    now: datetime,
) -> Search:
    tokens = [
        token
        for word in words
        for token in ([Token(word, is_quoted=True)] if " " in word else tokens_of(word))
    ]
    for name, value in given.items():
        if value is not None:
            tokens += [Token(name), Token(value, is_quoted=True)]
    search = parsed(tokens)
    if since is not None:
        if search.span is not None:
            raise BadInput("“since” is given twice.")
        search = search._replace(span=now - moment_of(since, now, "--since"))
    if until is not None:
        search = search._replace(until=moment_of(until, now, "--until"))
    if not any(search):
        raise BadInput(
            "What are you looking for? For example: clarify search rotate keys --by ann@example.com"
        )
    return search._replace(by=tuple(each.removeprefix("@") for each in search.by))


def _as_json(each: PastDecision) -> dict[str, Any]:
    return {
        "id": each.clarification,
        "decidedAt": iso(each.at),
        "agent": each.agent,
        "outcome": each.outcome,
        "decision": each.decision,
        "decidedBy": [{"name": who.name, "user": who.user} for who in each.by],
        "question": each.question,
        "answer": each.answer or None,
        "channel": each.channel,
        "ts": each.ts,
    }
