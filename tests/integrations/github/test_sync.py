"""GitHub's issues beside a small GitHub: real storage, real ledgers, a clock that moves by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import timedelta
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from bot.feed import Feed
from bot.integrations.github import integration
from bot.integrations.github.github import ACTIVE, SETTLED_AFTER, STALE, GithubSync
from bot.integrations.github.settings import GithubSettings
from bot.storage.changes import Position, RecordChange
from bot.storage.ledger import DatabaseLedger
from bot.storage.tx import Tx
from core.clarification import Clarification
from core.records import Subject, dump, forgotten, parse
from core.transitions import abandoned, escalated, resolved
from tests.kit.clocks import START, ManualClock
from tests.kit.fake_github import PREFIX, TOKEN, Fault, Github, serving
from tests.kit.following import Following
from tests.kit.hosts import a_host
from tests.kit.until import until


class World(Following[GithubSync]):
    def __init__(self, github: Github, clock: ManualClock, ledger: DatabaseLedger) -> None:
        super().__init__(clock, ledger)
        self.github = github
        self.mention: str | None = "@acme/on-call"

    def made(self, repo: str) -> GithubSync:
        settings = GithubSettings(
            repo=repo,
            token_env="GITHUB_TOKEN",
            api_url=self.github.address + PREFIX,
            mention=self.mention,
        )
        return GithubSync(
            settings, a_host("github", self.ledger, self.clock, secrets={"GITHUB_TOKEN": TOKEN})
        )

    async def start(self, repo: str = "acme/app", keep: timedelta | None = None) -> None:
        await self.live(self.made(repo), keep)

    async def restart(self, repo: str = "acme/app") -> None:
        await self.kill()
        await self.start(repo)

    async def unconfigured(self) -> None:
        """As when the bot starts without GitHub."""
        await Feed(
            consumers=(),
            ledger=self.ledger,
            store=self.store,
            clock=self.clock,
            sign=self.sign,
            keep=None,
        ).begin()

    async def forget(self) -> None:
        """What was posted is no longer known, as after an old backup was restored."""
        for table in ("consumers", "github_repositories", "github_issues", "github_comments", "github_owed"):
            await self.store.run(f"delete from {table}")  # noqa: S608 - a constant

    async def close(self, record: Clarification) -> Clarification:
        return await self.put(abandoned(record, "by hand", self.clock.now()))

    async def escalate(self, record: Clarification, words: str = "Nobody answered.") -> Clarification:
        return await self.put(escalated(record, "stale", words, self.clock.now()))

    async def shows(self, count: int, issue: int = 42) -> list[str]:
        """The issue's comments, once nothing is left to do."""
        await self.quiet()
        bodies = self.github.bodies(issue)
        assert len(bodies) == count
        return bodies

    async def quiet(self) -> None:
        """Nothing is left to do."""
        await until(lambda: self.feed.idle and not self.follower.outbox)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(auto=True)


@pytest.fixture
async def github(clock: ManualClock) -> AsyncIterator[Github]:
    async with serving(lambda: clock.now().timestamp()) as served:
        yield served


@pytest.fixture
async def world(ledger: DatabaseLedger, github: Github, clock: ManualClock) -> AsyncIterator[World]:
    made = World(github, clock, ledger)
    yield made
    await made.kill()


async def test_posts_each_entry_once_in_order(world: World) -> None:
    await world.start()
    record = await world.ask()
    await world.shows(1)
    await world.answer(record)
    first, second = await world.shows(2)

    assert "**Question** from `engineer` to `architect`" in first
    assert "Which database?" in first
    assert "**Answer** by `user:slack/T1/U1`" in second
    assert "Postgres" in second


async def test_sets_and_removes_labels(world: World) -> None:
    await world.start()
    record = await world.ask()
    await world.shows(1)
    assert world.github.labels[42] == {ACTIVE}
    record = await world.escalate(record)
    await world.shows(2)
    assert world.github.labels[42] == {ACTIVE, STALE}
    assert world.github.known_labels[ACTIVE]["color"] == "1d76db"
    assert world.github.known_labels[STALE]["description"]
    await world.answer(record)
    await world.shows(3)

    assert world.github.labels[42] == set()


async def test_creates_labels_once_and_leaves_others_of_the_issue(world: World) -> None:
    world.github.known_labels[ACTIVE] = {"name": ACTIVE, "color": "000000"}
    world.github.labels[42] = {"bug"}
    await world.start()
    record = await world.ask()
    await world.ask(43)
    await world.shows(1)
    await world.answer(record)
    await world.shows(2)

    assert world.github.labels[42] == {"bug"}
    assert world.github.known_labels[ACTIVE]["color"] == "000000"
    assert [call.body["name"] for call in world.github.of("POST", "app/labels")] == [ACTIVE]


async def test_where_labels_cannot_be_created_sets_them_all_the_same(world: World) -> None:
    world.github.faults["POST labels"].append(Fault(403))
    await world.start()
    await world.ask()
    await world.shows(1)

    assert world.github.labels[42] == {ACTIVE}


async def test_leaves_reserved_numbers_alone(world: World) -> None:
    issue = 100_001
    await world.start()
    await world.ask(issue)
    await world.quiet()
    await world.kill()
    await world.start()
    await world.quiet()

    assert not [call for call in world.github.calls if str(issue) in call.path]


async def test_writes_at_most_once_a_second(world: World) -> None:
    await world.start()
    for number in range(6):
        await world.ask(question=f"Question {number}?")
    await world.shows(6)

    times = [call.at for call in world.github.calls if call.is_write]
    assert len(times) >= 7
    assert all(later - earlier >= 0.999 for earlier, later in pairwise(times))


async def test_after_a_restart_posts_nothing_twice_and_lists_nothing_needlessly(world: World) -> None:
    await world.start()
    await world.ask()
    await world.shows(1)
    await world.kill()
    before = len(world.github.of("GET", "42/comments"))
    await world.start()
    await world.shows(1)

    assert len(world.github.of("GET", "42/comments")) == before == 1


async def test_tells_what_was_open_when_it_began_but_not_what_was_over(world: World) -> None:
    old = await world.answer(await world.ask())
    await world.put(resolved(old, world.clock.now()))
    await world.escalate(await world.ask(question="The open one?"))
    await world.clock.advance(3600)
    await world.start()
    await world.shows(2)
    await world.ask(question="The new one?")
    first, _, third = await world.shows(3)

    assert "The open one?" in first
    assert "The new one?" in third


async def test_repository_that_is_configured_again_gets_what_it_missed(world: World) -> None:
    await world.start("acme/misspelled")
    await world.close(await world.ask(question="Over?"))
    first, second = await world.ask(), await world.ask(43)
    await world.quiet()
    await world.clock.advance(3600)
    await world.restart()
    assert all("Over?" not in body for body in await world.shows(1))
    await world.shows(1, issue=43)
    await world.restart("acme/misspelled")
    await world.answer(first)
    await world.close(await world.ask(44))
    await world.quiet()
    assert world.github.labels == {42: {ACTIVE}, 43: {ACTIVE}}
    await world.restart()
    await world.shows(2)
    await world.shows(2, issue=44)

    assert world.github.labels[42] == set()
    await world.answer(second)
    await world.shows(2, issue=43)


async def test_that_lagged_too_far_removes_labels_of_what_is_over(world: World) -> None:
    keep = timedelta(days=30)
    await world.start(keep=keep)
    record = await world.ask()
    await world.shows(1)
    await world.kill()
    await world.close(record)
    await world.ask(43)
    await world.ask(100_001)
    world.clock.jump(world.clock.now() + timedelta(days=31))
    await world.start(keep=keep)
    await world.shows(2)

    assert world.github.labels == {42: set(), 43: {ACTIVE}}
    assert not [call for call in world.github.calls if "100001" in call.path]


async def test_change_that_comes_during_the_last_step_is_not_lost(world: World) -> None:
    world.github.faults["POST labels"] += [Fault(200), Fault(200, done=True, late=True)]
    await world.start()
    record = await world.ask()
    await until(lambda: world.github.labels[42])
    await world.answer(record)
    await until(lambda: world.feed.idle)
    world.github.stall.set()
    await world.shows(2)

    assert world.github.labels[42] == set()


@pytest.mark.parametrize(
    ("what", "shows"),
    [
        ("requested/1", True),
        ("answered/2 resolved/2", True),
        ("stale/1", True),
        ("escalated/1", True),
        ("abandoned/1", True),
        ("receipt/1", False),
        ("forgotten", False),
        ("", False),
    ],
)
def test_only_what_may_show_is_looked_at(world: World, what: str, shows: bool) -> None:
    made = world.made("acme/app")
    for name, is_there in (("CLR-42-001", True), ("CLR-100001-001", False)):
        assert made.wants(RecordChange(Position(0, 1), name, 1, what, START)) == (shows and is_there)


async def test_of_what_is_forgotten_says_no_more(world: World) -> None:
    await world.start()
    record = await world.answer(await world.ask())
    before = await world.shows(2)
    gone = parse(forgotten(dump(record)))
    assert gone is not None
    await world.put(gone)
    await world.ask(question="And which cache?")
    *left, _ = await world.shows(3)

    assert left == before


async def test_logs_no_words_and_no_token(world: World) -> None:
    said = "unutterable"
    echo = Fault(422, body=f'{{"message": "{said} {TOKEN}"}}')
    with capture_logs() as logs:
        await world.start()
        world.github.faults["POST comments"] += [Fault(500, body=said), Fault(0), echo]
        record = await world.escalate(await world.ask(question=said, topic=said), said)
        await world.quiet()
        assert not world.github.faults["POST comments"]
        await world.answer(record, said)
        await world.shows(3)

    assert logs
    assert said not in str(logs)
    assert TOKEN not in str(logs)


async def test_takes_foreign_records(world: World) -> None:
    entry: Mapping[str, object] = {
        "round": 1,
        "from": "reviewer",
        "type": "question",
        "body": "Ok?",
        "timestamp": "2026-11-21T09:00:00Z",
    }
    foreign = Clarification.model_validate(
        {
            "id": "CLR-42-007",
            "issueNumber": 42,
            "from": "reviewer",
            "to": "engineer",
            "status": "pending",
            "created": "2026-11-21T09:00:00Z",
            "thread": [entry, entry],
        }
    )
    await world.start()
    await world.put(foreign)
    first, second = await world.shows(2)

    assert first.splitlines()[0] != second.splitlines()[0]


# labels that were being changed when something went wrong


async def test_killed_while_it_sets_labels_knows_of_them(world: World) -> None:
    await world.start()
    first = await world.ask()
    await world.shows(1)
    await world.answer(first)
    await world.shows(2)
    world.github.faults["POST labels"].append(Fault(-1, done=True))
    record = await world.ask(question="Another?")
    await until(lambda: world.github.labels[42])
    await world.kill()
    await world.answer(record)
    await world.start()
    await world.shows(4)

    assert world.github.labels[42] == set()


async def test_removes_labels_of_records_that_are_gone_with_the_next_change(world: World) -> None:
    await world.start()
    await world.escalate(await world.ask())
    await world.shows(2)
    await world.store.run("delete from clarifications where issue = 42")
    record = await world.ask(question="Another?")
    await world.shows(3)
    assert world.github.labels[42] == {ACTIVE}
    await world.answer(record)
    await world.shows(4)

    assert world.github.labels[42] == set()


# lost answers, limits, refusals, kills: nothing twice, nothing lost, nobody held up


LOST = Fault(0, done=True)


@pytest.mark.parametrize(
    "fault",
    [LOST, Fault(502, done=True), Fault(201, done=True, body="<html>")],
    ids=["lost", "502", "no JSON"],
)
async def test_whose_post_arrived_unseen_finds_it(world: World, fault: Fault) -> None:
    world.github.faults["POST comments"].append(fault)
    await world.start()
    await world.ask()
    await until(lambda: world.github.labels[42])
    await world.shows(1)

    assert world.github.count("POST", "42/comments") == 1
    assert world.github.count("GET", "42/comments") == 2
    post, (_, look) = world.github.of("POST", "42/comments")[0], world.github.of("GET", "42/comments")
    assert look.at - post.at >= SETTLED_AFTER - 0.001


@pytest.mark.parametrize("fault", [Fault(0), Fault(500), Fault(503), Fault(408)], ids=str)
async def test_whose_post_did_not_arrive_looks_and_posts_again(world: World, fault: Fault) -> None:
    world.github.faults["POST comments"].append(fault)
    await world.start()
    await world.ask()
    await until(lambda: world.github.labels[42])
    await world.shows(1)

    assert world.github.count("GET", "42/comments") == 2


async def test_waits_no_longer_for_an_answer_than_it_takes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.integrations.github.github.ANSWER_TIMEOUT", 0.2)
    world.github.faults["POST comments"].append(Fault(-1, done=True))
    await world.start()
    await world.ask()
    await until(lambda: world.github.labels[42])

    assert len(await world.shows(1)) == 1


async def test_finds_its_comment_on_any_page(world: World) -> None:
    world.github.page = 3
    world.github.faults["POST comments"].append(LOST)
    for number in range(7):
        world.github.write(42, f"Comment {number}")
    await world.start()
    await world.ask()
    await until(lambda: world.github.labels[42])
    await world.shows(8)

    assert world.github.count("GET", "42/comments") == 3 + 3


async def test_goes_to_no_other_host_for_a_page(world: World) -> None:
    await world.start()
    await world.ask(43)
    await world.shows(1, issue=43)
    async with serving(lambda: 0.0) as other:
        page = other.address + PREFIX + "/repos/acme/app/issues/42/comments?page=2"
        world.github.always["Link"] = f'<{page}>; rel="next"'
        await world.ask()
        await until(lambda: world.github.count("GET", "42/comments") >= 2)

        assert other.calls == []
    assert world.github.count("POST", "42/comments") == 0


async def test_without_its_storage_posts_nothing_twice(world: World) -> None:
    await world.start()
    record = await world.escalate(await world.ask())
    await world.shows(2)
    await world.kill()
    await world.forget()
    await world.start()
    await world.answer(record)
    await world.shows(3)

    assert world.github.labels[42] == set()


async def test_believes_no_marker_in_an_agents_words(world: World) -> None:
    await world.start()
    await world.ask(question="Which?")
    (body,) = await world.shows(1)
    marker = body.splitlines()[0]
    await world.kill()
    await world.forget()
    world.github.comments[42].clear()
    world.github.write(42, f"```text\n{marker}\n```", world.github.user["id"])
    await world.start()

    assert (await world.shows(2))[1] == body


@pytest.mark.parametrize("seed", range(2))
async def test_killed_at_any_moment_posts_each_entry_once(world: World, seed: int) -> None:
    await world.escalate(await world.ask())
    await world.ask(question="Another?")
    for turns in _turns(seed):
        await world.start()
        for _ in range(turns):
            await asyncio.sleep(0.0005)
        await world.kill()
        if seed % 2:
            await world.forget()
            await world.clock.advance(SETTLED_AFTER)  # what was begun is there, or will not be
    await world.start()
    bodies = await world.shows(3)

    assert len({body.splitlines()[0] for body in bodies}) == 3
    assert world.github.labels[42] == {ACTIVE, STALE}


def _turns(seed: int) -> Iterator[int]:
    yield from ((seed * 7 + step * 5) % 40 + 1 for step in range(6))


async def test_killed_while_it_posts_looks_before_it_posts_again(world: World) -> None:
    world.github.faults["POST comments"].append(Fault(-1, done=True))
    await world.start()
    await world.ask()
    await until(lambda: world.github.comments[42])
    await world.kill()
    posted = world.clock.now().timestamp()
    await world.start()
    await until(lambda: world.github.labels[42])
    await world.shows(1)

    assert world.github.of("GET", "42/comments")[-1].at - posted >= SETTLED_AFTER - 1


_EPOCH = 1_795_251_600 + 600  # ten minutes after the clock's start


@pytest.mark.parametrize(
    ("fault", "least"),
    [
        (Fault(429, headers={"Retry-After": "120"}), 120),
        (Fault(403, headers={"Retry-After": "90"}), 90),
        (Fault(403, headers={"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(_EPOCH)}), 590),
        (Fault(403, body='{"message": "You have exceeded a secondary rate limit."}'), 60),
        (Fault(429), 60),
    ],
    ids=["429", "403 Retry-After", "403 reset", "secondary", "429 bare"],
)
async def test_waits_as_long_as_a_limit_says(world: World, fault: Fault, least: float) -> None:
    world.github.faults["POST comments"].append(fault)
    await world.start()
    await world.ask()
    await until(lambda: world.github.count("POST", "42/comments") == 2)
    await world.shows(1)

    limited = world.github.of("POST", "42/comments")[0]
    after = next(call for call in world.github.calls if call.at > limited.at)
    assert least <= after.at - limited.at <= least + 30
    assert world.github.count("GET", "42/comments") == 1  # a limit leaves no doubt


async def test_asks_nothing_once_its_allowance_is_spent(world: World) -> None:
    await world.start()
    world.github.always |= {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(_EPOCH)}
    await world.ask()
    await until(lambda: world.github.calls)
    world.github.always.clear()
    await world.shows(1)

    assert world.github.calls[1].at >= _EPOCH


async def test_waits_longer_after_each_bare_limit(world: World) -> None:
    world.github.faults["POST comments"] += [Fault(429)] * 3
    await world.start()
    await world.ask()
    await world.shows(1)

    times = [call.at for call in world.github.of("POST", "42/comments")]
    first, second, third = (later - earlier for earlier, later in pairwise(times))
    assert first >= 60
    assert second >= 120
    assert third >= 240


@pytest.mark.parametrize("status", [410, 301])
async def test_leaves_a_refused_issue_alone_until_it_changes(world: World, status: int) -> None:
    with capture_logs() as logs:
        world.github.faults["POST comments"].append(Fault(status))
        await world.start()
        await world.quiet()
        record = await world.ask()
        await until(lambda: world.github.count("POST", "42/comments") == 1)
        await world.quiet()
        world.feed.record_changed(record)
        await world.quiet()
        assert world.github.count("POST", "42/comments") == 1
        await world.restart()
        await world.quiet()
        assert world.github.count("POST", "42/comments") == 1
        await world.answer(record)
        await world.shows(2)

    told = [
        each for each in logs if 42 in (each.get("issue"), each.get("about")) and each["log_level"] == "error"
    ]
    assert len(told) == 1
    assert f"HTTP {status}" in told[0]["reason"]


@pytest.mark.parametrize("status", [403, 404])
async def test_what_the_token_may_not_do_is_tried_again_with_the_next_start(
    world: World, status: int
) -> None:
    world.github.faults["POST comments"].append(Fault(status))
    await world.start()
    await world.quiet()  # otherwise the start finds the question as an open one, and its change comes too
    await world.ask()
    await until(lambda: world.github.count("POST", "42/comments") == 1)
    await world.shows(0)
    await world.restart()
    await world.shows(1)


async def test_of_an_issue_that_is_not_there_says_so_once(world: World) -> None:
    world.github.missing.add(42)
    with capture_logs() as logs:
        await world.start()
        await world.escalate(await world.ask())
        await world.quiet()
        await world.ask(question="Another?")
        await world.quiet()

    assert len([each for each in logs if 42 in (each.get("issue"), each.get("about"))]) == 1


async def test_whose_token_is_refused_asks_seldom_and_goes_on_when_it_is_taken(world: World) -> None:
    """It is not asked for each of many issues, of which GitHub would say the same."""
    world.github.faults["GET comments"] += [Fault(401)] * 5
    for number in range(43, 63):
        await world.ask(number)
    started = world.clock.now()
    await world.start()
    await until(lambda: world.github.count("GET", "comments") >= 6)
    assert (world.clock.now() - started).total_seconds() > 10
    await world.quiet()
    assert all(len(world.github.bodies(number)) == 1 for number in range(43, 63))


async def test_tells_where_comments_remain_of_what_is_forgotten(world: World) -> None:
    await world.start()
    await world.ask()
    await world.shows(1)
    said = integration.keeps
    assert said is not None

    def keeps(tx: Tx) -> list[list[str]]:
        return [list(said(tx, Subject(frozenset({name})))) for name in ("CLR-42-001", "CLR-42-0011")]

    assert await world.store.write(keeps) == [["acme/app#42"], []]
