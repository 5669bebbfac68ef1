"""Reads a box and says what is wrong with its GPU sharing, why, and which command mends it."""

from edgegpu_installer.doctor.checks import CHECKS, Check, CheckRun, examine, exit_status, worst
from edgegpu_installer.doctor.probe import (
    Api,
    BoxProbe,
    CloudProbe,
    ContainerdProbe,
    Doors,
    DoorShut,
    PluginSettings,
    Reply,
    Space,
)
from edgegpu_installer.doctor.verdict import CheckLevel, CheckProblem, CheckResult

__all__ = [
    "CHECKS",
    "Api",
    "BoxProbe",
    "Check",
    "CheckLevel",
    "CheckProblem",
    "CheckResult",
    "CheckRun",
    "CloudProbe",
    "ContainerdProbe",
    "DoorShut",
    "Doors",
    "PluginSettings",
    "Reply",
    "Space",
    "examine",
    "exit_status",
    "worst",
]
