"""The audit: each kind of change has what was before and after, and its result is what came of it by now."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import ANY

import pytest
from kits.auditsite import DEVICE, HALL, SPREAD, UPLOAD, AuditSite, audit_site
from kits.people import LOCAL

import edgegpu_cloud
from edgegpu_cloud.console.pages.audit import groups, kind_names
from edgegpu_cloud.enrolment.manager import TokenRequest
from edgegpu_cloud.errors import NotFoundError
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.fleet.specs import SharingSettings
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.records import AuditFilter, Json, RequestState
from edgegpu_sync.ids import DeviceId

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def site(tmp_path: Path) -> AuditSite:
    return audit_site(tmp_path / "cloud")


BEA: Json = {"role": "admin", "scope": "", "disabled": False, "language": ""}
BOX: Json = {"name": HALL, "labels": {"site": "hall", "rack": "3"}, "host": "", "state": "ENROLLED", "enrolment": 1}
COMMAND: Json = {"op": "logs.collect", "args": {"url": "https://logs.example.com/in", "max_mib": 1}, "wait_s": 3_600}
RUNNING: Json = {"state": "RUNNING"}
PAUSED: Json = {"state": "PAUSED"}


@dataclass(frozen=True)
class Row:
    """What is done, and the entry that comes of it."""

    do: Callable[[AuditSite], object]
    before: Json
    after: Json
    result: str = "done"


def in_turn(*steps: Callable[[AuditSite], object]) -> Callable[[AuditSite], object]:
    """Return a function that does one thing after the other."""
    return lambda site: [step(site) for step in steps]


K = AuditKind
TABLE: dict[AuditKind, Row] = {
    K.ALARM_SEEN: Row(
        in_turn(lambda s: s.raise_alarm(), lambda s: s.fleet.alarm_seen(1)), {"seen_by": ""}, {"seen_by": "anna"}
    ),
    K.ALERT_SILENCED: Row(
        in_turn(lambda s: s.raise_alert(), lambda s: s.alerts.silence(1, for_s=60)),
        {"until_s": 0.0, "silenced_by": ""},
        {"until_s": ANY, "silenced_by": "anna"},
    ),
    K.BOX_CLUSTER: Row(
        in_turn(lambda s: s.reports("c1"), lambda s: s.reports("c2"), lambda s: s.fleet.set_cluster(HALL, accept=True)),
        {"cluster": "c1"},
        {"cluster": "c2"},
    ),
    K.BOX_CONFIRMED: Row(
        in_turn(
            lambda s: s.fleet.set_settings(HALL, SPREAD),
            lambda s: s.restore(),
            lambda s: s.fleet.confirm_restored(HALL),
        ),
        {"restored": True, "rev": 1},
        {"restored": False, "rev": 2},
    ),
    K.BOX_ENROLLED: Row(lambda _: None, {}, BOX),
    K.BOX_FORGOTTEN: Row(lambda s: s.fleet.forget(HALL), BOX, {}),
    K.BOX_LABELS: Row(lambda s: s.fleet.label(HALL, {"site": "", "rack": "4"}), BOX["labels"], {"rack": "4"}),
    K.BOX_RENAMED: Row(lambda s: s.fleet.rename(HALL, "yard-1"), {"name": HALL}, {"name": "yard-1"}),
    K.BOX_REVOKED: Row(lambda s: s.fleet.revoke(HALL), {"state": "ENROLLED"}, {"state": "REVOKED"}),
    K.BOX_BLOCKED: Row(lambda s: s.fleet.set_blocked(HALL, blocked=True), {"state": "ENROLLED"}, {"state": "BLOCKED"}),
    K.BOX_UNBLOCKED: Row(
        in_turn(lambda s: s.fleet.set_blocked(HALL, blocked=True), lambda s: s.fleet.set_blocked(HALL, blocked=False)),
        {"state": "BLOCKED"},
        {"state": "ENROLLED"},
    ),
    K.BOX_SPEC: Row(
        in_turn(
            lambda s: s.fleet.set_settings(HALL, SharingSettings(policy="best-fit", unit_mib=512)),
            lambda s: s.fleet.set_settings(HALL, SPREAD),
        ),
        {"policy": {"rev": 1, "policy": "best-fit"}},
        {"policy": {"rev": 2, "policy": "spread"}},
        "waiting",
    ),
    K.COMMAND: Row(lambda s: s.fleet.command(HALL, "logs.collect", UPLOAD), {}, COMMAND, "waiting"),
    K.COMMAND_CANCELLED: Row(
        lambda s: s.fleet.cancel(s.fleet.command(HALL, "doctor.run", {})),
        {"cancelled": False},
        {"cancelled": True},
        "waiting",
    ),
    K.ENROLMENT_APPROVED: Row(
        lambda s: s.enrolment.decide(s.let_wait(), RequestState.APPROVED), {"state": "WAITING"}, {"state": "APPROVED"}
    ),
    K.ENROLMENT_REFUSED: Row(
        lambda s: s.enrolment.decide(s.let_wait(), RequestState.REFUSED), {"state": "WAITING"}, {"state": "REFUSED"}
    ),
    K.KEYS_ADDED: Row(lambda s: s.add_keys(), {"version": 1}, {"version": 2}),
    K.OPERATION: Row(
        lambda s: s.start_operation(),
        {},
        {"kind": "command", "args": {**COMMAND, "wait_s": ANY}, "boxes": 1},
        "working",
    ),
    K.OPERATION_CANCELLED: Row(
        lambda s: s.operations.cancel(s.start_operation()),
        RUNNING,
        {"state": "CANCELLED", "cancelled_boxes": 1},
        "cancelled",
    ),
    K.PERSON_ADDED: Row(lambda s: s.add_person(), {}, BEA),
    K.PERSON_DISABLED: Row(
        in_turn(lambda s: s.add_person("anna"), lambda s: s.add_person(), lambda s: s.people.disable("bea", by=LOCAL)),
        {"disabled": False},
        {"disabled": True},
    ),
    K.PERSON_ENABLED: Row(
        in_turn(
            lambda s: s.add_person(role=Role.VIEWER),
            lambda s: s.people.disable("bea", by=LOCAL),
            lambda s: s.people.enable("bea", by=LOCAL),
        ),
        {"disabled": True},
        {"disabled": False},
    ),
    K.PERSON_LANGUAGE: Row(
        in_turn(lambda s: s.add_person(), lambda s: s.people.set_language("bea", "zh", by=LOCAL)),
        {"language": ""},
        {"language": "zh"},
    ),
    K.PERSON_LINK: Row(
        lambda s: s.people.create("bea", role=Role.VIEWER, by=LOCAL), {}, {"kind": "password", "lasts_s": 259_200}
    ),
    K.PERSON_PASSWORD: Row(
        lambda s: s.add_person(), {"password_at_s": 0.0}, {"password_at_s": ANY, "sessions_ended": 0}
    ),
    K.PERSON_REMOVED: Row(
        in_turn(lambda s: s.add_person(role=Role.VIEWER), lambda s: s.people.delete("bea", by=LOCAL)),
        {**BEA, "role": "viewer"},
        {},
    ),
    K.PERSON_ROLE: Row(
        in_turn(lambda s: s.add_person(role=Role.VIEWER), lambda s: s.people.set_role("bea", Role.OPERATOR, by=LOCAL)),
        {"role": "viewer"},
        {"role": "operator"},
    ),
    K.PERSON_SCOPE: Row(
        in_turn(lambda s: s.add_person(role=Role.VIEWER), lambda s: s.people.set_scope("bea", "site=hall", by=LOCAL)),
        {"scope": ""},
        {"scope": "site=hall"},
    ),
    K.PERSON_SESSION_REVOKED: Row(lambda s: s.end_session(), {"session": ANY, "address": "10.0.0.1"}, {}),
    K.PERSON_TOKEN_ADDED: Row(lambda s: s.add_token(), {}, {"name": "ci", "role": "viewer", "scope": "", "days": 7}),
    K.PERSON_TOKEN_REVOKED: Row(
        in_turn(lambda s: s.add_token(), lambda s: s.people.revoke_token("bea", "ci", by=LOCAL)),
        {"name": "ci", "role": "viewer", "scope": ""},
        {},
    ),
    K.ROLLOUT_ABORTED: Row(
        lambda s: s.rollouts.abort(s.start_rollout(), returns=True),
        {**RUNNING, "returns": False},
        {"state": "ABORTING", "returns": True},
        "working",
    ),
    K.ROLLOUT_PAUSED: Row(lambda s: s.pause_rollout(), RUNNING, PAUSED),
    K.ROLLOUT_RESUMED: Row(lambda s: s.rollouts.resume(s.pause_rollout()), PAUSED, RUNNING),
    K.ROLLOUT_STARTED: Row(
        lambda s: s.start_rollout(),
        {},
        {
            "kind": "sharing",
            "change": {"isolation": None, "policy": "spread", "exclude": None, "unit_mib": None},
            "boxes": 1,
        },
        "working",
    ),
    K.SIGN_IN: Row(lambda s: s.add_person(), {}, {}),
    K.SIGN_IN_REFUSED: Row(lambda s: s.refuse_sign_in(), {}, {}, "refused"),
    K.SIGN_OUT: Row(lambda s: s.people.sign_out(s.add_person()), {}, {}),
    K.TOKEN_MADE: Row(
        lambda s: s.enrolment.make(TokenRequest(lasts_s=60, uses=2, name="yard", labels={"site": "yard"})),
        {},
        {"uses": 2, "approval": False, "name": "yard", "expires_at_s": ANY, "labels": {"site": "yard"}},
    ),
    K.TOKEN_TAKEN_BACK: Row(
        lambda s: s.enrolment.take_back(s.enrolment.make(TokenRequest(lasts_s=60)).id),
        {"revoked": False},
        {"revoked": True},
    ),
    K.WEBHOOK_ADDED: Row(lambda s: s.add_webhook(), {}, {"host": "hooks.example.com"}),
    K.WEBHOOK_DISABLED: Row(
        lambda s: s.alerts.webhooks.disable(s.add_webhook(), disabled=True), {"disabled": False}, {"disabled": True}
    ),
    K.WEBHOOK_ENABLED: Row(
        lambda s: [s.alerts.webhooks.disable(one, disabled=off) for one in [s.add_webhook()] for off in (True, False)],
        {"disabled": True},
        {"disabled": False},
    ),
    K.WEBHOOK_REMOVED: Row(lambda s: s.alerts.webhooks.delete(s.add_webhook()), {"host": "hooks.example.com"}, {}),
}
OF_COMMANDS = {K.CONTROLLER_ADDED, K.STORE_MIGRATED, K.STORE_RESTORED}
"""What `edgegpu-cloud` alone does: `test_cli_controllers.py`, `_migrate.py` and `_backup.py` in
`tests/integration/cloud` look at it."""


def test_the_table_has_every_kind_of_change_and_each_has_a_name_on_the_page() -> None:
    assert {*TABLE, *OF_COMMANDS} == set(AuditKind)
    assert set(kind_names(str)) == set(AuditKind)
    assert {kind.partition(".")[0] for kind in AuditKind} == set(groups(str)), "what the page lets people choose"


def test_every_entry_is_made_in_one_place_which_asks_for_before_and_after() -> None:
    folder = Path(edgegpu_cloud.__file__).parent
    makers = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if re.search(r"(?<!class )\bAuditEntry\(", path.read_text())
    }
    assert makers == {"fleet/audit/entries.py"}


@pytest.mark.parametrize("kind", TABLE)
def test_each_change_has_what_was_before_and_after_and_what_came_of_it(site: AuditSite, kind: AuditKind) -> None:
    row = TABLE[kind]
    row.do(site)
    entry = site.entry(kind)
    assert (entry.before, entry.after) == (row.before, row.after)
    assert entry.result.state.value == row.result
    with site.office.store.read() as tx:
        stored = tx.notes.audits(limit=1_000)
    assert all({"before", "after"} <= one.detail.keys() for one in stored)
    assert "SECRET" not in repr(stored)
    assert "pw@" not in repr(stored)


def test_a_box_is_named_or_its_id_given(site: AuditSite) -> None:
    site.fleet.label(HALL, {"rack": "5"})
    assert [one.what for one in site.fleet.audit(AuditFilter(device=HALL))] == ["box.labels", "box.enrolled"]
    assert [one.box for one in site.fleet.audit(AuditFilter(device=DEVICE))] == [HALL, HALL]
    assert site.fleet.audit(AuditFilter(device="0" * 16)) == [], "the id of a box that was forgotten long ago"
    with pytest.raises(NotFoundError):
        site.fleet.audit(AuditFilter(device="yard"))
    assert DeviceId(site.fleet.audit(limit=1)[0].device) == DEVICE
