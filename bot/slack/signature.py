"""Whether a request is Slack's. Pure.

Source: docs.slack.dev, "Verifying requests from Slack": `v0=` and the HMAC-SHA256 of `v0:{timestamp}:{raw body}` under
the app's signing secret. Headers may hold anything: whatever they hold, the answer is yes or a reason, never an error.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import datetime

TIMESTAMP, SIGNATURE = "x-slack-request-timestamp", "x-slack-signature"
OLDEST = 300  # seconds; Slack's advice against replays. As far into the future is no clock of Slack's, either
_SECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)
_V0 = re.compile(r"v0=[0-9a-f]{64}", re.ASCII)


def refusal(secret: str, headers: Mapping[str, str], body: bytes, now: datetime) -> str | None:
    """Why a request with these headers (names in lower case) and this body is not Slack's; None if it is.

    The reason repeats nothing of what was sent: it goes to the log.
    """
    timestamp, signature = headers.get(TIMESTAMP), headers.get(SIGNATURE)
    if timestamp is None or signature is None:
        return f"no {TIMESTAMP if timestamp is None else SIGNATURE} header"
    if not _SECONDS.fullmatch(timestamp):
        return f"{TIMESTAMP} is no number of seconds"
    if not _V0.fullmatch(signature):
        return f"{SIGNATURE} is no v0 signature"
    age = now.timestamp() - int(timestamp)
    if abs(age) > OLDEST:
        when = "ago" if age > 0 else "in the future"
        return f"signed {abs(age):.0f} s {when}, more than {OLDEST} s: sent again, or this machine's clock is wrong"
    if not hmac.compare_digest(signed(secret, timestamp, body).encode(), signature.encode()):
        return "the signature does not fit: not from Slack, or SLACK_SIGNING_SECRET is another app's"
    return None


def signed(secret: str, timestamp: str, body: bytes) -> str:
    """The signature that Slack gives `body` at `timestamp`."""
    text = b"v0:" + timestamp.encode("ascii") + b":" + body
    return "v0=" + hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()
