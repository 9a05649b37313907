"""The demo's other agent: reviews releases for security. Gets a question as JSON, prints its answer.

Started by the bot for each question, as `[responders.security-reviewer] command` says.
"""

from __future__ import annotations

import json
import sys
import time

ROLE = "security-reviewer"
_READING = 4.0  # seconds: a visitor should see the question wait


def main() -> None:
    inquiry = json.load(sys.stdin)
    time.sleep(_READING)
    sys.stdout.write(f"No, {inquiry['from']} can continue: nothing in it touches sign-in or payments.\n")


if __name__ == "__main__":
    main()
