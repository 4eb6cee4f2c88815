"""Percentiles."""

from __future__ import annotations

from collections.abc import Sequence

# Of a thousand.
RANKS = {"p50": 500, "p99": 990, "p99.9": 999, "max": 1000}


def percentile(ordered: Sequence[float], name: str) -> float:
    """The least that so many of a thousand do not exceed."""
    return ordered[-(-len(ordered) * RANKS[name] // 1000) - 1]


def summary(milliseconds: Sequence[float]) -> dict[str, float]:
    """`p50_ms`, `p99_ms`, `p999_ms` and `max_ms`; nothing of nothing."""
    ordered = sorted(milliseconds)
    return {f"{name.replace('.', '')}_ms": round(percentile(ordered, name), 2) for name in RANKS if ordered}
