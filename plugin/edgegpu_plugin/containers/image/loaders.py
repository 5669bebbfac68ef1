"""What the loaders of an image take for libcuda.so.1: the limiter, a driver of the image's own, or nothing.

Each loader that is found there is followed on its own search for the name, as ld.so(8) and musl's dynlink.c have it.
What a program does by itself is not seen here: a path in its code, an RPATH, a LD_LIBRARY_PATH that it sets later.
"""

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from edgegpu_plugin.containers.image.root_files import ContainerRoot
from edgegpu_plugin.containers.limiter_files import MACHINES, PRELOAD_LIST, is_limiter

NAME = "libcuda.so.1"
GLIBC_LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}
"""The loader that the ABI of each processor names."""

_MUSL = re.compile(r"/ld-musl-[^/]+\.so\.1$")
_MUSL_FOLDERS = ("/lib", "/usr/local/lib", "/usr/lib")
_NIX = "/nix/store/"
_CACHE_NAME = b"/ld.so.cache"
_CACHE_MAGIC, _CACHE_HEAD, _CACHE_ENTRY = b"glibc-ld.so.cache1.1", 48, struct.Struct("<iIIIQ")
_MOST_CACHED = 1 << 16
_NAME_ENDED = NAME.encode() + b"\0"
_LEVELS = ("glibc-hwcaps/x86-64-v4/", "glibc-hwcaps/x86-64-v3/", "glibc-hwcaps/x86-64-v2/", "")
"""glibc 2.33 and newer looks below each folder for libraries that are made for newer processors."""

_LOADER_BYTES, _CACHE_BYTES, _LIBRARY_BYTES = 2 << 20, 8 << 20, 4 << 20
_HEAD_BYTES, _PATH_BYTES, _LIST_BYTES = 64 << 10, 4096, 4096
_MOST_FOLDERS, _MOST_STRINGS = 64, 4096
_LIST_NAME = PRELOAD_LIST.encode() + b"\0"
"""What a loader has in it that reads the list of preloaded libraries; that of Nix reads another file."""
_ELF_64_LITTLE = b"\x7fELF\x02\x01"
_INTERPRETER = 3
_SHOWN_CHARACTERS = 160

_MOUNTED = "/usr/lib64"
"""A folder in which each container has the limiter."""


class Found(Enum):
    """What a loader takes for the driver."""

    LIMITER = "limiter"
    OTHER = "other"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstProcess:
    """What the first process of a container says of its loader: the program's own, and where it was told to look."""

    interpreter: str = ""
    """The path of its loader; empty for a static program."""
    library_path: str = ""
    """Its LD_LIBRARY_PATH."""
    driver_capabilities: str = ""
    """What it asks of the driver, by NVIDIA's variable of that name."""


@dataclass(frozen=True, slots=True)
class LoaderVerdict:
    """What the loaders of an image mean for the limiter."""

    reason: str = ""
    """Why its programs may use a card without it; empty where none may."""
    own_driver: str = ""
    """The path of a driver of its own that is loaded in its place: the remedy is to stand behind the reason."""
    can_preload: bool = False
    """Whether each loader that takes that driver reads the list of preloaded libraries."""


@dataclass(frozen=True, slots=True)
class _Loader:
    path: str
    content: bytes

    @property
    def reads_list(self) -> bool:
        return _LIST_NAME in self.content

    @property
    def is_musl(self) -> bool:
        return _MUSL.search(self.path) is not None


def interpreter_of(head: bytes) -> str:
    """Return the loader that a program names, from the beginning of its file; empty for a static program."""
    try:
        if not head.startswith(_ELF_64_LITTLE):
            return ""
        (at,), (size, count) = struct.unpack_from("<Q", head, 32), struct.unpack_from("<HH", head, 54)
        for number in range(count):
            kind, _, offset = struct.unpack_from("<IIQ", head, at + number * size)
            (length,) = struct.unpack_from("<Q", head, at + number * size + 32)
            if kind == _INTERPRETER:
                return head[offset : offset + length].partition(b"\0")[0].decode("utf-8", "surrogateescape")
    except (struct.error, OverflowError):
        pass
    return ""


def verdict_of(root: ContainerRoot, first: FirstProcess, *, machine: str) -> LoaderVerdict:
    """Return whether programs of a container may use its card without the limiter, why, and what to do.

    Args:
        root: the container's files, with the limiter mounted over the driver's names.
        first: its first process.
        machine: the processor as `uname -m` names it.

    Raises:
        OSError: its files cannot be read.
    """
    loaders = list(_loaders(root, first, machine))
    found = [(loader, *_search(root, loader, first, machine)) for loader in loaders]
    others = [(loader, path) for loader, what, path in found if what is Found.OTHER]
    if others:
        path = shown(others[0][1])
        reason = f"its image has a driver of its own, {path}, which programs there load in the limiter's place"
        return LoaderVerdict(reason, path, all(loader.reads_list for loader, _ in others))
    if any(what is Found.LIMITER for _, what, _ in found):
        return LoaderVerdict()
    return LoaderVerdict(_nothing(loaders, first))


def listed_libraries(data: bytes) -> tuple[str, ...]:
    """Return the libraries that a list of preloaded ones names.

    (`handle_preload_list` and the comments in elf/rtld.c: white space and colons part them, `#` begins a comment.)
    """
    text = re.sub(rb"(?m)#.*$", b"", data).decode("utf-8", "surrogateescape")
    return tuple(name for name in re.split(r"[\s:]+", text) if name.isprintable() and name)


def _nothing(loaders: list[_Loader], first: FirstProcess) -> str:
    """Return why the loaders of an image find neither the limiter nor a driver."""
    remedy = f"set LD_LIBRARY_PATH={_MOUNTED} in its pod"
    if not loaders:
        return "its image has static programs alone, which load no driver: use one with glibc"
    if first.interpreter.startswith(_NIX):
        return f"the loader of its programs is {shown(first.interpreter)}, which finds no driver there: {remedy}"
    if any(loader.is_musl for loader in loaders):
        return "its image has musl, for which there is neither a limiter nor an NVIDIA driver: use one with glibc"
    return f"the loader of its image, {shown(loaders[0].path)}, finds no driver there: {remedy}"


def _loaders(root: ContainerRoot, first: FirstProcess, machine: str) -> Iterator[_Loader]:
    """Yield the loaders of an image: that of the first process, and those at the usual paths."""
    usual = [first.interpreter, GLIBC_LOADERS.get(machine, ""), f"/lib/ld-musl-{machine}.so.1"]
    for path in dict.fromkeys(path for path in usual if path.startswith("/")):
        try:
            yield _Loader(path, root.read(path, most=_LOADER_BYTES))
        except OSError:
            continue


def _search(root: ContainerRoot, loader: _Loader, first: FirstProcess, machine: str) -> tuple[Found, str]:
    """Return what a loader takes for libcuda.so.1, and its path."""
    named = [folder for folder in re.split("[:;]", first.library_path) if folder.startswith("/") and "$" not in folder]
    if loader.reads_list and _is_preloaded(root, machine):
        return Found.LIMITER, PRELOAD_LIST
    if loader.is_musl:
        paths = _in_folders([*named[:_MOST_FOLDERS], *_musl_folders(root, loader)], levels=("",))
    else:
        paths = _glibc_paths(root, loader, named[:_MOST_FOLDERS])
    for path in paths:
        found = _what(root, path, machine)
        if found is Found.LIMITER and loader.is_musl:
            return Found.NOTHING, path  # musl refuses a library with this kind of thread-local storage (1.2.3)
        if found is not Found.NOTHING:
            return found, path
    return Found.NOTHING, ""


def _is_preloaded(root: ContainerRoot, machine: str) -> bool:
    """Return whether the list of a container names the limiter before all others: what comes later may be too late."""
    try:
        names = listed_libraries(root.read(PRELOAD_LIST, most=_LIST_BYTES))
    except OSError:
        return False
    return bool(names) and _what(root, names[0], machine) is Found.LIMITER


def _glibc_paths(root: ContainerRoot, loader: _Loader, named: list[str]) -> Iterator[str]:
    """Yield the paths at which glibc's loader looks for the name, in its order."""
    yield from _in_folders(named, levels=_LEVELS)
    for _, cache in _strings(loader.content, _CACHE_NAME):
        try:
            data = root.read(cache, most=_CACHE_BYTES)
        except OSError:
            continue
        yield from _cached(data)
    yield from _in_folders(_system_folders(loader.content), levels=_LEVELS)


def _cached(data: bytes) -> list[str]:
    """Return the paths that /etc/ld.so.cache has for the name, in the order in which glibc tries them.

    (`search_cache` in elf/dl-cache.c: of equal names the first counts, before it those for newer processors.)
    """
    start = data.find(_CACHE_MAGIC)
    if start < 0:
        return []
    try:
        (count,) = struct.unpack_from("<I", data, start + len(_CACHE_MAGIC))
    except struct.error:
        return []
    first = start + _CACHE_HEAD
    count = min(count, _MOST_CACHED, (len(data) - first) // _CACHE_ENTRY.size)
    entries = data[first : first + max(0, count) * _CACHE_ENTRY.size]
    found: list[tuple[bool, str]] = []
    for _, key, value, _, hwcap in _CACHE_ENTRY.iter_unpack(entries):
        if data.startswith(_NAME_ENDED, start + key):
            path = data[start + value : start + value + _PATH_BYTES].partition(b"\0")[0]
            found.append((hwcap == 0, path.decode("utf-8", "surrogateescape")))
    return [path for _, path in sorted(found, key=lambda one: one[0])][:_MOST_FOLDERS]


def _system_folders(content: bytes) -> list[str]:
    """Return the folders that stand in glibc's loader, one after another and each with `/` at its end.

    (`system_dirs` in elf/dl-load.c.) The longest such row is taken.
    """
    best: list[str] = []
    row: list[str] = []
    end = -1
    for at, text in _strings(content, b"/"):
        row = [*row, text] if at == end else [text]
        best = max(best, row, key=len)
        end = at + len(text) + 1
    return best


def _strings(data: bytes, tail: bytes) -> Iterator[tuple[int, str]]:
    """Yield the absolute paths in a file that stand between two zeros and end so, with their places."""
    tail += b"\0"
    at = data.find(tail)
    for _ in range(_MOST_STRINGS):
        if at < 0:
            return
        start = data.rfind(b"\0", max(0, at - _PATH_BYTES), at) + 1
        text = data[start : at + len(tail) - 1]
        if start and text.startswith(b"/") and text.isascii():
            yield start, text.decode("ascii")
        at = data.find(tail, at + 1)


def _in_folders(folders: Iterable[str], *, levels: Iterable[str]) -> Iterator[str]:
    for folder in folders:
        for level in levels:
            yield f"{folder.rstrip('/')}/{level}{NAME}"


def _musl_folders(root: ContainerRoot, loader: _Loader) -> list[str]:
    """Return the folders of musl's file /etc/ld-musl-ARCH.path, which lies beside the loader's folder, or its own."""
    prefix, _, name = loader.path.rpartition("/lib/")
    try:
        text = root.read(f"{prefix}/etc/{name.removesuffix('.so.1')}.path", most=_HEAD_BYTES)
    except OSError:
        return list(_MUSL_FOLDERS)
    folders = re.split("[:\n]", text.decode("utf-8", "surrogateescape"))
    return [folder for folder in folders if folder.startswith("/")][:_MOST_FOLDERS]


def _what(root: ContainerRoot, path: str, machine: str) -> Found:
    """Return what lies at a path; what a loader passes over (another processor's, an empty file) is nothing."""
    try:
        head = root.read(path, most=_HEAD_BYTES)
        if not head.startswith(_ELF_64_LITTLE) or int.from_bytes(head[18:20], "little") != MACHINES.get(machine):
            return Found.NOTHING
        return Found.LIMITER if is_limiter(root.read(path, most=_LIBRARY_BYTES)) else Found.OTHER
    except OSError:
        return Found.NOTHING


def shown(text: str) -> str:
    """Return a text of an image for people: short, and without what steers a terminal."""
    plain = "".join(one if " " <= one <= "~" else "?" for one in text)
    return plain if len(plain) <= _SHOWN_CHARACTERS else plain[:_SHOWN_CHARACTERS] + "…"
