"""One run of a workload: the stage, the work, the ceiling beside it, and the report of it all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean

from rota.bench.limit import limit
from rota.bench.load import Report
from rota.bench.plot import lateness_svg
from rota.bench.stage import Setup, Stage, Tell, a_stage

Workload = Callable[[Stage, Tell], Awaitable[Report]]


async def run(name: str, workload: Workload, setup: Setup, tell: Tell, *, ceiling: int) -> Report:
    """`ceiling` is the number of jobs that the raw statements are measured with, on the same server before and after.

    Machines have their moods: a ceiling of one moment and a workload of the next say little of each other.
    """
    async with a_stage(setup, tell) as stage:
        report: Report = {"workload": name, "ok": True, "at": datetime.now(UTC).isoformat(timespec="seconds")}
        before = await _ceiling(stage, tell, ceiling)
        report |= await workload(stage, tell)
        after = await _ceiling(stage, tell, ceiling)
        if before and after:
            rates = [before["limit_rate"], after["limit_rate"]]
            report |= after | {"limit_rate": round(mean(rates)), "limit_rates": rates}
        if "limit_rate" in report:
            report["ratio"] = round(report["rate"] / report["limit_rate"], 3)
        return report | await stage.facts()


async def _ceiling(stage: Stage, tell: Tell, count: int) -> Report:
    if not count:
        return {}
    tell("measuring the ceiling", None)
    return await limit(stage, count)


def plot(report: Report, file: Path) -> None:
    notes = [f"{report['jobs']:,} jobs, {report['rate']:,g} a second"]
    title = f"rota bench {report['workload']}: start of the task body − due"
    file.write_text(lateness_svg(title, report["points"], notes=notes))
