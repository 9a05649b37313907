"""Reads the questions that agents ask directly, over HTTP, MCP or a hook, and returns their state.

All three ways make the same question. In the ledger it is a clarification like any other. Pure.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from core.answers import describe
from core.approvals import MOST_APPROVALS, approved_by, trouble_with
from core.clarification import (
    DECISIONS,
    Ask,
    Choice,
    Clarification,
    Confirmation,
    Direct,
    DirectKind,
    Entry,
    Kind,
    Question,
    Requester,
    Round,
)
from core.clock import iso
from core.errors import BadInput
from core.forms import MOST_FIELDS, Form, Misfits, misfits, read_form
from core.names import first_double, resembles, skeleton, whole_characters
from core.schemas import BadSchema, TooSlow, dotted, schema_of
from core.workflow import CONTROLS

REDACTED = "[redacted]"  # replaces what a producer's `redact` removes
QUESTION_LIMIT = 16_384
CONTEXT_LIMIT = 65_536
LONGEST_TIMEOUT = 30 * 86_400
DEFAULT_TIMEOUT = 3600
_HIGHEST_ISSUE = 100_000
_NAME = 256
_PERSON = r"^([UW][A-Z0-9]{2,20}|[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,190})$"
_LARGEST_NUMBER = 2**53
_RECORD_KINDS: dict[DirectKind, tuple[Kind, ...]] = {
    "yes_no": ("yes_no",),
    "choice": ("multiple_choice",),
    "number": ("numeric",),
    "text": ("freetext",),
    "approval": ("confirmation",),
    "form": ("form",),
}
_KINDS_OF_RECORDS = {kind: name for name, (kind,) in _RECORD_KINDS.items()}
_KINDS_WITH: dict[str, tuple[DirectKind, ...]] = {
    "choices": ("choice",),
    "multiple": ("choice",),
    "other": ("choice",),
    "action": ("approval",),
    "consequence": ("approval",),
    "risk": ("approval",),
    "irreversible": ("approval",),
    "arguments": ("approval",),
    "editable": ("approval",),
    "approvals": ("approval",),
    "arguments_schema": ("approval",),
    "schema": ("form",),
}
Status = Literal["waiting", "answered", "expired", "withdrawn", "closed"]


class BadField(BadInput):
    """A question has an invalid field. The message names the field and what it must be, and does not repeat its value.

    `field`: its path; None if the error is not in one field, or if the field's name must not be repeated.
    """

    def __init__(self, field: str | None, message: str) -> None:
        super().__init__(message)
        self.field = field


def _seconds(value: object) -> object:
    """Returns a JSON number unchanged; refuses strings and booleans, which pydantic would convert."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("no number")  # noqa: TRY004 - pydantic takes no TypeError; `_MUST_BE` has the words
    return value


def _whole_number(value: object) -> object:
    """Returns 42 for 42.0, which is the same number in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Flag = Annotated[bool, WithJsonSchema({"anyOf": [{"type": "boolean"}, {"type": "null"}]})]
WholeNumber = Annotated[int, BeforeValidator(_whole_number)]
_Seen = r"\S"
# One line with a visible character, and without control characters.
_Named = rf"^[^{CONTROLS}]*[^\s{CONTROLS}][^{CONTROLS}]*$"


class GivenChoice(BaseModel):
    """A choice. `label`: the text people read; by default, the value."""

    model_config = ConfigDict(extra="forbid", strict=True)

    value: str = Field(min_length=1, max_length=1000, pattern=_Seen)
    label: str | None = Field(default=None, min_length=1, max_length=1000, pattern=_Seen)
    description: str | None = Field(default=None, max_length=2000)


def _choice_from_text(value: object) -> object:
    return {"value": value} if isinstance(value, str) else value


_Choice = Annotated[GivenChoice, BeforeValidator(_choice_from_text, json_schema_input_type=str | GivenChoice)]


def _add_kinds(schema: dict[str, Any]) -> None:
    """Adds the fields of each kind to the OpenAPI schema; `_check` enforces them."""
    nothing: dict[str, Any] = {"enum": [None, False]}

    def shape(
        kind: DirectKind, required: list[str], default: dict[str, Any], *, implied: bool
    ) -> dict[str, Any]:
        named = {} if implied else {"kind": {"const": kind}}
        fixed: dict[str, Any] = {
            "kind": {"enum": [kind, None]} if implied else named["kind"],
            "default": default,
        }
        types = {"choices": "array", "schema": "object"}
        fixed |= {name: {"type": types.get(name, "string")} for name in required}
        fixed |= {name: nothing for name, kinds in _KINDS_WITH.items() if kind not in kinds}
        return {"title": kind, "required": required + list(named), "properties": fixed}

    text: dict[str, Any] = {"type": ["string", "null"], "pattern": _Seen}
    schema["anyOf"] = [
        shape("text", ["question"], text, implied=True),
        shape("choice", ["question", "choices"], {}, implied=True),
        shape("approval", ["action"], {"enum": ["reject", None]}, implied=True),
        shape("form", ["question", "schema"], {}, implied=True),
        shape("yes_no", ["question"], {"type": ["boolean", "null"]}, implied=False),
        shape(
            "number",
            ["question"],
            {"type": ["number", "null"], "minimum": -_LARGEST_NUMBER, "maximum": _LARGEST_NUMBER},
            implied=False,
        ),
    ]


_FORM = f"""A form: a flat JSON Schema object of at most {MOST_FIELDS} fields, as written by pydantic, zod and MCP elicitation.
Fields: string (minLength, maxLength, format email, uri, uuid, date, time or date-time, with or without a pattern), number and integer with bounds,
boolean, choices (enum, or oneOf of const and title), array of choices, strings or numbers (minItems, maxItems); with title,
description, default. Or the schema of a single such field: then the answer is its value"""
_EXAMPLE = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "title": "Region", "enum": ["eu", "us"]},
        "replicas": {"type": "integer", "title": "Replicas", "minimum": 1, "maximum": 9, "default": 3},
    },
    "required": ["region"],
}


def _add_form(schema: dict[str, Any]) -> None:
    """Adds what all forms have in common to the OpenAPI schema; `read_form` checks the rest."""
    fields = {"type": "object", "minProperties": 1, "maxProperties": MOST_FIELDS}
    whole = {
        "required": ["properties"],
        "properties": {
            "type": {"const": "object"},
            "properties": fields | {"additionalProperties": {"type": "object"}},
        },
    }
    single = {"not": {"required": ["properties"]}, "minProperties": 1}
    schema["anyOf"][0] |= {"anyOf": [whole, single]}


class NewQuestion(BaseModel):
    """A question as an agent asks it. You can omit `kind`: `choice` with `choices`, `form` with `schema`, `approval` with
    `action`, else `text`.
    """

    # After validation its kind is set, its texts are plain, and its choices are distinct and have labels.

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra=_add_kinds)

    question: str | None = Field(
        default=None,
        min_length=1,
        max_length=QUESTION_LIMIT,
        pattern=_Seen,
        description="The question; required, except for an approval (see `action`)",
        examples=["Which database?"],
    )
    kind: DirectKind | None = Field(
        default=None, description="The kind of answer you need; by default, derived from the other fields"
    )
    choices: list[_Choice] | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        examples=[["PostgreSQL", "SQLite"]],
        description="The choices: strings, or objects with `value`, `label` and `description`",
    )
    multiple: _Flag = Field(default=False, description="People can pick several choices")
    other: _Flag = Field(default=False, description="People can also write their own answer")
    context: str | None = Field(
        default=None, max_length=CONTEXT_LIMIT, description="Background the person needs to answer"
    )
    agent: str | None = Field(
        default=None,
        min_length=1,
        max_length=_NAME,
        pattern=_Named,
        description="The agent's name; by default, the producer's name",
    )
    session: str | None = Field(
        default=None,
        min_length=1,
        max_length=_NAME,
        pattern=_Named,
        description="Questions with the same session share a Slack thread; without it, the question gets a thread of its own",
    )
    to: str | None = Field(
        default=None,
        pattern=_PERSON,
        description="The only person who may answer: an email address or a Slack user ID",
        examples=["U0FOLAKE"],
    )
    action: str | None = Field(
        default=None,
        min_length=1,
        max_length=QUESTION_LIMIT,
        pattern=_Seen,
        description="What you are about to do; makes it an approval",
    )
    consequence: str | None = Field(
        default=None,
        min_length=1,
        max_length=QUESTION_LIMIT,
        pattern=_Seen,
        description="What happens as a result, and who is affected",
    )
    risk: Literal["low", "medium", "high"] | None = Field(
        default=None, description="How much damage a mistake would do; default: medium"
    )
    irreversible: _Flag = Field(
        default=False, description="The action cannot be undone; then `risk` must be medium or high"
    )
    arguments: dict[str, Any] | None = Field(
        default=None, description="The exact arguments of the action, up to 256 KiB; people see all of them"
    )
    arguments_schema: dict[str, Any] | None = Field(
        default=None,
        description="The JSON Schema of `arguments`, such as a tool's input schema: people get menus for its choices, and what they "
        "edit must fit it",
    )
    editable: _Flag = Field(default=False, description="People can edit the arguments before they approve")
    approvals: WholeNumber | None = Field(
        default=None,
        ge=1,
        le=MOST_APPROVALS,
        description="How many different people must approve; the route may require more",
    )
    form: dict[str, Any] | None = Field(
        default=None, alias="schema", description=_FORM, json_schema_extra=_add_form, examples=[_EXAMPLE]
    )
    timeout: Annotated[
        float,
        BeforeValidator(
            _seconds, json_schema_input_type=Annotated[float, Field(ge=1, le=LONGEST_TIMEOUT)] | None
        ),
        Field(ge=1, le=LONGEST_TIMEOUT, strict=False),
    ] = Field(default=DEFAULT_TIMEOUT, description="Seconds until the question expires")
    default: Any = Field(
        default=None, description="The answer you assume if no one answers; must be a valid answer"
    )
    escalate: _Flag = Field(default=True, description="Page the person on call if no one answers")
    requested_by: str | None = Field(
        default=None,
        pattern=_PERSON,
        description="The person you work for: an email address or a Slack user ID. Shown as what you say; where the route "
        "demands four eyes, they can't approve",
        examples=["ann@example.com"],
    )
    key: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        pattern=r"^[ -~]+$",
        description="Idempotency key: repeating a request with the same key returns the same question",
    )
    callback_url: str | None = Field(
        default=None,
        min_length=1,
        max_length=2000,
        repr=False,
        description="Where the final state is posted; must be allowed by `callbacks` of your [[producers]] table. A repetition "
        "under the same `key` replaces it",
        examples=["https://api.trigger.dev/api/v1/waitpoints/tokens/waitpoint_1/callback/0123"],
    )
    issue: WholeNumber | None = Field(
        default=None,
        ge=1,
        le=_HIGHEST_ISSUE,
        description="The number of the issue the question belongs to",
    )
    topic: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        pattern=_Seen,
        description="The topic, in a few words",
    )

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, value: Any, read: Callable[[Any], Self]) -> Self:
        """Reads a question. Does not pass on pydantic's messages, which name classes and repeat the input.

        Raises:
            BadField: about the first invalid field.
        """
        if isinstance(value, cls):
            return value
        try:
            # A field that is null is left out: many clients send all of them.
            given = (
                {name: each for name, each in value.items() if each is not None}
                if isinstance(value, dict)
                else value
            )
            new = read(given)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise _bad_field(first["loc"], first["type"]) from None
        _check(new)
        return new

    @field_validator("question", "agent", "session", "context", "action", "consequence", "topic")
    @classmethod
    def _plain(cls, text: str | None) -> str | None:
        return plain(text) if text else None

    @classmethod
    def restored(cls, stored: dict[str, Any]) -> NewQuestion:
        """Returns the question of `model_dump`, without checking it again."""
        fields = {"schema" if name == "form" else name: each for name, each in stored.items()}
        fields["choices"] = [GivenChoice.model_construct(**each) for each in stored["choices"] or ()] or None
        return cls.model_construct(**fields)

    @property
    def digest(self) -> str:
        """A digest of all fields but `key`, `timeout`, `requested_by` and `callback_url`."""
        fields = self.model_dump(mode="json", exclude={"timeout", "key", "requested_by", "callback_url"})
        fields |= {"risk": self.risk or "medium", "approvals": self.approvals or 1}
        return hashlib.blake2b(json.dumps(fields, sort_keys=True).encode(), digest_size=16).hexdigest()


_FIELD_NAME = re.compile(r"(choices\.[0-9]+\.)?[A-Za-z0-9_]{1,64}")
_HALF = "contains half of a character (a lone surrogate). Remove it."
_PROBLEMS = {"missing": "is required.", "string_unicode": _HALF}
_ONE_LINE = f"a string of 1 to {_NAME} characters on one line, without control characters"
_MUST_BE = {
    "question": f"a string of 1 to {QUESTION_LIMIT:,} characters that is not blank",
    "kind": "yes_no, choice, number, text, approval or form",
    "choices": "a list of 1 to 100 choices: strings, or objects with `value`",
    "multiple": "true or false",
    "other": "true or false",
    "context": f"a string of at most {CONTEXT_LIMIT:,} characters",
    "agent": _ONE_LINE,
    "session": _ONE_LINE,
    "to": "an email address or a Slack user ID, such as U0FOLAKE",
    "action": f"a string of 1 to {QUESTION_LIMIT:,} characters that is not blank",
    "consequence": f"a string of 1 to {QUESTION_LIMIT:,} characters that is not blank",
    "risk": "low, medium or high",
    "irreversible": "true or false",
    "arguments": "an object",
    "arguments_schema": "a JSON Schema object",
    "editable": "true or false",
    "approvals": f"a whole number from 1 to {MOST_APPROVALS}",
    "schema": "a JSON Schema object",
    "timeout": f"a number of seconds from 1 to {LONGEST_TIMEOUT:,}",
    "escalate": "true or false",
    "requested_by": "an email address or a Slack user ID, such as U0FOLAKE",
    "callback_url": "a URL of at most 2,000 characters",
    "key": "a string of 1 to 200 printable ASCII characters",
    "issue": f"a whole number from 1 to {_HIGHEST_ISSUE:,}",
    "topic": "a string of 1 to 200 characters that is not blank",
}
_CHOICE_MUST_BE = {
    "value": "a string of 1 to 1,000 characters that is not blank",
    "label": "a string of 1 to 1,000 characters that is not blank",
    "description": "a string of at most 2,000 characters",
}


def _bad_field(place: tuple[int | str, ...], trouble: str) -> BadField:
    """Returns the error of a pydantic problem. `place`: the path of the field; `trouble`: pydantic's type of error."""
    if not place:
        is_name = trouble == "string_unicode"
        return BadField(None, f"A field's name {_HALF}" if is_name else "A question must be a JSON object.")
    field = ".".join(map(str, place))
    shown = re.sub(r"\.(\d+)", r"[\1]", field)
    if trouble == "extra_forbidden":
        return _unknown_field(field, shown)
    if trouble in _PROBLEMS:
        return BadField(field, f"`{shown}` {_PROBLEMS[trouble]}")
    name, is_choice = str(place[-1]), place[0] == "choices" and len(place) > 1
    expected = (
        _CHOICE_MUST_BE.get(name, "a string or an object with `value`") if is_choice else _MUST_BE[name]
    )
    return BadField(field, f"`{shown}` must be {expected}.")


def _unknown_field(field: str, shown: str) -> BadField:
    if not _FIELD_NAME.fullmatch(field):
        return BadField(None, "The question has an unknown field. Remove it.")
    if "[" in shown:
        return BadField(
            field, f"`{shown}` is not a field of a choice. Use `value`, `label` and `description`."
        )
    return BadField(field, f"`{shown}` is not a field of a question. Remove it, or check its spelling.")


def _check(new: NewQuestion) -> None:
    """Sets the kind and the labels of choices, and checks that the fields fit together.

    Raises:
        BadField: about the first invalid field.
    """
    kind = new.kind = _kind(new)
    for name, kinds in _KINDS_WITH.items():
        given = getattr(new, "form" if name == "schema" else name)
        if given not in (None, False) and kind not in kinds:
            raise BadField(
                name,
                f"`{name}` works only with the kind {kinds[0]}, not {kind}. Remove it, or change `kind`.",
            )
    if kind == "approval" and new.action is None:
        raise BadField("action", "`action` is required for an approval: say what the agent is about to do.")
    if kind != "approval" and new.question is None:
        raise BadField("question", "`question` is required.")
    if new.irreversible and new.risk == "low":
        raise BadField("irreversible", "`irreversible` requires `risk` medium or high, not low.")
    for name, value in (
        ("arguments", new.arguments),
        ("arguments_schema", new.arguments_schema),
        ("schema", new.form),
        ("default", new.default),
    ):
        _check_json(name, value)
    new.choices = _choices(new) or None
    check_form(new)
    _check_arguments(new)
    if new.default is not None and kind != "form":
        _check_default(new)


def check_form(question: NewQuestion) -> None:
    """Checks the schema and the default of a form. Other kinds always pass.

    Raises:
        BadField: about the invalid part.
    """
    if question.kind != "form":
        return
    try:
        form = read_form(question.form)
    except BadSchema as error:
        field = f"schema.{error.where}".rstrip(".")
        raise BadField(field, f"`{field}` is invalid. {error}") from None
    if question.default is None:
        return
    if not form.is_single and not isinstance(question.default, dict):
        raise BadField("default", "`default` must be an object with the fields of the form.")
    try:
        form.checked(form.values(question.default))
    except Misfits as error:
        raise BadField("default", f"`default` must be a valid answer to the form. {error}") from None


def check_arguments_schema(question: NewQuestion) -> None:
    """Raises BadField about the invalid part of `arguments_schema`."""
    if question.arguments_schema is None:
        return
    try:
        schema_of(question.arguments_schema)
    except BadSchema as error:
        field = f"arguments_schema.{error.where}".rstrip(".")
        raise BadField(field, f"`{field}` is invalid. {error}") from None


def _check_arguments(question: NewQuestion) -> None:
    """Checks `arguments_schema`, and the arguments against it.

    Raises:
        BadField: about the invalid part.
    """
    check_arguments_schema(question)
    if question.arguments_schema is None:
        return
    try:
        problems = misfits(question.arguments_schema, question.arguments or {})
    except TooSlow:
        raise BadField(
            "arguments_schema",
            "`arguments_schema` has patterns that take too long to check these `arguments`.",
        ) from None
    if problems:
        field = dotted(("arguments", *problems[0].path))
        raise BadField(field, f"`{field}` does not fit `arguments_schema`. {problems[0].message}")


def ask_of(question: NewQuestion, *, producer: str, token: str, at: datetime, expires_at: datetime) -> Ask:
    """Returns the question as the router takes it."""
    kind, confirmation = _kind(question), _confirmation(question)
    form = None if question.form is None else read_form(question.form)
    choices = (_choices_of_form(form) if form is not None else question.choices) or ()
    asked = Question(
        producer=producer,
        session_id=question.session or token,
        event_id=token,
        reply_token=token,
        asked_at=at,
        received_at=at,
        expires_at=expires_at,
        kinds=(*_record_kinds(question), *(("freetext",) if question.other else ())),
        choices=tuple(Choice(each.value, each.label or each.value) for each in choices),
        multi_select=question.multiple
        or (bool(choices) and form is not None and form.fields[0].type == "choices"),
        context=None if confirmation else question.context,
        default_response=None if question.default is None else _default_text(question),
        direct=Direct(
            kind=kind,
            key=question.key,
            default=question.default,
            descriptions=tuple(each.description for each in choices)
            if any(each.description for each in choices)
            else (),
            person=question.to,
            escalate=question.escalate,
            form=question.form,
        ),
        approvals_needed=question.approvals if question.approvals != 1 else None,
        requested_by=None if question.requested_by is None else Requester(by=question.requested_by),
        wanted=confirmation,
    )
    words = confirmation.words if confirmation else question.question or ""
    return Ask(question.agent or producer, words, "human", question.topic, blocking=True, asked=asked)


def four_eyes_trouble(asked: Question) -> BadField | None:
    """Returns why an approval could never be given under the rules of its route: four eyes are demanded, and it is not known
    whom the agent works for, or only that person may answer.
    """
    if asked.lacks_requester and asked.four_eyes == "claimed":
        why = "`requested_by` is required: someone other than the person you work for must approve this."
        return BadField("requested_by", why)
    if asked.lacks_requester:
        return BadField(
            "requested_by",
            "Someone other than the person you work for must approve this, and the bot was not told who that is. Set "
            "`requested_by` in your [[producers]] table.",
        )
    requester, person = asked.barred, asked.direct.person if asked.direct else None
    if requester is None or person is None or person.casefold() != requester.by.casefold():
        return None
    return BadField("to", "`to` is the person you work for, who can't approve this. Ask someone else.")


def labels_trouble(asked: Question, buttons: Collection[str]) -> BadField | None:
    """Returns why people could not tell the labels of a question's choices apart from each other, or from the `buttons` that
    its card may have besides.
    """
    labels, form = [each.label for each in asked.choices], asked.form
    is_form = asked.direct is not None and asked.direct.form is not None
    for place, label in enumerate(labels):
        if resembles(label, buttons):
            field = "schema" if is_form else f"choices.{place}"
            where = f"Choice {place + 1} of `schema`" if is_form else f"`choices[{place}]`"
            return BadField(
                field,
                f"{where} looks like one of the bot's own buttons. Give it another label, in more words. To have an "
                "action accepted or rejected, ask for an approval instead.",
            )
    if (trouble := _look_alike(labels)) is not None:
        return BadField("choices", f"`choices` has labels that people cannot tell apart. {trouble}")
    for each in form.fields if form is not None else ():
        if (trouble := _look_alike([option.label for option in each.options])) is not None:
            where = "schema" if form is not None and form.is_single else f"schema.properties.{each.name}"
            return BadField(where, f"`{where}` has choices that people cannot tell apart. {trouble}")
    return None


def _look_alike(labels: Sequence[str]) -> str | None:
    if (
        blank := next((n for n, label in enumerate(labels, 1) if label and not skeleton(label)), None)
    ) is not None:
        return f"Number {blank} is invisible: give it a label."
    if (double := first_double(labels)) is None:
        return None
    return "Numbers {} and {} look the same: give each its own label.".format(
        *(place + 1 for place in double)
    )


def state_of(record: Clarification, link: str | None = None) -> dict[str, Any]:
    """Returns the state of a question as HTTP, MCP and hooks report it. `link`: the URL of its card."""
    asked, direct = record.asked, record.asked.direct
    if direct is None:
        raise BadInput(f"{record.id} is not a question asked over HTTP or MCP.")
    outcome, given = outcome_of(record), record.given
    status, closing, is_answered = outcome.status, outcome.closing, outcome.status == "answered"
    answer, other = answer_in(record.current) if is_answered else (None, None)
    decided_at = given.answered_at if is_answered else record.resolved_at if closing else None
    return {
        "id": record.id,
        "kind": direct.kind,
        "agent": record.from_,
        "session": asked.session_id,
        "key": direct.key,
        "status": status,
        "escalated": record.status == "escalated",
        "claimed_by": record.claimed_by if status == "waiting" else None,
        "answer": answer,
        "label": given.label if is_answered else None,
        "other": other,
        "comment": outcome.comment,
        "decided_by": outcome.by,
        "decided_at": iso(decided_at) if decided_at else None,
        "default": direct.default,
        "approved_by": approved_by(record.current),
        "approvals_needed": asked.needed,
        "created_at": iso(record.created),
        "expires_at": iso(asked.expires_at) if asked.expires_at else None,
        "link": link,
    }


def asked_and_receipt(record: Clarification) -> dict[str, Any]:
    """Returns what `GET /questions/{id}` and callbacks give beside the state: what was asked, and the decision's receipt."""
    return {"asked": asked_in(record), "receipt": record.current.receipt}


KNOWN_PARTS = frozenset({"guard"})
"""The integrations whose part of a receipt verifiers know by its form (`clarify.PARTS`)."""


def asked_in(record: Clarification) -> dict[str, Any]:
    """Returns what was asked, by the names of the fields of `POST /questions`: after redaction, without the fields that are not
    set. What an integration says of it stands under its name, if verifiers know its form (`KNOWN_PARTS`), else in `about`.

    `approvals` is the number in force: the route may have raised it.
    """
    asked, wanted = record.asked, record.current.confirmation
    direct = asked.direct
    extra = (wanted.extra_context if wanted and direct else None) or {}
    silent = wanted.default_decision if wanted else asked.default_response
    fields = {
        "question": extra.get("question") if wanted else record.question,
        "action": wanted.action if wanted else None,
        "context": extra.get("context") if wanted and direct else asked.context,
        "choices": _choices_in(asked),
        "multiple": asked.multi_select or None,
        "schema": direct.form if direct else None,
        "consequence": wanted.consequence if wanted else None,
        "risk": risk_of(wanted) if wanted else None,
        "irreversible": (wanted.irreversible or None) if wanted else None,
        "arguments": wanted.sent if wanted else None,
        "approvals": asked.needed if wanted else None,
        "default": direct.default if direct else silent,
    }
    kind = direct.kind if direct else _KINDS_OF_RECORDS[record.kind]
    about = (direct.about if direct else None) or {}
    parts: dict[str, Any] = {name: each for name, each in about.items() if name in KNOWN_PARTS}
    if others := {name: each for name, each in about.items() if name not in KNOWN_PARTS}:
        parts["about"] = others
    return {"kind": kind, **parts} | {name: each for name, each in fields.items() if each is not None}


def risk_of(wanted: Confirmation) -> dict[str, str | None] | None:
    """Returns the risk of an action as its agent `claimed` it, and as its route `counted` it; None: neither is set."""
    counted = wanted.risk_level
    claimed = {None: counted, "not said": None}.get(wanted.claimed_risk, wanted.claimed_risk)
    return {"claimed": claimed, "counted": counted} if counted or claimed else None


def _choices_in(asked: Question) -> list[dict[str, Any]] | None:
    descriptions = (asked.direct.descriptions if asked.direct else ()) or (None,) * len(asked.choices)
    return [
        {"value": choice.value, "label": choice.label} | ({"description": description} if description else {})
        for choice, description in zip(asked.choices, descriptions, strict=True)
    ] or None


def answer_in(current: Round) -> tuple[Any, str | None]:
    """Returns the answer in the shape of its kind, and a person's own text if choices were asked."""
    direct, response = current.question.direct, current.given.response
    if direct is None or response is None:
        return None, None
    if direct.kind == "approval":
        return {"decision": response, "arguments": current.arguments}, None
    if (
        direct.kind == "choice"
        and isinstance(response, str)
        and response not in {o.value for o in current.question.choices}
    ):
        return ([] if current.question.multi_select else None), response
    if direct.kind == "choice" and current.question.multi_select and isinstance(response, str):
        return [response], None
    return response, None


def _kind(new: NewQuestion) -> DirectKind:
    if new.kind is not None:
        if new.kind == "choice" and not new.choices:
            raise BadField("choices", "`choices` is required for the kind choice.")
        if new.kind == "form" and new.form is None:
            raise BadField("schema", "`schema` is required for the kind form.")
        return new.kind
    if new.choices is not None:
        return "choice"
    if new.form is not None:
        return "form"
    return "approval" if new.action is not None else "text"


def _record_kinds(question: NewQuestion) -> tuple[Kind, ...]:
    """Returns the kinds of the record. A form of a single Yes or No, or of choices, is asked as such."""
    form = None if question.form is None else read_form(question.form)
    if form is not None and form.is_single and form.fields[0].type == "boolean":
        return ("yes_no",)
    return (
        ("multiple_choice",)
        if form is not None and _choices_of_form(form)
        else _RECORD_KINDS[_kind(question)]
    )


def _choices_of_form(form: Form) -> list[GivenChoice] | None:
    """Returns the choices of a form that is nothing else, if a choice can have its values; otherwise None."""
    field = form.fields[0]
    several = field.type == "choices" and not (field.least or 0) > 1 and field.most is None
    if not form.is_single or not (field.type == "choice" or several):
        return None
    try:
        found = [
            GivenChoice(value=each.value, label=plain(each.label), description=each.description)  # type: ignore[arg-type]
            for each in field.options
        ]
    except ValidationError:
        return None
    return found if all(plain(each.value) == each.value for each in found) else None


def _choices(new: NewQuestion) -> list[GivenChoice]:
    found: dict[str, GivenChoice] = {}
    for place, each in enumerate(new.choices or ()):
        value = plain(each.value)
        if value in found:
            raise BadField(
                f"choices.{place}",
                f"Duplicate choice: `choices[{place}]` repeats the value of an earlier choice.",
            )
        label = plain(each.label or each.value)
        found[value] = GivenChoice(
            value=value,
            label=label,
            description=None if each.description is None else plain(each.description),
        )
    return list(found.values())


def _check_json(name: str, value: Any) -> None:
    if (trouble := trouble_with(value)) is not None:
        raise BadField(name, f"`{name}` is invalid. {trouble}")
    if _has_half(value):
        # All halves are stored alike: two names could become one, and the approved action not the one that runs.
        raise BadField(name, f"`{name}` {_HALF}")


def _check_default(question: NewQuestion) -> None:
    """Raises BadField unless the default is an answer that a person could give."""
    values, default = [each.value for each in question.choices or ()], question.default
    match question.kind:
        case "yes_no":
            fits, expected = isinstance(default, bool), "true or false"
        case "number":
            fits = isinstance(default, (int, float)) and not isinstance(default, bool)
            fits, expected = fits and abs(default) <= _LARGEST_NUMBER, "a number"
        case "text":
            fits, expected = isinstance(default, str) and bool(default.strip()), "a string that is not blank"
        case "approval":
            fits, expected = default == "reject", '"reject"; silence never approves'
        case "choice" if question.multiple:
            fits = isinstance(default, list) and all(each in values for each in default)
            fits, expected = (
                fits and 0 < len(set(default)) == len(default),
                "a list of one or more of the choices, without duplicates",
            )
        case "choice":
            fits, expected = default in values, "one of the choices"
    if not fits:
        raise BadField("default", f"`default` must be {expected}.")


def _default_text(question: NewQuestion) -> str:
    default = question.default
    if question.form is not None:
        form = read_form(question.form)
        return form.lines(form.values(default)).replace("\n", "; ")
    if isinstance(default, list):
        labels = {each.value: each.label or each.value for each in question.choices or ()}
        return ", ".join(labels[each] for each in default)
    return ("yes" if default else "no") if isinstance(default, bool) else describe(default)


def _confirmation(question: NewQuestion) -> Confirmation | None:
    if question.kind != "approval" or question.action is None:
        return None
    extra = {"question": question.question, "context": question.context}
    return Confirmation(
        action=question.action,
        consequence=question.consequence,
        risk_level=question.risk or "medium",
        irreversible=question.irreversible or None,
        default_decision=None if question.default is None else "reject",
        allowed_replies=DECISIONS,
        extra_context={name: each for name, each in extra.items() if each} or None,
        sent=question.arguments,
        editable=question.editable,
        arguments_schema=question.arguments_schema,
    )


def status_of(record: Clarification) -> Status:
    """Returns the status of a question as its asker sees it."""
    if record.is_open:
        return "waiting"
    match record.current.closed:
        case None | "resolved elsewhere" if record.given.response is not None:
            return "answered"
        case "expired" | "withdrawn" as reason:
            return reason
    return "closed"


class Outcome(NamedTuple):
    """The outcome of a question. `by`: the person who answered or closed it; `comment`: their reason; `closing`: the entry that
    closed it without an answer.
    """

    status: Status
    by: str | None
    comment: str | None
    closing: Entry | None = None


def outcome_of(record: Clarification) -> Outcome:
    status = status_of(record)
    if status == "answered":
        return Outcome(status, record.given.decided_by, record.given.rationale)
    last = record.thread[-1] if record.thread and not record.is_open else None
    comment = last.body.removeprefix(f"Abandoned: {record.current.closed}.").strip() if last else ""
    closing = last if status == "closed" else None
    return Outcome(status, closing.from_ if closing else None, comment or None, closing)


def plain(text: str) -> str:
    """Returns `text` with U+FFFD for characters that storage cannot hold: lone surrogates, and NUL in PostgreSQL."""
    return whole_characters(text).replace("\0", "\ufffd")


def _has_half(value: Any) -> bool:
    """Whether any string in `value`, also a name, contains a lone surrogate."""
    if isinstance(value, str):
        return whole_characters(value) != value
    if isinstance(value, dict):
        return any(map(_has_half, value)) or any(map(_has_half, value.values()))
    return isinstance(value, list) and any(map(_has_half, value))
