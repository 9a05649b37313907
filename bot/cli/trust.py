"""`clarify keys`, `log` and `verify`: the public keys of receipts, the log of decisions, and whether both are genuine."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import clarify
from bot.cli.output import Output, counted
from bot.cli.records import exact
from bot.cli.running import require_storage, seconds_of
from bot.decisions import chain, log
from bot.errors import ConfigurationError, StorageError
from bot.http import NETWORK, HttpClient, words
from bot.settings.load import DEFAULT_FILE, load_shell_settings, read_environment
from bot.settings.model import ShellSettings, is_loopback
from bot.signing import KeyPlace, KnownKey, Signing, jwk_of, pem_of, stored_keys
from bot.storage.opening import changed, kept_at
from bot.storage.tx import Tx
from bot.views import inert
from bot.views.tables import Cell, Column, Table
from bot.views.verify import receipt_command
from core.clarification import ID
from core.clock import iso
from core.errors import BadInput, NotFound
from core.files import reason, sync

_PATIENCE = 10.0  # seconds for the keys of a URL
_COLUMNS = (Column("Key", whole=True), Column("Since", whole=True), Column("Private key"))
_DID = {"expired": "expired", "withdrawn": "was withdrawn", "closed": "was closed"}


def list_keys(out: Output, config: Path | None) -> None:
    """List the keys that receipts were signed with, the first one first."""
    settings = load_shell_settings(config, read_environment())
    place, trouble = KeyPlace.of(settings), None
    try:
        current = jwk_of(place.read().public_key())
    except ValueError as error:
        current, trouble = None, f"The signing key {place} {error}."
    known = {each.jwk["kid"]: each for each in _stored(settings, out)}
    kid = current["kid"] if current is not None else None
    rows: list[dict[str, str | None]] = [
        {"kid": name, "since": iso(each.since), "where": str(place) if name == kid else None}
        for name, each in known.items()
    ]
    if kid is not None and kid not in known:
        rows.append({"kid": kid, "since": None, "where": str(place)})
    cells: list[list[str | Cell]] = [
        [
            Cell(str(row["kid"]), style="bold" if row["where"] else ""),
            exact(datetime.fromisoformat(row["since"])) if row["since"] else "not used yet",
            row["where"] or "(an earlier one)",
        ]
        for row in rows
    ]
    out.show(
        {"keys": rows}, Table(_COLUMNS, cells, empty="No key yet: the bot creates one when it first starts.")
    )
    if trouble is not None and (known or place.variable is not None or place.file.exists()):
        out.note(f"clarify: {trouble}")


def rotate_key(out: Output, config: Path | None) -> None:
    """Make the next signing key, and have the old one announce it in the log. It takes the key file's place; for a variable
    it is printed.

    Raises:
        BadInput: the old key cannot be read, no bot has started with it, or the new one cannot be written. StorageUnavailable:
            nothing was changed.
    """
    settings = load_shell_settings(config, read_environment())
    place, now, key = KeyPlace.of(settings), datetime.now(UTC), Ed25519PrivateKey.generate()
    try:
        place.read()
    except ValueError as error:
        lost = "" if place.variable else " If it is lost, the next start makes a new one."
        raise BadInput(f"The signing key {place} {error}, so it cannot announce another one.{lost}") from None
    old, jwk, pem = Signing(place, "", now), jwk_of(key.public_key()), pem_of(key)
    old.load()
    try:
        with nullcontext() if place.variable else place.drafted(pem) as draft:
            work = partial(log.announce_key, signing=old, jwk=jwk, now=now)
            changed(settings.storage.path, settings.database_url, work)
            if draft is not None:
                draft.replace(place.file)
                sync(place.file.parent)
    except log.NotStartedYet as error:
        raise BadInput(str(error)) from None
    except OSError as error:
        raise BadInput(f"{place}: {reason(error)}. The old key stays.") from None
    told = {"kid": jwk["kid"], "was": old.kid, "where": str(place)}
    if draft is None:
        out.show(told | {"pem": pem.decode()}, pem.decode().rstrip())
        out.note(f"clarify: Put this key into {place}, and restart the bot: {jwk['kid']}")
    else:
        out.show(told, f"The next key is in {place}: {jwk['kid']}")
        out.note("clarify: Restart the bot to sign with it.")


def verify(
    out: Output,
    config: Path | None,
    receipt: str,
    jwks: str | None,
    *,
    arguments: Path | None,
    approved: bool,
    audience: str | None,
    issuer: str | None,
    max_age: str | None,
) -> None:
    """Print who decided what and when.

    Raises:
        BadInput: a file or the keys cannot be read. typer.Exit: something is wrong with the receipt.
    """
    seconds = seconds_of(max_age, "--max-age")
    found = clarify.verify(
        _receipt(receipt),
        keys=_keys(jwks, config, out),
        arguments=... if arguments is None else _arguments(arguments),
        audience=audience,
        issuer=issuer,
        max_age=seconds,
    )
    must_be_approved = approved or arguments is not None
    problem = found.problem or (found.not_approved if must_be_approved else None)
    if problem is not None:
        raise _not_verified(out, f"{problem}.")
    out.show(
        {"verified": True, "kid": found.kid, "claims": dict(found.claims)}, _line(found.claims, found.kid)
    )


def _not_verified(out: Output, why: str) -> typer.Exit:
    """Prints what is wrong, and returns the exception that ends the command."""
    out.failed("NOT_VERIFIED", f"Not verified: {why}")
    return typer.Exit(1)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which decisions of the log to print: those made from `since` on and before `until`, of an `agent`, decided `by`
    someone (name or Slack ID), of one question or round (`name`).
    """

    name: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    agent: str | None = None
    by: str | None = None

    @property
    def is_all(self) -> bool:
        return self == Filter()

    def takes(self, claims: Mapping[str, Any]) -> bool:
        """Whether the claims of a receipt fit."""
        jti, at = str(claims.get("jti")), datetime.fromtimestamp(claims.get("iat", 0), UTC)
        deciders = [each for each in claims.get("deciders") or () if isinstance(each, dict)]
        names = {str(each.get(field)).casefold() for each in deciders for field in ("by", "user")}
        return (
            (self.name is None or self.name in {jti, jti.rpartition("/")[0]})
            and (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
            and (self.agent is None or self.agent.casefold() == str(claims.get("sub")).casefold())
            and (self.by is None or self.by.removeprefix("@").casefold() in names)
        )


def _storage(config: Path | None) -> AbstractContextManager[Tx]:
    """Opens the storage to read. Raises StorageUnavailable if there is none yet."""
    settings = load_shell_settings(config, read_environment())
    require_storage(settings)
    return kept_at(settings.storage.path, settings.database_url).read_only()


def print_log(out: Output, wanted: Filter, config: Path | None) -> None:
    """Print the log of decisions, a line of JSON for each entry; with a filter, only the decisions that fit.

    Raises:
        StorageUnavailable: it cannot be read.
    """
    with _storage(config) as tx:
        for row in log.rows_of(tx):
            line = log.line_of(row)
            is_decision = line["receipt"] is not None and line["claims"] is not None
            if wanted.is_all or (is_decision and wanted.takes(line["claims"])):
                out.json_line(line)
        if not wanted.is_all:
            out.note(
                "clarify: This is a part of the log. `clarify verify` checks each receipt in it, but only the whole log shows"
                " that none is missing: clarify log | clarify verify --log -"
            )
        if not log.is_told(tx):
            out.note("clarify: some receipts were forgotten; the bot notes that in the log when it runs")


def print_receipt(out: Output, name: str, config: Path | None) -> None:
    """Print the receipt of a question's last round, or of the round that `name` ends with.

    Raises:
        NotFound: the log has no such decision.
        BadInput: its receipt is gone.
        StorageUnavailable: the log cannot be read.
    """
    with _storage(config) as tx:
        found = log.find(tx, name)
    if found is None:
        raise NotFound(f"{name} in the log of decisions")
    if found["receipt"] is None:
        raise BadInput(
            f"The receipt of {found['jti']} was deleted. The log keeps its digest (entry {found['seq']})."
        )
    out.line(found["receipt"])


def verify_log(
    out: Output,
    config: Path | None,
    path: str,
    jwks: str | None,
    *,
    checkpoint: str | None,
    accepted: Sequence[str],
) -> None:
    """Print how long a log is and by which key it is signed. It must contain `checkpoint`, or the one in that file; a key that is
    `accepted` may follow though the one before did not announce it.

    Raises:
        BadInput: a file or the keys cannot be read. typer.Exit: the log is broken.
    """
    keys = _keys(jwks, config, out)
    try:
        found = chain.verify(
            _lines(path),
            keys,
            checkpoint=None if checkpoint is None else _receipt(checkpoint),
            accepted=accepted,
        )
    except chain.BrokenLog as error:
        raise _not_verified(out, str(error)) from None
    gone = f", {found.gone} of them forgotten" if found.gone else ""
    is_whole = checkpoint is not None
    out.show(
        {
            "verified": True,
            "first": found.first,
            "head": found.head.seq,
            "sha256": found.head.sha256,
            "decisions": found.decisions,
            "forgotten": found.gone,
            "kid": found.kid,
            "checkpoint": is_whole,
        },
        f"Verified: entries {found.first} to {found.head.seq}, {counted(found.decisions, 'decision')}{gone} · key {found.kid}",
    )
    if not is_whole:
        out.note(
            f"clarify: Without a checkpoint, nothing shows whether entries after {found.head.seq} were left out."
            " Keep checkpoints, and give the last one: --checkpoint"
        )


def _lines(path: str) -> Iterator[bytes]:
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as file:
            yield from file
    except OSError as error:
        raise BadInput(f"--log: {path}: {reason(error)}") from None


def _line(claims: Mapping[str, Any], kid: str) -> str:
    """Returns who decided what and when, and by which key that is signed."""
    answer = claims.get("answer")
    decision = answer.get("decision") if isinstance(answer, dict) else None
    asked = claims["asked"]
    text = asked.get("action") or asked.get("question")
    what = f" “{inert.clip(inert.line(text), 80)}”" if isinstance(text, str) else ""
    deciders = [str(each.get("by")) for each in claims["deciders"]]
    accepted = [str(each.get("by")) for each in claims["deciders"] if each["decision"] == "accept"]
    who = " and ".join(dict.fromkeys(accepted if decision == "accept" else deciders[-1:]))
    outcome = claims["outcome"]
    if outcome == "answered":
        did = {"accept": "approved", "reject": "rejected"}.get(str(decision), "answered")
    else:
        did = _DID.get(outcome, outcome)
    at = exact(datetime.fromtimestamp(claims["iat"], UTC))
    by = f" by {inert.line(who)}" if who else ""
    return f"Verified: {inert.line(claims['jti'])}{what} {did}{by} · {at} · key {inert.line(kid)}"


def _receipt(given: str) -> str:
    if given == "-":
        return sys.stdin.read()
    if given.count(".") == 2 and given.startswith("eyJ") and len(given) > 100:
        return given
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        if ID.fullmatch(given):
            raise BadInput(
                f"{given} is not a receipt. To verify its last decision: {receipt_command(given)}"
            ) from None
        why = reason(error) if isinstance(error, OSError) else "not text"
        raise BadInput(f"{given[:80]}: {why}; expected a receipt, a file with one, or -.") from None


def _arguments(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=clarify.named_once)
    except OSError as error:
        raise BadInput(f"--arguments: {path}: {reason(error)}") from None
    except (ValueError, RecursionError) as error:
        why = f": {error}" if isinstance(error, clarify.RepeatedName) else ""
        raise BadInput(f"--arguments: {path} is not JSON{why}.") from None


def _keys(place: str | None, config: Path | None, out: Output) -> dict[str, Any]:
    """Returns the JWK Set at a URL or in a file; without one, the keys of the configuration.

    Raises:
        BadInput: it cannot be read, or is none.
    """
    if place is None:
        if config is None and not DEFAULT_FILE.exists():
            raise BadInput("There is no clarify.toml in this folder. Give the bot's keys with --jwks.")
        return {"keys": _configured(config, out)}
    if "://" in place:
        parts = urlsplit(place)
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
            raise BadInput("--jwks: expected https://, http:// on this machine, or a file.")
        content = asyncio.run(_fetched(place))
    else:
        try:
            content = Path(place).read_bytes()
        except OSError as error:
            raise BadInput(f"--jwks: {place}: {reason(error)}") from None
    try:
        found = clarify.strict_json(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("keys"), list):
        raise BadInput('--jwks: expected a JWK Set: {"keys": […]}.')
    return {"keys": [each for each in found["keys"] if isinstance(each, dict)]}


async def _fetched(url: str) -> bytes:
    try:
        async with asyncio.timeout(_PATIENCE), HttpClient(None) as http:
            answer = await http.request("GET", url)
    except NETWORK as error:
        raise BadInput(f"--jwks: {words(error)}") from None
    if answer.status != 200:
        raise BadInput(f"--jwks: HTTP {answer.status}")
    return answer.body


def _configured(config: Path | None, out: Output) -> list[dict[str, str]]:
    """Returns the public keys of the configuration: the current one, and those in the storage.

    Raises:
        BadInput: there are none.
    """
    settings = load_shell_settings(config, read_environment())
    keys = [each.jwk for each in _stored(settings, out)]
    place = KeyPlace.of(settings)
    try:
        keys.append(jwk_of(place.read().public_key()))
    except ValueError as error:
        if not keys:
            raise BadInput(f"The signing key {place} {error}. Give the keys with --jwks.") from None
    return keys


def _stored(settings: ShellSettings, out: Output) -> list[KnownKey]:
    try:
        return stored_keys(settings.storage.path, settings.database_url)
    except (StorageError, ConfigurationError) as error:
        out.note(f"clarify: earlier keys are not known: {error}")
        return []
