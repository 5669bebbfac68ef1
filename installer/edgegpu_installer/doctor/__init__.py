"""The doctor: what is wrong with GPU sharing on a box, why, and which command fixes it."""

from edgegpu_installer.doctor.checks import CHECKS, Check, CheckRun, examine, exit_status, worst
from edgegpu_installer.doctor.probe import (
    Api,
    ApiReply,
    BoxProbe,
    CloudProbe,
    ContainerdProbe,
    DoctorClients,
    FileSystemSpace,
    PluginSettings,
    ProbeError,
)
from edgegpu_installer.doctor.verdict import CheckLevel, CheckProblem, CheckResult

__all__ = [
    "CHECKS",
    "Api",
    "ApiReply",
    "BoxProbe",
    "Check",
    "CheckLevel",
    "CheckProblem",
    "CheckResult",
    "CheckRun",
    "CloudProbe",
    "ContainerdProbe",
    "DoctorClients",
    "FileSystemSpace",
    "PluginSettings",
    "ProbeError",
    "examine",
    "exit_status",
    "worst",
]
