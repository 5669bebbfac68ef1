"""A shared library with names taken out, and what comes of files that are damaged anywhere."""

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegpu_base.elf import ElfError, library_of, without

HEADER, PROGRAM = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ")
SYMBOL, RELOCATION = struct.Struct("<IBBHQQ"), struct.Struct("<QQq")
FUNCTION, DATA = 0x12, 0x11
NAMES = st.lists(st.text("abcXYZ_012", min_size=1, max_size=12), min_size=1, max_size=20, unique=True)


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


@given(NAMES, st.data(), st.sampled_from([0, 0x1000, 0x7000000000]))
def test_what_is_taken_out_is_gone_and_nothing_else_changes(names: list[str], data: st.DataObject, shift: int) -> None:
    whole = library(names, shift=shift)
    assert library_of(whole).exports() == dict.fromkeys(names, True)
    assert (library_of(whole).soname, library_of(whole).needed) == (names[0], (names[0],))
    gone = data.draw(st.lists(st.sampled_from(names), unique=True))
    less = without(whole, gone)
    assert list(library_of(less).exports()) == [name for name in names if name not in gone]
    assert len(less) == len(whole)
    assert without(whole, []) == whole
    assert sum(a != b for a, b in zip(whole, less, strict=True)) <= len(gone) * (SYMBOL.size + 2)


@given(NAMES, st.data())
def test_a_name_that_the_library_asks_for_itself_is_refused(names: list[str], data: st.DataObject) -> None:
    own = data.draw(st.lists(st.sampled_from(range(len(names))), min_size=1, unique=True))
    with pytest.raises(ElfError, match="by its name itself"):
        without(library(names, own=own), names)
    others = [name for number, name in enumerate(names) if number not in own]
    assert library_of(without(library(names, own=own), others)).exports().keys() == {names[number] for number in own}


@pytest.mark.parametrize(("info", "seen"), [(DATA, {"a": False}), (0x02, {}), (0x22, {"a": True}), (0xA2, {"a": True})])
def test_what_the_loader_passes_over_is_no_export(info: int, seen: dict[str, bool]) -> None:
    assert library_of(library(["a"], info=info)).exports() == seen


@given(NAMES, st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 255)), max_size=8), st.integers(0, 10**4))
def test_a_damaged_library_is_an_error_or_another_library(
    names: list[str], damage: list[tuple[int, int]], length: int
) -> None:
    content = bytearray(library(names))
    for at, value in damage:
        content[at % len(content)] = value
    del content[max(length, 1) :]
    try:
        found = library_of(bytes(content))
        assert isinstance(found.soname, str | None)
        assert all(isinstance(name, str) for name in found.needed)
        exports = found.exports()
        less = without(bytes(content), exports)
    except ElfError:
        return
    assert len(less) == len(content)


@given(st.binary(max_size=512))
def test_what_is_no_library_is_an_error(content: bytes) -> None:
    with pytest.raises(ElfError):
        library_of(content)
