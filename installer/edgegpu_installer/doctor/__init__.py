"""Reads a box and says what is wrong with its GPU sharing, why, and which command mends it."""

from edgegpu_installer.doctor.checks import CHECKS, Check
from edgegpu_installer.doctor.examine import Result, examine, exit_status, worst
from edgegpu_installer.doctor.sight import (
    Api,
    CloudSide,
    Containerd,
    Doors,
    DoorShut,
    Reply,
    Settings,
    Sight,
    Space,
)
from edgegpu_installer.doctor.verdict import Level, Trouble, Verdict

__all__ = [
    "CHECKS",
    "Api",
    "Check",
    "CloudSide",
    "Containerd",
    "DoorShut",
    "Doors",
    "Level",
    "Reply",
    "Result",
    "Settings",
    "Sight",
    "Space",
    "Trouble",
    "Verdict",
    "examine",
    "exit_status",
    "worst",
]
