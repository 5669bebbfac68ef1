"""What a container's image means for the limiter: each kind of image, and images that are laid out as traps."""

import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from unit.plugin.test_isolation import library

from edgegpu_plugin.containers.image.image_check import ImageCheck
from edgegpu_plugin.containers.image.loaders import FirstProcess, interpreter_of, shown, verdict_of
from edgegpu_plugin.containers.image.root_files import ContainerRoot

NAME = "libcuda.so.1"
LIMITER, OTHER, FOREIGN = library(NAME), library(NAME, folder="/elsewhere"), library(NAME, machine=183)
GLIBC, MUSL = "/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"
NIX = "/nix/store/abc-glibc-2.38/lib/ld-linux-x86-64.so.2"
OPT = "/opt/driver"
LIST = "/etc/ld.so.preload"
ID = "ab" * 32
KEY = ("u", "main")


def loader(*folders: str, cache: str = "/etc/ld.so.cache") -> bytes:
    """Return what stands in a glibc loader of its folders and its cache."""
    return (
        b"\x7fELF\0/etc/ld.so.preload\0"
        + cache.encode()
        + b"\0a text/\0\0"
        + b"".join(one.encode() + b"/\0" for one in folders)
        + b"\0"
    )


DEBIAN = loader("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib", "/usr/lib")
FEDORA = loader("/lib64", "/usr/lib64")
MOUNTS = {f"/usr/lib/x86_64-linux-gnu/{NAME}": LIMITER, f"/usr/lib64/{NAME}": LIMITER}


def cache_of(*entries: tuple[str, str, int]) -> bytes:
    """Return a file as ldconfig makes it: names with their paths, and what processor each is made for."""
    strings, records = b"", b""
    at = 48 + 24 * len(entries)
    for name, path, hwcap in entries:
        records += struct.pack("<iIIIQ", 0x303, at + len(strings), at + len(strings) + len(name) + 1, 0, hwcap)
        strings += name.encode() + b"\0" + path.encode() + b"\0"
    return b"glibc-ld.so.cache1.1" + struct.pack("<II20x", len(entries), len(strings)) + records + strings


def lay_out(root: Path, files: dict[str, bytes | str]) -> Path:
    """Write an image's files; a text is the target of a link."""
    for name, content in (MOUNTS | files).items():
        path = root / name[1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.symlink_to(content)
        else:
            path.write_bytes(content)
    return root


@contextmanager
def opened(root: Path) -> Iterator[ContainerRoot]:
    seen = ContainerRoot(root)
    try:
        yield seen
    finally:
        seen.close()


def said(root: Path, *, interpreter: str = "", library_path: str = "") -> str:
    with opened(root) as seen:
        first = FirstProcess(interpreter=interpreter, library_path=library_path)
        return verdict_of(seen, first, machine="x86_64").reason


HELD: dict[str, tuple[dict[str, bytes | str], str, str]] = {
    "Debian": ({GLIBC: DEBIAN}, GLIBC, ""),
    "Fedora": ({GLIBC: FEDORA}, GLIBC, ""),
    "distroless, whose first program is static": ({GLIBC: DEBIAN}, "", ""),
    "links on the way to the loader": (
        {
            "/lib64": "usr/own64",
            "/usr/own64/ld-linux-x86-64.so.2": "/usr/own64/ld-2.31.so",
            "/usr/own64/ld-2.31.so": FEDORA,
        },
        GLIBC,
        "",
    ),
    "Nix with the path": ({NIX: loader("/nix/store/abc-glibc-2.38/lib")}, NIX, "/usr/lib64"),
    "cuda-compat that nothing names": ({GLIBC: DEBIAN, f"{OPT}/{NAME}": OTHER}, GLIBC, "/usr/local/nvidia/lib"),
    "a driver of another processor": ({GLIBC: DEBIAN, f"{OPT}/{NAME}": FOREIGN}, GLIBC, OPT),
    "an empty file in its place": ({GLIBC: DEBIAN, f"{OPT}/{NAME}": b""}, GLIBC, OPT),
    "a cache of other names": (
        {GLIBC: DEBIAN, "/etc/ld.so.cache": cache_of(("libz.so.1", f"{OPT}/{NAME}", 0))},
        GLIBC,
        "",
    ),
    "a cache that is cut off": (
        {GLIBC: DEBIAN, "/etc/ld.so.cache": cache_of((NAME, f"{OPT}/{NAME}", 0))[:60], f"{OPT}/{NAME}": OTHER},
        GLIBC,
        "",
    ),
    "a folder elsewhere in the loader": (
        {GLIBC: b"\x7fELF\0/opt/driver/\0a text\0" + FEDORA, f"{OPT}/{NAME}": OTHER},
        GLIBC,
        "",
    ),
    "musl beside glibc": ({GLIBC: DEBIAN, MUSL: b"\x7fELF"}, MUSL, ""),
    "the limiter first in the list": (
        {GLIBC: DEBIAN, LIST: b"# ours\n/usr/lib64/libcuda.so.1:/usr/lib/libown.so", f"{OPT}/{NAME}": OTHER},
        GLIBC,
        OPT,
    ),
}
OWN_DRIVER: dict[str, tuple[dict[str, bytes | str], str, str]] = {
    "by LD_LIBRARY_PATH": ({GLIBC: DEBIAN, f"{OPT}/{NAME}": OTHER}, GLIBC, f"/none:{OPT}"),
    "by LD_LIBRARY_PATH of a static program": ({GLIBC: DEBIAN, f"{OPT}/{NAME}": OTHER}, "", OPT),
    "by the cache": (
        {GLIBC: DEBIAN, f"{OPT}/{NAME}": OTHER, "/etc/ld.so.cache": cache_of((NAME, f"{OPT}/{NAME}", 0))},
        GLIBC,
        "",
    ),
    "by the cache, for newer processors": (
        {
            GLIBC: DEBIAN,
            f"{OPT}/{NAME}": OTHER,
            "/etc/ld.so.cache": cache_of((NAME, f"/usr/lib64/{NAME}", 0), (NAME, f"{OPT}/{NAME}", 2)),
        },
        GLIBC,
        "",
    ),
    "in a folder before the mount": ({GLIBC: DEBIAN, f"/lib/x86_64-linux-gnu/{NAME}": OTHER}, GLIBC, ""),
    "for newer processors": ({GLIBC: FEDORA, f"/usr/lib64/glibc-hwcaps/x86-64-v3/{NAME}": OTHER}, GLIBC, ""),
    "in Nix": (
        {NIX: loader("/nix/store/abc-glibc-2.38/lib"), f"/nix/store/d/{NAME}": OTHER},
        NIX,
        "/nix/store/d:/usr/lib64",
    ),
    "before the limiter in the list": (
        {GLIBC: DEBIAN, LIST: f"{OPT}/{NAME}\n/usr/lib64/{NAME}".encode(), f"{OPT}/{NAME}": OTHER},
        GLIBC,
        OPT,
    ),
    "where the loader reads no list": (
        {
            GLIBC: DEBIAN.replace(b"/ld.so.preload", b"/nix.preload"),
            LIST: f"/usr/lib64/{NAME}".encode(),
            f"{OPT}/{NAME}": OTHER,
        },
        GLIBC,
        OPT,
    ),
    "an empty list": ({GLIBC: DEBIAN, LIST: b"", f"{OPT}/{NAME}": OTHER}, GLIBC, OPT),
    "a list of what is missing": ({GLIBC: DEBIAN, LIST: b"/gone.so", f"{OPT}/{NAME}": OTHER}, GLIBC, OPT),
    "for musl": ({MUSL: b"\x7fELF", f"/usr/local/lib/{NAME}": OTHER}, MUSL, ""),
}
NOTHING: dict[str, tuple[dict[str, bytes | str], str, str, str]] = {
    "musl": ({MUSL: b"\x7fELF"}, MUSL, "", "its image has musl"),
    "musl that is told where": ({MUSL: b"\x7fELF"}, MUSL, "/usr/lib64", "its image has musl"),
    "Nix": ({NIX: loader("/nix/store/abc-glibc-2.38/lib")}, NIX, "", "set LD_LIBRARY_PATH=/usr/lib64"),
    "Nix, whose cache is its own": (
        {
            NIX: loader("/nix/store/abc-glibc-2.38/lib", cache="/nix/store/abc-glibc-2.38/etc/ld.so.cache"),
            "/etc/ld.so.cache": cache_of((NAME, f"/usr/lib64/{NAME}", 0)),
        },
        NIX,
        "",
        "set LD_LIBRARY_PATH=/usr/lib64",
    ),
    "static programs alone": ({}, "", "", "static programs alone"),
    "a glibc of another place": ({GLIBC: loader("/opt/glibc/lib")}, GLIBC, "", "set LD_LIBRARY_PATH=/usr/lib64"),
}


@pytest.mark.parametrize("name", HELD)
def test_images_in_which_programs_load_the_limiter(tmp_path: Path, name: str) -> None:
    files, interpreter, library_path = HELD[name]
    assert said(lay_out(tmp_path, files), interpreter=interpreter, library_path=library_path) == ""


@pytest.mark.parametrize("name", OWN_DRIVER)
def test_images_with_a_driver_that_comes_first(tmp_path: Path, name: str) -> None:
    files, interpreter, library_path = OWN_DRIVER[name]
    reason = said(lay_out(tmp_path, files), interpreter=interpreter, library_path=library_path)
    (path,) = (path for path, content in files.items() if content == OTHER)
    assert f"a driver of its own, {path}, which" in reason


@pytest.mark.parametrize("name", NOTHING)
def test_images_in_which_programs_find_no_driver(tmp_path: Path, name: str) -> None:
    files, interpreter, library_path, words = NOTHING[name]
    assert words in said(lay_out(tmp_path, files), interpreter=interpreter, library_path=library_path)


def test_no_link_leads_out_of_the_root_and_no_trap_is_opened(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"outside")
    root = lay_out(
        tmp_path / "root",
        {
            "/up": "../../../secret",
            "/absolute": str(tmp_path / "secret"),
            "/loop": "/loop",
            "/a/long": "../a/long/" + "x/" * 2000,
            "/in": "/a/../a/./file",
            "/a/file": b"inside",
            "/zero": b"",
            "/large": b"x" * 4096,
        },
    )
    os.mkfifo(root / "fifo")
    with opened(Path("/")) as own:
        assert own.read("/proc/version", most=100) == b""  # no file of /proc is opened
    with opened(root) as seen:
        assert seen.read("/in", most=100) == b"inside"
        assert seen.read("/../../a/file/", most=100) == b"inside"
        assert seen.read("/zero", most=100) == b""
        assert seen.read("/large", most=100) == b"x" * 100
        for trap in ("/up", "/absolute", "/loop", "/a/long", "/fifo", "/a", "/none", "/a/file/more", "/"):
            with pytest.raises(OSError):  # noqa: PT011  (each has its own number)
                seen.read(trap, most=100)
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        with suppress(OSError):
            seen.read("/loop", most=1)
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_loader_full_of_slashes_is_read_in_time(tmp_path: Path) -> None:
    traps: list[bytes] = [b"/" * (2 << 20), b"/\0" * (1 << 20), (b"\0/" + b"a" * 4000 + b"/") * 500]
    traps.append(b"glibc-ld.so.cache1.1" + b"\xff" * (8 << 20))
    for trap in traps:
        root = lay_out(tmp_path / str(traps.index(trap)), {GLIBC: trap, "/etc/ld.so.cache": trap})
        assert said(root, interpreter=GLIBC)
        (root / GLIBC[1:]).write_bytes(DEBIAN)
        assert said(root, interpreter=GLIBC) == ""


def test_the_loader_that_a_program_names() -> None:
    assert interpreter_of(Path("/bin/true").read_bytes()) == GLIBC
    for head in (b"", b"#!/bin/sh", b"\x7fELF\x02\x01", library(NAME), b"\x7fELF\x02\x01" + b"\xff" * 100):
        assert interpreter_of(head) == ""


def test_what_an_image_says_steers_no_terminal() -> None:
    assert shown("/a\x1b[2J\u202e\udcff") == "/a?[2J??"
    assert len(shown("/" + "x" * 5000)) < 200


class Machine:
    """A /proc with a process of a container, whose root is an image."""

    def __init__(
        self, folder: Path, files: dict[str, bytes | str], *, library_path: str = "", limit_s: float = 30
    ) -> None:
        self.check = ImageCheck(proc=folder / "proc", machine="x86_64", limit_s=limit_s)
        self.process = folder / "proc/4711"
        self.process.mkdir(parents=True)
        (self.process / "cgroup").write_text(f"0::/kubepods/podu/{ID}\n")
        (self.process / "exe").symlink_to("/bin/true")
        (self.process / "environ").write_bytes(f"HOME=/\0LD_LIBRARY_PATH={library_path}\0".encode())
        lay_out(self.process / "root", files)

    def looks(self, id_: str = ID) -> tuple[bool, str]:
        return self.check.check({id_: KEY}), self.check.findings(KEY).reason


def test_each_start_is_looked_at_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {GLIBC: DEBIAN, f"{OPT}/{NAME}": OTHER}, library_path=OPT)
    changed, reason = machine.looks()
    assert changed
    assert "a driver of its own" in reason
    (machine.process / "root" / OPT[1:] / NAME).unlink()
    assert machine.looks() == (False, reason)  # not looked at again
    (machine.process / "cgroup").write_text(f"0::/kubepods/podu/{'cd' * 32}\n")
    assert machine.looks("cd" * 32) == (True, "")
    assert machine.check.check({}) is False


def test_what_its_own_list_of_preloaded_libraries_names_is_read_below_the_mount(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {GLIBC: DEBIAN, LIST: b""})
    for name, content in (("upper one", b""), ("lower", b"/lib/libown.so /lib/libtwo.so\n"), ("lowest", b"/old.so")):
        (tmp_path / name / "etc").mkdir(parents=True)
        if content:
            (tmp_path / name / LIST[1:]).write_bytes(content)
    (tmp_path / "trap").mkdir()
    (tmp_path / "trap/etc").symlink_to(tmp_path / "lowest/etc")  # out of its layer
    layers = ":".join(str(tmp_path / name).replace(" ", "\\040") for name in ("trap", "upper one", "lower", "lowest"))
    overlay = f"21 20 0:9 / / rw,relatime - overlay overlay rw,lowerdir={layers},upperdir=/u,workdir=/w"
    (machine.process / "mountinfo").write_text(f"22 21 0:5 / /proc rw - proc proc rw\n{overlay}\n")
    mountinfo = machine.process.parent / "self/mountinfo"
    mountinfo.parent.mkdir()
    other = overlay.replace("0:9 / /", "0:8 / /").replace("trap", "lowest")
    mountinfo.write_text(f"{other}\n{overlay.replace('/ / rw', '/ /run/containerd/rootfs rw')}\n")
    machine.looks()
    found = machine.check.findings(KEY)
    assert (found.own_list, found.is_hidden) == (("/lib/libown.so", "/lib/libtwo.so"), True)
    (machine.process / "root" / LIST[1:]).write_bytes(b"/lib/libtwo.so\n/usr/lib64/libcuda.so.1\n/lib/libown.so\n")
    machine.check.check({})
    machine.looks()
    found = machine.check.findings(KEY)
    assert (found.own_list, found.is_hidden) == (("/lib/libown.so", "/lib/libtwo.so"), False)
    many = "21 20 0:9 / / rw - overlay overlay rw,lowerdir=trap:lower:lowest,upperdir={},workdir=/w"
    mountinfo.write_text(many.format(tmp_path / "new/fs"))
    machine.check.check({})
    machine.looks()
    assert machine.check.findings(KEY).own_list == ("/lib/libown.so", "/lib/libtwo.so"), "by names in their folder"
    for other in (
        many.format("fs"),
        "21 20 8:1 / / rw - ext4 /dev/sda1 rw\n",
        overlay.replace("lowerdir", "lowerdir+"),
        "x",
        "",
    ):
        mountinfo.write_text(other)
        machine.check.check({})
        machine.looks()
        assert bool(machine.check.findings(KEY).own_list) == ("lowerdir+" in other)


def test_an_overlay_that_a_container_mounted_itself_says_nothing_of_its_image(tmp_path: Path) -> None:
    """Its process lives in it, and its layer is a folder of its choice: what is there is no list of the image's."""
    machine = Machine(tmp_path, {GLIBC: DEBIAN, LIST: b""})
    for name, content in (("image", b"/lib/libown.so"), ("chosen", b"/tmp/any.so")):
        (tmp_path / name / "etc").mkdir(parents=True)
        (tmp_path / name / LIST[1:]).write_bytes(content)
    (machine.process.parent / "self").mkdir()
    runtimes = f"21 20 0:9 / /run/rootfs rw - overlay overlay rw,lowerdir={tmp_path / 'image'},upperdir=/u,workdir=/w\n"
    (machine.process.parent / "self/mountinfo").write_text(runtimes)
    own = f"91 90 0:77 / / rw - overlay overlay rw,lowerdir={tmp_path / 'chosen'}:/x\n"
    named = f"92 91 0:77 /\r{runtimes.replace('/run/rootfs', '/').strip()} /mnt rw - overlay overlay rw\n"
    for some in (own, runtimes.replace("/run/rootfs", "/") + own, own + named):
        (machine.process / "mountinfo").write_bytes(some.encode())
        machine.check.check({})
        machine.looks()
        assert machine.check.findings(KEY).own_list == ()


def test_what_the_image_or_its_pod_asks_of_the_driver_is_read(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {GLIBC: DEBIAN})
    (machine.process / "environ").write_bytes(b"A=1\0NVIDIA_DRIVER_CAPABILITIES=compute,video\0")
    assert machine.looks() == (True, "")
    assert machine.check.findings(KEY).driver_capabilities == "compute,video"


def test_a_container_that_is_gone_has_no_reason(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {})
    assert "static programs alone" in machine.looks()[1]
    assert machine.check.check({}) is True
    assert machine.check.findings(KEY).reason == ""


def test_a_container_without_a_process_is_looked_for_a_few_times(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {MUSL: b"\x7fELF"})
    cgroup = (machine.process / "cgroup").read_text()
    (machine.process / "cgroup").write_text("0::/init.scope\n")
    for _ in range(10):
        assert machine.looks() == (False, "")
    (machine.process / "cgroup").write_text(cgroup)
    assert machine.looks() == (False, "")


def test_files_that_never_answer_keep_nobody_waiting(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {GLIBC: DEBIAN}, limit_s=0.2)
    (machine.process / "environ").unlink()
    os.mkfifo(machine.process / "environ")
    before = threading.active_count()
    for number in range(8):
        id_ = f"{number:064x}"
        (machine.process / "cgroup").write_text(f"0::/kubepods/podu/{id_}\n")
        assert "is not known" in machine.looks(id_)[1]
    assert threading.active_count() - before == 4
    with (machine.process / "environ").open("wb"):
        pass  # they read its end
    for thread in threading.enumerate():
        if thread.name == "image":
            thread.join(10)
    assert threading.active_count() == before
    (machine.process / "environ").unlink()
    (machine.process / "environ").write_bytes(b"")
    (machine.process / "cgroup").write_text(f"0::/kubepods/podu/{ID}\n")
    machine.check.limit_s = 30
    assert machine.looks()[1] == ""


def test_a_root_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {GLIBC: DEBIAN})
    (machine.process / "exe").unlink()
    assert "No such file" in machine.looks()[1]
