"""Pure decisions of delivery: how fast, what after a reply's try, who gets a card."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bot.delivery.pacing import CARD, DEAD_CONTROLS, NOTICE, PAGE, card_priority
from bot.delivery.reply_policy import LONGEST_WAIT, Settle, Wait, after_try
from bot.producers.client import Accepted, Refused, ReplyOutcome, TryAgain
from tests.kit.clocks import START


def test_order_of_sending() -> None:
    keys = [
        (NOTICE, 0.0),
        card_priority(None),
        card_priority(2e9),
        card_priority(1e9),
        (DEAD_CONTROLS, 0.0),
        (PAGE, 0.0),
    ]
    assert sorted(keys) == keys[::-1]
    assert card_priority(None)[0] == CARD


SURE, MAYBE = TryAgain("down", may_have_arrived=False), TryAgain("timeout", may_have_arrived=True)


@pytest.mark.parametrize(
    ("outcome", "uncertain", "late", "step"),
    [
        (Accepted(proof=True), False, False, Settle("delivered", resolve=True)),
        (Accepted(proof=False), False, False, Settle("delivered")),
        (Accepted(proof=True), True, True, Settle("delivered", resolve=True)),
        (Refused("no such token"), False, False, Settle("refused", "no such token")),
        (Refused("no such token"), True, False, Settle("unconfirmed", "no such token")),
        (Refused("no such token"), True, True, Settle("unconfirmed", "no such token")),
        (SURE, False, True, Settle("too_late", "down")),
        (SURE, True, True, Settle("unconfirmed", "down")),
        (MAYBE, False, True, Settle("unconfirmed", "timeout")),
    ],
)
def test_reply_settles(outcome: ReplyOutcome, uncertain: bool, late: bool, step: Settle) -> None:
    expires = START + timedelta(seconds=0 if late else 60)
    assert after_try(
        outcome, uncertain=uncertain, attempts=3, now=START, expires_at=expires, jitter=0.5
    ) == step  # fmt: skip


@pytest.mark.parametrize(
    ("attempts", "jitter", "left", "retry_after", "seconds"),
    [
        (1, 1.0, None, None, 0.25), (1, 0.0, None, None, 0.125), (2, 1.0, None, None, 0.5), (5, 1.0, None, None, 4.0),
        (50, 1.0, None, None, LONGEST_WAIT), (50, 0.0, None, None, LONGEST_WAIT / 2),
        (1, 1.0, None, 7.0, 7.0), (50, 1.0, None, 7.0, LONGEST_WAIT),
        (50, 1.0, 3.0, None, 3.0), (1, 1.0, 3.0, 60.0, 3.0), (50, 1.0, 0.001, None, 0.05),
    ],
)  # fmt: skip
def test_reply_waits(
    attempts: int, jitter: float, left: float | None, retry_after: float | None, seconds: float
) -> None:
    expires = START + timedelta(seconds=left) if left is not None else None
    for may_have_arrived in (True, False):
        again = TryAgain("x", may_have_arrived, retry_after)
        step = after_try(
            again, uncertain=False, attempts=attempts, now=START, expires_at=expires, jitter=jitter
        )
        assert isinstance(step, Wait)
        assert step.seconds == pytest.approx(seconds)
