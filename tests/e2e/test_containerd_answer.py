"""What a real containerd says of its CDI and its runtimes, by files of each version, and what we make of it."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kits.facts import FakeBox
from lab.labrun import HERE

from edgegpu_core.injection import ContainerdSupport, Injection, NodeVersions, major_minor
from edgegpu_plugin.containers.runtime import choose, read_containerd

V2 = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n'
V3 = "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\n"
NVIDIA = """\
[plugins."{cri}".containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
[plugins."{cri}".containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
"""
NVIDIA_V2 = NVIDIA.format(cri="io.containerd.grpc.v1.cri")
START_S = 60.0


class RealContainerd:
    """The containerd of the lab's programs, run alone with one configuration."""

    def __init__(self, folder: Path) -> None:
        pack = subprocess.run([HERE / "pack"], capture_output=True, text=True, check=True).stdout.strip()
        self.program = Path(pack) / "bin/containerd"
        self.config = folder / "config.toml"
        self._folder = folder
        said = subprocess.run([self.program, "--version"], capture_output=True, text=True, check=True).stdout
        version = major_minor(said.split()[2])
        assert version is not None, said
        self.version = version

    def write(self, text: str, *, drop_in: str = "") -> None:
        """Write its configuration, and a file that it imports."""
        self.config.with_name("drop-in.toml").write_text(drop_in)
        imports = f"imports = ['{self.config.with_name('drop-in.toml')}']\n" if drop_in else ""
        head, _, rest = text.partition("\n")
        folders = f"root = '{self._folder}/root'\nstate = '{self._folder}/state'\n"
        name = "plugins.'io.containerd.server.v1.{}'" if head == "version = 4" else "{}"
        sockets = (("grpc", "c.sock"), ("ttrpc", "c.sock.ttrpc"))
        listen = "".join(f"[{name.format(kind)}]\naddress = '{self._folder}/{file}'\n" for kind, file in sockets)
        self.config.write_text(f"{head}\n{folders}{imports}{listen}{rest}")

    @contextmanager
    def runs(self) -> Iterator[None]:
        """Run it, until it answers with its configuration."""
        with (self._folder / "log").open("w") as log:
            child = subprocess.Popen([self.program, "--config", self.config], stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + START_S
            while (answer := read_containerd([self.config])) is None or not answer.asked:
                assert child.poll() is None, (self._folder / "log").read_text()
                assert time.monotonic() < deadline, (self._folder / "log").read_text()
                with suppress(subprocess.TimeoutExpired):
                    child.wait(0.1)
            yield
        finally:
            child.terminate()
            child.wait(30)

    def answer(self) -> ContainerdSupport:
        """Return what it says."""
        answer = read_containerd([self.config])
        assert answer is not None
        return answer

    def mode(self) -> Injection:
        """Return how cards come in, by its answer alone."""
        folder = Path("/var/run/cdi")
        return choose(Injection.AUTO, cdi_folder=folder, versions=NodeVersions(), configs=[self.config]).mode


@pytest.fixture
def containerd(tmp_path: Path) -> RealContainerd:
    return RealContainerd(tmp_path)


def test_a_file_of_version_2_has_cdi_on(containerd: RealContainerd) -> None:
    containerd.write(V2 + NVIDIA_V2)
    assert containerd.mode() is Injection.RUNTIME  # the file alone says nothing of CDI, and has the nvidia runtime
    with containerd.runs():
        answer = containerd.answer()
        assert (answer.enable_cdi, answer.nvidia_runtime, answer.default_runtime) == (True, True, "runc")
        assert answer.witness == f"containerd (asked on {containerd.config.with_name('c.sock')})"
        assert containerd.mode() is Injection.CDI
    assert containerd.mode() is Injection.RUNTIME  # the socket that it left is nobody's answer


def test_a_drop_in_of_version_3_beside_a_file_of_version_2(containerd: RealContainerd) -> None:
    """2.1 leaves the older file's runtimes out then, which no reader of files would guess."""
    containerd.write(V2 + NVIDIA_V2, drop_in=V3 + "enable_cdi = false\n")
    with containerd.runs():
        answer = containerd.answer()
        assert answer.enable_cdi is (containerd.version >= (2, 4))
        assert answer.nvidia_runtime is (containerd.version >= (2, 3))


def test_the_installer_reads_what_containerd_makes_of_its_files(containerd: RealContainerd, tmp_path: Path) -> None:
    box = FakeBox(tmp_path / "box")
    box.k3s(containerd=V2 + NVIDIA_V2)
    program = box.root / "var/lib/rancher/k3s/data/current/bin/containerd"
    program.parent.mkdir(parents=True)
    box.executable(program, "", script=f'exec {containerd.program} "$@"')
    support = box.facts().containerd
    assert support is not None
    assert (support.witness, support.nvidia_runtime) == ("containerd (config dump)", True)
    assert support.has_cdi(NodeVersions())


def test_what_a_file_of_its_own_version_says(containerd: RealContainerd) -> None:
    version = 4 if containerd.version >= (2, 3) else 3
    text = V3.replace("3", str(version), 1) + "enable_cdi = false\ncdi_spec_dirs = ['/srv/cdi']\n"
    containerd.write(text)
    with containerd.runs():
        answer = containerd.answer()
        assert (answer.enable_cdi, answer.cdi_folders) == (containerd.version >= (2, 4), ("/srv/cdi",))
        assert containerd.mode() is Injection.DEVICES
