"""Where the claims of this process stand in each lane, for the time that looking from the beginning takes too long.

Whoever keeps a transaction open keeps every row that was claimed since from being cleaned up, and a claim that looks
from the beginning of a lane walks over all of them. So when such a look was slow, those after it begin a moment before
the newest row that was taken, for five times as long as it took, ten seconds at most. What comes to stand before that
place meanwhile (a row handed back, a commit that took long) waits for the next look from the beginning.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from rota.model.execution import Claimed

EVERYTHING = "{}"
# Longer than nearly all commits take: rows become visible in another order than that of their due times.
SLACK = timedelta(milliseconds=250)
SLOW, SLOW_PER_ROW = 0.02, 20e-6
REST, LONGEST_REST = 5, 10.0


class Front:
    """Of one shard."""

    def __init__(self) -> None:
        self._newest: dict[int, datetime] = {}
        self._rests_until = 0.0

    def floors(self) -> str:
        """The instants by lane before which this look should not look, as JSON; none when it is to see everything."""
        if time.monotonic() >= self._rests_until:
            return EVERYTHING
        return msgspec.json.encode({str(lane): newest - SLACK for lane, newest in self._newest.items()}).decode()

    def gave_up(self, took: float) -> None:
        """A look that was not answered in time: the next ones begin where the last good one stood."""
        self._rests_until = time.monotonic() + min(REST * took, LONGEST_REST)

    def seen(self, claimed: Sequence[Claimed], took: float, *, everything: bool) -> None:
        if everything:
            is_slow = took > SLOW + SLOW_PER_ROW * len(claimed)
            self._newest = {}
            self._rests_until = time.monotonic() + min(REST * took, LONGEST_REST) if is_slow else 0.0
        if self._rests_until:
            for each in claimed:
                # Of what is tried again the nominal time says nothing of where it stood.
                if each.attempt == 1 and each.fires_at > self._newest.get(each.lane, _NEVER):
                    self._newest[each.lane] = each.fires_at


_NEVER = datetime.min.replace(tzinfo=UTC)
