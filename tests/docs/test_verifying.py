"""docs/security/verify.md: each program that it shows accepts an approval, and says what it should of every cheat."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from typer.testing import CliRunner

import clarify
from bot.cli.app import app
from bot.signing import KeyPlace, Signing
from core.approvals import accepted
from core.clarification import Answer, Clarification, Confirmation, Direct
from core.receipts import claims_of
from core.transitions import opened
from tests.docs.references import ROOT
from tests.docs.snippets import snippets
from tests.kit import builders, node
from tests.kit.world import World, url_of
from workspace.seed import ADE, AGENTS

Json = dict[str, Any]
PAGE = ROOT / "docs/security/verify.md"
ARGUMENTS: Json = {"to": ["ann", "bea"], "count": 1204, "share": 0.5, "subject": "Grüße", "test": False}
OTHERS: Json = ARGUMENTS | {"count": 1205}
ISSUER = "urn:clarify:here"


# -- receipts, and what cheats make of them


@dataclass(frozen=True)
class Case:
    """What somebody brings: a receipt, and the arguments that it is to be for. `keys`: those that the verifier has."""

    receipt: str
    arguments: Json
    keys: Json


ACCEPT, REJECT = Answer("accept", "Accept"), Answer("reject", "Reject")


def decided(
    answer: Answer = ACCEPT,
    *,
    seq: int = 1,
    arguments: Json = ARGUMENTS,
    age: timedelta = timedelta(),
    producer: str = "local",
) -> Clarification:
    at = datetime.now(UTC) - age  # not once for the module: a run may take longer than a receipt is taken
    asked = builders.ask(
        question="Send the newsletter",
        kinds=("confirmation",),
        wanted=Confirmation(action="Send the newsletter", risk_level="high", sent=arguments, editable=False),
        direct=Direct(kind="approval"),
        producer=producer,
    )
    record = opened(42, seq, asked, at - timedelta(minutes=1), builders.SLA)
    return accepted(record, answer, builders.ADE, at)


def receipt_of(signing: Signing, record: Clarification) -> str:
    made = signing.made(record)
    assert made is not None
    return made


def part(content: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


@pytest.fixture(scope="module")
def signing(tmp_path_factory: pytest.TempPathFactory) -> Signing:
    return signer(tmp_path_factory, ISSUER)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Signing:
    return signer(tmp_path_factory, "urn:clarify:there")


def signer(factory: pytest.TempPathFactory, issuer: str) -> Signing:
    made = Signing(
        KeyPlace(factory.mktemp("key") / "clarify-signing.pem"), issuer, datetime.now(UTC) - timedelta(days=1)
    )
    assert made.load(create=True)
    return made


@pytest.fixture(scope="module")
def cheats(signing: Signing, other: Signing) -> dict[str, Case]:
    """By their names in the page's table."""
    real, keys = receipt_of(signing, decided()), signing.jwks
    header, body, signature = real.split(".")
    claims, key = claims_of(decided(), ISSUER), signing.place.read()
    mine: Json = {"typ": "clarify-decision+jwt", "alg": "EdDSA", "kid": signing.kid}
    theirs = other.jwks["keys"][0] | {"kid": signing.kid}
    rejected = receipt_of(signing, decided(REJECT))
    turned = claims_of(decided(REJECT), ISSUER)
    turned |= {name: claims[name] for name in ("answer", "arguments_sha256")}
    swapped = {
        "decided_by": builders.BEA.decided_by,
        "deciders": [claims["deciders"][0] | {"by": builders.BEA.decided_by, "user": builders.BEA.user}],
    }
    receipts = {
        "the answer was changed": f"{header}.{part(turned)}.{rejected.split('.')[2]}",
        "the approver was swapped": f"{header}.{part(claims | swapped)}.{signature}",
        "it is of another question, with other arguments": receipt_of(
            signing, decided(seq=2, arguments=OTHERS)
        ),
        "it is a rejection": rejected,
        "another key signed it, under our `kid`": jwt.encode(
            claims, other.place.read(), "EdDSA", headers=mine
        ),
        "`alg` is `none`": f"{part(mine | {'alg': 'none'})}.{body}.",
        "`alg` is `None`, and the signature is left": f"{part(mine | {'alg': 'None'})}.{body}.{signature}",
        "`HS256`, with the public key as secret": jwt.encode(
            claims, keys["keys"][0]["x"], "HS256", headers=mine | {"alg": "HS256"}
        ),
        "the `kid` is wrong": f"{part(mine | {'kid': 'x'})}.{body}.{signature}",
        "another installation made it": receipt_of(other, decided()),
        "the `typ` is another's": jwt.encode(claims, key, "EdDSA", headers=mine | {"typ": "clarify-log+jwt"}),
        "it has no `typ` of its own": jwt.encode(claims, key, "EdDSA", headers={"kid": str(signing.kid)}),
        "it has a critical extension": jwt.encode(
            claims, key, "EdDSA", headers=mine | {"crit": ["x"], "x": 1}
        ),
        "it is for another producer": receipt_of(signing, decided(producer="planner")),
        "it is no JWT": "clarify",
    }
    made = {name: Case(receipt, ARGUMENTS, keys) for name, receipt in receipts.items()}
    return made | {"the key in `jwks.json` was replaced": Case(real, ARGUMENTS, {"keys": [theirs]})}


# -- who checks them

Verifier = Callable[[Case], str | None]
"""Returns what a program says of a receipt; None: it accepts it."""


def snippet(words: str) -> str:
    (found,) = [each.text for each in snippets() if each.page == PAGE and words in each.text]
    return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the snippets run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def laid_out(place: Path, case: Case) -> None:
    (place / "receipt").write_text(case.receipt)
    (place / "args.json").write_text(json.dumps(case.arguments))
    (place / "jwks.json").write_text(json.dumps(case.keys))


@pytest.fixture
def in_the_shell(place: Path) -> Verifier:
    def verify(case: Case) -> str | None:
        laid_out(place, case)
        words = [
            "verify",
            "receipt",
            "--jwks",
            "jwks.json",
            "--arguments",
            "args.json",
            "--audience",
            "local",
        ]
        done = CliRunner().invoke(app, words)
        assert done.exit_code in {0, 1}, done.output
        assert bool(done.exit_code) == bool(done.stderr)
        return done.stderr or None

    return verify


def in_python(case: Case) -> str | None:
    found = clarify.verify(case.receipt, keys=case.keys, arguments=case.arguments, audience="local")
    assert bool(found) is ((found.problem or found.not_approved) is None)
    return found.problem or found.not_approved


@pytest.fixture
def with_pyjwt(place: Path) -> Verifier:
    program = compile(snippet("import jwt"), "PyJWT", "exec")

    def verify(case: Case) -> str | None:
        laid_out(place, case)
        try:
            exec(program, {"print": lambda *_: None})  # noqa: S102 - our own
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it says
            return str(error)
        return None

    return verify


@pytest.fixture
def with_jose(place: Path, node_program: Path) -> Verifier:
    (place / "verify.mjs").write_text(snippet('from "jose"'))
    (place / "node_modules").symlink_to(node.FOLDER / "node_modules")

    def verify(case: Case) -> str | None:
        laid_out(place, case)
        command = [str(node_program), "--no-warnings", "verify.mjs"]
        ended = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        assert bool(ended.returncode) != bool(ended.stdout), ended
        error = re.search(r"^\w+: (.+)$", ended.stderr, re.MULTILINE)
        return error[1] if error else ended.stderr or None

    return verify


Gateway = Callable[[str, Json], str]


@pytest.fixture
def gateway(place: Path) -> Callable[[Case], Gateway]:
    """Starts a gateway with a case's keys."""
    program = compile(snippet("def let_through"), "gateway", "exec")

    def started(case: Case) -> Gateway:
        laid_out(place, case)
        names: Json = {}
        exec(program, names)  # noqa: S102 - our own
        let_through: Gateway = names["let_through"]
        return let_through

    return started


def at_the_gateway(started: Callable[[Case], Gateway]) -> Verifier:
    def verify(case: Case) -> str | None:
        try:
            started(case)(case.receipt, case.arguments)
        except PermissionError as error:
            return str(error)
        return None

    return verify


def table() -> dict[str, dict[str, str]]:
    """The page's: for each cheat what each of its columns says."""
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        for line in PAGE.read_text()
        .partition("## What a forgery looks like")[2]
        .partition("\n## ")[0]
        .splitlines()
        if line.startswith("| ")
    ]
    names = ("ours", "PyJWT", "jose")
    return {row[0]: dict(zip(names, (each.strip("`") for each in row[1:]), strict=True)) for row in rows[2:]}


@pytest.mark.parametrize("program", ["the shell", "clarify.verify", "PyJWT", "jose", "the gateway"])
def test_every_cheat_is_found_and_said(
    program: str, cheats: dict[str, Case], signing: Signing, request: pytest.FixtureRequest
) -> None:
    column = program if program in {"PyJWT", "jose"} else "ours"
    verify: Verifier
    if program == "clarify.verify":
        verify = in_python
    elif program == "the gateway":
        verify = at_the_gateway(request.getfixturevalue("gateway"))
    else:
        verify = request.getfixturevalue(
            {"the shell": "in_the_shell", "PyJWT": "with_pyjwt", "jose": "with_jose"}[program]
        )
    assert verify(Case(receipt_of(signing, decided()), ARGUMENTS, signing.jwks)) is None
    said = {name: verify(each) for name, each in cheats.items()}
    expected = {name: each[column] for name, each in table().items()}
    assert said.keys() == expected.keys()
    assert {name: words for name, words in said.items() if expected[name] not in (words or "")} == {}


async def test_gateway_lets_one_call_through_for_an_approval(
    gateway: Callable[[Case], Gateway], signing: Signing
) -> None:
    case = Case(receipt_of(signing, decided()), ARGUMENTS, signing.jwks)
    let_through = gateway(case)
    with ThreadPoolExecutor(8) as threads:

        def one(_: int) -> str:
            try:
                return let_through(case.receipt, case.arguments)
            except PermissionError as error:
                return str(error)

        said = sorted(threads.map(one, range(8)))
    assert said == ["this approval was used already"] * 7 + [builders.ADE.decided_by]
    again = gateway(case)  # it was restarted
    with pytest.raises(PermissionError, match="was used already"):
        again(case.receipt, case.arguments)
    old = receipt_of(signing, decided(seq=3, age=timedelta(minutes=20)))
    with pytest.raises(PermissionError, match="at most 900 s are allowed"):
        again(old, ARGUMENTS)
    assert again(receipt_of(signing, decided(seq=4)), ARGUMENTS) == builders.ADE.decided_by


async def test_programs_of_the_page_verify_what_a_person_approved(
    stage: World, in_the_shell: Verifier, with_pyjwt: Verifier, request: pytest.FixtureRequest
) -> None:
    async with stage.bot() as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
        fields = {"action": "Send the newsletter", "kind": "approval", "arguments": ARGUMENTS}
        asked = (await http.post("/questions", json=fields)).json()
        card = await stage.card("Send the newsletter")
        await stage.workspace.click(ADE, AGENTS, card.ts, label="Accept")
        state = (await http.get(f"/questions/{asked['id']}", params={"wait": 30})).json()
        keys = (await http.get("/.well-known/jwks.json")).json()
    verifiers: list[Verifier] = [in_the_shell, in_python, with_pyjwt]
    verifiers += [at_the_gateway(request.getfixturevalue("gateway")), request.getfixturevalue("with_jose")]
    for verify in verifiers:
        assert verify(Case(state["receipt"], ARGUMENTS, keys)) is None
        assert verify(Case(state["receipt"], OTHERS, keys)) is not None
