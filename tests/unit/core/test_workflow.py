"""Who may ask whom, by real workflow files."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from core.errors import BlockingNotAllowed, ScopeViolation
from core.workflow import RequestLimits, Scopes, Speaker

HALF_HOUR = timedelta(minutes=30)
FEATURE = """
name = "feature"
[[steps]]
id = "implement"
agent = "engineer"
needs = ["design"]
can_clarify = ["architect", "product-manager"]
clarify_max_rounds = 3
clarify_sla_minutes = 30

[[steps]]
agent = "Architect"
can_clarify = ["product-manager"]
clarify_blocking_allowed = false

[[steps]]
agent = "reviewer"
"""


def write(folder: Path, text: str, name: str = "feature.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def step(agent: str, *targets: str, **more: str) -> str:
    lines = [f'agent = "{agent}"', f"can_clarify = {list(targets)}".replace("'", '"')]
    return "\n".join(["[[steps]]", *lines, *(f"{key} = {value}" for key, value in more.items()), ""])


@pytest.fixture
def scopes(tmp_path: Path) -> Scopes:
    write(tmp_path, FEATURE)
    return Scopes(tmp_path)


@pytest.mark.parametrize(
    ("asker", "target", "blocking", "expected"),
    [
        ("engineer", "architect", True, RequestLimits(3, HALF_HOUR)),
        (" ENGINEER ", "Product-Manager", True, RequestLimits(3, HALF_HOUR)),
        ("architect", "product-manager", False, RequestLimits(6, None)),
        ("engineer", "human", True, RequestLimits(5, None)),
    ],
)
def test_check_tells_the_limits(
    scopes: Scopes, asker: str, target: str, blocking: bool, expected: RequestLimits
) -> None:
    assert scopes.check(asker, target, blocking=blocking) == expected
    assert scopes.problems == ()


@pytest.mark.parametrize(
    ("asker", "target", "message", "allowed"),
    [
        (
            "engineer",
            "reviewer",
            "engineer may not ask reviewer: its workflow allows only architect, product-manager.",
            ("architect", "product-manager"),
        ),
        ("reviewer", "engineer", "reviewer may not ask engineer: no workflow allows it to ask anyone.", ()),
        ("a\nb\x1b[1m", "engineer", "a b [1m may not ask engineer: no workflow allows it to ask anyone.", ()),
    ],
)
def test_check_refuses_and_names_what_is_allowed(
    scopes: Scopes, asker: str, target: str, message: str, allowed: tuple[str, ...]
) -> None:
    with pytest.raises(ScopeViolation) as caught:
        scopes.check(asker, target, blocking=False)
    assert (str(caught.value), caught.value.allowed) == (message, allowed)
    assert not isinstance(caught.value, BlockingNotAllowed)
    assert scopes.allowed(asker) == allowed


def test_check_of_blocking_where_it_is_not_allowed(scopes: Scopes) -> None:
    with pytest.raises(BlockingNotAllowed, match="does not allow blocking") as caught:
        scopes.check("architect", "product-manager", blocking=True)
    assert caught.value.code == "SCOPE_VIOLATION"
    assert caught.value.allowed == ("product-manager",)
    with pytest.raises(ScopeViolation) as other:
        scopes.check("architect", "engineer", blocking=True)
    assert not isinstance(other.value, BlockingNotAllowed), "it may not ask at all"


def test_human_may_be_asked_also_where_a_step_names_it(tmp_path: Path) -> None:
    write(tmp_path, step("engineer", "human", clarify_max_rounds="2", clarify_blocking_allowed="false"))
    scopes = Scopes(tmp_path)
    assert scopes.check("engineer", "human", blocking=False) == RequestLimits(2, None)
    assert scopes.check("engineer", "human", blocking=True) == RequestLimits(5, None)


def test_steps_of_the_same_agent_add_up_and_the_first_that_allows_limits(tmp_path: Path) -> None:
    write(tmp_path, step("engineer", "architect", clarify_max_rounds="9"), "b.toml")
    first = step("engineer", "architect", clarify_max_rounds="1", clarify_blocking_allowed="false")
    write(tmp_path, first + step("Engineer", "ux", "ARCHITECT", clarify_max_rounds="2"), "a.toml")
    scopes = Scopes(tmp_path)
    assert scopes.allowed("engineer") == ("architect", "ux")
    assert scopes.check("engineer", "architect", blocking=False).max_rounds == 1
    assert scopes.check("engineer", "architect", blocking=True).max_rounds == 2
    assert scopes.check("engineer", "ux", blocking=True).max_rounds == 2


def test_changed_new_and_removed_files_are_picked_up(tmp_path: Path) -> None:
    scopes = Scopes(tmp_path / "workflows")
    assert (scopes.allowed("engineer"), scopes.problems) == ((), ()), "the folder is not there yet"
    (tmp_path / "workflows").mkdir()
    path = write(tmp_path / "workflows", step("engineer", "a1"))
    assert scopes.allowed("engineer") == ("a1",)
    write(tmp_path / "workflows", step("engineer", "a2"))
    assert scopes.allowed("engineer") == ("a2",)
    write(tmp_path / "workflows", step("engineer", "b1"), "other.toml")
    assert scopes.allowed("engineer") == ("a2", "b1")
    path.unlink()
    assert scopes.allowed("engineer") == ("b1",)


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "[[steps",
        'agent = "secret',
    ],
)
def test_broken_file_counts_as_it_was(tmp_path: Path, broken: str) -> None:
    write(tmp_path, step("engineer", "architect"), "b.toml")
    write(tmp_path, step("writer", "editor"), "a.toml")
    scopes = Scopes(tmp_path)
    assert scopes.allowed("engineer") == ("architect",)
    path = write(tmp_path, broken, "b.toml")
    if broken == "":
        path.write_bytes(b"\xff\xfe")
    assert scopes.check("engineer", "architect", blocking=True) == RequestLimits(5, None)
    (problem,) = scopes.problems
    assert problem.startswith("b.toml: is not valid TOML")
    assert problem.endswith("the earlier version stays in force.")
    assert "secret" not in problem
    with pytest.raises(ScopeViolation, match=r"These workflow files cannot be read in full: b\.toml"):
        scopes.check("engineer", "reviewer", blocking=True)
    write(tmp_path, step("engineer", "reviewer"), "b.toml")
    assert scopes.allowed("engineer") == ("reviewer",)
    assert scopes.problems == ()


def test_broken_file_that_was_never_read_is_left_out_and_named(tmp_path: Path) -> None:
    write(tmp_path, "[[steps]]\nagent =\n")
    scopes = Scopes(tmp_path)
    assert scopes.problems == ("feature.toml: is not valid TOML (line 2, column 8); it is ignored.",)
    with pytest.raises(ScopeViolation, match=r"feature\.toml"):
        scopes.check("engineer", "architect", blocking=True)


BAD = [
    ("agent", '""'),
    ("agent", "7"),
    ("agent", f'"{"x" * 81}"'),
    ("agent", '"two\\nlines"'),
    ("can_clarify", '"architect"'),
    ("can_clarify", '["architect", 1]'),
    ("can_clarify", '[" "]'),
    ("clarify_max_rounds", "0"),
    ("clarify_max_rounds", "101"),
    ("clarify_max_rounds", "true"),
    ("clarify_max_rounds", "2.0"),
    ("clarify_sla_minutes", "0"),
    ("clarify_sla_minutes", "-1"),
    ("clarify_sla_minutes", "nan"),
    ("clarify_sla_minutes", "inf"),
    ("clarify_sla_minutes", '"30"'),
    ("clarify_sla_minutes", "true"),
    ("clarify_blocking_allowed", "1"),
    ("clarify_blocking_allowed", '"yes"'),
]


@pytest.mark.parametrize(("key", "value"), BAD)
def test_bad_value_leaves_its_step_out(tmp_path: Path, key: str, value: str) -> None:
    good = {"agent": '"engineer"', "can_clarify": '["architect"]', key: value}
    bad = "[[steps]]\n" + "".join(f"{name} = {said}\n" for name, said in good.items())
    write(tmp_path, step("engineer", "ux") + bad + step("engineer", "reviewer"))
    scopes = Scopes(tmp_path)
    assert scopes.allowed("engineer") == ("ux", "reviewer")
    (problem,) = scopes.problems
    assert problem.startswith(f"feature.toml: step 2: {key}: expected ")
    assert "xxx" not in problem
    with pytest.raises(ScopeViolation, match=r"feature\.toml"):
        scopes.check("engineer", "architect", blocking=True)


def test_step_without_agent_is_a_problem_only_if_it_says_who_may_be_asked(tmp_path: Path) -> None:
    write(tmp_path, '[[steps]]\nid = "x"\n[[steps]]\ncan_clarify = ["a"]\n')
    (problem,) = Scopes(tmp_path).problems
    assert problem.startswith("feature.toml: step 2: agent: expected ")


@pytest.mark.parametrize("text", ["steps = 1", "steps = ['a']"])
def test_steps_that_are_no_tables(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    (problem,) = Scopes(tmp_path).problems
    assert "[[steps]]" in problem


def test_what_is_no_workflow_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, step("engineer", "a"), ".draft.toml")
    write(tmp_path, step("engineer", "b"), "notes.txt")
    (tmp_path / "folder.toml").mkdir()
    os.mkfifo(tmp_path / "pipe.toml")
    scopes = Scopes(tmp_path)
    assert (scopes.allowed("engineer"), scopes.problems) == ((), ())


def test_folder_that_cannot_be_read_keeps_what_was_known(tmp_path: Path) -> None:
    folder = tmp_path / "workflows"
    folder.mkdir()
    write(folder, step("engineer", "architect"))
    scopes = Scopes(folder)
    scopes.allowed("engineer")
    folder.rename(tmp_path / "moved")
    folder.write_text("a file in its place")
    assert scopes.allowed("engineer") == ("architect",)
    assert scopes.problems == ("The workflow folder cannot be read: Not a directory.",)
    with pytest.raises(ScopeViolation, match="folder cannot be read"):
        scopes.check("engineer", "ux", blocking=True)
    folder.unlink()
    assert scopes.allowed("engineer") == (), "it was removed"


@pytest.mark.parametrize(
    ("agents", "name", "event", "role"),
    [
        (None, "anybody", True, True),
        ((), "anybody", False, False),
        ((), "planner", True, True),  # its own name
        (("mailer",), "mailer", True, True),
        (("mailer",), "MAILER", False, True),
        (("mailer",), "mailer-2", False, False),
        (("mailer-*", "post"), "mailer-2", True, True),
        (("mailer-*", "post"), "the mailer-2", False, False),
        (("*",), "anybody", True, True),
        (("mailer-*",), "mailer-2\nbilling", False, True),  # a role's name is read on one line
        (("mailer-*",), "mailer-\x1b[2J", False, False),
        (None, "any\nbody", True, True),
        ((), "Explore, for planner", True, True),
        (("mailer",), "Explore, for mailer", True, True),
        (("mailer",), "mailer, for billing", False, False),
        (("*, for mailer",), "mailer", False, False),
        (("Explore, for *",), "Plan, for mailer", False, False),
    ],
)
def test_speaker_may_be(agents: tuple[str, ...] | None, name: str, event: bool, role: bool) -> None:
    speaker = Speaker("planner", agents)
    assert (speaker.may_be(name), speaker.may_be_role(name)) == (event, role)
