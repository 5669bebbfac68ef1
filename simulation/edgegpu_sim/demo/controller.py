"""The demo's controller and its broker: processes as a user has them, in a folder below the demo's."""

import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from edgegpu_agent.demo.model import DemoError
from edgegpu_sim.demo.processes import CommandOutcome, Processes
from edgegpu_sim.ports import answers, free_port

_START_S = 30.0
_COMES_S = 40.0
_LOOK_S = 0.2
_NEEDS = ("edgegpu_cloud", "sqlalchemy", "fastapi", "uvicorn", "cryptography")
_SBIN = "/usr/sbin:/usr/local/sbin"
"""The folders in which Debian has mosquitto; they are not on every user's PATH."""


def is_importable(name: str) -> bool:
    """Return whether this Python has a package of that name."""
    return find_spec(name) is not None


def missing(has: Callable[[str], bool] = is_importable, *, mosquitto: str | None) -> str:
    """Return what the demo's cloud lacks on this machine; empty when nothing.

    Args:
        has: returns whether there is a package of that name.
        mosquitto: the program; None without it.
    """
    absent = [name for name in _NEEDS if not has(name)]
    if absent:
        return f"{', '.join(absent)} not installed here: a controller is set up by pip install 'SOURCE[cloud]'"
    if mosquitto is None and not has("amqtt"):
        return "there is no broker: apt-get install mosquitto, or run it by `make demo`, which brings one along"
    return ""


def find_mosquitto() -> str | None:
    """Return the path of mosquitto; None when it is not installed."""
    return shutil.which("mosquitto", path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}")


class DemoController:
    """The demo's controller, by commands of `edgegpu-cloud` that are shown as they run."""

    def __init__(
        self,
        folder: Path,
        processes: Processes,
        say: Callable[[str], None],
        *,
        mosquitto: str | None,
        console_port: int | None = None,
    ) -> None:
        """Take a folder; `mosquitto` is the program, None for the embedded broker; `console_port` None: no console."""
        self._mosquitto = mosquitto
        self._folder = folder
        self._processes = processes
        self.say = say
        self._console_port = console_port
        self._ports = {name: free_port() for name in ("broker", "controllers", "https")}

    @property
    def folder(self) -> Path:
        """The controller's folder."""
        return self._folder

    @property
    def broker_port(self) -> int:
        """The port on which boxes connect."""
        return self._ports["broker"]

    def start(self) -> None:
        """Make a controller, and start its broker and the controller.

        Raises:
            DemoError: one of them does not start.
        """
        ports = self._ports
        broker = ("--broker", f"127.0.0.1:{ports['broker']}", "--controller-port", str(ports["controllers"]))
        console = ("--no-console",) if self._console_port is None else ("--console-port", str(self._console_port))
        words = ("init", "--name", "127.0.0.1", *broker, "--https-port", str(ports["https"]), *console)
        if self.run(*words, lines=3).status:
            raise DemoError("cannot make a controller")
        self._stay_here()
        self._start_broker()
        self.say("  $ edgegpu-cloud serve")
        self._processes.start("controller", self._command("serve"), self._where())
        self._listens("controller", "https")
        if self._console_port is not None:
            port = self._console_port
            self._processes.wait("controller", lambda: answers(port), what="the console", timeout_s=_START_S)

    def run(
        self, *words: str, lines: int | None = None, until: Callable[[CommandOutcome], bool] | None = None
    ) -> CommandOutcome:
        """Run a command, show it with its output, and return its outcome.

        Args:
            words: the words of the command line.
            lines: how many lines of its output are shown; by default all.
            until: the command is repeated until this holds, for a limited time, and the last run is shown.
        """
        self.say(f"  $ edgegpu-cloud {shlex.join(words)}")
        ends = time.monotonic() + _COMES_S
        done = self.ask(*words)
        while until is not None and not until(done) and time.monotonic() < ends:
            time.sleep(_LOOK_S)
            done = self.ask(*words)
        for line in done.text.rstrip().splitlines()[:lines]:
            self.say(f"      {line}".rstrip())
        return done

    def ask(self, *words: str) -> CommandOutcome:
        """Run a command without showing it."""
        return self._processes.call(self._command(*words), self._where())

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "edgegpu_cloud.cli.app", *words]

    def _where(self) -> dict[str, str]:
        return {"EDGEGPU_CLOUD": str(self._folder), "COLUMNS": "160"}

    def _stay_here(self) -> None:
        """Make HTTPS and mosquitto listen on 127.0.0.1 alone: the user did not ask to open ports."""
        config, broker = self._folder / "controller.yaml", self._folder / "broker/mosquitto.conf"
        config.write_text(re.sub(r"0\.0\.0\.0", "127.0.0.1", config.read_text()))
        broker.write_text(re.sub(r"^(listener \d+)$", r"\1 127.0.0.1", broker.read_text(), flags=re.MULTILINE))

    def _start_broker(self) -> None:
        if self._mosquitto is not None:
            self.say("  $ mosquitto -c broker/mosquitto.conf")
            command = [self._mosquitto, "-c", str(self._folder / "broker/mosquitto.conf")]
        else:
            self.say(
                "  mosquitto is not here: an embedded broker takes its place, which knows certificates and no rights"
            )
            listeners = (("broker", "boxes"), ("controllers", "controllers"))
            listen = [
                w for port, ca in listeners for w in ("--listen", str(self._ports[port]), self._file(f"ca/{ca}.crt"))
            ]
            shown = ("--cert", self._file("tls/broker.crt"), "--key", self._file("tls/broker.key"))
            command = [sys.executable, "-m", "edgegpu_sim.broker", *listen, *shown]
        self._processes.start("broker", command)
        self._listens("broker", "broker")
        self._listens("broker", "controllers")

    def _file(self, name: str) -> str:
        return str(self._folder / name)

    def _listens(self, name: str, port: str) -> None:
        number = self._ports[port]
        self._processes.wait(name, lambda: answers(number), what=f"{name} to listen", timeout_s=_START_S)
