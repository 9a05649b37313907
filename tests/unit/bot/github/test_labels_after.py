"""Labels that were being changed when something went wrong."""

from __future__ import annotations

from bot.github.plan import ACTIVE
from tests.clocks import until
from tests.unit.bot.github.fake import Fault
from tests.unit.bot.github.world import World


async def test_mirror_whose_labels_were_half_done_finishes_them(world: World) -> None:
    world.github.faults["POST labels"] += [
        Fault(201, done=True),
        Fault(0, done=True),
    ]  # created; added, unseen
    await world.start()
    await world.ask()
    await until(lambda: world.github.labels[42])
    await world.kill()
    await world.start()
    await world.shows(1)

    assert world.github.labels[42] == {ACTIVE}
    assert await world.mirror._memory.unsettled() == [42]


async def test_mirror_killed_while_it_sets_labels_knows_of_them(world: World) -> None:
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


async def test_mirror_removes_labels_of_an_issue_whose_ledger_is_gone(world: World) -> None:
    await world.start()
    await world.ask()
    await world.shows(1)
    await world.kill()
    world.ledger.path(42).unlink()
    await world.start()
    await world.quiet()

    assert world.github.labels[42] == set()


async def test_mirror_without_its_storage_removes_labels_of_what_was_closed_meanwhile(world: World) -> None:
    await world.start()
    record = await world.ask()
    await world.shows(1)
    await world.kill()
    await world.answer(record)
    await world.forget()
    world.github.labels[99] = {ACTIVE}  # of somebody else, who uses the repository too
    await world.clock.advance(60)
    for _ in range(2):
        await world.start()
        await world.quiet()
        await world.kill()

    assert world.github.labels[42] == set()
    assert world.github.labels[99] == {ACTIVE}
    assert world.github.count("GET", "app/issues") == 2 * 2  # once per storage
