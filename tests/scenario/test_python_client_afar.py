"""`clarify.py` with a bot on another machine: TLS, and proxies as the environment names them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import clarify
from tests.kit.certificates import certificate
from tests.kit.served import Talk, accepting
from tests.kit.world import World, config, url_of
from workspace.seed import AGENTS, FOLAKE

NAME = "clarify.example.com"


@asynccontextmanager
async def listening(handle: Talk, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    async def handled(received: asyncio.StreamReader, sent: asyncio.StreamWriter) -> None:
        try:
            await handle(received, sent)
        finally:
            sent.close()

    async with accepting(handled, context=context) as port:
        yield port


async def joined(
    received: asyncio.StreamReader, sent: asyncio.StreamWriter, port: int, first: bytes = b""
) -> None:
    """Pass everything on to a port, and back."""
    answers, asks = await asyncio.open_connection("127.0.0.1", port)
    asks.write(first)

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
        sink.close()

    await asyncio.gather(pump(received, asks), pump(answers, sent))


@pytest.fixture
async def port(stage: World) -> AsyncIterator[int]:
    """Of a bot that takes a token, from anywhere."""
    stage.environ["CODER_TOKEN"] = "secret"
    more = '[[producers]]\nname = "coder"\ntoken_env = "CODER_TOKEN"\n'
    async with stage.bot(config(stage.producer.url, more=more)) as bot:
        yield int(url_of(bot).rpartition(":")[2])


async def answered(stage: World, url: str, how: str) -> None:
    """Ask there, and get the answer."""
    asking = asyncio.ensure_future(
        asyncio.to_thread(lambda: clarify.ask("From afar?", kind="yes_no", url=url, token="secret"))
        if how == "sync"
        else clarify.aio.ask("From afar?", kind="yes_no", url=url, token="secret")
    )
    card = await stage.card("From afar?")
    await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
    answer = await asking
    assert (answer.value, answer.state["agent"]) == (True, "coder")


@pytest.mark.parametrize("how", ["sync", "asyncio"])
async def test_tls_through_a_proxy(
    stage: World, port: int, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, heads = certificate(tmp_path, NAME), list[bytes]()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))

    async def tunnel(received: asyncio.StreamReader, sent: asyncio.StreamWriter) -> None:
        heads.append(await received.readuntil(b"\r\n\r\n"))
        sent.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await joined(received, sent, inner)

    async with (
        listening(lambda received, sent: joined(received, sent, port), context) as inner,
        listening(tunnel) as proxy,
    ):
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy}")
        await answered(stage, f"https://{NAME}", how)
    assert all(head.startswith(f"CONNECT {NAME}:443 HTTP/1.1".encode()) for head in heads)
    assert not any(b"secret" in head for head in heads)


@pytest.mark.parametrize("how", ["sync", "asyncio"])
async def test_plain_http_through_a_proxy(
    stage: World, port: int, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = list[bytes]()

    async def proxied(received: asyncio.StreamReader, sent: asyncio.StreamWriter) -> None:
        line = await received.readline()
        lines.append(line)
        await joined(received, sent, port, line.replace(f"http://{NAME}:8787".encode(), b""))

    async with listening(proxied) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy}")
        await answered(stage, f"http://{NAME}:8787", how)
    assert lines[0] == f"POST http://{NAME}:8787/questions HTTP/1.1\r\n".encode()


async def test_certificate_of_somebody_else_is_not_trusted(tmp_path: Path) -> None:
    async with listening(lambda _, __: asyncio.sleep(0), certificate(tmp_path, NAME)) as there:
        for call in (clarify.aio.ask, lambda *a, **k: asyncio.to_thread(lambda: clarify.ask(*a, **k))):
            with pytest.raises(clarify.Unreachable, match="certificate verify failed"):
                await call("Anybody?", timeout=0.1, url=f"https://localhost:{there}", token="secret")


async def test_proxy_that_refuses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(received: asyncio.StreamReader, sent: asyncio.StreamWriter) -> None:
        await received.readuntil(b"\r\n\r\n")
        sent.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        await sent.drain()

    async with listening(refuse) as proxy:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy}")
        with pytest.raises(clarify.Unreachable, match="the proxy answered with HTTP 403"):
            await clarify.aio.ask("Anybody?", timeout=0.1, url=f"https://{NAME}", token="secret")
