"""`edgegpu-cloud operations`: what many boxes were asked for, and what came of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from kits.cloudcli import ok, run
from kits.enrol import Box, Office, office

from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.operations.operations import Operations
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.store.operations.records import OperationKind

if TYPE_CHECKING:
    from pathlib import Path

    from edgegpu_cloud.store.records import Json


@pytest.fixture
def here(tmp_path: Path) -> Office:
    """Return a controller with three boxes, of which one is revoked."""
    made = office(tmp_path / "cloud")
    for name in ("hall-1", "hall-2", "hall-3"):
        device = Box(made.token(name=name), host=name).enrolled(made.desk).device
        made.fleet.label(device, {"site": "hall"})
    made.fleet.revoke("hall-2")
    return made


def start(here: Office) -> str:
    args: Json = {"op": "doctor.run"}
    operations = Operations(here.store, clock=time.time, access=Access("anna"))
    return operations.start(OperationKind.COMMAND, args, where=BoxFilter(selector="site=hall")).operation.id


def test_they_are_listed_and_shown_box_by_box(here: Office) -> None:
    folder = here.layout.folder
    assert "no operations yet" in ok("operations", "list", folder=folder).out
    id_ = start(here)
    OperationRunner(here.store, clock=time.time).step()
    (row,) = ok("operations", "list", folder=folder).out.splitlines()[1:]
    assert row.split()[:2] == [id_, "command"]
    assert "2 STORED, 1 REFUSED" in row
    shown = ok("operations", "show", id_[:12], folder=folder)
    assert f"{id_}  command, 3 boxes, -l site=hall: 2 STORED, 1 REFUSED" in shown.out
    assert "op doctor.run" in shown.out
    assert "hall-2" in shown.out
    assert "it is revoked" in shown.out
    (refused,) = ok("operations", "show", id_, "--outcome", "refused", "--json", folder=folder).json["results"]
    assert (refused["name"], refused["outcome"], refused["command"]) == ("hall-2", "REFUSED", None)
    first = ok("operations", "show", id_, "--limit", "2", folder=folder).out.splitlines()
    assert first[-1].startswith(f"more: edgegpu-cloud operations show {id_} --after ")
    rest = ok("operations", "show", id_, "--limit", "2", "--after", first[-1].split()[-1], folder=folder).out
    assert "more:" not in rest


def test_what_is_not_stored_yet_can_be_cancelled(here: Office) -> None:
    folder, id_ = here.layout.folder, start(here)
    assert "cancelled for 3 boxes" in ok("operations", "cancel", id_, folder=folder).out
    again = run("operations", "cancel", id_, "--json", folder=folder)
    assert (again.code, "waits to be stored" in again.json["error"]) == (1, True)
    assert run("operations", "show", "nothing", folder=folder).code == 1
    OperationRunner(here.store, clock=time.time).step()
    assert here.fleet.commands() == []
