"""Print how many ns a turn of a loop takes in a guest of KVM; exit with 1 and why, where the device runs none.

A program of its own: what stands behind the device may answer late or never, and then it is killed. Its argument is the
device. Numbers and structures are of Linux's x86 interface (Documentation/virt/kvm/api.rst), which is stable.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import struct
import sys
import time

API_VERSION = 12
"""What KVM has answered since Linux 2.6.22; programs are to refuse any other."""
TURNS = 100_000
TRIES = 3

_GET_API_VERSION, _CREATE_VM, _GET_VCPU_MMAP_SIZE, _CREATE_VCPU, _RUN = 0xAE00, 0xAE01, 0xAE04, 0xAE41, 0xAE80
_SET_MEMORY, _SET_REGS, _GET_SREGS, _SET_SREGS = 0x4020AE46, 0x4090AE82, 0x8138AE83, 0x4138AE84
_SREGS_BYTES, _CR0_AT, _EXIT_REASON_AT = 0x138, 224, 8
_EXIT_HLT = 5
_CODE_AT, _MEMORY_BYTES = 0x1000, 0x2000
_SEGMENT = "<QIH10B"
_CODE_SEGMENT = struct.pack(_SEGMENT, 0, 0xFFFFFFFF, 8, 11, 1, 0, 1, 1, 0, 1, 0, 0, 0)
_DATA_SEGMENT = struct.pack(_SEGMENT, 0, 0xFFFFFFFF, 16, 3, 1, 0, 1, 1, 0, 1, 0, 0, 0)
_LOOP = b"\xb9" + struct.pack("<I", TURNS) + b"\x49\x75\xfd\xf4"
"""mov ecx, TURNS; dec ecx; jnz; hlt: 32 bits without paging, in the ring of a kernel."""


def loop_ns(device: str) -> float:
    """Return how many ns of processor time a turn takes, in the best of several runs.

    Raises:
        OSError: the device cannot be opened, or refuses a step.
        ValueError: what answers is another interface, or the guest ended otherwise.
    """
    kvm = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    version = fcntl.ioctl(kvm, _GET_API_VERSION, 0)
    if version != API_VERSION:
        raise ValueError(f"its interface is of version {version}, not {API_VERSION}")
    machine = fcntl.ioctl(kvm, _CREATE_VM, 0)
    memory = mmap.mmap(-1, _MEMORY_BYTES)
    memory[_CODE_AT : _CODE_AT + len(_LOOP)] = _LOOP
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    fcntl.ioctl(machine, _SET_MEMORY, struct.pack("<IIQQQ", 0, 0, 0, _MEMORY_BYTES, address))
    processor = fcntl.ioctl(machine, _CREATE_VCPU, 0)
    state = mmap.mmap(processor, fcntl.ioctl(kvm, _GET_VCPU_MMAP_SIZE, 0))
    sregs = bytearray(_SREGS_BYTES)
    fcntl.ioctl(processor, _GET_SREGS, sregs)
    sregs[: 6 * len(_CODE_SEGMENT)] = _CODE_SEGMENT + 5 * _DATA_SEGMENT
    sregs[_CR0_AT] |= 1
    fcntl.ioctl(processor, _SET_SREGS, bytes(sregs))
    return min(_run_ns(processor, state) for _ in range(TRIES)) / TURNS


def _run_ns(processor: int, state: mmap.mmap) -> int:
    fcntl.ioctl(processor, _SET_REGS, struct.pack("<18Q", *[0] * 16, _CODE_AT, 2))
    began = time.thread_time_ns()
    fcntl.ioctl(processor, _RUN, 0)
    took = time.thread_time_ns() - began
    (reason,) = struct.unpack_from("<I", state, _EXIT_REASON_AT)
    if reason != _EXIT_HLT:
        raise ValueError(f"a guest ended with {reason}, not with its hlt")
    return took


def main() -> int:
    """Ask the device that the arguments name."""
    device = sys.argv[1]
    if platform.machine() != "x86_64":
        sys.stdout.write(f"{device}: this processor is {platform.machine()}, the machine's is x86_64\n")
        return 1
    try:
        ns = loop_ns(device)
    except (OSError, ValueError) as error:
        sys.stdout.write(f"{device}: {error.strerror if isinstance(error, OSError) else error}\n")
        return 1
    sys.stdout.write(f"{ns:.2f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
