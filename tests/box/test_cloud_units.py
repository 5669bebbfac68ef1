"""The units of single processes on a booted machine: what code of somebody else in one of them reaches."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from box.bed import make_bundle
from box.cloudmachine import PARTS, Controller, booted, pages_machine
from kits.units import FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator

INTRUDER = Path(__file__).with_name("intruder.py")
PYTHON, PLACE, TOLD = "/usr/bin/python3", "/srv/intruder.py", "/run/edgegpu-intruder.json"
UNITS = ("edgegpu-broker", "edgegpu-cloud-https", "edgegpu-cloud-controller", "edgegpu-cloud-console@8444")
CONSOLE, BROKER = UNITS[-1], UNITS[0]
KEPT = ("ca/", "keys/", "tls/", "broker/", "release/", "controller.yaml")
"""What of the controller's folder no console changes."""


@pytest.fixture(scope="module")
def controller() -> Iterator[Controller]:
    """Yield a machine on which each process of the cloud has a unit of its own."""
    make_bundle()
    with booted() as machine:
        pages_machine(machine)
        machine.paste(PARTS)
        machine.serves()
        machine.machine.push(INTRUDER, to="/srv")
        yield machine


def _pids(controller: Controller) -> dict[str, str]:
    return {unit: controller.paste(f"systemctl show -p MainPID --value {unit}\n").strip() for unit in UNITS}


def _intrude(controller: Controller, unit: str) -> dict[str, Any]:
    """Run the intruder as a unit that has everything of this one but its program; returns what it has reached."""
    others = [pid for name, pid in _pids(controller).items() if name != unit]
    text = controller.paste(f"systemctl cat --no-pager {unit}\n")
    text = re.sub("^(Type|NotifyAccess|Restart|RestartSec|ExecReload|ExecStart)=.*\n", "", text, flags=re.MULTILINE)
    own = f"Type=oneshot\nExecStart={PYTHON} {PLACE} {FOLDER} {' '.join(others)}\nStandardOutput=truncate:{TOLD}\n"
    path = "/run/systemd/system/edgegpu-intruder.service"
    controller.machine.exec("tee", path, input=text.replace("[Service]\n", f"[Service]\n{own}"))
    controller.paste(f"rm -f {TOLD}\nsystemctl daemon-reload\nsystemctl start edgegpu-intruder\n")
    found: dict[str, Any] = json.loads(controller.paste(f"cat {TOLD}\n"))
    return found


def test_the_user_alone_keeps_nothing_back(controller: Controller) -> None:
    pids = " ".join(_pids(controller).values())
    told = controller.paste(f"runuser -u edgegpu-cloud -- {PYTHON} {PLACE} {FOLDER} {pids}\n")
    found = json.loads(told)
    assert {"ca/boxes.key", "keys/signing.key", "tls/console.key"} <= set(found["read"]), "the intruder can read"
    assert "release/" in found["written"]
    assert found["replaced"]
    assert len(found["seen"]) == len(UNITS)


def test_code_in_the_consoles_process_reaches_the_store_and_its_own_key_alone(controller: Controller) -> None:
    found = _intrude(controller, CONSOLE)
    assert {one for one in found["read"] if one.endswith(".key")} == {"tls/console.key"}
    assert not [one for one in found["read"] if one.startswith(("broker/", "release/"))]
    assert "controller.db" in found["read"]
    assert "controller.db" in found["written"]
    assert not [one for one in found["written"] if one.startswith(KEPT)]
    assert (found["replaced"], found["seen"], found["reached"]) == ([], [], {})


def test_code_in_the_brokers_process_reaches_its_own_files_alone(controller: Controller) -> None:
    found = _intrude(controller, BROKER)
    assert {one for one in found["read"] if one.endswith(".key")} == {"tls/broker.key"}
    assert {one.partition("/")[0] for one in found["read"]} == {"broker", "ca", "tls"}
    assert {one.partition("/")[0] for one in found["written"]} == {"broker"}
    assert (found["replaced"], found["seen"], found["reached"]) == ([], [], {})


@pytest.mark.parametrize("unit", UNITS[1:3])
def test_a_part_of_the_controller_reaches_no_memory_of_another(controller: Controller, unit: str) -> None:
    found = _intrude(controller, unit)
    assert (found["seen"], found["reached"]) == ([], {})


def test_all_units_run_so_and_the_broker_is_reloaded(controller: Controller) -> None:
    before = _pids(controller)
    controller.paste("systemctl reload edgegpu-broker\nedgegpu-cloud boxes\n")
    controller.serves()
    assert _pids(controller) == before
