"""The real nvidia-smi over the real NVML: without a card it says the same with the limiter and without it."""

from pathlib import Path

import pytest
from driver.cache import Unpacked
from driver.limited import make_sides
from driver.report import Figures

pytestmark = pytest.mark.driver

CALLS = (
    (),
    ("-L",),
    ("-q",),
    ("-q", "-d", "MEMORY"),
    ("-h",),
    ("--help-query-gpu",),
    ("--query-gpu=index,uuid,name,memory.total,memory.used", "--format=csv"),
    ("--query-compute-apps=pid,used_memory", "--format=csv,noheader"),
    ("-q", "-x"),
    ("topo", "-m"),
    ("pmon", "-c", "1"),
    ("dmon", "-c", "1"),
    ("--no-such-option",),
)
NOT_LOADED = 9


def test_it_says_the_same_without_a_card(
    driver: Unpacked, limiter_build: Path, tmp_path: Path, figures: Figures
) -> None:
    program, sides = driver.program("nvidia-smi"), make_sides(driver, limiter_build, tmp_path)
    assert program is not None
    answers = {call: sides.both([program, *call]) for call in CALLS}
    alike = sum(bare == limited for bare, limited in answers.values())
    figures.note("nvidia-smi", alike=f"{alike} of {len(CALLS)}")
    assert answers[()][0].status == NOT_LOADED
    assert "couldn't communicate with the NVIDIA driver" in answers[()][0].out
    assert "NVIDIA System Management Interface" in answers["-h",][0].out
    assert [call for call, (bare, limited) in answers.items() if bare != limited] == []
