"""The `[[on_call]]` tables: whose turn it is, and the steps by which they are paged."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from bot.settings.table import Duration, LongerThanNothing, Name, Table, UserGroupId, UserId
from bot.settings.values import notify_target, time_zone


class StepSettings(Table):
    """One step of the escalation policy; `after` counts from the escalation."""

    after: Duration
    notify: Annotated[tuple[Annotated[str, AfterValidator(notify_target)], ...], Field(min_length=1)]
    every: LongerThanNothing | None = None


class RotationSettings(Table):
    """Whose turn it is: `users` take turns of `shift` length from `start`, in `timezone`."""

    start: datetime
    shift: LongerThanNothing
    users: Annotated[tuple[UserId, ...], Field(min_length=1)]
    timezone: Annotated[str, AfterValidator(time_zone)] = "UTC"

    @field_validator("start", mode="before")
    @classmethod
    def _midnight(cls, start: object) -> object:
        if isinstance(start, date) and not isinstance(start, datetime):
            return datetime(start.year, start.month, start.day)  # noqa: DTZ001  local time of `timezone`
        return start


class OnCallSettings(Table):
    """Whose turn it is, from exactly one source, and the steps.

    `pick`: of a group, everybody or the first who is present. `take_timeout`: taken, but neither answered
    nor handed over for this long, paging resumes.
    """

    name: Name
    users: Annotated[tuple[UserId, ...], Field(min_length=1)] | None = None
    group: UserGroupId | None = None
    rotation: RotationSettings | None = None
    pick: Literal["all", "first_present"] = "all"
    take_timeout: LongerThanNothing = timedelta(minutes=15)
    steps: Annotated[tuple[StepSettings, ...], Field(min_length=1)] = (
        StepSettings(after=timedelta(0), notify=("thread", "dm"), every=timedelta(minutes=5)),
    )

    @model_validator(mode="after")
    def _one_source_and_ordered_steps(self) -> OnCallSettings:
        given = [key for key in ("users", "group", "rotation") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(
                f"expected exactly one of users, group, rotation; got {', '.join(given) or 'none'}"
            )
        if self.group is None and self.pick != "all":
            raise ValueError(f'pick: only used with group; "{self.pick}" picks among its members')
        for index, (earlier, later) in enumerate(zip(self.steps, self.steps[1:], strict=False), start=1):
            if later.after <= earlier.after:
                raise ValueError(f"steps[{index}].after: expected later than the step before it")
        return self

    @property
    def named_users(self) -> tuple[str, ...]:
        """The users that the file names, without those of a user group."""
        return self.rotation.users if self.rotation is not None else self.users or ()
