"""Which press counts while the post that it stands on is in doubt."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bot.people.access import Person
from bot.show.messages import MessageRow
from bot.slack.listeners import OriginCheck
from bot.slack.payloads import ControlOrigin, click_of, submission_of
from bot.views import phrases
from bot.views.codec import HomePress, ListPress, Press, seal
from bot.views.phrases import Tell

ADE = Person("T1", "U1")
OURS, SPOT = "0123456789abcdef", ("D1", "1750000000.000100")


class InDoubt:
    """A list in direct messages that was begun to be posted; nothing tells yet where it is."""

    def __init__(self, *presses: ListPress) -> None:
        elements = [
            {"type": "button", "action_id": "list.0", "value": seal(OURS, press.pack())} for press in presses
        ]
        self._row: Any = type("Begun", (), {"key": "word:1", "kind": "word", "intent_at": 0.0})()
        self._row.body = {"blocks": [{"type": "actions", "elements": elements}]}

    async def at(self, channel: str, ts: str) -> MessageRow | None:
        return None

    async def begun_in(self, channel: str) -> list[MessageRow]:
        return [self._row]


def origin_check(messages: Any, adopted: list[str]) -> OriginCheck:
    unasked: Any = None
    return OriginCheck(
        installation=OURS,
        messages=messages,
        incidents=unasked,
        pages=unasked,
        adopt=lambda _, ts: adopted.append(ts),
        group_of=lambda _: None,
        foreign=lambda: None,
    )


async def test_list_whose_post_is_in_doubt_is_paged_and_answered_from() -> None:
    turn = ListPress("page", "mine", 2)
    messages: Any = InDoubt(turn)
    adopted: list[str] = []
    binding = origin_check(messages, adopted)
    origin = ControlOrigin(OURS, *SPOT)
    assert await binding.refusal(turn, origin) is None
    assert await binding.refusal(Press("answer", "CLR-42-009", 1), origin) is None  # of the second page
    assert (
        await binding.refusal(Press("yes", "CLR-42-009", 1), origin) is not None
    )  # lists have no such control
    assert adopted == [SPOT[1]]


@pytest.mark.parametrize("spot", [SPOT, ()], ids=["on a message", "elsewhere"])
async def test_control_without_a_seal_is_refused_even_on_a_message_of_ours(spot: tuple[str, ...]) -> None:
    turn = ListPress("page", "mine", 2)
    adopted: list[str] = []
    binding = origin_check(InDoubt(turn), adopted)
    assert await binding.refusal(turn, ControlOrigin("", *spot)) == Tell(phrases.UNKNOWN_CARD)
    assert adopted == []


@pytest.mark.parametrize(
    "view", [None, {"type": "modal"}, {"type": "home"}], ids=["message", "modal", "home"]
)
def test_control_without_a_seal_says_nothing(view: dict[str, Any] | None) -> None:
    packed = HomePress("answer", "CLR-42-001", 1).pack()
    body: dict[str, Any] = {"actions": [{"value": packed}], "view": view}
    body["container"] = {"channel_id": SPOT[0], "message_ts": SPOT[1]}
    click = click_of(body, ADE)
    assert (click.value, click.control.installation) == ("", "")
    body["actions"][0]["value"] = seal(OURS, packed)
    click = click_of(body, ADE)
    assert (click.value, click.control.installation) == (packed, OURS)


def test_modal_that_was_opened_by_a_control_without_a_seal_says_nothing() -> None:
    packed = Press("answer", "CLR-42-001", 1).pack()
    for press, found in ((packed, ("", "")), (seal(OURS, packed), (packed, OURS))):
        opened = {"press": press, "channel": SPOT[0], "thread": None, "user": "U1"}
        sent = submission_of({"view": {"private_metadata": json.dumps(opened)}}, ADE)
        assert (sent.value, sent.control.installation) == found


@pytest.mark.parametrize(
    ("installation", "opened_by", "why"),
    [
        (OURS, "U1", None),
        (OURS, "U2", phrases.NOT_YOUR_WINDOW),
        (OURS, "", phrases.NOT_YOUR_WINDOW),
        ("f" * 16, "U1", phrases.ANOTHERS),
    ],
)
def test_p6_modal_counts_only_for_the_person_that_it_was_opened_for(
    installation: str, opened_by: str, why: str | None
) -> None:
    press = seal(installation, Press("answer", "CLR-42-001", 1).pack())
    opened = json.dumps({"press": press, "channel": SPOT[0], "thread": None, "user": opened_by})
    sent = submission_of({"view": {"private_metadata": opened}}, ADE)
    refused = origin_check(None, []).modal_refusal(sent)
    assert (refused and refused.text) == why
