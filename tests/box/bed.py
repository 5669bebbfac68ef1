"""Booted boxes for the installer's tests: k3s and simulated cards on a disk image, a web server, the one line."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from box.webcert import make_web_cert
from e2e.boxnode import BoxNode
from e2e.k3s import K3s
from e2e.manifests import container, deployment, pod_spec
from lab.booted import BootedMachine
from lab.boxkit import Box, build
from lab.labrun import HERE, Completed, LabError, run, wait_until
from lab.simcards import insert_cards, push_simulation

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "build/bundle"
STARTING, RESTARTING = "7d4958e842da4a758f6c1cdc7b36dcc5", "5eb03494b6584870a536b337290809b3"
"""systemd's messages that a unit is being started, and that it will be, since it ended by itself."""

NAME = "edgebox"
WITH_K3S, WITH_EDGEGPU = "edgebox-k3s", "edgebox-edgegpu"
"""Disk images: k3s and two cards; edgegpu installed on it besides, with GPU pods that run."""

SIMULATED = "/srv/gpu"
INSTALLED = "/opt/edgegpu/current"
LAN, PORT = "10.89.0.1", 8443
URL = f"https://{LAN}:{PORT}"
CARDS = {"NVIDIA-T4-A": 7611, "NVIDIA-T4-B": 7611}
UNITS, CORE = 58, 200
JOURNAL = "/var/lib/edgegpu/tx"
RECOVER = "/usr/local/lib/edgegpu/edgegpu-recover"
WAITS = (
    r"^(/usr/local/lib/edgegpu(/edgegpu-farewell|/farewell\.conf)?"
    r"|/etc/systemd/system/(multi-user\.target\.wants/)?edgegpu-farewell\.service"
    r"|/var/run/cdi(/edgegpu(-limited|-capability)?\.json)?)$"
)
"""Paths that stay until kubelet has let go of the resources, and are removed then."""

APPS = {"large": 20, "other": 20}


def python_in_box() -> str:
    """Return the box's own Python; it serves the tests, never edgegpu."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


class Bed:
    """One box and what the tests ask of it."""

    def __init__(self, machine: BootedMachine | None = None) -> None:
        self.machine: BootedMachine = machine or Box(NAME)
        self.node = BoxNode(self.machine)
        self.cluster = K3s(self.node)
        self.web: WebServer | None = None
        self.pristine: dict[str, str] = {}
        """The disk of a box with k3s before edgegpu comes."""

    def fresh(self, image: str) -> None:
        """Boot the box from an image; its k3s is Ready then, and with edgegpu both resources are offered."""
        self.machine.down()
        self.machine.up(image=image)
        if self.web is not None:
            self.web.start()
        self.machine.ready()
        if image == WITH_EDGEGPU:
            self.offered()
            self.start_apps()

    def prepare(self) -> None:
        """Make the image with k3s and cards."""
        build()
        run([HERE / "glibc_image.sh"], timeout_s=60)
        self.machine.down()
        self.machine.up_k3s()
        self.lay_cards()
        self.machine.exec("rm", "-rf", "/srv/env")
        self.save(WITH_K3S)

    def insert_cards(self, cards: Mapping[str, int]) -> None:
        """Put other cards into a running box with edgegpu, name to MiB, in the place of its own; no pod holds one."""
        self.machine.exec("systemctl", "stop", "edgegpu-plugin")
        self._simulate(cards, environment=INSTALLED)
        self.machine.exec("systemctl", "start", "edgegpu-plugin")

    def lay_cards(self) -> None:
        """Put the simulation and the bed's cards into a box that has no edgegpu yet."""
        self.machine.push(ROOT / "build/env/edgegpu/lib", to="/srv/env")
        push_simulation(self.machine)
        self._simulate(CARDS, environment="/srv/env")

    def _simulate(self, cards: Mapping[str, int], *, environment: str) -> None:
        insert_cards(self.machine, SIMULATED, cards, packages=f"{environment}/lib", python=python_in_box())

    def save(self, image: str) -> None:
        """Power off and keep the disk."""
        self.machine.exec("sync")
        self.machine.off()
        self.machine.save(image)

    def offered(self, *, timeout_s: float = 120.0) -> None:
        """Wait until the node offers what its cards have."""
        self.cluster.wait_allocatable(NAME, UNITS, CORE, timeout_s=timeout_s)

    def line(self, *options: str, check: bool = True, timeout_s: float = 240) -> Completed:
        """Paste the one line."""
        pasted = f"set -o pipefail; {self.one_line(*options)}"  # else curl's failure is nobody's
        return self.machine.exec("bash", "-c", pasted, check=check, timeout_s=timeout_s)

    def one_line(self, *options: str) -> str:
        """Return the line that a user of this host would paste."""
        assert self.web is not None
        words = " ".join(["--url", URL, "--ca-sha256", self.web.cert.ca_sha256, "--driver-root", SIMULATED, *options])
        pinned = f"-k --pinnedpubkey 'sha256//{self.web.cert.key_pin}'"
        return f"curl -fsSL {pinned} {URL}/install.sh | sh -s -- {words}"

    def edgegpu(self, *args: str, check: bool = True, timeout_s: float = 240) -> Completed:
        """Run the installed command line."""
        return self.machine.exec("/usr/local/bin/edgegpu", *args, check=check, timeout_s=timeout_s)

    def run_apps(self) -> None:
        """Start the services that have to live through everything."""
        for name, units in APPS.items():
            self.cluster.apply(deployment(name, pod_spec(container(memory=units, core=1)), namespace="default"))
        self.apps_run()

    def start_apps(self) -> None:
        """Start the services of an image that was saved with none of them running."""
        self.cluster.kubectl("scale", "deployment", *APPS, "--replicas=1")
        self.apps_run()

    def stop_apps(self) -> None:
        """Stop the services, so that an image is saved without their containers.

        A container that ran before the boot would stay beside its successor, and a new kubelet looks at one of the two,
        by chance: where it is the dead one and no device is there yet, it fails the pod (`isContainerAlreadyRunning` of
        its device manager). So would k3s's restarts in tests end what has to live through them.
        """
        self.cluster.kubectl("scale", "deployment", *APPS, "--replicas=0")
        wait_until(
            lambda: not any(self.cluster.pods("default", app) for app in APPS), what=f"{APPS} are gone", every_s=0.5
        )

    def apps_run(self) -> dict[str, str]:
        """Wait until each service runs and sees one card; returns the id of each one's container."""

        def container_of(app: str) -> str:
            pod = self.cluster.wait_phase("default", app, "Running")
            if len(self.cluster.sees("default", pod["metadata"]["name"])) != 1:
                return ""
            identity: str = pod["status"]["containerStatuses"][0]["containerID"]
            now = self.cluster.wait_phase("default", app, "Running")["status"]["containerStatuses"][0]["containerID"]
            return identity if identity == now else ""

        def runs(app: str) -> str:
            """Look for the pod each time: what the API has of it after a boot may be of before."""
            return wait_until(lambda: container_of(app), what=f"{app} sees its card", every_s=0.5)

        return {app: runs(app) for app in APPS}

    def apps_wait(self) -> None:
        """Wait until no service runs, and each has a pod that is Pending; those that kubelet refused are Failed."""
        for name in APPS:

            def waits(app: str = name) -> bool:
                phases = {pod["status"].get("phase") for pod in self.cluster.pods("default", app)}
                return "Pending" in phases and "Running" not in phases

            wait_until(waits, what=f"{name} waits", every_s=0.5)

    def told(self) -> str:
        """Return what the box says of itself, for the report of a test that failed."""
        asked = (
            ("k3s", "kubectl", "get", "pods", "-A", "-o", "wide"),
            ("k3s", "kubectl", "get", "events", "-A", "--sort-by=.lastTimestamp"),
            ("journalctl", "--no-pager", "-n", "60", "-u", "edgegpu-plugin"),
            ("journalctl", "--no-pager", "-n", "20", "-u", "edgegpu-agent"),
            ("journalctl", "--no-pager", "-n", "60", "-u", "k3s"),
        )
        found = []
        for words in asked:
            with contextlib.suppress(LabError):  # it may be off
                done = self.machine.exec(*words, check=False, timeout_s=30)
                found.append(f"$ {' '.join(words)}\n{(done.stdout + done.stderr)[-4000:]}")
        return "\n".join(found)

    def disk(self) -> dict[str, str]:
        """Describe every file of the box."""
        script = (ROOT / "tests/box/snapshot.py").read_text()
        found: dict[str, str] = json.loads(self.machine.exec(python_in_box(), "-", input=script).stdout)
        return found

    def node_object(self) -> dict[str, Any]:
        """Return what edgegpu could have changed of the Node."""
        node = self.cluster.get("node", NAME)
        ours = {"capacity": node["status"]["capacity"], "allocatable": node["status"]["allocatable"]}
        return ours | {key: node["metadata"].get(key, {}) for key in ("labels", "annotations")}

    def journal(self) -> dict[str, str]:
        """Return the last transaction's state; empty where there is none."""
        text = self.machine.exec("cat", f"{JOURNAL}/state", check=False).stdout
        return dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)

    def starts(self) -> int:
        """Return how often somebody had k3s started since the boot, as systemd has written it down.

        A k3s that ended by itself is started again by systemd, as it says then: that counts for nobody.
        """
        words = ["-q", "-b", "-o", "json", f"MESSAGE_ID={STARTING}", f"MESSAGE_ID={RESTARTING}", "UNIT=k3s.service"]
        told = self.machine.exec("journalctl", *words, check=False).stdout.splitlines()
        found = [json.loads(line)["MESSAGE_ID"] for line in told]
        return found.count(STARTING) - found.count(RESTARTING)

    def starved(self) -> list[str]:
        """Return what systemd's watchdog has ended since the boot: a unit without its file is not heard any more."""
        told = self.machine.exec("journalctl", "-q", "-b", "-o", "cat", "-g", "Watchdog timeout", "_PID=1", check=False)
        return [line for line in told.stdout.splitlines() if line.startswith("edgegpu-")]

    def written(self) -> tuple[list[str], list[str]]:
        """Return the paths that the installer has written, and those of them that are not as it wrote them."""
        script = (
            "import json; from edgegpu_installer.transaction import baseline as b\n"
            "from edgegpu_installer.layout import Layout as L\n"
            "print(json.dumps([[one.path for one in b.originals(L())], list(b.drifted(L()))]))"
        )
        done = self.machine.exec("env", f"PYTHONPATH={INSTALLED}/lib", python_in_box(), "-c", script)
        ours, drifted = json.loads(done.stdout)
        return ours, drifted

    def restarts(self) -> str:
        """Return what changes with each start of k3s."""
        shown = self.machine.exec("systemctl", "show", "-p", "InvocationID", "--value", "k3s")
        return shown.stdout.strip()


class WebServer:
    """Serves the bundle to the boxes over HTTPS. Their LAN goes with the last of them: then it is started anew."""

    def __init__(self, folder: Path, machine: BootedMachine) -> None:
        self._machine = machine
        self.cert = make_web_cert(folder / "web", LAN)
        self._www = folder / "www"
        self._www.mkdir()
        for path in BUNDLE.iterdir():
            os.link(path, self._www / path.name)
        (self._www / "ca.crt").write_text(self.cert.ca)
        self._served: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Serve, on the LAN as it is now."""
        self.stop()
        program: list[str | Path] = [*self._machine.on_lan, sys.executable, ROOT / "tests/box/web.py", self._www]
        command = [*program, self.cert.cert_file, self.cert.key_file, str(PORT)]
        self._served = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if self._served.stdout is None or not self._served.stdout.readline():
            raise LabError("the web server did not start")

    def stop(self) -> None:
        """Serve no longer."""
        if self._served is not None:
            with self._served as served:
                served.kill()
            self._served = None


@contextlib.contextmanager
def api_gap(bed: Bed) -> Iterator[list[float]]:
    """Measure the longest time for which the box's API server gives no answer; the list holds it afterwards."""
    ip = bed.machine.exec("hostname", "-I").stdout.split()[0]
    program: Sequence[str | Path] = [*bed.machine.on_lan, sys.executable, ROOT / "tests/box/gap.py"]
    asking = subprocess.Popen(
        [*program, f"https://{ip}:6443/readyz"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    gap: list[float] = []
    try:
        yield gap
    finally:
        told, _ = asking.communicate("", timeout=30)
        gap.append(float(told))


def differences(before: dict[str, str], after: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Return what is not as it was: path to (before, after)."""
    return {
        path: (before.get(path, "absent"), after.get(path, "absent"))
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    }


def make_bundle() -> None:
    """Make the environment and the bundle of this checkout."""
    run(["env", "EDGEGPU_QUICK=1", "make", "-C", str(ROOT), "bundle"], timeout_s=900)
