"""One round of the pages: ask the policy about what is due, hold back what comes in numbers, send what goes together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from bot.errors import StorageUnavailable
from bot.paging.board import Board, Open
from bot.paging.gate import Gate, Group, alone
from bot.paging.model import Destination
from bot.paging.policies import Policies
from bot.paging.sending import Sender
from core.clock import Clock
from core.escalation import Failed, Handed, NotMine, Wanted, wanted

_log = structlog.get_logger("clarify.paging")
_APART = timedelta(seconds=60)
_SOON = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class _Due:
    each: Open
    want: Wanted

    @property
    def is_urgent(self) -> bool:
        """Somebody passed it on, or what was sent did not arrive: it does not wait for others."""
        return isinstance(self.each.history[-1], (Failed, Handed, NotMine))


class Rounds:
    def __init__(self, board: Board, gate: Gate, policies: Policies, sender: Sender, clock: Clock) -> None:
        self._board = board
        self._gate = gate
        self._policies = policies
        self._sender = sender
        self._clock = clock

    def wants(self, each: Open) -> Wanted:
        """What the policy wants of an incident now."""
        return wanted(self._policies.of(each.incident.policy), each.history, self._clock.now())

    async def page(self) -> bool:
        """Send what is due, and tell whether anything was; whatever was looked at is scheduled anew.

        Raises:
            StorageUnavailable: not all of it was sent; the rest is due again in a second.
        """
        looked_at = self._board.take_due(self._clock.now())
        unscheduled = {each.incident.id: each for each in looked_at}
        any_sent = False
        try:
            groups: dict[Group, list[_Due]] = {}
            for each in looked_at:
                want = self._ask(each)
                if want is None or not want.send:
                    self._schedule(each, want)
                    del unscheduled[each.incident.id]
                else:
                    groups.setdefault(each.incident.group, []).append(_Due(each, want))
            for group, members in groups.items():
                ready = self._through_the_gate(group, members, unscheduled)
                calm = any(not due.is_urgent for due in ready)
                sent = [await self._send(batch, step, holder) for step, holder, batch in batches(ready)]
                any_sent |= any(sent)
                if calm and any(sent):
                    self._gate.passed(group, (due.each.incident.id for due in ready), self._clock.now())
                for due in ready:
                    self._reschedule(due.each)
                    unscheduled.pop(due.each.incident.id, None)
        finally:
            for each in unscheduled.values():
                self._board.schedule(each, self._clock.now() + _SOON)
        return any_sent

    def _ask(self, each: Open) -> Wanted | None:
        """None: it cannot be asked about, and is set apart."""
        try:
            return self.wants(each)
        except Exception:  # noqa: BLE001 - one broken incident must not stop the others
            _log.exception("an incident cannot be handled", incident=each.incident.id)
            return None

    def _schedule(self, each: Open, want: Wanted | None) -> None:
        self._board.schedule(each, self._clock.now() + _APART if want is None else want.next_at)

    def _reschedule(self, each: Open) -> None:
        """After a sending. What failed at once wants its next step at once; nothing else may want so again."""
        if each.due is not None:
            return  # set apart, or something happened to it meanwhile
        want, now = self._ask(each), self._clock.now()
        if want is None or not want.send:
            self._schedule(each, want)
        else:
            self._board.schedule(each, now if isinstance(each.history[-1], Failed) else now + _SOON)

    def _through_the_gate(
        self, group: Group, members: Sequence[_Due], unscheduled: dict[int, Open]
    ) -> list[_Due]:
        """Those that may go now; the others are due again when the gate opens."""
        now = self._clock.now()
        ends = min(
            (due.each.incident.expires_at for due in members if due.each.incident.expires_at), default=None
        )
        ready = []
        for due in members:
            opens = self._gate.opens(group, (due.each.incident.id,), ends, now)
            if due.is_urgent or opens <= now:
                ready.append(due)
            else:
                self._board.schedule(due.each, opens)
                del unscheduled[due.each.incident.id]
        return ready

    async def _send(self, members: Sequence[Open], step: int, holder: str | None) -> bool:
        """Whether anything was sent."""
        to: list[Destination] = []
        reached: list[Open] = []
        for each in members:
            try:
                to += await self._sender.destinations(each, step, holder)
                reached.append(each)
            except StorageUnavailable:
                raise
            except Exception:  # noqa: BLE001 - as above
                self._set_apart(each)
        # Looking up took its time: what was taken meanwhile is not sent any more.
        still = [each for each in reached if (want := self._ask(each)) is not None and step in want.send]
        return bool(still) and await self._send_or_split(still, step, to)

    async def _send_or_split(self, members: Sequence[Open], step: int, to: Sequence[Destination]) -> bool:
        try:
            await self._sender.send(members, step, to)
        except StorageUnavailable:
            raise
        except Exception:  # noqa: BLE001 - as above
            if len(members) > 1:
                return any([await self._send_or_split([each], step, to) for each in members])
            self._set_apart(members[0])
            return False
        return True

    def _set_apart(self, each: Open) -> None:
        _log.exception("an incident cannot be paged", incident=each.incident.id)
        self._board.schedule(each, self._clock.now() + _APART)


def batches(ready: Sequence[_Due]) -> Iterator[tuple[int, str | None, list[Open]]]:
    """What goes out together: the same step to the same people, where it comes in numbers (pure)."""
    found: dict[tuple[int, str | None], list[Open]] = {}
    for due in ready:
        for step in due.want.send:
            found.setdefault((step, due.want.holder), []).append(due.each)
    for (step, holder), members in found.items():
        few = len(members) <= alone(members[0].incident.group)
        for batch in [[each] for each in members] if few else [members]:
            yield step, holder, batch
