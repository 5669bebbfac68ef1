"""A box as a folder: unit files, k3s's files, kubelet's folder, and programs that answer as the real ones do."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgegpu_installer.layout import Layout
from edgegpu_installer.machine.facts import MachineFacts, read_facts

UNIT = """\
[Unit]
Description=Lightweight Kubernetes
[Service]
Type=notify
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/systemd/system/k3s.service.env
KillMode=process
ExecStartPre=-/sbin/modprobe overlay
ExecStart=/usr/local/bin/k3s \\
    {role} \\
\t{args}
"""
CONTAINERD = """\
version = 3
[plugins."io.containerd.cri.v1.runtime"]
  enable_cdi = true
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  SystemdCgroup = true
"""
SHOWN = """\
ActiveState=active
SubState=running
NRestarts=0
ActiveEnterTimestampMonotonic=1000000
InvocationID=aa
UnitFileState=enabled"""
NOW_S = 100.0


class FakeBox:
    """Builds the folder; every program says what it is told to."""

    def __init__(self, root: Path) -> None:
        self.root = root / "box"
        self.bin = root / "bin"
        self.bin.mkdir(parents=True)
        self.layout = Layout(self.root)
        for folder in ("etc/systemd/system", "var/lib", "opt", "usr/local/bin", "dev"):
            (self.root / folder).mkdir(parents=True)
        self.program("systemctl", SHOWN)

    def write(self, path: str, text: str) -> Path:
        """Write a file of the box."""
        file = self.layout.at(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def program(self, name: str, out: str, *, code: int = 0, script: str = "") -> None:
        """Put a program on the PATH."""
        self.executable(self.bin / name, out, code, script)

    def k3s(  # noqa: PLR0913  (a box has that many sides)
        self,
        role: str = "server",
        *,
        args: str = "",
        version: str = "v1.33.13+k3s1",
        unit: str = "k3s",
        node: Mapping[str, Any] | None = None,
        pods: tuple[Mapping[str, Any], ...] = (),
        ready: bool = True,
        config: str = "",
        containerd: str = CONTAINERD,
    ) -> None:
        """Install a k3s: its unit, its program, its folders."""
        self.write(f"/etc/systemd/system/{unit}.service", UNIT.format(role=role, args=args))
        if config:
            self.write("/etc/rancher/k3s/config.yaml", config)
        self.write("/var/lib/rancher/k3s/agent/etc/containerd/config.toml", containerd)
        answers = {
            "node": {
                "status": {"allocatable": {}, "conditions": [{"type": "Ready", "status": "True"}], **(node or {})}
            },
            "pods": {"items": list(pods)},
        }
        files = {name: self.write(f"/answers/{name}.json", json.dumps(what)) for name, what in answers.items()}
        ready_words = "echo ok" if ready else "echo 'etcd failed' >&2; exit 1"
        script = (
            f'case "$*" in\n--version) echo "k3s version {version} (abc)";;\n*"get node "*) cat {files["node"]};;\n'
            f'*"get pods "*) cat {files["pods"]};;\n*readyz*) {ready_words};;\n*) exit 2;;\nesac'
        )
        (self.root / "usr/local/bin/k3s").unlink(missing_ok=True)
        self.executable(self.root / "usr/local/bin/k3s", "", 0, script)

    def gpu(self, uuid: str = "GPU-11111111-2222-3333-4444-555555555555", number: int = 0) -> None:
        """Put a card in, as the kernel module shows it."""
        text = f"Model: \t\t Tesla T4\nIRQ:   \t\t 5\nGPU UUID: \t {uuid}\nBus Type: \t PCIe\n"
        self.write(f"/proc/driver/nvidia/gpus/0000:0{number}:00.0/information", text)

    def facts(self, **more: Any) -> MachineFacts:  # noqa: ANN401  (read_facts's own)
        """Read the box."""
        path = f"{self.bin}:{os.environ['PATH']}"
        given = {"clock": lambda: NOW_S, "hostname": lambda: "Edge-1", "timeout_s": 30.0, **more}
        return read_facts(self.layout, path=path, **given)

    @staticmethod
    def executable(path: Path, out: str, code: int = 0, script: str = "") -> None:
        """Write a program that prints this, or runs a script."""
        body = script or f"cat <<'END'\n{out}\nEND\nexit {code}"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
