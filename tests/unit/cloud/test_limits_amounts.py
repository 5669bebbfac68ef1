"""Amounts as people type them: units, MiB, GiB, hundredths of a card; what is no amount is refused with the remedy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.limits.amounts import MemoryAmount, read_core, read_memory


@pytest.mark.parametrize(
    ("text", "measure", "units", "rounded"),
    [
        ("10", "units", 10, False),
        (" 10 ", "units", 10, False),
        ("2560", "MiB", 10, False),
        ("2561", "MiB", 11, True),
        ("2.5", "GiB", 10, False),
        ("2,5", "GiB", 10, False),
        ("2.6", "GiB", 11, True),
        ("0", "GiB", 0, False),
    ],
)
def test_an_amount_is_read_in_each_measure(text: str, measure: str, units: int, *, rounded: bool) -> None:
    assert read_memory(text, measure, 256) == MemoryAmount(units, 256, rounded)


@pytest.mark.parametrize("text", ["", "ten", "-1", "1e3", "0x10", "1.5.5", "\u0663", "9" * 10, "NaN", "1 000", "<b>"])
def test_what_is_no_number_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(CloudError, match="no number") as raised:
        read_memory(text, "GiB", 256)
    assert "2.5 GiB" in raised.value.remedy


@pytest.mark.parametrize(
    ("text", "measure", "unit_mib", "why"),
    [
        ("1.5", "units", 256, "whole units"),
        ("1000001", "units", 256, "at most 1000000"),
        ("999999999", "GiB", 1, "at most 1000000"),
        ("1", "TiB", 256, "no measure"),
        ("1", "MiB", 0, "not reported its unit"),
    ],
)
def test_what_no_request_can_have_is_refused(text: str, measure: str, unit_mib: int, why: str) -> None:
    with pytest.raises(CloudError, match=why):
        read_memory(text, measure, unit_mib)


@pytest.mark.parametrize("text", ["", "1.0", "-5", "6401", "99999", "\u0661", "one"])
def test_core_is_a_whole_number_in_range(text: str) -> None:
    assert [read_core(one) for one in ("0", " 30", "6400")] == [0, 30, 6400]
    with pytest.raises(CloudError, match="no whole number in range"):
        read_core(text)


@given(st.integers(0, 1_000_000), st.sampled_from([1, 100, 256, 1000, 1024]))
def test_what_was_told_in_mib_is_read_as_the_same_units(units: int, unit_mib: int) -> None:
    amount = MemoryAmount(units, unit_mib)
    if amount.mib < 10**9:
        assert read_memory(str(amount.mib), "MiB", unit_mib) == amount
