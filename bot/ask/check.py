"""Checks of the producers for `clarify check`: is each reachable with its token, are its patterns fast, its token unique?"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from importlib.metadata import version

from bot.ask.dialects import (
    NoHandshake,
    NotConnected,
    Subscription,
    address,
    handshake_answer,
    minimal,
    stream_answer,
    subscription_request,
)
from bot.ask.redaction import BUDGET, what_slows
from bot.checks import CheckResult, clock, right, wrong
from bot.http import NETWORK, HttpClient, json_body, words
from bot.settings.model import ProducerSettings, Settings

_STANDARD = "/aaep/v1/subscriptions"


def check_redactions(settings: Settings) -> Iterator[CheckResult]:
    """Tries each `redact` pattern against texts made to slow it down, as agents may send such texts."""
    for index, producer in enumerate(settings.producers):
        slow = {number: what_slows(pattern) for number, pattern in enumerate(producer.redact)}
        for number, text in slow.items():
            if text is not None:
                told = f"takes more than {BUDGET:.0f} s on a long text like {text + '…'!r}: such questions are refused"
                fix = "bound its repetitions ({1,64} in place of +), and let no two in a row match the same characters"
                yield wrong(f"producers[{index}].redact[{number}]", told, fix)
        if slow and not any(slow.values()):
            yield right(f"producers[{index}].redact", "no text was found that slows its patterns down")


async def check_producers(settings: Settings) -> AsyncIterator[CheckResult]:
    for producer in settings.producers:
        if producer.url is None:
            yield _check_pushing(producer, settings)
            continue
        token = settings.producer_token(producer)
        async with HttpClient(None if token is None else token.get_secret_value()) as client:
            try:
                result, date = await _subscribe(client, producer, producer.url)
            except NETWORK as error:
                yield wrong(_subject(producer), f"{producer.url}: {words(error)}", _network_fix(error))
                continue
        yield result
        if skew := clock(f"{_subject(producer)} clock", date):
            yield skew


def _check_pushing(producer: ProducerSettings, settings: Settings) -> CheckResult:
    """Checks a producer that pushes: only its token identifies it."""
    token = settings.producer_token(producer)
    if token is not None:
        for other in settings.producers:
            if other is not producer and other.pushes and settings.producer_token(other) == token:
                return wrong(
                    _subject(producer),
                    f"shares its token with {other.name}: each could read the other's replies",
                    "give each pushing producer its own token",
                )
    others = [each.name for each in settings.producers if each.pushes and each is not producer]
    if others and producer.agents is None:
        text = f"pushes to us, as does {', '.join(others)}, and may use any agent name"
        fix = f'set agents = ["{producer.name}", …] for it: the agents it may speak for'
        return right(_subject(producer), text, fix)
    return right(_subject(producer), "pushes to us: nothing to connect to")


async def _subscribe(
    client: HttpClient, producer: ProducerSettings, url: str
) -> tuple[CheckResult, str | None]:
    """Subscribes; returns the result and the Date header of the producer's answer.

    Leaves the subscription open, as a producer may give up its open questions when one closes.
    """
    if producer.dialect != "minimal":
        request = json_body(subscription_request(version("clarify-bot")))
        answer = await client.request("POST", address(url, _STANDARD), request)
        outcome = handshake_answer(answer, url, producer.dialect, datetime.now(UTC))
        if not isinstance(outcome, NoHandshake):
            return _subscribed(producer, url, outcome), answer.headers.get("date")
    stream = minimal(url, "sub_check")
    async with client.stream("GET", stream.events) as response:
        outcome = stream_answer(response, datetime.now(UTC)) or stream
        return _subscribed(producer, url, outcome), response.headers.get("date")


def _subscribed(producer: ProducerSettings, url: str, outcome: Subscription | NotConnected) -> CheckResult:
    if isinstance(outcome, Subscription):
        does = "accepts the subscription" if outcome.dialect == "standard" else "streams events"
        return right(_subject(producer), f"{url}: {does} ({outcome.dialect} dialect)")
    fix = "check url and dialect in clarify.toml; url is the base address, without /events or /aaep"
    if outcome.unauthorized:
        variable = producer.token_env
        fix = f"check the value of {variable}" if variable else "set token_env in clarify.toml"
    return wrong(_subject(producer), f"{url}: {outcome.reason}", fix)


def _network_fix(error: BaseException) -> str:
    if isinstance(error, ssl.CertificateError):
        return "its certificate is not valid for this name, or its authority is unknown to this machine"
    return "start it, or check url in clarify.toml"


def _subject(producer: ProducerSettings) -> str:
    return f"producer {producer.name}"
