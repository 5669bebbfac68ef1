"""What somebody else has set after a person has looked is not overwritten: by a change of many boxes, by a rollout."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from kits.console import ConsoleSite
from kits.consolepages import fields
from kits.details import box, card, pod, reported
from kits.stores import open_store

from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import set_spec
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.listing import EVERY_BOX
from edgegpu_cloud.fleet.operations.box_set import BoxSet
from edgegpu_cloud.fleet.operations.operations import Operations
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.fleet.specs import ContainerLimits, SharingSettings, with_limits
from edgegpu_cloud.rollouts.rollouts import RolloutRequest, Rollouts
from edgegpu_cloud.rollouts.runner import RolloutRunner
from edgegpu_cloud.rollouts.strategy import RolloutStrategy, WaveSize
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.records import Json
from edgegpu_cloud.store.rollouts.records import RolloutBoxRecord, RolloutBoxState
from edgegpu_sync.ids import DeviceId

ARGS: Json = {"namespace": "default", "app": "asr", "container": "main", "memory_units": 7, "core": 1}
CHANGE: Json = {"kind": "limits", **ARGS}
QUERY = {"kind": "limits", "app": "default/asr", "container": "main", "memory": "7", "core": "1", "filled": "yes"}
FORM = {"what": "limits", "app": "asr", "container": "main", "memory": "7", "core": "1", "canary": "0", "waves": "100%"}
HELD = "cannot change default/asr/main on hall-1: anna has set 5 units, core 1 meanwhile"
AT_ONCE = RolloutStrategy(canary=0, sizes=(WaveSize(100, percent=True),))
B = RolloutBoxState


@pytest.fixture
def site(store_url: str) -> Iterator[ConsoleSite]:
    """Return a console on each engine."""
    store = open_store(store_url)
    yield ConsoleSite(store)
    store.close()


@pytest.fixture(autouse=True)
def devices(site: ConsoleSite) -> Sequence[DeviceId]:
    """Return two connected boxes, each its own cluster."""
    found = [site.add(number, f"hall-{number}", site="hall") for number in (1, 2)]
    for number, device in enumerate(found, start=1):
        said = box(f"hall-{number}", (card("0"),), {"u1": pod("asr-0", ("main", "0", 4, 1))})
        site.report(device, reported(said, cluster=f"{number:08d}"))
        site.connect(device)
    return found


def limits(units: int) -> ContainerLimits:
    return ContainerLimits(**{**ARGS, "memory_units": units})


def sets(site: ConsoleSite, by: str, units: int) -> None:
    """Let a person set the limits on the first box."""
    Fleet(site.store, clock=site.clock, by=by).set_limits("hall-1", limits(units))


def stands(site: ConsoleSite, devices: Sequence[DeviceId]) -> list[int]:
    """Return the units that are requested of each box."""
    fleet = Fleet(site.store, clock=site.clock, by="anna")
    return [one.memory_units for device in devices for one in fleet.spec(device).app_limits]


def operations(site: ConsoleSite) -> Operations:
    return Operations(site.store, clock=site.clock, access=Access("otto", Role.OPERATOR))


def run(site: ConsoleSite) -> dict[str, tuple[str, str]]:
    """Store the last operation; return outcome and text of each box."""
    runner = OperationRunner(site.store, clock=site.clock)
    while runner.step():
        pass
    [last] = operations(site).list(limit=1)
    return {one.name: (one.box.outcome.value, one.box.text) for one in operations(site).boxes(last.operation.id).boxes}


class TestOperations:
    def test_a_box_that_somebody_has_changed_since_is_refused_and_the_others_go_on(
        self, site: ConsoleSite, devices: Sequence[DeviceId]
    ) -> None:
        sets(site, "anna", 3)
        seen = operations(site).seen(EVERY_BOX)
        sets(site, "anna", 5)
        operations(site).start(OperationKind.LIMITS, ARGS, where=EVERY_BOX, expect=BoxSet.read(seen.text))
        assert run(site) == {"hall-1": ("REFUSED", HELD), "hall-2": ("STORED", "")}
        assert stands(site, devices) == [5, 7]

    def test_a_change_between_the_press_and_its_turn_counts_too(
        self, site: ConsoleSite, devices: Sequence[DeviceId]
    ) -> None:
        seen = operations(site).seen(EVERY_BOX)
        operations(site).start(OperationKind.LIMITS, ARGS, where=EVERY_BOX, expect=seen)
        sets(site, "anna", 5)
        assert run(site)["hall-1"] == ("REFUSED", HELD)
        assert stands(site, devices) == [5, 7]

    def test_a_change_that_is_being_written_while_a_person_looks_is_none_that_they_have_seen(
        self, site: ConsoleSite, devices: Sequence[DeviceId]
    ) -> None:
        with site.store.write() as tx:
            held = tx.boxes.get(devices)[devices[0]]
            wanted = partial(with_limits, limits=limits(5), cluster="00000001")
            set_spec(tx, held, wanted, Author("anna", site.now_s))
            with ThreadPoolExecutor(1) as other:
                seen = other.submit(operations(site).seen, EVERY_BOX).result(timeout=60)
        operations(site).start(OperationKind.LIMITS, ARGS, where=EVERY_BOX, expect=seen)
        assert run(site)["hall-1"] == ("REFUSED", HELD)

    def test_what_was_seen_and_what_is_another_thing_stop_nothing(
        self, site: ConsoleSite, devices: Sequence[DeviceId]
    ) -> None:
        sets(site, "anna", 5)
        seen = operations(site).seen(EVERY_BOX)
        anna = Fleet(site.store, clock=site.clock, by="anna")
        anna.set_settings("hall-1", SharingSettings(policy="spread"))
        anna.set_limits("hall-1", ContainerLimits(**{**ARGS, "app": "ocr"}))
        anna.label("hall-2", {"rack": "3"})
        operations(site).start(OperationKind.LIMITS, ARGS, where=EVERY_BOX, expect=seen)
        assert {outcome for outcome, _ in run(site).values()} == {"STORED"}
        assert [one.memory_units for one in anna.spec(devices[0]).app_limits if one.app == "asr"] == [7]

    def test_their_own_change_stops_nobody(self, site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
        seen = operations(site).seen(EVERY_BOX)
        sets(site, "otto", 5)
        operations(site).start(OperationKind.LIMITS, ARGS, where=EVERY_BOX, expect=seen)
        assert {outcome for outcome, _ in run(site).values()} == {"STORED"}
        operations(site).start(OperationKind.LIMITS, {**ARGS, "core": 2}, where=EVERY_BOX, expect=seen)
        assert {outcome for outcome, _ in run(site).values()} == {"STORED"}
        assert stands(site, devices) == [7, 7]

    def test_who_has_seen_nothing_sets_what_they_ask_for(self, site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
        sets(site, "anna", 5)
        operations(site).start(OperationKind.LIMITS, ARGS, where=EVERY_BOX, expect=BoxSet.of(devices))
        run(site)
        assert stands(site, devices) == [7, 7]

    def test_the_page_carries_what_was_seen(self, site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
        client = site.client("otto")
        page = client.get("/operations/new", params={**QUERY, "box": list(devices)})
        sets(site, "anna", 5)
        started = client.post("/operations", data=fields(page.text, "/operations") | {"typed": "2"})
        assert started.status_code == 303
        run(site)
        shown = client.get(started.headers["location"]).text
        assert "anna has set 5 units, core 1 meanwhile" in shown
        assert "REFUSED" in shown
        assert stands(site, devices) == [5, 7]

    def test_the_api_gives_what_was_seen_and_takes_it(self, site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
        client = site.api("otto")
        for target in ({"all": True}, {"devices": list(devices)}):
            seen = client.post("/operations/preview", json={"change": CHANGE, **target}).json()["seen"]
            sets(site, "anna", 5)
            made = client.post("/operations", json={"change": CHANGE, "expect": seen, **target})
            assert made.status_code == 202, made.text
            run(site)
            [held] = client.get(f"/operations/{made.json()['id']}/boxes?outcome=REFUSED").json()["items"]
            assert (held["name"], held["text"]) == ("hall-1", HELD)
            sets(site, "anna", 4)
        assert client.post("/operations", json={"change": CHANGE, "expect": "x", "all": True}).status_code == 422
        site.add(3, "hall-3")
        assert client.post("/operations", json={"change": CHANGE, "expect": seen, "all": True}).status_code == 409


class TestRollouts:
    def boxes(self, site: ConsoleSite, number: int) -> Mapping[str, RolloutBoxRecord]:
        runner = RolloutRunner(site.store, clock=site.clock)
        for _ in range(5):
            runner.step()
        return {one.name: one for one in site.rollouts().boxes(number)}

    def rollouts(self, site: ConsoleSite) -> Rollouts:
        return Rollouts(site.store, clock=site.clock, access=Access("otto", Role.OPERATOR))

    def request(self) -> RolloutRequest:
        return RolloutRequest(change=limits(7), strategy=AT_ONCE)

    def test_a_box_that_somebody_has_changed_since_is_skipped_and_keeps_it(
        self, site: ConsoleSite, devices: Sequence[DeviceId]
    ) -> None:
        mine = self.rollouts(site)
        seen = mine.preview(self.request()).seen
        sets(site, "anna", 5)
        number = mine.start(self.request(), expect=BoxSet.read(seen))
        found = self.boxes(site, number)
        assert (found["hall-1"].state, found["hall-1"].message) == (B.SKIPPED, HELD)
        assert found["hall-2"].state is B.CHANGING
        assert stands(site, devices) == [5, 7]
        mine.abort(number, returns=True)
        assert self.boxes(site, number)["hall-1"].state is B.SKIPPED
        assert stands(site, devices)[0] == 5

    def test_without_a_preview_it_is_what_stood_at_the_start(
        self, site: ConsoleSite, devices: Sequence[DeviceId]
    ) -> None:
        sets(site, "anna", 3)
        number = self.rollouts(site).start(self.request())
        sets(site, "anna", 5)
        assert self.boxes(site, number)["hall-1"].message == HELD
        assert stands(site, devices) == [5, 7]

    def test_what_was_seen_and_their_own_change_stop_nothing(
        self, site: ConsoleSite, devices: Sequence[DeviceId]
    ) -> None:
        sets(site, "anna", 5)
        mine = self.rollouts(site)
        seen = mine.preview(self.request()).seen
        Fleet(site.store, clock=site.clock, by="anna").set_settings("hall-1", SharingSettings(policy="spread"))
        sets(site, "otto", 6)
        found = self.boxes(site, mine.start(self.request(), expect=BoxSet.read(seen)))
        assert {one.state for one in found.values()} == {B.CHANGING}
        assert stands(site, devices) == [7, 7]

    def test_the_page_carries_what_was_seen_and_shows_who_has_changed_it(
        self, site: ConsoleSite, devices: Sequence[DeviceId]
    ) -> None:
        client = site.client("otto")
        page = client.get("/rollouts/new", params=FORM).text
        sets(site, "anna", 5)
        started = client.post("/rollouts", data=fields(page, "/rollouts") | {"typed": "2"})
        assert started.headers["location"] == "/rollouts/1"
        self.boxes(site, 1)
        assert "anna has set 5 units, core 1 meanwhile" in client.get("/rollouts/1").text
        assert stands(site, devices) == [5, 7]

    def test_the_api_carries_it(self, site: ConsoleSite, devices: Sequence[DeviceId]) -> None:
        client = site.api("otto")
        body = {"change": CHANGE, "all": True}
        seen = client.post("/rollouts/preview", json=body).json()["seen"]
        sets(site, "anna", 5)
        made = client.post(
            "/rollouts",
            json={**body, "strategy": {"canary": 0, "sizes": [{"number": 100, "percent": True}]}, "expect": seen},
        )
        assert made.status_code == 201, made.text
        assert self.boxes(site, made.json()["number"])["hall-1"].message == HELD
        assert stands(site, devices) == [5, 7]
