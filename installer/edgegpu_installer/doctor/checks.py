"""The list of checks: their names, groups, and what each looks at."""

from collections.abc import Callable
from dataclasses import dataclass

from edgegpu_installer.doctor import box, driver
from edgegpu_installer.doctor.sight import Sight
from edgegpu_installer.doctor.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Check:
    """One question to the box."""

    name: str
    group: str
    about: str
    look: Callable[[Sight], Verdict]


GROUPS = ("driver", "k3s", "edgegpu", "containers", "box")
"""In the order in which causes come before their consequences."""

CHECKS = (
    Check("driver", "driver", "driver and library are of one version", driver.look_versions),
    Check("cards", "driver", "cards that are seen, excluded, offered", driver.look_cards),
    Check("clock", "box", "the clock is right", box.look_clock),
    Check("disk", "box", "there is room, and /etc can be written", box.look_disk),
)
