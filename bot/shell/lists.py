# ruff: noqa: PLC0415 - what a command needs is imported when it runs, so that `--help` is quick
"""`clarify list`, `show`, `stale`, `mine`: what there is, read without a lock, also while the bot runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from bot.shell.completion import complete_id, complete_role
from bot.shell.options import ConfigOption, DurationOption, JsonOption, StatusName
from bot.shell.running import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.shell.desk import Shell
    from core.clarification import Clarification
    from core.records import Raw

_NEVER = datetime.max.replace(tzinfo=UTC)


def add_lists(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("list")(list_)
    app.command("show")(show)
    app.command("stale")(stale)
    app.command("mine")(mine)


def list_(
    name: Annotated[
        str | None, typer.Argument(metavar="ISSUE", help="42 (or '#42'): only of this issue.")
    ] = None,
    *,
    issue: Annotated[int | None, typer.Option(help="The same.", min=1)] = None,
    status: Annotated[list[StatusName] | None, typer.Option(help="Only these; may be repeated.")] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", help="Only asked by this role or agent.", autocompletion=complete_role),
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="Only put to this role.", autocompletion=complete_role)
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Also those that are answered or closed.")] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """List what is open, the most urgent first."""

    async def work(shell: Shell) -> None:
        from bot.shell.finding import everywhere, has_status, issue_of
        from core.clarification import OPEN, agent_key
        from core.errors import BadInput

        only = issue if name is None else issue_of(name)
        if name is not None and (only is None or issue not in {None, only}):
            raise BadInput(f"“{name[:40]}” is not the number of an issue: 42, or '#42'.")
        statuses = frozenset(status or ()) or (None if all_ else OPEN)

        def wanted(item: Raw) -> bool:
            return (
                (statuses is None or has_status(item, statuses))
                and (from_ is None or agent_key(str(item.get("from"))) == agent_key(from_))
                and (to is None or agent_key(str(item.get("to"))) == agent_key(to))
            )

        found, troubles = await everywhere(shell, wanted, only)
        _tell(shell, found, troubles, "Nothing of that kind is there.")

    run(work, config, json)


def stale(*, config: ConfigOption = None, json: JsonOption = False) -> None:
    """List what waits for too long: overdue, reminded of, or escalated."""

    async def work(shell: Shell) -> None:
        from bot.shell.finding import everywhere, is_open

        now = shell.clock.now()
        found, troubles = await everywhere(shell, is_open)
        late = [record for record in found if _is_late(record, now)]
        _tell(shell, late, troubles, "Nothing is stale: no open question is overdue or escalated.")

    run(work, config, json)


def mine(
    *,
    role: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="ROLE", help="What is put to this role instead.", autocompletion=complete_role
        ),
    ] = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """List what waits for you: open questions that people answer, and escalated ones."""

    async def work(shell: Shell) -> None:
        from bot.shell import words
        from bot.shell.finding import everywhere, is_open
        from core.clarification import agent_key

        wanted = words.role(role)
        agents = {
            agent_key(name) for name, each in shell.settings.responders.items() if each.kind != "people"
        }

        def waits(record: Clarification) -> bool:
            if wanted is not None:
                return agent_key(record.to) == agent_key(wanted)
            return record.status == "escalated" or agent_key(record.to) not in agents

        found, troubles = await everywhere(shell, is_open)
        whom = f"for {wanted}" if wanted is not None else "for you"
        _tell(shell, [record for record in found if waits(record)], troubles, f"Nothing waits {whom}.")

    run(work, config, json)


def show(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="CLR-42-001, or 42 (or '#42') for everything of issue 42.",
            autocompletion=complete_id,
        ),
    ] = None,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the answer first.")] = False,
    timeout: DurationOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Show a clarification with its whole thread: who said what, when, through what."""

    async def work(shell: Shell) -> None:
        from bot.shell.finding import WHICH, by_id, issue_of, of_issue, one
        from bot.shell.records import whole
        from bot.views.records import record_json
        from core.errors import BadInput

        if not name:
            raise BadInput(WHICH)
        if wait:
            from bot.shell.times import seconds_of
            from bot.shell.waiting import answered

            seconds = seconds_of(timeout)
            records = [await answered(shell, await one(shell, name), seconds)]
        elif (issue := issue_of(name)) is not None:
            records = await of_issue(shell, issue)
            data = {"issueNumber": issue, "clarifications": [record_json(each) for each in records]}
            shell.out.show(data, *(part for each in records for part in whole(each, shell.clock.now())))
            return
        else:
            records = [await by_id(shell, name)]
        shell.out.show(record_json(records[0]), *whole(records[0], shell.clock.now()))

    run(work, config, json)


def _tell(shell: Shell, records: list[Clarification], troubles: Sequence[str], empty: str) -> None:
    """Print them; where something cannot be read all is not well, and the list may lack something."""
    from bot.shell.records import table
    from bot.views.records import record_json

    records.sort(key=_urgency)
    shell.out.show([record_json(each) for each in records], table(records, shell.clock.now(), empty))
    for trouble in troubles:
        shell.out.note(f"clarify: {trouble}")
    if troubles:
        raise typer.Exit(1)


def _urgency(record: Clarification) -> tuple[bool, bool, datetime, datetime, str]:
    """Open ones first, of these the escalated ones, then by the time left; closed ones: the latest first."""
    if record.is_open:
        left = record.asked.expires_at or _NEVER
        return False, record.status != "escalated", left, record.asked_last, record.id
    age = _NEVER - (record.asked_last - datetime.min.replace(tzinfo=UTC))
    return True, False, age, age, record.id


def _is_late(record: Clarification, now: datetime) -> bool:
    overdue = record.stale_after is not None and record.stale_after <= now
    return overdue or record.nudges > 0 or record.status in {"stale", "escalated"}
