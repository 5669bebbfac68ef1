"""A shared library with names taken out, and what comes of files that are damaged anywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kits.elf import DATA, SYMBOL, library

from edgegpu_base.elf import ElfError, library_of, without

NAMES = st.lists(st.text("abcXYZ_012", min_size=1, max_size=12), min_size=1, max_size=20, unique=True)


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
