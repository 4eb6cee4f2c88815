"""How long the supervisor waits for code that should be over, before it takes the process away."""

from __future__ import annotations

# An attempt that ran over its time, or was told to make room at once.
OVERTIME = 2.0
# An attempt whose cancellation was asked for.
CANCEL_GRACE = 30.0
# What else runs in a child that has to be killed gets this long to end by itself.
NEIGHBOURS_GRACE = 5.0
