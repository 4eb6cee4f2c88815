"""`command` with real processes: what runs, what it sees, and that nothing of it survives."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rota.model.retry import Done, Outcome, Raised, Stopped, TimedOut
from rota.worker.builtin import builtin
from rota.worker.builtin.command import MOST_OUTPUT, program, run_command
from rota.worker.executor import MOST_RESULT, execute
from rota.worker.tasks import Failed, GiveUp
from tests.support.context import EXECUTION, a_context
from tests.support.processes import eventually

PYTHON = sys.executable


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_COMMANDS_ALLOW", f"sh, cat,env , sleep,{PYTHON}")


async def outcome_of(*, within: float = 60.0, **parameters: Any) -> Outcome:
    with ThreadPoolExecutor(1) as threads:
        return await execute(builtin.tasks["command"], json.dumps(parameters), within, threads, a_context())


async def sh(script: str, **parameters: Any) -> dict[str, Any]:
    return await run_command(a_context(), ["sh", "-c", script], **parameters)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def pids_in(file: Path, count: int) -> list[int]:
    async def written() -> list[int]:
        pids = [int(line) for line in file.read_text().split()] if file.exists() else []
        return pids if len(pids) >= count else []

    return await eventually(written)


async def until_gone(pids: list[int]) -> None:
    async def gone() -> bool:
        return not any(map(is_running, pids))

    await eventually(gone, within=10.0)


# A family: a command that ignores SIGTERM, a child in its group, and one that hides in a session of its own.
FAMILY = """
trap '' TERM
echo $$ >> {file}
sleep 600 & echo $! >> {file}
setsid sh -c 'trap "" TERM; echo $$ >> {file}; sleep 600' &
wait; wait; sleep 600
"""


# What it is given and gives back


async def test_a_command_gives_back_what_it_said() -> None:
    assert await sh("echo hello; echo oops >&2") == {"code": 0, "stdout": "hello\n", "stderr": "oops\n"}


async def test_arguments_are_not_read_by_a_shell() -> None:
    text = "$(id) ; `id` * && | > \n'\" grüße 😀"

    result = await run_command(a_context(), [PYTHON, "-c", "import sys; print(sys.argv[1:])", text, ""])

    assert result["stdout"] == f"{[text, '']}\n"


async def test_input_is_given() -> None:
    text = "grüße\n" * 20_000

    result = await run_command(a_context(), ["cat"], stdin=text)

    assert result["stdout"].startswith("…") and result["stdout"].endswith("grüße\n")


async def test_without_input_there_is_none_and_nobody_has_to_read_it() -> None:
    assert (await run_command(a_context(), ["cat"]))["stdout"] == ""
    assert (await sh("exec 0<&-; echo done", stdin="x" * 1_000_000))["stdout"] == "done\n"


async def test_a_command_runs_in_the_folder_it_is_given(tmp_path: Path) -> None:
    assert (await sh("pwd", cwd=str(tmp_path)))["stdout"] == f"{tmp_path}\n"


async def test_the_environment_is_small_and_has_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROTA_DATABASE_URL", "ROTA_SMTP_PASSWORD", "DATABASE_URL", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("TZ", "UTC")

    result = await run_command(a_context(), ["env"], env={"MINE": "1", "LANG": "de_DE.UTF-8"})

    seen = dict(line.split("=", 1) for line in result["stdout"].splitlines())
    assert set(seen) <= {"PATH", "HOME", "LANG", "TZ", "MINE", "ROTA_EXECUTION_ID", "ROTA_ATTEMPT", "ROTA_FENCE"}
    assert (seen["MINE"], seen["LANG"], seen["TZ"]) == ("1", "de_DE.UTF-8", "UTC")
    assert (seen["ROTA_EXECUTION_ID"], seen["ROTA_ATTEMPT"], seen["ROTA_FENCE"]) == (EXECUTION, "3", "3")


async def test_no_file_of_the_worker_is_open_in_a_command() -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    listing = (await sh("ls /proc/self/fd"))["stdout"]
    os.close(reading)
    os.close(writing)

    assert set(listing.split()) <= {"0", "1", "2", "3"}  # 3 is the listing's own


@pytest.mark.parametrize("noise", ["x", "\\0", "\\377", "\\n"])
async def test_any_output_can_be_kept_and_the_end_of_it_is(noise: str) -> None:
    script = f"for f in 1 2; do head -c 300000 /dev/zero | tr '\\0' '{noise}' >&$f; printf end >&$f; done"

    outcome = await outcome_of(argv=["sh", "-c", script])

    assert isinstance(outcome, Done) and outcome.result and len(outcome.result) <= MOST_RESULT
    result = json.loads(outcome.result)
    assert result["stdout"].endswith("end") and result["stderr"].endswith("end")


async def test_one_output_may_take_the_room_of_the_other() -> None:
    result = await sh(f"head -c {MOST_OUTPUT * 2} /dev/zero | tr '\\0' x")

    assert len(result["stdout"]) > 55_000


# How it ends


async def test_a_code_that_is_not_fine_is_tried_again() -> None:
    outcome = await outcome_of(argv=["sh", "-c", "echo out; echo why >&2; exit 3"])

    assert outcome == Raised("the command ended with code 3\nstderr: why\nstdout: out")


async def test_codes_mean_what_the_job_says() -> None:
    assert (await sh("exit 3", ok_codes=[0, 3]))["code"] == 3
    with pytest.raises(Failed, match="code 75"):
        await sh("exit 75", retry_codes=[75])
    with pytest.raises(GiveUp, match="code 1"):
        await sh("exit 1", retry_codes=[75])
    with pytest.raises(Failed, match="code 0"):
        await sh("exit 0", ok_codes=[1])


async def test_a_signal_is_a_negative_code() -> None:
    with pytest.raises(Failed, match="was ended by signal 9"):
        await sh("kill -9 $$")
    assert (await sh("kill -15 $$", ok_codes=[-15]))["code"] == -15


@pytest.mark.parametrize(
    "wrong",
    [
        {"argv": []},
        {"argv": "ls"},
        {"argv": ["sh", 1]},
        {"argv": ["sh", "a\0b"]},
        {"argv": ["sh"], "env": {"A": 1}},
        {"argv": ["sh"], "env": {"A=B": "1"}},
        {"argv": ["sh"], "env": {"": "1"}},
        {"argv": ["sh"], "cwd": "relative"},
        {"argv": ["sh"], "cwd": "/no/such/folder"},
        {"argv": ["sh"], "limits": {"cpu": 1}},
        {"argv": ["sh"], "limits": {"files": 0}},
        {"argv": ["sh", *(["x" * 100_000] * 100)]},
    ],
    ids=lambda wrong: str(wrong)[:50],
)
async def test_a_command_that_cannot_be_is_given_up(wrong: dict[str, Any]) -> None:
    outcome = await outcome_of(**wrong)

    assert isinstance(outcome, Raised) and outcome.final, outcome


# Who may run


async def test_commands_are_off_unless_they_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROTA_COMMANDS_ALLOW")

    with pytest.raises(GiveUp, match="ROTA_COMMANDS_ALLOW"):
        await run_command(a_context(), ["echo"])


@pytest.mark.parametrize("name", ["ls", "./sh", "bin/sh", "../bin/sh", "/usr/bin/../bin/sh", "", ".", "sh ", "SH"])
async def test_only_what_is_allowed_runs(name: str) -> None:
    with pytest.raises(GiveUp):
        await run_command(a_context(), [name])


def test_a_link_to_what_is_allowed_is_not_allowed(tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to("/bin/sh")

    with pytest.raises(GiveUp):
        program(str(tmp_path / "mine"), ["sh", "/bin/sh"], "/usr/bin:/bin")


def test_what_an_allowed_name_leads_to_does_not_allow_its_other_names(tmp_path: Path) -> None:
    """As with busybox: `ls` and `rm` are links to the same program."""
    (tmp_path / "many").write_text("#!/bin/sh\n")
    (tmp_path / "many").chmod(0o755)
    for name in ("harmless", "harmful"):
        (tmp_path / name).symlink_to(tmp_path / "many")

    assert program("harmless", ["harmless"], str(tmp_path)) == str(tmp_path / "harmless")
    for name in (str(tmp_path / "harmful"), str(tmp_path / "many"), "harmful", "many"):
        with pytest.raises(GiveUp):
            program(name, ["harmless"], str(tmp_path))


def test_names_are_not_found_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").write_text("#!/bin/sh\n")
    (tmp_path / "mine").chmod(0o755)
    monkeypatch.chdir(tmp_path)

    for path in ("", ".", ":.", "./"):
        with pytest.raises(GiveUp, match="no such program"):
            program("mine", ["mine"], path)


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "PYTHONPATH", "ROTA_FENCE"])
async def test_variables_that_would_run_something_else_are_refused(name: str) -> None:
    with pytest.raises(GiveUp, match="not the job's to set"):
        await run_command(a_context(), ["env"], env={name: "/tmp"})


# Limits


async def test_limits_hold() -> None:
    limits = {"cpu_seconds": 7, "memory_mb": 512, "files": 33}

    assert (await sh("ulimit -t; ulimit -v; ulimit -n", limits=limits))["stdout"].split() == ["7", "524288", "33"]


async def test_who_takes_too_much_memory_fails_alone() -> None:
    outcome = await outcome_of(argv=[PYTHON, "-c", "'x' * 10**9"], limits={"memory_mb": 200})

    assert isinstance(outcome, Raised) and "MemoryError" in outcome.error


async def test_who_takes_too_much_time_of_the_processor_is_killed() -> None:
    with pytest.raises(Failed, match=f"signal ({int(signal.SIGXCPU)}|9)"):
        await sh("while :; do :; done", limits={"cpu_seconds": 1})


# Nothing survives


async def test_what_a_command_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    file = tmp_path / "pids"

    await sh(f"sleep 600 & echo $! >> {file}; setsid sleep 600 & echo $! >> {file}; (sleep 600 & echo $! >> {file}) &")

    pids = [int(line) for line in file.read_text().split()]
    assert len(pids) >= 2 and not any(map(is_running, pids))


async def test_a_command_may_clean_up_when_it_is_cancelled(tmp_path: Path) -> None:
    script = f"trap 'echo cleaned > {tmp_path}/cleaned; exit 0' TERM; echo $$ > {tmp_path}/pids; sleep 600 & wait"
    attempt = asyncio.create_task(outcome_of(argv=["sh", "-c", script]))
    pids = await pids_in(tmp_path / "pids", 1)

    attempt.cancel()

    assert await attempt == Stopped()
    assert (tmp_path / "cleaned").exists() and not any(map(is_running, pids))


async def test_who_ignores_a_cancellation_is_killed_with_all_its_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_COMMANDS_GRACE", "0.2")
    file = tmp_path / "pids"
    attempt = asyncio.create_task(outcome_of(argv=["sh", "-c", FAMILY.format(file=file)]))
    pids = await pids_in(file, 3)

    attempt.cancel()

    assert await attempt == Stopped()
    assert not any(map(is_running, pids))


async def test_who_is_told_twice_is_killed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_COMMANDS_GRACE", "600")
    file = tmp_path / "pids"
    ctx = a_context()
    ctx.grace = 600.0
    attempt = asyncio.create_task(run_command(ctx, ["sh", "-c", FAMILY.format(file=file)]))
    pids = await pids_in(file, 3)

    attempt.cancel()
    await asyncio.sleep(0)
    attempt.cancel()
    await asyncio.wait([attempt], timeout=30)

    assert attempt.cancelled() and not any(map(is_running, pids))


async def test_who_takes_too_long_is_killed_before_the_worker_loses_its_patience(tmp_path: Path) -> None:
    file = tmp_path / "pids"

    async with asyncio.timeout(30):
        outcome = await outcome_of(within=1.0, argv=["sh", "-c", FAMILY.format(file=file)])

    assert outcome == TimedOut(1.0)
    assert not any(map(is_running, await pids_in(file, 3)))


async def test_a_killed_worker_takes_its_commands_along(tmp_path: Path) -> None:
    """kill -9 of the process that runs the task; the guardian notices, the whole family ends."""
    file = tmp_path / "pids"
    script = f"""
import asyncio
from rota.worker.builtin.command import run_command
from tests.support.context import EXECUTION, a_context
asyncio.run(run_command(a_context(), ["sh", "-c", {FAMILY.format(file=file)!r}]))
"""
    worker = subprocess.Popen([PYTHON, "-c", script])  # noqa: ASYNC220
    pids = await pids_in(file, 3)

    worker.kill()
    worker.wait()

    await until_gone(pids)


async def test_a_killed_guardian_takes_the_command_along(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    attempt = asyncio.create_task(outcome_of(argv=["sh", "-c", f"echo $$ $PPID >> {file}; exec sleep 600"]))
    [command, guardian] = await pids_in(file, 2)

    os.kill(guardian, signal.SIGKILL)
    outcome = await attempt

    assert isinstance(outcome, Raised) and not outcome.final and "guardian" in outcome.error
    await until_gone([command])


def test_every_worker_knows_command() -> None:
    assert builtin.tasks["command"].takes_context and builtin.tasks["command"].is_async
