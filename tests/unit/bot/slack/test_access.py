from __future__ import annotations

from dataclasses import replace

import pytest

from bot.errors import ConfigurationError, SlackRefusedError, SlackUnreachableError
from bot.slack.access import Allowed, Denied, Profile, Reason, check_answerers, may_answer

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
    assert may_answer(person, answerers, channel_members=members, groups=groups, home_team=HOME) == decision


class Directory:
    def __init__(self, members: set[str], group: set[str], away: bool = False) -> None:
        self._members, self._group, self._away = members, group, away

    async def profile(self, user: str) -> Profile:
        if user not in {"U1", "U2", "UB"}:
            raise SlackRefusedError("users.info: user_not_found", code="user_not_found")
        return Profile(user, HOME, is_bot=user == "UB", is_guest=user == "U2")

    async def members(self, channel: str) -> set[str]:
        if self._away:
            raise SlackUnreachableError("conversations.members: TimeoutError")
        if channel != "C1":
            raise SlackRefusedError("conversations.members: channel_not_found", code="channel_not_found")
        return self._members

    async def group(self, group: str) -> set[str]:
        if group != "S1":
            raise SlackRefusedError("usergroups.users.list: no_such_subteam", code="no_such_subteam")
        return self._group


@pytest.mark.parametrize(
    ("answerers", "channel", "members", "problem"),
    [
        (["members"], "C1", {"UB", "U1"}, None),
        (["members"], "C1", {"UB", "U2"}, "nobody could answer in C1"),
        (["members"], "C1", set(), "nobody could answer in C1"),
        (["members"], "C2", {"U1"}, None),  # it went away: the others must be served all the same
        (["U1"], "C1", set(), None),
        (["U7"], "C1", {"U1"}, "the user U7: Slack says user_not_found"),
        (["members", "U7"], "C1", {"U1"}, "the user U7: Slack says user_not_found"),
        (["S1"], "C1", set(), None),
        (["S7"], "C1", set(), "the user group S7: Slack says no_such_subteam"),
        ([], "C1", {"U1"}, "nobody could answer"),
    ],
)
async def test_check_answerers_at_the_start(
    answerers: list[str], channel: str, members: set[str], problem: str | None
) -> None:
    directory = Directory(members, {"U1"})
    if problem is None:
        await check_answerers(answerers, channel, directory, HOME, "routes[0]")
        return
    with pytest.raises(ConfigurationError, match="routes") as caught:
        await check_answerers(answerers, channel, directory, HOME, "routes[0]")
    assert problem in caught.value.problems[0]


async def test_check_answerers_of_an_empty_group() -> None:
    with pytest.raises(ConfigurationError, match="nobody could answer"):
        await check_answerers(["S1"], "C1", Directory(set(), set()), HOME, "routes[0]")


async def test_check_answerers_while_slack_is_away_is_no_configuration_error() -> None:
    with pytest.raises(SlackUnreachableError):
        await check_answerers(["members"], "C1", Directory(set(), set(), away=True), HOME, "routes[0]")
