from __future__ import annotations

from typing import cast

import pytest

from rota.model.errors import StoreUnavailable
from rota.scheduler.reaper import Reaper
from rota.store.postgres.engine import PostgresStore
from rota.store.protocol import Store
from tests.support.clock import FakeClock
from tests.support.flaky import Flaky
from tests.support.jobs import ALICE, a_job, claim, submit


async def test_after_it_was_cut_off_itself_it_judges_nobody_for_one_lease(
    store: PostgresStore, clock: FakeClock
) -> None:
    await submit(store, a_job())
    await claim(store)
    cut_off = Flaky(store)
    reaper = Reaper(cast(Store, cut_off), hold_off=3600)
    reaper._judges_from = 0
    cut_off.before["bury"] = 1
    with pytest.raises(StoreUnavailable):
        await reaper.step()
    clock.advance(seconds=60)

    assert await reaper.step() == 0
    assert (await store.renew(ALICE)).alive
