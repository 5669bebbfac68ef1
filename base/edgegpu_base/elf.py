"""Shared libraries of 64-bit little-endian ELF: what one is called, needs and exports, and one that exports less.

By the System V ABI (gABI, chapters 4 and 5) and the GNU extensions that glibc's <elf.h> names.
"""

import os
import struct
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.files import open_at_once

Read = Callable[[int, int], bytes]
"""Returns as many bytes as are there from an offset on, at most a number of them."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_DYNAMIC_ENTRY = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_WORD, _BUCKETS_HEAD = struct.Struct("<I"), struct.Struct("<IIII")
_MAGIC_64_LITTLE = b"\x7fELF\x02\x01"
_SHARED_OBJECT = 3
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _PLTRELSZ, _HASH, _STRTAB, _SYMTAB, _RELA, _RELASZ, _STRSZ, _SONAME, _JMPREL = 1, 2, 4, 5, 6, 7, 8, 10, 14, 23
_GNU_HASH, _VERSYM = 0x6FFFFEF5, 0x6FFFFFF0
_FUNCTIONS = {2, 10}
"""The types of symbols that are functions: STT_FUNC, STT_GNU_IFUNC."""
_LOCAL_BINDING = 0
_WEAK_UNTYPED = 0x20
_UNVERSIONED = 1
"""VER_NDX_GLOBAL: a linker looks for the version of an undefined symbol among those that a library needs."""
_MOST_PROGRAMS, _MOST_DYNAMIC, _MOST_SYMBOLS, _MOST_STRINGS = 256, 65536, 1 << 18, 1 << 26
_MOST_RELOCATIONS, _MOST_NAME = 1 << 22, 256


class ElfError(EdgegpuError):
    """A file that is no shared library of this kind, or not a sound one."""


@dataclass(frozen=True, slots=True)
class _Segment:
    address: int
    offset: int
    size: int


class SharedLibrary:
    """A shared library, of which only what is asked for is read."""

    def __init__(self, read: Read) -> None:
        """Read the library's heads.

        Raises:
            ElfError: it is no 64-bit little-endian shared library.
        """
        self._read = read
        header = _HEADER.unpack(self._exactly(0, _HEADER.size))
        if not header[0].startswith(_MAGIC_64_LITTLE) or header[1] != _SHARED_OBJECT:
            raise ElfError("it is no 64-bit shared library")
        offset, size, count = header[5], header[9], header[10]
        if size != _PROGRAM.size or not 0 < count <= _MOST_PROGRAMS:
            raise ElfError("its program headers make no sense")
        programs = list(_PROGRAM.iter_unpack(self._exactly(offset, size * count)))
        self._segments = [_Segment(one[3], one[2], one[5]) for one in programs if one[0] == _LOAD]
        dynamic = [one for one in programs if one[0] == _DYNAMIC]
        if len(dynamic) != 1:
            raise ElfError("it is not linked dynamically")
        data = self._exactly(dynamic[0][2], min(dynamic[0][5], _MOST_DYNAMIC) // _DYNAMIC_ENTRY.size * 16)
        self._entries: list[tuple[int, int]] = []
        for tag, value in _DYNAMIC_ENTRY.iter_unpack(data):
            if tag == 0:
                break
            self._entries.append((tag, value))
        self._tags = dict(self._entries)

    @property
    def soname(self) -> str | None:
        """The name under which programs ask the loader for it; None where it has none."""
        return None if _SONAME not in self._tags else self._string(self._tags[_SONAME])

    @property
    def needed(self) -> tuple[str, ...]:
        """The names of the libraries that it is linked to."""
        return tuple(self._string(value) for tag, value in self._entries if tag == _NEEDED)

    def exports(self) -> dict[str, bool]:
        """Return the names that the loader finds in it, with whether each is a function."""
        return {name: kind & 0xF in _FUNCTIONS for _, name, kind in self._defined()}

    def changes_without(self, names: Collection[str]) -> list[tuple[int, bytes]]:
        """Return what to write at which offsets so that the loader finds none of these names in the library.

        Each becomes a weak symbol that is not defined: the lookups of glibc and musl pass over it in both of their
        hash tables, and a linker takes it for one that the library itself asks for.

        Raises:
            ElfError: the library does not export a name, or takes its own function by it.
        """
        place = {name: number for number, name, _ in self._defined()}
        if unknown := sorted(set(names) - place.keys()):
            raise ElfError(f"it does not export {unknown[0]}")
        numbers = {place[name]: name for name in names}
        if taken := numbers.keys() & self._relocated():
            raise ElfError(f"it finds {numbers[min(taken)]} by its name itself")
        symbols, versions = self._tags[_SYMTAB], self._tags.get(_VERSYM)
        changes = []
        for number in sorted(numbers):
            address = symbols + number * _SYMBOL.size
            (name, *_), offset = _SYMBOL.unpack(self._at(address, _SYMBOL.size)), self._offset(address, _SYMBOL.size)
            changes.append((offset, _SYMBOL.pack(name, _WEAK_UNTYPED, 0, 0, 0, 0)))
            if versions is not None:
                changes.append((self._offset(versions + 2 * number, 2), _UNVERSIONED.to_bytes(2, "little")))
        return changes

    def _exactly(self, offset: int, size: int) -> bytes:
        data = self._read(offset, size)
        if len(data) != size:
            raise ElfError("it is cut off")
        return data

    def _offset(self, address: int, size: int) -> int:
        """Return where in the file what is loaded at an address lies."""
        for segment in self._segments:
            if segment.address <= address and address + size <= segment.address + segment.size:
                return segment.offset + address - segment.address
        raise ElfError(f"it has nothing at {address:#x}")

    def _at(self, address: int, size: int) -> bytes:
        return self._exactly(self._offset(address, size), size)

    def _tag(self, tag: int) -> int:
        if tag not in self._tags:
            raise ElfError(f"its dynamic section has no entry {tag:#x}")
        return self._tags[tag]

    def _strings(self) -> bytes:
        size = self._tag(_STRSZ)
        if size > _MOST_STRINGS:
            raise ElfError("its names are too long")
        return self._at(self._tag(_STRTAB), size)

    def _string(self, at: int) -> str:
        """Return one name, without reading all of them."""
        offset = self._offset(self._tag(_STRTAB) + at, 1)
        return _text(self._read(offset, _MOST_NAME), 0)

    def _defined(self) -> Iterator[tuple[int, str, int]]:
        """Yield number, name and type of each symbol that the loader finds."""
        data, strings = self._at(self._tag(_SYMTAB), self._count() * _SYMBOL.size), self._strings()
        for number, (name, info, _, section, value, _) in enumerate(_SYMBOL.iter_unpack(data)):
            if section and value and info >> 4 != _LOCAL_BINDING:
                yield number, _text(strings, name), info

    def _count(self) -> int:
        """Return how many symbols there are, which the hash tables alone say."""
        count = self._count_by_gnu_hash() if _HASH not in self._tags else self._count_by_hash()
        if count > _MOST_SYMBOLS:
            raise ElfError("it has too many names")
        return count

    def _count_by_hash(self) -> int:
        return int(_WORD.unpack(self._at(self._tags[_HASH] + 4, 4))[0])

    def _count_by_gnu_hash(self) -> int:
        table = self._tag(_GNU_HASH)
        buckets, first, bloom, _ = _BUCKETS_HEAD.unpack(self._at(table, _BUCKETS_HEAD.size))
        if max(buckets, bloom) > _MOST_SYMBOLS:
            raise ElfError("it has too many names")
        at = table + _BUCKETS_HEAD.size + 8 * bloom
        last = max((one for (one,) in _WORD.iter_unpack(self._at(at, 4 * buckets))), default=0)
        if last < first:
            return int(first)
        chain = at + 4 * buckets - 4 * first
        while last < _MOST_SYMBOLS and not _WORD.unpack(self._at(chain + 4 * last, 4))[0] & 1:
            last += 1
        return int(last) + 1

    def _relocated(self) -> set[int]:
        """Return the numbers of the symbols for which the loader looks when it loads the library."""
        found: set[int] = set()
        for table, length in ((_RELA, _RELASZ), (_JMPREL, _PLTRELSZ)):
            if table in self._tags:
                size = self._tag(length)
                if size % _RELOCATION.size or size > _MOST_RELOCATIONS:
                    raise ElfError("its relocations make no sense")
                data = self._at(self._tags[table], size)
                found |= {info >> 32 for _, info, _ in _RELOCATION.iter_unpack(data)}
        return found


def _text(strings: bytes, at: int) -> str:
    end = strings.find(b"\0", at)
    if not 0 <= at < len(strings) or end < 0:
        raise ElfError("a name of it is nowhere")
    return strings[at:end].decode("utf-8", "surrogateescape")


def library_of(content: bytes) -> SharedLibrary:
    """Return a library from its whole content.

    Raises:
        ElfError: it is no 64-bit little-endian shared library.
    """
    return SharedLibrary(lambda offset, size: content[offset : offset + size])


@contextmanager
def opened_library(path: Path) -> Iterator[SharedLibrary]:
    """Yield the library in a file, which is open meanwhile.

    Raises:
        ElfError: it is no 64-bit little-endian shared library.
        OSError: it cannot be read.
    """
    handle = open_at_once(path)

    def read(offset: int, size: int) -> bytes:
        try:
            return os.pread(handle, size, offset)
        except (OverflowError, ValueError, OSError) as error:
            raise ElfError(f"it cannot be read at {offset:#x}: {error}") from error

    try:
        yield SharedLibrary(read)
    finally:
        os.close(handle)


def without(content: bytes, names: Collection[str]) -> bytes:
    """Return a library that is the same, but that the loader does not find these names in it.

    Raises:
        ElfError: the content is no library that exports them, or it finds one of them by its name itself.
    """
    changed = bytearray(content)
    for offset, data in library_of(content).changes_without(names):
        changed[offset : offset + len(data)] = data
    return bytes(changed)
