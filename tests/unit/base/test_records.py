"""Copies of records: as `dataclasses.replace` makes them, whatever the class."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import pytest

from edgegpu_base.records import replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Copied slot by slot."""

    one: int
    two: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class More(Slots):
    """With the slots of its base."""

    three: str = ""


@dataclass(frozen=True, slots=True)
class Alone:
    """With one slot."""

    one: int = 1


@dataclass(frozen=True)
class Dict:
    """Without slots."""

    one: int = 1


@dataclass(frozen=True, slots=True)
class Checked:
    """Looks at its fields."""

    one: int = 1

    def __post_init__(self) -> None:
        if self.one < 0:
            raise ValueError("below 0")


@dataclass(slots=True)
class Counted:
    """Has a field that its `__init__` does not take."""

    one: int = 1
    count: int = field(default=0, init=False)


@pytest.mark.parametrize(
    "record", [Slots(one=1, two=[2]), More(one=1, three="3"), Alone(), Dict(), Checked(), Counted()]
)
def test_is_what_the_standard_library_makes(record: Slots | More | Alone | Dict | Checked | Counted) -> None:
    assert replace(record) == dataclasses.replace(record) == record
    after = replace(record, one=7)
    assert after == dataclasses.replace(record, one=7) != record
    assert type(after) is type(record)
    assert record.one == 1


def test_checks_what_the_class_checks() -> None:
    with pytest.raises(ValueError, match="below 0"):
        replace(Checked(), one=-1)


def test_a_field_that_init_does_not_take_begins_anew() -> None:
    record = Counted()
    record.count = 9
    assert replace(record, one=2).count == 0


@pytest.mark.parametrize("record", [Slots(one=1), Dict()])
def test_refuses_what_is_no_field(record: Slots | Dict) -> None:
    with pytest.raises(TypeError, match="four"):
        replace(record, four=4)  # type: ignore[call-arg]
