"""`clarify backup`, `restore`, `forget`: copies all data, restores a copy, deletes conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from time import monotonic

from bot.cli.running import Shell
from bot.retention import forget as forgetting
from bot.retention.backup import Kept, Manifest
from bot.retention.backup import backup as back_up
from bot.retention.backup import restore as put_back
from bot.retention.forget import Found, Traces
from bot.retention.rows import InStorage
from core.clock import iso
from core.errors import BadInput

_PATIENCE = 30.0  # seconds to wait for a running bot to finish posts and deletions
_LOOK_EVERY = 0.2
_Places = list[tuple[str, str]]  # channel, ts


async def backup(shell: Shell, folder: Path) -> None:
    """Copy the ledgers, the archive and the storage."""
    manifest = await asyncio.to_thread(
        back_up, kept_by(shell), folder, now=shell.clock.now(), release=version("clarify-bot")
    )
    _tell_copied(shell, manifest, f"Backed up to {folder}")


async def restore(shell: Shell, folder: Path, *, replace: bool, copy: bool) -> None:
    """Restore a backup."""
    restored = await asyncio.to_thread(
        put_back, folder, kept_by(shell), now=shell.clock.now(), replace=replace, copy=copy
    )
    more = {"aside": restored.aside, "left": [*restored.left]}
    _tell_copied(shell, restored.manifest, f"Restored {folder}", **more)
    if restored.aside is not None:
        shell.out.note(f"The previous data is in {restored.aside}.")
    if restored.left:
        shell.out.note(f"Not restored, because they are not readable ledgers: {', '.join(restored.left)}.")


async def forget(shell: Shell, name: str, producer: str | None, *, abandon: bool, yes: bool) -> None:
    """Delete a session's conversation, or one question."""
    kept = kept_by(shell)
    found = await asyncio.to_thread(forgetting.find, kept, name, producer)
    if found.unsettled and not abandon:
        waiting = ", ".join(record.id for record in found.unsettled)
        raise BadInput(
            f"Agents are still waiting for {waiting}. Answer first, or use --abandon to close without an answer."
        )
    if not yes:
        what = ", ".join(found.ids) or "no questions"
        of = f" of session {found.session[1]} ({found.session[0]})" if found.session else ""
        shell.ask_back(f"Delete the conversation{of}: {what}? This cannot be undone.")
    for record in found.unsettled:
        if record.is_open:
            await shell.router.abandon(record.id, shell.decider(), "")
    before = await asyncio.to_thread(forgetting.erasures, kept)
    traces = await _until_it_lands(shell, kept, found, abandon=abandon)
    await _tell_forgotten(shell, kept, found, traces, before)


def kept_by(shell: Shell) -> Kept:
    """Returns where the ledgers and the storage are."""
    if shell.database_url is None:
        return InStorage(shell.settings.storage.path)
    from bot.retention.database import InDatabase  # noqa: PLC0415 - psycopg is optional

    return InDatabase(shell.database_url)


def _tell_copied(shell: Shell, manifest: Manifest, sentence: str, **more: object) -> None:
    size = sum(file.size for file in manifest.files)
    storage = "and the storage" if manifest.storage_version is not None else "; there was no storage"
    count = len(manifest.ledgers)
    data = {
        "made": iso(manifest.made),
        "release": manifest.release,
        "storageVersion": manifest.storage_version,
        "ledgers": count,
        "bytes": size,
    } | more
    shell.out.show(data, f"{sentence}: {count} ledgers {storage}, {size:,} bytes, made {iso(manifest.made)}.")


async def _until_it_lands(shell: Shell, kept: Kept, found: Found, *, abandon: bool) -> Traces:
    """Delete, with retries while a message is being posted or an event handled.

    Raises:
        BadInput: that is not done in time.
    """
    end = monotonic() + _PATIENCE
    while True:
        traces = await asyncio.to_thread(forgetting.forget, kept, found, abandoned=abandon)
        if traces.is_all(abandoned=abandon):
            return traces
        # Only a running bot finishes posts and events.
        if not shell.has_bot or monotonic() >= end:
            raise BadInput(
                "Not finished: a message is still on its way to Slack, or an event is still being processed. Let the bot "
                "run, then repeat the command."
            )
        await asyncio.sleep(_LOOK_EVERY)


async def _tell_forgotten(
    shell: Shell, kept: Kept, found: Found, traces: Traces, before: Mapping[str, _Places]
) -> None:
    after = await _erased(shell, kept)
    old = {place for places in before.values() for place in places if place not in before.get("wanted", [])}
    new = {state: [place for place in places if place not in old] for state, places in after.items()}
    left = await asyncio.to_thread(forgetting.unreadable, kept, found)
    data = {
        "forgotten": found.ids,
        "session": found.session[1] if found.session else None,
        "slack": {state: len(places) for state, places in new.items()},
        "notDeleted": [{"channel": channel, "ts": ts} for channel, ts in new.get("failed", [])],
        "outside": {
            "pagers": traces.pagers,
            "github": list(traces.comments),
            "receipts": traces.receipts,
        },
        "unreadable": left,
    }
    shell.out.show(data, f"Forgotten: {', '.join(found.ids) or 'the events of the session'}.")
    for line in _what_remains(new, traces, left):
        shell.out.note(line)
    if shell.database_url is not None:
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


def _count(number: int, of: str) -> str:
    return f"{number} {of}" if number == 1 else f"{number} {of}s"


def _what_remains(new: dict[str, _Places], traces: Traces, unreadable: list[str]) -> list[str]:
    """Lists what was not deleted, and who can delete it."""
    lines = []
    if done := len(new.get("erased", [])):
        lines.append(f"Slack: {_count(done, 'bot message')} deleted.")
    if blanked := len(new.get("blanked", [])):
        lines.append(f"Slack: {_count(blanked, 'message')} could not be deleted; the text was removed.")
    if wanted := len(new.get("wanted", [])):
        lines.append(
            f"Slack: {_count(wanted, 'message')} will be deleted once the bot runs and reaches Slack."
        )
    for channel, ts in new.get("failed", []):
        lines.append(f"Slack: the message {ts} in {channel} could not be deleted or emptied.")
    if traces.pagers:
        lines.append(f"{_count(traces.pagers, 'page')} went to pagers outside Slack and can't be taken back.")
    if traces.untaken:
        lines.append(
            f"{_count(traces.untaken, 'unclaimed page')} will repeat without the text until someone takes it."
        )
    if traces.comments:
        lines.append(f"GitHub: comments remain on {', '.join(traces.comments)}.")
    if traces.receipts:
        lines.append(
            f"{_count(traces.receipts, 'receipt')} deleted. Agents and webhooks may have copies, which are theirs to delete."
        )
    if unreadable:
        lines.append(f"These files are unreadable and may contain some of it: {', '.join(unreadable)}.")
    lines.append("What people wrote in threads is theirs to delete. Existing backups are not changed.")
    return lines
