"""Lost answers, limits, refusals, kills: nothing twice, nothing lost, nobody held up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from bot.github import visits
from bot.github.plan import ACTIVE, STALE
from bot.github.visits import SETTLED_AFTER
from tests.clocks import until
from tests.unit.bot.github.fake import PREFIX, Fault, Github, serving
from tests.unit.bot.github.world import World

LOST = Fault(0, done=True)


@pytest.mark.parametrize(
    "fault",
    [LOST, Fault(502, done=True), Fault(201, done=True, body="<html>")],
    ids=["lost", "502", "no JSON"],
)
async def test_mirror_whose_post_arrived_unseen_finds_it(world: World, fault: Fault) -> None:
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
async def test_mirror_whose_post_did_not_arrive_looks_and_posts_again(world: World, fault: Fault) -> None:
    world.github.faults["POST comments"].append(fault)
    await world.start()
    await world.ask()
    await until(lambda: world.github.labels[42])
    await world.shows(1)

    assert world.github.count("GET", "42/comments") == 2


async def test_mirror_waits_no_longer_for_an_answer_than_it_takes(world: World) -> None:
    world.timeout = 0.2
    world.github.faults["POST comments"].append(Fault(-1, done=True))
    await world.start()
    await world.ask()
    await until(lambda: world.github.labels[42])

    assert len(await world.shows(1)) == 1


async def test_mirror_finds_its_comment_on_any_page(world: World) -> None:
    world.github.page = 3
    world.github.faults["POST comments"].append(LOST)
    for number in range(7):
        world.github.write(42, f"Comment {number}")
    await world.start()
    await world.ask()
    await until(lambda: world.github.labels[42])
    await world.shows(8)

    assert world.github.count("GET", "42/comments") == 3 + 3


async def test_mirror_goes_to_no_other_host_for_a_page(world: World) -> None:
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


@pytest.mark.parametrize("app", [False, True], ids=["person's token", "app's token"])
async def test_mirror_without_its_storage_posts_nothing_twice(world: World, app: bool) -> None:
    world.github.app = app
    world.github.user["type"] = "Bot" if app else "User"
    await world.start()
    record = await world.escalate(await world.ask())
    await world.shows(2)
    await world.kill()
    await world.forget()
    await world.start()
    await world.answer(record)
    await world.shows(3)

    assert world.github.labels[42] == set()


async def test_mirror_believes_no_marker_of_somebody_else(world: World) -> None:
    await world.start()
    await world.ask()
    (body,) = await world.shows(1)
    await world.kill()
    await world.forget()
    world.github.comments[42].clear()
    world.github.write(42, body)
    await world.start()

    assert await world.shows(2) == [body, body]


async def test_mirror_believes_no_marker_in_an_agents_words(world: World) -> None:
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


@pytest.mark.parametrize("seed", range(4))
async def test_mirror_killed_at_any_moment_posts_each_entry_once(world: World, seed: int) -> None:
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


async def test_mirror_killed_while_it_posts_looks_before_it_posts_again(world: World) -> None:
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
async def test_mirror_waits_as_long_as_a_limit_says(world: World, fault: Fault, least: float) -> None:
    world.github.faults["POST comments"].append(fault)
    await world.start()
    await world.ask()
    await until(lambda: world.github.count("POST", "42/comments") == 2)
    await world.shows(1)

    limited = world.github.of("POST", "42/comments")[0]
    after = next(call for call in world.github.calls if call.at > limited.at)
    assert least <= after.at - limited.at <= least + 30
    assert world.github.count("GET", "42/comments") == 1  # a limit leaves no doubt


async def test_mirror_asks_nothing_once_its_allowance_is_spent(world: World) -> None:
    await world.start()
    world.github.always |= {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(_EPOCH)}
    await world.ask()
    await until(lambda: world.github.calls)
    world.github.always.clear()
    await world.shows(1)

    assert world.github.calls[1].at >= _EPOCH


async def test_mirror_waits_longer_after_each_bare_limit(world: World) -> None:
    world.github.faults["POST comments"] += [Fault(429)] * 3
    await world.start()
    await world.ask()
    await world.shows(1)

    times = [call.at for call in world.github.of("POST", "42/comments")]
    first, second, third = (later - earlier for earlier, later in pairwise(times))
    assert first >= 60
    assert second >= 120
    assert third >= 240


async def test_mirror_backs_off_from_an_issue_in_trouble_and_serves_the_others(world: World) -> None:
    world.github.faults["GET comments"] += [Fault(500)] * 4
    await world.start()
    await world.ask()
    await until(lambda: world.github.count("GET", "42/comments") >= 1)
    await world.ask(43)
    await until(lambda: world.github.bodies(42) and world.github.bodies(43))

    times = [call.at for call in world.github.of("GET", "42/comments")]
    assert times[-1] - times[0] >= 1.0


@pytest.mark.parametrize("status", [403, 404, 410, 422, 301])
async def test_mirror_leaves_a_refused_issue_alone_until_it_changes(world: World, status: int) -> None:
    with capture_logs() as logs:
        world.github.faults["POST comments"].append(Fault(status))
        await world.start()
        record = await world.ask()
        await until(lambda: world.github.count("POST", "42/comments") == 1)
        await world.quiet()
        world.mirror._add(42)
        await world.quiet()
        assert world.github.count("POST", "42/comments") == 1
        await world.answer(record)
        await world.shows(2)

    told = [each for each in logs if each.get("issue") == 42 and each["log_level"] == "error"]
    assert len(told) == 1
    assert f"HTTP {status}" in told[0]["reason"]


async def test_mirror_of_an_issue_that_is_not_there_says_so_once(world: World) -> None:
    world.github.missing.add(42)
    with capture_logs() as logs:
        await world.start()
        await world.escalate(await world.ask())
        await world.quiet()
        await world.ask(question="Another?")
        await world.quiet()

    assert len([each for each in logs if each.get("issue") == 42]) == 1


async def test_mirror_with_a_bad_token_asks_seldom(world: World) -> None:
    """As seldom for many issues as for one: GitHub would say the same of each."""
    for number in range(42, 62):
        await world.ask(number)
    await world.start(token="wrong")
    await until(lambda: len(world.github.calls) >= 8)
    waits = [after.at - before.at for before, after in pairwise(world.github.calls)]
    assert min(waits) >= 1.0
    assert max(waits) > 30.0
    assert world.github.comments == {}


async def test_mirror_where_nothing_listens_waits_and_goes_on(world: World, github: Github) -> None:
    address, github.address = github.address, "http://127.0.0.1:9"
    with capture_logs() as logs:
        await world.start()
        await world.ask()
        await until(lambda: sum("connect" in str(each.get("reason")) for each in logs) >= 3)
    await world.kill()
    github.address = address
    await world.start()
    await world.shows(1)

    assert world.clock.now().timestamp() > _EPOCH - 600


async def test_mirror_looks_through_a_ledger_beside_the_event_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger may have thousands of records: clicks do not wait until they are compared."""
    where: set[str] = set()

    def noted(name: str) -> None:
        work = getattr(visits, name)

        def done(*arguments: object) -> object:
            where.add(f"{name} {'on' if threading.current_thread() is threading.main_thread() else 'off'}")
            return work(*arguments)

        monkeypatch.setattr(visits, name, done)

    noted("parse")
    noted("planned")
    noted("_state")
    await world.start()
    await world.ask()
    await world.shows(1)
    assert where == {"parse off", "planned off", "_state off"}


async def test_mirror_whose_token_is_refused_asks_seldom_and_goes_on_when_it_is_taken(world: World) -> None:
    """It is not asked for each of many issues, of which GitHub would say the same."""
    world.github.faults["GET user"] += [Fault(401)] * 5
    for number in range(43, 63):
        await world.ask(number)
    started = world.clock.now()
    await world.start()
    await until(lambda: world.github.count("GET", "user") == 6)
    assert (world.clock.now() - started).total_seconds() > 10
    await world.quiet()
    assert all(len(world.github.bodies(number)) == 1 for number in range(43, 63))
