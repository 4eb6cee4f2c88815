from __future__ import annotations

import pytest

from rota.bench.figures import percentile, summary


@pytest.mark.parametrize(("name", "value"), [("p50", 500.0), ("p99", 990.0), ("p99.9", 999.0), ("max", 1000.0)])
def test_a_percentile_is_a_value_that_was_there(name: str, value: float) -> None:
    assert percentile([float(n) for n in range(1, 1001)], name) == value


def test_of_few_values_the_highest_ones_stand_for_the_rare() -> None:
    assert summary([3.0, 1.0, 2.0]) == {"p50_ms": 2.0, "p99_ms": 3.0, "p999_ms": 3.0, "max_ms": 3.0}
    assert summary([]) == {}
