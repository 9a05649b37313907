"""`clarify list`, `stale`, `mine`, `show`: lists clarifications without a lock, even while the bot runs. Also finds
clarifications by id, in any spelling, or by issue number.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing

from bot.cli.records import table, whole
from bot.cli.running import Shell, answered, checked_role, seconds_of
from bot.commands.grammar import id_of
from bot.views.lists import row_of
from bot.views.records import record_json
from bot.views.wording import round_of
from core.clarification import OPEN, Clarification, agent_key
from core.errors import BadInput, NotFound, RecordUnreadable
from core.ledger import Contents
from core.records import Raw
from core.summary import is_late, order

_ISSUE = re.compile(r"#?([0-9]{1,9})")
WHICH = "Which question? Give its id or issue number: CLR-42-001, or 42. (The shell reads an unquoted #42 as a comment.)"


async def some(
    shell: Shell,
    name: str | None,
    issue: int | None,
    statuses: Collection[str],
    *,
    from_: str | None,
    to: str | None,
    every_status: bool,
) -> None:
    """List clarifications by issue, status, asker and target; without a status, the open ones."""
    only = issue if name is None else issue_of(name)
    if name is not None and (only is None or issue not in {None, only}):
        raise BadInput(f"“{name[:40]}” is not an issue number, such as 42 or '#42'.")
    shown = frozenset(statuses) or (None if every_status else OPEN)

    def wanted(record: Clarification) -> bool:
        return (
            (shown is None or record.status in shown)
            and (from_ is None or agent_key(record.from_) == agent_key(from_))
            and (to is None or agent_key(record.to) == agent_key(to))
        )

    waiting = shown is not None and shown <= OPEN
    await _list(shell, wanted, "No matching questions.", only, waiting=waiting)


async def stale(shell: Shell) -> None:
    """List overdue questions: late, reminded or escalated."""
    now = shell.clock.now()

    def late(record: Clarification) -> bool:
        return record.is_open and is_late(record, now)

    await _list(shell, late, "Nothing is overdue or escalated.")


async def mine(shell: Shell, role: str | None) -> None:
    """List the questions that wait for people, or for the agent of `role`."""
    wanted = None if role is None else checked_role(role)
    agents = {agent_key(name) for name, each in shell.settings.responders.items() if each.kind != "people"}

    def waits(record: Clarification) -> bool:
        to = agent_key(record.to)
        is_theirs = to == agent_key(wanted) if wanted else record.status == "escalated" or to not in agents
        return record.is_open and is_theirs

    await _list(shell, waits, f"Nothing is waiting for {wanted or 'you'}.")


async def show(shell: Shell, name: str | None, timeout: str | None, *, wait: bool) -> None:
    """Show one question with its whole thread, or all of an issue; with `wait`, once it has an answer."""
    if not name:
        raise BadInput(WHICH)
    now = shell.clock.now
    if not wait and (issue := issue_of(name)) is not None:
        records = await of_issue(shell, issue)
        tampered = await shell.ledger.tampered_among(records)
        data = {"issueNumber": issue, "clarifications": _as_json(records, tampered)}
        shell.out.show(
            data,
            *(part for each in records for part in whole(each, now(), is_tampered=each.id in tampered)),
        )
        return
    if wait:
        seconds = seconds_of(timeout)
        record = await answered(shell, await one(shell, name), seconds)
    else:
        record = await by_id(shell, name)
    tampered = await shell.ledger.tampered_among([record])
    (data,) = _as_json([record], tampered)
    shell.out.show(data, *whole(record, now(), is_tampered=bool(tampered)))


def _as_json(records: Sequence[Clarification], tampered: Collection[str]) -> list[Raw]:
    return [record_json(each) | ({"tampered": True} if each.id in tampered else {}) for each in records]


async def _list(
    shell: Shell,
    wanted: Callable[[Clarification], bool],
    empty: str,
    issue: int | None = None,
    *,
    waiting: bool = True,
) -> None:
    """Shows the records, all or of one issue, that `wanted` accepts: escalated ones first, closed ones last. `waiting`: only
    those that need something.
    """
    records: list[Clarification] = []

    def take(record: Clarification) -> None:
        if wanted(record):
            records.append(record)

    problems = await each_record(shell.ledger.every(issue=issue, waiting=waiting), take)
    records.sort(key=lambda each: (each.status != "escalated", order(each)))
    tampered = await shell.ledger.tampered_among(records)
    rows = [row_of(round_of(each), is_tampered=each.id in tampered) for each in records]
    shell.out.show(_as_json(records, tampered), table(rows, shell.clock.now(), empty))
    shell.tell_problems(problems)


def issue_of(name: str) -> int | None:
    """Returns 42 for `42` and `#42`; None if it is not an issue number."""
    match = _ISSUE.fullmatch(name.strip())
    return int(match[1]) if match else None


async def by_id(shell: Shell, name: str) -> Clarification:
    """Returns one clarification.

    Raises:
        BadInput: not an id.
        NotFound: no such record.
    """
    return await shell.ledger.find(id_of(name) or name.strip())


async def of_issue(shell: Shell, issue: int) -> list[Clarification]:
    """Returns all clarifications of an issue, in the order of their numbers.

    Raises:
        NotFound: it has none.
        LedgerUnreadable: it has some, and none can be read.
    """
    records, odd = await shell.ledger.read(issue)
    if not records:
        raise RecordUnreadable(odd[0], issue) if odd else NotFound(f"of issue {issue}")
    for each in odd:
        shell.out.note(unreadable(each))
    return records


async def one(shell: Shell, name: str | None, *, is_open: bool = True) -> Clarification:
    """Returns a clarification by its id, or the only open (or answered) one of an issue.

    Raises:
        BadInput: not an id or issue number, or the issue has several.
        NotFound: there is none.
    """
    if not name:
        raise BadInput(WHICH)
    if (issue := issue_of(name)) is None:
        return await by_id(shell, name)
    kind = "open" if is_open else "open or answered"
    statuses = OPEN if is_open else OPEN | {"answered"}
    meant = [record for record in await of_issue(shell, issue) if record.status in statuses]
    if not meant:
        raise NotFound(f"of issue {issue} that is {kind}")
    if len(meant) > 1:
        ids = ", ".join(record.id for record in meant)
        raise BadInput(f"{len(meant)} questions of issue {issue} are {kind}; give one id: {ids}.")
    return meant[0]


async def each_record(every: AsyncGenerator[Contents], take: Callable[[Clarification], object]) -> list[str]:
    """Pass every record to `take`; returns messages about what cannot be read."""
    problems: list[str] = []
    async with aclosing(every):
        async for some in every:
            problems += [unreadable(each) for each in some.unreadable]
            for record in some.records:
                take(record)
    return problems


def unreadable(clarification: str) -> str:
    return f"{clarification} cannot be read: its row in the database is not valid."
