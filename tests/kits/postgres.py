"""A real PostgreSQL: a server of its own for a test run, as a user who is not root, with a socket of its own."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, make_url, text

from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sim.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

MISSING = "no PostgreSQL here: apt-get install postgresql"
# A commit still outlives the server: it is only the machine that may not crash.
_FAST = (
    "fsync=off",
    "full_page_writes=off",
    "max_connections=60",
    "shared_buffers=32MB",
    "max_wal_size=64MB",
    "min_wal_size=32MB",
)
_HBA = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
_SUPERUSER = "postgres"
_LIMIT_S = 60


def need() -> None:
    """Skip the test where there is no PostgreSQL; in CI that is a failure, for it installs one."""
    if programs() is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(MISSING)


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, the newest that Debian has here, or the one on the PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda one: float(one.parts[-3]))
    found = debian[-1] if debian else shutil.which("initdb")
    return Path(found).parent if found else None


class PostgresServer:
    """A server below `folder`, whose path must be short: its socket lies there."""

    def __init__(self, folder: Path) -> None:
        found = programs()
        if found is None:
            raise FileNotFoundError(MISSING)
        self._programs, self.folder, self.port = found, folder, free_port()
        self._data, self._log = folder / "data", folder / "log"
        self._numbers = itertools.count(1)
        self._with_tables = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._as = ["setpriv", "--pdeathsig", "QUIT"]
        if os.geteuid() == 0:  # initdb and postgres refuse root
            user = _unprivileged()
            os.chown(folder, user.pw_uid, user.pw_gid)
            self._as += [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        self._run("initdb", "-D", str(self._data), "-U", _SUPERUSER, "-E", "UTF8", "--locale=C", "-A", "trust", "-N")
        (self._data / "pg_hba.conf").write_text(_HBA)

    def _run(self, program: str, *words: str) -> None:
        command = [*self._as, str(self._programs / program), *words]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False, timeout=_LIMIT_S)
        if done.returncode:
            raise RuntimeError(f"{program} has failed:\n{done.stdout}{done.stderr}\n{self.log()}")

    def log(self) -> str:
        """Return what the server has written."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        words = [word for setting in _FAST for word in ("-c", setting)]
        with self._log.open("ab") as log:
            command = [*self._as, str(self._programs / "postgres"), "-D", str(self._data), "-k", str(self.folder)]
            self._process = subprocess.Popen(
                [*command, "-h", "127.0.0.1", "-p", str(self.port), *words], cwd="/", stdout=log, stderr=log
            )
        if not self._answers():
            raise RuntimeError(f"PostgreSQL has not started:\n{self.log()}")

    def _answers(self) -> bool:
        ask = [str(self._programs / "pg_isready"), "-q", "-h", str(self.folder), "-p", str(self.port), "-t", "1"]
        assert self._process is not None
        while self._process.poll() is None:
            if not subprocess.run(ask, check=False, timeout=_LIMIT_S).returncode:
                return True
        return False

    def stop(self) -> None:
        """End the server at once, as a crash would: clients lose their connections."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(_LIMIT_S)
            self._process = None

    def url(self, database: str) -> str:
        """Return the URL of a database, over the socket, without a password."""
        return f"postgresql+psycopg://{_SUPERUSER}@/{database}?host={self.folder}&port={self.port}"

    def tcp_url(self, database: str, *, user: str, password: str = "") -> str:
        """Return the URL of a database over TCP, where the server asks for a password."""
        login = f"{user}:{password}" if password else user
        return f"postgresql+psycopg://{login}@127.0.0.1:{self.port}/{database}"

    def new_database(self, template: str = "template1") -> str:
        """Create an empty database, or a copy of one that nobody has open; return its URL."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def new_store(self) -> str:
        """Create a database with a controller's tables; return its URL. Making them takes half a second."""
        if not self._with_tables:
            made = self.new_database()
            ControllerStore.open(made).close()
            self._with_tables = _name(made)
        return self.new_database(self._with_tables)

    def drop(self, url: str) -> None:
        """Remove a database, whoever has it open: hundreds of them take gigabytes, and minutes to remove in the end."""
        self.execute(f"DROP DATABASE IF EXISTS {_name(url)} WITH (FORCE)")

    def restore(self, dump: Path, url: str) -> None:
        """Bring a dump of `pg_dump --format=custom` into an empty database."""
        where = url.replace("+psycopg", "")
        words = ["--no-owner", "--exit-on-error", "--dbname", where, str(dump)]
        subprocess.run([str(self._programs / "pg_restore"), *words], check=True, timeout=_LIMIT_S)

    def execute(self, *statements: str, url: str = "") -> None:
        """Run statements as the superuser, each by itself."""
        engine = create_engine(url or self.url("postgres"), isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                for one in statements:
                    connection.execute(text(one))
        finally:
            engine.dispose()


def _name(url: str) -> str:
    return str(make_url(url).database)


def _unprivileged() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


@contextmanager
def running(folder: Path) -> Iterator[PostgresServer]:
    """Yield a server that runs until the block ends."""
    server = PostgresServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
