"""A container whose programs may not write its usage file, as SELinux can have it: told in words, and to the plugin."""

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from native.limiterkit import NULL_CARD, Container, compile_program, make_null_container

from edgegpu_plugin.containers.cgroups import CgroupOwner
from edgegpu_plugin.containers.container_folder import ContainerFolders
from edgegpu_plugin.containers.held.bypass import LOOK_S, CountedContainer
from edgegpu_plugin.containers.held.unwritable_usage import UnwritableUsage

WITHOUT_RIGHTS = (
    "setpriv",
    "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-dac_override,-dac_read_search",
)
"""As root: without the capabilities by which it may write every file."""
READ_ONLY = ("unshare", "--mount", "--propagation", "private", "sh", "-c")
MOUNTED = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
SAID = (
    "edgegpu: programs of this container get no card memory: {} cannot be written (error {}); SELinux, AppArmor or a "
    "read-only mount can be why\n"
)
UID = "3c8f2c55-0d0e-4a57-9a0e-1f8d2f7c9b11"
KEY = (UID, "main")

NO_NAMESPACE = 77
"""plugin/limiter/tests/user_namespace.c"""

Command = Sequence[str | Path]


@pytest.fixture
def container(tmp_path: Path, limiter_build: Path) -> Container:
    made = make_null_container(tmp_path, limiter_build)
    made.limit((NULL_CARD, 64))
    return made


@pytest.fixture
def program(tmp_path: Path, limiter_build: Path) -> Path:
    return compile_program(tmp_path / "unwritable", limiter_build, ["tests/unwritable.c"])


def _refused(command: Command) -> Command:
    return [*(WITHOUT_RIGHTS if os.geteuid() == 0 else ()), *command]


def _run(container: Container, command: Command) -> tuple[int, str]:
    done = subprocess.run(command, env=container.environment(), stderr=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stderr


class Plugin:
    """What the plugin sees of one process: its /proc has that process alone, as one of a pod."""

    def __init__(self, proc: Path, container: Container) -> None:
        self.proc, self.container = proc, container
        self.unwritable = UnwritableUsage(proc=proc)

    def finds(self, pid: int) -> bool:
        """Look, and return whether the container is one whose programs may not write."""

        def key_of(owner: CgroupOwner) -> tuple[str, str]:
            return owner.pod_uid, "main"

        folder = self.proc / str(pid)
        if not folder.exists():
            folder.mkdir(parents=True)
            for name in ("maps", "stat", "task"):
                (folder / name).symlink_to(f"/proc/{pid}/{name}")
            (folder / "cgroup").write_text(f"0::/kubepods/besteffort/pod{UID}/{'ab' * 32}\n")
        self.unwritable.look({KEY: CountedContainer([self.container.usage], {})}, key_of)
        return bool(self.unwritable.reason(KEY))


@pytest.fixture
def plugin(tmp_path: Path, container: Container) -> Plugin:
    return Plugin(tmp_path / "proc", container)


def _seen(plugin: Plugin, command: Command) -> tuple[bool, int, str, float]:
    """Run a program; whether the plugin found it, its exit status, what it said, and how many seconds it took."""
    began = time.monotonic()
    with subprocess.Popen(command, env=plugin.container.environment(), stderr=subprocess.PIPE, text=True) as child:
        found = False
        while child.poll() is None:
            found = plugin.finds(child.pid)
            time.sleep(0.01)
        assert child.stderr is not None
        return found, child.returncode, child.stderr.read(), time.monotonic() - began


def test_a_program_says_once_why_it_gets_no_memory_and_stays_until_the_plugin_has_looked(
    container: Container, program: Path, plugin: Plugin
) -> None:
    container.usage.chmod(0o444)
    found, status, said, took_s = _seen(plugin, _refused([program]))
    assert (found, status, said) == (True, 0, SAID.format(container.usage, 13))
    assert took_s > LOOK_S, "between two looks of the plugin it is there"
    container.usage.chmod(0o666)
    assert _run(container, _refused([program])) == (1, "")  # its call for a context succeeds
    assert not plugin.finds(os.getpid()), "a program has written the file"


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount needs root")
def test_a_file_that_is_mounted_read_only_is_found_too(container: Container, program: Path, plugin: Plugin) -> None:
    command: Command = [*READ_ONLY, MOUNTED, container.usage, program]
    found, status, said, _ = _seen(plugin, command)
    assert (found, status, said) == (True, 0, SAID.format(container.usage, 30))


def test_where_seccomp_forbids_the_mark_the_line_is_said_and_nothing_concluded(
    container: Container, program: Path, plugin: Plugin, tmp_path: Path, limiter_build: Path
) -> None:
    filtered = compile_program(tmp_path / "forbids_memfd", limiter_build, ["tests/forbids_memfd.c"])
    container.usage.chmod(0o444)
    found, status, said, _ = _seen(plugin, _refused([filtered, program]))
    assert (found, status, said) == (False, 0, SAID.format(container.usage, 13))


def test_a_program_that_has_something_else_in_the_place_of_stderr_is_told_nothing(
    container: Container, program: Path, plugin: Plugin, tmp_path: Path
) -> None:
    container.usage.chmod(0o444)
    data = tmp_path / "data"
    found, status, said, _ = _seen(plugin, _refused([program, data]))
    assert (found, status, said) == (True, 0, "")
    assert data.read_bytes() == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="ids of the machine are mapped by root")
def test_a_user_namespace_alone_forbids_nothing(limiter_build: Path, tmp_path: Path) -> None:
    """The files are laid as the plugin lays them, and of no user whom the namespace has."""
    namespace = compile_program(tmp_path / "user_namespace", limiter_build, ["tests/user_namespace.c"])
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        folder.chmod(0o755)  # a container has its folder by a mount, whatever lies above it
        program = compile_program(folder / "unwritable", limiter_build, ["tests/unwritable.c"])
        container = make_null_container(folder, limiter_build)
        container.limit((NULL_CARD, 64))
        ContainerFolders(root=folder / "plugin", proc=Path("/proc")).make(folder / "plugin/one", "")
        (folder / "plugin/one/usage").replace(container.usage)
        status, said = _run(container, [namespace, program])
        if status == NO_NAMESPACE:
            pytest.skip("this machine makes no user namespace")
        assert (status, said) == (1, ""), "its call for a context succeeds"
        assert container.usage.stat().st_uid == 0
        container.usage.chmod(0o644)
        assert _run(container, [namespace, program]) == (0, SAID.format(container.usage, 13))
