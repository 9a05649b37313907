"""What a producer's connection needs to know; main maps the settings to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Dialect = Literal["auto", "standard", "minimal", "push"]


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """One producer. `url` is its base address, None for one that pushes to us; `token` its bearer token; `agents` the
    patterns of those that may speak through it, None for any.
    """

    name: str
    url: str | None
    token: str | None = field(default=None, repr=False)
    dialect: Dialect = "auto"
    agents: tuple[str, ...] | None = None
