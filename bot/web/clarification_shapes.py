"""What agents that ask over HTTP send and get: the JSON of `/clarifications`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from bot.shell.records import record_json
from core.aaep import whole_characters
from core.clarification import Clarification, Status
from core.request import CONTEXT_LIMIT, HIGHEST_ISSUE, TOPIC_LIMIT
from core.steering import BODY_LIMIT
from core.workflow import ROLE_LIMIT

LONGEST_WAIT = 60  # seconds
ID_PATTERN = r"^CLR-[0-9]{1,15}-[0-9]{3,15}$"
_ANY = r"\w !-/:-@\[-`{-~"  # letters and digits of any script, and what else is on a keyboard
_SEEN = _ANY.replace(" ", "")
Role = Annotated[
    str,
    Field(
        min_length=1, max_length=ROLE_LIMIT, pattern=rf"^[{_ANY}]*[{_SEEN}][{_ANY}]*$", examples=["engineer"]
    ),
]
Words = Annotated[
    str,
    Field(
        min_length=1,
        max_length=BODY_LIMIT,
        pattern=r"\S",
        description="Plain text",
        examples=["Which database?"],
    ),
]
Context = Annotated[
    str | None,
    Field(max_length=CONTEXT_LIMIT, description="What whoever answers should know"),
]


def _whole_number(value: object) -> object:
    """JSON does not tell 42.0 from 42."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Number = Annotated[int, BeforeValidator(_whole_number)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)


class Question(_Body):
    """A question of one role to another."""

    from_: Role = Field(alias="from", description="The role that asks; never a person", examples=["engineer"])
    to: Role = Field(description="The role that is asked; `human` asks people", examples=["human"])
    issue: Number = Field(
        ge=1, le=HIGHEST_ISSUE, description="The number of the issue that it is about", examples=[42]
    )
    topic: str = Field(
        max_length=TOPIC_LIMIT,
        description="What it is about, or empty; once answered, the same topic again is the next round",
        examples=["storage"],
    )
    question: Words
    blocking: bool = Field(default=True, description="Whether `from` does nothing until it has the answer")
    context: Context = None


class FollowUp(_Body):
    """The next question of the same clarification, once it was answered."""

    question: Words
    context: Context = None


class Wish(BaseModel):
    """What a caller waits for."""

    wait: int = Field(default=0, ge=0, le=LONGEST_WAIT, description="Seconds to wait for news")
    after_round: int | None = Field(default=None, ge=0, description="News: a later round, or its end")
    revision: int | None = Field(default=None, ge=0, description="News: any change since this one")


class Wanted(BaseModel):
    """Which clarifications are listed."""

    issue: int | None = Field(default=None, ge=1, le=10**15)
    status: Status | Literal["open"] | None = Field(default=None, description="`open`: takes an answer")
    after: str | None = Field(default=None, pattern=ID_PATTERN, description="`next` of the page before")
    limit: int = Field(default=50, ge=1, le=100)


class Said(BaseModel):
    """One line of a thread; `timestamp` is RFC 3339."""

    round: int
    from_: str = Field(alias="from")
    type: Literal["question", "answer", "resolution", "escalation"]
    body: str
    timestamp: str


class Shown(BaseModel):
    """A clarification: the ledger's own fields, and the answer to its latest question. Times are RFC 3339."""

    model_config = ConfigDict(extra="allow")

    id: str
    issueNumber: int  # noqa: N815 - the protocol's names
    from_: str = Field(alias="from")
    to: str
    topic: str
    blocking: bool
    status: Status
    round: int
    maxRounds: int  # noqa: N815
    created: str
    staleAfter: str | None = Field(description="When it is nudged about, or escalated, next")  # noqa: N815
    resolvedAt: str | None  # noqa: N815
    revision: int
    thread: list[Said]
    question: str
    answer: str | None = Field(description="In words; null while there is none to the latest question")
    decidedBy: str | None = Field(  # noqa: N815
        description="Who answered: `user:…`, `agent:…`, or `ledger:…` for what another program wrote"
    )
    answeredAt: str | None  # noqa: N815
    escalatedFor: str | None  # noqa: N815
    heldBack: str | None = Field(description="Why its target is not asked; people are asked instead")  # noqa: N815


class Page(BaseModel):
    """By issue and number. `next`: the value of `after` for what follows; null: that is all."""

    clarifications: list[Shown]
    next: str | None
    unreadable: list[int] = Field(description="Issues whose ledger cannot be read now, left out")


def shown(record: Clarification) -> Shown:
    """A record as everybody may see it who may see it at all: no reply token."""
    return Shown.model_validate(_whole(record_json(record)))


def _whole(value: Any) -> Any:
    """Others write ledgers, too, and half of a character cannot be sent."""
    if isinstance(value, str):
        return whole_characters(value)
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, dict):
        return {key: _whole(each) for key, each in value.items()}
    return value
