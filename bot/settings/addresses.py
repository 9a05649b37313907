"""Reads web addresses strictly, compares them with those that a producer may name, and says which network addresses may be
called.

A callback URL comes from an agent, so it must not make the bot call what only the bot can reach. The operator lists where
callbacks may lead; a listed name can still resolve to anything, so each address is checked again before each call. A link
comes from an agent, too, so people must see where it leads, and the operator lists what may be clicked. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal
from unicodedata import category, normalize
from urllib.parse import unquote

LONGEST_URL = 2000  # characters
Reach = Literal["public", "private", "loopback", "never"]
_ESCAPED = "%[0-9A-Fa-f]{2}"
_PARTS = re.compile(
    r"([Hh][Tt][Tt][Pp][Ss]?)://"  # not re.IGNORECASE, which also takes "ſ" for "s" and "ı" for "i"
    r"(\[[0-9A-Fa-f:.]+\]|[^\s/?#@\\:\[\]%]+)"
    r"(?::([0-9]{1,5}))?"
    rf"(/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/]|{_ESCAPED})*)?"
    rf"(\?(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?]|{_ESCAPED})*)?"
)
_FRAGMENT = re.compile(rf"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?]|{_ESCAPED})*")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_LIKE_A_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")  # as a last label: resolvers take it as an IPv4 address
_PORTS = {"http": 80, "https": 443}


def _networks(*texts: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    return [ipaddress.ip_network(each) for each in texts]


_PRIVATE = _networks("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
_UNICAST = ipaddress.ip_network("2000::/3")  # the only IPv6 addresses that are given out
_METADATA = _networks(  # clouds give their machines' credentials there; others are link-local
    *("fd00:ec2::/32", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42"),  # AWS, Google, Oracle, Scaleway
    *("100.100.100.200", "168.63.129.16"),  # Alibaba, Azure
)
_ODD = _networks(  # called global by some versions of `ipaddress`
    *("192.0.0.0/24", "192.88.99.0/24", "2001::/23", "3fff::/20"),
)
_WITH_IPV4 = _networks("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class WebUrl:
    """A URL in one spelling: host in lower case and IDNA, without a default port. Callback URLs are secrets: show only their
    `label`.
    """

    scheme: str
    host: str
    port: int
    path: str = field(repr=False)
    query: str = field(repr=False)
    fragment: str = field(repr=False, default="")

    @property
    def text(self) -> str:
        return f"{self.scheme}://{self.label}{self.path}{self.query}{self.fragment}"

    @property
    def label(self) -> str:
        """The host and, unless it is the default, the port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def literal(self) -> Reach | None:
        """What its host reaches, if that is an IP address; None: a name."""
        try:
            return reach(self.host)
        except ValueError:
            return None

    @property
    def is_this_machine(self) -> bool:
        return self.host == "localhost" or self.host.endswith(".localhost")

    def fits(self, pattern: WebUrl) -> bool:
        """Whether a URL of the list, with `*` in its path, allows this one. Any query and fragment is
        allowed.
        """
        same = (self.scheme, self.host, self.port) == (pattern.scheme, pattern.host, pattern.port)
        return same and _matches(self.path, pattern.path)


def callback_url(text: str) -> WebUrl:
    """Parses the URL of a callback: https, or http to a loopback address.

    Raises:
        ValueError: it is none, or one that can be read in two ways. The message does not repeat it.
    """
    found = _web_url(text)
    if found.scheme == "http" and found.literal != "loopback":
        raise ValueError("expected https://; http:// only to a loopback address, such as 127.0.0.1")
    if found.literal == "never" or found.is_this_machine:
        raise ValueError("expected a host that callbacks may reach; write loopback as 127.0.0.1 or [::1]")
    return found


def link_url(text: str) -> WebUrl:
    """Parses an address that people may click: https, to a host with a name. Its spelling is the one that browsers open.

    Raises:
        ValueError: it is none, or one that can be read in two ways. The message does not repeat it.
    """
    address, mark, fragment = text.partition("#")
    found = _web_url(address)
    if found.scheme != "https":
        raise ValueError("expected https://")
    if found.literal is not None or found.is_this_machine:
        raise ValueError("expected the name of a host, not an IP address or localhost")
    if not _FRAGMENT.fullmatch(fragment):
        raise ValueError("expected a URL without spaces and other characters that URLs escape")
    found = replace(found, query=found.query.replace("'", "%27"), fragment=mark + fragment)
    _check_length(found.text)
    return found


def link_pattern(text: str) -> WebUrl:
    """Parses an entry of `links`: an address, or all below a folder (`https://github.com/acme/*`).

    Raises:
        ValueError: it is none. `https://github.com/acme*` is none, either: it would allow `/acme-evil`, too.
    """
    if "*" in text.partition("://")[2].partition("/")[0]:
        raise ValueError('expected a host without "*"; list each host')
    found = link_url(text)
    if found.query or found.fragment:
        raise ValueError("expected a URL without ? and #; any query and fragment is allowed")
    if "*" in found.path.removesuffix("/*"):
        raise ValueError('expected "*" only at the end, after a "/", such as https://github.com/acme/*')
    return found


def _web_url(text: str) -> WebUrl:
    """Parses a URL that has only one reading. Raises ValueError otherwise, without repeating it."""
    _check_length(text)
    parts = _PARTS.fullmatch(text)
    if parts is None:
        raise ValueError(
            "expected a URL with https:// and a host, without a user name, #, spaces and other characters that URLs escape"
        )
    scheme, host, port, path, query = parts.groups()
    scheme = scheme.lower()
    found = WebUrl(
        scheme=scheme,
        host=_host(host),
        port=int(port) if port else _PORTS[scheme],
        path=path or "/",
        query=query or "",
    )
    if not 0 < found.port < 65536:
        raise ValueError("expected a port from 1 to 65535")
    if _climbs(found.path):
        raise ValueError("expected a path without . and .. segments and control characters")
    _check_length(found.text)
    return found


def _check_length(text: str) -> None:
    if len(text) > LONGEST_URL:
        raise ValueError(f"expected a URL of at most {LONGEST_URL:,} characters")


def reach(address: str) -> Reach:
    """Returns what an IP address reaches. One that holds an IPv4 address (mapped, NAT64, 6to4) reaches no more than that.

    Raises:
        ValueError: it is no IP address.
    """
    given = ipaddress.ip_address(address)
    if getattr(given, "scope_id", None):
        return "never"
    inner = _inner(given)
    if inner is None:
        return _reach(given)
    found = _reach(inner)
    return "never" if found == "loopback" else found


def may_be_called(address: str, *, private: bool) -> bool:
    """Whether a callback may call an address that its host's name resolved to. `private`: the list says so."""
    return reach(address) in ({"public", "private"} if private else {"public"})


def _reach(address: _Address) -> Reach:
    if address.is_loopback:
        return "loopback"
    if _is_in(_METADATA, address):
        return "never"
    if _is_in(_PRIVATE, address):
        return "private"
    is_given_out = isinstance(address, ipaddress.IPv4Address) or address in _UNICAST
    is_public = address.is_global and is_given_out and not address.is_multicast and not _is_in(_ODD, address)
    return "public" if is_public else "never"


def _is_in(networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network], address: _Address) -> bool:
    return any(address in network for network in networks)


def _inner(address: _Address) -> ipaddress.IPv4Address | None:
    """Returns the IPv4 address that packets to an IPv6 address end at, if any."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if _is_in(_WITH_IPV4, address) and int(address) > 1:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour


def _host(text: str) -> str:
    if text.startswith("["):
        try:
            return str(ipaddress.IPv6Address(text[1:-1]))
        except ValueError:
            raise ValueError("expected an IPv6 address in brackets") from None
    host = text.lower()
    if not host.isascii():
        import idna  # noqa: PLC0415 - only where a name needs it

        try:
            host = idna.encode(host, uts46=True).decode()
        except idna.IDNAError:
            raise ValueError("expected a host name that exists in IDNA") from None
    labels = host.split(".")
    if _LIKE_A_NUMBER.fullmatch(labels[-1]):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise ValueError("expected an IPv4 address as four decimal numbers") from None
    if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError("expected a host name")
    return host


def _climbs(path: str) -> bool:
    """Whether a server may read the path as one elsewhere, also if it decodes more than once, drops what it cannot decode, or
    takes one character for another.
    """
    try:
        while (plain := unquote(path, errors="strict")) != path:
            path = plain
    except UnicodeDecodeError:
        return True
    if any(category(each) == "Cc" for each in path):
        return True
    segments = (each.partition(";")[0] for each in re.split(r"[/\\]", normalize("NFKC", path)))
    return any(each.strip(" ") in {".", ".."} for each in segments)


def _matches(path: str, pattern: str) -> bool:
    """Whether a path matches a pattern with `*` for any characters."""
    first, *others = map(re.escape, pattern.split("*"))
    if not others:
        return path == pattern
    # Atomic groups take linear time, whatever the pattern.
    inner = "".join(f"(?>.*?{each})" for each in others[:-1])
    return re.fullmatch(f"{first}{inner}.*{others[-1]}", path, re.DOTALL) is not None
