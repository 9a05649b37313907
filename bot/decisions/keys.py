"""Another signing key in the log: announced by the key before (`clarify keys rotate`), or not."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bot.decisions.chain import kid_of, opened
from bot.decisions.log import put
from bot.signing import Jwk, Signing
from bot.storage.store import Store
from bot.storage.tx import Tx


class NotStartedYet(ValueError):
    """No bot has started with the current key: the bot may still sign with the one before."""

    def __init__(self, kid: str | None) -> None:
        super().__init__(f"No bot has started with the key {kid} yet. Restart it first.")


def announce(tx: Tx, signing: Signing, jwk: Jwk, now: datetime) -> None:
    """Appends an entry that names the next key, signed by the current one.

    Raises:
        NotStartedYet: otherwise, entries of the key before would follow this one.
    """
    if tx.one("select 1 as there from signing_keys where kid = :kid", kid=signing.kid) is None:
        raise NotStartedYet(signing.kid)
    put(tx, signing, now, "key", {"kid": jwk["kid"], "jwk": jwk})


async def is_vouched_for(store: Store, signing: Signing) -> bool:
    """Whether the log may go on with the current key: it signed the last entry, or an earlier key announced it.

    Raises:
        StorageUnavailable: the log cannot be read now.
    """
    last = await store.read_one("select entry from decisions order by seq desc limit 1")
    if not signing.is_another and (last is None or kid_of(last["entry"]) == signing.kid):
        return True
    rows, keys = (
        await store.read("select entry from decisions where kind = 'key'"),
        await signing.published(store),
    )
    return any(_announced_by(row["entry"], keys) == signing.kid for row in rows)


def _announced_by(entry: str, keys: Mapping[str, Any]) -> str | None:
    """Returns the id of the key that an entry of the log announces; None: it is not genuine."""
    try:
        claims, _ = opened(entry, keys)
    except ValueError:
        return None
    return str(claims["kid"]) if claims["kind"] == "key" else None
