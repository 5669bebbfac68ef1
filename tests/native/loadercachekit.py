"""Roots of containers for the hook edgegpu-loader-cache, and glibc's loader cache read as glibc reads it."""

import json
import re
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

PROGRAM = "edgegpu-loader-cache"
DEBIAN, RED_HAT = "/usr/lib/x86_64-linux-gnu", "/usr/lib64"
CUDA, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
ENDS_S = 1.0
"""The program may not take longer, whatever happens; a start waits for it."""

_HEAD, _ENTRY, _MAGIC = struct.Struct("<20sIIB3xI12x"), struct.Struct("<iIIIQ"), b"glibc-ld.so.cache1.1"
_PRINTED = re.compile(r"^\t(\S+) \((\S+)\) => (\S+)$", re.MULTILINE)
_LDCONFIG = "/sbin/ldconfig"


@dataclass(frozen=True, slots=True)
class MadeRoot:
    """A bundle of a container, whose root has the driver's libraries in the folders that CDI mounts them into."""

    bundle: Path
    program: Path

    @property
    def root(self) -> Path:
        """The container's root."""
        return self.bundle / "rootfs"

    @property
    def cache(self) -> Path:
        """The loader cache of the container."""
        return self.root / "etc/ld.so.cache"

    def put(self, path: str, content: bytes = b"") -> Path:
        """Lay a file into the root."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        return place

    def state(self) -> bytes:
        """Return what a runtime writes to a hook; the annotations are the pod's author's."""
        state = {"ociVersion": "1.2.0", "id": "one", "status": "creating", "pid": 1, "bundle": str(self.bundle)}
        return json.dumps(state | {"annotations": {"bundle": "/", "{": '"bundle":"/"'}}).encode()

    def hook(self, *names: str, state: bytes | None = None, prefix: tuple[str, ...] = ()) -> None:
        """Run the hook as the runtime does, and see that it ends with 0 and prints nothing; a busy machine has time."""
        command = [*prefix, str(self.program), DEBIAN, RED_HAT, "--", *(names or (CUDA, NVML))]
        done = subprocess.run(
            command, input=self.state() if state is None else state, capture_output=True, timeout=20, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def make_root(folder: Path, program: Path, *, libraries: str = DEBIAN) -> MadeRoot:
    """Make a bundle with a root that has the driver's libraries and nothing else."""
    made = MadeRoot(folder / "bundle", program)
    (made.root / "etc").mkdir(parents=True)
    config = {"ociVersion": "1.2.0", "process": {"env": ['PATH="root":{"path":"/"}']}, "root": {"path": "rootfs"}}
    (made.bundle / "config.json").write_text(json.dumps(config))
    for name in (CUDA, NVML):
        made.put(f"{libraries}/{name}")
    return made


def glibc_image(made: MadeRoot) -> None:
    """Make the root one of an image with glibc and ldconfig, without a cache."""
    made.put("/lib64/ld-linux-x86-64.so.2")
    made.put("/usr/sbin/ldconfig")


def machine_cache(folder: Path, form: str = "new") -> bytes:
    """Return a cache that this machine's ldconfig makes of libraries of its own, in a form: new, compat or old."""
    out = folder / f"cache-{form}"
    subprocess.run([_LDCONFIG, "-X", "-c", form, "-C", out], check=True, capture_output=True)
    return out.read_bytes()


def printed(cache: Path) -> list[tuple[str, str]]:
    """Return names and paths of a cache as `ldconfig -p` prints them, in its order."""
    copy = cache.with_name("printed")
    shutil.copy(cache, copy)  # ldconfig takes a file name
    done = subprocess.run([_LDCONFIG, "-p", "-C", copy], capture_output=True, text=True, check=True)
    copy.unlink()
    assert all(kind.startswith("libc6,x86-64") for _, kind, _ in _PRINTED.findall(done.stdout))
    return [(name, path) for name, _, path in _PRINTED.findall(done.stdout)]


def looked_up(data: bytes, name: str) -> str | None:
    """Return the path that the loader takes for a name: by halves, then the first of the equal ones (dl-cache.c)."""
    data = data[data.index(_MAGIC) :]
    count = int(_HEAD.unpack_from(data)[1])
    names, paths = list[str](), list[str]()
    for _, key, value, _, _ in _ENTRY.iter_unpack(data[_HEAD.size : _HEAD.size + count * _ENTRY.size]):
        names.append(data[key : data.index(b"\0", key)].decode())
        paths.append(data[value : data.index(b"\0", value)].decode())
    left, right = 0, count - 1
    while left <= right:
        middle = (left + right) // 2
        order = _compared(name, names[middle])
        if order == 0:
            while middle > 0 and names[middle - 1] == name:
                middle -= 1
            return paths[middle]
        left, right = (middle + 1, right) if order < 0 else (left, middle - 1)
    return None


def _compared(one: str, other: str) -> int:
    """Compare two names in the loader's order: runs of digits by their value, and after every other character."""
    first, second = _parts(one), _parts(other)
    return 0 if first == second else 1 if first > second else -1


def _parts(name: str) -> list[tuple[int, int]]:
    return [(1, int(part)) if part.isdigit() else (0, ord(part)) for part in re.findall(r"[0-9]+|[^0-9]", name)]
