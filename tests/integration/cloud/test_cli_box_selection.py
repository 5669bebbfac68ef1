"""Commands to several boxes, of which some cannot be asked: what was done is told, and what was not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from kits.cloudcli import ok, run
from kits.enrol import Box, Office, office

from edgegpu_cloud.fleet.operations.runner import OperationRunner
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


@pytest.mark.parametrize(
    ("words", "kind", "args"),
    [
        (
            ("command", *HALL, "logs.collect", "--arg", "url=https://logs.example.com/", "--valid", "2h"),
            "command",
            {"op": "logs.collect", "args": {"url": "https://logs.example.com/"}, "wait_s": 7_200},
        ),
        (("install", *HALL), "install", {"wait_s": 3_600}),
        (("uninstall", *HALL, "--yes", "--valid", "10m"), "uninstall", {"wait_s": 600}),
        (
            ("sharing", "set", *HALL, "--policy", "spread", "--exclude", "none"),
            "sharing",
            {"policy": "spread", "exclude": ["none"], "isolation": None, "unit_mib": None},
        ),
    ],
    ids=["command", "install", "uninstall", "sharing"],
)
def test_a_change_is_one_operation_for_the_boxes_that_can_be_asked(
    here: Office, words: tuple[str, ...], kind: str, args: dict[str, object]
) -> None:
    folder = here.layout.folder
    done = ok(*words, "--json", folder=folder).json
    started = done["operation"]
    assert (started["kind"], started["args"], started["boxes"]) == (kind, args, 1)
    assert started["filter"] == {"selector": "site=hall", "askable": True}
    assert [(one["name"], one["outcome"]) for one in done["results"]] == [("b-well", "QUEUED")]
    assert here.fleet.commands() == [], "the controller stores it, not the command"
    OperationRunner(here.store, clock=time.time).step()
    shown = ok("operations", "show", started["id"], folder=folder).out
    assert f"{kind}, 1 box, -l site=hall: 1 STORED" in shown
    queued = here.fleet.commands()
    assert [round(one.due_at_s - one.at_s) for one in queued] == [args.get("wait_s")] * len(queued)
    assert [one.op.removeprefix("sharing.") for one in queued] == [args.get("op", kind)] * (kind != "sharing")


def test_what_is_wrong_for_every_box_starts_nothing(here: Office) -> None:
    folder = here.layout.folder
    for words, why in (
        (("command", *HALL, "no.such"), "cannot ask for 'no.such'"),
        (("sharing", "set", *HALL), "no setting is given"),
        (("sharing", "set", *HALL, "--policy", "worst-fit"), "cannot set policy"),
        (("install", *HALL, "--valid", "100d"), "cannot let a command wait"),
    ):
        done = run(*words, folder=folder)
        assert (done.code, done.out, why in done.err) == (1, "", True), done.err
    assert ok("operations", "list", "--json", folder=folder).json == []


def test_one_box_that_refuses_stops_none(here: Office) -> None:
    folder = here.layout.folder
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
        ("sharing", "set", "-l", "gate", "--policy", "spread", "--preview"),
    ):
        done = run(*words, folder=folder)
        assert (done.code, "cannot ask any box" in done.err, "enrol --for" in done.err) == (1, True, True), words
