"""What the receipt of a usual approval costs, and how long it takes to verify a whole log."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bot.decisions.chain import TYP, Head, claims_in, digest_of, following, verify
from bot.signing import KeyPlace, Signing
from core.clarification import Answer, Clarification, Confirmation, Decider, Direct
from core.transitions import answered, opened
from tests.bench.table import Row, median, ms
from tests.kit.builders import asking

_GOAL = 0.3  # milliseconds
_WHOLE = 30.0  # seconds
_WARM = 20


async def receipts(folder: Path, times: int) -> list[Row]:
    """CPU time, one after the other, of an approval with five arguments."""
    signing, done = _signing(folder), _approved(1)
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


async def verified(folder: Path, count: int) -> list[Row]:
    """`clarify verify --log`, without reading the file: every entry, receipt and link."""
    signing = _signing(folder)
    lines, head = [], Head()
    for number in range(1, count + 1):
        receipt = signing.made(_approved(number))
        if receipt is None:
            raise RuntimeError("no receipt was made")
        sha256 = digest_of(receipt)
        claims = following(
            head, "decision", datetime.now(UTC), {"jti": f"CLR-1-{number:03}/1", "sha256": sha256}
        )
        entry = signing.signed(claims, TYP)
        line = {"seq": number, "entry": entry, "receipt": receipt, "claims": claims_in(receipt)}
        lines.append(json.dumps(line).encode())
        head = Head(number, digest_of(entry))
    began = time.process_time()
    found = verify(lines, signing.jwks)
    seconds = time.process_time() - began
    if found.decisions != count:
        raise RuntimeError("the log is not whole")
    return [
        Row(f"verify a log of {count:,} receipts: CPU", seconds, "{:.1f} s", f"{seconds:.1f} s", goal=_WHOLE)
    ]


def _signing(folder: Path) -> Signing:
    signing = Signing(KeyPlace(folder / "bench-signing.pem"), "urn:clarify:bench", datetime.now(UTC))
    signing.load(create=True)
    signing.place.file.unlink()
    return signing


def _approved(number: int) -> Clarification:
    now = datetime.now(UTC)
    arguments = {"to": "all@example.com", "count": 1204, "price": 1.0, "test": False, "tags": ["a", "b"]}
    wanted = Confirmation(
        action="Send the newsletter to 1,204 customers", risk_level="high", sent=arguments, editable=False
    )
    ask = asking(
        agent_id="mailer",
        question=wanted.action,
        to="human",
        topic=None,
        blocking=True,
        received_at=now,
        producer="planner",
        session_id="ses-1",
        kinds=("confirmation",),
        wanted=wanted,
        direct=Direct(kind="approval"),
    )
    decider = Decider("user:slack/T0LOCAL/U0ANN", "slack", "T0LOCAL", "U0ANN")
    return answered(
        opened(1, number, ask, now, timedelta(minutes=30)), Answer("accept", "Accept"), decider, now
    )
