"""A finished change of many boxes is undone by a new one: each box gets back what it had before."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any

import pytest
from kits.console import ANNA, OTTO
from kits.details import box, card, pod, reported

from edgegpu_cloud.console.context import fleet_of
from edgegpu_cloud.errors import CloudError, ConflictError
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.fleet.specs import ContainerLimits, SharingSettings, desired_items
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_sync.messages.spec import OnDrift

if TYPE_CHECKING:
    from kits.console import ConsoleSite

    from edgegpu_cloud.fleet.fleet import Fleet
    from edgegpu_cloud.fleet.operations.operations import OperationView
    from edgegpu_sync.ids import DeviceId

ALL = BoxFilter()
HELD = {"hall-1": (12, 10), "hall-2": (12, 10), "yard-1": (4, 20)}
LIMITS = {"namespace": "default", "app": "asr", "container": "main", "memory_units": 10}


@pytest.fixture
def devices(site: ConsoleSite) -> dict[str, DeviceId]:
    """Three boxes with an app, and one without it."""
    found = {}
    for number, (name, (units, core)) in enumerate(HELD.items(), 1):
        found[name] = site.add(number, name, site=name[:4])
        pods = {"u1": pod("asr-5d98c8c9f7-x2x4z", ("main", "0", units, core))}
        site.report(found[name], reported(box(name, (card("0"),), pods), cluster=f"{number:08d}"))
    found["empty-1"] = site.add(9, "empty-1")
    site.report(found["empty-1"], reported(box("empty-1", (card("0"),)), cluster="00000009"))
    return found


def fleet(site: ConsoleSite) -> Fleet:
    return fleet_of(site.store, ANNA, clock=site.clock)


def started(site: ConsoleSite, kind: OperationKind, **args: Any) -> OperationView:  # noqa: ANN401  (JSON)
    return stored(site, site.operations().start(kind, args, where=ALL))


def stored(site: ConsoleSite, view: OperationView) -> OperationView:
    """Let the controller store an operation for all of its boxes."""
    runner = OperationRunner(site.store, clock=site.clock)
    while runner.step():
        pass
    return site.operations().get(view.operation.id)


def limits_of(site: ConsoleSite, device: DeviceId) -> tuple[int, int]:
    [item] = fleet(site).spec(device).app_limits
    return item.memory_units, item.core


def test_each_box_gets_back_its_own_limits(site: ConsoleSite, devices: dict[str, DeviceId]) -> None:
    done = started(site, OperationKind.LIMITS, **LIMITS, core=1)
    assert {limits_of(site, device) for device in devices.values()} == {(10, 1)}
    plan = site.operations().undo_plan(done.operation.id)
    assert [one.words() for one in plan.steps] == [
        "memory_units 10, core 1 -> memory_units 12, core 10 on 2 boxes",
        "memory_units 10, core 1 -> memory_units 4, core 20 on 1 box",
    ]
    assert [(one.name, one.text) for one in plan.left] == [("empty-1", "what it had before is not known")]
    back = stored(site, site.operations().undo(done.operation.id))
    assert (back.operation.undoes, back.operation.boxes) == (done.operation.id, 3)
    assert {name: limits_of(site, devices[name]) for name in HELD} == HELD
    assert limits_of(site, devices["empty-1"]) == (10, 1)
    again = stored(site, site.operations().undo(back.operation.id))
    assert {limits_of(site, devices[name]) for name in HELD} == {(10, 1)}, "an undo is a change as any other"
    assert again.operation.undoes == back.operation.id


@pytest.mark.usefixtures("devices")
def test_the_audit_has_what_an_undo_gave_back(site: ConsoleSite) -> None:
    done = started(site, OperationKind.LIMITS, **LIMITS, core=1)
    site.operations().undo(done.operation.id)
    after = site.api("anna").get("/audit?what=operation").json()["items"][0]["after"]
    container = {name: LIMITS[name] for name in ("namespace", "app")} | {"container": "main"}
    values = {name: after["args"][name] for name in after["args"] if name in {*container, "memory_units", "core"}}
    assert values == container, "the boxes get back amounts of their own, and none is the one that is taken back"
    assert (after["returns"], after["undoes"], "per_box" in after) == (True, done.operation.id, False)
    page = site.client("anna").get("/audit?what=operation").text
    newest = page[page.index("<tbody>") : page.index("</tr>", page.index("<tbody>"))]
    assert "Boxes get back what they had: yes" in newest
    assert "10 units" not in newest


def test_what_was_requested_comes_back_as_it_was(site: ConsoleSite, devices: dict[str, DeviceId]) -> None:
    device = devices["hall-1"]
    wanted = ContainerLimits(
        namespace="default", app="asr", container="main", memory_units=8, core=5, on_drift=OnDrift.ENFORCE, live=True
    )
    fleet(site).set_limits(device, wanted)
    (before,) = fleet(site).spec(device).app_limits
    done = started(site, OperationKind.LIMITS, **LIMITS, core=1, force=True, on_drift="report")
    stored(site, site.operations().undo(done.operation.id))
    (after,) = fleet(site).spec(device).app_limits
    assert after.model_copy(update={"rev": 0, "retry": 0}) == before.model_copy(update={"rev": 0, "retry": 0})


def test_what_somebody_has_changed_since_stays(site: ConsoleSite, devices: dict[str, DeviceId]) -> None:
    done = started(site, OperationKind.LIMITS, **LIMITS, core=1)
    seen = site.operations().undo_plan(done.operation.id)
    theirs = ContainerLimits(namespace="default", app="asr", container="main", memory_units=3, core=3)
    fleet(site).set_limits(devices["hall-2"], theirs)
    plan = site.operations().undo_plan(done.operation.id)
    assert ("hall-2", "somebody has changed it since") in [(one.name, one.text) for one in plan.left]
    page = site.client("otto").get(f"/operations/{done.operation.id}/undo").text
    assert "somebody has changed it since" in page
    form = {"csrf": OTTO.csrf, "typed": "3", "seen": seen.seen}
    refused = site.client("otto").post(f"/operations/{done.operation.id}/undo", data=form)
    assert (refused.status_code, "left: hall-2" in refused.text) == (409, True)
    stored(site, site.operations().undo(done.operation.id))
    assert limits_of(site, devices["hall-2"]) == (3, 3)


def test_settings_and_sharing_come_back(site: ConsoleSite, devices: dict[str, DeviceId]) -> None:
    fleet(site).set_settings(devices["hall-1"], SharingSettings(policy="best-fit", exclude=("0",)))
    done = started(site, OperationKind.SHARING, policy="spread", exclude=["none"])
    plan = site.operations().undo_plan(done.operation.id)
    assert sum(one.boxes for one in plan.steps) == 4
    stored(site, site.operations().undo(done.operation.id))
    policies = {name: desired_items(fleet(site).spec(device))["policy"] for name, device in devices.items()}
    assert {name: getattr(item, "policy", "") for name, item in policies.items()} == {
        "hall-1": "best-fit",
        "hall-2": "first-fit",
        "yard-1": "first-fit",
        "empty-1": "first-fit",
    }
    cards = fleet(site).spec(devices["hall-1"]).exclusions
    assert cards is not None
    assert tuple(cards.cards) == ("0",)
    off = started(site, OperationKind.UNINSTALL)
    back = stored(site, site.operations().undo(off.operation.id, key="k"))
    assert site.operations().undo(off.operation.id, key="k").operation.id == back.operation.id, "asked again"
    assert (back.operation.kind, back.operation.boxes) == (OperationKind.INSTALL, 4)
    on = started(site, OperationKind.INSTALL)
    with pytest.raises(CloudError, match="no box of it gets back"):
        site.operations().undo(on.operation.id)


def test_sharing_that_somebody_has_put_back_and_taken_off_since_stays_off(
    site: ConsoleSite, devices: dict[str, DeviceId]
) -> None:
    off = started(site, OperationKind.UNINSTALL)
    for kind in (OperationKind.INSTALL, OperationKind.UNINSTALL):
        stored(site, site.operations().start(kind, {}, devices=[devices["hall-2"]]))
    plan = site.operations().undo_plan(off.operation.id)
    assert [(box.name, box.text) for box in plan.left] == [("hall-2", "somebody has changed it since")]
    assert set(plan.own) == {devices[name] for name in ("hall-1", "yard-1", "empty-1")}


def test_a_command_and_what_waits_to_be_stored_are_not_undone(site: ConsoleSite, devices: dict[str, DeviceId]) -> None:
    del devices
    done = started(site, OperationKind.COMMAND, op="k3s.restart")
    with pytest.raises(CloudError, match="it was a command"):
        site.operations().undo(done.operation.id)
    page = site.client("otto").get(f"/operations/{done.operation.id}").text
    assert "A command cannot be undone." in page
    assert "/undo" not in page
    waits = site.operations().start(OperationKind.LIMITS, {**LIMITS, "core": 1}, where=ALL)
    with pytest.raises(ConflictError, match="wait to be stored"):
        site.operations().undo(waits.operation.id)


def test_the_page_and_the_api_undo_what_they_have_shown(site: ConsoleSite, devices: dict[str, DeviceId]) -> None:
    done = started(site, OperationKind.LIMITS, **LIMITS, core=1)
    client, path = site.client("otto"), f"/operations/{done.operation.id}"
    assert f'href="{path}/undo"' in client.get(path).text
    assert f"{path}/undo" not in site.client("vera").get(path).text
    page = client.get(f"{path}/undo").text
    text = html.unescape(re.sub(r"<[^>]*>", "", page))
    assert "10 units, core 1 → 12 units, core 10: 2 boxes" in text
    assert "Type 3, the number of boxes, to confirm" in text
    seen = re.findall(r'name="seen" value="([^"]+)"', page)[0]
    form = {"csrf": OTTO.csrf, "seen": html.unescape(seen), "key": "once"}
    assert client.post(f"{path}/undo", data={**form, "typed": "4"}).status_code == 400
    answers = [client.post(f"{path}/undo", data={**form, "typed": "3"}) for _ in range(2)]
    assert len({one.headers["location"] for one in answers}) == 1, "a second press starts nothing more"
    stored(site, done)
    assert {name: limits_of(site, devices[name]) for name in HELD} == HELD
    assert "each box what it had before" in client.get(answers[0].headers["location"]).text

    api = site.api("otto")
    redo = answers[0].headers["location"]
    plan = api.get(f"{redo}/undo").json()
    assert (plan["boxes"], plan["steps"][0]["after"]) == (3, {"core": 1, "memory_units": 10})
    begun = api.post(f"{redo}/undo", json={"expect": plan["seen"]})
    assert (begun.status_code, begun.json()["undoes"]) == (202, redo.removeprefix("/operations/"))
    stored(site, done)
    [of_box, *_] = [one for one in api.get(f"{redo}/boxes").json()["items"] if one["name"] == "yard-1"]
    assert of_box["before"]["memory_units"] == 10
    assert {limits_of(site, devices[name]) for name in HELD} == {(10, 1)}
