"""The disk of a virtual machine: Debian with a kernel, k3s and simulated cards, made on this machine.

Two caches lie below `$EDGEGPU_LAB/vm`: the packages of Debian as one archive, and the disk, each named by a hash of
what it was made from. What is not current is made anew, and the one before is removed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import TYPE_CHECKING

from lab.labrun import HERE, LabError, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = HERE.parents[1]
LAB = Path(os.environ.get("EDGEGPU_LAB") or "/var/tmp/edgegpu-lab")  # noqa: S108  (kept from run to run)
STATE = LAB / "vm"
NAME, GATEWAY, ADDRESS = "edgebox", "10.89.0.1", "10.89.0.11"
HARDWARE_ADDRESS = "02:ed:6e:00:00:11"
SIMULATION = "srv/simulation"

SUITE = "bookworm"
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "udev", "linux-image-cloud-amd64", "initramfs-tools", "zstd", "apparmor"),
    *("openssh-server", "iproute2", "iptables", "procps", "kmod", "ca-certificates", "curl", "python3", "xz-utils"),
)
EARLY_MODULES = ("virtio_pci", "virtio_blk", "ext4", "crc32c_generic")
"""What the kernel needs before the disk is there. An initrd of some MB is unpacked in a tenth of a large one's time."""

DISK_BYTES = 12 << 30
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CONTROLLERS = "kube-controller-manager-arg:\n- controllers=*,tokencleaner,-attachdetach,-persistentvolume-expander\n"
"""As for other boxes of the lab: k3sdirect says why."""

FILES = {
    "etc/hostname": f"{NAME}\n",
    "etc/hosts": f"127.0.0.1 localhost\n{ADDRESS} {NAME}\n{GATEWAY} lab\n",
    "etc/resolv.conf": f"nameserver {GATEWAY}\n",
    "etc/fstab": "/dev/vda / ext4 noatime,errors=remount-ro 0 1\n",
    "etc/systemd/network/lan.network": (
        f"[Match]\nMACAddress={HARDWARE_ADDRESS}\n[Network]\nAddress={ADDRESS}/24\nGateway={GATEWAY}\n"
    ),
    "etc/systemd/journald.conf.d/box.conf": "[Journal]\nStorage=persistent\n",
    "etc/ssh/sshd_config.d/box.conf": (
        "UseDNS no\nUsePAM no\nMaxSessions 100\nMaxStartups 100\nClientAliveInterval 15\n"
        f"SetEnv PATH={SYSTEM_PATH} LANG=C.UTF-8\n"
    ),
    "etc/rancher/k3s/config.yaml": CONTROLLERS,
}
WANTED = {
    "multi-user.target.wants": ("ssh.service", "systemd-networkd.service", "k3s.service"),
    "network-online.target.wants": ("systemd-networkd-wait-online.service",),
}
MASKED = ("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer")


@dataclass(frozen=True, slots=True)
class Image:
    """A folder with `disk`, `kernel` and `initrd`; with `memory` besides, a machine goes on from there."""

    folder: Path

    @property
    def disk(self) -> Path:
        """The disk that is never written to again."""
        return self.folder / "disk"

    @property
    def memory(self) -> Path:
        """What the machine had in its memory, compressed."""
        return self.folder / "memory"

    @property
    def goes_on(self) -> bool:
        """Whether a machine goes on from a moment, and does not boot."""
        return self.memory.exists()


def key_file() -> Path:
    """Return the private key with which root of this machine comes into its virtual machines; made once."""
    path = STATE / "key"
    if not path.exists():
        STATE.mkdir(parents=True, exist_ok=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "edgegpu-lab", "-f", path], timeout_s=60)
    return path


@contextmanager
def locked() -> Iterator[None]:
    """Hold the lock on the caches: another run may be making them too."""
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / "lock").open("w") as lock:
        flock(lock, LOCK_EX)
        yield


def image_named(name: str) -> Image:
    """Return an image by its name; it may not be there yet."""
    return Image(STATE / "images" / name)


def base_image(cards: Mapping[str, int], *, place: str) -> Image:
    """Return the disk of a machine with k3s and simulated cards, made where it is not current (two minutes).

    Args:
        cards: from names to MiB.
        place: the folder of the simulated driver in the machine.
    """
    pack = Path(run([HERE / "pack"], timeout_s=300).stdout.strip())
    run([HERE / "glibc_image.sh"], timeout_s=120)
    simulation = [ROOT / "simulation", ROOT / "build/simdriver"]
    key = digest(__file__, pack.name, cards, place, *simulation, *sorted((LAB / "images").glob("*.tar")), key_file())
    image = image_named(f"base-{key}")
    with locked():
        if not image.disk.exists():
            archive = debian_archive()
            with fresh_folder(image.folder) as folder:
                _make_disk(folder, archive=archive, pack=pack, cards=cards, place=place)
            remove_others(image.folder, "base-*")
    return image


def digest(*inputs: object) -> str:
    """Return a short name for inputs: of files and folders their content counts, of others how they are written."""
    whole = hashlib.sha256()
    for item in inputs:
        path = item if isinstance(item, Path) else Path(item) if isinstance(item, str) and item[:1] == "/" else None
        files = [] if path is None or not path.exists() else sorted(path.rglob("*")) if path.is_dir() else [path]
        whole.update(f"{item if path is None else path.name}\n".encode())
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                whole.update(f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()[:12]


@contextmanager
def fresh_folder(target: Path) -> Iterator[Path]:
    """Yield a folder to fill; it gets its name when all is in it."""
    folder = target.with_name(f"{target.name}.new")
    for leftover in (folder, target):
        shutil.rmtree(leftover, ignore_errors=True)
    folder.mkdir(parents=True)
    yield folder
    folder.rename(target)


def remove_others(kept: Path, pattern: str) -> None:
    """Remove what other inputs have made beside this folder or file."""
    for path in kept.parent.glob(pattern):
        if path != kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def debian_archive() -> Path:
    """Return Debian's packages, unpacked and configured, as one archive; made where it is not there."""
    archive = STATE / f"debian-{digest(SUITE, PACKAGES, EARLY_MODULES)}.tar.zst"
    if archive.exists():
        return archive
    early = "\\n".join(EARLY_MODULES)
    made = STATE / "debian.tar"
    command: list[str | Path] = [
        *("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}"),
        *('--aptopt=Acquire::Check-Valid-Until "false"', '--aptopt=Acquire::Retries "5"'),
        "--dpkgopt=path-exclude=/usr/share/man/*",
        '--essential-hook=mkdir -p "$1/etc/initramfs-tools/conf.d"',
        '--essential-hook=printf "MODULES=list\\nCOMPRESS=zstd\\n" > "$1/etc/initramfs-tools/conf.d/box"',
        f'--essential-hook=printf "{early}\\n" > "$1/etc/initramfs-tools/modules"',
        '--customize-hook=rm -rf "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/* "$1"/etc/ssh/ssh_host_*',
        *(SUITE, made),
        *_apt_sources(),
    ]
    run(command, timeout_s=1800)
    run(["zstd", "-q", "-f", "-T0", made, "-o", f"{archive}.new"], timeout_s=600)
    made.unlink()
    Path(f"{archive}.new").rename(archive)
    remove_others(archive, "debian-*")
    return archive


def _apt_sources() -> list[Path]:
    """Return this machine's list of sources where it has this release too; else mmdebstrap has its own."""
    lists = [Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")]
    return [path for path in lists if path.exists() and SUITE in path.read_text()][:1]


def _make_disk(folder: Path, *, archive: Path, pack: Path, cards: Mapping[str, int], place: str) -> None:
    root = folder / "root"
    root.mkdir()
    run(["tar", "-C", root, "--numeric-owner", "--xattrs", "-xf", archive], timeout_s=600)
    for name, pattern in (("kernel", "vmlinuz-*"), ("initrd", "initrd.img-*")):
        [source] = (root / "boot").glob(pattern)
        shutil.move(source, folder / name)
    _configure(root)
    _add_k3s(root, pack)
    _add_cards(root, cards, place)
    disk = folder / "disk"
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    options = (
        "-q",
        "-F",
        "-L",
        "box",
        "-i",
        "65536",
        "-J",
        "size=64",
        "-E",
        "assume_storage_prezeroed=1,root_owner=0:0",
    )
    run(["mkfs.ext4", *options, "-d", root, disk], timeout_s=900)
    shutil.rmtree(root)


def _configure(root: Path) -> None:
    for path in [*root.glob("vmlinuz*"), *root.glob("initrd*"), root / "etc/resolv.conf"]:
        path.unlink(missing_ok=True)
    for name, text in FILES.items():
        _write(root / name, text)
    machine_id = hashlib.md5(NAME.encode(), usedforsecurity=False).hexdigest()
    _write(root / "etc/machine-id", f"{machine_id}\n")
    _write(root / "root/.ssh/authorized_keys", key_file().with_suffix(".pub").read_text())
    (root / "root/.ssh").chmod(0o700)
    (root / "var/log/journal").mkdir(parents=True, exist_ok=True)
    run(["ssh-keygen", "-q", "-A", "-f", root], timeout_s=120)
    units = root / "etc/systemd/system"
    for target, names in WANTED.items():
        (units / target).mkdir(parents=True, exist_ok=True)
        for name in names:
            home = "/etc" if name == "k3s.service" else "/lib"
            (units / target / name).unlink(missing_ok=True)
            (units / target / name).symlink_to(f"{home}/systemd/system/{name}")
    for name in MASKED:
        (units / name).unlink(missing_ok=True)
        (units / name).symlink_to("/dev/null")


def _add_k3s(root: Path, pack: Path) -> None:
    programs, images = root / "usr/local/lib/k3s-standin", root / "var/lib/rancher/k3s/agent/images"
    for path in (programs, images):
        path.mkdir(parents=True)
    run(["cp", "-a", pack / "bin", pack / "lib", programs], timeout_s=300)
    target = root / "usr/local/bin/k3s"
    shutil.copy(pack / "k3s", target)
    target.chmod(0o755)
    for link in ("kubectl", "ctr", "crictl"):
        (root / "usr/local/bin" / link).symlink_to("k3s")
    for archive in [*(pack / "images").glob("*.tar"), *(LAB / "images").glob("*.tar")]:
        shutil.copy(archive, images)
    for unit in (pack / "units").glob("*.service"):
        shutil.copy(unit, root / "etc/systemd/system")


def _add_cards(root: Path, cards: Mapping[str, int], place: str) -> None:
    home = root / SIMULATION
    shutil.copytree(ROOT / "simulation", home / "simulation", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "build/simdriver", home / "build/simdriver")
    words = [word for name, mib in cards.items() for word in ("--card", f"{name}:{mib}")]
    command = [sys.executable, "-m", "edgegpu_sim.driver", "create", str(root / place.lstrip("/")), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"cannot make the cards: {done.stderr[-2000:]}")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
