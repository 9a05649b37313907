from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.monitor import Deadlock, Wait, deadlocks, flips

ORDER = ("product-manager", "architect", "ux-designer", "engineer", "reviewer", "devops-engineer")
Edge = tuple[str, str]


def found_in(*edges: Edge) -> list[Deadlock]:
    """The deadlocks of waits named by their place: "1" is the first edge."""
    return deadlocks([wait(number, *edge) for number, edge in enumerate(edges, 1)], ORDER)


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
    assert ids(found_in(*edges)) == expected


def test_waits_long_circle_is_found_whole() -> None:
    agents = [f"agent-{number:04d}" for number in range(3000)]
    edges = list(zip(agents, [*agents[1:], agents[0]], strict=True))
    assert len(ids(found_in(*edges))) == 2999


def test_waits_tells_who_is_in_it_and_which_others() -> None:
    edges = [("reviewer", "engineer"), ("engineer", "architect"), ("architect", "reviewer")]
    assert found_in(*edges) == [
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
    (found,) = found_in(*edges)
    assert len(found.waits) == 50
    assert {len(others) for _, others in found.waits} == {8}
    assert all(one.clarification not in others for one, others in found.waits)


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
@given(_EDGES)
def test_waits_what_is_left_has_no_circle(edges: list[Edge]) -> None:
    """With the found ones gone nobody waits in a circle."""
    found = ids(found_in(*edges))
    assert bool(found) == _has_circle(edges)
    assert not _has_circle([edge for number, edge in enumerate(edges, 1) if str(number) not in found])


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
    waits = [Wait(str(number), *each) for number, each in enumerate(asked, 1)]
    assert {one.clarification: others for one, others in flips(waits)} == expected
