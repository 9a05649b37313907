"""Agents are called back when their question ends: signed, once, until it is taken; and the URL stays a secret."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from copy import deepcopy
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from bot.app import Bot
from bot.ask.questions import Callback
from bot.http import ANSWER_TIMEOUT
from bot.settings.load import signing_key
from bot.show.callbacks import Callbacks
from bot.show.outbox import signature
from bot.storage.tx import Work
from tests.kit.clocks import LeapClock
from tests.kit.fake_github import PREFIX, TOKEN, serving
from tests.kit.lives import beside
from tests.kit.receivers import Receiver, receiving
from tests.kit.served import served
from tests.kit.until import until
from tests.kit.world import World, config, own_url_of, said, scene, url_of
from tests.scenario.other_parties import another_writes, answers
from tests.scenario.test_questions import Asker
from workspace.seed import ADE, AGENTS, FOLAKE

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def table(*hooks: Receiver, path: str = "/*") -> str:
    urls = [f"{each.url.partition('/hook')[0]}{path}" for each in hooks]
    return f'[[producers]]\nname = "bare"\ncallbacks = {json.dumps(urls)}\ncallback_secret_env = "CALLBACK_SECRET"\n'


@contextmanager
def said_nowhere(stage: World, secret: str) -> Iterator[None]:
    """The secret is in no file of the bot but its storage, in no message, and in no log."""
    with capture_logs() as logs:
        yield
    assert logs
    assert secret not in repr(logs)
    for file in stage.folder.rglob("*"):
        if file.is_file() and not file.name.startswith("clarify.db"):
            assert secret.encode() not in file.read_bytes(), file
    assert secret not in repr(stage.workspace.state.channels)


@asynccontextmanager
async def running(stage: World, text: str) -> AsyncIterator[tuple[Bot, Asker]]:
    stage.environ |= {"CALLBACK_SECRET": SECRET}
    stage.configure(config(stage.producer.url) + text)
    async with stage.bot() as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
        yield bot, Asker(http)


@pytest.fixture
async def hook() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


async def owed(bot: Bot) -> int:
    rows = await bot.store.read("select count(*) as n from questions where callback_url is not null")
    return int(rows[0]["n"])


def callbacks_of(bot: Bot) -> Callbacks:
    assert bot.callbacks is not None
    return bot.callbacks


async def at_rest(bot: Bot) -> None:
    """All changes are taken, and nothing is sent or due now."""
    callbacks = callbacks_of(bot)
    await until(lambda: bot.feed.idle and callbacks.idle)


async def none_waits(bot: Bot) -> None:
    callbacks = callbacks_of(bot)
    await until(lambda: not len(callbacks))


async def test_state_is_posted_signed_at_the_end(stage: World, hook: Receiver) -> None:
    async with running(stage, table(hook)) as (bot, asker):
        with said_nowhere(stage, "s3cret"):
            asked = await asker.ask(question="Which age?", choices=["65", "67"], callback_url=hook.url)
            card = await stage.card("Which age?")
            assert hook.got == []
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="67")
            await until(lambda: hook.got)
            await stage.now_says(card, "the agent has resumed")
            await until(lambda: stage.record()["status"] == "resolved")
            got, state = hook.got[0], await asker.look(asked)
            assert got.said == state
            assert (state["answer"], state["asked"]["question"]) == ("67", "Which age?")
            assert state["receipt"]
            headers = {name.lower(): value for name, value in got.headers.items()}
            name, at = f"{asked['id']}/1", int(headers["webhook-timestamp"])
            assert headers["idempotency-key"] == name
            assert signature(signing_key(SECRET), name, at, got.body).items() <= headers.items()
            assert headers["content-type"] == "application/json"
            await until_none(bot)
            recorded = await bot.store.read("select body from clarifications")
            assert "s3cret" not in repr([row["body"] for row in recorded])
    assert len(hook.got) == 1


async def test_every_end_is_posted(tmp_path: Path, hook: Receiver) -> None:
    clock = LeapClock()
    async with scene(tmp_path, clock=clock) as stage, running(stage, table(hook)) as (_, asker):
        ask = [await asker.ask(question=f"Q{n}?", callback_url=f"{hook.url}&n={n}") for n in range(3)]
        await asker.withdraw(ask[0])
        await until(lambda: len(hook.got) == 1)
        await stage.card("Q1?")
        await stage.workspace.command(FOLAKE, AGENTS, "/clarify", f"abandon {ask[1]['id']} Not needed")
        await until(lambda: len(hook.got) == 2)
        clock.leap(datetime.fromisoformat(ask[2]["expires_at"]) + timedelta(minutes=1) - clock.now())
        await until(lambda: len(hook.got) == 3)
        assert [each.said["status"] for each in hook.got] == ["withdrawn", "closed", "expired"]


async def test_question_without_a_callback_is_posted_nowhere(stage: World, hook: Receiver) -> None:
    async with running(stage, table(hook)) as (bot, asker):
        asked = await asker.ask(question="Quietly?")
        await asker.withdraw(asked)
        await asker.withdraw(await asker.ask(question="Loudly?", callback_url=hook.url))
        await until(lambda: hook.got)
        await at_rest(bot)
        assert [each.said["asked"]["question"] for each in hook.got] == ["Loudly?"]


@pytest.mark.parametrize("status", [404, 410, 302])
async def test_gone_is_said_once_in_the_thread(stage: World, hook: Receiver, status: int) -> None:
    hook.answers = [(status, {"Location": f"{hook.url}&elsewhere"})]
    async with running(stage, table(hook)) as (bot, asker):
        with said_nowhere(stage, "s3cret"):
            asked = await asker.ask(question="Which age?", kind="yes_no", callback_url=hook.url)
            card = await stage.card("Which age?")
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            notice = await stage.message("Not called back")
            assert notice.thread_ts == card.ts
            assert f"HTTP {status}" in said(notice)
            assert "127.0.0.1" in said(notice)
            await until_none(bot)
            assert "Not picked up" in said(await stage.card("Which age?"))
            await callbacks_of(bot).load()
            await at_rest(bot)
            assert (await asker.look(asked))["answer"] is True  # polling works beside it
    assert len(hook.got) == 1


async def until_none(bot: Bot) -> None:
    while await owed(bot):  # noqa: ASYNC110 - the storage tells nobody
        await asyncio.sleep(0.01)


async def test_callback_is_tried_again_over_restarts_for_three_days(tmp_path: Path, hook: Receiver) -> None:
    clock = LeapClock()
    hook.answers = [(503, {"Retry-After": "3600"})] * 4
    async with scene(tmp_path, clock=clock) as stage:
        async with running(stage, table(hook)) as (bot, asker):
            await asker.withdraw(await asker.ask(question="Which age?", callback_url=hook.url))
            await until(lambda: len(hook.got) == 1)
            await at_rest(bot)
            clock.leap(timedelta(hours=2))
            await until(lambda: len(hook.got) == 2)
            await at_rest(bot)
        clock.leap(timedelta(hours=69))
        async with running(stage, table(hook)) as (bot, _):
            await until(lambda: len(hook.got) == 3)
            await at_rest(bot)
            assert await owed(bot) == 1
            clock.leap(timedelta(hours=2))
            notice = await stage.message("Not called back")
            assert "for three days, it did not take it (HTTP 503)" in said(notice)
            await until_none(bot)
            assert len(hook.got) == 4
            assert len({each.headers["Idempotency-Key"] for each in hook.got}) == 1


async def test_readiness_names_the_host_that_does_not_take_callbacks(tmp_path: Path, hook: Receiver) -> None:
    clock = LeapClock()
    hook.answers = [(503, {"Retry-After": "3600"})] * 4
    async with scene(tmp_path, clock=clock) as stage, running(stage, table(hook)) as (bot, asker):

        async def degraded() -> list[str]:
            # Which the leader knows.
            found = (await asker.http.get(f"{own_url_of(bot)}/readyz")).json()["degraded"]
            return [each["why"] for each in found if each["name"] == "callbacks"]

        for n in range(2):
            await asker.withdraw(await asker.ask(question=f"Which {n}?", callback_url=hook.url))
        await until(lambda: len(hook.got) == 2)
        await at_rest(bot)
        assert not await degraded()
        clock.leap(timedelta(minutes=11))
        (problem,) = await degraded()
        host = hook.url.partition("//")[2].partition("/")[0]
        assert problem.startswith(f"2 callbacks to {host} not taken, since ")
        assert problem.endswith("UTC: it did not take it (HTTP 503)")
        hook.answers.clear()
        clock.leap(timedelta(hours=1))
        await until_none(bot)
        await none_waits(bot)
        assert not await degraded()


async def test_callback_that_a_stopped_bot_owes_is_posted_by_the_next(stage: World, hook: Receiver) -> None:
    hook.answers = [(-1, {})]  # takes it, and the bot ends before it hears so
    async with running(stage, table(hook)) as (_, asker):
        asked = await asker.ask(question="Which age?", callback_url=hook.url)
        await stage.card("Which age?")
        await asker.withdraw(asked)
        await until(lambda: hook.got)
    async with running(stage, table(hook)) as (bot, _):
        await until(lambda: len(hook.got) == 2)
        await until_none(bot)
    assert hook.got[0].body == hook.got[1].body


@pytest.mark.parametrize("where", ["before the feed has it", "before it is sent"])
async def test_kill_between_the_end_and_the_callback_loses_and_doubles_nothing(
    stage: World, hook: Receiver, where: str
) -> None:
    async with running(stage, table(hook)) as (bot, asker):
        asked = await asker.ask(question="Which age?", callback_url=hook.url)
        await at_rest(bot)
        if where == "before it is sent":
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Callbacks, "_put", lambda *_: None)
                await asker.withdraw(asked)
                while not await bot.agents.questions.owed_callbacks():  # noqa: ASYNC110 - the storage tells nobody
                    await asyncio.sleep(0.01)
        else:
            (feed,) = (each for each in bot._tasks if each.get_name() == "changes")
            feed.cancel()
            await asyncio.wait([feed])
            await asker.withdraw(asked)
        assert hook.got == []
    for _ in range(2):
        async with running(stage, table(hook)) as (bot, _):
            await until_none(bot)
            await at_rest(bot)
    assert [each.said["status"] for each in hook.got] == ["withdrawn"]


@pytest.mark.parametrize("runs", [True, False], ids=["beside a bot", "while none runs"])
async def test_answer_in_the_shell_is_posted_once_with_the_receipt_that_the_bot_makes(
    stage: World, hook: Receiver, runs: bool
) -> None:
    """The shell has no key: the callback waits for the bot's signature."""
    async with running(stage, table(hook)) as (bot, asker):
        asked = await asker.ask(question="Which age?", callback_url=hook.url)
        if runs:
            assert (await beside(stage, "answer", asked["id"], "67")).code == 0
            await until_none(bot)
    if not runs:
        assert (await beside(stage, "answer", asked["id"], "67")).code == 0
    async with running(stage, table(hook)) as (bot, asker):
        await until_none(bot)
        await at_rest(bot)
        state = await asker.look(asked)
    assert state["receipt"]
    assert [(each.said["answer"], each.said["receipt"]) for each in hook.got] == [("67", state["receipt"])]


async def test_what_is_open_is_no_callback_that_is_owed(stage: World, hook: Receiver) -> None:
    """A start reads those that are owed, however many questions wait with a URL."""
    async with running(stage, table(hook)) as (bot, asker):
        fields = dict[str, Any](question="Which age?", key="k1")
        await asker.ask(**fields, callback_url=f"{hook.url}&run=1")
        await asker.ask(200, **fields, callback_url=f"{hook.url}&run=2")
        await at_rest(bot)
        assert await bot.agents.questions.owed_callbacks() == []
        assert await owed(bot) == 1
    assert hook.got == []


async def test_slow_host_delays_neither_clicks_nor_other_hosts(stage: World, hook: Receiver) -> None:
    hook.answers = [(-1, {})] * 50
    async with receiving() as other, running(stage, table(hook, other)) as (_, asker):
        for n in range(15):
            await asker.withdraw(await asker.ask(question=f"Slow {n}?", callback_url=hook.url))
        await until(lambda: len(hook.got) == 10)
        await asker.ask(question="Which age?", kind="yes_no", callback_url=other.url)
        card = await stage.card("Which age?")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await until(lambda: other.got)
        await stage.now_says(card, "the agent has resumed")
        assert len(hook.got) == 10  # none was answered, so no more began


async def test_slow_urls_of_one_producer_do_not_delay_those_of_another(stage: World, hook: Receiver) -> None:
    hook.answers = [(-1, {})] * 50
    text = table(hook) + table(hook).replace("bare", "other")
    async with running(stage, text) as (_, asker):
        for producer, count in (("bare", 15), ("other", 1)):
            asker.http.params = {"producer": producer}
            for n in range(count):
                await asker.withdraw(await asker.ask(question=f"{producer} {n}?", callback_url=hook.url))
        await until(lambda: len(hook.got) == 11)
        assert "other 0?" in [each.said["asked"]["question"] for each in hook.got]


async def test_after_a_start_those_that_never_failed_come_first(stage: World, hook: Receiver) -> None:
    """They do not wait behind those that take ten seconds each once more."""
    hook.answers = [(503, {"Retry-After": "3600"})] * 3
    async with running(stage, table(hook)) as (bot, asker):
        for n in range(3):
            await asker.withdraw(await asker.ask(question=f"Failed {n}?", callback_url=hook.url))
        await until(lambda: len(hook.got) == 3)
        await at_rest(bot)
        last = await asker.ask(question="Never tried?", callback_url=hook.url)
        await asker.ask(question="Waiting?", callback_url=hook.url)
        hook.answers = [(-1, {})]
        await asker.withdraw(last)
        await until(lambda: len(hook.got) == 4)
    hook.answers = [(-1, {})] * 4
    async with running(stage, table(hook)) as (bot, _):
        first, *others = [each.clarification for each in await bot.agents.questions.owed_callbacks()]
        assert first == last["id"]
        assert set(others) == {each.said["id"] for each in hook.got[:3]}


async def test_bot_that_stops_begins_no_further_callback(stage: World, hook: Receiver) -> None:
    hook.answers = [(-1, {})] * 50
    async with running(stage, table(hook)) as (bot, asker):
        for n in range(25):
            await asker.withdraw(await asker.ask(question=f"Slow {n}?", callback_url=hook.url))
        await until(lambda: len(hook.got) == 10)
        stopping = time.monotonic()
    assert time.monotonic() - stopping < ANSWER_TIMEOUT  # none was waited for
    assert len(hook.got) == 10
    hook.answers = []
    async with running(stage, table(hook)) as (bot, _):
        await until_none(bot)
    assert len(hook.got) == 35


async def test_url_that_is_not_allowed_is_refused_and_not_repeated(stage: World, hook: Receiver) -> None:
    origin = hook.url.partition("/hook")[0]
    wrong: tuple[Any, ...] = (
        "https://evil.example/s3cret",
        "http://127.0.0.1:1/allowed/s3cret",
        f"{origin}/elsewhere/s3cret",
        f"{origin}/allowed/../s3cret",
        "http://user:s3cret@127.0.0.1/allowed/",
        "http://localhost/allowed/s3cret",
        "s3cret",
        "https://a.example/" + "s3cret" * 400,
        "https://a.example/\ud800s3cret",
        7,
        ["https://a.example/s3cret"],
    )
    async with running(stage, table(hook, path="/allowed/*")) as (_, asker):
        for url in wrong:
            answer = await asker.http.post(
                "/questions",
                content=json.dumps({"question": "Which age?", "callback_url": url}),
                headers={"Content-Type": "application/json"},
            )
            assert (answer.status_code, answer.json()["field"]) == (422, "callback_url"), url
            assert "s3cret" not in answer.text
        await asker.ask(question="Which age?", callback_url=f"{origin}/allowed/s3cret")


async def test_without_a_list_there_are_no_callbacks(stage: World, hook: Receiver) -> None:
    async with running(stage, "") as (bot, asker):
        assert bot.callbacks is None
        refused = await asker.ask(422, question="Which age?", callback_url=hook.url)
        assert (refused["error"], refused["field"]) == ("BAD_INPUT", "callback_url")
        assert "callbacks" in refused["message"]


async def test_tools_have_no_callback(stage: World, hook: Receiver) -> None:
    """A model must not choose whom the bot calls."""
    async with running(stage, table(hook)) as (_, asker):
        call = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "ask_human", "arguments": {"question": "Q?", "callback_url": hook.url}},
        }
        accepts = {"Accept": "application/json, text/event-stream"}
        answer = await asker.http.post("/mcp", json=call, headers=accepts)
        assert "`callback_url` is not an argument of this tool" in answer.text
        assert '"isError":true' in answer.text


async def test_newest_url_counts(stage: World, hook: Receiver) -> None:
    async with running(stage, table(hook)) as (bot, asker):
        fields = dict[str, Any](question="Which age?", key="k1")
        asked = await asker.ask(**fields, callback_url=f"{hook.url}&run=1")
        assert (await asker.ask(200, **fields, callback_url=f"{hook.url}&run=2"))["id"] == asked["id"]
        assert (await asker.ask(200, **fields))["id"] == asked["id"]  # leaves it as it is
        await asker.withdraw(asked)
        await until(lambda: len(hook.got) == 1)
        await until_none(bot)
        await asker.ask(200, **fields, callback_url=f"{hook.url}&run=3")  # after the end: at once
        await until(lambda: len(hook.got) == 2)
        await until_none(bot)
        assert [each.path[-1] for each in hook.got] == ["2", "3"]


async def test_newer_url_is_called_without_a_notice_by_the_bot_that_took_it(
    stage: World, hook: Receiver
) -> None:
    async with running(stage, table(hook)) as (bot, _), httpx.AsyncClient(base_url=own_url_of(bot)) as http:
        asker, fields = Asker(http), dict[str, Any](question="Which age?", key="k1")
        await asker.withdraw(await asker.ask(**fields))
        await at_rest(bot)
        (watch,) = (each for each in bot._tasks if each.get_name() == "ledger watch")
        watch.cancel()
        await asyncio.wait([watch])
        await asker.ask(200, **fields, callback_url=hook.url)
        await until(lambda: hook.got)
        await until_none(bot)


async def test_refused_repetition_does_not_take_the_call(stage: World, hook: Receiver) -> None:
    rule = "[[routes]]\nfour_eyes = {claimed = true}\n"
    text = config(stage.producer.url).replace("[[routes]]\n", rule) + table(hook)
    stage.environ |= {"CALLBACK_SECRET": SECRET}
    async with stage.bot(text) as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
        asker, fields = Asker(http), dict[str, Any](action="Pay", key="k1")
        asked = await asker.ask(**fields, requested_by=ADE, callback_url=f"{hook.url}&run=1")
        refused = await asker.ask(409, **fields, requested_by=FOLAKE, callback_url=f"{hook.url}&run=2")
        assert refused["error"] == "KEY_REUSED"
        await asker.withdraw(asked)
        await until_none(bot)
    assert [each.path[-1] for each in hook.got] == ["1"]


async def test_url_that_comes_during_an_attempt_is_called_next(stage: World, hook: Receiver) -> None:
    hook.answers = [(-1, {})]
    async with receiving() as other, running(stage, table(hook, other)) as (bot, asker):
        fields = dict[str, Any](question="Which age?", key="k1")
        asked = await asker.ask(**fields, callback_url=hook.url)
        await asker.withdraw(asked)
        await until(lambda: hook.got)
        await asker.ask(200, **fields, callback_url=other.url)
        hook.stall.set()
        await until(lambda: other.got)
        await until_none(bot)
    assert len(hook.got) == 1


async def test_newer_url_does_not_wait_for_the_retry_of_the_one_before(stage: World, hook: Receiver) -> None:
    hook.answers = [(429, {"Retry-After": "86400"})]
    async with running(stage, table(hook)) as (bot, asker):
        fields = dict[str, Any](question="Which age?", key="k1")
        await asker.withdraw(await asker.ask(**fields, callback_url=f"{hook.url}&run=1"))
        await until(lambda: len(hook.got) == 1)
        await at_rest(bot)
        await asker.ask(200, **fields, callback_url=f"{hook.url}&run=1")  # the same one goes on waiting
        await at_rest(bot)
        assert len(hook.got) == 1
        await asker.ask(200, **fields, callback_url=f"{hook.url}&run=2")
        await until(lambda: len(hook.got) == 2)
        await until_none(bot)
    assert [each.path[-1] for each in hook.got] == ["1", "2"]


async def test_host_is_not_down_for_a_question_whose_newer_url_is_elsewhere(
    tmp_path: Path, hook: Receiver
) -> None:
    clock = LeapClock()
    hook.answers = [(429, {"Retry-After": "86400"})]
    async with (
        receiving() as other,
        scene(tmp_path, clock=clock) as stage,
        running(stage, table(hook, other)) as (bot, asker),
    ):
        fields = dict[str, Any](question="Which age?", key="k1")
        await asker.withdraw(await asker.ask(**fields, callback_url=hook.url))
        await until(lambda: hook.got)
        await at_rest(bot)
        clock.leap(timedelta(minutes=11))
        assert "1 callback to" in (callbacks_of(bot).trouble() or "")
        await asker.ask(200, **fields, callback_url=other.url)
        await until(lambda: other.got)
        await until_none(bot)
        await none_waits(bot)
        assert callbacks_of(bot).trouble() is None
    assert len(hook.got) == 1


@pytest.mark.parametrize("_database", ["replicas"], indirect=True)
async def test_leader_knows_a_new_url_even_if_the_bot_that_stored_it_does_nothing_more(
    stage: World, hook: Receiver
) -> None:
    async with running(stage, table(hook)) as (_, asker):
        fields = dict[str, Any](question="Which age?", key="k1")
        await asker.withdraw(await asker.ask(**fields))
        (follower,) = (each for each in stage.bots if not each.store.leads)
        write = follower.store.write

        async def at_last(work: Work[Any]) -> Any:
            if await owed(follower):
                await asyncio.Event().wait()
            return await write(work)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(follower.store, "write", at_last)
            async with httpx.AsyncClient(base_url=own_url_of(follower), timeout=60) as http:
                again = asyncio.create_task(http.post("/questions", json=fields | {"callback_url": hook.url}))
                await until(lambda: hook.got)
                again.cancel()
                await asyncio.gather(again, return_exceptions=True)


async def test_retry_is_waited_for_also_when_all_that_is_owed_is_loaded_again(
    stage: World, hook: Receiver
) -> None:
    hook.answers = [(429, {"Retry-After": "86400"})]
    async with running(stage, table(hook)) as (bot, asker):
        await asker.withdraw(await asker.ask(question="Which age?", callback_url=hook.url))
        await until(lambda: hook.got)
        await at_rest(bot)
        await callbacks_of(bot).load()
        await at_rest(bot)
        assert len(hook.got) == 1


async def test_newer_url_that_comes_while_a_failure_is_stored_does_not_wait_either(
    stage: World, hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook.answers = [(429, {"Retry-After": "86400"})]
    async with running(stage, table(hook)) as (bot, asker):
        fields = dict[str, Any](question="Which age?", key="k1")
        store_failure = bot.agents.questions.callback_failed

        async def meanwhile(callback: Callback) -> None:
            await store_failure(callback)
            await asker.ask(200, **fields, callback_url=f"{hook.url}&run=2")
            await until(lambda: bot.feed.idle)

        monkeypatch.setattr(bot.agents.questions, "callback_failed", meanwhile)
        await asker.withdraw(await asker.ask(**fields, callback_url=f"{hook.url}&run=1"))
        await until(lambda: len(hook.got) == 2)
        await until_none(bot)
    assert [each.path[-1] for each in hook.got] == ["1", "2"]


@pytest.mark.parametrize("status", [404, 503])
async def test_newer_url_counts_also_when_the_one_before_fails_meanwhile(
    stage: World, hook: Receiver, status: int
) -> None:
    """The thread does not say that the first was given up: the second is called."""
    begun, fails = asyncio.Event(), asyncio.Event()

    async def take(request: web.Request) -> web.Response:
        if request.query["run"] == "2":
            return web.Response(status=204)
        begun.set()
        await fails.wait()
        return web.Response(status=status, headers={"Retry-After": "86400"})

    async with served(take) as address:
        hook.url = f"{address}/hook"
        async with running(stage, table(hook)) as (bot, asker):
            fields = dict[str, Any](question="Which age?", kind="yes_no", key="k1")
            await asker.ask(**fields, callback_url=f"{address}/s3cret?run=1")
            card = await stage.card("Which age?")
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            await begun.wait()
            await asker.ask(200, **fields, callback_url=f"{address}/s3cret?run=2")
            fails.set()
            await until_none(bot)
            await stage.now_says(card, "the agent has resumed")
            assert "Not called back" not in repr(stage.workspace.state.channels)


async def test_newer_url_that_another_entry_allows_is_called(tmp_path: Path, hook: Receiver) -> None:
    clock = LeapClock()
    origin = hook.url.partition("/hook")[0]
    entries = f'["{origin}/open/*", {{url = "{origin}/private/*", private = true}}]'
    text = f'[[producers]]\nname = "bare"\ncallbacks = {entries}\n'
    hook.answers = [(503, {"Retry-After": "1800"}), (429, {"Retry-After": "7200"})]
    async with scene(tmp_path, clock=clock) as stage, running(stage, text) as (bot, asker):
        fields = dict[str, Any](question="Which age?", key="k1")
        await asker.withdraw(await asker.ask(**fields, callback_url=f"{origin}/open/1"))
        await until(lambda: len(hook.got) == 1)
        await asker.ask(200, **fields, callback_url=f"{origin}/private/2")
        await until(lambda: len(hook.got) == 2)
        await at_rest(bot)
        clock.leap(timedelta(hours=1))  # the first one's retry
        await at_rest(bot)
        assert await owed(bot) == 1
        clock.leap(timedelta(hours=2))
        await until_none(bot)
        assert [each.path for each in hook.got] == ["/open/1", "/private/2", "/private/2"]


async def test_status_counts_whatever_becomes_of_the_body(stage: World) -> None:
    """Some take it with 200 and then stream, or say nothing more."""
    took = 0

    async def take(request: web.Request) -> web.StreamResponse:
        nonlocal took
        took += 1
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await asyncio.Event().wait()
        return answer

    async with served(take) as address, running(stage, table(Receiver(f"{address}/hook"))) as (bot, asker):
        with capture_logs() as logs:
            await asker.withdraw(await asker.ask(question="Which age?", callback_url=f"{address}/s3cret"))
            await until_none(bot)
        assert "not sent, will try again" not in repr(logs)
    assert took == 1


@pytest.mark.needs("ledgerfiles")
async def test_answer_that_another_program_wrote_is_not_posted_before_it_counts(
    stage: World, hook: Receiver
) -> None:
    """An approval that someone wrote into the ledger file stays open; the URL is kept for the decision."""
    async with running(stage, table(hook)) as (bot, asker):
        await asker.ask(action="Deploy 4.2", callback_url=hook.url)
        card = await stage.card("Deploy 4.2")
        await stage.in_step()
    await another_writes(stage, answers("accept"))
    async with running(stage, table(hook)) as (bot, asker):
        await stage.message("Not accepted")
        await at_rest(bot)
        assert hook.got == []
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")
        await until(lambda: hook.got)
        await until_none(bot)
    assert [each.said["answer"]["decision"] for each in hook.got] == ["accept"]


@pytest.mark.needs("ledgerfiles")
async def test_record_that_names_another_questions_event_is_posted_nowhere(
    stage: World, hook: Receiver
) -> None:
    """Who can write the ledger must not have an outcome of their own posted to an agent's URL."""
    async with running(stage, table(hook)) as (bot, asker):
        asked = await asker.ask(question="Which age?", callback_url=hook.url)
        await stage.in_step()
        ledger = stage.ledger(100001)
        forged = deepcopy(ledger["clarifications"][0]) | {"id": "CLR-100001-002"}
        answers("Forged")(forged)
        ledger["clarifications"].append(forged)
        stage.write_ledger(100001, ledger)
        await until(lambda: len(stage.ledger(100001)["clarifications"]) == 2)
        await at_rest(bot)
        assert hook.got == []
        await asker.withdraw(asked)
        await until(lambda: hook.got)
    assert [each.said["id"] for each in hook.got] == [asked["id"]]


async def test_what_ended_while_the_bot_that_led_had_no_callbacks_is_called_back(
    stage: World, hook: Receiver
) -> None:
    """Another bot may have got them first; the consumer begins after the end of the question."""
    async with running(stage, table(hook)) as (_, asker):
        asked, waits = [await asker.ask(question=f"Which {each}?", callback_url=hook.url) for each in "ab"]
    assert (await beside(stage, "answer", asked["id"], "67")).code == 0
    for rows in ("changes", "consumers"):
        stage.changed(f"delete from {rows}")  # noqa: S608 - ours
    async with running(stage, table(hook)) as (_, asker):
        await until(lambda: hook.got)
        await asker.withdraw(waits)
        await until(lambda: len(hook.got) == 2)
    assert [each.said["id"] for each in hook.got] == [asked["id"], waits["id"]]


@pytest.mark.parametrize("left", [True, False], ids=["others are left", "none is left"])
async def test_entry_that_is_gone_is_called_no_more(stage: World, hook: Receiver, left: bool) -> None:
    async with running(stage, table(hook)) as (_, asker):
        asked = await asker.ask(question="Which age?", callback_url=hook.url)
    text = table(hook, path="/other/*") if left else '[[producers]]\nname = "bare"\n'
    async with running(stage, text) as (bot, asker):
        await asker.withdraw(asked)
        assert "no longer" in said(await stage.message("Not called back"))
        await until_none(bot)
    assert hook.got == []


async def test_forgotten_question_is_posted_nowhere(stage: World, hook: Receiver) -> None:
    hook.refuses = lambda _: 503
    async with running(stage, table(hook)) as (bot, asker):
        asked = await asker.ask(question="Which age?", callback_url=hook.url)
        await asker.withdraw(asked)
        await until(lambda: hook.got)
        await beside(stage, "forget", asked["id"], "--yes")
        assert await owed(bot) == 0
        tries = len(hook.got)
        if (database := stage.folder / "clarify.db").exists():
            assert b"s3cret" not in database.read_bytes()
    async with running(stage, table(hook)) as (bot, _):
        await at_rest(bot)
    assert len(hook.got) == tries


@pytest.mark.parametrize("status", [204, 404, 503])
async def test_question_that_is_forgotten_during_an_attempt_is_not_told_about(
    stage: World, hook: Receiver, status: int
) -> None:
    begun, ends = asyncio.Event(), asyncio.Event()

    async def take(_: web.Request) -> web.Response:
        begun.set()
        await ends.wait()
        return web.Response(status=status)

    async with served(take) as address:
        hook.url = f"{address}/hook"
        async with running(stage, table(hook)) as (bot, asker):
            asked = await asker.ask(question="Which age?", callback_url=hook.url)
            await stage.card("Which age?")
            await asker.withdraw(asked)
            await begun.wait()
            assert (await beside(stage, "forget", asked["id"], "--yes")).code == 0
            ends.set()
            await none_waits(bot)
            assert await bot.store.read("select key from messages where key like 'callback:%'") == []


async def test_check_says_whether_callbacks_are_signed(stage: World, hook: Receiver) -> None:
    stage.environ |= {"CALLBACK_SECRET": SECRET}
    stage.configure(config(stage.producer.url) + table(hook))
    done = await beside(stage, "check")
    assert "signed with CALLBACK_SECRET" in done.out, done


@pytest.mark.needs("github", "webhooks")
async def test_changes_that_come_again_do_nothing_twice(stage: World, hook: Receiver) -> None:
    """As after a cursor that was set back: consumers know what they have done, and a webhook message keeps its id."""
    async with serving(time.time) as github, receiving() as webhook:
        stage.environ |= {"HOOK_SECRET": SECRET, "GITHUB_TOKEN": TOKEN}
        outside = (
            f'[[webhooks]]\nurl = "{webhook.url}"\nsecret_env = "HOOK_SECRET"\n[github]\nrepo = "acme/app"\n'
            f'token_env = "GITHUB_TOKEN"\napi_url = "{github.address}{PREFIX}"\n'
        )

        def messages() -> list[str]:
            return [each.headers["webhook-id"] for each in webhook.got]

        async with running(stage, table(hook) + outside) as (bot, asker):
            assert stage.changed("insert into consumers (name, written, seq) values ('bystander', 0, 0)") == 1
            await asker.ask(question="Go on?", kind="yes_no", issue=42, callback_url=hook.url)
            card = await stage.card("Go on?")
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            await until(lambda: hook.got and len(messages()) == 3 and "Yes" in "".join(github.bodies(42)))
            await at_rest(bot)
        sent, posted, mirrored = messages(), len(hook.got), github.bodies(42)
        decided = stage.changed("update decisions set seq = seq where kind = 'decision'")
        assert (len({*sent}), posted, decided) == (3, 1, 1)
        stage.changed("update consumers set written = 0, seq = 0")
        async with running(stage, table(hook) + outside) as (bot, _):
            await until(lambda: len(messages()) == 6)
            await at_rest(bot)
            (mailer,) = bot.integrated.mailers
            await until(lambda: mailer.idle)
        assert [{*sent}, posted, mirrored] == [{*messages()}, len(hook.got), github.bodies(42)]
        assert stage.changed("update decisions set seq = seq where kind = 'decision'") == 1
