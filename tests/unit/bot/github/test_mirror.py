from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from bot.github.plan import ACTIVE, STALE
from core.clarification import Clarification, abandoned, nudged, resolved
from core.index import summarize
from tests.unit.bot.github.fake import TOKEN, Fault
from tests.unit.bot.github.world import SLA, World


async def test_mirror_posts_each_entry_once_in_order(world: World) -> None:
    await world.start()
    record = await world.ask()
    await world.shows(1)
    await world.answer(record)
    first, second = await world.shows(2)

    assert "**Question** from `engineer` to `architect`" in first
    assert "Which database?" in first
    assert "**Answer** by `user:slack/T1/U1`" in second
    assert "Postgres" in second


async def test_mirror_speaks_as_github_asks(world: World) -> None:
    await world.start()
    await world.ask()
    await world.shows(1)

    for headers in world.github.headers:
        assert headers["Accept"] == "application/vnd.github+json"
        assert headers["X-GitHub-Api-Version"] == "2022-11-28"
        assert headers["Authorization"] == f"Bearer {TOKEN}"
        assert headers["User-Agent"]


async def test_mirror_sets_and_removes_labels(world: World) -> None:
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


async def test_mirror_keeps_labels_while_another_question_of_the_issue_is_open(world: World) -> None:
    await world.start()
    first, second = await world.ask(), await world.ask(question="And which cache?")
    await world.shows(2)
    await world.answer(first)
    await world.shows(3)
    assert world.github.labels[42] == {ACTIVE}
    await world.put(abandoned(second, "by hand", world.clock.now()))
    await world.shows(4)

    assert world.github.labels[42] == set()


async def test_mirror_creates_labels_once_and_leaves_others_of_the_issue(world: World) -> None:
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


async def test_mirror_where_labels_cannot_be_created_sets_them_all_the_same(world: World) -> None:
    world.github.faults["POST labels"].append(Fault(403))
    await world.start()
    await world.ask()
    await world.shows(1)

    assert world.github.labels[42] == {ACTIVE}


async def test_mirror_marks_a_nudged_question(world: World) -> None:
    await world.start()
    record = await world.ask()
    await world.shows(1)
    await world.put(nudged(record, world.clock.now(), SLA))
    await world.quiet()

    assert world.github.labels[42] == {ACTIVE, STALE}


async def test_mirror_mentions_somebody_in_the_comment_of_an_escalation_only(world: World) -> None:
    await world.start()
    record = await world.escalate(await world.ask(question="Ask @acme/on-call"))
    await world.answer(record)
    question, escalation, answer = await world.shows(3)

    assert escalation.count("@acme/on-call: this needs a person.") == 1
    assert "@acme/on-call:" not in question + answer


async def test_mirror_without_a_mention_mentions_nobody(world: World) -> None:
    world.mention = None
    await world.start()
    await world.escalate(await world.ask())

    assert "@" not in "".join(await world.shows(2))


@pytest.mark.parametrize("issue", [100_001, 250_000])
async def test_mirror_leaves_reserved_numbers_alone(world: World, issue: int) -> None:
    await world.start()
    await world.ask(issue)
    await world.quiet()
    await world.kill()
    await world.start()
    await world.quiet()

    assert not [call for call in world.github.calls if str(issue) in call.path]


async def test_mirror_writes_at_most_once_a_second(world: World) -> None:
    await world.start()
    for number in range(6):
        await world.ask(question=f"Question {number}?")
    await world.shows(6)

    times = [call.at for call in world.github.calls if call.is_write]
    assert len(times) >= 7
    assert all(later - earlier >= 0.999 for earlier, later in pairwise(times))


async def test_mirror_lets_issues_take_turns(world: World) -> None:
    for number in range(5):
        await world.ask(question=f"Question {number}?")
    await world.ask(43)
    await world.start()
    await world.shows(5)

    order = [call.path.split("/")[-2] for call in world.github.of("POST", "/comments")]
    assert order[:3] in (["42", "43", "42"], ["43", "42", "42"])


async def test_mirror_after_a_restart_posts_nothing_twice_and_lists_nothing_needlessly(world: World) -> None:
    await world.start()
    await world.ask()
    await world.shows(1)
    await world.kill()
    before = len(world.github.of("GET", "42/comments"))
    await world.start()
    await world.shows(1)

    assert len(world.github.of("GET", "42/comments")) == before == 1


async def test_mirror_after_a_restart_does_what_was_decided_meanwhile(world: World) -> None:
    await world.start()
    record = await world.ask()
    await world.shows(1)
    await world.kill()
    record = await world.answer(record)
    await world.put(resolved(record, world.clock.now()))
    closed = await world.ask(43, "Asked and closed while it was down?")
    await world.put(abandoned(closed, "by hand", world.clock.now()))
    await world.start()
    await world.shows(2)

    assert world.github.labels[42] == set()
    assert len(world.github.bodies(43)) == 2


async def test_mirror_does_not_tell_what_was_over_before_it_began(world: World) -> None:
    old = await world.answer(await world.ask())
    await world.put(resolved(old, world.clock.now()))
    await world.clock.advance(3600)
    await world.start()
    await world.ask(question="The new one?")
    (body,) = await world.shows(1)

    assert "The new one?" in body


async def test_mirror_of_another_repository_begins_anew(world: World) -> None:
    await world.start()
    await world.ask()
    await world.shows(1)
    row = await world.store.read_one("select repo from github_comments")

    assert row is not None
    assert row["repo"] == "acme/app"


async def test_mirror_logs_no_words_and_no_token(world: World) -> None:
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


async def test_note_takes_nothing_but_a_place_in_the_queue(world: World) -> None:
    record = await world.ask()
    for _ in range(1000):
        world.mirror.note(summarize(record))

    assert list(world.mirror._due) == [42]
    assert world.github.calls == []


async def test_mirror_takes_foreign_records(world: World) -> None:
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
