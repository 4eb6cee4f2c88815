from __future__ import annotations

from datetime import timedelta

from rota.model.execution import Claimed, Execution
from rota.model.progress import NewProgress
from rota.model.query import JobFilter, Page
from rota.model.retry import HandedBack
from rota.store.postgres.engine import PostgresStore
from tests.support.clock import FakeClock
from tests.support.jobs import a_job, claim, ended, executions, submit


def word(claimed: Claimed, fraction: float, note: str = "") -> NewProgress:
    return NewProgress(*claimed.key, attempt=claimed.attempt, fraction=fraction, note=note)


def shown(execution: Execution | None) -> tuple[float, str] | None:
    assert execution is not None
    return (execution.progress.fraction, execution.progress.note) if execution.progress else None


async def test_the_newest_word_is_shown_wherever_the_execution_is(store: PostgresStore, clock: FakeClock) -> None:
    [job, other] = await submit(store, a_job(), a_job())
    claimed = {each.job_id: each for each in await claim(store)}
    await store.note_progress([word(each, 0.1) for each in claimed.values()])
    clock.advance(seconds=1)
    await store.note_progress([word(claimed[job.id], 0.4, "almost")])

    [found] = await store.find_executions([claimed[job.id].key])
    jobs = (await store.jobs(JobFilter(), Page(10))).items

    assert found.progress is not None and found.progress.at == clock.moment
    assert shown(found) == (0.4, "almost")
    assert {each.job_id: shown(each) for each in await executions(store)} == {
        job.id: (0.4, "almost"),
        other.id: (0.1, ""),
    }
    assert {each.id: shown(each.last_execution) for each in jobs} == {job.id: (0.4, "almost"), other.id: (0.1, "")}
    assert shown((await store.find_jobs([job.id]))[0].last_execution) == (0.4, "almost")


async def test_it_is_that_of_the_running_attempt_and_of_no_other(store: PostgresStore) -> None:
    await submit(store, a_job())
    [first] = await claim(store)
    await store.note_progress([word(first, 0.9)])
    await store.finish([ended(first, HandedBack())])
    assert [shown(each) for each in await executions(store)] == [None], "nobody runs it"
    [second] = await claim(store)
    assert [shown(each) for each in await executions(store)] == [None], "the new one has said nothing yet"

    await store.note_progress([word(second, 0.1)])
    await store.note_progress([word(first, 0.95)])

    assert [shown(each) for each in await executions(store)] == [(0.1, "")], "a zombie is not heard"
    await store.finish([ended(second)])
    assert [shown(each) for each in await executions(store)] == [None]


async def test_what_no_longer_runs_is_forgotten(store: PostgresStore) -> None:
    await submit(store, a_job(), a_job())
    [one, other] = await claim(store)
    await store.note_progress([word(one, 0.5), word(other, 0.5)])
    await store.finish([ended(one)])

    await store.maintain(keep=timedelta(days=30))

    assert [row[0] for row in await store.db.fetch("select job_id from progress")] == [other.job_id]
