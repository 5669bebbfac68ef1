"""Triton's own wheel finds the driver in each way in which a container gets one.

It is fetched into the cache beside NVIDIA's packages, by its hash. Of a container it gets what decides: the driver's
libraries in their folder, the image's loader cache as that way leaves it, and the variables of that way.
"""

import fnmatch
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from driver.cache import cache_folder, locked
from native.limiterkit import HANG_TIMEOUT_S
from native.loadercachekit import CUDA, DEBIAN, PROGRAM, machine_cache, make_root

from edgegpu_plugin.containers.cdi import library_folders
from edgegpu_plugin.containers.image.loader_cache import TRITON_FOLDER

pytestmark = [
    pytest.mark.driver,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can lay out a container's folders"),
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the wheel is pinned for Python 3.11"),
]

PIN = Path(__file__).with_name("triton.txt")
NEEDED = ("*.py", "*/libtriton.so", "*.dist-info/*")
"""What its import takes: a half of the wheel is compilers."""
ASK = "from triton.backends.nvidia.driver import libcuda_dirs; print(*libcuda_dirs())"
NOT_FOUND = "libcuda.so cannot found!"
LAY_OUT = f"""
set -eu
mount -t overlay overlay -o "ro,lowerdir=$1:{DEBIAN}" {DEBIAN}
mount --bind "$2" /etc/ld.so.cache
shift 2
exec "$@"
"""


@pytest.fixture(scope="session")
def triton() -> Path:
    """Return the folder with Triton, fetched where it was not; without an index the test is skipped by its name."""
    tree = cache_folder() / "trees" / f"triton-{hashlib.sha256(PIN.read_bytes()).hexdigest()[:16]}"
    with locked():
        if not tree.is_dir():
            new, wheels = tree.with_suffix(".new"), tree.with_suffix(".wheels")
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
            done = subprocess.run(
                [*command, "--require-hashes", "-r", PIN, "-d", wheels], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                pytest.skip(f"cannot fetch Triton's wheel: {done.stderr.strip()[-200:]}")
            shutil.rmtree(new, ignore_errors=True)
            with zipfile.ZipFile(next(wheels.glob("triton-*.whl"))) as wheel:
                names = [name for name in wheel.namelist() if any(fnmatch.fnmatch(name, kind) for kind in NEEDED)]
                wheel.extractall(new, names)
            shutil.rmtree(wheels)
            new.rename(tree)
    return tree


class Container:
    """What a container with a card has: the driver's library, and an image's loader cache."""

    def __init__(self, folder: Path, triton: Path, program: Path) -> None:
        self.folder, self.driver, self.made = folder, folder / "driver", make_root(folder, program)
        self.environment = {**os.environ, "PYTHONPATH": str(triton), "HOME": str(folder)}
        self.driver.mkdir()
        (self.driver / CUDA).touch()
        cache = machine_cache(folder)
        if CUDA.encode() in cache:
            pytest.skip("this machine's own loader cache has a driver")
        self.made.put("/etc/ld.so.cache", cache)

    def run(self, *command: str | Path) -> "subprocess.CompletedProcess[str]":
        """Run a program there."""
        laid_out: list[str | Path] = ["unshare", "--mount", "sh", "-c", LAY_OUT, "sh", self.driver, self.made.cache]
        return subprocess.run(
            [*laid_out, *command],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG_TIMEOUT_S,
        )

    def folders(self) -> list[str]:
        """Return where Triton finds the driver; none where it says that it finds none."""
        done = self.run(sys.executable, "-c", ASK)
        assert done.returncode == 0 or NOT_FOUND in done.stderr, done.stderr
        return done.stdout.split()


@pytest.fixture
def container(tmp_path: Path, triton: Path, limiter_build: Path) -> Container:
    return Container(tmp_path, triton, limiter_build / PROGRAM)


def test_by_cdi_it_finds_the_driver_in_the_loader_s_cache(container: Container) -> None:
    assert container.folders() == [], "an image's own cache has no driver"
    container.made.hook(CUDA)
    assert container.folders() == [DEBIAN]


def test_by_devices_it_is_told_the_folder(container: Container) -> None:
    folder, _ = library_folders("x86_64")
    container.environment[TRITON_FOLDER] = folder
    assert container.folders() == [folder] == [DEBIAN]


def test_by_runtime_it_finds_what_nvidia_s_own_hook_makes(container: Container) -> None:
    """NVIDIA's hook runs ldconfig over the container, which finds a library by the SONAME in its file."""
    command = ["cc", "-shared", "-fPIC", "-x", "c", "/dev/null", f"-Wl,-soname,{CUDA}", "-o"]
    subprocess.run([*command, container.driver / CUDA], check=True)
    made = container.folder / "made"
    container.run("/sbin/ldconfig", "-X", "-C", made).check_returncode()
    container.made.put("/etc/ld.so.cache", made.read_bytes())
    assert container.folders() == [f"/{DEBIAN.removeprefix('/usr/')}"]
