"""Tries everything that a unit may forbid: `python3 hardeningprobe.py OUT`, in a unit's place, writes JSON.

An attempt comes to `open`, or to the name of the error by which the kernel refused it.
"""

import ctypes
import errno
import json
import mmap
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

MARKER = ".probe-marker"
"""A file that the test has laid into /tmp, /root and /home."""
CODE = "/srv/probe-code"
"""32-bit code, on a file system from which programs may be run."""

NEW_USER, SCHED_FIFO, PER_LINUX32, NO_NEW_PRIVS, AF_PACKET = 0x10000000, 1, 0x8, 39, 17
LOG_READ_ALL, MODIFY_LDT = 3, 154
ALL_BITS = 2**64 - 1
GETPID_32 = bytes.fromhex("b814000000cd80c3")
"""mov $20, %eax; int $0x80; ret."""

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]


def check(result: int) -> None:
    """Raise OSError for what a function of libc has refused."""
    if result == -1:
        raise OSError(ctypes.get_errno(), "refused")


def mapped(address: int | None) -> int:
    """Return where memory was mapped; raise OSError where it was not."""
    if address is None or address == ALL_BITS:
        raise OSError(ctypes.get_errno(), "refused")
    return address


def write(path: str) -> Callable[[], None]:
    """Return an attempt to make a file in a folder, or to open one for writing."""

    def attempt() -> None:
        target = Path(path)
        if target.is_dir():
            target = target / f"{MARKER}-{os.getpid()}"
        with target.open("ab"):
            pass
        if MARKER in target.name:
            target.unlink()

    return attempt


def make_folder() -> None:
    """Make a control group."""
    folder = Path("/sys/fs/cgroup/probe")
    folder.mkdir()
    folder.rmdir()


def see(path: str) -> Callable[[], None]:
    """Return an attempt to look at what lies outside."""
    return lambda: Path(path).stat() and None


def read_modules() -> None:
    """List the kernel's modules."""
    if not any(Path("/usr/lib/modules").iterdir()):
        raise OSError(errno.ENOENT, "empty")


def set_suid() -> None:
    """Make a file that runs as its owner."""
    path = Path("/run") / f"{MARKER}-{os.getpid()}"
    path.touch()
    try:
        path.chmod(0o4755)
    finally:
        path.unlink()


def map_writable_code() -> None:
    """Map memory that may be written and run."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    mapped(libc.mmap(None, 4096, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC, flags, -1, 0))


def call_32_bit() -> None:
    """Call the kernel as a 32-bit program does."""
    with Path(CODE).open("rb") as file:
        protection = mmap.PROT_READ | mmap.PROT_EXEC
        address = mapped(libc.mmap(None, 4096, protection, mmap.MAP_PRIVATE, file.fileno(), 0))
    result = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    if result != os.getpid():
        raise OSError(-result, "refused")


def other_interfaces() -> None:
    """Look for a network interface beside the loop."""
    if [name for _, name in socket.if_nameindex()] == ["lo"]:
        raise OSError(errno.ENODEV, "none")


ATTEMPTS: dict[str, Callable[[], object]] = {
    "write /usr": write("/usr"),
    "write /etc": write("/etc"),
    "write /usr/local": write("/usr/local"),
    "write /root": write("/root"),
    "see /root": see(f"/root/{MARKER}"),
    "see /tmp": see(f"/tmp/{MARKER}"),  # noqa: S108  (nothing is written there)
    "make cgroup": make_folder,
    "set sysctl": write("/proc/sys/vm/swappiness"),
    "read kernel log": lambda: check(libc.klogctl(LOG_READ_ALL, ctypes.create_string_buffer(64), 64)),
    "read modules": read_modules,
    "set host name": lambda: socket.sethostname(socket.gethostname()),
    "gain privileges": lambda: check(-int(libc.prctl(NO_NEW_PRIVS, 0, 0, 0, 0) == 1)),
    "make namespace": lambda: check(libc.unshare(NEW_USER)),
    "run in real time": lambda: os.sched_setscheduler(0, SCHED_FIFO, os.sched_param(1)),
    "set suid": set_suid,
    "open packet socket": lambda: socket.socket(AF_PACKET, socket.SOCK_RAW).close(),
    "open network socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close(),
    "open netlink socket": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close(),
    "change personality": lambda: check(libc.personality(PER_LINUX32)),
    "call the kernel as 32-bit": call_32_bit,
    "call outside the filter": lambda: check(libc.syscall(MODIFY_LDT, 0, ctypes.create_string_buffer(16), 16)),
    "map writable code": map_writable_code,
    "see other interfaces": other_interfaces,
}


def outcome(attempt: Callable[[], object]) -> str:
    """Return what an attempt comes to, made in a process of its own, since it may change or end it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            attempt()
            word = "open"
        except OSError as error:
            word = errno.errorcode.get(error.errno or 0, str(error))
        os.write(writer, word.encode())
        os._exit(0)
    os.close(writer)
    word = os.read(reader, 64).decode()
    _, status = os.waitpid(child, 0)
    return word or f"killed by {os.WTERMSIG(status)}"


def limits() -> dict[str, str]:
    """Return the numbers that the kernel holds this process to."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    group = Path("/sys/fs/cgroup") / Path("/proc/self/cgroup").read_text().strip().removeprefix("0::/")
    mask = os.umask(0)
    os.umask(mask)
    return {
        "capabilities": str(int(status["CapBnd"], 16)),
        "memory": (group / "memory.max").read_text().strip(),
        "tasks": (group / "pids.max").read_text().strip(),
        "oom": Path("/proc/self/oom_score_adj").read_text().strip(),
        "nice": str(os.nice(0)),
        "umask": f"{mask:04o}",
    }


def main() -> None:
    """Try all of it."""
    outcomes = {name: outcome(attempt) for name, attempt in ATTEMPTS.items()}
    Path(sys.argv[1]).write_text(json.dumps(outcomes | limits()))


if __name__ == "__main__":
    main()
