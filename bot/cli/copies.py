"""`clarify backup`, `restore`, `move`, `forget`: copies all data, restores a copy, moves it, deletes conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from time import monotonic

from bot.cli.output import Output, counted
from bot.cli.running import Shell
from bot.errors import BackupError, StorageError
from bot.home import forget_viewer
from bot.integrated import local_files
from bot.retention import forget as forgetting
from bot.retention.backup import Manifest
from bot.retention.backup import backup as back_up
from bot.retention.backup import move as move_to
from bot.retention.backup import restore as put_back
from bot.retention.forget import Erased, Found, Remains, Removed, Traces
from bot.settings.load import load_shell_settings, read_environment
from bot.settings.model import ShellSettings, user_id
from bot.storage.opening import Kept, kept_at
from bot.storage.sqlite import InSqlite
from core.clarification import Clarification
from core.clock import SystemClock, iso
from core.errors import BadInput

_PATIENCE = 30.0  # seconds to wait for a running bot to finish posts, deletions and ledger files
_LOOK_EVERY = 0.2
_NAMED = 20  # questions in one line
_Places = list[tuple[str, str]]  # channel, ts
_NEVER_CHANGED = (
    "What people wrote in threads is theirs to delete.",
    "Existing backups, and what a restore moved aside, are not changed.",
)


def backup(out: Output, folder: Path, config: Path | None) -> None:
    """Copy the database."""
    settings = load_shell_settings(config, read_environment())
    manifest = back_up(kept_in(settings), folder, now=SystemClock().now(), release=version("clarify-bot"))
    _tell_copied(out, manifest, f"Backed up to {folder}")


def restore(out: Output, folder: Path, config: Path | None, *, replace: bool) -> None:
    """Restore a backup."""
    settings = load_shell_settings(config, read_environment())
    local = local_files(settings)
    restored = put_back(folder, kept_in(settings), local, now=SystemClock().now(), replace=replace)
    aside = {"aside": restored.aside, "ledgerFiles": None if restored.files is None else str(restored.files)}
    _tell_copied(out, restored.manifest, f"Restored {folder}", **aside)
    if restored.aside is not None:
        out.note(f"The previous database is in {restored.aside}.")
    if restored.files is not None:
        out.note(
            f"The previous ledger files are in {restored.files}. What other programs wrote there after the backup is not taken "
            "in; the bot writes the files anew when it starts."
        )


def move(out: Output, to: str, config: Path | None, *, replace: bool) -> None:
    """Move everything into another database."""
    environ = read_environment()
    settings = load_shell_settings(config, environ)
    source, target = kept_in(settings), _named(to, environ)
    try:
        moved = move_to(source, target, now=SystemClock().now(), replace=replace)
    except OSError as error:
        raise BackupError(f"Not moved: {error.filename or target.name}: {error.strerror}.") from error
    rows, tables = sum(moved.rows.values()), len(moved.rows)
    data = {"from": source.name, "to": target.name, "rows": rows, "tables": tables, "aside": moved.aside}
    out.show(
        data,
        f"Moved {source.name} to {target.name}: {rows:,} rows in {tables} tables, each the same as in the original.",
    )
    if moved.aside is not None:
        out.note(f"What was in {target.name} before is in {moved.aside}.")
    for line in _next_steps(settings, source, target, to if to in environ else "CLARIFY_DATABASE_URL"):
        out.note(line)


def _named(to: str, environ: Mapping[str, str]) -> Kept:
    """Returns the database with an address or a file's name, or with the address that is in a variable.

    Raises:
        BadInput: it is none of these.
    """
    place = environ.get(to, to)
    if place.startswith(("postgresql://", "postgres://")):
        kept = kept_at(Path(), place)
        try:
            kept.name  # noqa: B018 - checks the address
        except StorageError as error:
            raise BadInput(f"--to: {error}") from None
        return kept
    if "://" in place or not {"/", "."} & set(place):
        raise BadInput(
            "--to: expected the name of a variable with PostgreSQL's address (postgresql://…) that is set, that address, or a "
            "SQLite file such as ./clarify.db."
        )
    return InSqlite(Path(place))


def _next_steps(settings: ShellSettings, source: Kept, target: Kept, variable: str) -> Iterator[str]:
    """Yields what to do after a move."""
    yield "Before you start the bot, write into [storage] of clarify.toml:"
    if isinstance(target, InSqlite):
        yield f'  path = "{target.name}"        # and no url_env, no listen_url_env'
    else:
        yield f'  url_env = "{variable}"        # in place of path'
        yield f"and set {variable} in the bot's environment to the address that you moved to."
        if settings.ledger_folder is not None and "directory" not in settings.ledger.model_fields_set:
            yield (
                "With PostgreSQL the bot writes ledger files only if you name their folder: to go on with them, add "
                f'directory = "{settings.ledger_folder}" to [ledger].'
            )
    yield "Then: clarify check, clarify run."
    yield f"No bot starts on {source.name} any more. Keep it until the new one works, then delete it."


async def forget(shell: Shell, name: str, producer: str | None, *, abandon: bool, yes: bool) -> None:
    """Delete a session's conversation, or one question."""
    kept = kept_in(shell.settings)
    found = await asyncio.to_thread(forgetting.find, kept, name, producer)
    if found.unsettled and not abandon:
        raise _still_waiting(found.unsettled)
    if not yes:
        what = ", ".join(found.ids) or "no questions"
        of = f" of session {found.session[1]} ({found.session[0]})" if found.session else ""
        shell.ask_back(f"Delete the conversation{of}: {what}? This cannot be undone.")
    for record in found.unsettled:
        if record.is_open:
            await shell.router.abandon(record.id, shell.decider(), "")
    before = await asyncio.to_thread(forgetting.erasures, kept)
    traces = await _until_it_lands(shell, kept, found, abandon=abandon)
    files = await _out_of_files(shell, kept, found)
    after = await _erased(shell, kept)
    old = {place for places in before.values() for place in places if place not in before.get("wanted", [])}
    new = {state: [place for place in places if place not in old] for state, places in after.items()}
    _tell_forgotten(shell, found, traces, new, files)


async def forget_person(shell: Shell, user: str, names: Sequence[str], *, yes: bool) -> None:
    """Delete what is stored about a person, but for signed decisions. `names`: others than their `[identities]` say."""
    try:
        user_id(user)
    except ValueError as error:
        raise BadInput(f"--person: {error}.") from None
    if not yes:
        shell.ask_back(
            f"Delete what is stored about {user}, except what they decided? This cannot be undone."
        )
    alias = shell.settings.identities.get(user)
    removed, remains = await asyncio.to_thread(
        forgetting.forget_person,
        kept_in(shell.settings),
        user,
        {*names, *([alias] if alias else ())},
        now=SystemClock().now(),
        forget_viewer=forget_viewer,
    )
    shell.out.show(
        {"person": user, "removed": asdict(removed), "remains": asdict(remains)}, f"Forgotten: {user}."
    )
    for line in [*_what_was_removed(removed), *_what_still_names(user, remains)]:
        shell.out.note(line)


def _what_was_removed(removed: Removed) -> Iterator[str]:
    if removed.home:
        yield "Their Home tab is not updated any more, until they open it again."
    if removed.texts:
        yield f"{counted(removed.texts, 'stored text or note')} deleted."
    if removed.overrides:
        yield f"{counted(removed.overrides, 'past on-call override')} deleted."
    if removed.pages:
        yield f"Name removed from the history of pages: {counted(removed.pages, 'line')}."
    if removed.questions:
        closed = counted(removed.questions, "closed question")
        yield f"Name removed from {closed}: claims, handovers, escalations, refused attempts."


def _what_still_names(user: str, remains: Remains) -> Iterator[str]:
    if remains.unsettled:
        yield f"Still unfinished, and name them: {_listed(remains.unsettled)}. Run this again once they are closed."
    if remains.overrides:
        yield f"On-call overrides that still apply and name them: {remains.overrides}. See `/clarify oncall overrides`."
    if remains.decided:
        yield (
            f"Closed questions still name them: {_listed(remains.decided)}. What a receipt or the log of decisions proves stays, so "
            "that it can be verified. To delete a question with its receipt: clarify forget ID."
        )
    yield f"{user} may also be named in clarify.toml, calendars, Slack and backups, which are not changed."


def _listed(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _NAMED} more (--json lists all)" if len(ids) > _NAMED else ""
    return ", ".join(ids[:_NAMED]) + more


def _still_waiting(unsettled: Iterable[Clarification]) -> BadInput:
    waiting = ", ".join(record.id for record in unsettled)
    return BadInput(
        f"Agents are still waiting for {waiting}. Answer first, or use --abandon to close without an answer."
    )


def kept_in(settings: ShellSettings) -> Kept:
    """Returns the database that the settings name."""
    return kept_at(settings.storage.path, settings.database_url)


def _tell_copied(out: Output, manifest: Manifest, sentence: str, **more: object) -> None:
    data = {
        "made": iso(manifest.made),
        "release": manifest.release,
        "storageVersion": manifest.storage_version,
        "bytes": manifest.size,
    } | more
    out.show(data, f"{sentence}: {manifest.size:,} bytes, made {iso(manifest.made)}.")


async def _until_it_lands(shell: Shell, kept: Kept, found: Found, *, abandon: bool) -> Traces:
    """Delete, with retries while a message is being posted or an event handled.

    Raises:
        BadInput: that is not done in time, or an agent asked again meanwhile.
    """
    end, before = monotonic() + _PATIENCE, Traces()
    while True:
        traces, found = await asyncio.to_thread(
            forgetting.forget, kept, found, now=SystemClock().now(), abandoned=abandon
        )
        if traces.is_all(abandoned=abandon):
            return before + traces
        if traces.unsettled:
            raise _still_waiting(traces.unsettled)
        before += replace(traces, in_flight=0, waiting=0)
        # Only a running bot finishes posts and events.
        if not shell.has_bot or monotonic() >= end:
            raise BadInput(
                "Not finished: a message is still on its way to Slack, or an event is still being processed. Let the bot "
                "run, then repeat the command."
            )
        await asyncio.sleep(_LOOK_EVERY)


async def _out_of_files(shell: Shell, kept: Kept, found: Found) -> Erased:
    """Removes it from the files of integrations, or waits until a running bot has."""
    end, left, deleted = monotonic() + _PATIENCE, list[str](), 0
    for files in local_files(shell.settings):
        with kept.read_only() as tx:
            forgotten = files.forgotten(tx, found.ids)
        while True:
            has_bot = shell.has_bot
            erased = await asyncio.to_thread(files.erase, forgotten, writes=not has_bot)
            deleted += erased.deleted
            if not erased.left or not has_bot or monotonic() >= end:
                left += [*erased.left, *erased.stays]
                break
            await asyncio.sleep(_LOOK_EVERY)
    return Erased(left=left, deleted=deleted)


def _tell_forgotten(
    shell: Shell, found: Found, traces: Traces, new: Mapping[str, _Places], files: Erased
) -> None:
    data = {
        "forgotten": found.ids,
        "session": found.session[1] if found.session else None,
        "slack": {state: len(places) for state, places in new.items()},
        "notDeleted": [{"channel": channel, "ts": ts} for channel, ts in new.get("failed", [])],
        "outside": {
            "pagers": len(traces.pagers),
            "receipts": traces.receipts,
            **traces.elsewhere,
        },
        "ledgerFiles": {"left": [*files.left], "deleted": files.deleted},
        "unreadable": [*found.unknown],
    }
    shell.out.show(data, f"Forgotten: {', '.join(found.ids) or 'the events of the session'}.")
    for line in [*_what_remains(new, traces), *_what_files_remain(found, files), *_NEVER_CHANGED]:
        shell.out.note(line)
    if shell.settings.database_url is not None:
        shell.out.note(
            "PostgreSQL keeps deleted rows in its files, log, standbys and archives until they are overwritten."
        )


async def _erased(shell: Shell, kept: Kept) -> Mapping[str, _Places]:
    """Returns the state of the messages in Slack, once a running bot has deleted them and noted in the log of decisions what
    is gone, or after a while.
    """
    after = await asyncio.to_thread(forgetting.erasures, kept)
    end = monotonic() + _PATIENCE
    while shell.has_bot and monotonic() < end:
        if not after.get("wanted") and await asyncio.to_thread(forgetting.is_logged, kept):
            break
        await asyncio.sleep(_LOOK_EVERY)
        after = await asyncio.to_thread(forgetting.erasures, kept)
    return after


def _what_remains(new: Mapping[str, _Places], traces: Traces) -> list[str]:
    """Lists what was not deleted, and who can delete it."""
    lines = []
    if done := len(new.get("erased", [])):
        lines.append(f"Slack: {counted(done, 'bot message')} deleted.")
    if blanked := len(new.get("blanked", [])):
        lines.append(f"Slack: {counted(blanked, 'message')} could not be deleted; the text was removed.")
    if wanted := len(new.get("wanted", [])):
        lines.append(
            f"Slack: {counted(wanted, 'message')} will be deleted once the bot runs and reaches Slack."
        )
    for channel, ts in new.get("failed", []):
        lines.append(f"Slack: the message {ts} in {channel} could not be deleted or emptied.")
    if traces.pagers:
        lines.append(
            f"{counted(len(traces.pagers), 'page')} went to pagers outside Slack and can't be taken back."
        )
    if traces.untaken:
        lines.append(f"{counted(traces.untaken, 'unclaimed page')} closed.")
    lines += [
        f"What [{name}] told others remains on {', '.join(places)}."
        for name, places in traces.elsewhere.items()
        if places
    ]
    if traces.receipts:
        lines.append(
            f"{counted(traces.receipts, 'receipt')} deleted. Agents and webhooks may have copies, which are theirs to delete."
        )
    return lines


def _what_files_remain(found: Found, files: Erased) -> Iterator[str]:
    if files.deleted:
        yield f"Deleted {counted(files.deleted, 'ledger file')} that had been set aside as unreadable."
    if files.left:
        yield (
            f"May still contain some of it: {', '.join(files.left)}. It cannot be read or written, or another program holds it. "
            "Run the same command again once that is over."
        )
    if found.unknown:
        yield f"These clarifications cannot be read and may contain some of it: {', '.join(found.unknown)}."
