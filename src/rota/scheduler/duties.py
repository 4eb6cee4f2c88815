"""All duties of a scheduler node, side by side. Nobody leads: each is safe to repeat."""

from __future__ import annotations

import asyncio

from rota.loop import repeat
from rota.model.backfill import LOOKED_AT
from rota.scheduler.backfiller import Backfiller
from rota.scheduler.gatekeeper import Gatekeeper
from rota.scheduler.janitor import Janitor
from rota.scheduler.planner import Planner
from rota.scheduler.reaper import Reaper
from rota.store.protocol import Store

BATCH = 1000


async def run_duties(store: Store, stop: asyncio.Event) -> None:
    planner = Planner(store, batch=BATCH)
    backfiller = Backfiller(store, batch=BATCH)
    gatekeeper = Gatekeeper(store)
    reaper = Reaper(store, batch=BATCH)
    janitor = Janitor(store)
    await asyncio.gather(
        repeat(planner.step, every=0.2, full=BATCH, stop=stop, name="planner"),
        repeat(backfiller.step, every=0.2, full=LOOKED_AT, stop=stop, name="backfiller"),
        repeat(gatekeeper.step, every=0.1, full=BATCH, stop=stop, name="gatekeeper"),
        repeat(reaper.step, every=1.0, full=BATCH, stop=stop, name="reaper"),
        repeat(janitor.step, every=3600.0, full=BATCH, stop=stop, name="janitor"),
    )


async def run_reaper(store: Store, stop: asyncio.Event) -> None:
    """Every node reaps, so that no one machine has to be there."""
    await repeat(Reaper(store, batch=BATCH).step, every=1.0, full=BATCH, stop=stop, name="reaper")
