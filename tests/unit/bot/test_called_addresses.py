"""Names are resolved once, all of their addresses are checked, and only a checked one is called."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import bot.http
from bot.http import NETWORK, NOT_SENT, HttpClient, words
from bot.settings.addresses import may_be_called
from tests.kit.certificates import certificate
from tests.kit.served import accepting

NAME = "hooks.example"


class Names:
    """A resolver: NAME has one answer after the other, then the last. What is asked for is in `asked`."""

    def __init__(self, *answers: tuple[str, ...]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def resolve(self, host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        self.asked.append(str(host))
        addresses = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (each, port, 0, 0))
            if ":" in each
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port))
            for each in addresses
        ]


@asynccontextmanager
async def serving(address: str, folder: Path, name: str = NAME) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server for `name`: its port, and the heads of the requests that it got."""
    heads: list[bytes] = []

    async def serve(received: asyncio.StreamReader, sent: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            heads.append(await received.readuntil(b"\r\n\r\n"))
            sent.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            await sent.drain()
        sent.close()

    context = certificate(folder, name)
    async with accepting(serve, host=address, context=context) as port:
        yield port, heads


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The certificates of this folder are trusted."""
    monkeypatch.setattr(bot.http, "_ssl_context", bot.http._ssl_context.__wrapped__)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    return tmp_path


async def test_checked_address_is_called_without_resolving_again(
    trusted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name resolves to another address from the second time on, which nobody asks for."""
    names = Names(("127.0.0.2",), ("127.0.0.3",))
    async with (
        serving("127.0.0.2", trusted) as (port, heads),
        HttpClient(None, may_be_called=checked) as http,
    ):
        monkeypatch.setattr(socket, "getaddrinfo", names.resolve)
        answer = await http.request("POST", f"https://{NAME}:{port}/a", b"{}")
        assert answer.status == 204
    assert names.asked == [NAME]
    assert f"Host: {NAME}:{port}".encode() in heads[0]


def checked(address: str) -> bool:
    return address == "127.0.0.2"


async def test_name_in_the_certificate_is_still_verified(
    trusted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        serving("127.0.0.2", trusted, "other.example") as (port, heads),
        HttpClient(None, may_be_called=checked) as http,
    ):
        monkeypatch.setattr(socket, "getaddrinfo", Names(("127.0.0.2",)).resolve)
        with pytest.raises(NOT_SENT) as refused:
            await http.request("POST", f"https://{NAME}:{port}/a", b"{}")
        assert "certificate verify failed" in words(refused.value).lower().replace("_", " ")
    assert heads == []


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize(
    "addresses",
    [
        ("127.0.0.1",),
        ("127.0.0.2",),
        ("::1",),
        ("::ffff:127.0.0.1",),
        ("64:ff9b::7f00:1",),
        ("2002:7f00:1::1",),
        ("169.254.169.254",),
        ("::ffff:169.254.169.254",),
        ("fe80::1",),
        ("0.0.0.0",),
        ("8.8.8.8", "127.0.0.1"),  # one is enough
        ("127.0.0.1", "8.8.8.8"),
        ("2606:4700::1", "::1"),
    ],
)
async def test_name_of_this_machine_or_its_link_is_not_called(
    addresses: tuple[str, ...], private: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Names(addresses).resolve)
    await assert_nothing_is_called(monkeypatch, private=private)


@pytest.mark.parametrize(
    "address", ["10.0.0.5", "192.168.1.1", "100.64.0.1", "fd00::1", "::ffff:10.0.0.5", "64:ff9b::a00:5"]
)
async def test_private_address_is_called_only_where_the_list_says_so(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Names((address,)).resolve)
    await assert_nothing_is_called(monkeypatch, private=False)
    assert await called(monkeypatch, private=True) == [address]


async def test_address_that_changes_is_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(("8.8.8.8",), ("127.0.0.1",))
    monkeypatch.setattr(socket, "getaddrinfo", names.resolve)
    assert await called(monkeypatch, private=False) == ["8.8.8.8"]
    await assert_nothing_is_called(monkeypatch, private=False)
    assert names.asked == [NAME, NAME]


async def called(monkeypatch: pytest.MonkeyPatch, *, private: bool) -> list[str]:
    """The addresses that are connected to; nothing is sent there."""
    tried: list[str] = []

    async def connect(_: object, __: socket.socket, address: tuple[Any, ...]) -> None:
        tried.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", connect)
    allowed = partial(may_be_called, private=private)
    async with HttpClient(None, may_be_called=allowed) as http:
        with pytest.raises(NETWORK) as failed:
            await http.request("POST", f"https://{NAME}/s3cret", b"{}")
    assert "s3cret" not in words(failed.value)
    if not tried:
        assert (
            words(failed.value)
            == f"cannot connect to {NAME}:443 ({NAME} resolves to an address that must not be called)"
        )
    return tried


async def assert_nothing_is_called(monkeypatch: pytest.MonkeyPatch, *, private: bool) -> None:
    assert await called(monkeypatch, private=private) == []


async def test_proxies_of_the_environment_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would resolve the name anew, and sees what goes to this machine."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.9:9")
    monkeypatch.setattr(socket, "getaddrinfo", Names(("8.8.8.8",)).resolve)
    assert await called(monkeypatch, private=False) == ["8.8.8.8"]


async def test_lookups_that_get_no_answer_delay_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bot draws cards and reads ledgers in threads that all parts share. None of them waits for a name server."""
    answered = threading.Event()

    def never(*_: Any, **__: Any) -> list[Any]:
        answered.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", never)
    monkeypatch.setattr(bot.http, "CONNECT_TIMEOUT", 0.05)
    clients = [HttpClient(None) for _ in range(40)]  # more than there are shared threads
    try:
        tries = [each.request("POST", f"https://{NAME}/", b"{}") for each in clients]
        ends = await asyncio.gather(*tries, return_exceptions=True)
        assert {type(each) for each in ends} == {aiohttp.ConnectionTimeoutError}
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "drawn"), 5) == "drawn"
    finally:
        answered.set()
        for each in clients:
            await each.close()


async def test_name_without_addresses_is_a_failure_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", Names(()).resolve)
    async with HttpClient(None) as http:
        with pytest.raises(NOT_SENT) as failed:
            await http.request("POST", f"https://{NAME}/", b"{}")
    assert words(failed.value) == f"cannot connect to {NAME}:443 (Name or service not known)"
