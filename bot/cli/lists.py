"""`clarify list`, `stale`, `mine`, `show`: what there is, read without a lock, also while the bot runs."""

from __future__ import annotations

from collections.abc import Collection

from bot.cli.finding import WHICH, by_id, everywhere, has_status, is_open, issue_of, of_issue, one
from bot.cli.records import table, whole
from bot.cli.running import Shell, checked_role
from bot.cli.waiting import answered, seconds_of
from bot.views.records import record_json
from core.clarification import OPEN, Clarification, agent_key
from core.errors import BadInput
from core.index import is_late, urgency
from core.records import Raw


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
    """List those of an issue, of some statuses, of who asks and who is asked; without statuses, the open ones."""
    only = issue if name is None else issue_of(name)
    if name is not None and (only is None or issue not in {None, only}):
        raise BadInput(f"“{name[:40]}” is not the number of an issue: 42, or '#42'.")
    shown = frozenset(statuses) or (None if every_status else OPEN)

    def wanted(item: Raw) -> bool:
        return (
            (shown is None or has_status(item, shown))
            and (from_ is None or agent_key(str(item.get("from"))) == agent_key(from_))
            and (to is None or agent_key(str(item.get("to"))) == agent_key(to))
        )

    found, problems = await everywhere(shell, wanted, only)
    _tell(shell, found, problems, "Nothing of that kind is there.")


async def stale(shell: Shell) -> None:
    """List what waits for too long: overdue, reminded of, or escalated."""
    now = shell.clock.now()
    found, problems = await everywhere(shell, is_open)
    late = [record for record in found if is_late(record, now)]
    _tell(shell, late, problems, "Nothing is stale: no open question is overdue or escalated.")


async def mine(shell: Shell, role: str | None) -> None:
    """List what waits for people, or for the agent of `role`."""
    wanted = None if role is None else checked_role(role)
    agents = {agent_key(name) for name, each in shell.settings.responders.items() if each.kind != "people"}

    def waits(record: Clarification) -> bool:
        if wanted is not None:
            return agent_key(record.to) == agent_key(wanted)
        return record.status == "escalated" or agent_key(record.to) not in agents

    found, problems = await everywhere(shell, is_open)
    whom = f"for {wanted}" if wanted is not None else "for you"
    _tell(shell, [record for record in found if waits(record)], problems, f"Nothing waits {whom}.")


async def show(shell: Shell, name: str | None, timeout: str | None, *, wait: bool) -> None:
    """Show one with its whole thread, or all of an issue; with `wait` once it has an answer."""
    if not name:
        raise BadInput(WHICH)
    now = shell.clock.now
    if not wait and (issue := issue_of(name)) is not None:
        records = await of_issue(shell, issue)
        data = {"issueNumber": issue, "clarifications": [record_json(each) for each in records]}
        shell.out.show(data, *(part for each in records for part in whole(each, now())))
        return
    if wait:
        seconds = seconds_of(timeout)
        record = await answered(shell, await one(shell, name), seconds)
    else:
        record = await by_id(shell, name)
    shell.out.show(record_json(record), *whole(record, now()))


def _tell(shell: Shell, records: list[Clarification], problems: list[str], empty: str) -> None:
    records.sort(key=_order)
    shell.out.show([record_json(each) for each in records], table(records, shell.clock.now(), empty))
    shell.tell_problems(problems)


def _order(record: Clarification) -> tuple[bool, bool, tuple[float, float], str]:
    """Open ones first, of these the escalated ones, then by the time left; closed ones: the latest first."""
    if record.is_open:
        return False, record.status != "escalated", urgency(record), record.id
    return True, False, (-record.asked_last.timestamp(), 0.0), record.id
