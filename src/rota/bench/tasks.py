"""The task that benchmarks run: it leaves one line of 32 bytes, which is the proof that it ran and when."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rota.bench.witness import FLOOD, LINE, TASKS
from rota.worker.context import Context
from rota.worker.tasks import App

app = App()
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_lines = os.open(Path(os.environ["ROTA_DATA"]) / f"{os.getpid()}.ran", _FLAGS, 0o600)


async def bench(ctx: Context) -> None:
    os.write(_lines, LINE.pack(ctx.key.job_id.bytes, ctx.key.fires_at.timestamp(), time.time()))


# The same under several names, so that measurements on one stage can be told from each other; and one that leaves no
# line, for work that only stands in the way.
for _name in TASKS:
    app.task(_name)(bench)


@app.task(FLOOD)
async def flood() -> None:
    pass
