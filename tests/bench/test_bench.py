"""Small runs of the real thing: what is tested is that a run checks itself and reports, never how fast it was."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from rota.model.definition import Definition
from rota.model.job import NewJob, new_job_id
from rota.store.postgres.engine import PostgresStore
from rota.store.protocol import Submission

PARTS = {"scheduler", "server", "supervisor", "children", "producer", "postgres", "bench"}


async def bench(*arguments: str, **environment: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rota", "bench", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=os.environ | environment,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def report(*arguments: str) -> dict[str, Any]:
    code, out, err = await bench(*arguments, "--json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    assert found["ok"] and found["workload"] == arguments[0]
    assert found["settings"]["fsync"] == found["settings"]["synchronous_commit"] == "on"
    return found


async def test_throughput_tells_its_rate_and_what_it_is_of_the_ceiling() -> None:
    found = await report("throughput", "--seconds", "1", "--users", "3", "--ceiling", "4000")

    assert found["jobs"] > 0 and found["rate"] > 0
    assert found["ratio"] == round(found["rate"] / found["limit_rate"], 3)
    assert found["limit_alone_us"].keys() == {"submit", "claim", "finish"}
    assert found["processes"].keys() >= PARTS
    assert found["machine"]["cores"] >= 1 and found["versions"]["postgresql"]


async def test_throughput_through_the_api() -> None:
    assert (await report("throughput", "--seconds", "1", "--http", "--ceiling", "0"))["jobs"] > 0


async def test_throughput_of_a_worker_without_a_database() -> None:
    assert (await report("throughput", "--seconds", "1", "--remote", "--ceiling", "0"))["jobs"] > 0


async def test_steady_tells_how_late_and_draws_it(tmp_path: Path) -> None:
    file = tmp_path / "late.svg"

    found = await report("steady", "--rate", "100", "--seconds", "2", "--ceiling", "0", "--plot", str(file))

    assert found["jobs"] == 200
    assert 0 <= found["p50_ms"] <= found["p99_ms"] <= found["p999_ms"] <= found["max_ms"]
    assert file.read_text().startswith("<svg")


async def test_recurring_jobs_fire_as_often_as_was_said() -> None:
    found = await report("recurring", "--jobs", "400", "--rate", "5", "--seconds", "3", "--ceiling", "0")

    assert (found["jobs"], found["stored"]) == (15, 400)


async def test_a_crowd_in_the_way() -> None:
    found = await report("crowd", "--executions", "2000", "--seconds", "1", "--ceiling", "0")

    assert len(found["cases"]) == 5
    assert found["of_alone"] == min(case["of_alone"] for case in found["cases"].values())


async def test_depth_keeps_what_is_not_due() -> None:
    found = await report("depth", "--pending", "20000", "--seconds", "1", "--ceiling", "0")

    assert found["pending"] == 20_000 and found["of_alone"] > 0


async def test_http_tells_of_writing_and_reading() -> None:
    found = await report("http", "--seconds", "1", "--rows", "10000", "--ceiling", "0")

    assert found["single_per_s"] > 0 and found["rate"] > 0
    assert found["job_by_id"]["p99_ms"] > 0 and found["list_by_user_and_status"]["p99_ms"] > 0


async def test_as_a_table_for_people() -> None:
    code, out, err = await bench("drain", "--n", "500", "--ceiling", "4000")

    assert code == 0, err
    for words in ("drain", "rate", "ratio", "supervisor", "most memory", "PostgreSQL".lower(), "fsync on"):
        assert words in out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("steady", "--plot", "/nowhere/at/all.svg"), 2, "no folder"),
        (("recurring", "--jobs", "100", "--rate", "10"), 1, "600"),
        (("throughput", "--database", "postgresql://127.0.0.1:1/none"), 3, "not available"),
        (("fly",), 2, "No such command"),
    ],
)
async def test_what_cannot_be_measured_is_said_and_gives_no_number(
    arguments: tuple[str, ...], code: int, words: str
) -> None:
    ended, out, err = await bench(*arguments)

    assert (ended, out) == (code, "")
    assert words in err


async def test_a_database_in_use_is_left_alone(dsn: str, store: PostgresStore) -> None:
    job = NewJob(id=new_job_id(1), definition=Definition(user_id="ann", task_id="echo"))
    await store.submit([Submission([job])])

    code, out, err = await bench("drain", "--n", "10", "--database", dsn)

    assert (code, out) == (1, "")
    assert "rows in executions" in err
    assert [found.id for found in await store.find_jobs([job.id])] == [job.id]
