"""Shared libraries of a few names, as files of ELF."""

import struct
from collections.abc import Sequence

HEADER, PROGRAM = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ")
SYMBOL, RELOCATION = struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
FUNCTION, DATA = 0x12, 0x11


def library(names: Sequence[str], *, own: Sequence[int] = (), shift: int = 0, info: int = FUNCTION) -> bytes:
    """Return a library that exports these names, and finds some of them by their names itself.

    Args:
        names: the names.
        own: the positions of those that it finds itself.
        shift: how far its addresses are from its offsets.
        info: kind and binding of all symbols.
    """
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in names)
    symbols, at = SYMBOL.pack(0, 0, 0, 0, 0, 0), 1
    for name in names:
        symbols += SYMBOL.pack(at, info, 0, 7, 0x1000, 8)
        at += len(name) + 1
    hashes = struct.pack("<II", 1, len(names) + 1)
    relocations = b"".join(RELOCATION.pack(0, (number + 1) << 32 | 1, 0) for number in own)
    versions = struct.pack(f"<{len(names) + 1}H", 0, *([2] * len(names)))
    parts = {6: symbols, 5: strings, 4: hashes, 7: relocations, 0x6FFFFFF0: versions}
    start, body, entries = HEADER.size + 2 * PROGRAM.size, b"", []
    for tag, data in parts.items():
        entries.append((tag, start + len(body) + shift))
        body += data + bytes(-len(data) % 8)
    entries += [(10, len(strings)), (8, len(relocations)), (14, 1), (1, 1), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in entries)
    at, size = start + len(body), start + len(body) + len(dynamic)
    head = HEADER.pack(b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, HEADER.size, 0, 0, 64, PROGRAM.size, 2, 0, 0, 0)
    programs = PROGRAM.pack(1, 5, 0, shift, 0, size, size, 4096) + PROGRAM.pack(2, 6, at, at, 0, *[len(dynamic)] * 2, 8)
    return head + programs + body + dynamic
