"""The results of audited changes are what came of them by now; entries of earlier versions are read too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kits.auditsite import DEVICE, HALL, LATER_S, SPREAD, AuditSite, audit_site
from kits.people import LOCAL

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.fleet.operations.outcomes import settle_commands
from edgegpu_cloud.fleet.specs import ContainerLimits, SharingSettings
from edgegpu_cloud.store.operations.records import BoxOutcome, OperationBox
from edgegpu_cloud.store.records import AuditFilter, Json
from edgegpu_cloud.store.rollouts.records import RolloutState
from edgegpu_sync.messages.uplink import ItemState
from edgegpu_sync.states import CommandState


@pytest.fixture
def site(tmp_path: Path) -> AuditSite:
    return audit_site(tmp_path / "cloud")


class TestResults:
    """What came of a change, as it is read when the entry is shown."""

    def of_spec(self, site: AuditSite) -> tuple[str, str]:
        result = site.entry(AuditKind.BOX_SPEC).result
        return result.state.value, result.text

    def test_of_requested_settings(self, site: AuditSite) -> None:
        site.fleet.set_settings(HALL, SharingSettings(policy="spread", unit_mib=512))
        assert self.of_spec(site) == ("waiting", "")
        site.report(policy={"rev": 1, "hash": "0" * 16, "retry": 0, "state": "Open"})
        assert self.of_spec(site) == ("working", "")
        site.settle("policy", 1, ItemState.APPLIED)
        assert self.of_spec(site) == ("waiting", ""), "the other item has not ended"
        site.settle("unit_size", 1, ItemState.REJECTED, code="NO_ROOM", text="pods hold more")
        assert self.of_spec(site) == ("rejected", "unit_size: NO_ROOM: pods hold more")
        assert site.entry(AuditKind.BOX_SPEC).result.at_s == site.office.clock() + 4

    def test_of_limits(self, site: AuditSite) -> None:
        site.office.clock.now_s = LATER_S
        site.report()
        limits = ContainerLimits(namespace="default", app="asr", container="main", memory_units=4, core=1)
        rev = site.fleet.set_limits(HALL, limits).rev
        name = "app_limits/default/asr/main"
        entry = site.entry(AuditKind.BOX_SPEC)
        assert entry.after is not None
        assert entry.after[name]["memory_units"] == 4
        site.settle(name, rev, ItemState.APPLIED)
        assert self.of_spec(site) == ("applied", "")
        site.fleet.set_limits(HALL, replace(limits, memory_units=9))
        newest = site.entry(AuditKind.BOX_SPEC)
        assert newest.before is not None
        assert (newest.before[name]["memory_units"], newest.result.state.value) == (4, "waiting")
        site.fleet.forget_limits(HALL, "default", "asr")
        taken_back, replaced, applied = site.fleet.audit(AuditFilter(what="box.spec"))
        assert [one.result.state.value for one in (taken_back, replaced, applied)] == ["done", "replaced", "applied"]
        assert taken_back.after == {}

    def test_of_a_request_from_before_settlements_were_kept(self, site: AuditSite) -> None:
        site.fleet.set_settings(HALL, SPREAD)
        site.fleet.set_settings(HALL, SharingSettings(policy="best-fit"))
        newest, older = site.fleet.audit(AuditFilter(what="box.spec"))
        assert [one.result.state.value for one in (newest, older)] == ["waiting", "not_known"]

    def test_of_requests_to_a_box_that_is_forgotten(self, site: AuditSite) -> None:
        site.fleet.set_settings(HALL, SPREAD)
        id_ = site.fleet.command(HALL, "doctor.run", {})
        site.fleet.forget(HALL)
        assert self.of_spec(site) == ("not_known", "")
        command = site.entry(AuditKind.COMMAND)
        assert (command.detail, command.box, command.result.state.value) == ({"id": id_}, "", "not_known")
        assert [one.device for one in site.fleet.audit(AuditFilter(device=DEVICE))] == [DEVICE] * 4

    def test_of_commands_and_operations(self, site: AuditSite) -> None:
        site.fleet.command(HALL, "doctor.run", {})
        operation = site.start_operation()
        with site.office.store.write() as tx:
            (command,) = tx.commands.open(DEVICE)
            tracked = replace(command.tracked, state=CommandState.FAILED, code="ERROR", text="no doctor")
            ended = replace(command, tracked=tracked, ended_at_s=7.0)
            tx.commands.put([ended])
            box = OperationBox(operation=operation, device=DEVICE, outcome=BoxOutcome.STORED, command=ended.id)
            tx.operations.put([box])
            settle_commands(tx, [ended])
        result = site.entry(AuditKind.COMMAND).result
        assert (result.state.value, result.text, result.at_s) == ("failed", "ERROR: no doctor", 7.0)
        result = site.entry(AuditKind.OPERATION).result
        assert (result.state.value, result.text) == ("rejected", "applied on 0 of 1 box")

    def test_of_rollouts(self, site: AuditSite) -> None:
        number = site.start_rollout()
        for state, shown in ((RolloutState.PAUSED, "paused"), (RolloutState.RETURNED, "returned")):
            with site.office.store.write() as tx:
                rollout = tx.rollouts.get(number)
                assert rollout is not None
                tx.rollouts.put(replace(rollout, state=state))
            result = site.entry(AuditKind.ROLLOUT_STARTED).result
            assert (result.state.value, result.text) == (shown, "applied on 0 of 1 box")

    def test_of_what_the_last_admin_keeps_from(self, site: AuditSite) -> None:
        site.add_person()
        with pytest.raises(CloudError):
            site.people.disable("bea", by=LOCAL)
        result = site.entry(AuditKind.PERSON_DISABLED).result
        assert result.state.value == "refused"
        assert result.text.startswith("cannot change bea so")


class TestOldEntries:
    """Entries of versions that had another form of them."""

    def test_of_a_document_the_items_of_its_revision_and_what_came_of_them(self, site: AuditSite) -> None:
        spec = {"policy": {"rev": 1, "policy": "spread"}, "unit_size": {"rev": 3, "mib": 512}}
        site.settle("unit_size", 3, ItemState.APPLIED)
        entry = site.store_old("box.spec", rev=3, spec=spec)
        assert (entry.before, entry.after, entry.detail) == (None, {"unit_size": spec["unit_size"]}, {"rev": 3})
        assert entry.result.state.value == "applied"
        again = site.store_old("box.spec", rev=4, spec=spec)
        assert (again.after, again.detail["spec"], again.result.state.value) == (None, spec, "not_known")

    @pytest.mark.parametrize(
        ("what", "detail", "before", "after", "rest"),
        [
            ("box.labels", {"before": {"a": "1"}, "labels": {"a": "2"}}, {"a": "1"}, {"a": "2"}, {}),
            ("box.renamed", {"from": "a", "to": "b"}, {"name": "a"}, {"name": "b"}, {}),
            (
                "rollout.paused",
                {"rollout": 1, "before": "RUNNING", "after": "PAUSED"},
                {"state": "RUNNING"},
                {"state": "PAUSED"},
                {"rollout": 1},
            ),
            ("person.role", {"person": "bea", "after": {"a": 1}, "result": "done"}, None, {"a": 1}, {"person": "bea"}),
            ("token.made", {"token": "ab"}, None, None, {"token": "ab"}),
            ("made.up", {}, None, None, {}),
        ],
    )
    def test_others(
        self, site: AuditSite, what: str, detail: Json, before: Json | None, after: Json | None, rest: Json
    ) -> None:
        entry = site.store_old(what, **detail)
        assert (entry.before, entry.after, entry.detail) == (before, after, rest)
        assert entry.result.state.value == "done"

    @pytest.mark.parametrize("what", ["command", "operation", "rollout.started", "box.spec"])
    def test_one_without_what_it_was_about_has_no_known_result(self, site: AuditSite, what: str) -> None:
        nothing: dict[str, Any] = {}
        assert site.store_old(what, **nothing).result.state.value == "not_known"
