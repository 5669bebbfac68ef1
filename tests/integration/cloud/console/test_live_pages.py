"""What a box reports comes to the open pages that show it, without a reload, within two seconds."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from kits.browser import browser
from kits.details import box, card, pod, reported

from edgegpu_cloud.console.live import PROGRESS, StoreChanges
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.rollouts.runner import RolloutRunner
from edgegpu_cloud.store.rollouts.records import RolloutState

if TYPE_CHECKING:
    from kits.console import ConsoleSite
    from playwright.sync_api import Locator, Page

    from edgegpu_sync.ids import DeviceId

WITHIN_S = 2.0
ROUNDS = 3
_PATIENCE_MS = 60_000
"""How long the test looks for a change before it fails at once; what counts is the median of the rounds."""


@dataclass
class Watched:
    """An open page, how long it takes to load here, and after how many seconds it has shown each change."""

    page: Page
    loads_s: float
    took_s: list[float] = field(default_factory=list)

    def sees(self, what: Locator, since_s: float) -> None:
        """Wait until the page shows something that was reported at a time."""
        what.first.wait_for(state="attached", timeout=_PATIENCE_MS)
        self.took_s.append(time.monotonic() - since_s)

    @property
    def in_time(self) -> bool:
        """Whether changes came within two seconds, beside the time that this machine takes for the page itself."""
        return median(self.took_s) <= WITHIN_S + self.loads_s


class Hall:
    """Boxes of a rollout, of which one after the other reports that it has applied it, and what its app holds."""

    def __init__(self, site: ConsoleSite) -> None:
        self.site = site
        self.devices = [site.add(number, f"hall-{number}") for number in range(1, ROUNDS + 1)]
        for number in range(ROUNDS):
            self.report(number, units=1)
            site.connect(self.devices[number])
        body = {"change": {"kind": "sharing", "policy": "spread"}, "all": True, "strategy": {"canary": 0}}
        body["strategy"] = {"canary": 0, "sizes": [{"number": 100, "percent": True}]}
        self.rollout = int(site.api("otto").post("/rollouts", json=body).json()["number"])
        self.runner = RolloutRunner(site.store, clock=site.clock)
        self.runner.step()

    @property
    def first(self) -> DeviceId:
        return self.devices[0]

    def report(self, number: int, *, units: int, rev: int = 0) -> None:
        """Report what the app of a box holds, and where `rev` is one that the box has applied it."""
        pods = {"u1": pod("asr-5d98c8c9f7-zfpmp", ("main", "0", units, 1))}
        applied: dict[str, Any] = {"policy": {"state": "Applied", "rev": rev}} if rev else {}
        said = reported(box(f"hall-{number + 1}", (card("0"),), pods), cluster=f"{number:08d}", rev=rev, **applied)
        self.site.report(self.devices[number], said)

    def apply(self, number: int) -> None:
        """Let a box report that it has done what the rollout asks for, and the controller look."""
        self.report_applied(number)
        self.runner.step()

    def report_applied(self, number: int) -> None:
        """Let a box report that it has done what the rollout asks for."""
        row = next(one for one in self.site.rollouts().boxes(self.rollout) if one.device == self.devices[number])
        self.report(number, units=1, rev=row.rev)
        with self.site.store.write() as tx:
            told = tx.boxes.get([row.device])[row.device]
            tx.boxes.put([replace(told, observed_rev=row.rev, applied_rev=row.rev)])


def opened(stack: ExitStack, url: str, path: str) -> Watched:
    """Open a page in a browser of its own: a hidden tab is not live."""
    page = stack.enter_context(browser(url)).new_page()
    page.goto(url + path)
    begun_s = time.monotonic()
    with page.expect_response("**/live?*"):
        page.reload()
    return Watched(page, time.monotonic() - begun_s)


def test_a_changed_report_is_on_each_open_page_within_two_seconds(site: ConsoleSite, url: str) -> None:
    hall = Hall(site)
    paths = {"fleet": "/", "box": f"/boxes/{hall.first}", "apps": "/apps", "rollout": f"/rollouts/{hall.rollout}"}
    slow = {}
    for name, path in paths.items():
        with ExitStack() as stack:
            watched = opened(stack, url, path)
            for number in range(ROUNDS):
                since_s = time.monotonic()
                if name == "rollout":
                    hall.apply(number)
                    watched.sees(watched.page.get_by_role("link", name=f"{number + 1} applied"), since_s)
                    continue
                held = 10 + number
                hall.report(0, units=held)
                shown = {
                    "fleet": watched.page.get_by_text(f"{29 - held} of 29 units free"),
                    "box": watched.page.locator(f'[aria-label="Card 0: {held} of 29 units held, {29 - held} free"]'),
                    "apps": watched.page.locator("a.amount", has_text=f"{held} units"),
                }
                watched.sees(shown[name], since_s)
            if not watched.in_time:
                slow[name] = watched.took_s
        hall.report(0, units=1)
    assert slow == {}


def test_a_rollout_that_moves_on_is_told_though_no_box_changes_with_it(site: ConsoleSite) -> None:
    """The runner looks a second after a box's report: by then the page has drawn what was before."""
    hall, changes = Hall(site), StoreChanges(site.store)
    for number in range(ROUNDS):
        hall.report_applied(number)
        position, _ = changes(None)
        hall.runner.step()
        position, named = changes(position)
        assert named == [PROGRESS]
        assert changes(position)[1] == []
    assert site.rollouts().show(hall.rollout).state is RolloutState.DONE


def test_a_rollout_that_a_person_pauses_is_told(site: ConsoleSite) -> None:
    hall, changes = Hall(site), StoreChanges(site.store)
    position, _ = changes(None)
    site.rollouts().pause(hall.rollout)
    assert changes(position)[1] == [PROGRESS]


def test_a_change_of_many_boxes_that_ends_is_told(site: ConsoleSite) -> None:
    hall, changes = Hall(site), StoreChanges(site.store)
    body = {"change": {"kind": "sharing", "policy": "first-fit"}, "all": True}
    site.api("otto").post("/operations", json=body).raise_for_status()
    runner = OperationRunner(site.store, clock=site.clock)
    named: list[DeviceId] = []
    position, _ = changes(None)
    while runner.step():
        position, named = changes(position)
    assert hall.first not in named
    assert PROGRESS in named
