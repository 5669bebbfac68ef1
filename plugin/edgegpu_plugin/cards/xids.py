"""What the driver's errors (XIDs) mean for a card: NVIDIA's catalogue, by what ends them."""

from dataclasses import dataclass
from enum import StrEnum

CATALOGUE = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"
"""NVIDIA's catalogue, Table 1: the immediate action of each XID. Read in November 2026."""

PAGE_RETIREMENT = "https://docs.nvidia.com/deploy/dynamic-page-retirement/visibility.html"
DEVICE_PLUGIN = "https://github.com/NVIDIA/k8s-device-plugin/blob/main/internal/rm/health.go"
"""NVIDIA's own device plugin, which counts 13, 31, 43, 45, 68 and 109 as an application's."""


_SOURCES = {CATALOGUE: "catalogue", PAGE_RETIREMENT: "page retirement", DEVICE_PLUGIN: "device plugin"}


class XidRecovery(StrEnum):
    """What ends an error, and so what happens to the card."""

    INFORMATION = "information"
    """Nothing has to end: the card stays."""
    APPLICATION = "application"
    """The application has ended, or has to be started anew: the card stays."""
    QUIET = "quiet"
    """Nobody knows: the card is out until it has been quiet for `driver.recover_s`."""
    RESET = "reset"
    """The card is out until it was reset, the driver reloaded, or the machine restarted."""


@dataclass(frozen=True, slots=True)
class Xid:
    """One error, or a row of like ones up to `last`."""

    code: int
    name: str
    action: str
    """NVIDIA's immediate action in the catalogue."""
    recovery: XidRecovery
    last: int = 0
    source: str = CATALOGUE

    @property
    def codes(self) -> range:
        """The codes that this row is of."""
        return range(self.code, (self.last or self.code) + 1)

    @property
    def line(self) -> str:
        """The row of the table in docs/box/xid.md."""
        codes = f"{self.code} to {self.last}" if self.last else str(self.code)
        return f"| {codes} | {self.name} | `{self.action}` | {self.recovery} | [{_SOURCES[self.source]}] |"


_INFO, _APP, _QUIET, _RESET = XidRecovery.INFORMATION, XidRecovery.APPLICATION, XidRecovery.QUIET, XidRecovery.RESET
_IGNORE, _RESTART, _GPU = "IGNORE", "RESTART_APP", "RESET_GPU"

TABLE = (
    Xid(8, "a channel was idle for too long", _RESTART, _APP),
    Xid(11, "invalid or corrupted push buffer", _RESTART, _APP),
    Xid(13, "graphics engine exception", _RESTART, _APP),
    Xid(25, "illegal notification", _RESTART, _APP),
    Xid(31, "memory page fault", _RESTART, _APP),
    Xid(32, "push buffer DMA error", _RESTART, _APP),
    Xid(37, "unknown method for the front end", _IGNORE, _INFO),
    Xid(38, "watchdog of the front end", _IGNORE, _INFO),
    Xid(39, "copy engine error", _RESTART, _APP, last=41),
    Xid(43, "the GPU stopped the work of an application", _IGNORE, _APP),
    Xid(44, "fault during a context switch", _IGNORE, _APP),
    Xid(45, "a channel was removed, after another error or the end of a process", "WORKFLOW_XID_45", _APP),
    Xid(46, "the GPU timed out", _GPU, _RESET),
    Xid(48, "double-bit ECC error", "WORKFLOW_XID_48", _RESET, source=PAGE_RETIREMENT),
    Xid(60, "security processor error", _RESTART, _APP),
    Xid(62, "power management unit halted", _GPU, _RESET),
    Xid(63, "a row was remapped, or a page retired", _IGNORE, _INFO),
    Xid(64, "a row could not be remapped, or a page not retired", _GPU, _RESET),
    Xid(66, "illegal access by the front end", _IGNORE, _INFO, last=67),
    Xid(68, "video decoder exception", _RESTART, _APP),
    Xid(69, "graphics class error", _RESTART, _APP),
    Xid(70, "copy engine error", _RESTART, _APP, last=72),
    Xid(74, "NVLink error", "WORKFLOW_NVLINK_ERR", _QUIET),
    Xid(75, "copy engine error", _RESTART, _APP, last=77),
    Xid(79, "the card has fallen off the bus", "RESTART_BM", _RESET),
    Xid(80, "push buffer checksum", _RESTART, _APP),
    Xid(82, "JPEG engine error", _RESTART, _APP),
    Xid(83, "video decoder exception", _RESTART, _APP, last=84),
    Xid(85, "copy engine error", _RESTART, _APP),
    Xid(86, "optical flow engine error", _RESTART, _APP),
    Xid(88, "video decoder exception", _RESTART, _APP, last=89),
    Xid(92, "many single-bit ECC errors", _IGNORE, _INFO),
    Xid(93, "the InfoROM has been erased often", _IGNORE, _INFO),
    Xid(94, "contained memory error", _RESTART, _APP),
    Xid(95, "uncontained memory error", _GPU, _RESET),
    Xid(96, "video decoder exception", _RESTART, _APP, last=98),
    Xid(99, "JPEG engine error", _RESTART, _APP, last=105),
    Xid(106, "test message", _IGNORE, _INFO, last=107),
    Xid(108, "NVLink translation error of another GPU", _IGNORE, _INFO),
    Xid(109, "context switch timed out", _GPU, _APP, source=DEVICE_PLUGIN),
    Xid(110, "security fault", _GPU, _RESET),
    Xid(119, "the GPU's firmware (GSP) does not answer", _GPU, _RESET),
    Xid(120, "error of the GPU's firmware (GSP)", _GPU, _RESET),
    Xid(121, "C2C link error", _IGNORE, _INFO),
    Xid(126, "copy engine error", _RESTART, _APP, last=135),
    Xid(136, "NVLink training failed", _GPU, _RESET),
    Xid(137, "NVLink privilege error", _IGNORE, _INFO),
    Xid(139, "optical flow engine error", _RESTART, _APP),
    Xid(140, "unrecovered ECC error", _GPU, _RESET),
    Xid(141, "fast path error", _IGNORE, _INFO),
    Xid(143, "the GPU could not be initialised", _GPU, _RESET),
    Xid(154, "another recovery than before is wanted, which the XID beside it says", "XID_154", _INFO),
    Xid(155, "NVLink error that software defines", _GPU, _RESET),
    Xid(156, "a resource of the GPU was retired", _GPU, _RESET),
    Xid(157, "a resource of the GPU could not be retired", _IGNORE, _INFO),
    Xid(158, "fatal timeout of the GPU", _GPU, _RESET),
    Xid(160, "a channel was retired", _IGNORE, _INFO),
    Xid(161, "a channel could not be retired", _IGNORE, _INFO),
)
"""109 leaves the card, other than the catalogue says: a program of a container can bring it about again and again, and
NVIDIA's device plugin counts it as the application's. 74 is only decoded by the driver's log."""

_BY_CODE = {code: row for row in TABLE for code in row.codes}


def of_code(code: int) -> Xid:
    """Return what an XID means; one that the table lacks keeps the card out until it has been quiet."""
    return _BY_CODE.get(code) or Xid(code, "an error that edgegpu does not know", "", XidRecovery.QUIET)
