"""What nvidia-smi -L says: the cards in it, the verdict, and a report that always fits into a result."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegpu_sync.messages.evidence import ContainerEvidence, EvidenceReport, SeenCards
from edgegpu_sync.rules.evidence import RESULT_ROOM_BYTES, cards_listed, printable, report_that_fits, verdict_on
from edgegpu_sync.rules.ops import OPS, BadArgumentsError, EvidenceArgs, read_args

if TYPE_CHECKING:
    from pydantic import JsonValue

A, B = "GPU-11111111-1111-1111-1111-111111111111", "GPU-22222222-2222-2222-2222-222222222222"
MIG = "MIG-5c0e5a9b-4ab7-5a0c-a7a1-ab8c5dbf0e1d"


def test_cards_are_read_from_the_lines_that_nvidia_smi_prints() -> None:
    text = f"GPU 0: NVIDIA Tesla P4 (UUID: {A})\nGPU 1: Tesla P4 (UUID: {B})\n"
    assert cards_listed(text) == (A, B)
    assert cards_listed("No devices found.\n") == ()
    assert cards_listed(f"echo {A}\n(UUID: {A})\nGPU x: P4 (UUID: {A})\n") == ()


def test_mig_devices_count_and_their_card_does_not() -> None:
    text = f"GPU 0: NVIDIA A100 (UUID: {A})\n  MIG 1g.5gb Device 0: (UUID: {MIG})\nGPU 1: A100 (UUID: {B})\n"
    assert cards_listed(text) == (MIG, B)


@pytest.mark.parametrize(
    ("seen", "held", "verdict"),
    [
        ((A,), (A,), SeenCards.OWN),
        ((B, A), (A, B), SeenCards.OWN),
        ((A, B), (A,), SeenCards.MORE),
        ((B,), (A,), SeenCards.OTHER),
        ((A,), (A, B), SeenCards.OTHER),
        ((), (A,), SeenCards.NONE),
    ],
)
def test_a_verdict_compares_what_is_seen_with_what_is_held(
    seen: tuple[str, ...], held: tuple[str, ...], verdict: SeenCards
) -> None:
    assert verdict_on(seen, held) is verdict


@given(st.text())
def test_nothing_of_a_containers_text_steers_a_terminal(text: str) -> None:
    assert all(line.isprintable() for line in printable(text).split("\n"))


_LINES = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=1_000)


@given(st.lists(st.tuples(_LINES, st.integers(0, 64)), max_size=40))
def test_a_report_fits_into_a_result_and_counts_what_it_leaves_out(rows: list[tuple[str, int]]) -> None:
    found = [
        ContainerEvidence(
            uid=f"uid-{number}",
            namespace="n" * 253,
            pod="p" * 253,
            container="main",
            verdict=SeenCards.OWN,
            held=(A,) * cards,
            seen=(A,) * cards,
            lines=lines,
        )
        for number, (lines, cards) in enumerate(rows)
    ]
    data = report_that_fits(found)
    assert len(json.dumps(data, ensure_ascii=False).encode()) <= RESULT_ROOM_BYTES
    report = EvidenceReport.model_validate(data, strict=False)
    assert len(report.containers) + report.left_out == len(found)
    assert [one.uid for one in report.containers] == [one.uid for one in found[: len(report.containers)]]


def test_ten_pods_with_a_card_each_fit_whole() -> None:
    line = f"GPU 0: NVIDIA GeForce RTX 4090 (UUID: {A})"
    found = [
        ContainerEvidence(
            uid=f"0e8c1f5a-8a51-4a8e-9b1e-3c1f5b2d4a{number:02}",
            namespace="baetyl-edge",
            pod=f"speech-recognition-7d9f8c6b5-x2k4{number}",
            container="main",
            verdict=SeenCards.OWN,
            held=(A,),
            seen=(A,),
            lines=line,
        )
        for number in range(10)
    ]
    report = EvidenceReport.model_validate(report_that_fits(found), strict=False)
    assert report.containers == tuple(found)


def test_the_ops_arguments_are_bounded() -> None:
    op = OPS[next(name for name in OPS if name == "evidence.check")]
    assert read_args(op, {}) == EvidenceArgs()
    assert read_args(op, {"pods": ["uid-1"]}) == EvidenceArgs(pods=("uid-1",))
    wrong: tuple[list[JsonValue], ...] = (["a b"], ["x"] * 11, ["$(reboot)"])
    for pods in wrong:
        with pytest.raises(BadArgumentsError):
            read_args(op, {"pods": pods})
