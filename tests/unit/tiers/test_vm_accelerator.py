"""What the lab's virtual machines run on: the processor where it carries a guest out, else qemu's emulation."""

from pathlib import Path

import pytest
from lab.labrun import LabError
from lab.vm.accelerator import LOOP_MOST_NS, Accelerator, KvmAnswer, ask_kvm, choose
from lab.vm.machine import qemu

A_PROCESSOR, AN_EMULATION = KvmAnswer(loop_ns=0.8), KvmAnswer(loop_ns=1206.0)
NONE = KvmAnswer(error="/dev/kvm: No such file or directory")


@pytest.mark.parametrize(
    ("wanted", "answer", "name", "why"),
    [
        ("", A_PROCESSOR, "kvm", "0.8 ns"),
        ("", KvmAnswer(loop_ns=LOOP_MOST_NS), "kvm", "ns"),
        ("", AN_EMULATION, "tcg", "1206.0 ns"),
        ("", NONE, "tcg", NONE.error),
        ("tcg", A_PROCESSOR, "tcg", "EDGEGPU_VM_ACCEL=tcg"),
        ("kvm", AN_EMULATION, "kvm", "EDGEGPU_VM_ACCEL=kvm"),
    ],
)
def test_kvm_is_used_where_a_processor_is_behind_it(wanted: str, answer: KvmAnswer, name: str, why: str) -> None:
    chosen = choose(wanted, answer)
    assert chosen.name == name
    assert why in chosen.reason


@pytest.mark.parametrize(("wanted", "answer", "why"), [("kvm", NONE, NONE.error), ("xen", A_PROCESSOR, "kvm or tcg")])
def test_what_cannot_be_had_is_said(wanted: str, answer: KvmAnswer, why: str) -> None:
    with pytest.raises(LabError, match=why):
        choose(wanted, answer)


@pytest.mark.parametrize(
    ("kvm", "accelerator", "processor"), [(True, "kvm", "host"), (False, "tcg,thread=multi,tb-size=512", "max")]
)
def test_qemu_is_told_so(kvm: bool, accelerator: str, processor: str) -> None:  # noqa: FBT001  (a parameter of the test)
    words = qemu(Accelerator(kvm=kvm, reason=""))
    assert words[words.index("-accel") + 1] == accelerator
    assert words[words.index("-cpu") + 1] == processor
    assert words.count("-accel") == words.count("-cpu") == 1


@pytest.mark.parametrize(("made", "why"), [(True, "Inappropriate ioctl"), (False, "No such file")])
def test_a_device_that_is_none_is_named_with_its_error(tmp_path: Path, made: bool, why: str) -> None:  # noqa: FBT001
    device = tmp_path / "kvm"
    if made:
        device.touch()
    answer = ask_kvm(device)
    assert answer.error.startswith(f"{device}: {why}")
