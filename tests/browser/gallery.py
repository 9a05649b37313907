"""Takes a picture of every kind of card, page, list and window: `python -m tests.browser.pictures --gallery DIR [ACT …]`.

Each picture is taken at 1280 and at 390 pixels, light and dark. `DIR/ACT.txt` has what a screen reader says: the fallback
text of every message, and the words of every window. Each act is a story of its own, with the whole bot.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
from playwright.async_api import Locator, Page, ViewportSize, async_playwright

from tests.browser.chromium import HOW_TO, chromium, launch
from tests.browser.visitor import Scheme, Visit
from tests.kit.world import url_of
from tests.scenario.pagers import Night, night, step
from tests.scenario.test_feeds import HOUR, asked_again, calendar, mail, read
from tests.scenario.typist import command, ids, of_issue
from workspace.seed import ADE, AGENTS, FOLAKE, ONCALL
from workspace.state import Ephemeral, Message

SCHEMES: tuple[Scheme, ...] = ("light", "dark")
WIDTHS = (1280, 390)
TALL, SCREEN = 4000, 800  # pixels; a message is never cut by the window
Json = dict[str, Any]
YES_NO: Json = {"kind": "yes_no"}
CALLERS = '[[producers]]\nname = "callers"\nlinks = ["https://github.com/acme/*"]\n\n'

PLAN = """Please look at the **rollout plan** before I start:

1. Drain `eu-west`, then *wait ten minutes*
2. Migrate the ~~orders~~ customers table
   - old rows stay
   - new rows get a `channel`

> The last rollout took 14 minutes.

| region | orders a day | downtime |
| --- | ---: | --- |
| eu-west | 12,040 | 4 min |
| us-east | 8,311 | none |

```sql
ALTER TABLE customers ADD COLUMN channel text;
```

The pull request is https://github.com/acme/shop/pull/412, the run [here](https://ci.example.com/runs/9).

Shall I start?"""
STORY = "\n\n".join(
    f"{n}. The gate was red at 0{n % 10}:15. The log says that the connection pool of shop-{n} ran out of connections while "
    "the nightly report was being written, and that the report was then retried three times without a pause."
    for n in range(1, 25)
)
FORM: Json = {
    "properties": {
        "name": {"type": "string", "title": "Name", "maxLength": 60, "default": "Kingfisher"},
        "tracker": {"type": "string", "format": "uri", "title": "Tracker"},
        "owner": {"type": "string", "format": "email", "title": "Owner"},
        "day": {"type": "string", "format": "date", "title": "Day", "default": "2026-12-01"},
        "start": {"type": "string", "format": "date-time", "title": "Start"},
        "replicas": {"type": "integer", "title": "Replicas", "minimum": 1, "maximum": 9},
        "canary": {"type": "boolean", "title": "Canary first", "default": True},
        "cluster": {"enum": [f"cluster {n:02d}" for n in range(1, 13)], "title": "Cluster"},
        "checks": {"type": "array", "title": "Checks", "items": {"enum": ["smoke", "load"]}, "minItems": 1},
    },
    "required": ["name", "canary", "checks"],
}
QUESTIONS: dict[str, Json] = {
    "yes-no": {
        "question": "All 412 tests of 4.1 passed. Start the release?",
        "context": "The last release was nine days ago. No other deployment is running.",
        "default": False,
        **YES_NO,
    },
    "buttons": {"question": "Where should 4.1 go first?", "choices": ["Staging", "Canary", "Production"]},
    "described": {
        "question": "How should 4.1 be rolled out?",
        "choices": [
            {"value": "blue", "label": "Blue/green", "description": "Twice the machines for an hour"},
            {
                "value": "rolling",
                "label": "Rolling",
                "description": "One machine after the other, 40 minutes",
            },
        ],
        "other": True,
    },
    "menu": {"question": "Which cluster?", "choices": [f"cluster {n:02d} in eu-west" for n in range(1, 13)]},
    "several": {
        "question": "Which checks should run before it?",
        "choices": ["Smoke test", "Load test", "Accessibility", "Licenses"],
        "multiple": True,
    },
    "number": {"question": "How many replicas should the shop have over the holidays?", "kind": "number"},
    "text": {
        "question": "What should the release notes say about the outage?",
        "topic": "Release notes of 4.1",
        "default": "nothing",
    },
    "form": {"question": "How should Kingfisher be set up?", "schema": FORM},
    "markdown": {"question": PLAN, **YES_NO},
    "markdown-context": {"question": "Start the rollout?", "context": PLAN, **YES_NO},
    "long-context": {"question": "Restart the shop now?", "context": STORY, **YES_NO},
    "long-question": {"question": f"{STORY}\n\nRestart the shop now?"},
    "hostile": {
        "question": "Ping <!channel> <@U0GONE> @here :tada: *now* <https://evil.example|press me>\u202e cod",
        "context": "![image](https://evil.example/a.png) [docs](https://evil.example) &lt;!here&gt;",
    },
    "foreign": {
        "question": "האם להתחיל את הפריסה של 4.1 עכשיו?",
        "context": "כל 412 הבדיקות עברו.",
        **YES_NO,
    },
    "one-person": {"question": "Is the contract with Acme signed?", "to": ADE, **YES_NO},
}
DIFF: Json = {
    "file_path": "shop/models/order.py",
    "old_string": "class Order:\n    id: int\n    total: int",
    "new_string": "class Order:\n    id: int\n    total: Decimal\n    channel: str = 'web'",
}
APPROVALS: dict[str, Json] = {
    "low": {"action": "Post the release notes to #news", "risk": "low"},
    "medium": {
        "action": "Restart the staging shop",
        "risk": "medium",
        "consequence": "Staging is down for 1 min.",
    },
    "high": {
        "action": "Email the announcement of 4.1 to 12,040 customers",
        "consequence": "Everyone gets it within ten minutes.",
        "risk": "high",
    },
    "irreversible": {
        "action": "Delete the production database `orders-2024`",
        "consequence": "All 40,000 orders of 2024 are gone. There is **no** backup.",
        "risk": "high",
        "irreversible": True,
        "arguments": {"database": "orders-2024", "cascade": True},
    },
    "command": {
        "action": "Run a command",
        "risk": "high",
        "arguments": {"command": "alembic upgrade head && systemctl restart shop", "cwd": "/srv/shop"},
    },
    "diff": {"action": "Edit shop/models/order.py", "arguments": DIFF},
    "json": {
        "action": "Change the alert rules",
        "arguments": {
            "notify": {"channels": ["#shop", "#ops"], "before": {"minutes": 5}},
            "thresholds": [0.5, 0.9, 1.0],
            "dry_run": False,
            "note": None,
        },
    },
    "many": {
        "action": "Create the virtual machine",
        "arguments": {f"setting_{n:02d}": f"value {n}" for n in range(1, 31)},
    },
    "long": {
        "action": "Send the mail",
        "arguments": {
            "to": "customers@example.com",
            "body": "\n".join(f"Dear customer {n}," for n in range(90)),
        },
    },
    "long-action": {"action": f"Do what this says: {STORY}", "risk": "high", "irreversible": True},
    "editable": {
        "action": "Send the newsletter",
        "consequence": "Mail cannot be called back.",
        "risk": "high",
        "approvals": 2,
        "editable": True,
        "arguments": {"list": "customers", "subject": "June: what is new in 4.1", "recipients": 12040},
    },
    "reason": {"action": "Give the contractor access to billing", "risk": "high", "agent": "careful-1"},
    "four-eyes": {
        "action": "Pay the invoice of Acme",
        "risk": "high",
        "agent": "strict-1",
        "requested_by": ADE,
    },
}


class Gallery:
    """Takes the pictures of one act, and writes down what is read aloud."""

    def __init__(self, stage: Night, visit: Visit | None, folder: Path, act: str) -> None:
        """Without a `visit` the act is played, but no picture is taken."""
        self.stage = stage
        self._visit = visit
        self._folder = folder
        self._act = act
        self._pages: dict[tuple[int, Scheme], Page] = {}
        self._aloud: list[str] = []

    async def message(self, name: str, shown: Message | Ephemeral, user: str = FOLAKE) -> None:
        """A message as it is now, alone; a reply in its thread."""
        told = self.stage.workspace.shown(user, shown.channel, shown.ts)
        self._says(name, told.text)
        reply = told.thread_ts not in {None, told.ts} and not (isinstance(told, Message) and told.broadcast)
        where = {"thread": told.thread_ts or ""} if reply else {}
        async for size, page in self._look(user, TALL, channel=told.channel, **where):
            await self._take(name, size, page.locator(f'[id="m{"t" if reply else "c"}{told.ts}"]'))

    async def window(self, name: str, user: str = FOLAKE, channel: str = AGENTS) -> None:
        """The modal that is on top of what a person sees. Closes it."""
        await self.stage.modal(user)
        async for size, page in self._look(user, TALL, channel=channel):
            await self._take(name, size, page.locator("dialog#modal[open]"), says=True)
        await self.stage.workspace.close_view(user, everything=True)

    async def dialog(self, name: str, shown: Message, label: str, user: str = FOLAKE) -> None:
        """The dialog that a button asks with before it counts."""
        async for size, page in self._look(user, TALL, channel=shown.channel):
            await page.locator(f'[id="mc{shown.ts}"]').get_by_role("button", name=label).first.click()
            await self._take(name, size, page.locator("dialog#ask[open]"), says=True)

    async def home(self, name: str, user: str, *said: str) -> None:
        """The Home tab, once it says all of `said`."""
        await self.stage.workspace.open_home(user)
        await self.stage.until(lambda: all(each in str(self.stage.workspace.home(user)) for each in said))
        async for size, page in self._look(user, TALL, home="1"):
            await self._take(name, size, page.locator("form.home"), says=True)

    async def screen(self, name: str, user: str = FOLAKE, *, traffic: bool = False, **where: str) -> None:
        """The page as a whole, at the size of a screen; the widest shows the traffic, too."""
        async for size, page in self._look(user, SCREEN, **where):
            panel = page.locator("#traffic")
            if traffic and not await panel.is_visible():
                await page.locator("#traffic-toggle").click()
                await panel.wait_for()
            await self._take(name, size, page)

    def close(self) -> None:
        """Write what is read aloud."""
        (self._folder / f"{self._act}.txt").write_text("\n\n".join(self._aloud) + "\n")

    async def _look(self, user: str, height: int, **where: str) -> AsyncIterator[tuple[str, Page]]:
        """Yields the page as a person sees it, at each size and in each scheme; no page is open before and after that."""
        query = urlencode({"as": user, "channel": AGENTS} | where)
        if self._visit is None:
            return
        for width, scheme in product(WIDTHS, SCHEMES):
            size: ViewportSize = {"width": width, "height": height}
            page = self._pages.get((width, scheme))
            if page is None:
                page = await self._visit.page(user, scheme=scheme, size=size, apart=True)
                self._pages[width, scheme] = page
            await page.set_viewport_size(size)
            async with page.expect_response(lambda answer: "/feed" in answer.url):
                await page.goto(f"{self.stage.workspace.url}?{query}")
            yield f"{width}-{scheme}", page
            await page.goto("about:blank")

    async def _take(self, name: str, size: str, what: Locator | Page, *, says: bool = False) -> None:
        await what.screenshot(path=self._folder / f"{self._act}-{name}-{size}.png", animations="disabled")
        if says and isinstance(what, Locator) and size == f"{WIDTHS[0]}-{SCHEMES[0]}":
            self._says(name, await what.inner_text())

    def _says(self, name: str, text: str) -> None:
        self._aloud.append(f"## {self._act}: {name}\n{text}")


def name_of(card: Message) -> str:
    return ids(card)[0]


@asynccontextmanager
async def asking(stage: Night, text: str) -> AsyncIterator[Callable[..., Awaitable[Message]]]:
    """The bot, and a way to ask over HTTP: each question has an agent of its own. The question's card."""
    agents = iter(("Deployer", "Planner", "Mailer", "Reviewer", "Migrator") * 9)

    async with (
        stage.bot(text.replace("[[routes]]", f"{CALLERS}[[routes]]", 1)) as bot,
        httpx.AsyncClient(base_url=url_of(bot), timeout=60, trust_env=False) as http,
    ):

        async def ask(**fields: Any) -> Message:
            answer = await http.post("/questions", json={"agent": next(agents), "timeout": 7200} | fields)
            assert answer.status_code == 201, answer.text
            return await stage.card(answer.json()["id"])

        yield ask


async def questions(gallery: Gallery) -> None:
    """Open questions of each kind, the windows behind them, and how they look once they are over."""
    stage = gallery.stage
    async with asking(stage, stage.config()) as ask:
        cards = {name: await ask(**fields) for name, fields in QUESTIONS.items()}
        for name, card in cards.items():
            await gallery.message(name, card)
        for name in ("several", "text", "form", "described", "markdown"):
            label = "Answer…" if name != "markdown" else "Take"
            await stage.press(cards[name], label, FOLAKE)
            if label == "Answer…":
                await gallery.window(f"answer-{name}")
        await gallery.message("claimed", await stage.now_says(cards["markdown"], "Claimed"))
        for name in ("long-context", "long-question"):
            await stage.press(cards[name], "View full", FOLAKE)
            await gallery.window(f"full-{name}")
        await stage.press(cards["form"], "Answer…", FOLAKE)
        await stage.modal(FOLAKE)
        await stage.workspace.submit_view(FOLAKE, {"Owner": "nobody", "Replicas": "12"})
        await gallery.window("answer-form-wrong")
        await stage.press(cards["yes-no"], "Yes", FOLAKE)
        await gallery.message("answered", await stage.now_says(cards["yes-no"], "Answered"))
        written = "**No**, wait for `4.2`:\n- the gate is red\n- see https://github.com/acme/shop/pull/412"
        await stage.workspace.post(ADE, AGENTS, written, cards["text"].ts)
        answered = await stage.now_says(cards["text"], "Answered")
        await gallery.message("answered-text", answered)
        await stage.press(answered, "View full", FOLAKE)
        await gallery.window("full-answered")
        await command(stage, f"abandon {name_of(cards['menu'])}")
        await gallery.message("closed", await stage.now_says(cards["menu"], "Closed"))
        stage.clock.leap(timedelta(hours=2, minutes=1))
        await gallery.message("expired", await stage.now_says(cards["buttons"], "Expired"))


async def approvals(gallery: Gallery) -> None:
    """Approvals of each risk and with arguments of each kind; the dialog, the windows, and how they end."""
    stage = gallery.stage
    routes = "".join(
        f'[[routes]]\nagent = "{agent}-*"\nchannel = "{AGENTS}"\n{more}\n\n'
        for agent, more in (
            ("careful", 'reason = "high"'),
            ("strict", 'four_eyes = {risk = "high", claimed = true}'),
        )
    )
    async with asking(stage, stage.config().replace("[[routes]]", f"{routes}[[routes]]", 1)) as ask:
        cards = {name: await ask(**fields) for name, fields in APPROVALS.items()}
        for name, card in cards.items():
            await gallery.message(name, card)
        for name in ("high", "irreversible", "command", "editable"):
            await gallery.dialog(f"dialog-{name}", cards[name], "Accept")
        for name in ("long", "long-action", "many", "reason"):
            await stage.press(cards[name], "Accept", FOLAKE)
            await gallery.window(f"accept-{name}")
        await stage.press(cards["editable"], "Answer…", FOLAKE)
        await gallery.window("answer-editable")
        await stage.press(cards["long"], "View full", FOLAKE)
        await gallery.window("full-long")

        await stage.press(cards["editable"], "Answer…", ADE)
        await stage.modal(ADE)
        await stage.workspace.submit_view(ADE, {"Your decision": "Accept", "recipients": "1204"})
        await gallery.message("edited", await stage.now_says(cards["editable"], "1 of 2"))
        await stage.press(cards["editable"], "Accept", FOLAKE)
        approved = await stage.now_says(cards["editable"], "Approved by")
        await stage.until(lambda: "Verify" in str(stage.workspace.shown(FOLAKE, AGENTS, approved.ts).blocks))
        await gallery.message("approved-edited", approved)
        for label in ("View full", "Verify"):
            await stage.press(approved, label, FOLAKE)
            await gallery.window(f"{label.split()[0].lower()}-approved")
        await stage.press(cards["irreversible"], "Accept", FOLAKE)
        await gallery.message(
            "approved-irreversible", await stage.now_says(cards["irreversible"], "Approved by")
        )
        await stage.press(cards["medium"], "Reject", FOLAKE)
        await gallery.message("rejected", await stage.now_says(cards["medium"], "Rejected by"))
        stage.clock.leap(timedelta(hours=2, minutes=1))
        await gallery.message("expired", await stage.now_says(cards["low"], "Expired"))


async def thread(gallery: Gallery) -> None:
    """What happens around a question: notes, a reminder, tools, an error, a second question, the one-line card."""
    stage = gallery.stage
    shop: Json = {"session": "sess_shop"}
    async with stage.bot(stage.config()) as bot:
        card = await stage.ask(
            question="All 412 tests of 4.1 passed. Start the release?",
            default_response="no",
            timeout_seconds=7200,
            **shop,
        )
        await stage.workspace.post(
            ADE, AGENTS, "note: checkout changed a lot, but the numbers look good", card.ts
        )
        await stage.workspace.post(ADE, AGENTS, "maybe", card.ts)
        await gallery.message("not-understood", await stage.whisper(ADE, ""), ADE)
        for n in (1, 2, 3):
            done: Json = {"tool": f"build{n}", "status": "success", "summary_normal": "", "duration_ms": 4200}
            await stage.says("tool.completed", **shop, **done)
        await stage.says(
            "tool.completed", **shop, tool="fetch", status="error", summary_normal="404 for the page"
        )
        await gallery.message("tools", await stage.message("Tool fetch failed"))
        await stage.later(bot, minutes=31)
        await gallery.message("reminder", await stage.message("still waiting"))
        await gallery.message("reminded", await stage.now_says(card, "Reminder sent"))
        await stage.press(card, "Yes", FOLAKE)
        await stage.now_says(card, "Answered")
        second = await stage.ask("rpl_2", question="Where should 4.1 go first?", timeout_seconds=7200, **shop)
        await gallery.message("second", second)
        await stage.press(second, "Yes", FOLAKE)
        await gallery.message("one-line", await stage.now_says(second, "Answered"))
        await gallery.message("reminder-over", await stage.message("Answered: “Yes”"))
        consent = {
            "type": "aaep:agent.awaiting.confirmation",
            "session_id": "sess_shop",
            "urgency": "critical",
            "action": "Email the announcement of 4.1 to 1,204 customers.",
            "consequence": "The emails cannot be recalled.",
            "reply_token": "rpl_3",
            "timeout_seconds": 3600,
            "default_decision": "reject",
            "risk_level": "high",
            "irreversible": True,
        }
        await stage.producer.emit(consent)
        third = await stage.card("Email the announcement")
        await stage.press(third, "Accept", FOLAKE)
        await gallery.message("one-line-approval", await stage.now_says(third, "Approved by"))
        await stage.says(
            "session.errored", **shop, urgency="critical", summary_normal="The quota is used up", error_category="quota",
            error_code="E429", remediation_hint="Buy more", error_uri="https://example.org/quota",
        )  # fmt: skip
        await gallery.message("error", await stage.message("The quota is used up"))
        await gallery.screen("whole", thread=card.ts)
        await gallery.screen("whole-traffic", thread=card.ts, traffic=True)


async def pages(gallery: Gallery) -> None:
    """What on-call gets: one question, an approval, a handoff, an error, several; claimed, snoozed, over."""
    stage, n = gallery.stage, 0

    async def escalated(**fields: Any) -> tuple[Message, Message]:
        nonlocal n
        n += 1
        card = await stage.ask(f"rpl_{n}", session=f"sess_{n}", timeout_seconds=36_000, **fields)
        await stage.escalate(name_of(card))
        return card, await stage.live(fields["question"], wants=["Hand to…"])

    async with stage.bot(stage.config(step("0s", "thread", "dm", every="5m"))):
        card, page = await escalated(
            question="The checkout answers with 502 since 02:50. Roll back to 4.0?",
            context="**4.1** went out at 02:41. Rolling back takes `4 min`.",
            default_response="no",
        )
        await gallery.message("one", page, ONCALL)
        await gallery.screen("direct-message", ONCALL, channel=page.channel)
        await gallery.message("escalated-card", card)
        await gallery.message("in-thread", await stage.live("checkout", AGENTS))
        await stage.press(page, "Hand to…")
        await gallery.window("hand-to", ONCALL, page.channel)
        await stage.press(page, "Take")
        await gallery.message("claimed", await stage.becomes(page, "Claimed"), ONCALL)
        await gallery.message("claimed-card", await stage.now_says(card, "Claimed"))
        await stage.press(page, "Yes")
        await gallery.message("over", await stage.becomes(page, "Answered"), ONCALL)

        consent = {
            "type": "aaep:agent.awaiting.confirmation",
            "session_id": "sess_mail",
            "urgency": "critical",
            "action": "Email the apology to 12,040 customers.",
            "consequence": "The emails cannot be recalled.",
            "reply_token": "rpl_mail",
            "timeout_seconds": 36_000,
            "default_decision": "reject",
            "risk_level": "high",
            "irreversible": True,
        }
        await stage.producer.emit(consent)
        asked = await stage.card("Email the apology")
        await stage.workspace.command(FOLAKE, AGENTS, "/clarify", f"escalate {name_of(asked)}")
        page = await stage.live("Email the apology", wants=["Accept"])
        await gallery.message("approval", page, ONCALL)
        await gallery.message("approval-card", asked)
        await stage.press(page, "Reject")
        await stage.becomes(page, "Rejected")

        _, page = await escalated(
            question="Which of the two backups should be restored?", accepted_response_kinds=["freetext"]
        )
        await stage.press(page, "Snooze")
        await gallery.message("snoozed", await stage.becomes(page, "noozed"), ONCALL)
        await stage.says(
            "handoff.requested", session="sess_9", urgency="critical", target_kind="human", reason="The customer wants a person",
            target_uri="queue://customers/advisor", urgency_for_handoff="high",
            packaged_context={"user_request_summary": "Retirement planning", "tools_invoked": ["fetch_balance", "projection"]},
        )  # fmt: skip
        await gallery.message("handoff-card", await stage.live("The customer wants a person", AGENTS))
        await gallery.message("handoff", await stage.live("The customer wants a person"), ONCALL)
        await stage.says(
            "session.errored",
            session="sess_8",
            urgency="critical",
            summary_normal="The quota is used up",
            error_category="quota",
        )
        await gallery.message("error", await stage.live("The quota is used up", wants=["Take"]), ONCALL)


async def shifts(gallery: Gallery) -> None:
    """Shifts: who is on call, overrides, announcements."""
    stage = gallery.stage
    async with calendar() as feed:
        stage.environ["PLATFORM_ICAL"] = feed.url
        now = stage.clock.now()
        feed.shifts((mail(stage, ONCALL), now - HOUR, 2), (mail(stage, ADE), now + HOUR, 4))
        people = f'ical_env = "PLATFORM_ICAL"\nusers = ["{FOLAKE}"]\nannounce = true\n'
        async with stage.bot(stage.config(step("0s", "dm"), people=people, take_timeout="3h")) as bot:
            await read(bot)
            await gallery.message("who", await command(stage, "oncall who"), ADE)
            card = await stage.ask(
                question="The checkout answers with 502. Roll back?", timeout_seconds=36_000
            )
            await stage.escalate()
            page = await stage.live("Roll back?")
            await stage.press(page, "Take")
            await stage.becomes(page, "Claimed")
            await stage.workspace.post(ONCALL, AGENTS, "note: the database is fine, it is the cache", card.ts)
            await gallery.message("took", await command(stage, "oncall take 20m", FOLAKE), FOLAKE)
            await gallery.message("overrides", await command(stage, "oncall overrides"), ADE)
            await stage.page("You are no longer on call")
            await stage.later(bot, minutes=21)
            await stage.later(bot, minutes=41)
            await gallery.message("begins", await stage.page("You are on call for platform", ADE), ADE)
            ends = [each for each in stage.pages() if "no longer on call" in each.text]
            await gallery.message("ends", ends[-1], ONCALL)
            feed.shifts((mail(stage, ADE), now + HOUR, 4), (mail(stage, ONCALL), now + 30 * HOUR, 8))
            await asked_again(stage, bot, feed, 2)  # the second time it has read what it got the first time
            feed.shifts((mail(stage, ADE), now + HOUR, 4), (mail(stage, ONCALL), now + 33 * HOUR, 8))
            await asked_again(stage, bot, feed, 3)
            await gallery.message("moved", await stage.page("moved in the calendar"), ONCALL)


async def lists(gallery: Gallery) -> None:
    """`/clarify` and what it lists, searches, counts and refuses; the Home tab; the weekly digest."""
    stage = gallery.stage
    weekly = stage.clock.now().replace(hour=9, minute=0) + timedelta(days=1)
    more = f'\n[digest]\nchannel = "{AGENTS}"\nevery = "{weekly:%a %H:%M}"\n'
    routes = f'[[routes]]\nagent = "Mailer"\nchannel = "{AGENTS}"\non_call = "platform"\n\n'
    text = stage.config(more=more).replace("[[routes]]", f"{routes}[[routes]]", 1)
    async with asking(stage, text) as ask:
        [bot] = stage.bots
        await gallery.message("none", await command(stage, ""), ADE)
        await gallery.home("home-empty", ADE, "Recent decisions")
        asked = [await ask(**QUESTIONS[name]) for name in ("yes-no", "buttons", "menu", "text", "form")]
        asked += [await ask(**APPROVALS[name]) for name in ("irreversible", "command", "low", "diff")]
        for n in (1, 2):
            issue = of_issue(42, to="architect") if n == 1 else of_issue(42)
            await stage.ask(
                f"rpl_{n}",
                session=f"sess_{n}",
                question=f"Step {n} of the move?",
                timeout_seconds=9000,
                **issue,
            )
        await command(stage, "escalate CLR-42-001 nobody here knows this")
        await stage.live("Step 1")
        for card, label in (
            (asked[0], "Yes"),
            (asked[1], "Canary"),
            (asked[7], "Accept"),
            (asked[8], "Reject"),
        ):
            stage.clock.leap(timedelta(minutes=4))
            await stage.press(card, label, FOLAKE)
            await stage.now_says(card, f"<@{FOLAKE}>")
        await stage.later(bot, minutes=31)
        await stage.message("still waiting")
        for typed in (
            "", "#42", "CLR-42-001", "stale", "mine", "agents", "ready", "help", "help oncall", "halp", "digest 7d",
            "search release", "search nothing-like-it", "escalate CLR-42-001", "answer CLR-42-002 maybe", "abandon CLR-42-002",
        ):  # fmt: skip
            name = typed.replace(" ", "-").replace("#", "issue-").lower() or "waiting"
            await gallery.message(name, await command(stage, typed), ADE)
        await gallery.home("home", ADE, "My inbox (", "Recent decisions (")
        await gallery.screen("screen-home", ADE, home="1")
        await gallery.screen("screen-channel", ADE)
        await stage.later(bot, seconds=(weekly - stage.clock.now()).total_seconds() + 60)
        await gallery.message("weekly", await stage.message("The week to"))


async def several(gallery: Gallery) -> None:
    """The one page to a person whom four questions wait for."""
    stage = gallery.stage
    async with stage.bot(stage.config(step("0s", "dm"))) as bot:
        for n, word in enumerate(("cache", "queue", "index", "search")):
            asked: Json = {
                "session": f"sess_{n}",
                "question": f"Rebuild the {word}?",
                "timeout_seconds": 36_000,
            }
            await stage.escalate(name_of(await stage.ask(f"rpl_{n}", **asked)))
            page = await stage.live(asked["question"], wants=["Hand to…"])
        await bot.board.messages.in_flight.settled()
        await gallery.message("page", page, ONCALL)
        await stage.press(page, "Take all")
        await gallery.message("claimed", await stage.becomes(page, "Claimed"), ONCALL)


async def flood(gallery: Gallery) -> None:
    """An agent with more open questions than get a card each."""
    stage = gallery.stage
    async with stage.bot(stage.config()):
        for n in range(24):
            await stage.emit(
                f"rpl_{n}", session=f"sess_{n}", question=f"Rename file number {n:02d}?", timeout_seconds=7200
            )
        card = await stage.live("open questions", AGENTS, wants=["Show all"])
        await stage.until(lambda: "4 open questions" in stage.workspace.message(AGENTS, card.ts).text)
        await gallery.message("roll-up", card)
        await stage.press(card, "Show all", FOLAKE)
        await gallery.window("roll-up-all")


ACTS = {act.__name__: act for act in (questions, approvals, thread, pages, several, shifts, lists, flood)}


async def hang(folder: Path, names: list[str]) -> None:
    """Takes the pictures of these acts, or of all, into `folder`."""
    async with async_playwright() as playwright:
        path = chromium(playwright)
        if path is None:
            raise SystemExit(HOW_TO)
        browser = await launch(playwright, path)
        for name in names or ACTS:
            with tempfile.TemporaryDirectory() as place:
                async with night(Path(place)) as stage:
                    visit = Visit(stage, await browser.new_context(device_scale_factor=1))
                    gallery = Gallery(stage, visit, folder, name)
                    try:
                        await ACTS[name](gallery)
                        await visit.close()
                    finally:
                        gallery.close()
        await browser.close()
