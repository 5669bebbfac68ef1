"""Queries of the cards and of their errors by NVML, on one thread. No other module imports pynvml."""

import ctypes
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pynvml

from edgegpu_core.inventory import Card
from edgegpu_plugin.cards.driver_root import LIBRARY_FOLDERS, mig_caps, open_to_others, resolved
from edgegpu_plugin.cards.health import CardHealth
from edgegpu_plugin.cards.verdicts import CardVerdicts
from edgegpu_plugin.cards.xids import XidRecovery
from edgegpu_plugin.errors import NvmlError, NvmlProblem

_log = logging.getLogger(__name__)

LIBRARY = "libnvidia-ml.so.1"
_REINIT_S = 30.0
"""How often NVML is started anew while a card is missing: only then it sees the card again, which costs seconds."""

_GRAPHICS_LIST = "nvmlDeviceGetGraphicsRunningProcesses"
_PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    _GRAPHICS_LIST,
    "nvmlDeviceGetMPSComputeRunningProcesses",
)

_NO_INSTANCE = 0xFFFFFFFF
_NO_SUCH = frozenset({pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND})
"""The card, or the driver, does not have the function."""

_CONSEQUENCES = {
    XidRecovery.INFORMATION: "for information, the card stays",
    XidRecovery.APPLICATION: "the application's, the card stays",
    XidRecovery.QUIET: "out of order until it has been quiet for a while",
    XidRecovery.RESET: "out of order until a reset of the card, a reload of the driver or a reboot",
}
_PERCENT = 100
_GONE = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)


@dataclass(frozen=True, slots=True)
class CardProcess:
    """A process on a card, by its pid on this machine; `memory_bytes` is None where the driver does not report it.

    `computes`: whether it has a CUDA context there; else it draws alone, by Vulkan or OpenGL.
    """

    pid: int
    memory_bytes: int | None
    computes: bool = True


@dataclass(frozen=True, slots=True)
class _Found:
    """The result of one query: the cards that answered, their handles, the GPUs that did, MIG devices' instances."""

    cards: tuple[Card, ...]
    handles: dict[str, Any]
    gpus: dict[str, Any]
    instances: dict[str, int]


_NOTHING = _Found((), {}, {}, {})


class NvmlLibrary:
    """The loaded library and its last result; one thread makes all calls, and any of them may never return."""

    def __init__(
        self,
        *,
        root: Path,
        recover_s: float,
        verdicts: CardVerdicts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root
        self._clock = clock
        self._health = CardHealth(recover_s, verdicts)
        self._open_since: float | None = None
        self._found = _NOTHING
        self._silent: frozenset[int] = frozenset()
        self._events: Any = None
        self._watched: dict[str, Any] = {}
        self._undivided: frozenset[str] = frozenset()
        """The GPUs in MIG mode that have no instances, each said once."""
        self._ever_unwatched: frozenset[str] = frozenset()
        self._unwatched: frozenset[str] = frozenset()
        """The GPUs of the last list whose errors the driver does not report."""
        self._sampled: dict[str, int] = {}
        """By card: the driver's time of the last sample of its processes."""
        self._kept: dict[str, int] = {}
        """By card: the most that the driver was seen to keep of it."""
        self._odd: set[str] = set()
        """The optional queries that failed oddly, each said once."""
        self.driver_version = ""
        self.step = ""
        """The library's function that runs now, for the errors of callers that wait."""

    @property
    def starts_next(self) -> bool:
        """Whether the next query may have to start NVML, which takes seconds for each card."""
        return self._open_since is None or self._health.missing

    def query(self) -> tuple[Card, ...]:
        """Return all cards with their health: GPUs, or the MIG devices of those in MIG mode; by index.

        Raises:
            NvmlError: no driver, not loaded, no cards, or a call failed.
        """
        try:
            return self._query()
        except pynvml.NVMLError as error:
            if error.value in _GONE:
                self._close()
            raise _nvml_error(error, self.step) from error
        except OSError as error:
            raise NvmlError(NvmlProblem.FAILED, f"cannot look at the cards ({self.step}): {error}") from error

    def release(self, gpu: str) -> None:
        """Close all that is open of the cards, and leave one GPU alone until `accept`, so that it can be reset."""
        self._health.release(gpu)
        if self._open_since is not None:
            self._close()

    def accept(self, gpu: str) -> None:
        """Take a GPU back as in order; the next query looks at it."""
        self._health.accept(gpu)

    def processes(self) -> Mapping[str, tuple[CardProcess, ...]]:
        """Return the processes on each card of the last query, by its UUID; a card that cannot tell is left out.

        Raises:
            NvmlError: the driver is not loaded any more.
        """
        found: dict[str, tuple[CardProcess, ...]] = {}
        for uuid, handle in self._found.handles.items():
            try:
                listed = self._processes_on(handle)
            except pynvml.NVMLError as error:
                if error.value in _GONE:
                    raise _nvml_error(error, self.step) from error
                _log.debug("%s does not list its processes (%s): %s", uuid, self.step, error)
            else:
                found |= {} if listed is None else {uuid: listed}
        return found

    def process_shares(self, cards: Iterable[str]) -> Mapping[str, Mapping[int, int] | None]:
        """Return the percent of some cards' time that each process had since the last call, by card and pid.

        The driver samples each sixth of a second to each second. A card without a new sample of any process is left
        out, and one that cannot tell is None: MIG devices, and drivers without the function.

        Raises:
            NvmlError: the driver is not loaded any more.
        """
        found: dict[str, Mapping[int, int] | None] = {}
        for uuid in cards:
            handle = self._found.handles.get(uuid)
            if handle is None:
                continue
            try:
                samples = self._nv("nvmlDeviceGetProcessUtilization", handle, self._sampled.get(uuid, 0))
            except pynvml.NVMLError as error:
                if error.value in _GONE:
                    raise _nvml_error(error, self.step) from error
                if error.value in _NO_SUCH:
                    found[uuid] = None
                elif error.value != pynvml.NVML_ERROR_NOT_FOUND:
                    _log.debug("%s does not tell its processes' time (%s): %s", uuid, self.step, error)
                continue
            self._sampled[uuid] = max(int(one.timeStamp) for one in samples)
            found[uuid] = {int(one.pid): min(int(one.smUtil), _PERCENT) for one in samples}
        return found

    def _processes_on(self, handle: Any) -> tuple[CardProcess, ...] | None:  # noqa: ANN401
        """Return the processes on a card; None where it has no list of those that compute."""
        lists = {name: self._listed(name, handle) for name in _PROCESS_LISTS}
        if lists[_PROCESS_LISTS[0]] is None:
            return None
        used: dict[int, int | None] = {}
        for one in (
            one for some in lists.values() for one in some or ()
        ):  # one that computes and draws is in both lists
            known = [bytes_ for bytes_ in (used.get(one.pid), one.usedGpuMemory) if bytes_ is not None]
            used[one.pid] = max(known, default=None)
        computing = {one.pid for name, some in lists.items() if name != _GRAPHICS_LIST for one in some or ()}
        return tuple(CardProcess(pid, memory_bytes, computes=pid in computing) for pid, memory_bytes in used.items())

    def _listed(self, name: str, handle: Any) -> list[Any] | None:  # noqa: ANN401
        """Return what a list has; None where the driver or the card has no such list."""
        for version in ("_v3", "_v2"):  # drivers before 510 have only the second
            try:
                return list(self._nv(f"{name}{version}", handle))
            except pynvml.NVMLError as error:
                if error.value not in _NO_SUCH:
                    raise
        return None

    def _drain_events(self) -> None:
        """Take the errors that the driver reported since the last query."""
        while self._events is not None:
            try:
                event = self._nv("nvmlEventSetWait_v2", self._events, 0)
            except pynvml.NVMLError as error:  # none is left, or a card is gone, which the query itself finds
                if error.value in _NO_SUCH:
                    self._say_unwatched(self._watched, error)
                return
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                self._take_xid(event)

    def _nv(self, name: str, *args: Any) -> Any:  # noqa: ANN401  (pynvml has no types)
        self.step = name
        return getattr(pynvml, name)(*args)

    def _query(self) -> tuple[Card, ...]:
        now = self._clock()
        self._health.drop_reloaded()
        if self._health.has_none_left:
            return self._health.with_health(now)
        if self._health.missing and self._open_since is not None and now - self._open_since >= _REINIT_S:
            self._close()
        self._open()
        self._found = self._read_cards()
        self._health.update(self._found.cards, self._found.gpus.keys())
        self._drain_events()
        if self._found.gpus.keys() != self._watched.keys():
            self._watch_events()
            self._drain_events()
        cards = tuple(
            replace(card, watched=(card.parent or card.uuid) not in self._unwatched)
            for card in self._health.with_health(self._clock())
        )
        if not cards and not self._found.gpus:
            self._close()  # a new card is seen only after a new start, which costs little without cards
            raise NvmlError(
                NvmlProblem.NO_CARDS,
                "the NVIDIA driver works but has no card: look at `lspci | grep -i nvidia` and `nvidia-smi`",
            )
        return cards

    def _open(self) -> None:
        if self._open_since is not None:
            return
        load_library(self._root)
        try:
            self._nv("nvmlInit")
        except pynvml.NVMLError_LibraryNotFound:
            raise NvmlError(
                NvmlProblem.NO_DRIVER,
                f"cannot find the NVIDIA driver's {LIBRARY} under {self._root}: install the driver, "
                "or set driver.root to where it is",
            ) from None
        self._open_since = self._clock()
        self.driver_version = str(self._nv("nvmlSystemGetDriverVersion"))

    def _close(self) -> None:
        self._open_since, self._events, self._watched = None, None, {}
        self._found = _NOTHING
        try:
            self._nv("nvmlShutdown")
        except pynvml.NVMLError as error:
            _log.debug("nvmlShutdown: %s", error)

    def _read_cards(self) -> _Found:
        found = _Found((), {}, {}, {})
        cards: list[Card] = []
        silent: set[int] = set()
        released = {card.index for card in self._health.known() if self._health.is_released(card)}
        for index in range(self._nv("nvmlDeviceGetCount")):
            if index in released:
                continue
            try:
                handle = self._nv("nvmlDeviceGetHandleByIndex", index)
                uuid = str(self._nv("nvmlDeviceGetUUID", handle))
                cards += self._read_gpu(uuid, index, handle, found)
                found.gpus[uuid] = handle
            except pynvml.NVMLError as error:
                if error.value in _GONE:
                    raise
                silent.add(index)
                if index not in self._silent:
                    _log.error("GPU %d does not answer (%s): %s", index, self.step, error)
        self._silent = frozenset(silent)
        return replace(found, cards=tuple(cards))

    def _read_gpu(self, uuid: str, index: int, handle: Any, found: _Found) -> list[Card]:  # noqa: ANN401
        card = Card(
            uuid=uuid,
            index=index,
            name=str(self._nv("nvmlDeviceGetName", handle)),
            memory_mib=self._memory_mib(handle),
            kept_mib=self._kept_mib(uuid, handle),
            pci=str(self._nv("nvmlDeviceGetPciInfo", handle).busId),
            minor=int(self._nv("nvmlDeviceGetMinorNumber", handle)),
            capability=self._optional("nvmlDeviceGetCudaComputeCapability", handle),
            exclusive=self._optional("nvmlDeviceGetComputeMode", handle) == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS,
        )
        if not self._is_split(uuid, handle):
            found.handles[uuid] = handle
            return [card]
        cards = []
        for number in range(self._nv("nvmlDeviceGetMaxMigDeviceCount", handle)):
            try:
                mig = self._nv("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
            except pynvml.NVMLError_NotFound:
                continue
            cards.append(self._read_mig(card, number, mig, found))
        if not cards and uuid not in self._undivided:
            _log.warning("GPU %d is in MIG mode and has no instances: nothing of it is offered", index)
        self._undivided = self._undivided - {uuid} if cards else self._undivided | {uuid}
        return cards

    def _read_mig(self, gpu: Card, number: int, handle: Any, found: _Found) -> Card:  # noqa: ANN401
        gi = int(self._nv("nvmlDeviceGetGpuInstanceId", handle))
        ci = int(self._nv("nvmlDeviceGetComputeInstanceId", handle))
        uuid = str(self._nv("nvmlDeviceGetUUID", handle))
        found.handles[uuid] = handle
        found.instances[uuid] = gi
        return replace(
            gpu,
            uuid=uuid,
            name=str(self._nv("nvmlDeviceGetName", handle)),
            memory_mib=self._memory_mib(handle),
            kept_mib=self._kept_mib(uuid, handle),
            mig=number,
            parent=gpu.uuid,
            caps=mig_caps(self._root, gpu.minor, gi, ci),
        )

    def _memory_mib(self, handle: Any) -> int:  # noqa: ANN401
        return int(self._nv("nvmlDeviceGetMemoryInfo", handle).total) >> 20

    def _kept_mib(self, uuid: str, handle: Any) -> int | None:  # noqa: ANN401
        """Return the MiB that the driver keeps for itself, which drivers before 510 do not say.

        The most that was seen counts: what a card offers must not go up and down.
        """
        memory = self._optional("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
        if memory is not None:
            self._kept[uuid] = max(self._kept.get(uuid, 0), -(-int(memory.reserved) >> 20))
        return self._kept.get(uuid)

    def _is_split(self, uuid: str, handle: Any) -> bool:  # noqa: ANN401
        """Return whether a GPU is in MIG mode; one that does not say stays as it was."""
        mode = self._optional("nvmlDeviceGetMigMode", handle)
        if mode is None:
            return any(card.parent == uuid for card in self._health.known())
        return bool(mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE)

    def _optional(self, name: str, handle: Any, *more: Any) -> Any:  # noqa: ANN401
        """Return a query's answer; None where the driver or the card does not have it, or it fails oddly."""
        try:
            return self._nv(name, handle, *more)
        except pynvml.NVMLError as error:
            if error.value in _GONE | {pynvml.NVML_ERROR_GPU_IS_LOST}:
                raise
            if error.value not in _NO_SUCH and name not in self._odd:
                self._odd.add(name)
                _log.warning("the driver does not answer %s, which the cards are offered without: %s", name, error)
            return None

    def _watch_events(self) -> None:
        """Register for the errors of all GPUs that answer now, with a new event set.

        Without event sets, or for a GPU that has none, the cards are offered, and their errors are not seen.
        """
        gpus = self._found.gpus
        if self._events is not None:
            self._nv("nvmlEventSetFree", self._events)
        self._events, self._watched, self._unwatched = None, gpus, frozenset()
        try:
            self._events = self._nv("nvmlEventSetCreate")
        except pynvml.NVMLError as error:
            if error.value in _GONE:
                raise
            self._say_unwatched(gpus, error)
            return
        for uuid, handle in gpus.items():
            try:
                self._nv("nvmlDeviceRegisterEvents", handle, pynvml.nvmlEventTypeXidCriticalError, self._events)
            except pynvml.NVMLError as error:
                self._say_unwatched([uuid], error)

    def _say_unwatched(self, gpus: Iterable[str], error: pynvml.NVMLError) -> None:
        """Note that the driver does not report the errors of some GPUs; each is said once."""
        for uuid in gpus:
            if uuid not in self._ever_unwatched:
                _log.warning("%s is not watched: the driver reports no errors (XID) of it: %s", uuid, error)
        self._unwatched |= frozenset(gpus)
        self._ever_unwatched |= self._unwatched

    def _take_xid(self, event: Any) -> None:  # noqa: ANN401
        gpu = next((uuid for uuid, handle in self._watched.items() if _same(handle, event.device)), "")
        code, gi = int(event.eventData), int(event.gpuInstanceId)
        instances = [
            card.uuid
            for card in self._health.known()
            if card.parent == gpu and gi == self._found.instances.get(card.uuid)
        ]
        # an instance may be made anew as another one, and the GPU's error stays
        is_whole = gi == _NO_INSTANCE or any(card.uuid == gpu for card in self._health.known())
        xid = self._health.report_xid([gpu] if is_whole else instances, code, self._clock())
        _log.warning("XID %d on %s, %s: %s", code, gpu, xid.name, _CONSEQUENCES[xid.recovery])


def load_library(root: Path) -> None:
    """Load NVML from a driver root other than `/`; pynvml's own dlopen by SONAME then finds the loaded library.

    Raises:
        NvmlError: of kind NO_DRIVER, when the root has no NVML.
    """
    if root == Path("/"):
        return
    for folder in LIBRARY_FOLDERS:
        path = root / folder / LIBRARY
        if os.path.lexists(path):
            try:
                why = open_to_others(path, below=root)
                if not why:
                    ctypes.CDLL(str(resolved(path, below=root)), mode=ctypes.RTLD_GLOBAL)
            except OSError as error:
                raise NvmlError(
                    NvmlProblem.NO_DRIVER, f"cannot load {path}: {error}; install the driver anew"
                ) from error
            if why:
                text = f"{path} is not loaded: {why}; give driver.root and all below it to root alone"
                raise NvmlError(NvmlProblem.NO_DRIVER, text)
            return
    raise NvmlError(
        NvmlProblem.NO_DRIVER,
        f"cannot find the NVIDIA driver's {LIBRARY} under {root}: install the driver there, or set driver.root",
    )


def _same(one: Any, other: Any) -> bool:  # noqa: ANN401  (pointers of ctypes compare by identity)
    return bool(ctypes.cast(one, ctypes.c_void_p).value == ctypes.cast(other, ctypes.c_void_p).value)


def _nvml_error(error: pynvml.NVMLError, step: str) -> NvmlError:
    """Return the NvmlError that stands for an error of the library."""
    if error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        text = "the NVIDIA driver was upgraded, its kernel module was not: reboot, or load it and restart the plugin"
    elif error.value in _GONE:
        text = (
            f"the NVIDIA driver is not loaded ({error}): `modprobe nvidia`; `dmesg | grep -i nvrm` says what it lacks"
        )
    else:
        return NvmlError(NvmlProblem.FAILED, f"cannot ask NVML ({step}): {error}; `nvidia-smi` may tell more")
    return NvmlError(NvmlProblem.NOT_LOADED, text)
