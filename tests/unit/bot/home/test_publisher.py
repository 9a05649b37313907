from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest

from bot.errors import StorageUnavailable
from bot.home.codec import HomePress
from bot.home.facts import DutyLine
from bot.people import Person
from bot.ports import Place
from bot.slackapi import Later, Never, Unknown
from tests.clocks import START
from tests.unit.bot.home.parties import ADE, BEA, World, summary

VIEWERS = [f"U{n:02d}VIEWER" for n in range(20)]


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


async def test_publisher_shows_a_tab_that_is_opened(world: World) -> None:
    world.open.append(summary(topic="Deploy?"))
    await world.home.opened(ADE)
    await world.clock.advance(0.01)

    assert world.slack.users() == [ADE]
    assert "Deploy?" in world.slack.last(ADE)


async def test_publisher_in_a_storm_publishes_at_most_once_per_person_and_second_and_the_last_state(
    world: World,
) -> None:
    for user in VIEWERS:
        await world.home.opened(user)
    for _ in range(600):  # a minute
        world.change()
        await world.clock.advance(0.1)
    storm = len(world.slack.published)
    await world.clock.advance(30)

    for user in VIEWERS:
        assert all(gap >= 1.0 for gap in gaps(world.slack.times(user)))
        assert "My inbox (600)" in world.slack.last(user)
    assert all(gap >= 1 / 1.5 - 1e-6 for gap in gaps(world.slack.times()))
    assert 85 <= storm <= 91  # the pace is used, and kept
    assert world.snapshots <= 125  # twice a second, for all


async def test_publisher_in_a_storm_gives_everybody_their_share(world: World) -> None:
    for user in VIEWERS:
        await world.home.opened(user)
    for _ in range(600):
        world.change()
        if world.clock.now().second % 2:
            await world.home.press(HomePress("page", "inbox", 1), Person("", VIEWERS[0]))
        await world.clock.advance(0.1)

    counts = {user: len(world.slack.times(user)) for user in VIEWERS}
    assert min(counts.values()) >= 2
    assert counts[VIEWERS[0]] > max(count for user, count in counts.items() if user != VIEWERS[0])


async def test_publisher_shares_a_snapshot_where_much_changes_and_nothing_of_it_shows(world: World) -> None:
    for user in VIEWERS:
        await world.home.opened(user)
    await world.clock.advance(30)
    before = world.snapshots
    for _ in range(200):
        world.home.touch()
        await world.clock.advance(0.1)

    assert 20 <= world.snapshots - before <= 42
    assert len(world.slack.published) == len(VIEWERS)


async def test_publisher_takes_snapshots_seldom_where_they_take_long(world: World) -> None:
    world.gathering_takes = 1.0
    await world.home.opened(ADE)
    for _ in range(600):
        world.change()
        await world.clock.advance(0.1)
    assert 4 <= world.snapshots <= 7
    await world.clock.advance(15)

    assert "My inbox (600)" in world.slack.last(ADE)


async def test_publisher_looked_with_older_facts_follows_with_the_newest(world: World) -> None:
    await world.home.opened(ADE)
    await world.home.opened(BEA)
    await world.clock.advance(5)
    world.home.touch()
    await world.clock.advance(0.26)  # one of them was looked at, with a snapshot that the other gets as well
    world.change()
    await world.clock.advance(10)

    assert "My inbox (1)" in world.slack.last(ADE)
    assert "My inbox (1)" in world.slack.last(BEA)


async def test_publisher_alone_follows_a_storm_once_a_second(world: World) -> None:
    await world.home.opened(ADE)
    for _ in range(100):
        world.change()
        await world.clock.advance(0.1)

    assert 9 <= len(world.slack.published) <= 11


async def test_publisher_puts_changes_that_come_together_into_one_publish(world: World) -> None:
    await world.home.opened(ADE)
    await world.clock.advance(5)
    for _ in range(3):
        world.change()
        await world.clock.advance(0.05)
    await world.clock.advance(5)

    assert len(world.slack.published) == 2
    assert "My inbox (3)" in world.slack.last(ADE)


async def test_publisher_skips_what_did_not_change(world: World) -> None:
    world.open.append(summary())
    await world.home.opened(ADE)
    await world.clock.advance(5)
    for _ in range(20):
        world.home.touch()
        await world.clock.advance(1)
    await world.home.opened(ADE)
    await world.clock.advance(5)

    assert len(world.slack.published) == 1


async def test_publisher_publishes_again_where_slack_has_nothing_to_show(world: World) -> None:
    await world.home.opened(ADE)
    await world.clock.advance(5)
    await world.home.opened(ADE, shown=False)
    await world.clock.advance(5)

    assert len(world.slack.published) == 2


async def test_publisher_changed_and_changed_back_during_a_publish_shows_the_last_state(world: World) -> None:
    await world.home.opened(ADE)
    await world.clock.advance(5)
    world.slack.slow[ADE] = 3.0
    world.change()
    await world.clock.advance(1)  # on its way
    world.open.clear()
    world.home.touch()
    await world.clock.advance(20)

    assert "Nothing waits for you." in world.slack.last(ADE)
    assert len(world.slack.published) == 3


async def test_publisher_at_rest_does_nothing(world: World) -> None:
    await world.home.opened(ADE)
    await world.clock.advance(1)
    slept = len(world.clock.slept)
    await world.clock.advance(250)

    assert len(world.clock.slept) - slept < 5
    assert world.snapshots == 1


async def test_publisher_without_viewers_never_wakes(world: World) -> None:
    world.change()
    await world.clock.advance(3600)

    assert world.clock.slept == []
    assert world.snapshots == 0


async def test_publisher_looks_again_by_itself_now_and_then(world: World) -> None:
    await world.home.opened(ADE)
    await world.clock.advance(1)
    world.open.append(summary())  # nobody said so
    await world.clock.advance(301)

    assert "My inbox (1)" in world.slack.last(ADE)


async def test_publisher_follows_a_change_of_shift(world: World) -> None:
    world.duties = [DutyLine("platform", (ADE,), "", START + timedelta(seconds=60))]
    await world.home.opened(ADE)
    await world.clock.advance(30)
    world.duties = [DutyLine("platform", (BEA,), "", START + timedelta(days=1))]
    await world.clock.advance(32)

    assert f"<@{BEA}>" in world.slack.last(ADE)


async def test_publisher_turns_a_page_and_remembers_it(world: World) -> None:
    world.open.extend(summary(seq) for seq in range(1, 26))
    await world.home.opened(ADE)
    await world.clock.advance(2)
    await world.home.press(HomePress("page", "inbox", 3), Person("", ADE))
    await world.clock.advance(0.1)

    said = world.slack.last(ADE)
    assert "page 3 of 3" in said
    assert "Topic 25" in said
    assert "Topic 20" not in said
    assert (await world.viewers.all())[0].pages == {"inbox": 3}


async def test_publisher_press_of_somebody_forgotten_shows_it_all_the_same(world: World) -> None:
    world.open.extend(summary(seq) for seq in range(1, 26))
    await world.home.press(HomePress("page", "inbox", 2), Person("T1", ADE))
    await world.clock.advance(1)

    assert "page 2 of 3" in world.slack.last(ADE)


async def test_publisher_begins_with_the_first_page_on_another_visit(world: World) -> None:
    world.open.extend(summary(seq) for seq in range(1, 26))
    await world.home.opened(ADE)
    await world.home.press(HomePress("page", "inbox", 3), Person("", ADE))
    await world.clock.advance(2 * 3600)
    await world.home.opened(ADE)
    await world.clock.advance(5)

    assert "page 1 of 3" in world.slack.last(ADE)


@pytest.mark.parametrize(
    "refusal",
    [Never("user_not_found", "place"), Never("user_disabled", "place"), Never("not_enabled", "content")],
    ids=lambda refusal: refusal.code,
)
async def test_publisher_drops_a_viewer_that_slack_refuses(world: World, refusal: Never) -> None:
    world.slack.answers[ADE].append(refusal)
    await world.home.opened(ADE)
    await world.home.opened(BEA)
    await world.clock.advance(5)
    world.change()
    await world.clock.advance(60)

    assert world.slack.users().count(ADE) == 1
    assert "My inbox (1)" in world.slack.last(BEA)
    assert [viewer.user for viewer in await world.viewers.all()] == [BEA]


async def test_publisher_shows_a_dropped_viewer_who_comes_back(world: World) -> None:
    world.slack.answers[ADE].append(Never("user_not_found", "place"))
    await world.home.opened(ADE)
    await world.clock.advance(5)
    await world.home.opened(ADE)
    await world.clock.advance(5)

    assert world.slack.users() == [ADE, ADE]


async def test_publisher_obeys_a_rate_limit_for_everybody(world: World) -> None:
    world.slack.answers[ADE].append(Later("ratelimited", 30.0))
    await world.home.opened(ADE)
    await world.clock.advance(0.1)
    await world.home.opened(BEA)
    await world.clock.advance(29)
    assert world.slack.users() == [ADE]
    await world.clock.advance(3)

    assert sorted(world.slack.users()) == [ADE, ADE, BEA]


async def test_publisher_tries_again_ever_later_where_the_outcome_is_unknown(world: World) -> None:
    world.slack.answers[ADE].extend([Unknown("timeout")] * 4)
    await world.home.opened(ADE)
    await world.clock.advance(0.1)
    await world.home.opened(BEA)
    await world.clock.advance(120)

    assert gaps(world.slack.times(ADE)) == pytest.approx([2, 4, 8, 16], abs=1.0)
    assert world.slack.times(BEA)[0] - world.slack.times(ADE)[0] < 1.0


async def test_publisher_whose_publish_hangs_holds_up_nobody_else(world: World) -> None:
    world.slack.slow[ADE] = 300.0
    await world.home.opened(ADE)
    await world.clock.advance(0.1)
    await world.home.opened(BEA)
    for _ in range(5):
        world.change()
        await world.clock.advance(2)

    assert world.slack.users().count(ADE) == 1
    assert "My inbox (5)" in world.slack.last(BEA)


async def test_publisher_does_not_repeat_a_view_that_slack_does_not_take(world: World) -> None:
    world.slack.answers[ADE].append(Never("invalid_arguments", "content"))
    await world.home.opened(ADE)
    await world.clock.advance(600)
    assert world.slack.users() == [ADE]
    world.change()
    await world.clock.advance(5)

    assert world.slack.users() == [ADE, ADE]


async def test_publisher_goes_on_after_a_failure_nobody_thought_of(world: World) -> None:
    world.slack.answers[ADE].append(RuntimeError("broken"))
    await world.home.opened(ADE)
    await world.home.opened(BEA)
    await world.clock.advance(30)
    assert world.slack.users().count(ADE) == 1
    world.change()
    await world.clock.advance(60)

    assert "My inbox (1)" in world.slack.last(ADE)
    assert "My inbox (1)" in world.slack.last(BEA)


async def test_publisher_shows_questions_while_the_sessions_cannot_be_read(world: World) -> None:
    world.fleet = StorageUnavailable("locked")
    world.open.append(summary())
    await world.home.opened(ADE)
    await world.clock.advance(1)

    assert "My inbox (1)" in world.slack.last(ADE)


async def test_publisher_asks_again_soon_where_slack_did_not_say_who_somebody_is(world: World) -> None:
    world.open.append(summary())
    world.access.unsure.add(ADE)
    await world.home.opened(ADE)
    await world.clock.advance(1)
    assert "may not be all" in world.slack.last(ADE)
    world.access.unsure.clear()
    await world.clock.advance(16)

    assert "My inbox (1)" in world.slack.last(ADE)


async def test_publisher_forgets_who_has_not_looked_for_a_week(world: World) -> None:
    await world.home.opened(ADE)
    await world.clock.advance(5)
    world.clock.jump(START + timedelta(days=6))
    await world.home.opened(BEA)
    await world.clock.advance(5)
    world.clock.jump(START + timedelta(days=7, hours=1))
    await world.clock.advance(301)
    world.change()
    await world.clock.advance(10)

    assert [viewer.user for viewer in await world.viewers.all()] == [BEA]
    assert "My inbox (1)" in world.slack.last(BEA)
    assert "My inbox (1)" not in world.slack.last(ADE)


async def test_publisher_after_a_restart_publishes_only_what_changed(world: World) -> None:
    world.open.append(summary(1))
    world.access.refused.add(BEA)
    await world.home.opened(ADE)
    await world.home.opened(BEA)
    await world.clock.advance(5)
    world.open.append(summary(2))
    again = world.publisher()
    await again.restore()
    running = asyncio.create_task(again.run())
    await world.clock.advance(5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert sorted(world.slack.users()) == [ADE, ADE, BEA]


async def test_publisher_killed_during_a_publish_does_not_rely_on_what_slack_showed_before(
    world: World,
) -> None:
    await world.home.opened(ADE)
    await world.clock.advance(5)
    world.slack.slow[ADE] = 10.0
    world.change()
    await world.clock.advance(1)

    assert [viewer.digest for viewer in await world.viewers.all()] == [None]


async def test_publisher_woken_less_than_a_clock_tick_before_its_turn_goes_on(world: World) -> None:
    world.drift = 1e-9  # after each sleep, less is left than can be slept
    await world.home.opened(ADE)
    await world.clock.advance(5)
    world.change()
    await world.clock.advance(5)

    assert "My inbox (1)" in world.slack.last(ADE)
    assert min(world.clock.slept) >= 0.001


async def test_publisher_knows_where_a_viewer_can_be_told_something(world: World) -> None:
    await world.home.opened(ADE, "T1", "D0ADE")

    assert world.home.place_of(ADE) == Place("D0ADE")
    assert world.home.place_of(BEA) == Place("")
