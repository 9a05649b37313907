"""What the receipt of a usual approval costs."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bot.signing import KeyPlace, Signing
from core.aaep import Confirmation
from core.clarification import Answer, Ask, Decider, Direct, answered, opened
from tests.bench.table import Row, median, ms

_GOAL = 0.3  # milliseconds
_WARM = 20


async def receipts(folder: Path, times: int) -> list[Row]:
    """CPU time, one after the other, of an approval with five arguments."""
    signing = Signing(KeyPlace(folder / "bench-signing.pem"), "urn:clarify:bench", datetime.now(UTC))
    signing.load(create=True)
    signing.place.file.unlink()
    now = datetime.now(UTC)
    wanted = Confirmation(action="Send the newsletter to 1,204 customers", risk_level="high", is_direct=True)
    arguments = {"to": "all@example.com", "count": 1204, "price": 1.0, "test": False, "tags": ["a", "b"]}
    ask = Ask(
        agent_id="mailer",
        question=wanted.action,
        to="human",
        topic=None,
        blocking=True,
        received_at=now,
        producer="planner",
        session_id="ses-1",
        kinds=("confirmation",),
        confirmation=wanted,
        direct=Direct(kind="approval", arguments=arguments),
    )
    decider = Decider("user:slack/T0LOCAL/U0ANN", "slack", "T0LOCAL", "U0ANN")
    done = answered(opened(1, 1, ask, now, timedelta(minutes=30)), Answer("accept", "Accept"), decider, now)
    seconds = []
    for _ in range(times + _WARM):
        began = time.thread_time()
        if signing.made(done) is None:
            raise RuntimeError("no receipt was made")
        seconds.append(time.thread_time() - began)
    seconds = seconds[_WARM:]
    return [
        Row(f"a receipt: CPU, median of {times}", median(seconds) * 1e3, "{:.2f} ms", ms(seconds), goal=_GOAL)
    ]
