from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from rota.model.errors import StoreError
from rota.store import embedded
from rota.store.embedded import EmbeddedPostgres, FolderInUse, running_dsn

STARTER = """
import sys
from pathlib import Path
from rota.store import embedded

embedded.PARENT_DEATH_SIGNAL = int(sys.argv[2])
server = embedded.EmbeddedPostgres(Path(sys.argv[1]))
try:
    print(server.start(), flush=True)
except embedded.FolderInUse as refused:
    sys.exit(str(refused))
sys.stdin.read()
server.stop()
"""


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has somebody else run the server")


@pytest.fixture
def place() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="rota-test-"))
    yield place
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """One for all tests, as making it is what takes long; each leaves it stopped and in order."""
    place = Path(tempfile.mkdtemp(prefix="rota-test-"))
    with EmbeddedPostgres(place / "rota-data"):
        pass
    yield place / "rota-data"
    shutil.rmtree(place)


@pytest.fixture
def server(folder: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(folder)
    yield server
    server.stop()


def test_a_new_folder_gets_a_server_that_answers(place: Path) -> None:
    with EmbeddedPostgres(place / "new" / "rota-data") as server:
        assert ask(server, "select 6 * 7") == 42
        assert ask(server, "select current_database()::text") == "rota"
        assert server.alive
    assert not server.alive


def test_a_commit_reaches_the_disk_whatever_somebody_sets(server: EmbeddedPostgres) -> None:
    server.start()
    ask(server, "alter system set fsync = off")
    ask(server, "alter system set synchronous_commit = off")
    server.stop()
    server.start()
    for setting in ("fsync", "synchronous_commit", "full_page_writes", "data_checksums"):
        assert ask(server, f"show {setting}") == "on"


def test_nothing_listens_on_the_network(server: EmbeddedPostgres) -> None:
    server.start()
    assert ask(server, "show listen_addresses") == ""
    assert ask(server, "show unix_socket_permissions") == "0700"


def test_strings_sort_the_same_on_every_machine(server: EmbeddedPostgres) -> None:
    server.start()
    assert ask(server, "show server_encoding") == "UTF8"
    assert ask(server, "select array_agg(w order by w) from unnest(array['b', 'a', 'B', 'ä']) w") == list("Babä")


def test_what_was_written_is_there_after_a_restart(server: EmbeddedPostgres) -> None:
    server.start()
    token = write(server)
    server.stop()
    server.start()
    assert written(server, token)


def test_stopping_twice_does_nothing(server: EmbeddedPostgres) -> None:
    server.stop()
    server.start()
    server.stop()
    server.stop()
    assert not server.alive


def test_a_missing_database_is_made(server: EmbeddedPostgres) -> None:
    dsn = server.start()
    asyncio.run(fetch(dsn.replace("/rota?", "/postgres?"), "drop database rota"))
    server.stop()
    server.start()
    assert ask(server, "select 1") == 1


def test_a_second_start_in_the_same_process_is_refused(server: EmbeddedPostgres, folder: Path) -> None:
    server.start()
    with pytest.raises(FolderInUse, match=f"{folder} is in use by process {os.getpid()}"):
        EmbeddedPostgres(folder).start()
    with pytest.raises(FolderInUse):
        server.start()
    assert ask(server, "select 1") == 1


def test_a_second_start_from_another_process_is_refused(server: EmbeddedPostgres, folder: Path) -> None:
    server.start()
    with starter(folder) as other:
        _, refusal = other.communicate(timeout=10)
    assert f"{folder} is in use by process {os.getpid()}" in refusal
    assert other.returncode == 1


def test_a_folder_that_another_process_stopped_is_free(server: EmbeddedPostgres, folder: Path) -> None:
    with starter(folder) as other:
        started(other)
        with pytest.raises(FolderInUse, match=f"process {other.pid}"):
            server.start()
        other.communicate(timeout=10)
    server.start()
    assert server.alive


def test_committed_work_survives_a_kill_of_everything(server: EmbeddedPostgres, folder: Path) -> None:
    server.start()
    token = write(server)
    postmaster = pid_of(folder)
    for pid in (postmaster, *children_of(postmaster)):
        os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not server.alive)
    server.stop()
    server.start()
    assert written(server, token)


def test_a_busy_backend_that_outlives_its_postmaster_delays_the_next_start(
    server: EmbeddedPostgres, folder: Path
) -> None:
    dsn = server.start()
    token = write(server)
    busy = [str(embedded.BIN / "psql"), dsn, "-c", "select count(*) from generate_series(1, 4000000)"]
    with subprocess.Popen(busy, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        assert eventually(
            lambda: ask(server, "select exists (select from pg_stat_activity where query like '%4000000)')")
        )
        os.kill(pid_of(folder), signal.SIGKILL)
        server.stop()
        server.start()
    assert written(server, token)


def test_the_server_ends_by_itself_when_its_owner_is_killed(server: EmbeddedPostgres, folder: Path) -> None:
    with starter(folder) as owner:
        started(owner)
        postmaster = pid_of(folder)
        owner.kill()
    assert eventually(lambda: not runs(postmaster))
    assert not (folder / "pg" / "postmaster.pid").exists()  # it had the time to shut down


def test_a_server_left_alone_is_replaced_by_the_next_start(server: EmbeddedPostgres, folder: Path) -> None:
    with starter(folder, death_signal=0) as owner:
        server.dsn = started(owner)
        token = write(server)
        orphan = pid_of(folder)
        owner.kill()
    assert runs(orphan)
    server.start()
    assert not runs(orphan)
    assert written(server, token)


def test_the_thread_that_called_start_may_end(server: EmbeddedPostgres, folder: Path) -> None:
    caller = threading.Thread(target=server.start)
    caller.start()
    caller.join()
    assert ask(server, "select 1") == 1
    assert running_dsn(folder) == server.dsn


def test_a_server_that_hangs_is_killed(server: EmbeddedPostgres, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.start()
    token = write(server)
    os.kill(pid_of(folder), signal.SIGSTOP)
    with monkeypatch.context() as impatient:
        impatient.setattr(embedded, "SHUTDOWN", [(sign, 0.1) for sign, _ in embedded.SHUTDOWN[:2]] + [(9, 5.0)])
        server.stop()
    assert not server.alive
    server.start()
    assert written(server, token)


def test_a_ctrl_c_in_the_terminal_does_not_reach_the_server(server: EmbeddedPostgres, folder: Path) -> None:
    server.start()
    assert os.getpgid(pid_of(folder)) != os.getpgid(0)
    assert os.getsid(pid_of(folder)) != os.getsid(0)


def test_a_kill_while_the_cluster_is_made_leaves_no_half_of_it(place: Path) -> None:
    folder = place / "rota-data"
    with starter(folder, death_signal=signal.SIGKILL) as killed:
        assert eventually(lambda: (folder / "pg.new" / "global").exists())
        killed.kill()
    assert not (folder / "pg").exists()
    with EmbeddedPostgres(folder) as server:
        assert ask(server, "select 1") == 1
    assert not (folder / "pg.new").exists()


@pytest.mark.parametrize("content", ["", "\0\0\0\0"])
def test_a_pid_file_that_a_crash_spoiled_is_no_obstacle(server: EmbeddedPostgres, folder: Path, content: str) -> None:
    write_pid_files(folder, content)
    server.start()
    assert ask(server, "select 1") == 1


def test_a_stale_pid_that_somebody_else_has_now_is_no_obstacle(server: EmbeddedPostgres, folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        write_pid_files(folder, f"{bystander.pid}\n{folder / 'pg'}\n")
        server.start()
        assert ask(server, "select 1") == 1
        assert bystander.poll() is None
        bystander.communicate(b"\n", timeout=10)


@pytest.mark.parametrize("name", ["long" * 40, "one,two", "of 'many' words & 100% ünï"])
def test_any_path_will_do(place: Path, folder: Path, name: str) -> None:
    with moved(folder, place / name / "rota-data") as server:
        server.start()
        assert ask(server, "select 1") == 1
        assert running_dsn(server.data) == server.dsn


def test_a_socket_folder_outside_is_private_and_goes_away(place: Path, folder: Path) -> None:
    with moved(folder, place / ("long" * 40)) as server:
        server.start()
        sockets = sockets_of(server)
        assert sockets.parent == Path(tempfile.gettempdir()).resolve()
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert sockets.stat().st_uid == server.cluster.stat().st_uid
        server.stop()
        assert not sockets.exists()


def test_a_socket_folder_made_by_someone_else_is_refused(place: Path, folder: Path) -> None:
    with moved(folder, place / ("long" * 40)) as server:
        server.start()
        server.stop()
        sockets = sockets_of(server)
        sockets.symlink_to(place)
        with pytest.raises(StoreError, match="belongs to someone else"):
            server.start()
        sockets.unlink()
        server.start()
        assert ask(server, "select 1") == 1


def test_a_running_server_can_be_found_by_its_folder(folder: Path, place: Path) -> None:
    assert running_dsn(place / "nothing") is None
    with starter(folder) as other:
        dsn = started(other)
        assert running_dsn(folder) == dsn
        assert asyncio.run(fetch(dsn, "select 1")) == 1
        other.communicate(timeout=10)
    assert running_dsn(folder) is None


def test_a_killed_server_is_not_found(server: EmbeddedPostgres, folder: Path) -> None:
    server.start()
    os.kill(pid_of(folder), signal.SIGKILL)
    assert eventually(lambda: not server.alive)
    assert (folder / "pg" / "postmaster.pid").exists()
    assert running_dsn(folder) is None


def test_a_cluster_of_another_version_is_refused(place: Path) -> None:
    (place / "pg").mkdir()
    (place / "pg" / "PG_VERSION").write_text("16\n")
    with pytest.raises(StoreError, match="made by PostgreSQL 16, and this Rota runs 18"):
        EmbeddedPostgres(place).start()


def test_a_folder_that_is_no_cluster_is_left_alone(place: Path) -> None:
    (place / "pg").mkdir()
    (place / "pg" / "thesis.txt").write_text("precious")
    with pytest.raises(StoreError, match="not a PostgreSQL cluster"):
        EmbeddedPostgres(place).start()
    assert (place / "pg" / "thesis.txt").read_text() == "precious"


def test_a_failed_start_says_what_the_server_said_and_frees_the_folder(
    server: EmbeddedPostgres, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setitem(embedded.SETTINGS, "max_connections", "nonsense")
        with pytest.raises(StoreError, match=r'(?s)postgres\.log.*invalid value .*"nonsense"'):
            server.start()
    server.start()
    assert ask(server, "select 1") == 1


def test_an_overgrown_log_starts_anew(server: EmbeddedPostgres, folder: Path) -> None:
    log = folder / "postgres.log"
    os.truncate(log, embedded.LOG_LIMIT + 1)
    server.start()
    assert log.stat().st_size < 100_000


@as_root
def test_root_hands_the_cluster_over_and_opens_no_more_than_the_way(place: Path, folder: Path) -> None:
    with moved(folder, place / "rota-data") as server:
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        server.start()
        assert server.cluster.stat().st_uid != 0
        assert stat.S_IMODE(server.cluster.stat().st_mode) == 0o700
        assert stat.S_IMODE(place.stat().st_mode) == 0o701


@as_root
def test_a_cluster_that_root_copied_back_is_handed_over_again(server: EmbeddedPostgres) -> None:
    server.start()
    server.stop()
    for path in (server.cluster, *server.cluster.rglob("*")):
        os.chown(path, 0, 0)
    server.start()
    assert ask(server, "select 1") == 1


@contextmanager
def starter(folder: Path, *, death_signal: int = signal.SIGINT) -> Iterator[subprocess.Popen[str]]:
    """Another process of ours, which runs the server in this folder until its stdin ends."""
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, str(folder), str(int(death_signal))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        yield process


def started(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    dsn = process.stdout.readline().strip()
    assert dsn.startswith("postgresql://")
    return dsn


async def fetch(dsn: str, statement: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def ask(server: EmbeddedPostgres, statement: str) -> object:
    assert server.dsn is not None
    return asyncio.run(fetch(server.dsn, statement))


def write(server: EmbeddedPostgres) -> str:
    token = uuid.uuid4().hex
    ask(server, f"create table survivor_{token} ()")
    return token


def written(server: EmbeddedPostgres, token: str) -> bool:
    return ask(server, f"select to_regclass('survivor_{token}') is not null") is True


@contextmanager
def moved(folder: Path, to: Path) -> Iterator[EmbeddedPostgres]:
    to.parent.mkdir(exist_ok=True)
    folder.rename(to)
    server = EmbeddedPostgres(to)
    try:
        yield server
    finally:
        server.stop()
        to.rename(folder)


def sockets_of(server: EmbeddedPostgres) -> Path:
    assert server.dsn is not None
    return Path(parse_qs(urlsplit(server.dsn).query)["host"][0])


def pid_of(folder: Path) -> int:
    return int((folder / "pg" / "postmaster.pid").read_text().splitlines()[0])


def write_pid_files(folder: Path, content: str) -> None:
    (folder / "pg" / "postmaster.pid").write_text(content)
    (folder / "pg" / ".s.PGSQL.5432.lock").write_text(content)


def children_of(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [line.split() for line in listed.splitlines()]
    return [int(child) for child, parent in pairs if int(parent) == pid]


def runs(pid: int) -> bool:
    """A zombie does not run: whoever adopts an orphan may take its time to bury it."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    return bool(state) and not state.startswith("Z")


def eventually(condition: Callable[[], object], patience: float = 10.0) -> bool:
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True
