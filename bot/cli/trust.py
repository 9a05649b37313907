"""`clarify keys` and `clarify verify`: the public keys of receipts, and whether a receipt is genuine."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import clarify
from bot.cli.output import Cell, Column, Output, Table
from bot.cli.records import exact
from bot.cli.waiting import seconds_of
from bot.errors import StorageError
from bot.http import NETWORK, HttpClient, words
from bot.settings.environment import read_environment
from bot.settings.load import load_shell_settings
from bot.settings.model import ShellSettings, is_loopback
from bot.signing import KeyPlace, KnownKey, jwk_of, stored_keys
from bot.views import inert
from core.clock import iso
from core.errors import BadInput
from core.files import reason

_PATIENCE = 10.0  # seconds for the keys of a URL
_COLUMNS = (Column("Key", whole=True), Column("Since", whole=True), Column("Private key"))
_DID = {"expired": "expired", "withdrawn": "was withdrawn", "closed": "was closed"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a receipt must fulfil besides a good signature."""

    arguments: Path | None = None
    approved: bool = False
    audience: str | None = None
    issuer: str | None = None
    max_age: str | None = None


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
    out.show({"keys": rows}, Table(_COLUMNS, cells, empty="The first start of the bot makes a key."))
    if trouble is not None and (known or place.variable is not None or place.file.exists()):
        out.note(f"clarify: {trouble}")


def verify(out: Output, receipt: str, jwks: str | None, wanted: Wanted, config: Path | None) -> int:
    """Print who decided what and when, or what is wrong; return the exit code.

    Raises:
        BadInput: a file or the keys cannot be read.
    """
    seconds = seconds_of(wanted.max_age, "--max-age")
    arguments = ... if wanted.arguments is None else _arguments(wanted.arguments)
    found = clarify.verify(
        _receipt(receipt),
        keys=_keys(jwks) if jwks is not None else {"keys": _configured(config, out)},
        arguments=arguments,
        audience=wanted.audience,
        issuer=wanted.issuer,
        max_age=seconds,
    )
    must_be_approved = wanted.approved or wanted.arguments is not None
    problem = found.problem or (found.not_approved if must_be_approved else None)
    if problem is not None:
        out.failed("NOT_VERIFIED", f"Not verified: {problem}.")
        return 1
    out.show(
        {"verified": True, "kid": found.kid, "claims": dict(found.claims)}, _line(found.claims, found.kid)
    )
    return 0


def _line(claims: Mapping[str, Any], kid: str) -> str:
    """Returns who decided what and when, and by which key that is signed."""
    answer = claims.get("answer")
    decision = answer.get("decision") if isinstance(answer, dict) else None
    asked = claims.get("asked") or {}
    text = asked.get("action") or asked.get("question")
    what = f" “{inert.clip(inert.line(text), 80)}”" if isinstance(text, str) else ""
    deciders = [str(each.get("by")) for each in claims.get("deciders") or () if isinstance(each, dict)]
    accepted = [str(each["by"]) for each in claims.get("deciders") or () if each.get("decision") == "accept"]
    who = " and ".join(dict.fromkeys(accepted if decision == "accept" else deciders[-1:]))
    outcome = str(claims.get("outcome"))
    if outcome == "answered":
        did = {"accept": "approved", "reject": "rejected"}.get(str(decision), "answered")
    else:
        did = _DID.get(outcome, outcome)
    at = exact(datetime.fromtimestamp(claims.get("iat", 0), UTC))
    by = f" by {inert.line(who)}" if who else ""
    return f"Verified: {inert.line(str(claims.get('jti')))}{what} {did}{by} · {at} · key {inert.line(kid)}"


def _receipt(given: str) -> str:
    if given == "-":
        return sys.stdin.read()
    if given.count(".") == 2 and given.startswith("eyJ") and len(given) > 100:
        return given
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else "not text"
        raise BadInput(f"{given[:80]}: {why}; expected a receipt, a file with one, or -.") from None


def _arguments(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once)
    except OSError as error:
        raise BadInput(f"--arguments: {path}: {reason(error)}") from None
    except (ValueError, RecursionError) as error:
        why = f": {error}" if isinstance(error, _TwiceError) else ""
        raise BadInput(f"--arguments: {path} is not JSON{why}.") from None


class _TwiceError(ValueError):
    """An object has a name twice."""


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _TwiceError("an object has the same name twice")
    return found


def _keys(place: str) -> dict[str, Any]:
    """Returns the JWK Set at a URL or in a file.

    Raises:
        BadInput: it cannot be read, or is none.
    """
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
        found = json.loads(content)
    except ValueError:
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
    variable, secrets = settings.storage.url_env, settings.by_variable
    if variable is not None and variable not in secrets:
        out.note(f"clarify: earlier keys are not known: {variable} is not set in the environment")
        return []
    try:
        return stored_keys(
            settings.storage.path, None if variable is None else secrets[variable].get_secret_value()
        )
    except StorageError as error:
        out.note(f"clarify: earlier keys are not known: {error}")
        return []
