"""An agent that is held at a step of a command and killed there, and the ledger of what its box has really done."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import threading
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml
from kits.acts import EDGEGPU, JOURNALCTL, Vendor
from kits.agent import WAIT_S, Agent, Cloud, until
from kits.cli import document, plugin
from kits.limitsapi import Api
from kits.limitsbed import FIELD, RECREATE
from kits.limitscases import manifest
from kits.limitsworld import CLUSTER, World
from kits.stepweb import Web

from edgegpu_agent.actions.bundles import sha256_of
from edgegpu_agent.worker.steps import ACT, PAUSE, RECEIPTED, SETTLED, TRACE
from edgegpu_cloud.layout import CloudLayout
from edgegpu_sync.messages.spec import AppLimits, Spec
from edgegpu_sync.messages.uplink import ItemState
from edgegpu_sync.states import CommandState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

LIMITS = "item"
"""The settlement of an app's limits, among the ops."""

IN_THE_BOX = frozenset({"sharing.install", "sharing.uninstall", "k3s.restart"})
"""Those that the booted box strikes, with all that they restart (tests/box/commandfaults.py)."""

IDEMPOTENT = frozenset({"inventory.refresh", "logs.collect", "doctor.run", "evidence.check"})
"""Those that are done once more where the agent died when they were done and their end was not written.
identity.rotate is not: the same cause gets the same certificate."""

DONE_AND_NOT_WRITTEN = f"after-{ACT}"

_TICK_S = 0.05


class Held(Agent):
    """A box whose agent can be held at a step."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, machine=secrets.token_hex(16))
        self.fake = root / "fake"
        for path in (self.fake, root / "etc/systemd/system", root / "opt/edgegpu/1.0.0"):
            path.mkdir(parents=True)
        (root / "etc/systemd/system/edgegpu-plugin.service").touch()
        (root / "opt/edgegpu/current").symlink_to("1.0.0")
        (self.fake / "doctor.json").write_text(json.dumps({"version": "0", "level": "ok", "checks": []}))
        self.program("edgegpu", f'echo "$@" >> "$FAKE/calls"\n{EDGEGPU}')
        self.program("journalctl", JOURNALCTL)

    def start(self, pause: str = "") -> None:
        """Start it, to wait at a step; `STEP OP` as `edgegpu_agent.worker.steps` has it."""
        (self.root / "said").unlink(missing_ok=True)
        env = {
            **os.environ,
            "NOTIFY_SOCKET": str(self.root / "notify"),
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "BOX": str(self.root),
            "FAKE": str(self.fake),
            "FAKE_ROOT": str(self.root),
            TRACE: str(self.root / "steps"),
            PAUSE: pause,
        }
        command = [sys.executable, "-m", "edgegpu_agent", "--root", str(self.root)]
        with (self.root / "log").open("ab") as log, (self.root / "said").open("wb") as said:
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=said)

    def waits(self, step: str) -> None:
        """Wait until this very process waits there."""
        assert self.process is not None
        words = f"waiting at {step}, process {self.process.pid}\n"
        until(
            lambda: words in (self.root / "said").read_text(),
            lambda: f"{step}: {self.passed()[-5:]} {self.log[-2000:]}",
        )

    def passed(self) -> list[str]:
        """Return the steps that were told, each with what it was about."""
        path = self.root / "steps"
        return path.read_text().splitlines() if path.exists() else []

    def lines(self, name: str) -> list[str]:
        """Return a ledger of its programs."""
        path = self.fake / name
        return path.read_text().splitlines() if path.exists() else []


@dataclass(frozen=True, slots=True)
class Ask:
    """Something that was asked for: all ends that the controller was told, and how often it was done so far."""

    op: str
    ends: Callable[[], list[str]]
    done: Callable[[], int]

    @property
    def right(self) -> str:
        """The first word of its one end when all is right."""
        return ItemState.APPLIED.value if self.op == LIMITS else CommandState.SUCCEEDED.value


class Site:
    """A controller, a broker, a box with a cluster of its own, a web server."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.cloud = Cloud(folder / "cloud")
        self.cloud.start("mosquitto", "controller")
        self.agent = Held(root)
        self._vendor, self._releases = Vendor(), 0
        self.web = Web(folder / "web")
        self.web.folder.mkdir()
        self._server = self.web.serve(CloudLayout(folder / "cloud"))
        self.api = Api()
        self.world = World(self.api, (94,), FIELD)
        self._units, self._stopping = 1, threading.Event()
        self._certificates: list[bytes] = []
        self._turns = threading.Thread(target=self._turn, daemon=True)
        self._plugin = plugin(root / "run/edgegpu", document())

    def __enter__(self) -> Self:
        self.api.__enter__()
        self.world.add(manifest("Deployment", "asr", memory=1, **RECREATE))
        self._turns.start()
        self._plugin.__enter__()
        config = {
            "clusters": [{"name": "c", "cluster": {"server": self.api.url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (self.agent.root / "etc/edgegpu/limits-kubeconfig").write_text(yaml.safe_dump(config))
        self.agent.belongs(self.cloud.line("box"))
        self.cloud.serves()
        self.agent.start()
        until(lambda: "app_limits" in self.cloud.online("box").capabilities, lambda: self.agent.log)
        return self

    def __exit__(self, *_: object) -> None:
        self.agent.__exit__()
        self._plugin.__exit__(None, None, None)
        self._stopping.set()
        self._turns.join(WAIT_S)
        self.api.__exit__()
        self._server.shutdown()
        self._server.server_close()
        self.cloud.close()

    def _turn(self) -> None:
        while not self._stopping.wait(_TICK_S):
            self.world.step()
            self._look_at_certificate()

    def _look_at_certificate(self) -> None:
        """Keep each certificate that the box ever had: one takes a key and a request, many looks."""
        with contextlib.suppress(OSError):
            now = (self.agent.root / "var/lib/edgegpu/identity/tls.crt").read_bytes()
            if now and now not in self._certificates:
                self._certificates.append(now)

    def _rotations(self) -> int:
        self._look_at_certificate()
        return len(self._certificates)

    # --- what can be asked for

    def ask(self, op: str) -> Ask:
        """Ask the box."""
        if op == LIMITS:
            return self._limits()
        calls, restarts, rotations = len(self.agent.lines("calls")), self.agent.restarts, self._rotations()
        id_ = self.cloud.fleet.command("box", op, self._args(op))

        def ends() -> list[str]:
            view = self.cloud.fleet.one_command(id_)
            told = [line for line in view.history if line.state.terminal] if view.ended else []
            return [" ".join(filter(None, (line.state.value, line.code, line.text))) for line in told]

        done: dict[str, Callable[[], int]] = {
            "plugin.restart": lambda: self.agent.restarts - restarts,
            "inventory.refresh": lambda: self.agent.passed().count(f"{DONE_AND_NOT_WRITTEN} {op} {id_}"),
            "logs.collect": lambda: sum(id_ in path for path in self.web.puts),
            "doctor.run": lambda: sum(line.startswith("doctor") for line in self.agent.lines("calls")[calls:]),
            "evidence.check": lambda: sum(line.startswith("pods") for line in self.agent.lines("calls")[calls:]),
            "agent.upgrade": lambda: sum(line.endswith(id_) for line in self.agent.lines("done")),
            "identity.rotate": lambda: self._rotations() - rotations,
        }
        return Ask(op, ends, done[op])

    def _args(self, op: str) -> dict[str, Any]:
        if op == "logs.collect":
            return {"url": f"{self.web.url}/logs/"}
        if op == "agent.upgrade":
            self._releases += 1
            version = f"2.0.{self._releases}"
            (self.agent.root / "opt/edgegpu/current/release.pub").write_text(f"{self._vendor.public}\n")
            archive = self._vendor.bundle(self.web.folder, version)
            args = self._vendor.args(f"{self.web.url}/{archive.name}", sha256_of(archive), version=version)
            return args.model_dump(mode="json", exclude_unset=True)
        return {}

    def _limits(self) -> Ask:
        self._units = 3 - self._units  # to and fro between one unit and two
        units, before = self._units, len(self._patches())
        item = AppLimits(
            rev=0, cluster=CLUSTER, namespace="default", app="asr", container="main", memory_units=units, core=1
        )
        rev = self.cloud.fleet.set_spec("box", lambda _: Spec(app_limits=(item,)))

        def ends() -> list[str]:
            box = self.cloud.box("box")
            if box is None or box.applied_rev != rev or self.world.running("asr") != [units]:
                return []
            found = (one.state for name, one in box.items.items() if name.startswith("app_limits"))
            interim = (ItemState.ELSEWHERE, ItemState.OPEN)  # until the lease is in hand; then it is open once more
            return [state.value for state in found if state not in interim]

        return Ask(LIMITS, ends, lambda: len(self._patches()) - before)

    def _patches(self) -> list[str]:
        return [one.path for one in self.api.writes if one.method == "PATCH" and "/deployments/" in one.path]


@dataclass(frozen=True, slots=True)
class Struck:
    """What became of one command whose agent was killed at a step; `wrong` is empty where it ended right."""

    step: str
    op: str
    ends: list[str]
    done: int
    wrong: str


def struck(site: Site, cells: Iterable[tuple[str, str]]) -> Iterator[Struck]:
    """Kill the agent at each step of an op in turn; the one that is started then waits for the next.

    Two cells one after the other are of different ops: else the agent that goes on with the first would wait in it.
    """
    chosen = list(cells)
    assert all(one[1] != next_[1] for one, next_ in pairwise(chosen)), chosen
    pauses = [f"{step} {op}" for step, op in chosen]
    site.agent.kill()
    site.agent.start(pauses[0])
    for (step, op), pause in zip(chosen, [*pauses[1:], ""], strict=True):
        asked = site.ask(op)
        site.agent.waits(step)
        site.agent.kill()
        site.agent.start(pause)
        until(asked.ends, partial(_words, site, step, op))
        ends, done = asked.ends(), asked.done()
        yield Struck(step, op, ends, done, wrong(step, asked, ends, done))


def wrong(step: str, asked: Ask, ends: Sequence[str], done: int) -> str:
    """Return what is wrong with what became of a command that was struck at a step; empty where it ended right."""
    often = 2 if step == DONE_AND_NOT_WRITTEN and asked.op in IDEMPOTENT else 1
    right = [end.split()[0] for end in ends] == [asked.right] and done == often
    return "" if right else f"{asked.op} at {step}: done {done} times, {list(ends)}"


def _words(site: Site, step: str, op: str) -> str:
    return f"{op} at {step}: {site.agent.log[-2000:]}"


def steps_of(site: Site, op: str) -> list[str]:
    """Let it be done without a fault; return its steps: nothing lies between one's end and the next."""
    before = len(site.agent.passed())
    asked = site.ask(op)
    last = f"after-{SETTLED if op == LIMITS else RECEIPTED} {op} "

    def told() -> list[str]:
        return [line for line in site.agent.passed()[before:] if f" {op} " in line]

    until(lambda: asked.ends() and any(line.startswith(last) for line in told()), told)
    assert asked.done() == 1, f"{op} was done {asked.done()} times, and nothing had died"
    names = [line.split()[0] for line in told()]
    return [names[0], *(name for name in dict.fromkeys(names) if name.startswith("after-"))]
