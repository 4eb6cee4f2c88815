"""One run of a workload: the stage, the work, the ceiling beside it, and the report of it all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from rota.bench.limit import limit
from rota.bench.load import Report
from rota.bench.plot import lateness_svg
from rota.bench.stage import Setup, Stage, Tell, a_stage

Workload = Callable[[Stage, Tell], Awaitable[Report]]


async def run(name: str, workload: Workload, setup: Setup, tell: Tell, *, ceiling: int) -> Report:
    """`ceiling` is the number of jobs that the raw statements are measured with, on the same server afterwards."""
    async with a_stage(setup, tell) as stage:
        report: Report = {"workload": name, "ok": True, "at": datetime.now(UTC).isoformat(timespec="seconds")}
        report |= await workload(stage, tell)
        if ceiling and "limit_rate" not in report:
            tell("measuring the ceiling", None)
            report |= await limit(stage, ceiling)
        if "limit_rate" in report:
            report["ratio"] = round(report["rate"] / report["limit_rate"], 3)
        return report | await stage.facts()


def plot(report: Report, file: Path) -> None:
    notes = [f"{report['jobs']:,} jobs, {report['rate']:,g} a second"]
    title = f"rota bench {report['workload']}: start of the task body − due"
    file.write_text(lateness_svg(title, report["points"], notes=notes))
