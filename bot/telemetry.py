"""Counts what happens since the start of the process, for `/metrics`.

Labels are our own kinds, states and outcomes, never what agents or people say.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from core.clarification import Clarification, Kind, Status
from core.clock import Clock
from core.summary import Seen

# Seconds.
_ANSWER_BOUNDS = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 1800.0, 3600.0, 14400.0, 43200.0, 86400.0)
_AGAIN = frozenset({"later", "unknown", "try_again"})
_ANSWERED = frozenset({"answered", "resolved"})
# The MCP tools' names; importing them would import the SDK.
_TOOLS = ("ask_human", "ask_approval", "wait_for_answer", "withdraw_question")

disable_created_metrics()  # type: ignore[no-untyped-call]  # as the library has it


class Telemetry:
    """The figures of one bot, in a registry of its own."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.registry = CollectorRegistry()
        self.answers = Histogram(
            "clarify_time_to_answer_seconds",
            "Seconds from a question to its answer",
            buckets=_ANSWER_BOUNDS,
            registry=self.registry,
        )
        self.answered = self._counter(
            "answers",
            "Answers, by the route of the agent and the kind of answer it asked for",
            "route",
            "kind",
        )
        self.changes = self._counter("status_changes", "Status changes of clarifications", "status")
        self.deliveries = self._counter(
            "deliveries",
            "Attempts to deliver a message to Slack, or a reply, callback or event to others",
            "kind",
            "outcome",
        )
        self.retries = self._counter("retries", "Failed attempts that will be retried", "kind")
        self.pages = self._counter(
            "pages", "Pages, by channel (slack or outside) and outcome", "via", "outcome"
        )
        self.outside = self._counter(
            "integration_requests",
            "Attempts of integrations to tell others, such as the host of a webhook",
            "integration",
            "party",
            "outcome",
        )
        self.requests = self._counter(
            "http_requests", "HTTP requests, by route and response status", "path", "status"
        )
        self.tools = self._counter("mcp_calls", "MCP tool calls, by outcome", "tool", "outcome")
        self.rate_limited = self._counter(
            "slack_rate_limited", "Slack calls rejected by a rate limit", "method"
        )
        self._begin(self.changes, get_args(Status))
        self._begin(self.deliveries, ["callback"], ["never"])
        self._begin(self.retries, ("card", "notice", "nudge", "page", "reply"))
        self._begin(self.pages, ("slack", "outside"), ("sent", "failed"))
        self._begin(self.tools, _TOOLS, ("done", "refused", "failed", "left"))
        self._begin(self.rate_limited, ["chat.postMessage"])

    def know(self, routes: Iterable[str], parties: Iterable[tuple[str, str]]) -> None:
        """Has figures for all routes, and for the parties of integrations, before anything happens there."""
        self._begin(self.answered, routes, get_args(Kind))
        for integration, party in parties:
            self._begin(self.outside, [integration], [party], ("sent", "later", "never"))

    def record_changed(self, before: Seen | None, after: Clarification, route: str) -> None:
        """Counts a written record. `before`: its known state until now; None if it was unknown or needed nothing more."""
        if before is None and not after.is_open:
            return  # written after it was closed
        if before is None or before.status != after.status or before.round != after.round:
            self.changes.labels(after.status).inc()
        if before is not None and before.is_open and after.status in _ANSWERED:
            self.answered.labels(route, after.kind).inc()
            self.answers.observe(max(0.0, (self.clock.now() - after.asked_last).total_seconds()))

    def delivered(self, kind: str, outcome: str) -> None:
        """Counts an attempt: sent, later, unknown, never; for replies accepted, refused, try_again."""
        self.attempted(kind, outcome)
        if outcome in _AGAIN:
            self.retries.labels(kind).inc()

    def attempted(self, kind: str, outcome: str) -> None:
        """Counts an attempt that is never repeated."""
        self.deliveries.labels(kind, outcome).inc()

    def paged(self, via: str, outcome: str) -> None:
        self.pages.labels(via, outcome).inc()

    def told(self, integration: str, party: str, outcome: str) -> None:
        """Counts an integration's attempt to tell a party outside: sent, later, never."""
        self.outside.labels(integration, party, outcome).inc()
        self.delivered(integration, outcome)

    def requested(self, path: str, status: str) -> None:
        """Counts an HTTP request by its path pattern or "other", and its status or "none" if it got no answer."""
        self.requests.labels(path, status).inc()

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"clarify_{name}", about, labels, registry=self.registry)

    @staticmethod
    def _begin(counter: Counter, *labels: Iterable[str]) -> None:
        """Begin with 0 for these labels: Prometheus sees no increase in a series that begins with 1."""
        for values in product(*labels):
            counter.labels(*values)
