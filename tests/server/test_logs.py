from __future__ import annotations

from rota.model.log import NewLine
from rota.model.progress import NewProgress
from rota.store.postgres.engine import PostgresStore
from tests.server.calls import Caller
from tests.support.jobs import claim, ended


async def test_a_log_is_read_page_by_page_and_by_nobody_else(ann: Caller, bob: Caller, store: PostgresStore) -> None:
    await ann.submit()
    [claimed] = await claim(store)
    path = f"/executions/{claimed.key}/logs"
    assert (await ann.get(path)).ok() == {"lines": [], "next": None}
    await store.keep_logs([NewLine(*claimed.key, attempt=1, seq=n, ago=0.25, text=f"line {n}") for n in (1, 2, 3)])

    first = (await ann.get(path, limit=2)).ok()
    second = (await ann.get(path, limit=2, after=first["next"])).ok()

    assert first["lines"][0] == {"attempt": 1, "seq": 1, "at": "2027-01-04T09:59:59.750Z", "text": "line 1"}
    assert [line["text"] for line in first["lines"]] == ["line 1", "line 2"]
    assert (second["lines"][0]["text"], second["next"]) == ("line 3", None)
    assert (await ann.get(path, attempt=2)).ok()["lines"] == []
    assert (await bob.get(path)).refused(404)


async def test_a_place_that_is_none_is_refused(ann: Caller, store: PostgresStore) -> None:
    await ann.submit()
    [claimed] = await claim(store)
    path = f"/executions/{claimed.key}/logs"

    for field, wrong in (("after", "7"), ("after", "1-x"), ("attempt", "-1"), ("attempt", "9" * 20), ("limit", "0")):
        assert (await ann.get(path, **{field: wrong})).refused(422, field)


async def test_how_far_a_running_execution_is_is_shown(ann: Caller, store: PostgresStore) -> None:
    job = await ann.submit()
    [claimed] = await claim(store)
    await store.note_progress([NewProgress(*claimed.key, attempt=1, fraction=0.4, note="almost")])

    progress = {"fraction": 0.4, "note": "almost", "at": "2027-01-04T10:00:00.000Z"}
    assert (await ann.get(f"/executions/{claimed.key}")).ok()["execution"]["progress"] == progress
    assert (await ann.get(f"/jobs/{job['id']}")).ok()["last_execution"]["progress"] == progress
    await store.finish([ended(claimed)])
    assert (await ann.get(f"/executions/{claimed.key}")).ok()["execution"]["progress"] is None
