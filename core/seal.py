"""Which answers are our own. Others write the ledgers too, and could write any name beside an answer: so an answer that
speaks for a person carries a seal, made with a key that is in our private folder. Without it, it is another writer's.
Blocking.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from core.clarification import Clarification
from core.clock import iso
from core.files import read_regular

NAME = "seal.key"
_LENGTH = 32
_log = logging.getLogger("clarify.ledger")


def speaks_for_a_person(record: Clarification) -> bool:
    """Whether a record says of its answer what only we can know: that a person gave it, or consented."""
    asked = record.asked
    if asked.response is None:
        return False
    by_other = (asked.decided_by or "").startswith(("agent:", "ledger:"))
    return not by_other or asked.is_consent


class Seals:
    """`folder` is private to us. `shell`: whether consent given in the shell counts."""

    def __init__(self, folder: Path, *, shell: bool = True) -> None:
        self._path = folder / NAME
        self._shell = shell
        self._key: bytes | None = None

    def sealed(self, record: Clarification) -> Clarification:
        """The record with the seal of its answer; as it is, where the key cannot be had: then it is nobody's."""
        key = self._key or self._made()
        if key is None:
            return record
        return record.model_copy(
            update={"aaep": record.asked.model_copy(update={"seal": _seal(key, record)})}
        )

    def vouch(self, record: Clarification) -> bool:
        """Whether an answer that speaks for a person was sealed by us. True of all others."""
        if not speaks_for_a_person(record):
            return True
        asked, key = record.asked, self._key or self._read()
        by = asked.answered_by
        if asked.is_consent and not self._shell and (by is None or by.surface != "slack"):
            return False
        return key is not None and hmac.compare_digest(asked.seal or "", _seal(key, record))

    def _read(self) -> bytes | None:
        """The key, if it is there and nobody else can have put it there."""
        try:
            key, state = read_regular(self._path), self._path.lstat()
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.error(
                "%s cannot be read: %s; people's answers cannot be told from others'",
                self._path,
                error.strerror,
            )
            return None
        if len(key) != _LENGTH or state.st_uid != os.geteuid() or stat.S_IMODE(state.st_mode) & 0o077:
            _log.error(
                "%s is not ours alone: expected %d bytes with mode 0600; it is not used", self._path, _LENGTH
            )
            return None
        self._key = key
        return key

    def _made(self) -> bytes | None:
        draft = self._path.with_name(f"{NAME}.{os.getpid()}.{secrets.token_hex(8)}")
        if not os.path.lexists(self._path):
            try:
                handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
                try:
                    os.write(handle, secrets.token_bytes(_LENGTH))
                    os.fsync(handle)
                finally:
                    os.close(handle)
                with suppress(FileExistsError):
                    os.link(draft, self._path)  # whole or not at all; the first one counts
            except OSError as error:
                _log.error("%s cannot be made: %s", self._path, error.strerror)
            finally:
                draft.unlink(missing_ok=True)
        return self._read()


def _seal(key: bytes, record: Clarification) -> str:
    """Of all that says who answered what; numbers and times as every writer of the file leaves them."""
    asked, response = record.asked, record.asked.response
    if isinstance(response, float) and response.is_integer():
        response = int(response)
    by = asked.answered_by
    said = [
        record.id,
        iso(record.created),
        record.round,
        asked.reply_token,
        asked.is_confirmation,
        response,
        asked.label,
        asked.rationale,
        asked.decided_by,
        iso(asked.answered_at) if asked.answered_at else None,
        [by.surface, by.team, by.user] if by else None,
    ]
    return hmac.new(key, json.dumps(said).encode(), hashlib.sha256).hexdigest()
