"""Reads the SONAME of a shared library: the name under which programs ask the loader for it."""

import struct
from pathlib import Path
from typing import BinaryIO

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_LOAD, _DYNAMIC = 1, 2
_NULL, _STRTAB, _SONAME = 0, 5, 14
_MAGIC_64_LITTLE = b"\x7fELF\x02\x01"
_MOST_NAME = 256
_MOST_DYNAMIC = 65536


def soname(path: Path) -> str | None:
    """Return a library's SONAME; None when it has none, or when the file is no 64-bit little-endian library."""
    try:
        with path.open("rb") as file:
            return _soname(file)
    except (OSError, struct.error, ValueError, OverflowError):
        return None


def _soname(file: BinaryIO) -> str | None:
    header = _HEADER.unpack(file.read(_HEADER.size))
    if not header[0].startswith(_MAGIC_64_LITTLE):
        return None
    offset, count = header[5], header[10]
    file.seek(offset)
    programs = [_PROGRAM.unpack(file.read(_PROGRAM.size)) for _ in range(count)]
    dynamic = next((one for one in programs if one[0] == _DYNAMIC), None)
    if dynamic is None:
        return None
    file.seek(dynamic[2])
    entries = dict(_until_null(file.read(min(dynamic[5], _MOST_DYNAMIC))))
    if _SONAME not in entries or _STRTAB not in entries:
        return None
    for kind, _, start, address, _, size, _, _ in programs:
        if kind == _LOAD and address <= entries[_STRTAB] < address + size:
            file.seek(start + entries[_STRTAB] - address + entries[_SONAME])
            return file.read(_MOST_NAME).partition(b"\0")[0].decode()
    return None


def _until_null(data: bytes) -> list[tuple[int, int]]:
    entries = []
    for tag, value in _ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size]):
        if tag == _NULL:
            break
        entries.append((tag, value))
    return entries
