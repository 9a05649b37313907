"""Which press counts while the post that it stands on is in doubt."""

from __future__ import annotations

from typing import Any

from bot.delivery.messages import MessageRow
from bot.slack.control_origin import OriginCheck
from bot.slack.payloads import ControlOrigin
from bot.views.codec import ListPress, Press, seal

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


async def test_list_whose_post_is_in_doubt_is_paged_and_answered_from() -> None:
    turn = ListPress("page", "mine", 2)
    messages: Any = InDoubt(turn)
    unasked: Any = None
    adopted: list[str] = []
    binding = OriginCheck(
        installation=OURS,
        messages=messages,
        incidents=unasked,
        pages=unasked,
        adopt=lambda _, ts: adopted.append(ts),
        group_of=lambda _: None,
        foreign=lambda: None,
    )
    origin = ControlOrigin(OURS, *SPOT)
    assert await binding.refusal(turn, origin) is None
    assert await binding.refusal(Press("answer", "CLR-42-009", 1), origin) is None  # of the second page
    assert (
        await binding.refusal(Press("yes", "CLR-42-009", 1), origin) is not None
    )  # lists have no such control
    assert adopted == [SPOT[1]]
