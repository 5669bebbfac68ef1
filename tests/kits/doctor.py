"""A box for the doctor's tests: files, executables on a PATH, real sockets; healthy until a test harms it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import yaml
from kits.cli import CARD_0, CARD_1, document, plugin
from kits.doctorserver import CONTAINERD, NOW, ApiServer, Health, scheduler_kubeconfig

from edgegpu_agent.cli.clients.doctor import BoxClients
from edgegpu_installer.changes import FileChange
from edgegpu_installer.doctor.checks import CHECKS, run_checks
from edgegpu_installer.doctor.probe import BoxProbe, FileSystemSpace
from edgegpu_installer.doctor.verdict import CheckLevel, CheckResult
from edgegpu_installer.layout import Layout
from edgegpu_installer.machine.atomic import PathEntry, read_entry
from edgegpu_installer.plan import certificates
from edgegpu_installer.transaction import baseline
from edgegpu_installer.transaction.journal import TargetPath, TransactionTables
from edgegpu_plugin.config.schema import Tls
from edgegpu_plugin.extender.server import ExtenderServer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

VERSION = "560.35.03"
BOOTED_S = 1_795_000_000
BOOT_ID = "8f5c3ddb-6f1b-4f0c-9d3b-7a2f1f1e0a11\n"
SCHEDULER = "/etc/rancher/k3s/edgegpu-scheduler.yaml"
DROP_IN = "/etc/rancher/k3s/config.yaml.d/90-edgegpu.yaml"
FOLDER = "usr/lib/x86_64-linux-gnu"
LOADER_CACHE = "/opt/edgegpu/0.1.0/limiter/edgegpu-loader-cache"
SMI = f"0, {CARD_0}, 00000000:01:00.0, Disabled\n1, {CARD_1}, 00000000:02:00.0, Disabled\n"
COMMANDS = ("sudo", "edgegpu", "echo", "sleep", "timeout")
UNIT = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "running",
    "UnitFileState": "enabled",
    "NRestarts": "0",
    "Result": "success",
    "NeedDaemonReload": "no",
    "ExecMainStartTimestampMonotonic": "20000000",
}


class Box:
    """The box; `see` runs one check over it as it is now."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = NOW
        self.api = ApiServer()
        self.health = Health()
        self.certificates = certificates.make(NOW)
        self.spaces: dict[str, FileSystemSpace] = {}
        self.status = document(node="box-1")
        self.config: dict[str, Any] = {"version": 1, "node_name": "box-1"}
        self._stack = ExitStack()
        self.extender: ExtenderServer | None = None
        self.port = 0

    def write(self, path: str, text: str, mode: int = 0o644) -> Path:
        """Write a file of the box."""
        file = self.at(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)
        os.utime(file, (BOOTED_S, BOOTED_S))
        return file

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def program(self, name: str, script: str) -> None:
        """Put an executable on the box's PATH."""
        self.write(f"programs/{name}", f"#!/bin/sh\n{script}\n", 0o755)

    def unit(self, name: str, **changes: str) -> None:
        """Let systemd say this of a unit."""
        self.write(f"units/{name}", "".join(f"{key}={value}\n" for key, value in {**UNIT, **changes}.items()))

    def since_boot_us(self, *, ago_s: int) -> str:
        """Return a moment as systemd has it."""
        return str((int(self.now.timestamp()) - BOOTED_S - ago_s) * 1_000_000)

    def configure(self, **sections: object) -> None:
        """Write plugin.yaml with these sections besides the box's own."""
        self.config |= sections
        self.write("/etc/edgegpu/plugin.yaml", yaml.safe_dump(self.config))

    def scheduler_file(self, *, tls_changes: dict[str, Any] | None = None, **changes: object) -> str:
        """Write the scheduler's file; keys of the extender and of its tlsConfig may be changed."""
        made = self.certificates
        tls: dict[str, Any] = {"serverName": "edgegpu-extender"}
        for key, pem in (("caData", made.ca), ("certData", made.client.cert), ("keyData", made.client.key)):
            tls[key] = base64.b64encode(pem.encode()).decode()
        tls |= tls_changes or {}
        entry: dict[str, Any] = {
            "urlPrefix": f"https://127.0.0.1:{self.port}",
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "bindVerb": "bind",
            "weight": 1,
            "enableHTTPS": True,
            "tlsConfig": tls,
            "httpTimeout": "30s",
            "nodeCacheCapable": True,
            "ignorable": False,
            "managedResources": [
                {"name": "baidu.com/vcuda-memory", "ignoredByScheduler": False},
                {"name": "baidu.com/vcuda-core", "ignoredByScheduler": False},
            ],
            **changes,
        }
        text = yaml.safe_dump(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": "/var/lib/rancher/k3s/server/cred/scheduler.kubeconfig"},
                "extenders": [entry],
            }
        )
        self.write(SCHEDULER, text, 0o600)
        return text

    def start(self) -> None:
        """Lay all of it, and start what answers."""
        self._lay_machine()
        self._lay_edgegpu()
        self._stack.enter_context(plugin(self.at("/run/edgegpu"), self.status))

    def stop(self) -> None:
        """End what answers."""
        self._stack.close()
        self.stop_extender()
        self.api.stop()

    def stop_plugin(self) -> None:
        """Take the plugin's socket away."""
        self._stack.close()

    def stop_extender(self) -> None:
        """Close the extender's port."""
        if self.extender is not None:
            self.extender.close()

    def start_extender(self) -> None:
        """Open the extender's port with the certificates that are there; after a first time the same port."""
        folder = self.at("/etc/edgegpu/extender")
        tls = Tls(cert=folder / "server.crt", key=folder / "server.key", client_ca=folder / "ca.crt")
        self.extender = ExtenderServer(f"127.0.0.1:{self.port}", routes=self.health, tls=tls)
        self.extender.start()
        self.port = self.extender.port

    def record_baseline(self, paths: Iterable[str]) -> None:
        """Let the installer remember these files as it wrote them: as they are now."""
        targets = tuple(
            TargetPath(number, FileChange(path), old=PathEntry(), new=read_entry(self.at(path)))
            for number, path in enumerate(paths)
        )
        self.at("/var/lib/edgegpu").mkdir(parents=True, exist_ok=True)
        baseline.record(Layout(self.root), "t1", TransactionTables(targets=targets, folders=(), remove=(), units=()))

    def sight(self) -> BoxProbe:
        """Return a new sight of it."""
        return BoxProbe(
            root=self.root,
            clients=BoxClients(self.root),
            path=f"{self.at('programs')}:/usr/bin:/bin",
            now=lambda: self.now,
            space=self._space,
        )

    def see(self, name: str) -> CheckResult:
        """Run one check."""
        (check,) = [check for check in CHECKS if check.name == name]
        (result,) = run_checks([check], self.sight())
        for trouble in result.verdict.problems:
            if trouble.remedy.startswith(COMMANDS):  # it can be pasted
                done = subprocess.run(["bash", "-n", "-c", trouble.remedy], capture_output=True, check=False)
                assert (done.returncode, done.stderr) == (0, b""), trouble.remedy
        return result.verdict

    def expect(self, name: str, level: CheckLevel, words: str, remedy: str) -> None:
        """Run one check and find this trouble in what it says."""
        verdict = self.see(name)
        found = [one for one in verdict.problems if words in one.text and remedy in one.remedy]
        assert found, verdict
        assert {one.level for one in found} == {level}, verdict

    def _space(self, path: Path) -> FileSystemSpace:
        plenty = FileSystemSpace(free_bytes=10 << 30, free_share=0.5, free_inodes_share=0.5, read_only=False)
        return self.spaces.get(f"/{path.relative_to(self.root)}", plenty)

    def _lay_machine(self) -> None:
        for folder in ("etc", "opt", "usr/local", "var/lib", "run"):
            self.at(folder).mkdir(parents=True, exist_ok=True)
        self.write("/proc/stat", f"cpu 1 2 3\nbtime {BOOTED_S}\n")
        self.write(
            "/proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {VERSION}  Fri Aug 16\n"
        )
        self.write(f"{FOLDER}/libnvidia-ml.so.{VERSION}", "")
        self.at(f"{FOLDER}/libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{VERSION}")
        for number in (1, 2):
            folder = f"/sys/bus/pci/devices/0000:0{number}:00.0"
            self.write(f"{folder}/vendor", "0x10de\n")
            self.write(f"{folder}/class", "0x030200\n")
        self.smi(SMI)
        self.program("timedatectl", "echo yes")
        find = f'cat "{self.at("units")}/${{unit%.service}}" 2> /dev/null || echo LoadState=not-found'
        self.program("systemctl", f'for unit in "$@"; do :; done\n{find}')
        self.program("journalctl", "echo nothing to complain about")
        self.k3s_program()
        self.at("proc/sys/kernel/random").mkdir(parents=True)
        self.write("/proc/sys/kernel/random/boot_id", BOOT_ID)
        self.at("dev/char").mkdir(parents=True)
        for name in ("nvidia0", "nvidiactl"):
            self.at(f"dev/{name}").symlink_to("/dev/null")
        self.at("dev/char/1:3").symlink_to("../nvidia0")
        self.write("/var/lib/rancher/k3s/agent/etc/containerd/config.toml", CONTAINERD)

    def k3s_program(self, version: str = "v1.33.13+k3s1", ready: str = "echo ok") -> None:
        """Let k3s say this of its version, and of its readiness."""
        node, pods = self.at("node.json"), self.at("pods.json")
        answers = f"*readyz*) {ready} ;; *'get node'*) cat {node} ;; *'get pods'*) cat {pods} ;;"
        self.program("k3s", f'case "$*" in {answers} *) echo "k3s version {version} (abc)" ;; esac')

    def smi(self, cards: str, version: str = VERSION) -> None:
        """Let nvidia-smi list these cards."""
        lines = f"case $1 in *driver_version*) echo {version} ;; *) printf '%s' '{cards}' ;; esac"
        self.program("nvidia-smi", lines)

    def _lay_edgegpu(self) -> None:
        made = self.certificates
        self.write("/etc/edgegpu/extender/ca.crt", made.ca)
        self.write("/etc/edgegpu/extender/server.crt", made.server.cert)
        self.write("/etc/edgegpu/extender/server.key", made.server.key, 0o600)
        self.start_extender()
        self.configure(extender={"listen": f"127.0.0.1:{self.port}"})
        self.scheduler_file()
        self.kubeconfig({"token": "t"})
        self.node()
        self.unit("edgegpu-plugin")
        self.write("/etc/systemd/system/edgegpu-plugin.service", "")
        self.unit("edgegpu-agent")
        self.write("/etc/systemd/system/edgegpu-recover.service", "")
        self.at("/etc/systemd/system/multi-user.target.wants").mkdir()
        self.at("/etc/systemd/system/multi-user.target.wants/edgegpu-recover.service").symlink_to("../x")
        self.write("/usr/local/lib/edgegpu/edgegpu-recover", "", 0o755)
        drop_in = "[Service]\nExecStartPre=-/usr/local/lib/edgegpu/edgegpu-recover check k3s\n"
        self.write("/etc/systemd/system/k3s.service.d/50-edgegpu.conf", drop_in)
        self.write(DROP_IN, f'kube-scheduler-arg+: ["config={SCHEDULER}"]\n')
        self.write("/var/lib/rancher/k3s/server/cred/scheduler.kubeconfig", scheduler_kubeconfig(made.ca))
        self.k3s()
        self.write(LOADER_CACHE, "")
        self.cdi_spec()
        self.write("/opt/edgegpu/0.1.0/bin/edgegpu", "", 0o755)
        self.at("/opt/edgegpu/current").symlink_to("0.1.0")

    def k3s(self, *arguments: str, name: str = "k3s", **changes: str) -> None:
        """Let systemd start k3s so."""
        words = " ".join(arguments or ("server",))
        unit = f"[Service]\nType=notify\nExecStart=/programs/k3s {words}\n"
        self.write(f"/etc/systemd/system/{name}.service", unit)
        self.unit(name, ExecStartPre="{ path=/usr/local/lib/edgegpu/edgegpu-recover ; argv[]=... }", **changes)

    def node(self, *images: str, **resources: str) -> None:
        """Let the API server say this of the node: both resources of two cards and more, and pods with these images."""
        own = {"baidu.com/vcuda-memory": "58", "baidu.com/vcuda-core": "200", "cpu": "4", **resources}
        status = {"capacity": own, "allocatable": own, "conditions": [{"type": "Ready", "status": "True"}]}
        self.api.objects["/api/v1/nodes/box-1"] = {"status": status}
        pods = [
            {"metadata": {"namespace": "x", "name": "p"}, "spec": {"containers": [{"image": image}]}, "status": {}}
            for image in images
        ]
        self.write("node.json", json.dumps({"metadata": {"name": "box-1"}, "status": status}))
        self.write("pods.json", json.dumps({"items": pods}))

    def kubeconfig(self, user: dict[str, str], mode: int = 0o600) -> Path:
        """Write edgegpu's kubeconfig, and return its path."""
        value = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "k3s", "cluster": {"server": self.api.url}}],
            "users": [{"name": "edgegpu", "user": user}],
            "contexts": [{"name": "edgegpu", "context": {"cluster": "k3s", "user": "edgegpu"}}],
            "current-context": "edgegpu",
        }
        return self.write("/etc/edgegpu/kubeconfig", yaml.safe_dump(value), mode)

    def cdi_spec(
        self, *cards: str, library: str = f"/{FOLDER}/libnvidia-ml.so.{VERSION}", hook: str = LOADER_CACHE
    ) -> None:
        """Write the CDI spec, without a hook where that is empty."""
        devices = [
            {"name": uuid, "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}
            for uuid in cards or (CARD_0, CARD_1)
        ]
        edits = {
            "deviceNodes": [{"path": "/dev/nvidiactl"}],
            "mounts": [{"hostPath": library, "containerPath": "/usr/lib64/libnvidia-ml.so.1"}],
            "hooks": [{"hookName": "createContainer", "path": hook}] if hook else [],
        }
        spec = {"cdiVersion": "0.5.0", "kind": "edgegpu.io/gpu", "containerEdits": edits, "devices": devices}
        self.write("/var/run/cdi/edgegpu.json", json.dumps(spec))


@contextmanager
def healthy(root: Path) -> Iterator[Box]:
    """Yield a box that is well."""
    box = Box(root)
    try:
        box.start()
        yield box
    finally:
        box.stop()
