"""A person's scope and role in the fleet: other boxes do not exist, and what a role may not do is refused."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from kits.reportedcluster import tell_cluster
from kits.stores import open_store

from edgegpu_cloud.errors import CloudError, ForbiddenError, NotFoundError
from edgegpu_cloud.fleet.access import read_scope
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.history.box_history import BoxHistories
from edgegpu_cloud.fleet.history.metrics import UseRange
from edgegpu_cloud.fleet.limits.app_page import AppQuery
from edgegpu_cloud.fleet.limits.history import ContainerKey
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.specs import ContainerLimits, SharingSettings
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.records import AuditFilter, BoxEvent, EnrolledBox
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.ids import DeviceId, device_id
from edgegpu_sync.messages.spec import Spec

NOW_S = 1_790_000_000.0
HALL, YARD = "berlin-1", "berlin-12"
LIMITS = ContainerLimits(namespace="default", app="asr", container="main", memory_units=4, core=1)


def device(number: int) -> DeviceId:
    return device_id(f"{number:016d}")


def take_in(store: ControllerStore, number: int, name: str, **labels: str) -> None:
    box = EnrolledBox(device=device(number), enrolment=1, public="A" * 43, instance="ab", name=name, labels=labels)
    with store.write() as tx:
        add_box(tx, box, Author("setup", NOW_S))


@pytest.fixture
def store(store_url: str) -> Iterator[ControllerStore]:
    store = open_store(store_url)
    take_in(store, 1, HALL, site="hall")
    take_in(store, 2, YARD, site="yard")
    take_in(store, 3, "nowhere")
    whole = person(store)
    for name in (HALL, YARD):
        whole.command(name, "doctor.run", {})
    with store.write() as tx:
        for number in (1, 2):
            text = f"event {number}"
            tx.notes.add_events(
                [BoxEvent(device=device(number), kind="k", level="info", text=text, about="", box_at=1, at_s=NOW_S)]
            )
            tx.notes.alarm("CLONED", device=device(number), text=f"alarm {number}", now_s=NOW_S)
        tx.notes.alarm("KEYS_AHEAD", device="", text="of the controller", now_s=NOW_S)
    yield store
    store.close()


def person(store: ControllerStore, role: Role = Role.ADMIN, scope: str = "", name: str = "anna") -> Fleet:
    return Fleet(store, clock=lambda: NOW_S, by=name, role=role, scope=read_scope(scope))


@dataclass(frozen=True)
class Target:
    """A box by one of its names, and a command to it."""

    box: str
    command: str


CHANGES: dict[str, Callable[[Fleet, Target], object]] = {
    "rename": lambda fleet, on: fleet.rename(on.box, "other"),
    "label": lambda fleet, on: fleet.label(on.box, {"rack": "3"}),
    "set_spec": lambda fleet, on: fleet.set_spec(on.box, lambda spec: spec),
    "change_box": lambda fleet, on: fleet.change_box(on.box, name="other", labels={"rack": "3"}),
    "set_limits": lambda fleet, on: fleet.set_limits(on.box, LIMITS),
    "forget_limits": lambda fleet, on: fleet.forget_limits(on.box, "default", "asr"),
    "set_settings": lambda fleet, on: fleet.set_settings(on.box, SharingSettings(policy="spread")),
    "forget_items": lambda fleet, on: fleet.forget_items(on.box, ["policy"]),
    "command": lambda fleet, on: fleet.command(on.box, "doctor.run", {}),
    "install": lambda fleet, on: fleet.install(on.box),
    "uninstall": lambda fleet, on: fleet.uninstall(on.box),
    "confirm_restored": lambda fleet, on: fleet.confirm_restored(on.box),
    "set_blocked": lambda fleet, on: fleet.set_blocked(on.box, blocked=True),
    "cancel": lambda fleet, on: fleet.cancel(on.command),
    "alarm_seen": lambda fleet, on: fleet.alarm_seen(1 if on.box == HALL else 2),
}
REMOVALS: dict[str, Callable[[Fleet, Target], object]] = {
    "set_cluster": lambda fleet, on: fleet.set_cluster(on.box, accept=True),
    "revoke": lambda fleet, on: fleet.revoke(on.box),
    "forget": lambda fleet, on: fleet.forget(on.box),
}
LOOKS: dict[str, Callable[[Fleet, Target], object]] = {
    "box": lambda fleet, on: fleet.box(on.box),
    "details": lambda fleet, on: fleet.details(on.box),
    "spec": lambda fleet, on: fleet.spec(on.box),
    "commands": lambda fleet, on: fleet.commands(on.box),
    "events": lambda fleet, on: fleet.events(on.box),
    "requests": lambda fleet, on: fleet.requests(on.box),
    "limits_history": lambda fleet, on: fleet.limits_history(on.box, ContainerKey("default", "asr", "main")),
    "card_use": lambda fleet, on: fleet.card_use(on.box, UseRange.DAY),
    "histories/commands": lambda fleet, on: fleet.histories.commands(on.box),
    "histories/changes": lambda fleet, on: fleet.histories.changes(on.box),
    "histories/events": lambda fleet, on: fleet.histories.events(on.box),
    "histories/requests": lambda fleet, on: fleet.histories.requests(on.box),
    "changes": lambda fleet, on: fleet.changes(on.box),
    "one_command": lambda fleet, on: fleet.one_command(on.command),
}


def command_of(store: ControllerStore, number: int) -> str:
    """Return the id of the command to a box, which whoever asks may have heard from others."""
    return person(store).commands(device(number))[-1].id


def came(do: Callable[[Fleet, Target], object], fleet: Fleet, on: Target) -> str:
    """Return what came of it: "done" also where the fleet has another reason than role and scope."""
    try:
        do(fleet, on)
    except (ForbiddenError, NotFoundError) as error:
        return "done" if "request" in str(error) else type(error).__name__
    except CloudError:
        return "done"
    return "done"


@pytest.mark.parametrize("what", [*CHANGES, *REMOVALS, *LOOKS])
def test_a_box_out_of_scope_does_not_exist(store: ControllerStore, what: str) -> None:
    do = {**CHANGES, **REMOVALS, **LOOKS}[what]
    fleet = person(store, scope="site=hall")
    yard = command_of(store, 2)
    for box in (YARD, device(2), "berlin-12"):
        assert came(do, fleet, Target(box, yard)) == "NotFoundError", box
    before = person(store).box(YARD)
    assert came(do, fleet, Target(HALL, command_of(store, 1))) == "done"
    assert person(store).box(YARD) == before


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("what", [*CHANGES, *REMOVALS, *LOOKS])
def test_what_each_role_may_do(store: ControllerStore, role: Role, what: str) -> None:
    do = {**CHANGES, **REMOVALS, **LOOKS}[what]
    least = Role.OPERATOR if what in CHANGES else Role.ADMIN if what in REMOVALS else Role.VIEWER
    expected = "done" if role.rank >= least.rank else "ForbiddenError"
    assert came(do, person(store, role), Target(HALL, command_of(store, 1))) == expected


def test_every_method_of_the_fleet_is_in_these_tables() -> None:
    lists = {
        "access",
        "alarms",
        "apps",
        "audit",
        "boxes",
        "counts",
        "matching",
        "names",
        "names_of",
        "page",
        "is_name",
    }
    other = {"follow", "is_forgotten"}
    public = {name for name in vars(Fleet) if not name.startswith("_")}
    assert public == {*CHANGES, *REMOVALS, *(name.partition("/")[0] for name in LOOKS), *lists, *other}
    parts = {name for name in vars(BoxHistories) if not name.startswith("_")}
    assert {f"histories/{name}" for name in parts} <= {*LOOKS}


def test_apps_have_the_boxes_of_the_scope_alone(store: ControllerStore) -> None:
    for number, box in enumerate((HALL, YARD), start=1):
        tell_cluster(store, device(number), cluster=str(number) * 36)
        person(store).set_limits(box, LIMITS)
    key = ContainerKey(LIMITS.namespace, LIMITS.app, LIMITS.container)
    assert [one.boxes for one in person(store).apps.all()] == [2]
    hall = person(store, scope="site=hall").apps
    assert [one.boxes for one in hall.page(AppQuery()).apps] == [1]
    assert [one.box for one in hall.all_boxes(key)] == [HALL]
    assert hall.boxes(key, selector="site=yard").boxes == []


def test_lists_have_the_boxes_of_the_scope_alone(store: ControllerStore) -> None:
    fleet = person(store, scope="site=hall")
    assert [box.name for box in fleet.boxes()] == [HALL]
    assert fleet.boxes("site=yard") == []
    assert [box.name for box in fleet.page(BoxFilter()).boxes] == [HALL]
    assert fleet.counts().boxes == 1
    assert fleet.names() == [HALL]
    assert fleet.names_of([device(1), device(2)]) == {device(1): HALL}
    assert [fleet.is_name(name) for name in (HALL, YARD)] == [True, False]
    assert {one.box for one in fleet.commands()} == {HALL}
    assert [one.text for one in fleet.events()] == ["event 1"]
    assert [one.text for one in fleet.alarms()] == ["alarm 1"]
    assert {one.device for one in fleet.audit()} == {device(1)}
    assert fleet.audit(AuditFilter(device=device(2))) == []


def test_a_scope_that_leaves_a_label_out_has_nothing_that_belongs_to_no_box(store: ControllerStore) -> None:
    fleet = person(store, scope="site!=yard")
    assert fleet.names() == [HALL, "nowhere"]
    assert [one.text for one in fleet.alarms()] == ["alarm 1"]
    assert {one.device for one in fleet.audit()} == {device(1), device(3)}
    person(store).forget("nowhere")
    assert {one.device for one in fleet.audit()} == {device(1)}, "a forgotten box is in no scope"
    assert {one.text for one in person(store).alarms()} == {"alarm 1", "alarm 2", "of the controller"}


def test_a_name_out_of_scope_makes_no_beginning_ambiguous(store: ControllerStore) -> None:
    assert person(store, scope="site=hall").box("berlin").name == HALL
    assert person(store, scope="site=yard").box("berlin-1").name == YARD
    with pytest.raises(NotFoundError, match="2 begin so"):
        person(store, scope="site").box("berl")


def test_a_label_that_takes_a_box_out_of_ones_scope_needs_an_admin(store: ControllerStore) -> None:
    operator = person(store, Role.OPERATOR, "site=hall")
    operator.label(HALL, {"rack": "3"})
    for labels in ({"site": "yard"}, {"site": ""}):
        with pytest.raises(ForbiddenError, match="move a box out of your scope"):
            operator.label(HALL, labels)
    assert operator.box(HALL).labels == {"site": "hall", "rack": "3"}
    person(store, Role.ADMIN, "site=hall").label(HALL, {"site": "yard"})
    with pytest.raises(NotFoundError):
        operator.box(HALL)
    person(store, Role.OPERATOR).label(HALL, {"site": "hall"})
    assert operator.box(HALL)


def test_the_audit_is_paged_and_filtered(store: ControllerStore) -> None:
    bea = person(store, name="bea/ci")
    for number in range(5):
        bea.label(HALL, {"rack": str(number)})
    bea.set_spec(HALL, lambda _: Spec())
    first = bea.audit(AuditFilter(by="bea", what="box"), limit=3)
    rest = bea.audit(AuditFilter(by="bea", what="box", before=first[-1].number), limit=50)
    labels = [one.after["rack"] for one in (*first, *rest) if one.what == "box.labels" and one.after]
    assert labels == ["4", "3", "2", "1", "0"]
    assert {one.by for one in bea.audit(AuditFilter(by="bea/ci"))} == {"bea/ci"}
    assert bea.audit(AuditFilter(by="be")) == []
    assert bea.audit(AuditFilter(what="box.lab")) == []
    for role in (Role.VIEWER, Role.OPERATOR):
        with pytest.raises(ForbiddenError):
            person(store, role).audit()


def test_a_text_that_no_database_takes_finds_nothing(store: ControllerStore) -> None:
    for fleet in (person(store), person(store, scope="site=hall")):
        with pytest.raises(NotFoundError):
            fleet.box("berlin\0")
        with pytest.raises(NotFoundError):
            fleet.one_command("\0")
