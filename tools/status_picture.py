"""The writer of the picture in the two READMEs, a screen of `edgegpu status`; --check tests that it is current.

The real placement places three pods on two cards and refuses a fourth; the command's own view draws the cards.
"""

from __future__ import annotations

import io
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from rich.console import Console

from edgegpu_agent.cli.clients.document import read_document
from edgegpu_agent.cli.views.bars import LETTERS, holding
from edgegpu_agent.cli.views.status import show
from edgegpu_core.inventory import CardCapacity, FreeAmounts
from edgegpu_core.model import ResourceModel
from edgegpu_core.placement import Placement, PlacementRefusal, PodPlan, Policy, place, plan_pod
from edgegpu_core.request import ContainerRequest, ContainerRole, RequestedAmounts

ROOT = Path(__file__).resolve().parent.parent
READMES = ("README.md", "README.zh-CN.md")
BLOCK = re.compile(r"(<!-- tools/status_picture\.py -->\n```text\n).*?(```\n)", re.DOTALL)
MODEL = ResourceModel()
CARDS = tuple(
    CardCapacity(f"GPU-{start}", str(number), 29)
    for number, start in enumerate(("84795c0a-0385-5501-ace6-71a18e003202", "46791bf5-ed83-535d-be1e-ac68a454543c"))
)
PODS = (("counter", 4, 1), ("detector", 20, 30), ("tracker", 20, 30))
LAST = ("planner", 12, 10)
"""The pod that requests more than either card has free, although the node's sum would be enough."""


def plan(name: str, units: int, core: int) -> PodPlan:
    """Return the plan of a pod with one container, as placement takes it."""
    made = plan_pod(
        (ContainerRequest(name=name, role=ContainerRole.APP, request=RequestedAmounts(units, core)),), MODEL
    )
    if not isinstance(made, PodPlan):
        raise TypeError(f"{name} cannot be placed: {made.reason}")
    return made


def row(name: str, units: int, core: int, *, card: CardCapacity | None, reason: str = "") -> dict[str, Any]:
    """Return a pod's row in the plugin's status document."""
    return {
        "namespace": "default",
        "pod": name,
        "uid": name,
        "container": "main",
        "memory_units": units,
        "core": core,
        "cards": [] if card is None else [{"index": card.label, "uuid": card.uuid, "units": units}],
        "phase": "Running" if card else "Pending",
        "state": "allocated" if card else "pending",
        "reason": reason,
    }


def document() -> dict[str, Any]:
    """Place the pods, and return the status document of their node."""
    free, rows = FreeAmounts(CARDS), []
    for name, units, core in PODS:
        placed = place(plan(name, units, core), free, Policy.FIRST_FIT)
        if not isinstance(placed, Placement):
            raise TypeError(f"{name} has no room: {placed.reason}")
        (share,) = placed.held
        position = next(i for i, card in enumerate(CARDS) if card.uuid == share.card)
        free.memory[position] -= share.memory_units
        free.core[position] -= share.core
        rows.append(row(name, units, core, card=CARDS[position]))
    refused = place(plan(*LAST), free, Policy.FIRST_FIT)
    if not isinstance(refused, PlacementRefusal):
        raise TypeError("the last pod is to stay Pending")
    return {
        "v": 1,
        "version": tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"],
        "node": "box-1",
        "role": "server",
        "policy": Policy.FIRST_FIT.value,
        "unit_mib": MODEL.unit_mib,
        "resources": {"memory": MODEL.memory_resource, "core": MODEL.core_resource},
        "injection": {"mode": "cdi", "why": "containerd reads /var/run/cdi"},
        "isolation": "limiter",
        "selftest": {"cards": [{"index": card.label, "card": card.uuid, "verdict": "passed"} for card in CARDS]},
        "driver": {"version": "560.35.03"},
        "kubelet": {"registered": True, "registered_ms": 12},
        "api": {"synced": True},
        "extender": {"listen": "127.0.0.1:8787", "healthy": True, "insecure": False},
        "cards": [
            {
                "index": card.label,
                "uuid": card.uuid,
                "name": "NVIDIA Tesla P4",
                "units": card.units,
                "units_free": free.memory[position],
                "core_free": free.core[position],
                "healthy": True,
            }
            for position, card in enumerate(CARDS)
        ],
        "pods": rows,
        "pending": [row(*LAST, card=None, reason=refused.reason)],
    }


def picture() -> str:
    """Return the screen that `edgegpu status` prints to a pipe."""
    screen = io.StringIO()
    console = Console(file=screen, width=100, markup=False, highlight=False, emoji=False)
    read = read_document(document())
    show(read, [], console, dict(zip(holding(read.pods), LETTERS, strict=False)))
    return "".join(f"{line.rstrip()}\n" for line in screen.getvalue().splitlines())


def main(arguments: list[str]) -> int:
    """Write the screen into the READMEs; with --check return 1 when one has another screen."""
    stale = []
    for name in READMES:
        text = (ROOT / name).read_text(encoding="utf-8")
        made, count = BLOCK.subn(lambda found: f"{found[1]}{picture()}{found[2]}", text)
        if count != 1:
            sys.stderr.write(f"{name} has {count} places for the picture, one is to be there\n")
            return 1
        if made != text:
            stale.append(name)
            if "--check" not in arguments:
                (ROOT / name).write_text(made, encoding="utf-8")
    if "--check" in arguments and stale:
        sys.stderr.write(f"{', '.join(stale)}: another picture; run .venv/bin/python tools/status_picture.py\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
