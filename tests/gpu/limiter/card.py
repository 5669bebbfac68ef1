"""The card as its own driver reports it: NVML, loaded by path from the driver's folder, so never the limiter's."""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
_ROOM = 512
_LISTS = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
_NO_FIGURE = (1 << 64) - 1
"""What NVML says of memory that it does not know."""
_SETTLE_S = 0.5
_NEAR_MIB = 2


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("used", ctypes.c_uint64))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_uint64),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class NvmlError(Exception):
    """NVML answered something other than success; the text says which function and what."""


class Card:
    """The first card of a driver; NVML stays open, so the driver stays loaded between programs."""

    def __init__(self, library: Path | str) -> None:
        """Load NVML from `library`: the path of the driver's own, or a SONAME."""
        self._nvml = ctypes.CDLL(str(library))
        self._call("nvmlInit_v2")
        self._handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(self._handle))
        self.uuid = self._text("nvmlDeviceGetUUID")
        self.name = self._text("nvmlDeviceGetName")

    def memory_mib(self) -> tuple[float, float]:
        """Return the card's size and what is in use."""
        found = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", self._handle, ctypes.byref(found))
        return found.total / MIB, found.used / MIB

    def used_mib(self) -> float:
        """Return what NVML counts as used on the card."""
        return self.memory_mib()[1]

    def settled_mib(self, base_mib: float) -> float:
        """Return what is used once ended programs have given back what they held.

        The driver frees a process's memory some time after the process is gone. Whoever takes the next figure before
        that would count too little for the next program. What the driver keeps for itself stays: half a second without
        a change is an end too.
        """
        used, since = self.used_mib(), time.monotonic()
        while used > base_mib + _NEAR_MIB and time.monotonic() - since < _SETTLE_S:
            time.sleep(0.02)
            now = self.used_mib()
            if now != used:
                used, since = now, time.monotonic()
        return used

    def processes(self) -> dict[int, float | None]:
        """Return the pids that have a context on the card, with their MiB where NVML knows it.

        Raises:
            NvmlError: this driver gives no list, as in some virtual machines.
        """
        room, found = ctypes.c_uint(_ROOM), (_Process * _ROOM)()
        name = next((one for one in _LISTS if hasattr(self._nvml, one)), _LISTS[0])
        self._call(name, self._handle, ctypes.byref(room), found)
        return {one.pid: None if one.used == _NO_FIGURE else one.used / MIB for one in found[: room.value]}

    def _text(self, name: str) -> str:
        text = ctypes.create_string_buffer(96)
        self._call(name, self._handle, text, len(text))
        return text.value.decode()

    def _call(self, name: str, *args: Any) -> None:  # noqa: ANN401 - ctypes takes anything
        call = getattr(self._nvml, name, None)
        if call is None:
            raise NvmlError(f"there is no {name}")
        if status := call(*args):
            raise NvmlError(f"{name} answers {status}")
