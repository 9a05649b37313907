"""Finding a decision again: in `/clarify search`, in the shell and from the Home tab, and who may find what."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from bot.decisions.query import Search
from bot.decisions.search import Sees, deciders_of, find, words_of
from bot.errors import StorageUnavailable
from bot.storage import opening
from core.summary import DecidedBy
from tests.kit.lives import beside
from tests.kit.world import World
from tests.scenario.test_approvals import ask, asking, look, press
from tests.scenario.typist import (
    HOSTILE,
    LIN,
    assert_inert,
    becomes,
    buttons,
    command,
    direct,
    ids,
    outsider,
    words,
)
from workspace.seed import ADE, AGENTS, FALLBACK, FOLAKE, GIO, ONCALL, RANDOM, TEAM
from workspace.state import Channel, View


@dataclass
class Table:
    """Puts decisions into the table, as the log does."""

    stage: World
    seq: int = 0

    def put(self, question: str, **fields: Any) -> str:
        """Returns the id."""
        row = self.row(question, **fields)
        statement = f"insert into decision_texts ({', '.join(row)}) values ({_values(row)})"  # noqa: S608 - our own
        assert self.stage.changed(statement) == 1
        return str(row["clarification"])

    async def put_many(self, rows: list[dict[str, Any]]) -> None:
        names = rows[0].keys()
        statement = f"insert into decision_texts ({', '.join(names)}) values (:{', :'.join(names)})"  # noqa: S608
        await self.stage.bots[0].base.store.write(lambda tx: tx.many(statement, rows))

    def row(self, question: str, **fields: Any) -> dict[str, Any]:
        self.seq += 1
        user, agent = fields.pop("user", ADE), fields.pop("agent", "planner-agent")
        who = DecidedBy(f"user:slack/{TEAM}/{user}", user)
        row: dict[str, Any] = {
            "seq": 1000 + self.seq,
            "clarification": f"CLR-{self.seq}-001",
            "at": self.stage.clock.now().timestamp() - 3600 + self.seq,
            "agent": agent,
            "outcome": "answered",
            "decision": None,
            "decided_by": who.name,
            "deciders": deciders_of([who]),
            "channel": AGENTS,
            "ts": None,
            "recipient": None,
            "question": question,
            "answer": "yes",
        } | fields
        texts = (question, row["answer"], row.pop("comment", None))
        row["words"] = words_of((agent, row.pop("agent_name", None)), texts)
        return row


def _values(row: dict[str, Any]) -> str:
    """Literals of SQL."""
    told = (
        "null" if value is None else str(value) if isinstance(value, int | float) else _text(value)
        for value in row.values()
    )
    return ", ".join(told)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


@pytest.fixture
def table(stage: World) -> Table:
    return Table(stage)


async def search(stage: World, text: str, user: str = ADE) -> list[str]:
    """The ids that `/clarify search` lists, in their order."""
    return ids(await command(stage, f"search {text}", user))


async def found(stage: World, text: str, user: str, wanted: list[str]) -> None:
    """Returns once `/clarify search` lists these, and no others."""
    while await search(stage, text, user) != wanted:
        pass


@pytest.mark.either_database
async def test_decisions_are_found_by_words_newest_first_with_who_when_and_where(
    stage: World, table: Table
) -> None:
    async with stage.bot():
        card = await stage.ask(question="Posted?")
        rotated = table.put("Rotate the API keys?", answer="Only on staging", comment="ask Jo", ts=card.ts)
        sent = table.put("Send the newsletter", decision="accept", answer=None, agent="mailer", user=FOLAKE)
        late = table.put("Rotate\nkeys now?", outcome="expired", answer=None, decided_by=None, deciders="  ")

        told = await command(stage, "search KEYS rotate")
        assert ids(told) == [late, rotated]
        link = stage.workspace.permalink(AGENTS, card.ts)
        said = words(told)
        assert f"<{link}|{rotated}>" in said
        assert f"answered: “Only on staging” by <@{ADE}>, <!date^" in said
        assert "expired, <!date^" in said
        assert "Decisions: KEYS rotate" in said
        assert [each for each in ("Rotate the API keys?", "Rotate keys now?") if each not in told.text] == []

        told = await command(stage, "search mailer")
        assert ids(told) == [sent]
        assert f"approved by <@{FOLAKE}>" in words(told)
        assert await search(stage, "“rotate keys”") == [late]
        assert await search(stage, '"only on" jo') == [rotated]
        assert await search(stage, "keys nowhere") == []


BOX = "Search decisions in your channels"
UNKNOWN = "Slack did not say which channels you are in, so nothing is shown. Please try again in a moment."
TYPED = [
    ("100%", ["CLR-1-001"]),
    ("a_b", ["CLR-2-001"]),
    (r"C:\temp", ["CLR-4-001"]),
    ("straße", ["CLR-5-001"]),
    ("STRASSE", ["CLR-5-001"]),
    ("ÄRGER", ["CLR-5-001"]),
    ("it's", ["CLR-6-001"]),
    ("a &amp; b", ["CLR-6-001"]),
    ("<http://example.com|example.com>", ["CLR-7-001"]),
    ("“since”", ["CLR-8-001"]),
    ("agent überprüfer", ["CLR-9-001"]),
    ("agent ÜBER", ["CLR-9-001"]),
    ("agent a_b", []),
    ('agent "release bot"', ["CLR-10-001"]),
    ("by <@U0FOLAKE|folake>", ["CLR-10-001"]),
    ("—by <@U0FOLAKE>", ["CLR-10-001"]),
    ("by folake@local.example", ["CLR-10-001"]),
    ("by <@U0FOLAKE> agent überprüfer", []),
    ("since 2 weeks by <@U0FOLAKE>", ["CLR-10-001"]),
    ("since 30m", []),
    ("since 2h older", []),
    ("since 400d older", ["CLR-11-001"]),
]
WRONG = [
    ("", "What are you looking for?"),
    ("“”", "What are you looking for?"),
    ("x by", "Expected for example “by @ann”"),
    ("x by @ann", "“@ann” is not a mention: pick the name from Slack's list"),
    ("x since yesterday", "“yesterday” is not a time span. Expected for example “since 30d”"),
    ("stopped by mistake", 'put it in quotes: “"by"”'),
    ("x since", "Expected for example “since 30d”"),
    ("x agent", "Expected for example “agent planner”"),
    ("x since 1d since 2d", "“since” is given twice"),
    ("x" * 131, "at most 130 characters"),
]


@pytest.mark.either_database
async def test_search_takes_what_people_type(stage: World, table: Table) -> None:
    async with stage.bot():
        table.put("Use 100% of it? 1000 more")
        table.put("Is it a_b? aXb")
        table.put("Is it aXb?")
        table.put(r"In C:\temp?")
        table.put("Straße, a\u0308rger?")
        table.put("It's this, a & b?")
        table.put("See example.com?")
        table.put("Valid since yesterday?")
        table.put("Done?", agent="Überprüfer")
        table.put("Done?", agent="rel", agent_name="Release Bot", user=FOLAKE)
        table.put("Older?", at=stage.clock.now().timestamp() - 86_400 * 300)
        assert [(text, await search(stage, text)) for text, _ in TYPED] == TYPED


async def test_search_says_what_was_expected(stage: World, table: Table) -> None:
    async with stage.bot():
        table.put("x stopped by mistake")
        for text, said in WRONG:
            told = await command(stage, f"search {text}")
            assert said in words(told)
            assert "For example: “/clarify search" in words(told)
            assert ids(told) == []


@pytest.mark.either_database
async def test_p6_only_what_a_person_may_see_is_found(stage: World, table: Table) -> None:
    outsider(stage)
    async with stage.bot():
        here = table.put("secret here")
        fallback = table.put("secret fallback", channel=FALLBACK)
        public = table.put("secret public", channel=RANDOM)
        own = table.put("secret own", channel=direct(stage, ADE), recipient=ADE)
        table.put("secret of nobody", channel=None)
        table.put("secret elsewhere", channel="C0GONE")
        odd = table.put("secret in direct messages", channel=AGENTS, recipient=ONCALL)
        assert await search(stage, "secret", ADE) == [own, public, fallback, here]
        assert await search(stage, "secret", ONCALL) == [odd, public, fallback, here]
        assert await search(stage, "secret", GIO) == [public, here]
        assert await search(stage, "secret", LIN) == [public]
        told = await command(stage, "search own", FOLAKE)
        assert "Nothing found for “own”" in words(told)
        assert "in the channels that you are in and in your direct messages" in words(told)

        stage.workspace.leave(GIO, AGENTS)
        await found(stage, "secret", GIO, [public])


@pytest.mark.either_database
async def test_p6_pages_count_only_what_a_person_may_see(stage: World, table: Table) -> None:
    async with stage.bot():
        for n in range(20):
            table.put(f"secret {n}", channel=FALLBACK if n < 12 else AGENTS)
        told = await command(stage, "search secret", GIO)
        assert ids(told) == [f"CLR-{n}-001" for n in range(20, 12, -1)]
        assert buttons(told) == []
        assert "Page" not in words(told)

        told = await command(stage, "search secret", ADE)
        assert ids(told) == [f"CLR-{n}-001" for n in range(20, 12, -1)]
        assert buttons(told) == ["Next"]
        for page, last, shown in ((2, 12, ["Previous", "Next"]), (3, 4, ["Previous"])):
            assert (await stage.workspace.press_ephemeral(ADE, told, "Next")).ok
            await becomes(stage, told, f"Page {page}")
            assert ids(told)[0] == f"CLR-{last}-001"
            assert buttons(told) == shown
        assert (await stage.workspace.press_ephemeral(ADE, told, "Previous")).ok
        await becomes(stage, told, "Page 2")


@pytest.mark.parametrize("fault", ["refuse:user_not_visible", "refuse:missing_scope", "5xx:503", "429:30"])
async def test_p6_nothing_is_shown_if_slack_does_not_say_what_a_person_may_see(
    stage: World, table: Table, fault: str
) -> None:
    async with stage.bot():
        table.put("secret")
        stage.workspace.faults.add("users.conversations", fault, times=1000)
        told = await command(stage, "search secret")
        assert words(told) == UNKNOWN


async def test_p8_what_is_found_is_inert(stage: World, table: Table) -> None:
    async with stage.bot():
        table.put(HOSTILE, answer=HOSTILE, agent=HOSTILE, decided_by=HOSTILE)
        told = await command(stage, "search ping")
        assert "Ping" in words(told)
        assert_inert(told)
        assert_inert(await command(stage, f"search {HOSTILE}"))


async def test_search_in_direct_messages_is_answered_there(stage: World, table: Table) -> None:
    async with stage.bot():
        name = table.put("Rotate the keys?")
        channel = direct(stage, ADE)
        await stage.workspace.post(ADE, channel, "search keys")
        assert name in str((await stage.message("Decisions: keys", channel)).blocks)


@pytest.mark.either_database
async def test_what_is_decided_is_found_until_it_is_forgotten(stage: World) -> None:
    async with asking(stage) as http:
        asked, card = await ask(stage, http, approvals=2, action="Send the newsletter", context="For Ann")
        await press(stage, FOLAKE, card, "Accept")
        await stage.now_says(card, "One more person must approve")
        await press(stage, ADE, card, "Accept")
        await look(http, asked, wait=30)
        other, card = await ask(stage, http, action="Delete the newsletter")
        await press(stage, ADE, card, "Reject")
        await look(http, other, wait=30)
        port = (await http.post("/questions", json={"question": "Which port for the newsletter?"})).json()
        card = await stage.card("Which port for the newsletter?")
        await stage.workspace.post(FOLAKE, AGENTS, "8080, not 80", card.ts)
        await look(http, port, wait=30)
        late = (await http.post("/questions", json={"question": "A newsletter at all?"})).json()
        await http.delete(f"/questions/{late['id']}")
        await found(stage, "newsletter", ADE, [each["id"] for each in (late, port, other, asked)])

        told = words(await command(stage, "search newsletter"))
        assert f"approved by <@{FOLAKE}> and <@{ADE}>, <!date^" in told
        assert f"rejected by <@{ADE}>, <!date^" in told
        assert f"answered: “8080, not 80” by <@{FOLAKE}>, <!date^" in told
        assert "withdrawn by the agent, <!date^" in told
        assert f"<{stage.workspace.permalink(AGENTS, card.ts)}|{port['id']}>" in told
        assert await search(stage, f"by <@{FOLAKE}>") == [port["id"], asked["id"]]
        assert await search(stage, "8080") == [port["id"]]
        assert await search(stage, asked["id"]) == [asked["id"]]

        assert (await beside(stage, "forget", asked["id"], "--yes")).code == 0
        assert await search(stage, "newsletter") == [late["id"], port["id"], other["id"]]


@pytest.mark.either_database
async def test_shell_finds_everything_by_the_same_words_beside_the_bot_and_without_it(
    stage: World, table: Table
) -> None:
    async with stage.bot():
        here = table.put("Rotate the keys?", answer="Only\non staging", user=FOLAKE)
        own = table.put(
            "Rotate them?", channel=direct(stage, ADE), recipient=ADE, agent="rel", agent_name="Release"
        )
        none = table.put(
            "Rotate that?", channel=None, outcome="closed", answer=None, decided_by=None, deciders="  "
        )
        for n in range(60):
            table.put(f"Filler {n}", at=stage.clock.now().timestamp() - 86_400 * 60)

        async def found(*words: str) -> list[str]:
            said = await beside(stage, "search", *words, "--json")
            assert said.code == 0, said
            return [each["id"] for each in json.loads(said.out)["decisions"]]

        assert await found("rotate") == [none, own, here]
        assert await found("keys", "ROTATE") == [here]
        assert await found("rotate the") == [own, here]
        assert await found("rotate", "--by", "@U0FOLAKE") == [here]
        assert await found("rotate", "by", f"user:slack/{TEAM}/{FOLAKE}") == [here]
        assert await found("--agent", "release", "--since", "2h") == [own]
        assert await found("rotate", "since", "30m") == []
        assert len(await found("filler", "--limit", "0")) == 60
        assert len(await found("filler", "--since", "2020-01-01")) == 50
        assert await found("rotate", "--until", "59d") == []
        assert len(await found("--until", "59d", "--since", "61d")) == 50
    said = await beside(stage, "search", "rotate")
    assert [line.split("\t")[0] for line in said.out.splitlines()] == [none, own, here]
    assert (
        said.out.splitlines()[2].split("\t")[1]
        == f"answered: “Only on staging” by user:slack/{TEAM}/{FOLAKE}"
    )
    assert "closed without an answer" in said.out
    assert "the newest 50; --limit 0 shows all" in (await beside(stage, "search", "filler")).err
    (first, *_) = json.loads((await beside(stage, "search", "keys", "--json")).out)["decisions"]
    assert first["decidedBy"] == [{"name": f"user:slack/{TEAM}/{FOLAKE}", "user": FOLAKE}]
    assert (first["outcome"], first["question"], first["channel"]) == ("answered", "Rotate the keys?", AGENTS)
    for typed, expected in (
        ((), "What are you looking for?"),
        (("x", "by"), "Expected for example “by @ann”"),
        (("x", "--since", "yesterday"), "expected a date such as 2026-11-01, or a time span such as 30d"),
        (("x", "since", "1d", "--since", "2d"), "“since” is given twice"),
    ):
        said = await beside(stage, "search", *typed)
        assert said.code == 2, said
        assert expected in said.err


@pytest.mark.either_database
@pytest.mark.parametrize("channels", [3, 600, 1200])
async def test_p6_someone_in_many_channels_finds_all_of_theirs_and_no_others(
    stage: World, table: Table, channels: int
) -> None:
    async with stage.bot():
        for n in range(20):
            table.put("secret", channel=f"C{n % 4}")
        own = table.put("secret", channel="D1", recipient=ADE)
        table.put("secret", channel="D1", recipient=FOLAKE)
        url = stage.environ.get("CLARIFY_DATABASE_URL")
        look = partial(find, stage.folder / "clarify.db", url, Search(("secret",)), stage.clock.now(), most=9)
        theirs = frozenset({"C1", "C2", "C3", *(f"CX{n}" for n in range(channels - 3))})
        expected = [own, *(f"CLR-{n + 1}-001" for n in range(19, -1, -1) if n % 4)]
        for skip in (0, 9):
            found = look(sees=Sees(ADE, theirs), skip=skip)
            assert [each.clarification for each in found] == expected[skip : skip + 9]
        assert [each.clarification for each in look(sees=Sees(ADE))] == [own]

        others = [f"CX{n}" for n in range(600)]  # more than a statement takes
        await table.put_many([table.row("secret", channel=name) for name in others])
        found = look(sees=Sees(ADE, theirs), skip=min(channels - 3, 600))
        assert [each.clarification for each in found] == expected[:9]


async def test_home_has_a_box_whose_results_open_in_a_window(stage: World, table: Table) -> None:
    async with stage.bot():
        for n in range(10):
            table.put(f"Rotate key {n}?")
        other = table.put("Rotate them?", channel=FALLBACK)
        outsider(stage)
        stage.workspace.channel(AGENTS).members.append(LIN)
        for user in (ADE, LIN):
            await stage.workspace.open_home(user)
            await stage.until(partial(stage.workspace.home, user))

        async def window(user: str, text: str) -> View:
            assert (await stage.workspace.type_on_home(user, BOX, text)).ok
            view = await stage.modal(user)
            assert view.payload["title"]["text"] == "Decisions"
            return view

        view = await window(ADE, "rotate")
        assert ids(view) == [other, *(f"CLR-{n}-001" for n in range(10, 3, -1))]
        assert buttons(view) == ["Next"]
        assert (await stage.workspace.click_in_view(ADE, label="Next")).ok
        await stage.until(lambda: "Page 2" in words(stage.workspace.views(ADE)[-1]))
        view = await stage.modal(ADE)
        assert len(stage.workspace.views(ADE)) == 1
        assert ids(view) == ["CLR-3-001", "CLR-2-001", "CLR-1-001"]
        assert buttons(view) == ["Previous"]
        await stage.workspace.close_view(ADE)
        assert ids(await window(ADE, "by ade@local.example key 7")) == ["CLR-8-001"]
        await stage.workspace.close_view(ADE)
        assert "“@ade” is not a mention" in words(await window(ADE, "key by @ade"))
        await stage.workspace.close_view(ADE)
        assert "Nothing found for “nowhere”" in words(await window(ADE, "nowhere"))
        await stage.workspace.close_view(ADE)

        table.put("secret here", agent=HOSTILE)
        table.put("secret elsewhere", channel=FALLBACK)
        view = await window(LIN, "secret")
        assert ids(view) == ["CLR-12-001"]
        assert_inert(view)


async def test_p6_home_box_shows_nothing_if_slack_or_the_storage_does_not_answer(
    stage: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage.bot():
        table.put("secret")
        await stage.workspace.open_home(ADE)
        await stage.until(lambda: stage.workspace.home(ADE) is not None)
        stage.workspace.faults.add("users.conversations", "delay:30", times=1)
        assert (await stage.workspace.type_on_home(ADE, BOX, "secret")).ok
        assert words(await stage.modal(ADE)) == UNKNOWN
        await stage.workspace.close_view(ADE)

        def unreadable(*_: Any) -> Any:
            raise StorageUnavailable

        monkeypatch.setattr(opening, "reading", unreadable)
        told = await command(stage, "search secret", FOLAKE)
        assert words(told) == "The decisions can't be read right now. Please try again in a moment."


async def test_home_box_of_another_installation_searches_nothing(stage: World, table: Table) -> None:
    async with stage.bot() as bot:
        table.put("secret")
        await stage.workspace.open_home(ADE)
        await stage.until(lambda: stage.workspace.home(ADE) is not None)
        shown = stage.workspace.home(ADE)
        assert shown is not None
        view = {key: shown.payload[key] for key in ("type", "callback_id", "blocks")}
        await bot.base.web.views_publish(
            user_id=ADE, view=view | {"private_metadata": "2|00000000deadbeef|1|home"}
        )
        assert (await stage.workspace.type_on_home(ADE, BOX, "2|secret")).ok
        assert "secret" not in words(await stage.modal(ADE))


@pytest.mark.either_database
async def test_decisions_of_a_channel_with_a_new_id_are_found(stage: World, table: Table) -> None:
    async with stage.bot():
        name = table.put("Rotate the keys?")
        stage.workspace.add_channel(Channel("C0NEW", "new", [ADE]))
        stage.workspace.emit(
            {"type": "channel_id_changed", "old_channel_id": AGENTS, "new_channel_id": "C0NEW"}
        )
        await stage.heard("channel_id_changed")
        assert await search(stage, "keys", ADE) == [name]
        assert await search(stage, "keys", FOLAKE) == []


async def test_a_slow_search_keeps_nobody_waiting(
    stage: World, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in a thread, on a connection of its own: clicks and other reads go on meanwhile."""
    reading, let, begun = opening.reading, threading.Event(), threading.Event()

    @contextmanager
    def slowly(*place: Any) -> Iterator[Any]:
        with reading(*place) as tx:
            begun.set()
            assert let.wait(30)
            yield tx

    monkeypatch.setattr(opening, "reading", slowly)
    async with stage.bot() as bot:
        name = table.put("Rotate the keys?")
        card = await stage.ask(question="Shall I go on?")
        searching = asyncio.create_task(search(stage, "keys", FOLAKE))
        await stage.until(begun.is_set)
        assert await bot.base.store.read("select seq from decision_texts") != []
        assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
        assert (await stage.reply())["response"] is True
        assert not searching.done()
        let.set()
        assert await searching == [name]
