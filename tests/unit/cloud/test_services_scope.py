"""Scope and role in alerts, evidence, enrolment and operations: what is not one's own does not exist."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from edgegpu_cloud.alerts.rules import AlertKind
from edgegpu_cloud.alerts.service import Alerts
from edgegpu_cloud.enrolment.manager import EnrolmentManager, TokenRequest
from edgegpu_cloud.errors import CloudError, ForbiddenError, NotFoundError
from edgegpu_cloud.fleet.access import Access, read_scope
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.history.evidence import EvidenceService
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.operations.box_set import BoxSet
from edgegpu_cloud.fleet.operations.operations import Operations
from edgegpu_cloud.fleet.specs import LimitsPatch
from edgegpu_cloud.layout import AlertConfig
from edgegpu_cloud.store.alerts.tables import AlertFilter
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.records import EnrolledBox, EnrolmentAttempt, RequestState
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.ids import device_id

NOW_S = 1_790_000_000.0
HALL, YARD = "berlin-1", "berlin-12"
DOCTOR = {"op": "doctor.run"}


@dataclass(frozen=True)
class Services:
    """All that a person has."""

    alerts: Alerts
    evidence: EvidenceService
    enrolment: EnrolmentManager
    operations: Operations


@dataclass(frozen=True)
class Target:
    """The things of one box: its name, and the names of what belongs to it."""

    box: str
    alert: int
    token: str
    attempt: str
    operation: str


def person(store: ControllerStore, role: Role = Role.ADMIN, scope: str = "") -> Services:
    def clock() -> float:
        return NOW_S

    access = Access("anna", role, read_scope(scope))
    return Services(
        Alerts(store, AlertConfig(), access=access, clock=clock),
        EvidenceService(store, access=access, clock=clock),
        EnrolmentManager(store, clock=clock, access=access),
        Operations(store, clock=clock, access=access),
    )


@pytest.fixture
def things(store: ControllerStore) -> dict[str, Target]:
    """Return what belongs to the box of each site, and what belongs to none or to both."""
    made: dict[str, Target] = {}
    whole = person(store)
    for number, (name, site) in enumerate(((HALL, "hall"), (YARD, "yard")), start=1):
        device = device_id(f"{number:016d}")
        box = EnrolledBox(device=device, enrolment=1, public="A" * 43, instance="ab", name=name, labels={"site": site})
        with store.write() as tx:
            add_box(tx, box, Author("setup", NOW_S))
            (alert,) = tx.alerts.add([alert_row(device)])
        token = whole.enrolment.make(TokenRequest(lasts_s=60, approval=True, labels={"site": site}))
        attempt = EnrolmentAttempt(
            id=f"{number}" * 32, token=token.token.digest, digest="d", asked={"host": name}, at_s=NOW_S, device=device
        )
        with store.write() as tx:
            tx.enrolments.add_request(attempt)
        started = whole.operations.start(OperationKind.COMMAND, DOCTOR, devices=[device])
        made[name] = Target(name, alert, token.id, attempt.id, started.operation.id)
    with store.write() as tx:
        tx.alerts.add([alert_row("")])
    both = whole.operations.start(OperationKind.COMMAND, DOCTOR, where=BoxFilter()).operation.id
    made["both"] = Target("nowhere", 3, "0" * 12, "0" * 32, both)
    return made


def alert_row(device: str, **values: object) -> dict[str, object]:
    times = {"since_s": NOW_S, "firing_at_s": NOW_S, "clear_since_s": None, "resolved_at_s": None}
    named = {"kind": "offline", "device": device, "about": "", "text": "the box is offline", "open_key": f"o/{device}"}
    return {**named, **times, "silenced_until_s": 0.0, "silenced_by": "", **values}


CHANGES: dict[str, Callable[[Services, Target], object]] = {
    "alerts.silence": lambda all_, on: all_.alerts.silence(on.alert, for_s=60),
    "evidence.check": lambda all_, on: all_.evidence.check(on.box),
    "enrolment.make": lambda all_, on: all_.enrolment.make(TokenRequest(lasts_s=60, only_for=on.box)),
    "enrolment.make_many": lambda all_, on: all_.enrolment.make_many(TokenRequest(lasts_s=60, only_for=on.box), 2),
    "enrolment.take_back": lambda all_, on: all_.enrolment.take_back(on.token),
    "enrolment.decide": lambda all_, on: all_.enrolment.decide(on.attempt, RequestState.APPROVED),
    "operations.cancel": lambda all_, on: all_.operations.cancel(on.operation),
    "operations.undo": lambda all_, on: all_.operations.undo(on.operation),
}
LOOKS: dict[str, Callable[[Services, Target], object]] = {
    "alerts.list": lambda all_, on: all_.alerts.list(on.box),
    "evidence.of_box": lambda all_, on: all_.evidence.of_box(on.box),
    "enrolment.token": lambda all_, on: all_.enrolment.token(on.token),
    "operations.get": lambda all_, on: all_.operations.get(on.operation),
    "operations.boxes": lambda all_, on: all_.operations.boxes(on.operation),
    "operations.undo_plan": lambda all_, on: all_.operations.undo_plan(on.operation),
}
SETTINGS: dict[str, Callable[[Services, Target], object]] = {
    "alerts.test": lambda all_, _: all_.alerts.test(),
    "alerts.waiting": lambda all_, _: all_.alerts.waiting(),
    "alerts.receivers": lambda all_, _: all_.alerts.receivers(),
    "alerts.webhooks": lambda all_, _: all_.alerts.webhooks.all(),
}


def came(do: Callable[[Services, Target], object], services: Services, on: Target) -> str:
    """Return what came of it: "done" also where something else than role and scope stands against it."""
    try:
        do(services, on)
    except (ForbiddenError, NotFoundError) as error:
        return type(error).__name__
    except CloudError:
        return "done"
    return "done"


@pytest.mark.parametrize("what", [*CHANGES, *LOOKS])
def test_what_is_out_of_scope_does_not_exist(store: ControllerStore, things: dict[str, Target], what: str) -> None:
    do = {**CHANGES, **LOOKS}[what]
    for role in (Role.OPERATOR, Role.ADMIN):
        hall = person(store, role, "site=hall")
        assert came(do, hall, things[YARD]) == "NotFoundError"
        assert came(do, hall, things["both"]) == "NotFoundError"
    assert came(do, person(store, scope="site=hall"), things[HALL]) == "done"
    assert came(do, person(store, scope="site=yard"), things[YARD]) == "done"


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("what", [*CHANGES, *LOOKS, *SETTINGS])
def test_what_each_role_may_do(store: ControllerStore, things: dict[str, Target], role: Role, what: str) -> None:
    do = {**CHANGES, **LOOKS, **SETTINGS}[what]
    least = Role.OPERATOR if what in CHANGES else Role.ADMIN if what in SETTINGS else Role.VIEWER
    expected = "done" if role.rank >= least.rank else "ForbiddenError"
    assert came(do, person(store, role), things[HALL]) == expected


@pytest.mark.parametrize("what", SETTINGS)
def test_the_webhook_is_for_those_who_see_all_boxes(
    store: ControllerStore, things: dict[str, Target], what: str
) -> None:
    assert came(SETTINGS[what], person(store, scope="site=hall"), things[HALL]) == "ForbiddenError"


def test_every_method_of_the_services_is_in_these_tables() -> None:
    lists = {"alerts.unsilenced", "operations.list", "operations.seen", "operations.start", "operations.preview_limits"}
    lists |= {"alerts.causes", "alerts.silence_cause", "operations.pods"}
    lists |= {"operations.preview_sharing", "operations.with_container", "operations.limits_steps"}
    lists |= {f"enrolment.{one}" for one in ("tokens", "token_count", "attempts", "attempt_count")}
    parts = {"alerts": Alerts, "evidence": EvidenceService, "enrolment": EnrolmentManager, "operations": Operations}
    public = {f"{name}.{one}" for name, part in parts.items() for one in vars(part) if not one.startswith("_")}
    assert public == {*CHANGES, *LOOKS, *SETTINGS, *lists, "alerts.alarm_seen"}, "the last one has a test of its own"


def test_alerts_of_one_cause_are_counted_and_silenced_in_scope_alone(
    store: ControllerStore, things: dict[str, Target]
) -> None:
    assert things
    mine = person(store, Role.OPERATOR, "site=hall")
    assert [(cause.number, cause.silenced) for cause in mine.alerts.causes()] == [(1, 0)]
    assert (mine.alerts.unsilenced(), person(store).alerts.unsilenced()) == (1, 3)
    assert mine.alerts.silence_cause(AlertKind.OFFLINE, "", for_s=60) == 1
    silenced = {alert.box for alert in person(store).alerts.list() if alert.alert.silenced_until_s}
    assert silenced == {HALL}
    assert (mine.alerts.unsilenced(), person(store).alerts.unsilenced()) == (0, 2)
    offline = {cause.kind: (cause.number, cause.silenced) for cause in person(store).alerts.causes()}[AlertKind.OFFLINE]
    assert offline == (3, 1)
    with pytest.raises(ForbiddenError):
        person(store, Role.VIEWER).alerts.silence_cause(AlertKind.OFFLINE, "", for_s=60)


def test_lists_have_what_is_in_scope_alone(store: ControllerStore, things: dict[str, Target]) -> None:
    limits = LimitsPatch(namespace="apps", app="asr", container="main", memory_units=4)
    for scope, box in (("site=hall", HALL), ("site=yard", YARD), ("site!=hall", YARD)):
        mine, own = person(store, scope=scope), things[box]
        assert [one.box for one in mine.alerts.list()] == [box]
        assert mine.alerts.unsilenced() == 1
        assert [one.attempt.id for one in mine.enrolment.attempts()] == [own.attempt]
        assert [one.digest[:12] for one in mine.enrolment.tokens()] == [own.token]
        assert [one.operation.id for one in mine.operations.list()] == [own.operation]
        (of_own,) = mine.operations.boxes(own.operation).boxes
        assert mine.operations.seen(BoxFilter()) == BoxSet.of([of_own.box.device])
        assert mine.operations.limits_steps(limits, BoxFilter()).not_asked == 1
    whole = person(store)
    assert whole.operations.limits_steps(limits, BoxFilter()).not_asked == 2
    assert [one.box for one in whole.alerts.list()] == ["", YARD, HALL]
    assert (whole.alerts.unsilenced(), len(whole.operations.list()), len(whole.enrolment.tokens())) == (3, 3, 2)


def test_an_operation_with_a_forgotten_box_is_in_no_scope(store: ControllerStore, things: dict[str, Target]) -> None:
    Fleet(store, clock=lambda: NOW_S, by="anna").forget(HALL)
    assert person(store, scope="site=hall").operations.list() == []
    assert person(store).operations.get(things[HALL].operation)


def test_an_alarm_is_marked_as_seen_by_who_may_change_its_box(
    store: ControllerStore, things: dict[str, Target]
) -> None:
    with store.write() as tx:
        (box,) = tx.boxes.with_name_prefix(HALL)
        tx.notes.alarm("box.AHEAD", device=box, text="ahead", now_s=NOW_S)
        (alert,) = tx.alerts.add([alert_row(box, kind="alarm", about="box.AHEAD", open_key="alarm")])
    assert things
    for refused, access in ((NotFoundError, "site=yard"), (ForbiddenError, "")):
        role = Role.VIEWER if refused is ForbiddenError else Role.ADMIN
        with pytest.raises(refused):
            person(store, role, access).alerts.alarm_seen(alert)
    person(store, Role.OPERATOR, "site=hall").alerts.alarm_seen(alert)
    with store.read() as tx:
        assert tx.notes.alarms() == []


def test_a_token_takes_no_box_out_of_the_scope_of_an_operator(
    store: ControllerStore, things: dict[str, Target]
) -> None:
    assert things
    moving = TokenRequest(lasts_s=60, only_for=HALL, labels={"site": "yard"})
    with pytest.raises(ForbiddenError, match="move a box out of your scope"):
        person(store, Role.OPERATOR, "site=hall").enrolment.make(moving)
    assert person(store, Role.ADMIN, "site=hall").enrolment.make(moving)
    with pytest.raises(CloudError, match="outside of the boxes"):
        person(store, Role.OPERATOR, "site=hall").enrolment.make(TokenRequest(lasts_s=60, labels={"site": "yard"}))


def test_an_attempt_names_no_box_out_of_scope(store: ControllerStore, things: dict[str, Target]) -> None:
    Fleet(store, clock=lambda: NOW_S, by="anna").label(HALL, {"site": "yard"})
    (attempt,) = person(store, scope="site=hall").enrolment.attempts()
    assert (attempt.attempt.id, attempt.box) == (things[HALL].attempt, "")


def test_alerts_are_searched_filtered_and_paged_by_the_database(store: ControllerStore) -> None:
    device = device_id("0" * 15 + "1")
    box = EnrolledBox(device=device, enrolment=1, public="A" * 43, instance="ab", name="50%-off")
    with store.write() as tx:
        add_box(tx, box, Author("setup", NOW_S))
        for number in range(5):
            over = {"open_key": None, "resolved_at_s": NOW_S} if number < 2 else {"open_key": f"k{number}"}
            told = {"firing_at_s": None} if number == 4 else {}
            tx.alerts.add([alert_row(device, kind="drift", text=f"limits/{number}", **over, **told)])
        tx.alerts.add([alert_row("", kind="alarm", about="broker.DROPS", text="x_y dropped")])
    alerts = person(store).alerts

    def numbers(where: AlertFilter, *, before: int = 0, limit: int = 9) -> list[int]:
        return [one.alert.number for one in alerts.list(where=where, before=before, limit=limit)]

    every = AlertFilter(over=None)
    assert numbers(AlertFilter()) == [6, 4, 3], "one that waits has not fired"
    assert numbers(AlertFilter(over=True)) == [2, 1]
    assert numbers(every, limit=2) == [6, 4]
    assert numbers(every, limit=2, before=4) == [3, 2]
    assert numbers(AlertFilter(over=None, search="LIMITS/1")) == [2]
    assert numbers(AlertFilter(search="50%")) == [4, 3]
    assert numbers(AlertFilter(search="x_y")) == numbers(AlertFilter(search="drops")) == [6]
    assert numbers(AlertFilter(search="%")) == [4, 3]
    assert numbers(AlertFilter(kind="drift", search="dropped")) == []
