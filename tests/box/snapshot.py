"""What a box's disk holds, for comparisons: `python3 snapshot.py` in the box prints JSON, path to what is there."""

import hashlib
import json
import os
import re
import stat
import sys
from pathlib import Path

FOLDERS = ("/etc", "/usr", "/opt", "/var/lib")
NOT = {f"/var/lib/{name}" for name in ("rancher", "kubelet", "cni", "systemd")}
"""What k3s, kubelet and systemd keep for themselves."""

KUBELETS = ("/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pod-resources", "/var/run/cdi")
KEPT_BY_KUBELET = re.compile(r"kubelet_internal_checkpoint|kubelet\.sock|DEPRECATION|\.\d+")
"""The numbers are of a checkpoint that was being written when kubelet was ended."""
REGISTRATION = re.compile(r"@[0-9a-f]+\.sock$")
"""How the plugin's sockets end: each registration has a name of its own."""


def entry(path: str) -> str:
    """Describe one file, folder or link: kind, mode, owner, and its content's hash or its target."""
    info = os.lstat(path)
    head = f"{stat.S_IFMT(info.st_mode):o} {stat.S_IMODE(info.st_mode):o} {info.st_uid}:{info.st_gid}"
    if stat.S_ISLNK(info.st_mode):
        return f"{head} -> {Path(path).readlink()}"
    if stat.S_ISREG(info.st_mode):  # of these sums an emulated processor is thirty times as quick as of SHA-256
        return f"{head} {hashlib.md5(Path(path).read_bytes(), usedforsecurity=False).hexdigest()}"
    return head


def walk(top: str) -> dict[str, str]:
    """Describe everything below a folder."""
    found = {}
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if f"{folder}/{name}" not in NOT]
        for name in [*folders, *files]:
            found[f"{folder}/{name}"] = entry(f"{folder}/{name}")
    return found


def main() -> None:
    """Print all of it."""
    found: dict[str, str] = {}
    for top in FOLDERS:
        found |= walk(top)
    for top in KUBELETS:
        if Path(top).is_dir():
            kept = {p: what for p, what in walk(top).items() if not KEPT_BY_KUBELET.fullmatch(Path(p).name)}
            found |= {REGISTRATION.sub("@*.sock", path): what for path, what in kept.items()}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
