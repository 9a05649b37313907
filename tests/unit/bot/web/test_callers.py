from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from fastapi import HTTPException
from pydantic import SecretStr
from starlette.requests import Request

from bot.web.guard import Callers, is_loopback_host

TOKENS: Mapping[str, SecretStr | None] = {
    "planner": SecretStr("planner-token"),
    "builder": SecretStr("builder-token"),
    "helper": None,
    "second": None,
}
ONE_BARE: Mapping[str, SecretStr | None] = {"planner": SecretStr("planner-token"), "helper": None}
LOCAL = ("127.0.0.1", 5000)
FAR = ("192.0.2.7", 5000)


def request(
    query: str = "",
    *,
    client: tuple[str, int] | None = LOCAL,
    method: str = "GET",
    more: Mapping[str, str] | None = None,
    **headers: str,
) -> Request:
    given = {**(more or {}), **headers}
    named = {"host": "127.0.0.1:8787"} | {name.replace("_", "-"): value for name, value in given.items()}
    return Request(
        {
            "type": "http",
            "method": method,
            "path": "/aaep/v1/messages",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in named.items()],
            "client": client,
        }
    )


def test_callers_without_a_token_are_not_let_in_by_a_proxy_that_says_nothing() -> None:
    """nginx, unless told otherwise, names nobody, and the host that it passes on to; it speaks HTTP/1.0."""
    asked = request()
    assert Callers({}).speaker(asked).producer == "local"
    asked.scope["http_version"] = "1.0"
    assert refused(Callers({}).speaker, asked) == (403, "NOT_LOCAL")
    assert refused(Callers(ONE_BARE).speaker, asked) == (401, "UNAUTHORIZED")


def refused(check: Callable[[Request], object], asked: Request) -> tuple[int, str]:
    """Status and code of the refusal, which never repeats what was sent."""
    with pytest.raises(HTTPException) as caught:
        check(asked)
    assert "-token" not in str(caught.value.detail)
    assert isinstance(caught.value.detail, dict)
    assert (caught.value.headers or {}).get("WWW-Authenticate") == (
        "Bearer" if caught.value.status_code == 401 else None
    )
    return caught.value.status_code, caught.value.detail["error"]


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("Bearer planner-token", "planner"),
        ("bearer builder-token", "builder"),
        ("Bearer  builder-token ", "builder"),
    ],
)
@pytest.mark.parametrize("client", [LOCAL, FAR, None])
def test_callers_know_a_producer_by_its_token_from_anywhere(
    header: str, name: str, client: tuple[str, int] | None
) -> None:
    asked = request(client=client, authorization=header, origin="https://example.org", host="bot.example.org")
    assert Callers(TOKENS).pushing(asked) == name
    assert Callers(TOKENS).speaker(asked).producer == name


@pytest.mark.parametrize("token", ["tökén", "tokà", "tokÅ", "tok…"])
def test_callers_know_a_token_by_its_bytes(token: str) -> None:
    """Those of the last ones end like spaces of Latin-1."""
    asked = request(authorization=f"Bearer {token}".encode().decode("latin-1"))
    assert Callers({"planner": SecretStr(token)}).pushing(asked) == "planner"


@pytest.mark.parametrize(
    "header",
    [
        "Bearer planner-toke",
        "Bearer PLANNER-TOKEN",
        "Bearer",
        "Basic planner-token",
        "",
    ],
)
def test_callers_refuse_a_wrong_token_also_from_this_machine(header: str) -> None:
    assert refused(Callers(TOKENS).pushing, request(authorization=header)) == (401, "UNAUTHORIZED")


@pytest.mark.parametrize(
    ("query", "name"), [("producer=helper", "helper"), ("a=1&producer=second", "second")]
)
def test_callers_let_one_of_several_without_token_say_who_it_is(query: str, name: str) -> None:
    assert Callers(TOKENS).pushing(request(query)) == name


def test_callers_name_those_that_a_caller_without_token_may_be() -> None:
    with pytest.raises(HTTPException) as caught:
        Callers(TOKENS).pushing(request())
    assert caught.value.status_code == 400
    assert "helper, second" in str(caught.value.detail)
    assert "planner" not in str(caught.value.detail)


@pytest.mark.parametrize(
    ("query", "headers", "expected"),
    [
        ("producer=planner", {}, (401, "UNAUTHORIZED")),
        ("producer=nobody", {}, (403, "OTHER_PRODUCER")),
        ("producer=builder", {"authorization": "Bearer planner-token"}, (403, "OTHER_PRODUCER")),
        ("producer=helper", {"authorization": "Bearer planner-token"}, (403, "OTHER_PRODUCER")),
    ],
)
def test_callers_let_nobody_pass_as_another(
    query: str, headers: dict[str, str], expected: tuple[int, str]
) -> None:
    assert refused(Callers(TOKENS).pushing, request(query, more=headers)) == expected


@pytest.mark.parametrize("client", [("127.0.0.1", 1), ("127.8.9.1", 1), ("::1", 1), ("::ffff:127.0.0.1", 1)])
def test_callers_take_a_process_of_this_machine_without_token(client: tuple[str, int]) -> None:
    assert Callers({"helper": None}).pushing(request(client=client)) == "helper"


@pytest.mark.parametrize(
    ("client", "headers"),
    [
        (FAR, {}),
        (("::ffff:192.0.2.7", 1), {}),
        (("testclient", 1), {}),
        (None, {}),
        (LOCAL, {"x_forwarded_for": "127.0.0.1"}),
        (LOCAL, {"forwarded": "for=127.0.0.1"}),
        (LOCAL, {"x_real_ip": "127.0.0.1"}),
        (LOCAL, {"origin": "https://example.org"}),
        (LOCAL, {"origin": "null"}),
        (LOCAL, {"origin": "http://127.0.0.1:8787"}),
        (LOCAL, {"sec_fetch_site": "cross-site"}),
        (LOCAL, {"host": "rebound.example.org:8787"}),
        (LOCAL, {"host": "localhost.example.org"}),
        (LOCAL, {"host": "127.0.0.1.example.org"}),
        (LOCAL, {"host": ""}),
    ],
)
def test_callers_refuse_strangers_and_web_pages_without_token(
    client: tuple[str, int] | None, headers: dict[str, str]
) -> None:
    asked = request(client=client, more=headers)
    assert refused(Callers({"helper": None}).pushing, asked)[0] == 403
    assert refused(Callers({}).speaker, asked)[0] == 403


def test_callers_ask_a_stranger_for_a_token_where_there_is_one() -> None:
    assert refused(Callers(ONE_BARE).pushing, request(client=FAR)) == (401, "UNAUTHORIZED")


def test_callers_are_local_where_no_producer_may_call() -> None:
    assert Callers({}).speaker(request()).producer == "local"
    assert refused(Callers({}).pushing, request()) == (403, "NO_PRODUCER")
    assert refused(Callers({}).speaker, request(authorization="Bearer x")) == (401, "UNAUTHORIZED")
    assert Callers({}).speaker(request(query="producer=local")).producer == "local"
    assert refused(Callers({}).speaker, request(query="producer=planner")) == (403, "OTHER_PRODUCER")


@pytest.mark.parametrize("tokens", [{}, {"helper": None}, {"planner": SecretStr("planner-token")}])
@pytest.mark.parametrize(
    ("kind", "taken"),
    [
        ("application/json", True),
        ("text/plain", False),
        ("", False),
    ],
)
def test_callers_take_bodies_as_json_only(
    tokens: Mapping[str, SecretStr | None], kind: str, taken: bool
) -> None:
    headers = {"authorization": "Bearer planner-token"} if "planner" in tokens else {}
    asked = request(method="POST", content_type=kind, more=headers)
    if taken:
        assert Callers(tokens).speaker(asked).producer
    else:
        assert refused(Callers(tokens).speaker, asked) == (415, "NOT_JSON")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("[::1]", True),
        ("[::1]:8787", True),
        ("localhost.", False),
        ("0.0.0.0", False),
        ("[::1].example.org", False),
        ("[::1", False),
        ("127.0.0.1:80@example.org", False),
    ],
)
def test_loopback_host_is_a_name_of_this_machine(host: str, expected: bool) -> None:
    assert is_loopback_host(host) is expected


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, None),
        ({"host": "localhost"}, None),
        ({"host": "192.0.2.1:8787"}, None),
        ({"host": "[2001:db8::1]:8787"}, None),
        ({"host": "rebound.example.org"}, 403),
        ({"host": "127.0.0.1.example.org:8787"}, 403),
        ({"host": ""}, 403),
        ({"host": "bot.example.org", "authorization": "Bearer t-one"}, None),
        ({"host": "bot.example.org", "authorization": "Bearer t-two"}, 401),
    ],
)
def test_onlookers_call_it_by_no_name_that_others_made(headers: dict[str, str], status: int | None) -> None:
    callers, asked = Callers({"one": SecretStr("t-one"), "helper": None}), request(client=FAR, more=headers)
    if status is None:
        callers.onlooker(asked)
    else:
        assert refused(callers.onlooker, asked)[0] == status
