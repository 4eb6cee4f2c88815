"""Percentiles, and how numbers look."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all does not exceed; NaN of nothing."""
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def summary(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    named = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}
    return {name: round(percentile(ordered, share), 2) for name, share in named.items()} if ordered else {}
