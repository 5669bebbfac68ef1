"""The driver at the root of a machine of its own: an overlay over this one, entered by chroot."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and chroot need root")

CHECKOUT = Path(__file__).resolve().parents[2]

MOUNT = """
set -eu
mount -t tmpfs tmpfs "$1" && mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root" || exit 77
cp "$1.sh" "$1/root/inside.sh"
mkdir -p "$1/root/dev"
mknod "$1/root/dev/urandom" c 1 9
exec chroot "$1/root" sh -eu /inside.sh "$2" "$3"
"""

INSIDE = """
"$2" -m edgegpu_sim.driver create / --build "$1/build/simdriver" \
    --card 'Tesla T4:15360' --card 'NVIDIA A2:16384'
ldconfig
echo listed; nvidia-smi -L
rm /dev/nvidia0
echo without; nvidia-smi -L
echo other; setpriv --reuid=65534 --regid=65534 --clear-groups \
    nvidia-smi --query-gpu=name,memory.used --format=csv,noheader
"""


def test_a_driver_at_the_root(tmp_path: Path, simdriver_build: Path) -> None:
    assert simdriver_build == CHECKOUT / "build/simdriver"
    (tmp_path / "box").mkdir()
    (tmp_path / "box.sh").write_text(INSIDE)
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", MOUNT, "sh", tmp_path / "box", CHECKOUT, sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip(f"no overlay over / here: {done.stderr}")
    assert done.returncode == 0, done.stdout + done.stderr
    _, _, seen = done.stdout.partition("listed\n")
    listed, _, seen = seen.partition("without\n")
    without, _, other = seen.partition("other\n")
    assert [line.partition(" (")[0] for line in listed.splitlines()] == ["GPU 0: Tesla T4", "GPU 1: NVIDIA A2"]
    assert [line.partition(" (")[0] for line in without.splitlines()] == ["GPU 0: NVIDIA A2"]
    assert other == "NVIDIA A2, 0 MiB\n"
