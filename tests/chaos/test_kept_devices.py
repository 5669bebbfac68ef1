"""The real plugin process with a kubelet of 1.22 to 1.24, which keeps the devices of the pod that it admitted last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from chaos.pluginbox import PluginBox, Want

from edgegpu_plugin.records.collector import KEPT_S

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.chaos


def test_a_pod_gets_the_card_of_the_last_one_though_nobody_else_comes(simdriver_build: Path) -> None:
    assert simdriver_build.is_dir()
    box = PluginBox([8], seed=1, kubelet={"keeps_last": True})
    whole = (Want("c0", 8, 100),)

    def phases() -> list[str]:
        return [str(pod["status"].get("phase")) for pod in box.bed.pods()]

    try:
        box.make(whole, forced=False, lasts=False)
        box.bed.wait(lambda: "Succeeded" in phases(), what="the first has ended")
        box.make(whole, forced=False, lasts=True)
        box.bed.wait(lambda: "Running" in phases(), what="the second runs", timeout_s=KEPT_S + 30)
        assert not box.wrong_now()
    finally:
        box.close()
