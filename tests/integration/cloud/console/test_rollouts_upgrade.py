"""A rollout of another version of the agent, from the form to its end: six boxes made of rules, and a console."""

import html
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from kits.console import ConsoleSite
from kits.consolepages import fields
from kits.modelbox import ModelBox
from kits.rolloutbed import EachCommit, RolloutBed
from starlette.testclient import TestClient

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.store.rollouts.records import RolloutBoxState, RolloutState
from edgegpu_sync.messages.telemetry import BoxHealth
from edgegpu_sync.states import CommandState, ResultCode
from edgegpu_sync.topics import TopicKind

B, R = RolloutBoxState, RolloutState
OLD, NEW = "0.2.0", "0.3.0"
RELEASE = {"version": NEW, "url": "https://example.com/edgegpu.tar.gz", "sha256": "ab" * 32, "signature": "A" * 86}
FORM = {"what": "upgrade", **RELEASE, "first": "box-1", "canary": "1", "waves": "5", "success": "80", "timeout": "45"}
NOT_WELL = (CommandState.ROLLED_BACK, ResultCode.ERROR, "edgegpu-agent did not come up: <b>exit 1</b>")
OP = "agent.upgrade"


class UpgradeBed:
    """Six boxes and a console: box-3 fails, box-5 runs the version already, box-6 is offline."""

    def __init__(self, folder: Path, url: str) -> None:
        self.bed = RolloutBed(folder, url=url, boxes=6)
        self.number = 0
        self.box(3).ends[OP] = NOT_WELL
        self.box(5).agent = NEW
        self.bed.connect_all()
        self.bed.network.cut_off(self.bed.devices[5])
        self.bed.settle(3)
        self.site = ConsoleSite(self.bed.store, now_s=self.bed.world.clock())
        self.client: TestClient = self.site.client("otto")

    def box(self, number: int) -> ModelBox:
        return self.bed.box(self.bed.devices[number - 1])

    def say_health(self, number: int, state: str) -> None:
        box = self.box(number)
        health = BoxHealth.model_validate({**box._up(), "state": state, "parts": ()})  # noqa: SLF001
        box.say(box.plain(TopicKind.HEALTH), health)
        self.bed.settle(3)

    def page(self, path: str, **params: str) -> str:
        self.site.now_s = self.bed.world.clock()
        return html.unescape(self.client.get(path, params=params).text)

    def start(self, **more: str) -> int:
        """Start it as a person does: the form, the preview, the number of boxes typed."""
        self.site.now_s = self.bed.world.clock()
        page = self.client.get("/rollouts/new", params={**FORM, **more})
        assert page.status_code == 200, page.text
        form = fields(page.text, "/rollouts")
        refused = self.client.post("/rollouts", data={**form, "typed": "5"})
        assert (refused.status_code, f'value="{NEW}"' in refused.text) == (400, True), "the form keeps what was typed"
        started = self.client.post("/rollouts", data={**form, "typed": "6"})
        assert started.status_code == 303
        self.number = int(started.headers["location"].removeprefix("/rollouts/"))
        return self.number  # PostgreSQL spends a number on what was refused

    def versions(self) -> list[str]:
        return [self.box(number).agent for number in range(1, 7)]

    def begun(self) -> list[int]:
        """Return how many upgrades each box has begun."""
        of = Counter(device for (device, _), times in self.bed.world.done.items() for _ in range(times))
        return [of[device] for device in self.bed.devices]

    def told(self) -> dict[str, tuple[RolloutBoxState, str]]:
        return {box.name: (box.state, box.message) for box in self.bed.rollouts.boxes(self.number)}


@pytest.fixture
def hall(tmp_path: Path, todays_url: str) -> Iterator[UpgradeBed]:
    made = UpgradeBed(tmp_path, todays_url)
    yield made
    made.bed.store.close()


def test_the_preview_has_the_waves_and_says_that_nothing_is_returned(hall: UpgradeBed) -> None:
    page = hall.page("/rollouts/new", **FORM)
    assert f"agent {NEW}" in page
    assert page.count("<li>") == 2
    assert "1 box offline now" in page
    assert "Start on 6 boxes" in page
    plan = page[page.index('id="plan"') :]
    assert "Boxes take no older version: an upgrade is not returned." in plan
    assert "goes back to its old one by itself, and counts as failed" in plan
    assert not hall.bed.rollouts.all()


def test_one_box_fails_one_runs_it_already_and_one_joins_later(hall: UpgradeBed) -> None:
    number = hall.start()
    hall.bed.until(lambda: hall.told()["box-6"][0] is B.AWAY)
    hall.bed.until(lambda: hall.bed.rollouts.show(number).states.get(B.APPLIED) == 4)
    hall.bed.settle(30)
    assert hall.bed.rollouts.show(number).state is R.RUNNING
    page = hall.page(f"/rollouts/{hall.number}")
    assert "offline when its turn came" in page
    assert "Abort, and give boxes back" not in page
    assert "Boxes take no older version: an upgrade is not returned." in page
    assert hall.versions() == [NEW, NEW, OLD, NEW, NEW, OLD]

    hall.bed.back(hall.bed.devices[5])
    hall.bed.to_the_end(number)

    view = hall.bed.rollouts.show(number)
    assert (view.state, view.states, view.strategy.timeout_s) == (R.DONE, {B.APPLIED: 5, B.FAILED: 1}, 2_700)
    assert hall.versions() == [NEW, NEW, OLD, NEW, NEW, NEW]
    assert hall.begun() == [1, 1, 1, 1, 0, 1], "what runs the version already is asked nothing"
    assert hall.told()["box-5"] == (B.APPLIED, f"version {NEW} runs there already")
    page = hall.page(f"/rollouts/{hall.number}")
    assert "edgegpu-agent did not come up" in page
    assert f"version {NEW} runs there already" in page


def test_a_failed_gate_stops_it_and_boxes_keep_what_they_have(hall: UpgradeBed) -> None:
    number = hall.start(success="100", first="box-1 box-3", canary="2", waves="2")
    hall.bed.to_the_end(number)

    view = hall.bed.rollouts.show(number)
    assert (view.state, view.returns) == (R.STOPPED, False)
    states = {name: state for name, (state, _) in hall.told().items()}
    cancelled = dict.fromkeys(("box-2", "box-4", "box-5", "box-6"), B.CANCELLED)
    assert states == {"box-1": B.APPLIED, "box-3": B.FAILED, **cancelled}
    hall.bed.settle(60)
    assert hall.versions() == [NEW, OLD, OLD, OLD, NEW, OLD], "box-1 keeps the new version, box-3 went back by itself"
    assert hall.begun() == [1, 0, 1, 0, 0, 0]
    page = hall.page(f"/rollouts/{hall.number}")
    assert "canary: 1 of 2 boxes failed, and 100 % have to succeed" in page
    assert "Stopped" in page


def test_a_failed_box_is_upgraded_by_another_rollout_that_asks_the_others_nothing(hall: UpgradeBed) -> None:
    hall.bed.network.connect(hall.box(6))
    number = hall.start(success="100", on_failure="pause", first="box-3", canary="1")
    hall.bed.until(lambda: hall.bed.rollouts.show(number).state is R.PAUSED)
    assert "<code>resume</code> goes on all the same" in hall.page(f"/rollouts/{hall.number}")
    form = {"csrf": "csrf-of-otto", "typed": "6"}
    refused = hall.client.post(f"/rollouts/{hall.number}/return", data=form)
    assert refused.status_code == 400
    assert "boxes take no older version of the agent" in refused.text
    assert "an older version is installed on the box" in refused.text
    with pytest.raises(CloudError, match="boxes take no older version of the agent"):
        hall.bed.rollouts.way_back(number)
    assert hall.client.post(f"/rollouts/{hall.number}/resume", data=form).status_code == 303
    hall.bed.to_the_end(number)
    assert hall.versions() == [NEW, NEW, OLD, NEW, NEW, NEW]

    hall.box(3).ends.clear()
    page = hall.client.get("/rollouts/new", params=FORM)
    again = hall.client.post("/rollouts", data=fields(page.text, "/rollouts") | {"typed": "6"})
    second = int(again.headers["location"].removeprefix("/rollouts/"))
    hall.bed.to_the_end(second)
    assert hall.bed.rollouts.show(second).states == {B.APPLIED: 6}
    assert hall.begun() == [1, 1, 2, 1, 0, 1], "the others ran it already"


def test_a_controller_that_is_killed_at_each_commit_asks_no_box_twice(hall: UpgradeBed) -> None:
    number = hall.start()
    killer = EachCommit(hall.bed)
    hall.bed.watcher = killer
    hall.bed.until(lambda: hall.bed.rollouts.show(number).states.get(B.APPLIED) == 4, within_s=4_000)
    hall.bed.back(hall.bed.devices[5])
    hall.bed.to_the_end(number)
    hall.bed.watcher = lambda _: None
    assert hall.bed.rollouts.show(number).states == {B.APPLIED: 5, B.FAILED: 1}
    assert hall.begun() == [1, 1, 1, 1, 0, 1]
    assert killer.kills >= 6


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"version": ""}, "cannot roll out this release: version: is not a version such as 1.2.3"),
        ({"version": "0.3.0 or so"}, "cannot roll out this release: version: is not a version such as 1.2.3"),
        ({"url": "http://example.com/edgegpu.tar.gz"}, "cannot roll out this release: url: is not an https:// URL"),
        ({"url": ""}, "cannot roll out this release: url"),
        ({"sha256": "AB" * 32}, "cannot roll out this release: sha256: is not a SHA-256"),
        ({"signature": "A" * 85}, "cannot roll out this release: signature: is not a signature"),
        ({"on_failure": "return"}, "cannot return an upgrade: boxes take no older version of the agent"),
        ({"timeout": "x"}, "the time of one box is 'x'"),
        ({"timeout": "99999"}, "the time of one box is '99999'"),
    ],
)
def test_a_release_that_no_box_takes_is_refused_and_the_form_stays(
    hall: UpgradeBed, wrong: dict[str, str], told: str
) -> None:
    given = {**FORM, **wrong}
    page = hall.client.get("/rollouts/new", params=given)
    text = html.unescape(page.text)
    assert (page.status_code, told in text, 'id="plan"' in text) == (400, True, False), text
    for name in RELEASE:
        assert f'name="{name}" value="{given[name]}"' in text
    assert '<input type="hidden" name="what" value="upgrade">' in text


def test_a_form_that_says_nothing_of_failures_stops_an_upgrade_and_returns_the_others(hall: UpgradeBed) -> None:
    for form, on_failure in ((FORM, "stop"), ({"what": "sharing", "policy": "spread"}, "return")):
        page = hall.client.get("/rollouts/new", params={**form, "on_failure": ""})
        started = hall.client.post("/rollouts", data=fields(page.text, "/rollouts") | {"typed": "6"})
        number = int(started.headers["location"].rsplit("/", 1)[1])
        assert hall.bed.rollouts.show(number).strategy.on_failure == on_failure


SOAK = {"canary": "2", "waves": "2", "soak": "10", "first": "box-1 box-2", "success": "100"}


def test_a_box_that_runs_another_version_in_the_soak_fails_the_gate(hall: UpgradeBed) -> None:
    number = hall.start(**SOAK)
    hall.bed.until(lambda: hall.bed.rollouts.show(number).states.get(B.APPLIED) == 2)
    assert hall.bed.rollouts.show(number).soaks_until_s is not None
    hall.bed.settle(5)
    assert hall.bed.rollouts.show(number).state is R.RUNNING

    hall.box(2).agent = OLD
    hall.box(2).say_birth()

    hall.bed.to_the_end(number)
    assert hall.bed.rollouts.show(number).state is R.STOPPED
    assert hall.told()["box-2"] == (B.FAILED, f"it runs version {OLD} by now")
    assert hall.begun() == [1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("before", ["ok", "bad"])
def test_a_box_that_is_not_well_since_the_upgrade_fails_the_gate(hall: UpgradeBed, before: str) -> None:
    hall.say_health(2, before)
    number = hall.start(**SOAK)
    hall.bed.until(lambda: hall.bed.rollouts.show(number).states.get(B.APPLIED) == 2)
    hall.say_health(1, "warn")
    hall.say_health(2, "bad")

    hall.bed.settle(5)
    if before == "bad":
        hall.bed.until(lambda: hall.begun()[3] == 1)
        assert hall.told()["box-2"][0] is B.APPLIED, "it was not well before"
        return
    hall.bed.to_the_end(number)
    assert hall.bed.rollouts.show(number).state is R.STOPPED
    assert {name: state for name, (state, _) in hall.told().items() if state is not B.CANCELLED} == {
        "box-1": B.APPLIED,
        "box-2": B.FAILED,
    }
    assert "not well since the upgrade" in hall.page(f"/rollouts/{hall.number}")
