from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bot.errors import SlackRefusedError, SlackUnreachableError
from bot.slack.access import (
    Allowed,
    Denied,
    Home,
    NobodyCouldAnswer,
    Profile,
    Reason,
    check_answerers,
    may_answer,
)

HOME = "T1"
ADE = Profile("U1", HOME, "ade")
GUEST = replace(ADE, is_guest=True)
EXTERNAL = replace(ADE, team="T2")
STRANGER = replace(ADE, is_stranger=True)
BOT = replace(ADE, is_bot=True)
GONE = replace(ADE, is_deleted=True)
NOT_IN: Reason = "not in the channel"


@pytest.mark.parametrize(
    ("person", "answerers", "in_channel", "in_group", "decision"),
    [
        (ADE, ["members"], True, False, Allowed("members")),
        (ADE, ["members"], False, False, Denied(NOT_IN)),
        (GUEST, ["members"], True, False, Denied("guest")),
        (EXTERNAL, ["members"], True, False, Denied("external")),
        (STRANGER, ["members"], True, False, Denied("external")),
        (BOT, ["members"], True, False, Denied("bot")),
        (GONE, ["members"], True, False, Denied("deactivated")),
        (ADE, ["U1"], False, False, Allowed("U1")),
        (GUEST, ["U1"], False, False, Allowed("U1")),
        (EXTERNAL, ["U1"], False, False, Allowed("U1")),
        (BOT, ["U1"], False, False, Allowed("U1")),
        (ADE, ["U2"], True, False, Denied("not listed")),
        (GUEST, ["U2"], True, False, Denied("guest")),
        (ADE, ["S1"], False, True, Allowed("S1")),
        (GUEST, ["S1"], False, True, Allowed("S1")),
        (ADE, ["S1"], True, False, Denied("not listed")),
        (ADE, ["U2", "S1", "members"], True, False, Allowed("members")),
        (GUEST, ["U2", "S1", "members"], True, False, Denied("guest")),
        (ADE, [], True, True, Denied("not listed")),
    ],
)
def test_may_answer_by_who_and_list(
    person: Profile, answerers: list[str], in_channel: bool, in_group: bool, decision: Allowed | Denied
) -> None:
    members = {"U1"} if in_channel else {"U9"}
    groups = {"S1": frozenset({"U1"} if in_group else {"U9"})}
    assert may_answer(person, answerers, channel_members=members, groups=groups, home=Home(HOME)) == decision


@pytest.mark.parametrize(
    ("person", "home", "decision"),
    [
        (replace(EXTERNAL, enterprise="E1"), Home(HOME, "E1"), Allowed("members")),
        (replace(EXTERNAL, enterprise="E1", is_stranger=True), Home(HOME, "E1"), Allowed("members")),
        (replace(EXTERNAL, enterprise="E1", is_guest=True), Home(HOME, "E1"), Denied("guest")),
        (replace(EXTERNAL, enterprise="E2"), Home(HOME, "E1"), Denied("external")),
        (EXTERNAL, Home(HOME, "E1"), Denied("external")),
        (EXTERNAL, Home(HOME), Denied("external")),
        (replace(ADE, enterprise="E1"), Home("E1", "E1"), Allowed("members")),
    ],
)
def test_members_of_one_organization_are_at_home_in_all_its_workspaces(
    person: Profile, home: Home, decision: Allowed | Denied
) -> None:
    assert may_answer(person, ["members"], channel_members={"U1"}, groups={}, home=home) == decision


class Directory:
    """U1 is a full member, U2 a guest, UB a bot; everybody else is hidden. What is in `away` is not told."""

    def __init__(self, members: set[str], group: set[str], away: Sequence[str] = ()) -> None:
        self._members, self._group, self._away = members, group, away
        self.asked = 0

    async def profile(self, user: str) -> Profile:
        self.asked += 1
        if "profile" in self._away:
            raise SlackUnreachableError("users.info: TimeoutError")
        if user not in {"U1", "U2", "UB"}:
            raise SlackRefusedError("users.info: user_not_found", code="user_not_found")
        return Profile(user, HOME, is_bot=user == "UB", is_guest=user == "U2")

    async def members(self, channel: str) -> set[str]:
        if "members" in self._away:
            raise SlackUnreachableError("conversations.members: TimeoutError")
        if channel != "C1":
            raise SlackRefusedError("conversations.members: channel_not_found", code="channel_not_found")
        return self._members

    async def group(self, group: str) -> set[str]:
        if "group" in self._away:
            raise SlackUnreachableError("usergroups.users.list: TimeoutError")
        if group != "S1":
            raise SlackRefusedError("usergroups.users.list: no_such_subteam", code="no_such_subteam")
        return self._group


NO_USER = "the user U7: Slack says user_not_found"
NO_GROUP = "the user group S7: Slack says no_such_subteam"


@pytest.mark.parametrize(
    ("answerers", "channel", "members", "problem"),
    [
        (["members"], "C1", {"UB", "U2"}, "nobody could answer in C1"),
        (["members"], "C1", {"U7", "U2"}, "nobody could answer in C1"),
        (["members"], "C1", set(), "nobody could answer in C1"),
        (["U7"], "C1", {"U1"}, NO_USER),
        (["S7"], "C1", set(), NO_GROUP),
        (["members", "S7"], "C1", {"U2"}, NO_GROUP),
        ([], "C1", {"U1"}, "nobody could answer"),
    ],
)
async def test_nobody_at_all_could_answer(
    answerers: list[str], channel: str, members: set[str], problem: str
) -> None:
    with pytest.raises(NobodyCouldAnswer) as caught:
        await check_answerers(answerers, channel, Directory(members, {"U1"}), Home(HOME))
    assert problem in caught.value.problems[0]


async def test_an_empty_group_is_nobody() -> None:
    with pytest.raises(NobodyCouldAnswer, match="nobody could answer"):
        await check_answerers(["S1"], "C1", Directory(set(), set()), Home(HOME))


@pytest.mark.parametrize(
    ("answerers", "channel", "members", "problems"),
    [
        (["members"], "C1", {"UB", "U1"}, ()),
        (["members"], "C1", {"U0HIDDEN", "U1"}, ()),
        (
            ["members"],
            "C2",
            {"U1"},
            ("the members of C2: Slack says channel_not_found",),
        ),  # others are served
        (["U1"], "C1", set(), ()),
        (["S1"], "C1", set(), ()),
        (["members", "U7"], "C1", {"U1"}, (NO_USER,)),
        (["S7", "members"], "C1", {"U1"}, (NO_GROUP,)),
        (["S7", "S1"], "C1", set(), (NO_GROUP,)),
    ],
)
async def test_what_others_make_up_for_is_told(
    answerers: list[str], channel: str, members: set[str], problems: tuple[str, ...]
) -> None:
    assert await check_answerers(answerers, channel, Directory(members, {"U1"}), Home(HOME)) == problems


@pytest.mark.parametrize("away", ["members", "profile", "group"])
async def test_what_slack_does_not_tell_now_counts_as_somebody(away: str) -> None:
    entry = "S1" if away == "group" else "members"
    assert await check_answerers([entry], "C1", Directory({"U1"}, {"U1"}, [away]), Home(HOME)) == ()


async def test_few_of_very_many_are_asked_about() -> None:
    crowd = {f"U0{number:04}" for number in range(5000)}
    directory = Directory({*crowd, "U1"}, set())
    assert await check_answerers(["members"], "C1", directory, Home(HOME)) == ()
    assert directory.asked < 50
