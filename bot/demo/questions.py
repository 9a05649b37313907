"""What the demo's agent asks: one question of each kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bot.demo.reviewer import ROLE

TIMEOUT_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class Question:
    """A question as the agent thinks of it; `payload` gives its part of the event."""

    topic: str
    text: str
    kinds: tuple[str, ...]
    choices: tuple[tuple[str, str], ...] = ()  # (value, label)
    context: str | None = None
    default: str | None = None
    default_value: str | bool | float | None = None
    several: bool = False
    timeout_seconds: int = TIMEOUT_SECONDS
    to: str | None = None  # another agent's role; None: people

    def payload(self) -> dict[str, Any]:
        """Build the event's fields. Asked again on the same topic, it is a follow-up."""
        agentx = {"topic": self.topic} if self.to is None else {"topic": self.topic, "to": self.to}
        fields: dict[str, Any] = {
            "question": self.text,
            "timeout_seconds": self.timeout_seconds,
            "accepted_response_kinds": list(self.kinds),
            "summary_normal": self.text if len(self.text) <= 200 else self.text[:199] + "…",
            "extensions": {"agentx": agentx},
        }
        if self.choices:
            fields["choices"] = [{"value": value, "label": label} for value, label in self.choices]
        if self.several:
            fields["multi_select"] = True
        if self.context:
            fields["context"] = self.context
        if self.default is not None:
            fields["default_response"] = self.default
        return fields


def start(version: str) -> Question:
    return Question(
        topic=f"start {version}",
        text=f"All 412 tests of {version} are green. Shall I start the release?",
        kinds=("yes_no",),
        context="The last release was nine days ago. Nobody else is deploying.",
        default="no",
        default_value=False,
    )


def review(version: str) -> Question:
    """Ask the other agent, which answers within seconds; people may be faster."""
    return Question(
        topic=f"security of {version}",
        text=f"Does {version} need a security review before it goes out?",
        kinds=("freetext",),
        context="Changed: checkout, search, invoices, basket.",
        to=ROLE,
    )


def where_first(version: str) -> Question:
    return Question(
        topic=f"first environment of {version}",
        text="Where shall it go first?",
        kinds=("multiple_choice",),
        choices=(("staging", "Staging"), ("canary", "Canary"), ("production", "Production")),
        default="staging",
        default_value="staging",
    )


def regions() -> Question:
    """Several may be chosen: the labels, joined by commas, are the answer."""
    return Question(
        topic="regions",
        text="Which regions shall it go to today?",
        kinds=("multiple_choice",),
        choices=(
            ("eu", "Europe"),
            ("us", "North America"),
            ("apac", "Asia and Pacific"),
            ("sa", "South America"),
        ),
        default="Europe",
        default_value="Europe",
        several=True,
    )


def warm_caches() -> Question:
    """Ask what must be known soon; whoever answers later is told that it is too late."""
    return Question(
        topic="caches",
        text="The deployment begins in a minute. Shall I warm the caches first?",
        kinds=("yes_no",),
        default="yes",
        default_value=True,
        timeout_seconds=60,
    )


def part_of_customers(was: object = None) -> Question:
    again = "" if was is None else f"{was} % is not possible. "
    return Question(
        topic="percent of customers",
        text=f"{again}To how many percent of the customers shall I open it? A number from 1 to 100.",
        kinds=("numeric",),
        context="5 to 20 is usual for the first hour.",
        default="10",
        default_value=10,
    )


def change_to_name(version: str) -> Question:
    changes = (
        "Checkout remembers the delivery address of the last order",
        "Search understands plurals, umlauts and the most common typing errors",
        "Invoices can be downloaded for a whole year at once",
        "The basket survives a change of device",
        "Gift cards can be split over several orders",
        "Pictures of products load a third faster on slow connections",
        "Returns are announced by mail, and by message where a number is known",
        "Passkeys can be used to sign in, next to passwords",
        "Prices are shown with tax of the country of delivery",
        "Reviews can be filtered by language and by the variant bought",
        "Two people can share one wish list",
        "Accessibility: every step of the checkout works with the keyboard alone",
    )
    return Question(
        topic=f"headline of {version}",
        text="Which change shall the notes name first?",
        kinds=("multiple_choice",),
        choices=tuple((f"change-{number:02d}", label) for number, label in enumerate(changes, start=1)),
        default="change-01",
        default_value="change-01",
    )


def name_of_release(version: str) -> Question:
    return Question(
        topic=f"name of {version}",
        text="What shall we call this release? Pick a name, or write your own.",
        kinds=("multiple_choice", "freetext"),
        choices=(("Kingfisher", "Kingfisher"), ("Sandpiper", "Sandpiper"), ("Wagtail", "Wagtail")),
        default="Kingfisher",
        default_value="Kingfisher",
    )


_PARTS = (
    "checkout", "search", "basket", "invoices", "gift cards", "returns", "sign-in", "reviews", "wish lists",
    "delivery times", "product pictures", "price display", "order history", "address book", "newsletter",
    "stock levels", "size guide", "recommendations", "customer service chat", "cookie settings",
)  # fmt: skip
_CHANGES = (
    "{part}: keep what was typed when the connection drops, and send it once it is back",
    "{part}: load only what is on the screen; the first view takes a third of the time",
    "{part}: say in words what went wrong, and what can be done about it",
    "{part}: works with the keyboard alone, and tells screen readers what changed",
    "{part}: fix the rounding of amounts in currencies without cents",
    "{part}: count in tests what customers wait for, and fail when it grows",
    "{part}: show dates and times in the time zone of the customer",
    "{part}: leave out what nobody used in the last year",
)


def announcement(version: str) -> Question:
    """Ask about a whole list of commits: more than a card can hold, so that it needs View full."""
    numbered = enumerate((change.format(part=part) for part in _PARTS for change in _CHANGES), start=2101)
    commits = "\n".join(f"SHOP-{number} {change}" for number, change in numbered)
    return Question(
        topic=f"announcement of {version}",
        text=(
            f"How shall the announcement of {version} to the customers begin? One or two sentences. "
            f"These are the commits since the last release:\n\n{commits}"
        ),
        kinds=("freetext",),
        context="It goes to 1,204 customers who asked to be told.",
    )


@dataclass(frozen=True, slots=True)
class Action:
    """What the agent will not do without consent; `payload` gives its part of the event."""

    action: str
    consequence: str
    risk_level: str
    irreversible: bool
    about: dict[str, Any]
    timeout_seconds: int = TIMEOUT_SECONDS

    def payload(self) -> dict[str, Any]:
        """Build the event's fields. Without an answer it is not done."""
        return {
            "action": self.action,
            "consequence": self.consequence,
            "risk_level": self.risk_level,
            "irreversible": self.irreversible,
            "default_decision": "reject",
            "timeout_seconds": self.timeout_seconds,
            "extra_context": self.about,
            "summary_terse": "Confirm: " + self.action[:200],
            "summary_normal": f"Confirmation required. {self.action} {self.consequence}",
        }


def mailing(version: str) -> Action:
    return Action(
        action=f"Mail the announcement of {version} to 1,204 customers.",
        consequence="The mails leave at once. A mail that has left cannot be called back.",
        risk_level="high",
        irreversible=True,
        about={
            "list": "announcements",
            "recipients": 1204,
            "sender": {"name": "The shop", "address": "news@example.com"},
        },
    )


def clean_up(version: str) -> Action:
    return Action(
        action=f"Delete the build files of the release before {version}.",
        consequence="They can be built again at any time; that takes about ten minutes.",
        risk_level="low",
        irreversible=False,
        about={"files": 318, "size": "4.2 GB"},
    )


def handoff(version: str) -> dict[str, Any]:
    """Hand over to a person what the agent cannot settle."""
    return {
        "reason": "The payment provider asks for a person to confirm the new certificate by telephone.",
        "target_kind": "human",
        "target_uri": "queue://shop/platform",
        "urgency_for_handoff": "high",
        "packaged_context": {
            "release": version,
            "provider": "Example Payments",
            "certificate": "SHA-256 4F:2A:…:9C, since an hour ago",
            "tried": ["automatic confirmation", "mail to their support"],
        },
        "summary_normal": "Somebody has to call the payment provider about its new certificate.",
    }


def wording(text: str) -> str:
    """Show the beginning of an announcement."""
    first = " ".join(text.split())
    return first if len(first) <= 200 else first[:199] + "…"
