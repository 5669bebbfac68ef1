"""What the driver keeps of the cards: the units that a node offers with `reserve_mib: auto`, over restarts."""

from pathlib import Path

from contract.bed import EmbeddedBed
from contract.test_plugin import MEMORY

from edgegpu_sim.cluster import EmbeddedCluster
from edgegpu_sim.driver import SimDriver, SimVersions, make_card
from edgegpu_sim.node import NodeSpec

CARDS = [make_card(index, "Tesla T4", 15360) for index in range(2)]
KEPT = SimVersions(reserved_mib=444)


def offers(bed: EmbeddedBed, *units: int) -> None:
    """Wait until the node offers the sum of these units."""

    def look() -> bool:
        found = (bed.get("Node", "box") or {}).get("status", {}).get("allocatable", {})
        return bool(found.get(MEMORY) == str(sum(units)))

    bed.wait(look, what=f"{sum(units)} units")


def test_a_restart_offers_no_more_where_the_driver_fails_to_say_what_it_keeps(simdriver_build: Path) -> None:
    config = {"resources": {"reserve_mib": "auto"}, "driver": {"poll_s": 0.2}}
    with EmbeddedCluster([NodeSpec(name="box", cards=CARDS[:1], config=config)]) as cluster:
        bed, driver = EmbeddedBed(cluster), cluster.nodes["box"].driver
        assert driver is not None
        SimDriver.create(driver.root, CARDS[:1], build=simdriver_build, versions=KEPT)
        cluster.start_plugin("box")
        offers(bed, 58)
        bed.kill_plugin("box")
        SimDriver.create(driver.root, CARDS, build=simdriver_build, versions=KEPT)
        driver.fail("nvmlDeviceGetMemoryInfo_v2", 999)
        bed.start_plugin("box")
        offers(bed, 58, 60)  # the second card is new: nothing was ever known of it
