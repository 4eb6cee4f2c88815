"""POST /jobs and /jobs/batch: the bodies people send, and what is stored of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from rota.model.keys import Scope
from rota.store.postgres.engine import PostgresStore
from rota.store.protocol import Receipt, Submission
from tests.server.calls import Caller, a_caller, a_rota_server
from tests.support.clock import FakeClock
from tests.support.jobs import executions

# What issue 2 promises of every job and every execution.
JOB_FIELDS = {
    "id", "user_id", "task_id", "schedule", "parameters", "priority", "status", "next_fires_at", "last_execution",
    "created_at",
}  # fmt: skip
EXECUTION_FIELDS = {
    "id", "job_id", "status", "fires_at", "due_at", "started_at", "finished_at", "attempt", "failures", "worker_id",
    "error", "result",
}  # fmt: skip
NOW = "2027-01-04T10:00:00.000Z"
DAILY = "0 10 * * *"
CANNOT_BE: list[tuple[dict[str, object], str]] = [
    ({"schedule": "every now and then"}, "schedule"),
    ({"schedule": "61 * * * *"}, "schedule"),
    ({"schedule": ""}, "schedule"),
    ({"schedule": {"type": "CRON"}}, "schedule"),
    ({"schedule": {"type": "DATE", "expression": "tomorrow"}}, "schedule"),
    ({"schedule": {"type": "DATE", "expression": "2027-02-01T09:00:00"}}, "schedule"),
    ({"schedule": {"type": "MOON", "expression": "full"}}, "schedule.type"),
    ({"schedule": {"expression": DAILY}}, "schedule.type"),
    ({"schedule": {"type": "CRON", "expression": DAILY, "zone": "UTC"}}, "schedule.zone"),
    ({"schedule": "PT0.5S"}, "schedule"),
    ({"schedule": "P1M"}, "schedule"),
    ({"schedule": "0 0 30 2 *"}, "schedule"),
    ({"schedule": DAILY, "time_zone": "Mars/Olympus"}, "time_zone"),
    ({"time_zone": "Europe/Berlin"}, "time_zone"),
    ({"schedule": DAILY, "execution_end_time": "2027-01-04T11:00:00Z"}, "schedule"),
    ({"execution_start_time": "2027-01-04"}, "execution_start_time"),
    ({"execution_start_time": "1969-12-31T23:59:59Z"}, "execution_start_time"),
    ({"execution_start_time": "2200-01-01T00:00:00Z"}, "execution_start_time"),
    (
        {"execution_start_time": "2027-02-02T00:00:00Z", "execution_end_time": "2027-02-01T00:00:00Z"},
        "execution_end_time",
    ),
    ({"schedule": "2027-03-01T00:00:00Z", "execution_end_time": "2027-02-01T00:00:00Z"}, "schedule"),
    ({"priority": 10}, "priority"),
    ({"priority": -1}, "priority"),
    ({"priority": 1.5}, "priority"),
    ({"priority": "9"}, "priority"),
    ({"max_retries": 1001}, "max_retries"),
    ({"timeout": 0}, "timeout"),
    ({"timeout": "PT0S"}, "timeout"),
    ({"timeout": 367 * 86400}, "timeout"),
    ({"backoff": {"initial": -1}}, "backoff.initial"),
    ({"backoff": {"factor": 0.5}}, "backoff.factor"),
    ({"backoff": {"jitter": 2}}, "backoff.jitter"),
    ({"backoff": {"speed": 2}}, "backoff.speed"),
    ({"overlap": "perhaps"}, "overlap"),
    ({"overlap": "allow"}, "overlap"),
    ({"resources": {"cpu": 0}}, "resources.cpu"),
    ({"result_location": ""}, "result_location"),
    ({"result_location": 7}, "result_location"),
    ({"result_location": "/etc/passwd"}, "result_location"),
    ({"result_location": "s3://bucket/x"}, "result_location"),
    ({"result_location": "reports/../x"}, "result_location"),
    ({"result_location": "reports/a\\b"}, "result_location"),
    ({"result_location": "reports/x\n"}, "result_location"),
    ({"result_location": "reports/{user_id}"}, "result_location"),
    ({"result_location": "reports/" + "x/" * 250}, "result_location"),
    ({"start_by": "soon"}, "start_by"),
    ({"start_by": -1}, "start_by"),
    ({"deadline": "2020-01-01T00:00:00Z"}, "deadline"),
    ({"schedule": "PT1H", "deadline": "2028-01-01T00:00:00Z"}, "deadline"),
    ({"concurrency": {"key": "", "limit": 1}}, "concurrency.key"),
    ({"concurrency": {"key": "k", "limit": 0}}, "concurrency.limit"),
    ({"rate": {"key": "k"}}, "rate.limit"),
    ({"rate": {"key": "k", "limit": 1, "per": 0}}, "rate.per"),
    ({"rate": {"key": "k", "limit": 1}, "concurrency": {"key": "other"}}, "rate.key"),
    ({"unique_key": ""}, "unique_key"),
    ({"unique_key": {"key": "k", "while": "ever"}}, "unique_key.while"),
    ({"resources": {"cpu": -1}}, "resources.cpu"),
    ({"resources": {"cpu": 1e300}}, "resources.cpu"),
    ({"resources": {"c p u": 1}}, "resources"),
    ({"resources": {f"r{n}": 1 for n in range(17)}}, "resources"),
    ({"labels": ["eu\0"]}, "labels[0]"),
    ({"labels": "eu"}, "labels"),
    ({"jitter": 5, "schedule": "now"}, "jitter"),
    ({"schedule": "PT1M", "misfire": "sometimes"}, "misfire"),
    ({"schedule": "PT1M", "misfire": {"policy": "all", "window": 1}}, "misfire.window"),
    ({"schedule": "PT1M", "misfire": "all", "overlap": "cancel_other"}, "misfire"),
    ({"schedule": "PT1M", "jitter": -1}, "jitter"),
    ({"schedule": "PT1M", "max_executions": 0}, "max_executions"),
    ({"schedule": "PT1M", "auto_pause_after": 0}, "auto_pause_after"),
    ({"schedule": "PT1M", "calendar": "unheard-of"}, "calendar"),
    ({"queue": ""}, "queue"),
    ({"queue": "x" * 201}, "queue"),
    ({"parameters": []}, "parameters"),
    ({"parameters": None}, "parameters"),
    ({"user_id": "ann", "scheduler": "bob"}, "scheduler"),
    ({"scheduler": ""}, "scheduler"),
    ({"colour": "red"}, "colour"),
]


async def test_the_first_seed_is_taken_as_it_is_written(ann: Caller) -> None:
    body = {
        "task_id": "send_email",
        "schedule": "0 10 * * *",
        "parameters": {"to": "john@example.com", "subject": "Daily Report"},
    }

    job = (await ann.post("/jobs", body)).ok(201)

    assert job["user_id"] == "ann"
    assert job["task_id"] == "send_email"
    assert job["schedule"] == {"type": "CRON", "expression": "0 10 * * *", "time_zone": "UTC"}
    assert job["parameters"] == body["parameters"]
    assert job["status"] == "ACTIVE"
    assert job["next_fires_at"] == "2027-01-05T10:00:00.000Z"
    assert job["last_execution"] is None


@pytest.mark.parametrize("kind", ["CRON", "cron"])
async def test_a_schedule_may_say_that_it_is_cron(ann: Caller, kind: str) -> None:
    job = await ann.submit("send_email", schedule={"type": kind, "expression": "30 10 * * FRI"})

    assert job["status"] == "ACTIVE"
    assert job["next_fires_at"] == "2027-01-08T10:30:00.000Z"


async def test_a_schedule_may_say_that_it_is_a_date(ann: Caller) -> None:
    job = await ann.submit(schedule={"type": "DATE", "expression": "2027-02-01T09:00:00+01:00"})

    assert job["schedule"] == {"type": "DATE", "expression": "2027-02-01T08:00:00.000Z"}
    assert job["status"] == "SCHEDULED"
    assert job["next_fires_at"] == "2027-02-01T08:00:00.000Z"


async def test_the_second_seed_is_taken_as_it_is_written(ann: Caller) -> None:
    body = {
        "task_id": "send_email",
        "scheduler": "ann",
        "schedule": "0 10 * * *",
        "execution_start_time": "2027-02-01T00:00:00Z",
        "execution_end_time": "2027-03-01T00:00:00Z",
        "parameters": {"to": "a@b.com", "subject": "Event reminder"},
    }

    job = (await ann.post("/jobs", body)).ok(201)

    assert job["user_id"] == "ann"
    assert job["next_fires_at"] == "2027-02-01T10:00:00.000Z"
    assert job["execution_start_time"] == "2027-02-01T00:00:00.000Z"
    assert job["execution_end_time"] == "2027-03-01T00:00:00.000Z"


async def test_a_start_time_without_a_schedule_is_when_it_runs(ann: Caller) -> None:
    job = await ann.submit(execution_start_time="2027-01-04T12:30:00Z", execution_end_time="2027-01-04T13:00:00Z")

    assert job["status"] == "SCHEDULED"
    assert job["next_fires_at"] == "2027-01-04T12:30:00.000Z"
    assert job["last_execution"]["due_at"] == "2027-01-04T12:30:00.000Z"


async def test_nothing_at_all_means_now(ann: Caller) -> None:
    job = await ann.submit()

    assert job["status"] == "QUEUED"
    assert job["next_fires_at"] == NOW
    assert job["created_at"] == NOW
    assert job["parameters"] == {}


@pytest.mark.parametrize("schedule", ["now", {"type": "NOW"}, None])
async def test_now_can_be_said_in_words(ann: Caller, schedule: object) -> None:
    assert (await ann.submit(schedule=schedule))["status"] == "QUEUED"


async def test_a_duration_is_an_interval_from_now_on(ann: Caller) -> None:
    job = await ann.submit(schedule="PT90S")

    assert job["schedule"] == {"type": "INTERVAL", "expression": "PT1M30S"}
    assert job["next_fires_at"] == "2027-01-04T10:01:30.000Z"


async def test_cron_follows_its_time_zone(ann: Caller) -> None:
    job = await ann.submit(schedule="0 9 * * *", time_zone="America/New_York")

    assert job["schedule"]["time_zone"] == "America/New_York"
    assert job["next_fires_at"] == "2027-01-04T14:00:00.000Z"


async def test_a_job_answers_with_everything_that_was_promised(ann: Caller) -> None:
    once = await ann.submit()
    recurring = await ann.submit(schedule=DAILY)

    assert once.keys() >= JOB_FIELDS
    assert recurring.keys() >= JOB_FIELDS
    assert once["last_execution"].keys() >= EXECUTION_FIELDS


RULES: dict[str, Any] = {
    "overlap": "buffer_all",
    "misfire": {"policy": "all", "window": "PT1H"},
    "jitter": "PT30S",
    "max_executions": 100,
    "auto_pause_after": 3,
}


async def test_the_rules_of_a_recurring_job_are_told_again(ann: Caller) -> None:
    await ann.put("/calendars/holidays", {"days": ["2027-12-25"]})

    job = await ann.submit(schedule=DAILY, calendar="holidays", **RULES)

    assert job["overlap"] == "buffer_all"
    assert job["misfire"] == {"policy": "all", "window": 3600.0}
    assert (job["jitter"], job["calendar"], job["max_executions"]) == (30.0, "holidays", 100)
    assert (job["auto_pause_after"], job["paused"], job["waiting"]) == (3, None, 0)


@pytest.mark.parametrize("schedule", [None, "PT1M", DAILY, "2028-02-29T00:00:00Z"])
async def test_what_was_answered_is_what_is_found(ann: Caller, schedule: str | None) -> None:
    answer = await ann.post(
        "/jobs",
        {
            "task_id": "bake",
            "schedule": schedule,
            "parameters": {"deep": [1, 2.5, None, True, {"ключ": "日本 \U0001f600"}], "9007199254740993": 2**63 - 1},
            "priority": 7,
            "queue": "slow",
            "max_retries": 0,
            "backoff": {"initial": "PT2S", "factor": 3, "cap": 60, "jitter": 0},
            "timeout": "PT5M",
            "start_by": 60,
            "deadline": "PT1H",
            "concurrency": {"key": "customer/7", "limit": 2},
            "rate": {"key": "customer/7", "limit": 5, "per": "PT1M"},
            "resources": {"gpu": 1, "cpu": 0.5},
            "labels": ["ssd", "eu"],
            "result_location": "reports/{fires_at}/{execution_id}.json",
        }
        | (RULES if schedule in ("PT1M", DAILY) else {}),
    )
    job = answer.ok(201)

    assert answer.headers["Location"] == f"/jobs/{job['id']}"
    assert (await ann.get(answer.headers["Location"])).ok() == job
    assert await ann.all("/jobs") == [job]
    assert job["priority"] == 7
    assert job["queue"] == "slow"
    assert job["max_retries"] == 0
    assert job["backoff"] == {"initial": 2.0, "factor": 3.0, "cap": 60.0, "jitter": 0.0}
    assert job["timeout"] == 300.0
    assert (job["start_by"], job["deadline"]) == (60.0, 3600.0)
    assert job["concurrency"] == {"key": "customer/7", "limit": 2}
    assert job["rate"] == {"key": "customer/7", "limit": 5, "per": 60.0}
    assert (job["resources"], job["labels"]) == ({"cpu": 0.5, "gpu": 1.0}, ["eu", "ssd"])
    assert job["result_location"] == "reports/{fires_at}/{execution_id}.json"
    assert job["parameters"]["9007199254740993"] == 2**63 - 1


async def test_names_and_numbers_may_go_to_their_limits(ann: Caller) -> None:
    name = "ю" * 200
    job = await ann.submit(
        name, queue=name, priority=9, max_retries=1000, timeout=366 * 86400, backoff={"factor": 100, "jitter": 1}
    )

    assert (job["task_id"], job["queue"], job["priority"]) == (name, name, 9)


async def test_a_body_of_exactly_one_mebibyte_is_taken(ann: Caller) -> None:
    frame = b'{"task_id": "echo", "parameters": {"blob": "%s"}}'
    body = frame % (b"x" * (1024 * 1024 - len(frame) + 2))
    assert len(body) == 1024 * 1024

    assert (await ann.send("POST", "/jobs", body)).status == 201
    assert (await ann.send("POST", "/jobs", body + b" ")).refused(413)


async def test_what_cannot_be_is_refused_by_its_field(admin: Caller) -> None:
    for fields, field in CANNOT_BE:
        assert (await admin.post("/jobs", {"task_id": "echo"} | fields)).refused(422, field)

    assert await admin.all("/jobs") == []


async def test_a_job_without_a_task_is_refused(ann: Caller) -> None:
    assert (await ann.post("/jobs", {"parameters": {}})).refused(422, "task_id")


async def test_nobody_is_made_to_run_after_the_end_of_the_window(ann: Caller) -> None:
    answer = await ann.post("/jobs", {"task_id": "echo", "execution_end_time": "2027-01-04T09:00:00Z"})

    assert answer.status == 422, "now lies after execution_end_time, and yet the job would run"


async def test_nobody_is_made_to_run_before_the_start_of_the_window(ann: Caller) -> None:
    window = {"schedule": "2027-01-05T10:00:00Z", "execution_start_time": "2027-01-06T10:00:00Z"}

    answer = await ann.post("/jobs", {"task_id": "echo"} | window)

    assert answer.status == 422, "the date lies before execution_start_time, and yet the job would run"


async def test_a_batch_answers_with_its_jobs_in_their_order(ann: Caller) -> None:
    schedules = [None, DAILY, "2027-02-01T00:00:00Z", "PT1H"]

    batch = {"jobs": [{"task_id": f"t{n}", "schedule": schedule} for n, schedule in enumerate(schedules)]}
    stored = (await ann.post("/jobs/batch", batch)).ok(201)

    assert [job["task_id"] for job in stored["jobs"]] == ["t0", "t1", "t2", "t3"]
    assert [job["status"] for job in stored["jobs"]] == ["QUEUED", "ACTIVE", "SCHEDULED", "ACTIVE"]
    for job in stored["jobs"]:
        assert (await ann.get(f"/jobs/{job['id']}")).ok() == job


async def test_a_batch_may_have_ten_thousand_jobs_and_no_more(ann: Caller, store: PostgresStore) -> None:
    batch = {"jobs": [{"task_id": "echo"}] * 10_001}
    assert (await ann.post("/jobs/batch", batch)).refused(422, "jobs")
    assert await executions(store) == []

    batch = {"jobs": [{"task_id": "echo"}] * 10_000}
    stored = (await ann.post("/jobs/batch", batch)).ok(201)["jobs"]

    assert len({job["id"] for job in stored}) == 10_000
    assert (await store.db.fetch("select count(*) from executions"))[0][0] == 10_000


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"task_id": "echo", "schedule": "soon"}, "jobs[2].schedule"),
        ({"task_id": "echo", "priority": 11}, "jobs[2].priority"),
        ({"task_id": "echo", "parameters": {"a": [{"b": "\0"}]}}, "jobs[2].parameters.a[0].b"),
        ({"task_id": "echo", "backoff": {"cap": "soon"}}, "jobs[2].backoff.cap"),
        ({"task_id": "echo", "size": 3}, "jobs[2].size"),
        ({"schedule": "now"}, "jobs[2].task_id"),
        ("echo", "jobs[2]"),
    ],
)
async def test_one_bad_job_keeps_the_whole_batch_out(ann: Caller, bad: object, field: str) -> None:
    good = {"task_id": "echo"}

    answer = await ann.post("/jobs/batch", {"jobs": [good, good | {"schedule": DAILY}, bad, good]})

    assert answer.refused(422, field)
    assert await ann.all("/jobs") == []


async def test_a_batch_with_a_job_for_somebody_else_is_kept_out_whole(ann: Caller, admin: Caller) -> None:
    answer = await ann.post("/jobs/batch", {"jobs": [{"task_id": "echo"}, {"task_id": "echo", "user_id": "bob"}]})

    assert answer.refused(403)
    assert await admin.all("/jobs") == []


async def test_an_empty_batch_is_refused(ann: Caller) -> None:
    assert (await ann.post("/jobs/batch", {"jobs": []})).refused(422, "jobs")


async def test_the_instant_of_a_job_is_the_databases(ann: Caller, clock: FakeClock) -> None:
    clock.advance(days=400, milliseconds=123.456)

    assert (await ann.submit())["created_at"] == "2028-02-08T10:00:00.123Z"


class SlowStore(PostgresStore):
    """Commits when told to, and tells how many asked before."""

    def __init__(self, *parts: object) -> None:
        super().__init__(*parts)  # type: ignore[arg-type]
        self.commits: list[int] = []
        self.arrived = 0
        self.all_arrived = asyncio.Event()
        self.expected = 0

    async def shards(self) -> int:
        self.arrived += 1
        if self.arrived == self.expected:
            self.all_arrived.set()
        return await super().shards()

    async def submit(self, submissions: Sequence[Submission]) -> list[Receipt]:
        self.commits.append(len(submissions))
        await self.all_arrived.wait()
        return await super().submit(submissions)


@pytest.fixture
async def slow_store(dsn: str, clock: FakeClock) -> AsyncIterator[SlowStore]:
    store = await SlowStore.open(dsn, clock=clock)
    assert isinstance(store, SlowStore)
    yield store
    await store.aclose()


async def test_submissions_that_arrive_together_share_a_commit(slow_store: SlowStore) -> None:
    slow_store.expected = 21
    _, secret = await slow_store.create_key("ann", [Scope.SUBMIT, Scope.READ])
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(a_rota_server(slow_store))
        ann = await stack.enter_async_context(a_caller(url, secret))

        jobs = await asyncio.gather(*(ann.submit(parameters={"n": n}) for n in range(21)))

        assert [job["parameters"]["n"] for job in jobs] == list(range(21))
        assert len({job["id"] for job in jobs}) == 21
    assert len(slow_store.commits) == 2, "what arrives during a commit goes into the next one"
    assert sum(slow_store.commits) == 21


async def test_a_job_may_have_its_own_rules_for_the_clocks(ann: Caller) -> None:
    schedule = {
        "type": "CRON", "expression": "0 30 2 ? * 1", "time_zone": "America/New_York",
        "dialect": "quartz", "dst_gap": "skip", "dst_fold": "both",
    }  # fmt: skip

    job = await ann.submit(schedule=schedule)

    assert job["schedule"] == schedule
    assert (await ann.get(f"/jobs/{job['id']}")).ok()["schedule"] == schedule
    changed = (await ann.patch(f"/jobs/{job['id']}", {"schedule": "0 30 3 ? * 1"})).ok()
    assert changed["schedule"] == schedule | {"expression": "0 30 3 ? * 1"}
    assert (await ann.post("/jobs", {"task_id": "echo", "schedule": schedule | {"dst_gap": "jump"}})).refused(
        422, "schedule.dst_gap"
    )


async def test_a_repeating_interval_ends_by_itself(ann: Caller) -> None:
    job = await ann.submit(schedule="R2/2027-01-05T00:00:00Z/PT1H")

    assert job["schedule"] == {"type": "INTERVAL", "expression": "R2/2027-01-05T00:00:00.000Z/PT1H"}
    assert job["next_fires_at"] == "2027-01-05T00:00:00.000Z"
    late = await ann.post("/jobs", {"task_id": "echo", "schedule": "R2/2026-01-05T00:00:00Z/PT1H"})
    assert late.refused(422, "schedule")


# Unique keys


async def test_a_unique_key_that_is_taken_names_the_job_that_has_it(ann: Caller, bob: Caller) -> None:
    first = await ann.submit(unique_key="report")

    assert first["id"] in (await ann.post("/jobs", {"task_id": "echo", "unique_key": "report"})).refused(409)
    await bob.submit(unique_key="report")
    assert len(await ann.all("/jobs")) == 1


async def test_a_unique_key_may_give_the_first_job_or_replace_it(ann: Caller) -> None:
    first = await ann.submit(unique_key="report")

    same = await ann.post("/jobs", job(unique_key={"key": "report", "on_conflict": "return_existing"}))
    other = await ann.post("/jobs", job(unique_key={"key": "report", "on_conflict": "replace"}))

    assert same.ok(200)["id"] == first["id"]
    assert other.ok(201)["id"] != first["id"]
    assert (await ann.get(f"/jobs/{first['id']}")).ok()["status"] == "CANCELLED"


async def test_in_a_batch_there_are_no_unique_keys(ann: Caller) -> None:
    batch = {"jobs": [job(), job(unique_key="report")]}

    (await ann.post("/jobs/batch", batch)).refused(422, "jobs[1].unique_key")


def job(**fields: object) -> dict[str, object]:
    return {"task_id": "echo"} | fields
