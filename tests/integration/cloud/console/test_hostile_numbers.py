"""Whatever numbers a box gives, pages answer, stay small, and draw nothing past its frame."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest
from kits.console import ConsoleSite
from kits.consolepages import PAGES, Places
from kits.details import box, card, pod, reported, saying
from kits.people import LOCAL, PASSWORD
from kits.todaysstores import TodaysStores

from edgegpu_cloud.alerts.service import AlertTask
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.specs import SharingSettings
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.records import BoxEvent
from edgegpu_sync.messages.telemetry import (
    MOST_PENDING,
    TRANSACTION,
    Alloc,
    BoxHealth,
    Inventory,
    Metrics,
    TransactionReport,
)
from edgegpu_sync.rules.ops import OPS
from edgegpu_sync.topics import TopicKind
from edgegpu_sync.wire import MAX_COUNT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import BaseModel

    from edgegpu_cloud.fleet.views import BoxDetails
    from edgegpu_sync.ids import DeviceId

MOST_UNITS, MOST_CORE = 1_000_000, 6_400
MOST_BYTES = 1_000_000
"""A page of one box, without compression: of a plain box it has 60 to 90 KB."""

_ROUNDING = 0.5
_BODIES: dict[TopicKind, type[BaseModel]] = {
    TopicKind.INVENTORY: Inventory,
    TopicKind.ALLOC: Alloc,
    TopicKind.HEALTH: BoxHealth,
    TopicKind.METRICS: Metrics,
}


class Drawings(HTMLParser):
    """What is drawn past its frame, or with a length that is none, on a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.drawn = 0
        self._width = 0.0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "svg":
            self._width = float(given.get("viewbox", "0 0 0 0").split()[2])
        if tag == "rect" and "clip-path" not in given:
            try:
                at, width = float(given.get("x", 0)), float(given.get("width", 0))
            except ValueError:
                return  # shares in percent
            self.drawn += 1
            if at < 0 or width < 0 or at + width > self._width + _ROUNDING:
                self.found.append(f"{at:g}+{width:g} of {self._width:g}")


def extremes(name: str) -> BoxDetails:
    """Return a box that says the largest numbers that the protocol takes, and such as do not go together."""
    cards = (
        card("0", units=MOST_UNITS, memory_mib=MAX_COUNT),
        card("1", units=4, memory_mib=0),
        card("2", units=0, memory_mib=1),
        *(card(str(number), units=MOST_UNITS) for number in range(3, 40)),
    )
    over = pod("asr-0", ("main", "0", MOST_UNITS, MOST_CORE), ("main", "1", MOST_UNITS, MOST_CORE), ("side", "1", 3, 0))
    over["pieces"][2]["live_units"] = MOST_UNITS
    over["started_at"] = MAX_COUNT
    pods = {"u1": over, "u2": pod("asr-1", ("main", "1", 3, 1)), "u3": pod("lost-0", ("main", "77", 9, 9))}
    asks = [{"name": f"c{number}", "memory_units": MAX_COUNT, "core": MAX_COUNT} for number in range(16)]
    waits = {"namespace": "x" * 253, "name": "y" * 253, "state": "refused", "reason": "z" * 1_000, "containers": asks}
    waiting = [{"uid": f"w{number}", "created_at": MAX_COUNT, **waits} for number in range(MOST_PENDING)]
    pending = {"cluster": False, "silent": "s" * 1_000, "more": MAX_COUNT, "pods": waiting}
    said = box(name, cards, pods, unit_mib=MAX_COUNT)
    return saying(said, TopicKind.ALLOC, pods=pods, pending=pending)


def none_at_all(name: str) -> BoxDetails:
    """Return a box without a card, on which a pod holds shares all the same; a unit has no memory."""
    return box(name, (), {"u1": pod("asr-0", ("main", "0", 4, 1))}, unit_mib=0)


def measured(said: BoxDetails, at: int) -> BoxDetails:
    sample = {
        "at": at,
        "cards": [{"uuid": f"GPU-{n}", "core_used": 100.0, "memory_used_mib": MAX_COUNT} for n in range(4)],
        "memory_use": [
            {"card": f"GPU-{n}", "uid": "u1", "container": "main", "processes": MAX_COUNT, "memory_mib": MAX_COUNT}
            for n in range(4)
        ],
    }
    said = saying(said, TopicKind.METRICS, period_s=86_400, samples=[{**sample, "at": 0}, sample])
    health: dict[str, Any] = {"refused": {"SIGNATURE": MAX_COUNT}, "controller_unseen_s": MAX_COUNT, "outbox_used": 1.0}
    return saying(said, TopicKind.HEALTH, state="bad", parts=[], **health)


class OddBox:
    """A console with a box of such numbers."""

    def __init__(self, site: ConsoleSite, said: BoxDetails) -> None:
        self.site = site
        site.people.redeem(site.people.create("anna", role=Role.ADMIN, by=LOCAL), "", PASSWORD)
        self.device: DeviceId = site.add(1, "hall-1", site="hall")
        rev = Fleet(site.store, clock=site.clock, by="anna").set_settings(self.device, SharingSettings(policy="spread"))
        said = measured(said, MAX_COUNT)
        for kind, model in _BODIES.items():
            model.model_validate_json(json.dumps(said.latest[kind].body))  # the box may say so
        failed = {"state": "Failed", "rev": rev, "code": "VERIFY", "text": "", "retry": MAX_COUNT}
        said = reported(said, cluster="c0ffee00", rev=rev, policy=failed)
        said = saying(said, TopicKind.STATUS, state="birth", versions={}, capabilities=list(OPS))
        site.report(self.device, said)
        site.connect(self.device)
        site.measure(self.device, *((ago, 100.0, MAX_COUNT) for ago in range(3)))
        told = TransactionReport(
            id="b",
            op="upgrade",
            author="cloud",
            rev=MAX_COUNT,
            result="ROLLED_BACK",
            began=MAX_COUNT,
            skipped=MAX_COUNT,
        )
        event = BoxEvent(
            device=self.device,
            level="warning",
            box_at=MAX_COUNT,
            at_s=site.now_s,
            kind=TRANSACTION,
            text="",
            about="b",
            transaction=told.model_dump(mode="json"),
        )
        with site.store.write() as tx:
            tx.notes.add_events([event])
        self.places = Places(site, self.device)
        AlertTask(site.store, site.alert_config, controller="controller-1", clock=site.clock).look()


@pytest.fixture(scope="module", params=[extremes, none_at_all], ids=["extremes", "none_at_all"])
def odd(request: pytest.FixtureRequest, todays_stores: TodaysStores) -> Iterator[OddBox]:
    with todays_stores.opened() as store:
        yield OddBox(ConsoleSite(store), request.param("hall-1"))


@pytest.mark.parametrize("page", PAGES)
def test_each_page_answers_and_draws_within_its_frame(odd: OddBox, page: str) -> None:
    for language in ("en", "zh-CN"):
        answer = odd.site.client("anna", language).get(odd.places.at(page))
        assert answer.status_code < 500, answer.text[-2_000:]
        assert len(answer.text) < MOST_BYTES
        assert Drawings(answer.text).found == []
        text = re.sub(r"<[^>]+>", " ", answer.text)
        assert re.findall(r"(?<![\w-])(?:-[0-9][0-9,.]* (?:units|MiB|GiB|of)|nan|inf)\b", text) == []


def test_the_bars_of_such_cards_are_looked_at(odd: OddBox) -> None:
    drawn = Drawings(odd.site.client().get(odd.places.at("/boxes/DEVICE")).text).drawn
    assert (drawn > 0) == bool(odd.site.api().get("/boxes/hall-1/cards").json())


@pytest.mark.parametrize(
    "path",
    ["/boxes/hall-1", "/boxes/hall-1/details", "/boxes/hall-1/cards", "/boxes/hall-1/pods", "/boxes/hall-1/pending"],
)
def test_the_api_answers(odd: OddBox, path: str) -> None:
    assert odd.site.api().get(path).status_code == 200
