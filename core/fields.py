"""What the ledger file's fields have in common: their names there, their times, how far they count."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

from core.clock import iso


def _utc(moment: datetime) -> datetime:
    """Others leave out the zone: then it is UTC, as the format says."""
    try:
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError("a time that UTC cannot tell") from None


_MOST = 2**53  # as far as all readers of JSON count; storage holds no more than a little beyond
Count = Annotated[int, Field(ge=-_MOST, le=_MOST)]
Moment = Annotated[datetime, AfterValidator(_utc), PlainSerializer(iso, return_type=str)]


class Record(BaseModel):
    """Frozen; camelCase in the file; unknown fields are kept."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="allow",
        frozen=True,
        ser_json_timedelta="iso8601",
    )
