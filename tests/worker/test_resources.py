"""Allocate and release: what a worker has is never exceeded, and always comes back."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pytest

from rota.model.capacity import Needs, less
from rota.model.errors import InvalidField
from rota.model.execution import Status
from rota.model.job import NewJob
from rota.store.postgres.engine import PostgresStore
from rota.worker.machine import amounts, machine
from tests.cluster.tasks import notes
from tests.support.jobs import a_job, executions, submit
from tests.support.processes import eventually
from tests.worker.test_supervisor import a_supervisor, ended

HAS = {"cpu": 2.0, "memory_mb": 1000.0, "gpu": 1.0}
SIZES = [
    {"cpu": 0.5},
    {"cpu": 1.0, "memory_mb": 600.0},
    {"gpu": 1.0},
    {"cpu": 2.0, "memory_mb": 1000.0, "gpu": 1.0},
    {"memory_mb": 250.0},
]


async def test_overloaded_with_mixed_sizes_it_never_exceeds_what_it_has_and_all_comes_back(
    live: PostgresStore, tmp_path: Path
) -> None:
    """Some fail and some take their process down: their room comes back too."""
    chance = random.Random(7)
    jobs = []
    for number in range(50):
        takes = chance.choice(SIZES)
        ends = chance.choice(["well"] * 8 + ["badly", "with a crash"])
        parameters = {"file": str(tmp_path / "notes"), "takes": takes, "seconds": chance.uniform(0, 0.1), "ends": ends}
        needs = Needs(takes)
        jobs.append(a_job("take", parameters=json.dumps(parameters | {"number": number}), needs=needs, max_retries=0))
    async with a_supervisor(live, live, concurrency=50, resources=HAS):
        await submit(live, *jobs)
        await eventually(lambda: ended(live, 50), within=120)
        # Afterwards there is room for one that takes all of it.
        whole = {"file": str(tmp_path / "last"), "takes": HAS, "seconds": 0, "ends": "well", "number": 99}
        await submit(live, a_job("take", parameters=json.dumps(whole), needs=Needs(HAS)))
        await eventually(lambda: ended(live, 51))

    taken: dict[tuple[int, int], dict[str, float]] = {}
    most = 0
    for line in notes(tmp_path / "notes"):
        deed, pid, number, takes = msgspec.json.decode(line, type=tuple[str, int, int, dict[str, float]])
        if deed == "takes":
            taken[pid, number] = takes
        elif deed == "gives back":
            del taken[pid, number]
        else:
            # With a process goes whatever ran in it.
            taken = {who: what for who, what in taken.items() if who[0] != pid}
        most = max(most, len(taken))
        assert all(left > -1e-6 for left in less(HAS, taken.values()).values()), line
    assert most > 1, "and it did use what it has"
    statuses = {e.status for e in await executions(live)}
    assert statuses <= {Status.COMPLETED, Status.FAILED}


async def test_a_big_one_is_not_starved_by_small_ones(live: PostgresStore, tmp_path: Path) -> None:
    async with a_supervisor(live, live, concurrency=10, resources={"cpu": 2.0}):
        await submit(live, *(_takes(tmp_path, {"cpu": 1.0}, number, 0.2) for number in range(40)))
        await submit(live, _takes(tmp_path, {"cpu": 2.0}, 1000, 0.0))
        for wave in range(1, 4):
            await submit(live, *(_takes(tmp_path, {"cpu": 1.0}, 100 * wave + n, 0.2) for n in range(40)))
        await eventually(lambda: _ran(live, 1000), within=120)
        left = sum(e.is_open for e in await executions(live))

    assert left > 0, "it did not have to wait for all of them"


async def test_what_it_is_not_and_what_it_has_not_is_left_to_others(live: PostgresStore, tmp_path: Path) -> None:
    async with a_supervisor(live, live, resources={"cpu": 2.0}, labels=("eu",)):
        await submit(
            live,
            _takes(tmp_path, {"gpu": 1.0}, 1, 0.0),
            _takes(tmp_path, {"cpu": 3.0}, 2, 0.0),
            _takes(tmp_path, {}, 3, 0.0, "us"),
            _takes(tmp_path, {}, 4, 0.0, "eu"),
            _takes(tmp_path, {"cpu": 2.0}, 5, 0.0, "eu"),
        )
        await eventually(lambda: ended(live, 2))
        [worker] = await live.workers()

    assert {_number(e.definition.parameters) for e in await executions(live) if not e.is_open} == {4, 5}
    assert (worker.resources["cpu"], worker.labels) == (2.0, ["eu"])


def _takes(tmp_path: Path, takes: dict[str, float], number: int, seconds: float, *labels: str) -> NewJob:
    parameters = {"file": str(tmp_path / "notes"), "takes": takes, "seconds": seconds, "ends": "well", "number": number}
    return a_job("take", parameters=json.dumps(parameters), needs=Needs(takes, labels))


async def _ran(store: PostgresStore, number: int) -> bool:
    return any(_number(e.definition.parameters) == number and not e.is_open for e in await executions(store))


def _number(parameters: str) -> int:
    number: int = json.loads(parameters)["number"]
    return number


def test_the_machine_says_what_it_has() -> None:
    assert machine()["cpu"] > 0
    assert machine()["memory_mb"] > 100


def test_an_operator_says_what_else_there_is() -> None:
    assert amounts("gpu=1, licence = 2.5,") == {"gpu": 1.0, "licence": 2.5}
    for bad in ("gpu", "gpu=", "gpu=many", "gpu=-1", "=1", "gpu=inf", "gpu=nan"):
        with pytest.raises(InvalidField, match="name=amount"):
            amounts(bad)
