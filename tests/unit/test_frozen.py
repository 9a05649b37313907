"""What outlives a release, as it was written by the release that this table was made with.

Every value is literal: what is stored, posted or told to others is read by the next release, by cards that stand in
Slack, by other programs and by people's alerts. A value may be added here; one that fails means that somebody's files
or messages would no longer be understood.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.kit.world import question, url_of
from tests.scenario.pagers import Night, night, pager, step
from workspace.seed import AGENTS, FOLAKE
from workspace.state import Message

ROOT = Path(__file__).parents[2]
HOOK = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

# -- what controls carry ------------------------------------------------------------------------------------------


# -- the storage ----------------------------------------------------------------------------------------------------


# Beginnings and whole words that are stored, posted, logged or named in README and docs, and that no other test here
# meets in what a bot writes.
SAID_SOMEWHERE = [
    # keys of messages
    "card:", "more:", "nudge:", "page:", "rollup:", "word:", "notice:", "tools:",
    # keys of incidents
    "failed:", "ledger:", "handoff:", "errored:", "event:", "escalated:", "refused:", "undelivered:", "unplaceable:",
    "restored:", "oversize:", "unreadable:", "agent:",
    # what was said once; what a channel or thread was told
    "which:", "late:", "found-late:", "answer:", "edited:", "page-reply:", "aside:", "given-up:", "oncall:", "http:",
    # states and kinds of rows
    "new", "done", "failed", "wanted", "late", "sent", "dropped", "erased", "blanked", "waiting", "begun", "written",
    "confirmed", "began", "taken", "handed", "snoozed", "not mine", "closed", "slack", "apprise",
    # files
    "manifest.json", "clarify.db", "ledgers", "archive", ".clarify", ".unreadable-", ".lock",
    # Slack
    "clarify_card", "clarify_page", "clarify_notice", "clarify.use_as_answer", "installation",
    # webhooks
    "webhook-id", "webhook-timestamp", "webhook-signature", "clarification-requested", "clarification-answered",
    "clarification-stale", "clarification-resolved", "clarification-escalated",
    # log events and trouble that docs/troubleshooting.md and docs/operate name
    "ANOTHER BOT is connected with this Slack app", "ready for clicks",
]  # fmt: skip


@cache
def strings() -> frozenset[str]:
    """Every string of the program, its statements among them; of one with values in it, each part."""
    product = [path for folder in ("bot", "core") for path in (ROOT / folder).rglob("*.py")]
    nodes = (node for path in product for node in ast.walk(ast.parse(path.read_text())))
    found = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return frozenset(found | {path.read_text() for path in (ROOT / "bot").rglob("*.sql")})


@pytest.mark.needs("ledgerfiles")
@pytest.mark.parametrize("word", SAID_SOMEWHERE)
def test_word_is_still_in_use(word: str) -> None:
    if word.endswith(":"):
        assert any(each.startswith(word) for each in strings())
    elif not word.isalpha():
        assert any(word in each for each in strings())
    else:
        assert any(each == word or f"'{word}'" in each for each in strings())


# -- a day of the bot -------------------------------------------------------------------------------------------------

POLICY = step("0s", "thread", "dm", "apprise:PAGER_URL", every="5m")
MORE = """
[[webhooks]]
url = "http://127.0.0.1:9/hook"
secret_env = "HOOK_SECRET"

[[producers]]
name = "pusher"
token_env = "PUSH_TOKEN"
"""
LASTS: dict[str, Any] = {"timeout_seconds": 36_000}
REGIONS = [{"value": "eu-1", "label": "Europe"}, {"value": "us-1", "label": "America"}]
MANY = [{"value": f"v{n}", "label": f"Label {n}"} for n in range(30)]
SECRETS = {"HOOK_SECRET": HOOK, "PUSH_TOKEN": "push-token-of-a-test"}


async def a_day(stage: Night, bot: Any) -> None:
    """Something of every kind that is stored and shown."""
    slack = stage.workspace
    card = await stage.ask("rpl_done", question="Done before?", session="s_done", **LASTS)
    assert (await slack.click(FOLAKE, AGENTS, card.ts, label="Yes")).ok
    await stage.reply("rpl_done")
    choice = {"accepted_response_kinds": ["multiple_choice"], **LASTS}
    region = await stage.ask(
        "rpl_region", question="Which region?", session="s_open", choices=REGIONS, **choice
    )
    await slack.post(FOLAKE, AGENTS, "asia maybe?", thread_ts=region.ts)
    await stage.ask("rpl_many", question="Which of many?", session="s_many", choices=MANY, **choice)
    await stage.says(
        "awaiting.confirmation", session="s_conf", urgency="critical", action="Delete the index", consequence="Gone.",
        default_decision="reject", risk_level="high", irreversible=True, reply_token="rpl_conf", **LASTS,
    )  # fmt: skip
    await stage.card("Delete the index")
    free = {"accepted_response_kinds": ["freetext"], **LASTS}
    await stage.producer.emit(
        question("rpl_long", question="Long? " + "word " * 2000, session="s_long", **free)
    )
    await stage.card("Long?")
    tool = {"session": "s_open", "tool": "fetch"}
    await stage.says("tool.completed", **tool | {"status": "error", "summary_normal": "404 for the page"})
    await stage.says("tool.completed", **tool | {"status": "success", "summary_normal": ""})
    await stage.says(
        "session.errored",
        session="s_err",
        urgency="critical",
        summary_normal="Out of memory",
        error_category="quota",
    )
    await stage.says(
        "handoff.requested", session="s_hand", urgency="critical", reason="Out of my depth", target_kind="human",
        packaged_context={"customer": "ACME"},
    )  # fmt: skip
    await stage.live("Out of my depth", AGENTS, wants=["Take", "Hand to…"])
    await stage.escalate("CLR-100002-001")
    await stage.live("Which region?")
    await slack.open_home(FOLAKE)
    await stage.producer.emit(
        {"type": "aaep:agent.awaiting.clarification", "session_id": "s_broken", "urgency": "critical"}
    )
    await stage.ask("rpl_stale", question="Getting old?", session="s_stale", **LASTS)
    for n in range(24):
        more = {"timeout_seconds": 40_000 + n, "accepted_response_kinds": ["yes_no"]}
        await stage.producer.emit(
            question(f"rpl_f{n}", session=f"s_f{n}", question=f"Flood {n:02d}?", **more)
        )
    await stage.until(lambda: any("9 open questions" in m.text for m in posted(stage)), 20)
    await stage.later(bot, minutes=31)
    nudges = "nudge:rollup"
    await stage.until(lambda: any(nudges in json.dumps(m.metadata) for m in posted(stage)), 20)
    await bot.messages.in_flight.settled()
    await stage.until(lambda: bot.board.pages.next_look() is None, 20)  # the outcomes of pages are stored


def posted(stage: Night) -> list[Message]:
    return [m for c in stage.workspace.state.channels.values() for m in c.messages.values() if m.metadata]


def shape(text: str) -> str:
    """Without what differs each time: numbers, times, ids."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", re.sub(r"evt_[0-9a-f]+", "EVT", text))
    return re.sub(r":\d+", ":N", re.sub(r"CLR-\d+-\d+", "CLR", text))


ROWS = {
    "select kind, key from messages": {
        "card card:CLR:N", "handoff notice:planner:EVT", "more more:card:CLR:N:N", "notice notice:planner:EVT",
        "nudge nudge:CLR:N:N", "nudge nudge:rollup:planner-agent:CLR:N", "page page:N:C0AGENTS",
        "page page:N:U0ONCALL", "rollup rollup:planner-agent:CLR", "tools tools:planner:s_open",
    },
    "select kind, key from incidents": {
        "errored errored:planner:EVT", "escalated escalated:CLR:N:TIME", "event event:planner:EVT",
        "handoff handoff:planner:EVT",
    },
    "select distinct state from inbox": {"done"},
    "select name from counters": {"issue", "page"},
    "select via, target, state from sendings": {"apprise PAGER_URL sent"},
    "select type from outbox": {
        "clarification-answered", "clarification-escalated", "clarification-requested", "clarification-resolved",
        "clarification-stale",
    },
}  # fmt: skip

METADATA = {
    ("clarify_card", "clarification", "installation", "revision"),
    ("clarify_notice", "installation", "key"),
    ("clarify_page", "installation", "key"),
}
METRICS = {
    "clarify_answers_total counter", "clarify_http_requests_total counter", "clarify_leads gauge",
    "clarify_mcp_calls_total counter", "clarify_oldest_question_seconds gauge", "clarify_producer_down gauge",
    "clarify_slack_rate_limited_total counter", "clarify_integration_requests_total counter",
    "clarify_build_info gauge", "clarify_deliveries_total counter", "clarify_event_loop_lag_seconds gauge",
    "clarify_inbox_oldest_seconds gauge", "clarify_log_lines_dropped_total counter", "clarify_open gauge",
    "clarify_pages_total counter", "clarify_producer_backlog gauge", "clarify_producer_clock_offset_seconds gauge",
    "clarify_producer_connected gauge", "clarify_producer_events_total counter", "clarify_queue_length gauge",
    "clarify_retries_total counter", "clarify_slack_connected gauge", "clarify_status_changes_total counter",
    "clarify_storage_readable gauge", "clarify_time_to_answer_seconds histogram", "process_cpu_seconds_total counter",
    "process_open_fds gauge", "process_resident_memory_bytes gauge",
}  # fmt: skip


@asynccontextmanager
async def living(folder: Path) -> AsyncIterator[tuple[Night, Any]]:
    """A bot with a pager, a webhook and a producer that pushes."""
    async with pager() as outside, night(folder) as stage:
        stage.environ |= SECRETS | {"PAGER_URL": outside.url}
        async with stage.bot(stage.config(POLICY, more=MORE)) as bot:
            yield stage, bot


@pytest.mark.needs("apprise", "webhooks")
async def test_day_is_stored_shown_and_counted_as_ever(tmp_path: Path) -> None:
    async with living(tmp_path) as (stage, bot):
        await a_day(stage, bot)
        for statement, shapes in ROWS.items():
            rows = {shape(" ".join(map(str, row))) for row in await bot.store.read(statement)}
            assert rows == shapes, statement
        told = [m.metadata for m in posted(stage) if m.metadata]
        assert {(each["event_type"], *sorted(each["event_payload"])) for each in told} == METADATA
        async with aiohttp.ClientSession() as http, http.get(f"{url_of(bot)}/metrics") as answer:
            families = set(re.findall(r"^# TYPE (\S+ \S+)", await answer.text(), re.MULTILINE))
        assert families >= METRICS
