"""Finds holes in `sequence_number` (pure)."""

from __future__ import annotations

from collections import OrderedDict

_SESSIONS = 10_000


class Gaps:
    """The last number of each session, and how many events had been skimmed by then.

    Skimmed events carry numbers as well, which nobody reads: as many holes as events were skimmed in
    between are no loss. So a loss may go unseen, but none is reported that did not happen.
    """

    def __init__(self) -> None:
        self._last: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def missing(self, session_id: str, number: int, skimmed: int) -> int:
        """How many events of the session are certainly missing before `number`. Replays count as none.

        `skimmed`: how many events were skimmed so far, in all.
        """
        known = self._last.get(session_id)
        if known is not None and number <= known[0]:
            return 0
        self._last[session_id] = (number, skimmed)
        self._last.move_to_end(session_id)
        if len(self._last) > _SESSIONS:
            self._last.popitem(last=False)
        return 0 if known is None else max(0, number - known[0] - 1 - (skimmed - known[1]))
