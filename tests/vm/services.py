"""The field's services on a virtual machine: started one after the other, and the card that each one sees."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from e2e.manifests import container, deployment, pod_spec

from edgegpu_core.podview import CARDS_ANNOTATION, read_cards

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vm.vmbed import VmBed

NAMESPACE = "default"
_GPU_LINE = re.compile(r"^GPU 0: .+ \(UUID: (GPU-[0-9a-f-]{36})\)$")


def run_service(bed: VmBed, name: str, units: int, **more: object) -> str:
    """Start a service, or give it so many units, and wait until it runs; returns the UUID of its card."""
    apply_service(bed, name, units, **more)
    return card_of(bed, name)


def apply_service(bed: VmBed, name: str, units: int, **more: object) -> None:
    """Make a service as the field's consoles do, or give it so many units."""
    spec = pod_spec(container(memory=units, core=1, **more))  # type: ignore[arg-type]
    bed.cluster.apply(deployment(name, spec, namespace=NAMESPACE))


def run_services(bed: VmBed, sizes: Mapping[str, int]) -> dict[str, str]:
    """Start services one after the other, for first fit goes by their order; returns the cards."""
    return {name: run_service(bed, name, units) for name, units in sizes.items()}


def card_of(bed: VmBed, name: str) -> str:
    """Return the one card that a running service sees, after checking that every record names it."""
    pod = bed.cluster.wait_phase(NAMESPACE, name, "Running")
    metadata = pod["metadata"]
    [line] = bed.cluster.sees(NAMESPACE, metadata["name"])
    match = _GPU_LINE.match(line)
    assert match, line
    card = match.group(1)
    assert read_cards(metadata["annotations"][CARDS_ANNOTATION], metadata["uid"], bed.machine.name) == {"main": (card,)}
    rows = json.loads(bed.edgegpu("pods", "-n", NAMESPACE, "--json").stdout)["pods"]
    cards = [[entry["uuid"] for entry in row["cards"]] for row in rows if row["pod"] == metadata["name"]]
    assert cards == [[card]]
    return card


def containers_of(bed: VmBed, *names: str) -> dict[str, tuple[str, int]]:
    """Return the id of each service's container, and how often it was started again."""
    statuses = {name: bed.cluster.the_pod(NAMESPACE, name)["status"]["containerStatuses"][0] for name in names}
    return {name: (status["containerID"], status["restartCount"]) for name, status in statuses.items()}


def pending_reason(bed: VmBed, name: str) -> str:
    """Return why a service's pod waits, with numbers, as `edgegpu status` says it; empty while it says nothing."""
    pod = bed.cluster.the_pod(NAMESPACE, name)["metadata"]["name"]
    rows = json.loads(bed.edgegpu("status", "--json").stdout)["pending"]
    return next((str(row["reason"]) for row in rows if row["pod"] == pod), "")
