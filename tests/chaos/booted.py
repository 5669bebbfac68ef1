"""A booted box: Debian with systemd, k3s, two simulated cards, edgegpu by the pasted line; what can be done to it."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from chaos.lan import ENVIRONMENT
from e2e.boxnode import BoxNode
from e2e.k3s import K3s
from e2e.manifests import container, deployment, pod_spec
from lab.boxkit import Box
from lab.labrun import HERE, LabError, run, wait_until
from lab.simcards import insert_cards, push_simulation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SIMULATED = "/srv/gpu"
STATE, STATE_MIB = "/var/lib/edgegpu", 64
"""A file system of its own; the agent's journal takes some 16 MiB of it."""

CARDS = {"NVIDIA-T4-A": 7611, "NVIDIA-T4-B": 7611}
UNITS, CORE = 58, 200
APPS = ("asr", "ocr", "tts")
AGENT = "edgegpu-agent.service"
_RESTARTED = ("k3s.service", "edgegpu-plugin.service")
_KEPT = ("_BOOT_ID", "UNIT", "INVOCATION_ID", "MESSAGE_ID", "__REALTIME_TIMESTAMP")
_READ_S = 0.2
_KEPT_JOURNAL = "until [ -e /run/systemd/journal/flushed ]; do sleep 0.1; done"
"""A follower that begins before the journal lies on the disk would miss what is written there."""

_AUDIT = "/var/log/k3s-audit.log"
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {
            "level": "RequestResponse",
            "verbs": ["create", "patch", "update"],
            "resources": [{"group": "apps", "resources": ["deployments"]}],
        },
        {"level": "None"},
    ],
}


@dataclass(slots=True)
class Tail:
    """Lines of a file of the box that only grows, or is cut short or lost when the power is: each is kept once."""

    lines: list[str] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)
    _at: int = 0

    def again(self) -> None:
        """Read from the beginning, since a power cut may have taken the end."""
        self._at = 0

    def read(self, path: Path) -> None:
        """Take what is new; half a line is left for later."""
        try:
            with path.open("rb") as file:
                if path.stat().st_size < self._at:
                    self._at = 0
                file.seek(self._at)
                whole = file.read().rpartition(b"\n")[0]
        except OSError:
            return
        self._at += len(whole) + 1 if whole else 0
        for line in whole.decode(errors="replace").replace("\0", "").splitlines():  # a power cut leaves zeros
            if line and line not in self._seen:
                self._seen.add(line)
                self.lines.append(line)


class Booted:
    """`make` it, `join` it to a cloud; from there on `tend` reads its ledgers, and the rest is done to it."""

    def __init__(self, name: str, place: Path) -> None:
        self.name, self.device = name, ""
        self.machine = Box(name)
        self.cluster = K3s(BoxNode(self.machine))
        self.entries: list[dict[str, Any]] = []
        self.since_s = 0.0
        self._known: set[str] = set()
        self.history, self.audit = Tail(), Tail()
        self.kept = place / name
        """Where its agent's folder is copied to when all is over: SQLite opens nothing by way of /proc."""
        self._log = place / f"{name}.log"
        self._root = Path("/nowhere")
        self._follower: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._read_s = 0.0
        self.off = False

    # --- its making

    def make(self) -> None:
        """Boot it with k3s, cards and apps that ask for nothing yet; edgegpu is not on it."""
        self.machine.up()
        self.machine.off()
        self.machine.disk(STATE, mib=STATE_MIB)
        self._up()
        self.machine.boot_ended()
        self._write("/etc/rancher/k3s/audit-policy.yaml", json.dumps(_POLICY))
        words = ["audit-policy-file=/etc/rancher/k3s/audit-policy.yaml", f"audit-log-path={_AUDIT}"]
        self._write("/etc/rancher/k3s/config.yaml.d/10-audit.yaml", json.dumps({"kube-apiserver-arg": words}))
        self.machine.up_k3s()
        self.machine.push(ENVIRONMENT / "edgegpu/lib", to="/srv/env")
        push_simulation(self.machine)
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        insert_cards(self.machine, SIMULATED, CARDS, packages="/srv/env/lib", python=python)
        self.machine.exec("sh", "-c", "rm -rf /srv/env /srv/simulation; sync")

    def _write(self, inside: str, text: str) -> None:
        path = self.folder / inside[1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def _up(self) -> None:
        self.machine.power_on()
        self._root = Path(run([HERE / "box", "root", self.name], timeout_s=60).stdout.strip())
        self.off = False

    def join(self, line: str) -> None:
        """Paste the line of a cloud, and start the apps when the cards are offered; from now on the ledgers count."""
        told = self.machine.exec(
            "bash", "-c", f"set -o pipefail; {line} --driver-root {SIMULATED} --yes", timeout_s=300
        )
        self._say(told.stdout)
        self.device = str(json.loads((self.folder / STATE[1:] / "identity/device.json").read_text())["device"])
        self.cluster.wait_allocatable(self.name, UNITS, CORE, timeout_s=300)
        for app in APPS:
            self.cluster.apply(deployment(app, pod_spec(container(memory=2, core=1)), namespace="default"))
            self.cluster.wait_phase("default", app, "Running")
        self.since_s = time.time()
        self._follow()

    def _say(self, text: str) -> None:
        with self._log.open("a") as file:
            file.write(text + "\n")

    # --- its ledgers

    @property
    def folder(self) -> Path:
        """Its `/`, as this machine sees it."""
        return self._root

    def _follow(self) -> None:
        """Read systemd's journal as it is written: what a power cut takes from it was seen before.

        It begins with the journal of all boots, for `--follow` shows the present one alone (systemd 252).
        """
        words = " + ".join(f"_PID=1 UNIT={unit}" for unit in _RESTARTED)
        read = f"journalctl --quiet --output=json {words}"
        self._follower = subprocess.Popen(
            [HERE / "box", "exec", self.name, "sh", "-c", f"{_KEPT_JOURNAL}; {read}; exec {read} --follow --no-tail"],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        threading.Thread(target=self._take, args=(self._follower,), daemon=True).start()

    def _take(self, follower: subprocess.Popen[str]) -> None:
        assert follower.stdout is not None
        for line in follower.stdout:
            with contextlib.suppress(ValueError):  # half of one, where the power was cut
                self._enter(json.loads(line))

    def _enter(self, one: dict[str, Any]) -> None:
        kept = {name: one[name] for name in _KEPT if name in one}
        if (key := json.dumps(kept, sort_keys=True)) not in self._known:
            self._known.add(key)
            self.entries.append(kept)

    def tend(self) -> None:
        """Read what it has written meanwhile, a few times a second."""
        if not self.off and time.monotonic() - self._read_s > _READ_S:
            self.read()

    def read(self) -> None:
        """Read what it has written meanwhile."""
        self._read_s = time.monotonic()
        with self._reading:
            self.history.read(self.folder / STATE[1:] / "tx/log")
            self.audit.read(self.folder / _AUDIT[1:])

    def limits(self) -> dict[str, dict[str, Any]]:
        """Return the apps as the API has them."""
        return {one["metadata"]["name"]: one for one in self.cluster.get("deployments", namespace="default")["items"]}

    def settings(self) -> dict[str, str]:
        """Return how it stands: whether sharing is installed, policy, excluded cards."""
        on = (self.folder / "etc/systemd/system/edgegpu-plugin.service").exists()
        text = (self.folder / "etc/edgegpu/plugin.yaml").read_text() if on else ""
        placement = (yaml.safe_load(text) or {}).get("placement") or {}
        excluded = ",".join(map(str, placement.get("exclude") or ())) or "none"
        return {
            "sharing": "on" if on else "off",
            "policy": placement.get("policy", "first-fit"),
            "exclusions": excluded,
        }

    # --- what is done to it

    def scale(self, replicas: int) -> bool:
        """Let each app have so many pods; False where the API does not answer now."""
        return self._do("k3s", "kubectl", "scale", "deployments", "--all", "-n", "default", f"--replicas={replicas}")

    def is_empty(self) -> bool:
        """Say whether its apps have no pod any more."""
        if self.off:
            return False
        with contextlib.suppress(LabError, ValueError):
            return not self.cluster.pods("default")
        return False

    def kill_agent(self) -> bool:
        """Kill -9 the agent; its unit starts it again in five seconds. False where it does not run."""
        return self._do("systemctl", "kill", "--signal=KILL", "--kill-who=main", AGENT)

    def _do(self, *words: str) -> bool:
        with contextlib.suppress(LabError):
            return not self.off and self.machine.exec(*words, check=False, timeout_s=20).returncode == 0
        return False

    def installer(self) -> int | None:
        """Return the process that changes the machine, as the box counts."""
        try:
            pid = int((self.folder / "run/edgegpu-tx.lock").read_text())
            words = (self.folder / f"proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if b"--transaction-id" in words or b"resume" in words else None

    def kill_installer(self, pid: int) -> bool:
        """Kill -9 that process."""
        return self._do("kill", "-KILL", str(pid))

    def fill_disk(self) -> None:
        with (self.folder / STATE[1:] / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(65_536)):
                pass

    def free_disk(self) -> None:
        (self.folder / STATE[1:] / "filler").unlink(missing_ok=True)

    def cut(self) -> None:
        """Cut its power, and let it boot."""
        with self._lock:
            self.off = True
            self.read()
            self.machine.cut()
            self._ended()
            self.history.again()
            self.audit.again()
            self._up()
            self._follow()  # before the boot has ended: units are restarted while it goes on, and it may be cut again
            self.machine.boot_ended()

    def _ended(self) -> None:
        if self._follower is not None:
            self._follower.wait(30)

    def settled(self) -> None:
        """Wait until it runs and its node is Ready, and stop its agent: its journal can be opened then."""
        with self._lock:
            self.machine.ready(timeout_s=180)
            self.machine.exec("systemctl", "stop", AGENT)
            wait_until(lambda: self.installer() is None, what="no installer is at work", timeout_s=300)
            self.read()
        shutil.copytree(self.folder / STATE[1:], self.kept / STATE[1:])
        (self.kept / "starts.json").write_text(json.dumps(self.entries, indent=1))
        (self.kept / "audit.log").write_text("\n".join(self.audit.lines))

    def close(self) -> None:
        """Take it away; what its journal says is left in the folder of the run."""
        with contextlib.suppress(LabError):
            self._say(self.machine.exec("journalctl", "--no-pager", "-o", "short-precise", timeout_s=60).stdout)
        self.machine.down()
        self._ended()


@contextlib.contextmanager
def booted(names: Sequence[str], place: Path) -> Iterator[list[Booted]]:
    """Make boxes of these names, one after the other, and take them away in the end; their logs stay in `place`."""
    made = [Booted(name, place) for name in names]
    try:
        for one in made:
            one.make()
        yield made
    finally:
        for one in made:
            one.close()
