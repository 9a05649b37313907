"""Signatures as the Standard Webhooks specification has them: HMAC-SHA256 over id, time and body (pure)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

_PREFIX = "whsec_"


def key_of(secret: str) -> bytes:
    """The key: `whsec_…` is base64, anything else is taken as it is.

    Raises:
        ValueError: it is empty, or no base64 after the prefix.
    """
    if secret.startswith(_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            raise ValueError(f"no base64 after {_PREFIX}") from None
    else:
        key = secret.encode()
    if not key:
        raise ValueError("an empty secret signs nothing")
    return key


def headers(key: bytes, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of one try; `timestamp` in seconds since 1970."""
    signed = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    signature = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{signature}",
    }
