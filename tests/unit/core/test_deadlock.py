from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.deadlock import Deadlock, Flips, Wait, Waits

ORDER = ("product-manager", "architect", "ux-designer", "engineer", "reviewer", "devops-engineer")
Edge = tuple[str, str]


def waits_of(*edges: Edge, order: tuple[str, ...] = ORDER) -> Waits:
    """Waits named by their place: "1" is the first edge."""
    waits = Waits(order)
    for number, (asker, asked) in enumerate(edges, 1):
        waits.put(wait(number, asker, asked))
    return waits


def wait(number: int, asker: str, asked: str) -> Wait:
    return Wait(str(number), asker, asked)


def ids(found: list[Deadlock]) -> set[str]:
    return {wait.clarification for deadlock in found for wait, _ in deadlock.waits}


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ([], set()),
        ([("engineer", "architect"), ("architect", "product-manager")], set()),
        ([("engineer", "architect"), ("architect", "engineer")], {"1"}),
        ([("architect", "engineer"), ("engineer", "architect")], {"2"}),
        ([("engineer", "architect"), ("architect", "reviewer"), ("reviewer", "engineer")], {"1", "3"}),
        ([("engineer", "architect"), ("architect", "engineer"), ("architect", "engineer")], {"1"}),
        ([("zoe", "adam"), ("adam", "zoe")], {"1"}),  # neither is in the order: by name
        ([("adam", "reviewer"), ("reviewer", "adam")], {"1"}),  # one that is in the order goes first
        ([("architect", "architect"), ("architect", "engineer"), ("engineer", "architect")], {"1", "3"}),
        ([("engineer", "architect"), ("architect", "engineer"), ("reviewer", "engineer")], {"1"}),
        (
            [("engineer", "architect"), ("architect", "engineer"), ("zoe", "adam"), ("adam", "zoe")],
            {"1", "3"},
        ),
    ],
)
def test_waits_table(edges: list[Edge], expected: set[str]) -> None:
    assert ids(waits_of(*edges).look()) == expected


def test_waits_long_circle_is_found_whole() -> None:
    agents = [f"agent-{number:04d}" for number in range(3000)]
    edges = list(zip(agents, [*agents[1:], agents[0]], strict=True))
    assert len(ids(waits_of(*edges).look())) == 2999


def test_waits_tells_who_is_in_it_and_which_others() -> None:
    edges = [("reviewer", "engineer"), ("engineer", "architect"), ("architect", "reviewer")]
    assert waits_of(*edges).look() == [
        Deadlock(
            ("architect", "engineer", "reviewer"),
            (
                (wait(2, "engineer", "architect"), ("3", "1")),  # first what the architect waits for
                (wait(1, "reviewer", "engineer"), ("2", "3")),
            ),
        )
    ]


def test_waits_others_are_a_few() -> None:
    edges = [("engineer", "architect")] * 50 + [("architect", "engineer")] * 50
    (found,) = waits_of(*edges).look()
    assert len(found.waits) == 50
    assert {len(others) for _, others in found.waits} == {8}
    assert all(one.clarification not in others for one, others in found.waits)


def test_waits_tell_once_until_something_is_new() -> None:
    waits = waits_of(("engineer", "architect"), ("architect", "engineer"))
    assert ids(waits.look()) == {"1"}
    assert waits.look() == []
    waits.put(wait(1, "engineer", "architect"))  # noted again, unchanged
    assert waits.look() == []
    waits.put(wait(3, "reviewer", "reviewer"))  # elsewhere
    assert ids(waits.look()) == {"3"}
    waits.put(wait(4, "engineer", "architect"))
    assert ids(waits.look()) == {"1", "4"}


def test_waits_circle_closed_later_or_opened_again() -> None:
    waits = waits_of(("engineer", "architect"), ("architect", "reviewer"))
    assert waits.look() == []
    waits.put(wait(3, "reviewer", "engineer"))
    assert ids(waits.look()) == {"1", "3"}
    waits.drop("3")
    waits.put(wait(4, "product-manager", "engineer"))
    assert waits.look() == []


_AGENTS = st.sampled_from([*ORDER[:3], "adam", "bea", "zoe"])
_EDGES = st.lists(st.tuples(_AGENTS, _AGENTS), max_size=14)


def _has_circle(edges: list[Edge]) -> bool:
    left = list(edges)
    while left:
        waited_for = [edge for edge in left if edge[1] in {asker for asker, _ in left}]
        if len(waited_for) == len(left):
            return True
        left = waited_for
    return False


@settings(deadline=None)
@given(_EDGES, st.randoms(use_true_random=False))
def test_waits_what_is_left_has_no_circle_and_no_more_is_found(edges: list[Edge], rng: random.Random) -> None:
    """Looked at one by one or all at once, in any order: with the found ones gone nobody waits in a circle."""
    numbered = list(enumerate(edges, 1))
    rng.shuffle(numbered)
    waits, left = Waits(ORDER), dict(numbered)
    for number, edge in numbered:
        waits.put(wait(number, *edge))
        if rng.random() < 0.5:
            for one in ids(waits.look()):
                waits.drop(one)
                del left[int(one)]
    was = _has_circle(list(left.values()))
    found = ids(waits.look())
    assert bool(found) == was
    assert not _has_circle([edge for number, edge in left.items() if str(number) not in found])


def flips_of(*asked: tuple[str, str, str]) -> Flips:
    flips = Flips()
    for number, (asker, target, topic) in enumerate(asked, 1):
        flips.put(wait(number, asker, target), topic)
    return flips


def pairs(flips: Flips) -> dict[str, tuple[str, ...]]:
    return {one.clarification: others for one, others in flips.look()}


DB = "Which database should I use?"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([("a", "b", DB), ("b", "a", DB)], {"1": ("2",), "2": ("1",)}),
        ([("a", "b", DB), ("B", "A", "What database should we use")], {"1": ("2",), "2": ("1",)}),
        ([("a", "b", DB), ("b", "a", "Which queue should I use?")], {}),
        ([("a", "b", "Open port 8080?"), ("b", "a", "Open port 9090?")], {}),
        ([("a", "b", DB), ("b", "c", DB), ("c", "a", DB)], {}),
        ([("a", "b", DB), ("a", "b", DB), ("b", "a", DB)], {"1": ("3",), "2": ("3",), "3": ("1", "2")}),
    ],
)
def test_flips_table(asked: list[tuple[str, str, str]], expected: dict[str, tuple[str, ...]]) -> None:
    assert pairs(flips_of(*asked)) == expected


def test_flips_tell_once_and_forget_what_is_closed() -> None:
    flips = flips_of(("a", "b", DB), ("b", "a", DB))
    assert len(pairs(flips)) == 2
    assert pairs(flips) == {}
    flips.put(wait(1, "a", "b"), DB)
    assert pairs(flips) == {}
    flips.drop("2")
    flips.put(wait(3, "a", "b"), DB)
    assert pairs(flips) == {}
    flips.put(wait(4, "b", "a"), DB)
    assert set(pairs(flips)) == {"1", "3", "4"}
