"""The demo's second agent: it announces a release, and asks people as agents of today do: with `clarify.py`, which posts
to `/questions`, and over MCP.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from mcp import Client, StdioServerParameters
from mcp_types import Implementation

import clarify
from workspace.demo import DemoError

CAPTAIN_ID = "release-captain"
TIMEOUT_SECONDS = 1800.0


class Captain:
    """Asks the bot at `url`, with its own producer's token: visitors' agents do not see its questions."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._token = token

    async def live(self, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Announces one release after the other, forever."""
        for number in count(1):
            await self.announce(f"4.{number}")
            await pause(5)

    async def announce(self, version: str) -> None:
        """Writes the announcement of a release, gets it approved, and emails it."""
        if not await self.ask(
            f"Release {version} of the shop is going out. Prepare its announcement?",
            kind="yes_no",
            context="The last announcement was nine days ago.",
            default=False,
        ):
            return
        first = await self.ask("Which change should come first?", choices=CHANGES, default="change-01")
        name = await self.ask_over_mcp(
            "What should we call this release? Pick a name, or write your own.",
            choices=["Kingfisher", "Sandpiper", "Wagtail"],
            other=True,
            context=f"The announcement uses this name for {version}, and customers will read it.",
            default="Kingfisher",
        )
        tested = await self.approve(
            "Send a test email of the announcement.",
            consequence="Recipients see the announcement before customers do.",
            risk="medium",
            arguments={
                "to": "qa@shop.example",
                "subject": f"The shop {version} “{name}” is here",
                "delay_minutes": 10,
                "links": {"notes": f"https://shop.example/notes/{version}", "survey": None},
            },
            editable=True,
        )
        if not tested:
            return
        plan = await self.ask("When should it go out, and to whom?", schema=MAILING)
        if plan is None:
            return
        await self.approve(
            f"Email the announcement of {version} to customers.",
            consequence="The emails are sent immediately and cannot be recalled.",
            risk="high",
            irreversible=True,
            arguments=plan | {"subject": tested.arguments["subject"], "body": body(version, first)},
            approvals=2,
        )

    async def ask(self, question: str, **more: Any) -> Any:
        """Returns the answer's value; if no one answers, the default or None."""
        try:
            answer = await clarify.aio.ask(
                question, url=self._url, token=self._token, timeout=TIMEOUT_SECONDS, **more
            )
        except clarify.NotAnswered:
            return more.get("default")
        return answer.value

    async def approve(self, action: str, **more: Any) -> clarify.Approval:
        """Asks people to approve an action. Act with the arguments of the approval: they may be edited."""
        return await clarify.aio.approve(
            action, url=self._url, token=self._token, timeout=TIMEOUT_SECONDS, **more
        )

    async def ask_over_mcp(self, question: str, **more: Any) -> Any:
        """Asks as `ask` does, through an MCP server over stdio."""
        arguments = {"question": question, "timeout": TIMEOUT_SECONDS, **more}
        words = ["-m", "bot.cli", "mcp", "--url", self._url]
        server = StdioServerParameters(command=sys.executable, args=words, env={"CLARIFY_TOKEN": self._token})
        async with Client(server, client_info=Implementation(name=CAPTAIN_ID, version="1")) as client:
            state = await _call(client, "ask_human", arguments)
            while state["status"] == "waiting":
                state = await _call(client, "wait_for_answer", {"id": state["id"]})
        return state["other"] or state["answer"] or more.get("default")


async def _call(client: Client, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The question's state."""
    result = await client.call_tool(tool, arguments)
    if result.is_error or result.structured_content is None:
        raise DemoError(f"{tool}: {result.content}")
    state: dict[str, Any] = result.structured_content
    return state


CHANGES = [
    {"value": f"change-{number:02d}", "label": label}
    for number, label in enumerate(
        (
            "Checkout remembers the delivery address of the last order",
            "Search understands plurals, umlauts and common typos",
            "Invoices can be downloaded for a whole year at once",
            "The basket survives a change of device",
            "Gift cards can be split over several orders",
            "Pictures of products load a third faster on slow connections",
            "Returns are confirmed by email, and by text message if a number is known",
            "Sign in with passkeys as well as passwords",
            "Prices include the tax of the delivery country",
            "Reviews can be filtered by language and by the variant bought",
            "Two people can share one wish list",
            "Accessibility: every step of the checkout works with the keyboard alone",
        ),
        start=1,
    )
]

MAILING: dict[str, Any] = {
    "type": "object",
    "properties": {
        "audience": {
            "type": "string",
            "title": "Recipients",
            "oneOf": [
                {"const": "all", "title": "All 1,204 subscribers"},
                {"const": "tenth", "title": "10% of them first"},
            ],
            "default": "tenth",
        },
        "at": {"type": "string", "format": "date-time", "title": "When"},
        "reply_to": {"type": "string", "format": "email", "title": "Replies go to"},
        "languages": {
            "type": "array",
            "title": "Languages",
            "items": {"type": "string", "enum": ["English", "German", "French", "Spanish"]},
            "minItems": 1,
        },
        "survey": {"type": "boolean", "title": "Include the survey", "default": False},
        "note": {"type": "string", "title": "Note to the support team", "maxLength": 500},
    },
    "required": ["audience", "at", "reply_to", "languages", "survey"],
}

_PARTS = (
    "checkout", "search", "basket", "invoices", "gift cards", "returns", "sign-in", "reviews", "wish lists",
    "delivery times", "product pictures", "price display", "order history", "address book", "newsletter",
    "stock levels", "size guide", "recommendations", "customer service chat", "cookie settings",
)  # fmt: skip
_COMMITS = (
    "{part}: keep typed text when the connection drops, and send it once it is back",
    "{part}: load only what is on the screen; the first view takes a third of the time",
    "{part}: explain what went wrong and what to do about it",
    "{part}: works with the keyboard alone, and tells screen readers what changed",
    "{part}: fix the rounding of amounts in currencies without cents",
    "{part}: fail the tests when customers have to wait longer",
    "{part}: show dates and times in the time zone of the customer",
    "{part}: remove what no one used in the last year",
)


def body(version: str, first: str) -> str:
    """The words of the mail: more than a card can hold, so that it needs View full."""
    begins = next(change["label"] for change in CHANGES if change["value"] == first)
    numbered = enumerate((commit.format(part=part) for part in _PARTS for commit in _COMMITS), start=2101)
    commits = "\n".join(f"SHOP-{number} {commit}" for number, commit in numbered)
    return f"The shop {version} is here. {begins}.\n\nEverything new:\n{commits}"
