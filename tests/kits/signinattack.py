"""An attack on the sign-in page of a real console: who attacks, who looks at pages meanwhile, what it costs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import urllib3
from kits.cloudcli import ok
from kits.mqtt import wait_for

from edgegpu_cloud.console.visitor import SESSION_COOKIE
from edgegpu_cloud.layout import CloudLayout
from edgegpu_sim.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

HOST, OWNER = "127.0.0.1", "anna"
PASSWORD = "four words are enough here"  # noqa: S105  (a test's)
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_PAUSE_S = 0.05


class Browser:
    """Sends requests from one loopback address, on a connection that stays."""

    def __init__(self, port: int, ca: Path, address: str = HOST) -> None:
        self._pool = urllib3.HTTPSConnectionPool(
            HOST, port, ca_certs=str(ca), source_address=(address, 0), timeout=60, retries=False
        )
        self.session = ""

    def ask(self, path: str, form: Mapping[str, str] | None = None) -> urllib3.BaseHTTPResponse:
        """Send one request, with a form a POST."""
        headers = {"Cookie": f"{SESSION_COOKIE}={self.session}"} if self.session else {}
        if form is None:
            return self._pool.request("GET", path, headers=headers, redirect=False)
        return self._pool.request("POST", path, body=urlencode(form), headers=headers | _FORM, redirect=False)

    def sign_in(self, name: str, password: str) -> int:
        """Send the sign-in form; return the status."""
        return self.ask("/sign-in", {"name": name, "password": password}).status

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()


@dataclass
class AttackedConsole:
    """`edgegpu-cloud serve` as processes, with one administrator, who has signed in from 127.0.0.1."""

    port: int
    ca: Path
    pid: int
    database: Path
    owner: Browser

    def browser(self, address: str = HOST) -> Browser:
        """Return a browser at a loopback address, with nobody's session."""
        return Browser(self.port, self.ca, address)

    def memory_mib(self, name: str = "VmRSS") -> float:
        """Return the console's memory by its name in /proc/PID/status."""
        found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1]) / 1_024

    def cpu_s(self) -> float:
        """Return the seconds of processor time that the console has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @contextmanager
    def peak(self) -> Iterator[list[float]]:
        """Yield a list that gets the MiB by which the console's memory rose at most within the block."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")  # VmHWM begins anew
        before, rose = self.memory_mib(), list[float]()
        yield rose
        rose.append(self.memory_mib("VmHWM") - before)


@contextmanager
def attacked_console(work: Path) -> Iterator[AttackedConsole]:
    """Run `serve` with HTTPS and console, and let the first administrator in."""
    folder, https, port, log = work / "cloud", free_port(), free_port(), work / "serve.log"
    ok("init", "--name", HOST, "--https-port", str(https), "--console-port", str(port), folder=folder)
    layout = CloudLayout(folder)
    words = [sys.executable, "-m", "edgegpu_cloud.cli.app", "serve", "--no-link", "--folder", str(folder)]
    with log.open("wb") as to:
        process = subprocess.Popen(words, stdout=to, stderr=to)
    owner = Browser(port, layout.ca_cert("servers"))
    try:
        wait_for(lambda: b"the console is at" in log.read_bytes(), what="the console listens", timeout_s=60)
        owner.session = _first_admin(owner, folder)
        yield AttackedConsole(port, layout.ca_cert("servers"), _child(process.pid), layout.database, owner)
    finally:
        owner.close()
        process.terminate()
        assert process.wait(30) == 0, log.read_text()[-2_000:]


def _child(pid: int) -> int:
    children = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return next(one for one in children if Path(f"/proc/{one}/comm").read_text().strip() == "edgegpu-console")


def _first_admin(owner: Browser, folder: Path) -> str:
    code = ok("people", "link", "--json", folder=folder).json["link"].partition("code=")[2]
    answer = owner.ask("/link", {"code": code, "name": OWNER, "password": PASSWORD, "again": PASSWORD})
    assert answer.status == 303, answer.data
    return answer.headers["set-cookie"].partition("=")[2].partition(";")[0]


@dataclass
class Attack:
    """So many wrong tries at the sign-in page, by a thread at each address; every second one guesses at one account."""

    console: AttackedConsole
    addresses: Sequence[str]
    tries: int
    came: Counter[tuple[str, bool, int]] = field(default_factory=Counter)
    """How often there was an answer, by address, whether it was a guess at the account, and status."""
    took_s: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Attack beside the block, and wait at its end until all tries are answered."""
        numbers, lock, began = iter(range(self.tries)), threading.Lock(), time.monotonic()

        def attack(address: str) -> None:
            browser = self.console.browser(address)
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    self.done.set()
                    return browser.close()
                guesses = number % 4 < 2  # every address does both
                status = browser.sign_in(OWNER if guesses else f"name-{number}", f"a wrong guess, number {number}")
                with lock:
                    self.came[address, guesses, status] += 1

        threads = [threading.Thread(target=attack, args=[one]) for one in self.addresses]
        for one in threads:
            one.start()
        try:
            yield
        finally:
            for one in threads:
                one.join(3_000)
            self.took_s = time.monotonic() - began

    def answers(self, status: int, *, guesses: bool | None = None, address: str = "") -> int:
        """Return how many answers had a status, of those alone that are asked for."""
        return sum(
            number
            for (at, guess, code), number in self.came.items()
            if code == status and guesses in {None, guess} and address in {"", at}
        )


@dataclass
class Crowd:
    """Wrong sign-ins of ever other names from ever other addresses, by so many threads at one time."""

    console: AttackedConsole
    threads: int
    answers: Counter[int] = field(default_factory=Counter)

    @contextmanager
    def running(self, status: int) -> Iterator[None]:
        """Attack beside the block, which begins when there has been an answer with a status."""
        stop, seen, lock, numbers = threading.Event(), threading.Event(), threading.Lock(), count()

        def attack() -> None:
            while not stop.is_set():
                with lock:
                    number = next(numbers)
                browser = self.console.browser(
                    f"127.{64 + number // 62_500 % 64}.{number // 250 % 250}.{1 + number % 250}"
                )
                came = browser.sign_in(f"name-{number}", "a wrong guess")
                browser.close()
                with lock:
                    self.answers[came] += 1
                if came == status:
                    seen.set()

        threads = [threading.Thread(target=attack) for _ in range(self.threads)]
        for one in threads:
            one.start()
        try:
            assert seen.wait(120), self.answers
            yield
        finally:
            stop.set()
            for one in threads:
                one.join(120)


def times_ms(browser: Browser, path: str, *, least: int, done: threading.Event | None = None) -> list[float]:
    """Return how long answers took, of so many requests at least, and until something is done; each must be a 200."""
    found: list[float] = []
    pause = threading.Event()
    for number in count(1):
        began = time.perf_counter()
        assert browser.ask(path).status == 200
        found.append((time.perf_counter() - began) * 1_000)
        if number >= least and (done is None or done.is_set()):
            return found
        pause.wait(_PAUSE_S)
    raise AssertionError


def p95(values: Sequence[float]) -> float:
    """Return the value that 95 in a hundred do not pass."""
    return sorted(values)[int(len(values) * 0.95)]
