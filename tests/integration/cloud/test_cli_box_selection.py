"""Commands to several boxes, of which some cannot be asked: what was done is told, and what was not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kits.cloudcli import ok, run
from kits.enrol import Box, Office, office

from edgegpu_sync.messages.spec import AppLimits

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER = "11111111-0d0e-4a57-9a0e-1f8d2f7c9b11"
HALL = ("-l", "site=hall")


@pytest.fixture
def here(tmp_path: Path) -> Office:
    """Return a controller with a box that can be asked between two that are set aside."""
    made = office(tmp_path / "cloud")
    limits = AppLimits(namespace="default", app="asr", container="asr", memory_units=1, core=1, rev=1, cluster=CLUSTER)
    for name in ("a-ill", "b-well", "c-ill"):
        device = Box(made.token(name=name), host=name).enrolled(made.desk).device
        made.fleet.set_spec(device, lambda spec: spec.model_copy(update={"app_limits": (limits,)}))
        ok("label", name, "site=hall", folder=made.layout.folder)
        if name.endswith("ill"):
            with made.store.write() as tx:
                tx.boxes.set_aside(device)
    return made


def test_each_box_has_a_row_and_one_that_refuses_stops_none(here: Office) -> None:
    folder = here.layout.folder
    done = run("command", *HALL, "no.such", folder=folder)
    rows = [line.split() for line in done.out.splitlines()]
    assert (done.code, [row[0] for row in rows]) == (1, ["BOX", "b-well"]), done.err
    assert "not asked: cannot ask for no.such" in done.out
    done = run("limits", "forget", *HALL, "asr", "--json", folder=folder)
    assert (done.code, [one["box"] for one in done.json]) == (1, ["b-well", "a-ill", "c-ill"])
    assert ["set aside" in one.get("error", "") for one in done.json] == [False, True, True]
    done = run("limits", "forget", *HALL, "asr", folder=folder)
    assert (done.code, done.out.count("not taken back")) == (1, 2)


def test_where_no_box_can_be_asked_it_is_an_error_with_a_remedy(here: Office) -> None:
    folder = here.layout.folder
    for view in here.fleet.boxes():
        if view.name == "b-well":
            ok("label", view.name, "gate=north", folder=folder)
            here.fleet.revoke(view.device)
    for words in (
        ("command", "-l", "gate", "doctor.run"),
        ("install", "-l", "gate"),
        ("limits", "set", "-l", "gate", "asr", "--memory", "1"),
        ("limits", "set", "-l", "gate", "asr", "--memory", "1", "--preview"),
        ("sharing", "set", "-l", "gate", "--policy", "spread"),
    ):
        done = run(*words, folder=folder)
        assert (done.code, "cannot ask any box" in done.err, "enrol --for" in done.err) == (1, True, True), words
