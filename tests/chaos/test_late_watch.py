"""The real plugin process while its watch is late: a pod that it knows asks for as much as one that it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from chaos.pluginbox import CORE, MEMORY, NODE, PluginBox, Want
from contract.bed import main, phase, pod

from edgegpu_agent.cli.clients.plugin import fetch_status

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.chaos

LATE_S = 2.0


def test_a_placed_pod_does_not_fail_for_a_forced_one_that_asks_for_as_much(simdriver_build: Path) -> None:
    """The placed one is older, so kubelet admits it first; it was bound last, so the plugin hears of it last."""
    assert simdriver_build.is_dir()
    box = PluginBox([12, 8], seed=1)
    share = {MEMORY: 4, CORE: 50}

    def known() -> set[str]:
        return {row["pod"] for row in fetch_status(box.node.run_folder / "plugin.sock").raw["pods"]}

    try:
        box.make((Want("c0", 2, 10),), forced=False, lasts=True)
        box.settle()
        box.cluster.api.settings.watch_delay_s["pods"] = LATE_S
        box.restart_api()  # a watch that is open already would not be late
        box.bed.apply(pod("placed", share, nodeSelector={"zone": "a"}))
        box.node.kubelet.stop()
        first = main(share, name="first", command=["true"])
        box.bed.apply(pod("forced", {MEMORY: 11, CORE: 10}, init=[first], nodeName=NODE))
        box.bed.wait(lambda: "forced" in known(), what="the plugin knows the forced pod", timeout_s=30)
        box.bed.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {"zone": "a"}}})
        box.bed.wait(lambda: (box.bed.get("Pod", "placed") or {})["spec"].get("nodeName"), what="it is bound")
        box.node.kubelet.start()
        box.bed.wait(lambda: phase(box.bed, "placed") != "Pending", what="kubelet has admitted it", timeout_s=30)
        assert phase(box.bed, "placed") == "Running", (box.bed.get("Pod", "placed") or {})["status"]
    finally:
        box.close()
