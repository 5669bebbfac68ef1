"""The limiter's usage file: its size, what it counts, and whether processes of a container still use it.

The form is `struct usage` of `plugin/limiter/common/usage.h`; a test compares both. The container's processes write
the file, so nothing in it is trusted.
"""

import os
import re
import struct
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from edgegpu_base.files import open_at_once, read_at_once

_CARDS, _SLOTS = 16, 512
_MAGIC, _VERSION = 0x45474C4D, 5
_BUILD_BYTES = 16
_SHARED_BYTES = 64
"""What is known of each card: the level of its bucket of GPU time first, the most bytes that were counted last."""
_HEAD = struct.Struct(f"=4I2Q2I{16 * _CARDS}s{8 * _CARDS}s{_BUILD_BYTES}s{_SHARED_BYTES * _CARDS}s")
_SLOT = struct.Struct(f"=4Qq2Q{2 * _CARDS}Q")
_WORD = (1 << 64) - 1
_TABLE_BYTES, _TABLES = 16, 32
"""The ids of private tables, which stand behind the slots."""
_MOST_BYTES = 1 << 56
"""More than any card has: the limiter counts no more for one process."""
_MOST_REFUSALS = 10**9

_MOST_MAPS = 16 << 20
"""Bytes of a process's list of mappings: 65 530 lines, as many as the kernel allows, of more than 250 bytes each.

With paths of 4 KiB its author could make it 250 MB, which take seconds to read.
"""

_VERSION_TEXT = re.compile(r"[0-9A-Za-z.+-]{1,15}")

USAGE_BYTES = _HEAD.size + _SLOTS * _SLOT.size + _TABLES * _TABLE_BYTES
"""The size of the file; the limiter gives no memory with a file of another size."""


_FORM_TEXT = re.compile(r"([0-9]{1,6}) ([0-9]{1,7})\n")


class UsageForm(NamedTuple):
    """The form of a usage file: its version and its size."""

    version: int
    bytes: int


OWN_FORM = UsageForm(_VERSION, USAGE_BYTES)
_FIRST_FORM = UsageForm(3, 153_016)
"""The form where none is said: versions of edgegpu that had it alone made no file for it."""


class _Head(NamedTuple):
    magic: int
    version: int
    size: int
    slots: int
    lock: int
    tags: int
    high: int
    cards: int
    uuids: bytes
    refusals: bytes
    build: bytes
    shared: bytes

    def names(self) -> list[str]:
        """Return the cards in the file's order, each by the hexadecimal digits of its UUID."""
        return [self.uuids[16 * number : 16 * number + 16].hex() for number in range(min(self.cards, _CARDS))]


class UsageSlot(NamedTuple):
    """A taken slot: its place, whose it is (`pid` is the process's number in its namespace), its bytes by card.

    Of a process that is checkpointed these are 0.
    """

    number: int
    namespace: int
    pid: int
    bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UsageCounts:
    """What the processes of a container have counted, by the 32 hexadecimal digits of a card's UUID."""

    bytes: dict[str, int]
    namespaces: frozenset[int]
    """The PID namespaces, by inode, of the processes that took a slot."""
    refusals: dict[str, int] = field(default_factory=dict)
    """The requests for memory beyond the limit since the container's start, by card as `bytes`."""
    limiter: str = ""
    """The version of the limiter with which the container's first program started; empty before."""
    most: dict[str, int] = field(default_factory=dict)
    """The most bytes that were counted at once since `forget_most`, by card as `bytes`."""
    tables: tuple[str, ...] = ()
    """The driver's private tables that programs have asked for (`cuGetExportTable`), by their UUIDs, sorted."""


def uuid_digits(card: str) -> str:
    """Return the hexadecimal digits of a card's UUID; empty when the limiter cannot read it.

    Drivers before 470 named MIG devices `MIG-GPU-…/7/0`, which are no UUIDs.
    """
    kind, _, rest = card.partition("-")
    digits = rest.replace("-", "").lower()
    is_uuid = kind in {"GPU", "MIG"} and len(digits) == 32 and set(digits) <= set("0123456789abcdef")  # noqa: PLR2004
    return digits if is_uuid else ""


def form_of(path: Path) -> UsageForm:
    """Return the form of a usage file by what the plugin has written beside it as it made the file.

    What the file says of itself is its container's, which could hide behind it what it holds.
    """
    try:
        said = _FORM_TEXT.fullmatch(read_at_once(path.with_name("form"), most=32).decode("ascii", "replace"))
    except OSError:
        said = None
    return _FIRST_FORM if said is None else UsageForm(int(said[1]), int(said[2]))


def form_text() -> str:
    """Return the text of the file `form` beside a new usage file."""
    return f"{OWN_FORM.version} {OWN_FORM.bytes}\n"


def load_usage(path: Path) -> UsageCounts | None:
    """Return what a usage file counts, as `read_usage` does; None also where there is no file.

    The container can make the file as large as it likes: no more is read than a whole one has, and what is behind that
    hides nothing (`held/usage_sizes.py` cuts it off).

    Raises:
        OSError: it cannot be read.
    """
    try:
        return read_usage(read_at_once(path, most=USAGE_BYTES))
    except FileNotFoundError:
        return None


def is_unused(path: Path) -> bool:
    """Return whether no program has written a usage file; True as well where there is none, or it cannot be read."""
    try:
        return not any(read_at_once(path, most=4))
    except OSError:
        return True


def read_usage(data: bytes) -> UsageCounts | None:
    """Return what a usage file counts; None when it is none, so that the limiter would give no memory."""
    if len(data) != USAGE_BYTES:
        return None
    head = _Head(*_HEAD.unpack_from(data))
    if head.magic == 0:  # nobody has used it yet
        return UsageCounts({}, frozenset())
    if head[:4] != (_MAGIC, _VERSION, USAGE_BYTES, _SLOTS):
        return None
    taken = taken_slots(data)
    names = head.names()
    counts = [sum(min(slot.bytes[number], _MOST_BYTES) for slot in taken) for number in range(len(names))]
    refused = [min(one, _MOST_REFUSALS) for one in struct.unpack(f"={_CARDS}Q", head.refusals)]
    namespaces = frozenset(slot.namespace for slot in taken)
    most = [min(one, _MOST_BYTES) for one in _words(head.shared, at=_SHARED_BYTES - 8)]
    return UsageCounts(
        _by_card(names, counts),
        namespaces,
        _by_card(names, refused),
        _version(head.build),
        _by_card(names, most),
        _tables(data),
    )


def _tables(data: bytes) -> tuple[str, ...]:
    first = USAGE_BYTES - _TABLES * _TABLE_BYTES
    ids = {data[at : at + _TABLE_BYTES] for at in range(first, USAGE_BYTES, _TABLE_BYTES)}
    return tuple(sorted(str(uuid.UUID(bytes=one)) for one in ids if any(one)))


def _by_card(names: Sequence[str], values: Sequence[int]) -> dict[str, int]:
    """Return a number of each card; where a card stands twice its first place counts, as for the limiter."""
    return {name: values[names.index(name)] for name in names}


def _words(shared: bytes, *, at: int) -> tuple[int, ...]:
    """Return one number of 64 bits of each card."""
    return struct.unpack("=" + f"{at}xQ{_SHARED_BYTES - 8 - at}x" * _CARDS, shared)


def forget_most(path: Path) -> None:
    """Have the most bytes that were counted at once be of the time from now on.

    Raises:
        OSError: the file cannot be written.
    """
    with os.fdopen(open_at_once(path, os.O_RDWR), "r+b", 0) as file:
        for card in range(_CARDS):
            os.pwrite(file.fileno(), bytes(8), _HEAD.size - (_CARDS - card) * _SHARED_BYTES + _SHARED_BYTES - 8)


def _version(build: bytes) -> str:
    text = build.partition(b"\0")[0].decode("ascii", "replace")
    return text if _VERSION_TEXT.fullmatch(text) else ""


def bucket_levels(path: Path) -> dict[str, int]:
    """Return the level of each card's bucket, by the 32 hexadecimal digits of the card's UUID.

    A file that is none, or cannot be read, has no bucket.
    """
    try:
        data = read_at_once(path, most=_HEAD.size)
    except OSError:
        return {}
    if len(data) != _HEAD.size:
        return {}
    head = _Head(*_HEAD.unpack_from(data))
    if head[:2] != (_MAGIC, _VERSION):
        return {}
    return _by_card(head.names(), _words(head.shared, at=0))


def taken_slots(data: bytes) -> list[UsageSlot]:
    """Return the slots of a usage file that processes have taken; none of a file that is none, or not used yet."""
    if len(data) != USAGE_BYTES:
        return []
    head = _Head(*_HEAD.unpack_from(data))
    return list(_taken(data, min(head.high, _SLOTS))) if head[:2] == (_MAGIC, _VERSION) else []


def _taken(data: bytes, high: int) -> Iterator[UsageSlot]:
    for number in range(high):
        tag, _, namespace, _, pid, _, aside, *numbers = _SLOT.unpack_from(data, _HEAD.size + number * _SLOT.size)
        is_aside = aside == (tag << 16 | 1) & _WORD
        if tag != 0:
            yield UsageSlot(number, namespace, pid, (0,) * _CARDS if is_aside else tuple(numbers[::2]))


def forget_slot(file: int, slot: UsageSlot) -> None:
    """Free a slot of an open usage file, as the limiter does: its tag is 0 then.

    Raises:
        OSError: the file cannot be written.
    """
    os.pwrite(file, bytes(8), _HEAD.size + slot.number * _SLOT.size)


def users_of(path: Path, namespaces: frozenset[int] | None, proc: Path) -> list[int]:
    """Return the processes of some PID namespaces, None for any, that have a usage file mapped.

    Among all processes of the machine one may map a file of another file system that has the same inode: there the
    device is compared too.

    A process that has ended by all but name (a zombie) maps nothing. Nor does one that is about to end.
    """
    folders = proc.iterdir() if namespaces is None or namespaces else iter(())
    return [int(one.name) for one in folders if one.name.isdigit() and _uses(one, namespaces, path)]


def _uses(process: Path, namespaces: frozenset[int] | None, path: Path) -> bool:
    try:
        is_theirs = namespaces is None or pid_namespace(process) in namespaces
    except OSError:  # it has just ended
        return False
    return is_theirs and is_mapped(path, process_maps(process), any_device=namespaces is not None)


def pid_namespace(process: Path) -> int:
    """Return the number of a process's PID namespace; `process` is its folder, /proc/PID.

    Raises:
        OSError: it has ended, or may not be asked.
    """
    return os.stat(process / "ns/pid").st_ino  # noqa: PTH116  (the link's target is no path)


def process_maps(process: Path) -> bytes:
    """Return what a process has mapped, as the kernel lists it; empty when it has ended, or may not be asked.

    A process whose first thread has ended goes on in the others: then the list of one of those has it all. Of a list
    that its author has made longer than that of any program the beginning is all that counts.

    Args:
        process: its folder, /proc/PID.
    """
    maps = _read(process / "maps")
    if maps:
        return maps
    try:
        threads = list((process / "task").iterdir())
    except OSError:
        return b""
    return next(filter(None, (_read(thread / "maps") for thread in threads)), b"")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_MAPS)
    except OSError:
        return b""


def mapped_files(maps: bytes) -> list[str]:
    """Return the absolute paths of the files that a process has mapped, as its own root has them, each once."""
    paths = re.findall(rb"(?m)^\S+ \S+ \S+ \S+ [1-9]\d*\s+(/.*)$", maps)
    return [path.decode("utf-8", "surrogateescape") for path in dict.fromkeys(paths)]


def is_mapped(path: Path, maps: bytes, *, any_device: bool = True) -> bool:
    """Return whether what a process has mapped has a file among it, by its inode.

    Names of files are their author's: only a line feed ends a line there. With `any_device` the device is not compared:
    on btrfs the kernel names another one there than `stat` does.
    """
    try:
        found = path.stat()
    except OSError:
        return False
    device = r"\S+" if any_device else f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
    return re.search(rf"(?m)^\S+ \S+ \S+ {device} {found.st_ino}\s".encode(), maps) is not None
