"""A whole controller as processes at the debug level: broker, `serve`, a receiver of webhooks, command lines."""

from __future__ import annotations

import logging
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from kits.mqtt import need_mosquitto, wait_for
from kits.secretbook import Outputs, SecretBook
from kits.webvisitor import ApiClient, Client, Person

from edgegpu_cloud.layout import CloudLayout
from edgegpu_sim.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SAMPLE_S = 0.1
LOGGERS = ("edgegpu_sync", "paho")
"""The loggers of a box's link."""


class Processes:
    """Whatever processes this run has started, sampled: their command lines, and the environment of each."""

    def __init__(self) -> None:
        self.seen: dict[bytes, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.wait(_SAMPLE_S):
            self._look(os.getpid())

    def _look(self, parent: int) -> None:
        children: list[int] = []
        with suppress(OSError):  # it has ended
            for task in Path(f"/proc/{parent}/task").glob("*/children"):
                with suppress(OSError):  # this thread has
                    children += [int(one) for one in task.read_text().split()]
        for child in children:
            self._keep(child)
            self._look(child)

    def _keep(self, pid: int) -> None:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            for name in ("cmdline", "environ"):
                self.seen.setdefault(Path(f"/proc/{pid}/{name}").read_bytes(), f"{name} of {words[:200]!r}")
        except OSError:
            return  # it has ended


class _Kept(logging.Handler):
    """Keeps each line of this process's log: that of the box's link."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class DaySite:
    """A controller in a folder, and all that it puts out."""

    def __init__(self, work: Path) -> None:
        self.work, self.layout = work, CloudLayout(work / "cloud")
        self.book, self.outputs, self.processes = SecretBook(), Outputs(), Processes()
        self.console_url = self.https_url = ""
        self._running: list[subprocess.Popen[bytes]] = []
        self._clients: list[Client] = []
        self._log = _Kept()

    @property
    def ca(self) -> Path:
        return self.layout.ca_cert("servers")

    # command lines

    def cli(
        self, *words: str, shows: Iterable[str] = (), code: int = 0, stdin: str = "", env: dict[str, str] | None = None
    ) -> str:
        """Run `edgegpu-cloud` as a process of its own; return what it prints."""
        more = {"EDGEGPU_CLOUD": str(self.layout.folder), "EDGEGPU_DEBUG": "1", **(env or {})}
        done = subprocess.run(
            [sys.executable, "-m", "edgegpu_cloud.cli.app", *words],
            env={**os.environ, **more},
            input=stdin.encode(),
            capture_output=True,
            check=False,
            timeout=120,
        )
        self.outputs.add(f"edgegpu-cloud {' '.join(words[:3])}", done.stdout + b"\n" + done.stderr, shows=shows)
        assert done.returncode == code, done.stderr[-2_000:].decode()
        return done.stdout.decode()

    # processes

    def init(self) -> str:
        """Make the controller; return the code of the first admin's link."""
        https, console, broker, controllers = (free_port() for _ in range(4))
        self.https_url, self.console_url = f"https://127.0.0.1:{https}", f"https://127.0.0.1:{console}"
        ports = ("--https-port", str(https), "--console-port", str(console), "--controller-port", str(controllers))
        name = "the first admin's link"
        said = self.cli("init", "--name", "127.0.0.1", "--broker", f"127.0.0.1:{broker}", *ports, shows=[name])
        return self.book.add(name, code_in(said))

    def configure(self, hook: str, hook_ca: str, secret: str) -> None:
        """Log everything, and tell a receiver of alerts."""
        config = yaml.safe_load(self.layout.config.read_text())
        webhook = {"urls": [hook], "secret": secret, "ca": hook_ca, "allow_local": True}
        config |= {"log_level": "debug", "alerts": {"webhook": webhook}}
        self.layout.config.write_text(yaml.safe_dump(config))
        broker = self.layout.broker / "mosquitto.conf"
        broker.write_text(re.sub(r"(log_type \w+\n)+", "log_type all\n", broker.read_text()))

    def start(self) -> None:
        """Start the broker and `serve`; wait until all is there."""
        self.processes.start()
        for name in LOGGERS:
            logging.getLogger(name).addHandler(self._log)
            logging.getLogger(name).setLevel(logging.DEBUG)
        self._run("broker.log", need_mosquitto(), "-c", str(self.layout.broker / "mosquitto.conf"))
        self._run(
            "serve.log", sys.executable, "-m", "edgegpu_cloud.cli.app", "serve", "--folder", str(self.layout.folder)
        )
        wait_for(lambda: b"connected: asking" in self.log("serve.log"), what="the controller is on the link")
        wait_for(lambda: b"the console is at" in self.log("serve.log"), what="the console is there", timeout_s=60)

    def _run(self, log: str, *words: str) -> None:
        with (self.work / log).open("ab") as file:
            self._running.append(subprocess.Popen(words, stdout=file, stderr=file))

    def log(self, name: str) -> bytes:
        return (self.work / name).read_bytes()

    def _children(self) -> list[int]:
        pid = self._running[-1].pid
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def child(self, name: str) -> int:
        """Return the pid of a process of `serve`; 0 where there is none."""
        named = (one for one in self._children() if Path(f"/proc/{one}/comm").read_text().strip() == name)
        return next(named, 0)

    def end(self) -> None:
        """End all, and keep what was logged."""
        for client in self._clients:
            client.close()
        for process in reversed(self._running):
            process.send_signal(signal.SIGTERM)
            process.wait(30)
        self.processes.stop()
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(self._log)
        for data, where in self.processes.seen.items():
            self.outputs.add(where, data)
        for path in self.work.glob("*.log"):
            self.outputs.add(path.name, path.read_bytes())
        self.outputs.add("the log of the box", "\n".join(self._log.lines).encode())

    # clients

    def person(self, who: str) -> Person:
        made = Person(self.console_url, self.ca, self.outputs, self.book, who=who)
        self._clients.append(made)
        return made

    def program(self, who: str, token: str) -> ApiClient:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        made = ApiClient(self.console_url, self.ca, self.outputs, who=who, headers=headers)
        self._clients.append(made)
        return made

    def box(self, who: str) -> Client:
        made = Client(self.https_url, self.ca, self.outputs, who=who, headers={})
        self._clients.append(made)
        return made

    # the store

    @contextmanager
    def refusing(self, *tables: str) -> Iterator[None]:
        """Let the database refuse every row that is written to these tables."""
        each = [(table, what) for table in tables for what in ("INSERT", "UPDATE")]
        self._sql(
            [
                f"CREATE TRIGGER refuse_{table}_{what} BEFORE {what} ON {table} BEGIN SELECT RAISE(ABORT, 'full'); END"
                for table, what in each
            ]
        )
        yield
        self._sql([f"DROP TRIGGER refuse_{table}_{what}" for table, what in each])

    @contextmanager
    def broken_account(self, name: str) -> Iterator[None]:
        """Let an account have a role that there is none of: who reads it fails."""
        with sqlite3.connect(self.layout.database, timeout=30) as connection:
            (role,) = connection.execute("SELECT role FROM accounts WHERE name = ?", (name,)).fetchone()
        connection.close()
        self._sql(["UPDATE accounts SET role = 'king' WHERE name = ?"], name)
        yield
        self._sql(["UPDATE accounts SET role = ? WHERE name = ?"], role, name)

    def crash(self, name: str) -> None:
        """Let a process of `serve` die of a fault of its own; wait until there is another."""
        before = self.child(name)
        os.kill(before, signal.SIGABRT)
        wait_for(lambda: before not in self._children(), what=f"{name} has died")
        wait_for(lambda: self.child(name) != 0, what=f"{name} is started again")

    def _sql(self, statements: Iterable[str], *values: str) -> None:
        with sqlite3.connect(self.layout.database, timeout=30) as connection:
            for one in statements:
                connection.execute(one, values)
        connection.close()

    def add_stored(self) -> None:
        """Add the secrets that the controller has made for itself: its keys, and the hashes in its store."""
        for path in self.layout.folder.rglob("*.key"):
            self.book.add_key(f"the key {path.relative_to(self.layout.folder)}", path.read_text())
        queries = {
            "a password's hash": "SELECT password FROM accounts WHERE password != ''",
            "a session's hash": "SELECT digest FROM web_sessions",
            "an API token's hash": "SELECT digest FROM api_tokens",
            "a link's hash": "SELECT digest FROM one_time_links",
            "an enrolment token's hash": "SELECT digest FROM tokens",
        }
        with sqlite3.connect(self.layout.database, timeout=30) as connection:
            for name, query in queries.items():
                for (value,) in connection.execute(query):
                    self.book.add(name, value)
        connection.close()


def code_in(text: str) -> str:
    """Return the code of the one-time link in a text."""
    found = re.search(r"/link\?code=([\w-]{20,})", text)
    assert found is not None, text
    return found[1]
