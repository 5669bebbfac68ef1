"""The programs of older Kubernetes, built with Go from the modules that versions/ pins, and kept."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from pathlib import Path

from lab.labrun import LabError, run

HERE = Path(__file__).resolve().parent
VERSIONS = tuple(sorted((path.stem for path in (HERE / "versions").glob("*.mod")), key=lambda text: int(text[2:])))
"""The minor versions whose scheduler runs, such as 1.20, oldest first."""
API_VERSION = VERSIONS[-1]
"""The version of the API server: the newest, for it serves all that the older schedulers ask for."""
BUILD_S = 1800


def program(name: str, version: str) -> Path:
    """Return kube-scheduler or kube-apiserver of a version; needs Go and minutes the first time.

    Two to four minutes of two cores each, 3 GB of memory.

    Raises:
        LabError: there is no Go, or the build failed; the text has Go's last words.
    """
    modules, sums = (HERE / "versions" / f"{version}.{suffix}" for suffix in ("mod", "sum"))
    pins = hashlib.sha256(modules.read_bytes() + sums.read_bytes()).hexdigest()[:12]
    folder = _folder()
    target = folder / f"{name}-{version}-{pins}"
    folder.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _build(name, modules, target)
    return target


def etcd() -> Path:
    """Return etcd: the one on the PATH, else that of Debian's package, unpacked and not installed.

    Raises:
        LabError: the package cannot be fetched.
    """
    if path := shutil.which("etcd"):
        return Path(path)
    folder = _folder() / "etcd"
    target = folder / "usr/bin/etcd"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        run(["env", "-C", str(folder), "apt-get", "download", "-qq", "etcd-server"], timeout_s=BUILD_S)
        (package,) = folder.glob("etcd-server_*.deb")
        run(["dpkg", "-x", str(package), str(folder)])
    return target


def _folder() -> Path:
    return Path(os.environ.get("EDGEGPU_LAB", "/var/tmp/edgegpu-lab")) / "build/schedulers"  # noqa: S108  (the lab's)


def _build(name: str, modules: Path, target: Path) -> None:
    go = shutil.which("go", path=f"{os.environ['PATH']}:/usr/local/go/bin")
    if go is None:
        raise LabError(f"{name} is built from source: Go 1.21 or newer is needed")
    partial = target.with_name(f"{target.name}.new")
    flags = ["-mod=readonly", f"-modfile={modules}", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w"]
    tags = "providerless osusergo netgo"
    command = [go, "build", *flags, "-tags", tags, "-o", str(partial), f"k8s.io/kubernetes/cmd/{name}"]
    run(["env", "-C", str(HERE), "CGO_ENABLED=0", *command], timeout_s=BUILD_S)
    partial.rename(target)
