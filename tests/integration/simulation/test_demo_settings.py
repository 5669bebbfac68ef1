"""The demo's box carries out the plugin's settings, or says that the demo does not have them."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from edgegpu_agent.actions.idempotent import doctor_data
from edgegpu_agent.demo.plan import CARD_4G_MIB
from edgegpu_installer.layout import Layout
from edgegpu_plugin.config.schema import PluginConfig, load
from edgegpu_sim.demo.box import DemoBox, box
from edgegpu_sim.demo.embedded import EmbeddedBed, embedded
from edgegpu_sim.demo.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("simdriver_build")


@contextmanager
def demo_box() -> Iterator[tuple[EmbeddedBed, DemoBox]]:
    with (
        embedded((CARD_4G_MIB, CARD_4G_MIB), policy="first-fit") as bed,
        Processes(bed.folder, {}) as processes,
        box(bed, processes, lambda _: None) as there,
    ):
        yield bed, there


def install(there: DemoBox, *options: str) -> tuple[int, Any]:
    status, text = there.answer("edgegpu", ["install", "--yes", *options, "--json", "--transaction-id", "policy-1-ab"])
    return status, json.loads(text)


def seen(there: DemoBox) -> PluginConfig:
    """Return the configuration that the agent reads."""
    return load(Layout(there.root).plugin_yaml)


def offered(bed: EmbeddedBed) -> list[str]:
    return [card.index for card in bed.status().cards]


def test_exclusions_policy_and_unit_size_count_for_the_plugin_and_are_seen_by_the_agent() -> None:
    with demo_box() as (bed, there):
        assert install(there) == (0, {"state": "COMMITTED", "changed": False})
        assert install(there, "--exclude", "0") == (0, {"state": "COMMITTED", "changed": True})
        assert (offered(bed), seen(there).exclude) == (["1"], frozenset("0"))
        assert install(there, "--exclude", "0") == (0, {"state": "COMMITTED", "changed": False})
        assert install(there, "--exclude", "0", "--exclude", "1")[0] == 0
        assert offered(bed) == []
        assert install(there, "--exclude", "none", "--policy", "best-fit", "--unit-mib", "512")[0] == 0
        status = bed.status()
        assert (offered(bed), status.raw["policy"], status.raw["unit_mib"]) == (["0", "1"], "best-fit", 512)
        assert (seen(there).policy.value, seen(there).resources.unit_mib) == ("best-fit", 512)
        assert load(bed.config) == seen(there)


def test_sharing_that_comes_back_has_the_settings_that_it_is_installed_with() -> None:
    with demo_box() as (bed, there):
        assert there.answer("edgegpu", ["uninstall", "--keep-agent"])[0] == 0
        assert install(there, "--policy", "spread") == (0, {"state": "COMMITTED", "changed": True})
        assert bed.status().raw["policy"] == "spread"


@pytest.mark.parametrize("mode", ["limiter", "mps"])
def test_isolation_is_refused_in_words(mode: str) -> None:
    with demo_box() as (bed, there):
        status, said = install(there, "--isolation", mode)
        assert (status, "state" in said) == (1, False)
        assert said["error"].startswith(f"cannot do that here: the demo has no isolation.mode {mode}")
        assert seen(there).isolation.mode.value == bed.status().raw["isolation"] == "none"


def test_a_plugin_that_does_not_start_gets_its_settings_back() -> None:
    with demo_box() as (bed, there):
        status, said = install(there, "--policy", "nonsense")
        assert (status, said["state"]) == (1, "ROLLED_BACK")
        assert "the plugin ended with status" in said["why"]
        assert bed.status().raw["policy"] == seen(there).policy.value == "first-fit"


def test_doctor_says_that_the_box_is_simulated() -> None:
    with demo_box() as (_, there):
        status, text = there.answer("edgegpu", ["doctor", "--json"])
        said = json.loads(text)
        data: Any = doctor_data(said["version"], said["level"], said["checks"])
        assert (status, data["level"], data["checks"]) == (1, "warning", 1)
        assert "this box is simulated" in data["troubled"][0]["text"]
