"""Identifies callers: a producer by its bearer token, or any process of this machine.

A web page in a browser on this machine is such a process, too. So requests without a token are rejected if they have
headers that only browsers send (`Origin`), the name of another host (DNS rebinding) or a body that a form could send.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Collection, Mapping

from fastapi import HTTPException
from fastapi.security import HTTPBearer
from pydantic import SecretStr
from starlette.requests import Request

from bot.web.guard import problem
from core.workflow import Speaker

BEARER = HTTPBearer(
    auto_error=False,
    scheme_name="producer",
    description="A producer's token, from the environment variable that `token_env` of its `[[producers]]` table names. A producer "
    "without a token can call only from this machine. If several have no token, add `?producer=NAME`.",
)
"""For the OpenAPI document: `dependencies=[Security(BEARER)]`. The check itself is `Callers`."""
_LOCAL = "local"
_PROXIED = ("forwarded", "x-forwarded", "x-real-ip", "via")  # prefixes of proxies' headers
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+))(?::[0-9]*)?", re.ASCII)
_UNKNOWN_BEARER = (
    "This bearer token belongs to no producer in clarify.toml. Check the variable that `token_env` names."
)
_WITH_BODY = {"POST", "PUT", "PATCH"}
_LOCAL_PAGE = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?")


class Callers:
    """The producers that may call."""

    def __init__(
        self,
        tokens: Mapping[str, SecretStr | None],
        speakers: Mapping[str, Speaker] | None = None,
        *,
        origins: Collection[str] = (),
        local_pages: bool = False,
    ) -> None:
        """`tokens`: producer → bearer token, None if it has none. `speakers`: the producers that may speak only for some
        agents. `origins`: web pages that may call from this machine without a token; `local_pages`: and all that this
        machine serves, such as MCP's inspector.
        """
        self._tokens = {
            name: token.get_secret_value().encode() for name, token in tokens.items() if token is not None
        }
        self._speakers = speakers or {}
        self._origins = frozenset(origins)
        self._local_pages = local_pages
        self._bare = tuple(name for name, token in tokens.items() if token is None)
        self._may_call = bool(tokens)

    def speaker(self, request: Request) -> Speaker:
        """Returns the producer that calls, with the agents that it may speak for; "local" for a process of this machine if
        no producer may call.

        Raises:
            HTTPException: 400 several producers can call this way, and it names none; 401 no token, or a wrong one; 403 it
                may not call from there, or not as that producer; 415 the body is not JSON. `detail` has `error` and
                `message`.
        """
        if not self._may_call and "authorization" not in request.headers:
            self._check_local(request, _LOCAL)
            _check_json(request)
            return Speaker(_choose((_LOCAL,), request.query_params.get("producer")))
        name = self.pushing(request)
        return self._speakers.get(name, Speaker(name))

    async def asking(self, request: Request) -> Speaker:
        """Returns `speaker`, as a dependency of a route: for a plain function, FastAPI would start a thread."""
        return self.speaker(request)

    def pushing(self, request: Request) -> str:
        """Returns the name of the configured producer that calls.

        Raises:
            HTTPException: see `speaker`.
        """
        if not self._may_call:
            if "authorization" in request.headers:
                raise _unauthorized(_UNKNOWN_BEARER)
            raise problem(
                403,
                "NO_PRODUCER",
                "No producer may call. Add a [[producers]] table without `url` to clarify.toml.",
            )
        name = self._named(request)
        _check_json(request)
        return name

    def _named(self, request: Request) -> str:
        asked = request.query_params.get("producer")
        header = request.headers.get("authorization")
        if header is not None:
            return _choose(self._holders(header), asked)
        if asked in self._tokens or not self._bare:
            raise _unauthorized()
        self._check_local(request, self._bare[0])
        return _choose(self._bare, asked)

    def onlooker(self, request: Request) -> None:
        """Checks that the caller may see the server itself: it has a token, or calls an IP address or localhost.

        Any other host name could be one that a foreign web page pointed at this server (DNS rebinding).

        Raises:
            HTTPException: 401 a wrong token; 403 another host name.
        """
        if (header := request.headers.get("authorization")) is not None:
            self._holders(header)
        elif not is_address(host := request.headers.get("host", "")) and not is_loopback_host(host):
            why = "Use the server's IP address or localhost, or send a producer's token."
            raise problem(403, "HOST", why)

    def _check_local(self, request: Request, name: str) -> None:
        """Checks a caller without a token: it must be a process of this machine, and no web page but `origins`."""
        if request.client is None or _is_proxied(request) or not is_loopback_address(request.client.host):
            if self._tokens:
                raise _unauthorized()
            why = f"{name} has no token, so it can call only from this machine, without a proxy."
            raise problem(
                403, "NOT_LOCAL", why + " To call from elsewhere, set `token_env` in its [[producers]] table."
            )
        origin = request.headers.get("origin", "")
        is_local = self._local_pages and _LOCAL_PAGE.fullmatch(origin) is not None
        known = is_local or origin in self._origins
        if not known and (
            "origin" in request.headers or request.headers.get("sec-fetch-site", "none") != "none"
        ):
            raise problem(403, "BROWSER", "Requests from a web page need a bearer token.")
        if not is_loopback_host(request.headers.get("host", "")):
            raise problem(403, "HOST", "Without a token, call localhost, 127.0.0.1 or [::1].")

    def _holders(self, header: str) -> tuple[str, ...]:
        """Returns the producers with this token. Compares all of them, so that the time taken reveals nothing."""
        scheme, _, given = header.partition(" ")
        token = given.strip(" \t").encode("latin-1")  # the bytes as received
        found = [name for name, expected in self._tokens.items() if hmac.compare_digest(token, expected)]
        if scheme.lower() != "bearer" or not token or not found:
            raise _unauthorized(_UNKNOWN_BEARER)
        return tuple(found)


def is_loopback_host(host: str) -> bool:
    """Returns whether a `Host` header, with or without a port, can name only this machine."""
    name = _name_in(host)
    return name == "localhost" or is_loopback_address(name)


def is_address(host: str) -> bool:
    """Returns whether a `Host` header has an IP address instead of a name."""
    try:
        ipaddress.ip_address(_name_in(host))
    except ValueError:
        return False
    return True


def _name_in(host: str) -> str:
    found = _HOST.fullmatch(host.strip())
    return (found[1] or found[2]).lower() if found else ""


def is_loopback_address(text: str) -> bool:
    """Returns whether a text is a loopback IP address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _is_proxied(request: Request) -> bool:
    """Returns whether a proxy passed the request on. An nginx with defaults shows only by HTTP/1.0, which no agent uses."""
    named = any(name.startswith(_PROXIED) for name in request.headers)
    return named or request.scope.get("http_version") == "1.0"


def _choose(names: tuple[str, ...], asked: str | None) -> str:
    if asked is None and len(names) == 1:
        return names[0]
    if asked is None:
        raise problem(
            400,
            "WHICH_PRODUCER",
            f"Several producers can call this way. Add ?producer= with one of: {', '.join(names)}.",
        )
    if asked not in names:
        raise problem(
            403,
            "OTHER_PRODUCER",
            "This token, or this machine, does not belong to that producer. Correct ?producer=, or send the producer's own token.",
        )
    return asked


def _check_json(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method in _WITH_BODY and kind != "application/json":
        raise problem(415, "NOT_JSON", "Send the header Content-Type: application/json.")


def _unauthorized(
    why: str = "Send the bearer token of your producer: Authorization: Bearer TOKEN.",
) -> HTTPException:
    return problem(401, "UNAUTHORIZED", why, headers={"WWW-Authenticate": "Bearer"})
