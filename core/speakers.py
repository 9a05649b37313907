"""Which agents a producer may speak for. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from core.deadlock import agent_key


@dataclass(frozen=True, slots=True)
class Speaker:
    """A producer, and the patterns of the agents whose words may come from it; None: any. Its own name always may."""

    producer: str
    agents: tuple[str, ...] | None = None

    def may_be(self, agent_id: str) -> bool:
        """Whether an event may name this agent; case counts, as in routes."""
        return self._may_be(agent_id, self.producer, self.agents)

    def may_be_role(self, role: str) -> bool:
        """Whether it may ask, or be asked, as this role, in any spelling."""
        patterns = self.agents and tuple(agent_key(pattern) for pattern in self.agents)
        return self._may_be(agent_key(role), agent_key(self.producer), patterns)

    @staticmethod
    def _may_be(name: str, own: str, patterns: tuple[str, ...] | None) -> bool:
        return patterns is None or name == own or any(fnmatchcase(name, pattern) for pattern in patterns)
