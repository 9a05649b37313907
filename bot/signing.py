"""The key that signs receipts: where it is, its public form, and the receipts that it makes (`core.receipts`).

The key is Ed25519, in `[trust] key_env` or in `clarify-signing.pem` beside clarify.toml, which the first start makes. It is
never in the storage, the ledgers' folder or a backup. The storage keeps the public keys, old ones too.

A key that cannot be read refuses no decision: the receipt follows as soon as the key can be read.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from jwt.algorithms import OKPAlgorithm

import clarify
from bot.errors import ConfigurationError, StorageUnavailable
from bot.settings.model import Settings, ShellSettings
from bot.storage.opening import reading
from bot.storage.store import Store
from bot.storage.tx import Row, Tx
from core.clarification import Clarification
from core.clock import Clock
from core.errors import ClarifyError, LedgerUnwritable, LockTimeout
from core.files import read_regular
from core.ledger import Ledger
from core.receipts import (
    TYP,
    Checked,
    Claims,
    claims_of,
    decided_at,
    digest,
    is_decided,
    jti_of,
    says_the_same,
)
from core.router import Router

_RETRY = 1.0  # seconds
_log = structlog.get_logger("clarify.trust")
KEY_FILE = "clarify-signing.pem"
ALGORITHM = "EdDSA"
KNOWN = "select kid, jwk, since from signing_keys order by since, kid"
Jwk = dict[str, str]


class NotEd25519(ValueError):
    """The key is of another kind."""

    def __init__(self) -> None:
        super().__init__("is not an Ed25519 key")


class KnownKey(NamedTuple):
    """A public key, and since when receipts were signed with it."""

    jwk: Jwk
    since: datetime

    @classmethod
    def of(cls, row: Row) -> KnownKey:
        return cls(json.loads(row["jwk"]), datetime.fromtimestamp(row["since"], UTC))


def read_key(text: str | bytes) -> Ed25519PrivateKey:
    """Returns the key in a PKCS#8 PEM, or in the base64 of one.

    Raises:
        NotEd25519: it is a key of another kind. ValueError: it is no key.
    """
    content = text.encode() if isinstance(text, str) else text
    if b"-----BEGIN" not in content:
        try:
            content = base64.b64decode(b"".join(content.split()), validate=True)
        except binascii.Error:
            raise ValueError("is neither a PEM nor base64") from None
    try:
        key = load_pem_private_key(content, None)
    except (ValueError, TypeError):
        raise ValueError("is not a private key in PKCS#8 PEM without a passphrase") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise NotEd25519
    return key


def pem_of(key: Ed25519PrivateKey) -> bytes:
    """Returns the key as a PKCS#8 PEM."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def jwk_of(key: Ed25519PublicKey) -> Jwk:
    """Returns a public key as a JWK (RFC 8037). `kid`: its thumbprint (RFC 7638)."""
    required = dict(sorted(OKPAlgorithm.to_jwk(key, as_dict=True).items()))
    kid = digest(json.dumps(required, separators=(",", ":")).encode())
    return {**required, "kid": kid, "alg": ALGORITHM, "use": "sig"}


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """Where the key is: `variable` of the environment with its `value`, or else the `file`."""

    file: Path
    variable: str | None = None
    value: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, settings: ShellSettings) -> KeyPlace:
        variable = settings.trust.key_env
        secret = settings.by_variable.get(variable) if variable is not None else None
        return cls(
            settings.folder / KEY_FILE, variable, None if secret is None else secret.get_secret_value()
        )

    def __str__(self) -> str:
        return f"${self.variable}" if self.variable is not None else str(self.file)

    def read(self, *, create: bool = False) -> Ed25519PrivateKey:
        """Returns the key. `create`: make the file if there is none.

        Raises:
            NotEd25519: it is of another kind. ValueError: it cannot be read; the message says why.
        """
        if self.variable is not None:
            if self.value is None:
                raise ValueError("is not set in the environment")
            return read_key(self.value)
        try:
            if create:
                self._create()
            return read_key(read_regular(self.file))
        except OSError as error:
            raise ValueError(f"cannot be read: {error.strerror or error}") from None

    def _create(self) -> None:
        """Makes the file. Atomic: of several processes the first one wins."""
        if not os.path.lexists(self.file):
            with self.drafted(pem_of(Ed25519PrivateKey.generate())) as draft, suppress(FileExistsError):
                os.link(draft, self.file)

    @contextmanager
    def drafted(self, pem: bytes) -> Iterator[Path]:
        """Yields a new file with a key beside the key file, readable by the bot's user only. Deletes it afterwards, unless it
        has taken the key file's place.
        """
        draft = self.file.with_name(f"{KEY_FILE}.{os.getpid()}.{secrets.token_hex(8)}")
        try:
            handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(pem)
                file.flush()
                os.fsync(file.fileno())
            yield draft
        finally:
            draft.unlink(missing_ok=True)


class PublicKeys:
    """Checks receipts with the keys that they were signed with (`core.records.Receipts`). Safe to use from several threads."""

    def __init__(self, known: Iterable[KnownKey] = ()) -> None:
        self.known = {each.jwk["kid"]: each for each in known}

    def agrees(self, record: Clarification) -> bool:
        try:
            found = self.check(record)
            if found.problem != "key":
                return found.problem in {None, "missing"}
            # Of a storage that was lost: whoever checks it has to know the key.
            claims = jwt.decode(record.current.receipt or "", options={"verify_signature": False})
            return says_the_same(claims, record)
        except Exception:  # noqa: BLE001 - a receipt, or a record, that we did not make
            return False

    def proves(self, record: Clarification) -> bool:
        """Whether the round ended as the record says: its receipt says the same, signed with a key that we know."""
        try:
            return self.check(record).problem is None
        except Exception:  # noqa: BLE001 - a receipt, or a record, that we did not make
            return False

    def check(self, record: Clarification) -> Checked:
        """Returns whether the receipt of a record's current round is genuine, and says what the record says."""
        receipt = record.current.receipt
        if receipt is None:
            return Checked("missing")
        try:
            kid = str(jwt.get_unverified_header(receipt)["kid"])
        except (jwt.PyJWTError, KeyError):
            return Checked("signature")
        if kid not in self.known:
            return Checked("key", kid)
        found = clarify.verify(receipt, keys={"keys": [self.known[kid].jwk]})
        if found.problem is not None:
            return Checked("signature")
        claims = dict(found.claims)
        if claims["jti"] != jti_of(record):
            return Checked("another", kid, claims)
        return Checked(None if says_the_same(claims, record) else "record", kid, claims)


class StoredKeys(PublicKeys):
    """The keys in a storage, read once they are needed (see `stored_keys`). Blocking."""

    def __init__(self, storage: Path, url: str | None) -> None:
        super().__init__()
        self._storage, self._url = storage, url
        self._guard, self._read = threading.Lock(), False

    def agrees(self, record: Clarification) -> bool:
        with self._guard:
            if record.current.receipt is not None and not self._read:
                with suppress(StorageUnavailable):  # then their signatures cannot be checked
                    self.known = {each.jwk["kid"]: each for each in stored_keys(self._storage, self._url)}
                self._read = True
        return super().agrees(record)


class Signing(PublicKeys):
    """Makes and checks receipts (`core.records.Signer`). `since`: when this installation began to make them; `owes_some`:
    whether the key could not be read at an earlier start, and receipts may be owed from then.

    Safe to use from several threads.
    """

    def __init__(self, place: KeyPlace, issuer: str, since: datetime, known: Iterable[KnownKey] = ()) -> None:
        super().__init__(known)
        self.place = place
        self.issuer = issuer
        self.since = since
        self.trouble: str | None = None
        self.owes_some = False
        self.is_another = False  # whether another key signed before, and this one never
        self._key: Ed25519PrivateKey | None = None
        self._kid = ""
        self._guard = threading.Lock()

    @classmethod
    async def open(cls, settings: Settings, store: Store, clock: Clock) -> Signing:
        """Reads the key, or makes it at the first start, and stores its public form.

        Raises:
            ConfigurationError: the key is not Ed25519. StorageUnavailable: nothing was stored.
        """
        now, place = clock.now(), KeyPlace.of(settings)

        def begun(tx: Tx) -> tuple[Row, list[Row]]:
            tx.run(
                "insert into receipts (one, since) values (1, :now) on conflict (one) do nothing",
                now=now.timestamp(),
            )
            (row,) = tx.rows("select since, owed from receipts")
            return row, tx.rows(KNOWN)

        begun_at, rows = await store.write(begun)
        issuer = settings.trust.issuer or f"urn:clarify:{store.installation}"
        opened = cls(place, issuer, datetime.fromtimestamp(begun_at["since"], UTC), map(KnownKey.of, rows))
        opened.owes_some = bool(begun_at["owed"])
        try:
            opened.load(create=True)
        except NotEd25519 as error:
            raise ConfigurationError([f"{settings.file}: the signing key {place} {error}"]) from None
        await opened.note(store, now)
        return opened

    def load(self, *, create: bool = False) -> bool:
        """Reads the key unless that is done; returns whether there is one. Blocking.

        Raises:
            NotEd25519: it is of another kind, and `create` asks for one that can be used.
        """
        with self._guard:
            if self._key is not None:
                return True
            try:
                key = self.place.read(create=create)
            except ValueError as error:
                if create and isinstance(error, NotEd25519):
                    raise
                if self.trouble is None:
                    _log.error(
                        "cannot read the signing key; receipts follow", key=str(self.place), reason=str(error)
                    )
                self.trouble = f"{self.place} {error}"
                return False
            public = key.public_key()
            jwk = jwk_of(public)
            self.is_another = bool(self.known) and jwk["kid"] not in self.known
            self.known.setdefault(jwk["kid"], KnownKey(jwk, datetime.now(UTC)))
            self._kid, self._key, self.trouble = jwk["kid"], key, None
            return True

    async def note(self, store: Store, now: datetime) -> None:
        """Stores the public key once it is known, or that receipts are owed.

        Raises:
            StorageUnavailable: nothing was stored.
        """
        if self._key is None:
            await store.run("update receipts set owed = 1")
            return
        known = self.known[self._kid]
        await store.run(
            "insert into signing_keys (kid, jwk, since) values (:kid, :jwk, :since) on conflict (kid) do nothing",
            kid=self._kid,
            jwk=json.dumps(known.jwk),
            since=now.timestamp(),
        )

    def learn(self, tx: Tx) -> None:
        """Reads the public keys again: other replicas may have begun to use new ones."""
        self.known = {each.jwk["kid"]: each for each in map(KnownKey.of, tx.rows(KNOWN))} | self.known

    @property
    def kid(self) -> str | None:
        """The id of the key that signs now; None: it cannot be read."""
        return self._kid or None

    @property
    def jwks(self) -> dict[str, Any]:
        """All public keys, as a JWK Set (RFC 7517)."""
        return {"keys": [each.jwk for each in self.known.values()]}

    async def published(self, store: Store) -> dict[str, Any]:
        """Returns all public keys, with those that other replicas have begun to use. Without the storage: those known here."""
        try:
            known = [KnownKey.of(row).jwk for row in await store.read(KNOWN)]
        except StorageUnavailable:
            return self.jwks
        return {"keys": [*known, *(each for each in self.jwks["keys"] if each not in known)]}

    def made(self, record: Clarification) -> str | None:
        if not is_decided(record) or not self.load():
            return None
        try:
            return self.signed(claims_of(record, self.issuer))
        except Exception:  # noqa: BLE001 - no receipt is worth a decision: it counts, and the log says why it has none
            _log.exception("cannot make a receipt", id=record.id)
            return None

    def signed(self, claims: Claims, typ: str = TYP) -> str:
        """Returns the claims, signed: as a receipt or, with another `typ`, as an entry of the log. Call `load` first."""
        if self._key is None:
            raise ValueError("the key is not loaded")
        return jwt.encode(claims, self._key, ALGORITHM, headers={"typ": typ, "kid": self._kid})

    def is_ours(self, receipt: str, jti: str) -> bool:
        """Whether a receipt has our signature, by a key that we know, and is of the round `jti`."""
        found = clarify.verify(receipt, keys=self.jwks)
        return found.problem is None and found.claims["jti"] == jti

    def owes(self, record: Clarification) -> bool:
        if record.current.receipt is not None or not is_decided(record):
            return False
        return decided_at(record) >= self.since and self.load()


def stored_keys(storage: Path, url: str | None) -> list[KnownKey]:
    """Returns the public keys in a storage, whether a bot runs or not; none if there is no storage yet. Blocking.

    `url`: PostgreSQL's address; None: SQLite, in `storage`.

    Raises:
        StorageUnavailable: it cannot be read, or no bot of this release has used it.
    """
    with reading(storage, url) as tx:
        return [] if tx is None else [KnownKey.of(row) for row in tx.rows(KNOWN)]


@dataclass(kw_only=True, eq=False)
class Owing:
    """Signs the receipts that are owed: the round ended in another process, or while the key could not be read."""

    ledger: Ledger
    router: Router
    clock: Clock

    async def sign(self, record: Clarification) -> bool:
        """Returns whether it signed what the record is owed.

        Raises:
            LockTimeout, LedgerUnwritable: not now; try again.
        """
        if not await self.ledger.owes_receipt(record):
            return False
        try:
            return not await self.ledger.owes_receipt(await self.router.receipt(record.id))
        except (LockTimeout, LedgerUnwritable):
            raise
        except ClarifyError as error:
            _log.warning("receipt delayed", id=record.id, reason=str(error))
            return False

    async def sign_in_time(self, clarification: str) -> None:
        """Signs what a record is owed, of earlier rounds, too; tries until it can be read and written."""
        while True:
            try:
                await self.sign(await self.ledger.find(clarification))
            except (LockTimeout, LedgerUnwritable) as error:
                _log.warning("receipt delayed", id=clarification, reason=str(error))
                await self.clock.sleep(_RETRY)
            except ClarifyError as error:
                _log.warning("no receipt", id=clarification, reason=str(error))
                return
            else:
                return


async def settled(store: Store) -> None:
    """Records that no receipt is owed any more."""
    await store.run("update receipts set owed = 0")
