"""`clarify list`, `stale`, `mine`, `show`: lists clarifications without a lock, even while the bot runs. Also finds
clarifications by id, in any spelling, or by issue number, in all ledgers, even archived ones.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Sequence

from bot.cli.records import table, whole
from bot.cli.running import Shell, checked_role
from bot.cli.waiting import answered, seconds_of
from bot.commands.grammar import id_of
from bot.views.records import record_json
from core.clarification import OPEN, TRANSITIONS, Clarification, agent_key, parse_id
from core.errors import BadInput, NotFound
from core.ledger import Ledger
from core.lists import is_late, order
from core.records import Raw, parse, why_invalid

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

    def wanted(item: Raw) -> bool:
        return (
            (shown is None or has_status(item, shown))
            and (from_ is None or agent_key(str(item.get("from"))) == agent_key(from_))
            and (to is None or agent_key(str(item.get("to"))) == agent_key(to))
        )

    found, problems = await everywhere(shell, wanted, only)
    await _tell(shell, found, problems, "No matching questions.")


async def stale(shell: Shell) -> None:
    """List overdue questions: late, reminded or escalated."""
    now = shell.clock.now()
    found, problems = await everywhere(shell, is_open)
    late = [record for record in found if is_late(record, now)]
    await _tell(shell, late, problems, "Nothing is overdue or escalated.")


async def mine(shell: Shell, role: str | None) -> None:
    """List the questions that wait for people, or for the agent of `role`."""
    wanted = None if role is None else checked_role(role)
    agents = {agent_key(name) for name, each in shell.settings.responders.items() if each.kind != "people"}

    def waits(record: Clarification) -> bool:
        if wanted is not None:
            return agent_key(record.to) == agent_key(wanted)
        return record.status == "escalated" or agent_key(record.to) not in agents

    found, problems = await everywhere(shell, is_open)
    whom = f"for {wanted}" if wanted is not None else "for you"
    await _tell(shell, [record for record in found if waits(record)], problems, f"Nothing is waiting {whom}.")


async def show(shell: Shell, name: str | None, timeout: str | None, *, wait: bool) -> None:
    """Show one question with its whole thread, or all of an issue; with `wait`, once it has an answer."""
    if not name:
        raise BadInput(WHICH)
    now = shell.clock.now
    if not wait and (issue := issue_of(name)) is not None:
        records = await of_issue(shell, issue)
        tampered = await tampered_of(shell.ledger, records)
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
    tampered = await tampered_of(shell.ledger, [record])
    (data,) = _as_json([record], tampered)
    shell.out.show(data, *whole(record, now(), is_tampered=bool(tampered)))


async def tampered_of(ledger: Ledger, records: Sequence[Clarification]) -> frozenset[str]:
    """Returns the ids of records that do not agree with their receipts."""
    return await ledger.tampered_among(records)


def _as_json(records: Sequence[Clarification], tampered: Collection[str]) -> list[Raw]:
    return [record_json(each) | ({"tampered": True} if each.id in tampered else {}) for each in records]


async def _tell(shell: Shell, records: list[Clarification], problems: list[str], empty: str) -> None:
    # Escalated ones first; closed ones come last.
    records.sort(key=lambda each: (each.status != "escalated", order(each)))
    tampered = await tampered_of(shell.ledger, records)
    shell.out.show(_as_json(records, tampered), table(records, shell.clock.now(), empty, tampered))
    shell.tell_problems(problems)


def issue_of(name: str) -> int | None:
    """Returns 42 for `42` and `#42`; None if it is not an issue number."""
    match = _ISSUE.fullmatch(name.strip())
    return int(match[1]) if match else None


async def by_id(shell: Shell, name: str) -> Clarification:
    """Returns one clarification, even an archived one.

    Raises:
        BadInput: not an id.
        NotFound: no such record.
    """
    found = id_of(name) or name.strip()
    issue, _ = parse_id(found)
    try:
        return await shell.ledger.find(found, issue)
    except NotFound:
        records: list[Clarification] = []
        await each_record(shell.ledger, records.append, issue=issue)
        for record in records:
            if record.id == found:
                return record
        raise


async def of_issue(shell: Shell, issue: int) -> list[Clarification]:
    """Returns all clarifications of an issue, in the order of the ledger.

    Raises:
        NotFound: it has none.
    """
    items = await shell.ledger.read(issue)
    records = [record for item in items if (record := parse(item)) is not None]
    if len(records) < len(items):
        shell.out.note(f"{len(items) - len(records)} more records in issue-{issue}.json are unreadable.")
    if not records:
        raise NotFound(f"of issue {issue}")
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


async def everywhere(
    shell: Shell, wanted: Callable[[Raw], bool], issue: int | None = None
) -> tuple[list[Clarification], list[str]]:
    """Returns the records of all live ledgers, or of one issue, whose raw form `wanted` accepts; and messages about what
    cannot be read.
    """
    found: list[Clarification] = []
    troubles: list[str] = []
    async for kept in shell.ledger.every(issue=issue, archived=False):
        troubles += kept.problems
        for name, items in kept.parts:
            # Other programs write ledgers, too: an item may be no object.
            records = [parse(item) for item in items if not isinstance(item, dict) or wanted(item)]
            found.extend(record for record in records if record is not None)
            if odd := sum(record is None for record in records):
                troubles.append(
                    f"{odd} record{'s' if odd > 1 else ''} in {name} {'are' if odd > 1 else 'is'} unreadable."
                )
    return found, troubles


def has_status(item: Raw, statuses: Collection[str]) -> bool:
    """Whether a raw record has one of these statuses, or an unknown one, so that it is reported as unreadable."""
    status = item.get("status")
    return status in statuses if isinstance(status, str) and status in TRANSITIONS else True


def is_open(item: Raw) -> bool:
    return has_status(item, OPEN)


async def each_record(
    ledger: Ledger,
    take: Callable[[Clarification], object],
    *,
    issue: int | None = None,
    archived: bool = True,
) -> list[str]:
    """Pass every record to `take`, ledger by ledger; returns messages about what cannot be read."""

    async def each(records: Sequence[Clarification]) -> None:
        for record in records:
            take(record)

    return await each_ledger(ledger, each, issue=issue, archived=archived)


async def each_ledger(
    ledger: Ledger,
    take: Callable[[Sequence[Clarification]], Awaitable[None]],
    *,
    issue: int | None = None,
    archived: bool = True,
) -> list[str]:
    """Pass the records of each ledger to `take`; returns messages about what cannot be read."""
    problems: list[str] = []
    async for kept in ledger.every(issue=issue, archived=archived):
        problems += kept.problems
        # The same record in two files counts once. Other programs restart numbering in a new file, so ids may repeat.
        records: dict[tuple[str, object], Clarification] = {}
        for name, items in kept.parts:
            for position, item in enumerate(items, 1):
                if (record := parse(item)) is not None:
                    records.setdefault((record.id, record.created), record)
                elif (odd := why_invalid(0, position, item)) is not None:
                    fields = ", ".join(odd.fields)
                    problems.append(f"{odd.name} in {name} is not a valid clarification (see {fields}).")
        await take(list(records.values()))
    return problems
