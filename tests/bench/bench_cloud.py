"""Measures a controller with thousands of boxes on real TLS connections: way back, pages' data, memory.

`EDGEGPU_BENCH_BOXES` says how many boxes, one size after the other: 1 000, 3 000 and 10 000 by default, 500 in CI.
`EDGEGPU_BENCH_CONTROLLERS` says how many controllers on PostgreSQL are compared with the largest number of boxes: one
and two by default, none where only the boxes are named. The figures of one controller on SQLite with the largest number
are judged; the others show how it grows.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.cloud.live import live_updates
from bench.cloud.site import CONTROLLER, FleetSite, fleet_site
from bench.figures import Figure, figure

from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.fleet.listing import BoxFilter, PageOrder
from edgegpu_cloud.fleet.operations.operations import Operations
from edgegpu_cloud.store.operations.records import BoxOutcome, OperationKind
from edgegpu_cloud.store.summaries.box_list import BoxSort

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BOXES, CONTROLLERS = (1_000, 3_000, 10_000), (1, 2)
IDLE_S, PAGES = 30.0, 200
CONNECT_S, BACK_S, APPLIED_S = 600.0, 300.0, 300.0
FULL_FLEET, FULL_LIMIT_S, LEAST_LIMIT_S = 10_000, 15.0, 3.0
"""A limit for all has 15 s with 10 000 boxes, fewer have less: 1 000 take 1.9 s, so 15 s would hide anything there."""


def limit_for_all_s(boxes: int) -> float:
    """Return within how many seconds a limit for so many boxes shall be stored as applied by all."""
    return min(FULL_LIMIT_S, max(LEAST_LIMIT_S, FULL_LIMIT_S * boxes / FULL_FLEET))


def run(place: Path) -> list[Figure]:
    """Measure with each number of boxes, then with each number of controllers; the largest on SQLite is judged."""
    named = _numbers("EDGEGPU_BENCH_BOXES")
    *smaller, largest = named or BOXES
    found: list[Figure] = []
    for boxes in smaller:
        found += _only_said(f"{boxes} boxes", _measured_with(f"{boxes} boxes", boxes))
    found += run_judged(place)
    for controllers in _numbers("EDGEGPU_BENCH_CONTROLLERS") or (() if named else CONTROLLERS):
        title = f"{largest} boxes, PostgreSQL, controllers: {controllers}"
        found += _only_said(title, _measured_with(title, largest, controllers))
    return found


def run_judged(_: Path) -> list[Figure]:
    """Measure what is judged alone: the largest number of boxes on one controller."""
    largest = (_numbers("EDGEGPU_BENCH_BOXES") or BOXES)[-1]
    return _measured_with(f"{largest} boxes", largest)


def _numbers(variable: str) -> list[int]:
    return sorted(map(int, os.environ.get(variable, "").split()))


def _only_said(title: str, rows: Iterable[Figure]) -> list[Figure]:
    return [{**row, "name": f"{title}: {row['name']}", "judged": False} for row in rows]


def _measured_with(title: str, boxes: int, controllers: int = 0) -> list[Figure]:
    with (
        tempfile.TemporaryDirectory(prefix="eg-") as folder,
        fleet_site(Path(folder), boxes=boxes, controllers=controllers) as site,
    ):
        if controllers:
            site.wait(site.all_share, what="all controllers share the boxes", timeout_s=CONNECT_S)
        found = _measured(site)
    for row in found:
        _say(f"{title}: {row['name']}: median {row['median']:g} p99 {row['p99']:g} {row['unit']}")
    return found


def _measured(site: FleetSite) -> list[Figure]:
    with _Spent(site, "all connect"):
        connect_s = site.wait(site.all_online, what="all boxes are connected", timeout_s=CONNECT_S)
    with _Spent(site, f"idle for {IDLE_S:g} s"):
        time.sleep(IDLE_S)
    idle_mib = site.rss_mib(CONTROLLER)
    pages = _pages(site)
    with _Spent(site, "changes of single boxes, followed in the console"):
        live = live_updates(site)
    with _Spent(site, "a limit for all"):
        applied_s = _limit_for_all(site)
    with _Spent(site, "the broker is restarted, all come back"):
        back_s = _broker_restarted(site)
    limit_s = limit_for_all_s(len(site.devices))
    if limit_s < FULL_LIMIT_S:
        _say(f"{len(site.devices)} boxes: a limit for all shall take {limit_s:g} s; {FULL_FLEET} have {FULL_LIMIT_S:g}")
    return [
        figure("all boxes connected and stored", [connect_s], unit="s", limit=CONNECT_S),
        figure("a limit for all boxes, from the button to stored as applied", [applied_s], unit="s", limit=limit_s),
        figure("the fleet page's data (p95)", pages, unit="ms", limit=100.0, share=0.95),
        figure("a stored change in the console's stream of events (p95)", live, unit="s", limit=2.0, share=0.95),
        figure("all boxes back after a restart of the broker", [back_s], unit="s", limit=120.0),
        figure("controller resident", [idle_mib, site.rss_mib(CONTROLLER)], unit="MiB", limit=400.0),
    ]


class _Spent:
    """Prints what each process has used of the CPU meanwhile."""

    def __init__(self, site: FleetSite, what: str) -> None:
        self._site, self._what = site, what
        self._began = 0.0
        self._before: Mapping[str, float] = {}

    def __enter__(self) -> None:
        self._began, self._before = time.monotonic(), self._site.cpu_s()

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is not None:
            return
        took_s, after = time.monotonic() - self._began, self._site.cpu_s()
        used = ", ".join(f"{name} {after[name] - self._before.get(name, 0.0):.1f} s" for name in sorted(after))
        _say(f"{len(self._site.devices)} boxes: {self._what}: {took_s:.1f} s; CPU: {used}")


def _pages(site: FleetSite) -> list[float]:
    """Read what the list of boxes shows, as its page does: a page of boxes and the counts, by changing filters."""
    fleet, took = site.fleet, []
    for at in range(PAGES):
        where = (
            BoxFilter(),
            BoxFilter(search=f"-{at:03d}"),
            BoxFilter(selector=f"zone=z{at % 50}"),
            BoxFilter(health=frozenset({"ok"}), free_units=at),
        )[at % 4]
        sort = list(BoxSort)[at % len(BoxSort)]
        began = time.perf_counter()
        page = fleet.page(where, PageOrder(sort=sort, descending=bool(at % 3)))
        fleet.counts(BoxFilter(search=where.search, selector=where.selector))
        took.append(1000 * (time.perf_counter() - began))
        if page.next:
            fleet.page(where, PageOrder(sort=sort, descending=bool(at % 3), cursor=page.next))
    return took


def _limit_for_all(site: FleetSite) -> float:
    """Set the limits of an app on all boxes; return the seconds until the store has that each has applied them."""
    operations = Operations(site.store, clock=time.time, access=Access("bench"))
    limits = {"namespace": "default", "app": "app-1", "container": "main", "memory_units": 5, "core": 10}
    began = time.monotonic()
    id_ = operations.start(OperationKind.LIMITS, limits, where=BoxFilter()).operation.id
    _say(f"{len(site.devices)} boxes: the operation is stored after {time.monotonic() - began:.2f} s")

    def outcomes(outcome: BoxOutcome) -> int:
        return operations.get(id_).outcomes.get(outcome, 0)

    site.wait(lambda: not outcomes(BoxOutcome.QUEUED), what="the limits are requested of all", timeout_s=APPLIED_S)
    _say(f"{len(site.devices)} boxes: the limits are requested of all after {time.monotonic() - began:.2f} s")
    all_ = len(site.devices)
    site.wait(lambda: outcomes(BoxOutcome.APPLIED) == all_, what="all have applied them", timeout_s=APPLIED_S)
    return time.monotonic() - began


def _broker_restarted(site: FleetSite) -> float:
    """Restart the broker; return the seconds from its first answer until the store has a new birth of every box."""
    births = site.fewest_births()
    site.cloud.stop_broker()
    site.wait(lambda: not site.told.get("born"), what="all boxes have noticed", timeout_s=60.0)
    site.cloud.start_broker()
    began = time.monotonic()

    def back() -> bool:
        return site.all_born() and site.all_online() and site.fewest_births() > births

    site.wait(back, what="all boxes are back", timeout_s=BACK_S)
    return time.monotonic() - began


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
