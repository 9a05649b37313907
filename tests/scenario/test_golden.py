"""What agents, auditors and other programs get of one small story, field by field, as the files in `golden/` have it.

The clock and the signing key are given; what is random, or is about this machine, has a name instead: `<q 1>`. After a
change on purpose, copy the files that the failed test wrote.
"""

from __future__ import annotations

import json
import math
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

import clarify
from core.clock import iso
from tests.kit.clocks import StandingClock
from tests.kit.lives import beside
from tests.kit.receivers import Receiver, receiving
from tests.kit.until import until
from tests.kit.world import World, config, scene, url_of
from tests.scenario.prompts import WORKFLOW
from tests.scenario.test_approvals import MAIL, look, press
from tests.scenario.test_callbacks import SECRET, table
from tests.scenario.test_confirmations import confirm
from tests.scenario.test_decision_log import logged
from tests.scenario.test_receipts import PEM
from workspace.seed import ADE, AGENTS, FOLAKE
from workspace.state import Message

Json = dict[str, Any]
GOLDEN = Path(__file__).with_name("golden")
RESUMED = "the agent has resumed"
ROLLOUT = {"agentx": {"issue": 42, "topic": "Rollout"}}
WORDS = {"accepted_response_kinds": ["freetext"]}
STORAGE = {
    "from": "engineer",
    "to": "architect",
    "issue": 43,
    "topic": "storage",
    "question": "Which database?",
}
ARCHITECT = "import json, sys; print('SQLite, for ' + json.load(sys.stdin)['topic'])"
MORE = """
[trust]
issuer = "https://clarify.example.com"
key_env = "KEY"

[[webhooks]]
url = "{hook}"
secret_env = "HOOK_SECRET"

[responders.architect]
command = {architect}

"""
MINUTE = timedelta(minutes=1)
CALLBACKS, WEBHOOKS = 3, 18
RANDOM = re.compile(r"\b(q|sub|msg)_[0-9a-f]{24,32}\b")  # a token, a subscription, a webhook's message

pytestmark = pytest.mark.either_database


class Story:
    """Each act has a minute of its own. `decided` counts the rounds that have ended."""

    def __init__(self, stage: World, clock: StandingClock, http: httpx.AsyncClient, called: Receiver) -> None:
        self.stage, self.clock, self.http, self.called = stage, clock, http, called
        self.decided = 0

    async def tell(self) -> None:
        for chapter in (
            self.question,
            self.approval,
            self.confirmation,
            self.rounds,
            self.agents,
            self.expiry,
        ):
            await chapter()

    async def question(self) -> None:
        asked, card = await self._ask(
            question="Which age?", choices=["65", "67"], context="For the plan.", key="k-1"
        )
        await press(self.stage, FOLAKE, card, "67")
        await look(self.http, asked, wait=30)
        await self._decided(card, RESUMED)

    async def approval(self) -> None:
        asked, card = await self._ask(**MAIL, editable=True, approvals=2)
        await self._fill_in(FOLAKE, card, {"Your decision": "Accept", "count": "12"})
        await self.stage.now_says(card, "Arguments edited by")
        self.clock.leap(MINUTE)
        await press(self.stage, ADE, card, "Accept")
        await look(self.http, asked, wait=30)
        await self._decided(card, RESUMED)

    async def confirmation(self) -> None:
        card = await confirm(self.stage, "rpl_1", session="sess_1", event_id="evt_1")
        self.clock.leap(MINUTE)
        await self._fill_in(ADE, card, {"Your decision": "Reject", "Reason": "Not before Monday."})
        await self._decided(card, "Delivered")

    async def rounds(self) -> None:
        """The first one's reply is never confirmed, so that the second one belongs to the same matter."""
        asking: Json = {"session": "sess_2", "extensions": ROLLOUT}
        first = await self.stage.ask("rpl_2", event_id="evt_2", question="May I roll out?", **asking)
        self.clock.leap(MINUTE)
        self.stage.producer.lose_next_response()
        await press(self.stage, FOLAKE, first, "Yes")
        await self._decided(first, "Sent, but not confirmed")
        second = await self.stage.ask("rpl_3", event_id="evt_3", question="To whom first?", **asking, **WORDS)
        self.clock.leap(MINUTE)
        await self.stage.workspace.post(ADE, AGENTS, "To our own people.", first.ts)
        await self._decided(second, "Delivered")
        await self.stage.says("session.completed", session="sess_2", event_id="evt_4")
        await self.stage.now_says(second, RESUMED)
        self.clock.leap(MINUTE)

    async def agents(self) -> None:
        asked = (await self.http.post("/clarifications", json=STORAGE)).json()
        await self.http.get(f"/clarifications/{asked['id']}", params={"wait": 30})
        await self._decided()

    async def expiry(self) -> None:
        asked, card = await self._ask(question="Still needed?", timeout=120, escalate=False, default="no")
        await self.stage.message("still waiting")
        self.clock.leap(2 * MINUTE)
        assert (await look(self.http, asked, wait=30))["status"] == "expired"
        await self._decided(card, "Expired. The agent used its default")

    async def _ask(self, **fields: Any) -> tuple[Json, Message]:
        named = {"session": f"s-{self.decided}", "callback_url": self.called.url}
        answer = await self.http.post("/questions", json=fields | named)
        assert answer.status_code == 201, answer.text
        card = await self.stage.card(fields.get("question") or fields["action"])
        self.clock.leap(MINUTE)
        return answer.json(), card

    async def _fill_in(self, user: str, card: Message, entered: dict[str, str]) -> None:
        await press(self.stage, user, card, "Answer…")
        await self.stage.modal(user)
        assert (await self.stage.workspace.submit_view(user, entered)).ok

    async def _decided(self, card: Message | None = None, text: str = "") -> None:
        """A round has ended: it is in the log, and its card says so."""
        self.decided += 1
        if card is not None:
            await self.stage.now_says(card, text)
        await logged(self.stage, self.decided)
        self.clock.leap(MINUTE)


class Names:
    """Puts a name in the place of each receipt, of what is random, and of what is about this machine."""

    def __init__(self, stage: World, receipts: dict[str, str]) -> None:
        self._known = {receipt: f"<receipt {jti}>" for jti, receipt in receipts.items()}
        self._known[stage.workspace.url] = "<Slack>"
        self._random: dict[str, str] = {}

    def named(self, text: str) -> str:
        for known, name in self._known.items():
            text = text.replace(known, name)
        return RANDOM.sub(self._name, text)

    def _name(self, found: re.Match[str]) -> str:
        number = 1 + sum(each.startswith(found[1]) for each in self._random)
        return self._random.setdefault(found[0], f"<{found[1]} {number}>")


def opened(jws: str) -> Json:
    """Its header and its payload; who verifies it is another test."""
    return {
        "header": jwt.get_unverified_header(jws),
        "claims": jwt.decode(jws, options={"verify_signature": False}),
    }


def shared(ledger: Json) -> Json:
    """How long an event was under way makes its times early, by less than ten seconds."""

    def due(match: re.Match[str]) -> str:
        seconds = math.ceil(datetime.fromisoformat(match[2]).timestamp() / 10) * 10
        return f'"{match[1]}": "{iso(datetime.fromtimestamp(seconds, UTC))}"'

    text = re.sub(r'"(staleAfter|expiresAt)": "([^"]+)"', due, json.dumps(ledger))
    found: Json = json.loads(text)
    return found


async def told(story: Story, hook: Receiver) -> dict[str, Any]:
    """All that outsiders got, by the name of its file."""
    stage, http, called = story.stage, story.http, story.called
    log = await logged(stage, story.decided)
    receipts = {each["claims"]["jti"]: each["receipt"] for each in log}
    names = Names(stage, receipts)
    await until(lambda: len(called.got) == CALLBACKS and len(hook.got) == WEBHOOKS)
    # What is told of one clarification comes in its order, what is told of several in any.
    hook.got.sort(key=lambda each: str(each.said["data"]["clarificationId"]))
    called.got.sort(key=lambda each: str(each.said["id"]))
    for each in called.got:
        assert await look(http, each.said) == each.said
        assert (await http.get(f"/receipts/{each.said['id']}")).text == each.said["receipt"]
    found: dict[str, Any] = {
        "receipts": {jti: opened(each) for jti, each in receipts.items()},
        "log": [{"seq": each["seq"], "receipt": each["receipt"], **opened(each["entry"])} for each in log],
        "export": [json.loads(each) for each in (await beside(stage, "export")).out.splitlines()],
        "webhooks": [each.said for each in hook.got],
        "callbacks": [
            {"Idempotency-Key": each.headers["Idempotency-Key"], "body": each.said} for each in called.got
        ],
        "replies": stage.producer.replies,
        "clarification": (await http.get("/clarifications/CLR-43-001")).json(),
        "ledgers": [shared(stage.ledger(issue)) for issue in stage.issues()],
    }
    written = {
        f"{name}.json": f"{json.dumps(each, indent=1, ensure_ascii=False)}\n" for name, each in found.items()
    }
    written["export.csv"] = (await beside(stage, "export", "--csv")).out
    return {name: names.named(text) for name, text in written.items()}


@pytest.mark.needs("webhooks", "github")
@pytest.mark.timeout(240)
async def test_outsiders_get_of_a_story_what_they_always_got(tmp_path: Path) -> None:
    clock = StandingClock()
    async with scene(tmp_path, clock=clock) as stage, receiving() as hook, receiving() as called:
        stage.environ |= {"KEY": PEM.decode(), "HOOK_SECRET": "shared secret", "CALLBACK_SECRET": SECRET}
        command = json.dumps([sys.executable, "-c", ARCHITECT])
        text = config(stage.producer.url, more=MORE.format(hook=hook.url, architect=command) + table(called))
        stage.configure(text.replace("[ledger]\n", '[ledger]\nworkflows = "workflows"\n'))
        (tmp_path / "workflows").mkdir()
        (tmp_path / "workflows/feature.toml").write_text(WORKFLOW)
        async with stage.bot() as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
            story = Story(stage, clock, http, called)
            await story.tell()
            found = await told(story, hook)
            keys = (await http.get("/.well-known/jwks.json")).json()
            for each in await logged(stage, story.decided):
                assert clarify.verify(each["receipt"], keys=keys).problem is None
    differing = [name for name, text in found.items() if not _is_golden(name, text)]
    for name in differing:
        (tmp_path / name).write_bytes(found[name].encode())
    seen = [f"diff {GOLDEN / name} {tmp_path / name}" for name in differing]
    assert not differing, "\n".join(seen)
    assert {each.name for each in GOLDEN.iterdir()} == found.keys()


def _is_golden(name: str, text: str) -> bool:
    """Compares values: the order of fields says nothing."""
    file = GOLDEN / name
    kept = file.read_bytes().decode() if file.exists() else ""
    return text == kept or (file.suffix == ".json" and _sorted(text) == _sorted(kept))


def _sorted(text: str) -> str:
    """As text: to Python, `true`, `1` and `1.0` are equal."""
    return json.dumps(json.loads(text or "null"), sort_keys=True)
