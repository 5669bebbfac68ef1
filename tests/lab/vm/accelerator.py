"""What carries out a virtual machine's instructions: the processor (KVM), or qemu, which emulates one (TCG).

That /dev/kvm is there does not say that the processor does: in a machine that is a guest itself a module may stand
behind it that emulates a guest's kernel instruction by instruction (kvm_pvm: 1.2 us for a loop's turn, seen on
30 November 2026), ten times slower than qemu. Nothing that the device answers tells them apart, so a loop is timed.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from lab.labrun import LabError

VARIABLE = "EDGEGPU_VM_ACCEL"
LOOP_MOST_NS = 50.0
"""A processor takes one or two for a turn of the probe's loop, an emulation in the kernel hundreds."""
PROBE_S = 60.0
DEVICE = Path("/dev/kvm")


@dataclass(frozen=True, slots=True)
class KvmAnswer:
    """What came of a guest on a device: the ns of a turn of its loop, or why there was none."""

    loop_ns: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """What was chosen, and why."""

    kvm: bool
    reason: str

    @property
    def name(self) -> str:
        """As qemu calls it."""
        return "kvm" if self.kvm else "tcg"

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments of qemu that say so."""
        if self.kvm:
            return ("-accel", "kvm", "-cpu", "host")
        return ("-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max")

    @property
    def times_slower(self) -> int:
        """By how much all deadlines are multiplied: an emulated processor takes ten times as long, a wait does not."""
        return 2 if self.kvm else 8


def ask_kvm(device: Path = DEVICE) -> KvmAnswer:
    """Run a guest of a few bytes on a device (under a second)."""
    probe: list[str | Path] = [sys.executable, Path(__file__).with_name("kvmprobe.py"), device]
    try:
        done = subprocess.run(probe, capture_output=True, text=True, check=False, timeout=PROBE_S)
    except subprocess.TimeoutExpired:
        return KvmAnswer(error=f"{device}: a guest of a few bytes did not end in {PROBE_S:g} s")
    if done.returncode:
        return KvmAnswer(error=done.stdout.strip() or f"{device}: {done.stderr.strip()[-500:]}")
    return KvmAnswer(loop_ns=float(done.stdout))


def choose(wanted: str, answer: KvmAnswer) -> Accelerator:
    """Return what to use: what is wanted, or KVM where the processor carries a guest out.

    Args:
        wanted: `kvm`, `tcg`, or empty: whatever is faster.
        answer: the device's; it counts for all but `tcg`.

    Raises:
        LabError: KVM is wanted where there is none, or something else is.
    """
    if wanted == "tcg":
        return Accelerator(kvm=False, reason=f"{VARIABLE}=tcg")
    if wanted not in ("", "kvm"):
        raise LabError(f"{VARIABLE}={wanted}: it is kvm or tcg, or not set")
    if answer.error:
        if wanted:
            raise LabError(f"{VARIABLE}=kvm: {answer.error}")
        return Accelerator(kvm=False, reason=answer.error)
    took = f"a turn of a loop takes a guest {answer.loop_ns:.1f} ns"
    if wanted:
        return Accelerator(kvm=True, reason=f"{VARIABLE}=kvm; {took}")
    if answer.loop_ns > LOOP_MOST_NS:
        return Accelerator(kvm=False, reason=f"behind {DEVICE} is no processor: {took}")
    return Accelerator(kvm=True, reason=took)


@functools.cache
def accelerator() -> Accelerator:
    """Return what this machine's virtual machines use; the device is asked once.

    Raises:
        LabError: as of `choose`.
    """
    wanted = os.environ.get(VARIABLE, "")
    return choose(wanted, KvmAnswer() if wanted == "tcg" else ask_kvm())
