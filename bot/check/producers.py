"""Subscribes to a producer as the bot would, as far as needed to see whether it can."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from importlib.metadata import version

import httpx

from bot.check import findings
from bot.check.findings import Finding, right, wrong
from bot.http import NETWORK, HttpAnswer, json_body, open_client, post, words
from bot.producers.dialects import (
    NoHandshake,
    NoSubscription,
    address,
    handshake_answer,
    minimal,
    stream_answer,
    subscription_request,
)
from bot.settings.model import ProducerSettings, Settings

_STANDARD = "/aaep/v1/subscriptions"


async def probe(settings: Settings) -> AsyncIterator[Finding]:
    """Yield what is right and wrong with each producer."""
    for producer in settings.producers:
        if producer.url is None:
            yield _pushing(producer, settings)
            continue
        token = settings.producer_token(producer)
        async with open_client(None if token is None else token.get_secret_value()) as client:
            try:
                finding, date = await _subscribe(client, producer, producer.url)
            except (*NETWORK, TimeoutError) as error:
                yield wrong(_subject(producer), f"{producer.url}: {words(error)}", _network_mend(error))
                continue
        yield finding
        if skew := findings.clock(f"{_subject(producer)} clock", date, datetime.now(UTC)):
            yield skew


def _pushing(producer: ProducerSettings, settings: Settings) -> Finding:
    """One that connects to us is known by its token alone."""
    token = settings.producer_token(producer)
    if token is not None:
        for other in settings.producers:
            if other is not producer and other.pushes and settings.producer_token(other) == token:
                return wrong(
                    _subject(producer),
                    f"its token is that of {other.name}, too: each could read the other's replies",
                    "give every producer that pushes a token of its own",
                )
    others = [each.name for each in settings.producers if each.pushes and each is not producer]
    if others and producer.agents is None:
        text = f"pushes to us, as does {', '.join(others)}, and may call itself any agent"
        mend = f'set agents = ["{producer.name}", …] for it: the agents that may speak through it'
        return Finding(ok=True, subject=_subject(producer), text=text, mend=mend)
    return right(_subject(producer), "pushes to us: nothing to connect to")


async def _subscribe(
    client: httpx.AsyncClient, producer: ProducerSettings, url: str
) -> tuple[Finding, str | None]:
    """Return the finding and the Date header of the answer that it comes from.

    The subscription is not closed again: a producer may take a closed one for the end of what it waits for.
    """
    if producer.dialect != "minimal":
        answer = await post(
            client, address(url, _STANDARD), json_body(subscription_request(version("clarify-bot")))
        )
        finding = _judge_handshake(answer, producer, url)
        if finding is not None:
            return finding, answer.headers.get("date")
    async with client.stream("GET", minimal(url, "sub_check").events) as response:
        no_stream = stream_answer(response, datetime.now(UTC))
        date = response.headers.get("date")
    if no_stream is None:
        return right(_subject(producer), f"{url}: streams events (minimal dialect)"), date
    return _refused(producer, url, no_stream), date


def _judge_handshake(answer: HttpAnswer, producer: ProducerSettings, url: str) -> Finding | None:
    """Tell what the handshake came to; None where another dialect is to be tried."""
    outcome = handshake_answer(answer, url, producer.dialect, datetime.now(UTC))
    if isinstance(outcome, NoHandshake):
        return None
    if isinstance(outcome, NoSubscription):
        return _refused(producer, url, outcome)
    return right(_subject(producer), f"{url}: accepts the subscription (standard dialect)")


def _refused(producer: ProducerSettings, url: str, outcome: NoSubscription) -> Finding:
    if outcome.unauthorized:
        mend = (
            f"check the value of {producer.token_env}"
            if producer.token_env
            else "set token_env in clarify.toml"
        )
    else:
        mend = "check url and dialect in clarify.toml; url is the base address, without /events or /aaep"
    return wrong(_subject(producer), f"{url}: {outcome.reason}", mend)


def _network_mend(error: BaseException) -> str:
    if "CERTIFICATE" in str(error).upper():
        return "its certificate is not valid for this name, or not signed by an authority that this machine knows"
    return "start it, or check url in clarify.toml"


def _subject(producer: ProducerSettings) -> str:
    return f"producer {producer.name}"
