"""The list of boxes: what the database selects, sorts, counts and pages is what reading every box would come to."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.stores import open_store

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.listing import BoxFilter, PageOrder, page_of, query_of
from edgegpu_cloud.fleet.selectors import read_selector
from edgegpu_cloud.fleet.views import PRESENT_S
from edgegpu_cloud.store.records import BoxState, EnrolledBox
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_cloud.store.summaries.box_list import BoxSort, ListedBox
from edgegpu_cloud.store.summaries.tables import BoxSummary
from edgegpu_sync.ids import DeviceId, device_id

NOW_S = 1_790_000_000.0
KEYS, VALUES = ("site", "rack", "tier"), ("hall", "yard", "3")
TERMS = ("site=hall", "site!=hall", "rack", "!rack", "tier in (hall,3)", "tier notin (yard)", "site==yard", "rack=")
BOXES = 40


def device(number: int) -> DeviceId:
    return device_id(f"{number:016d}")


def take_in(store: ControllerStore, number: int, *, name: str = "", labels: dict[str, str] | None = None) -> None:
    box = EnrolledBox(
        device=device(number),
        enrolment=1,
        public="A" * 43,
        instance=f"{number:064d}",
        name=name or f"box-{number:03d}",
        labels=labels or {},
        host=f"host-{number % 7}.example.com",
    )
    with store.write() as tx:
        add_box(tx, box, Author("anna", NOW_S))


def labels_of(number: int) -> dict[str, str]:
    found = {key: VALUES[(number + at) % 4] for at, key in enumerate(KEYS) if (number + at) % 4 < len(VALUES)}
    return found if number % 5 else {}


def summary_of(number: int) -> BoxSummary:
    return BoxSummary(
        device=device(number),
        health=("ok", "warn", "bad", "")[number % 4],
        agent=("0.5.0", "0.6.0", "")[number % 3],
        cards=None if number % 6 == 0 else number % 3,
        units=10,
        free_units=number % 10,
        waiting=number % 2,
        problems=int(number % 8 == 0),
        left="uninstall" if number % 9 == 0 else "",
    )


@pytest.fixture
def fleet(store: ControllerStore) -> Fleet:
    """Return a fleet of boxes that differ in all that lists are filtered by."""
    for number in range(BOXES):
        take_in(store, number, labels=labels_of(number))
    with store.write() as tx:
        boxes = tx.boxes.get([device(number) for number in range(BOXES)])
        for number in range(BOXES):
            state = BoxState.REVOKED if number % 10 == 7 else BoxState.ENROLLED
            heard_s = NOW_S - (PRESENT_S + 1 if number % 4 == 3 else number)
            online = state is BoxState.ENROLLED and number % 3 != 0
            tx.boxes.put([replace(boxes[device(number)], online=online, seen_at_s=heard_s, state=state)])
        tx.summaries.put(map(summary_of, range(BOXES)))
        tx.summaries.put_apps(
            {device(number): [f"default/asr-{number % 3}"] for number in range(0, BOXES, 2)}, requested=False
        )
    return Fleet(store, clock=lambda: NOW_S, by="anna")


def every(fleet: Fleet) -> list[ListedBox]:
    return list(fleet.page(BoxFilter(), PageOrder(limit=500)).boxes)


def names(fleet: Fleet, where: BoxFilter) -> list[str]:
    return [box.name for box in fleet.page(where, PageOrder(limit=500)).boxes]


class TestFilters:
    def test_a_selector_selects_in_sql_what_it_matches_by_itself(
        self, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        store = open_store(tmp_path_factory.mktemp("fleet") / "controller.db")
        for number in range(BOXES):
            take_in(store, number, labels=labels_of(number))
        fleet = Fleet(store, clock=lambda: NOW_S, by="anna")

        @settings(max_examples=40)
        @given(st.lists(st.sampled_from(TERMS), min_size=1, max_size=4, unique=True))
        def selects(terms: list[str]) -> None:
            text = ",".join(terms)
            chosen = read_selector(text)
            expected = [f"box-{number:03d}" for number in range(BOXES) if chosen.matches(labels_of(number))]
            assert names(fleet, BoxFilter(selector=text)) == expected
            with store.read() as tx:
                query = query_of(BoxFilter(), now_s=NOW_S, scope=read_selector(text).terms)
                assert [box.name for box in page_of(tx, query, PageOrder(limit=500)).boxes] == expected
                assert tx.list.counts(query).boxes == tx.list.number(query) == len(expected)

        selects()

    def test_each_filter_finds_what_a_look_at_every_box_finds(self, fleet: Fleet) -> None:
        there = every(fleet)
        assert len(there) == BOXES
        expected = {
            BoxFilter(connected=True): [box for box in there if box.connected],
            BoxFilter(connected=False): [box for box in there if not box.connected],
            BoxFilter(health=frozenset({"bad", "warn"})): [box for box in there if box.health in {"bad", "warn"}],
            BoxFilter(health=frozenset({"unknown"})): [box for box in there if box.health == "unknown"],
            BoxFilter(health=frozenset({"unknown", "ok"})): [box for box in there if box.health in {"unknown", "ok"}],
            BoxFilter(agent="0.6.0"): [box for box in there if box.summary.agent == "0.6.0"],
            BoxFilter(free_units=7): [box for box in there if box.connected and box.summary.free_units >= 7],
            BoxFilter(problems=True): [box for box in there if box.summary.problems],
            BoxFilter(waiting=True): [box for box in there if box.summary.waiting],
            BoxFilter(states=frozenset({BoxState.REVOKED})): [box for box in there if box.state is BoxState.REVOKED],
            BoxFilter(askable=True): [
                box for box in there if box.state is BoxState.ENROLLED and box.left != "uninstall"
            ],
            BoxFilter(app="default/asr-1"): [box for box in there if int(box.device) % 6 == 4],
            BoxFilter(names="box-01"): [box for box in there if box.name.startswith("box-01")],
            BoxFilter(devices=frozenset({device(3), device(999)})): [box for box in there if box.device == device(3)],
        }
        for where, boxes in expected.items():
            assert names(fleet, where) == [box.name for box in boxes], where
            assert 0 < len(boxes) < BOXES, where

    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("BOX-003", {3}),
            ("host-6.ex", {6, 13, 20, 27, 34}),
            ("default/ASR-2", {2, 8, 14, 20, 26, 32, 38}),
            ("rack=3", {number for number in range(BOXES) if labels_of(number).get("rack") == "3"}),
            (device(5), {5}),
            ("%", set()),
            ("_", set()),
            ("box\0-003", {3}),
        ],
    )
    def test_a_search_looks_at_names_hosts_labels_and_apps(self, fleet: Fleet, text: str, found: set[int]) -> None:
        assert names(fleet, BoxFilter(search=text)) == [f"box-{number:03d}" for number in sorted(found)]

    def test_the_counts_are_those_of_the_filters(self, fleet: Fleet) -> None:
        counts, there = fleet.counts(), every(fleet)
        assert counts.boxes == BOXES
        assert counts.connected == sum(box.connected for box in there)
        assert counts.offline == sum(not box.connected and box.state is BoxState.ENROLLED for box in there)
        for health, number in (("ok", counts.healthy), ("warn", counts.warn), ("bad", counts.bad)):
            assert number == len(names(fleet, BoxFilter(health=frozenset({health}))))
        assert counts.unknown == len(names(fleet, BoxFilter(health=frozenset({"unknown"}))))
        assert counts.problems == len(names(fleet, BoxFilter(problems=True)))
        assert counts.waiting == len(names(fleet, BoxFilter(waiting=True)))
        assert counts.with_room == len(names(fleet, BoxFilter(free_units=1)))
        assert counts.ignored == 4
        assert counts.units == 10 * BOXES
        assert counts.free_units == sum(box.summary.free_units for box in there if box.connected)
        assert counts.offline_units == sum(box.summary.units for box in there if not box.connected) > 0
        assert any(box.health == "bad" and not box.connected for box in there), "an offline box keeps its problems"
        assert not any(box.health == "ok" and not box.connected for box in there)
        assert counts.agents == {"": 13, "0.5.0": 14, "0.6.0": 13}
        some = fleet.counts(BoxFilter(selector="site=hall"))
        assert some.boxes == len(names(fleet, BoxFilter(selector="site=hall"))) < BOXES

    def test_no_box_has_counts_of_nothing(self, store: ControllerStore) -> None:
        counts = Fleet(store, clock=lambda: NOW_S, by="anna").counts()
        assert (counts.boxes, counts.units, counts.agents) == (0, 0, {})


class TestPages:
    @pytest.mark.parametrize("sort", BoxSort)
    @pytest.mark.parametrize("descending", [False, True])
    def test_pages_follow_each_other_there_and_back(self, fleet: Fleet, sort: BoxSort, *, descending: bool) -> None:
        whole = fleet.page(BoxFilter(), PageOrder(sort=sort, descending=descending, limit=500)).boxes
        keys = [(box.sort_value, box.name) for box in whole]
        assert keys == sorted(keys, reverse=descending)
        assert len({box.device for box in whole}) == BOXES
        order = PageOrder(sort=sort, descending=descending, limit=7)
        pages = [fleet.page(BoxFilter(), order)]
        while pages[-1].next:
            pages.append(fleet.page(BoxFilter(), replace(order, cursor=pages[-1].next)))
        assert [box for page in pages for box in page.boxes] == list(whole)
        assert [len(page.boxes) for page in pages] == [7, 7, 7, 7, 7, 5]
        back = [pages[-1]]
        while back[-1].previous:
            back.append(fleet.page(BoxFilter(), replace(order, cursor=back[-1].previous)))
        assert [page.boxes for page in back[::-1]] == [page.boxes for page in pages]

    def test_boxes_that_come_and_go_neither_repeat_nor_hide_others(self, fleet: Fleet, store: ControllerStore) -> None:
        first = fleet.page(BoxFilter(), PageOrder(limit=10))
        fleet.forget(first.boxes[-1].device)  # the cursor's own box
        fleet.forget(first.boxes[0].device)
        take_in(store, 100, name="aaa")
        take_in(store, 101, name="box-010a")
        second = fleet.page(BoxFilter(), PageOrder(limit=10, cursor=first.next))
        assert [box.name for box in second.boxes] == [
            "box-010",
            "box-010a",
            *(f"box-{number:03d}" for number in range(11, 19)),
        ]
        before = fleet.page(BoxFilter(), PageOrder(limit=10, cursor=second.previous))
        assert [box.name for box in before.boxes] == ["aaa", *(f"box-{number:03d}" for number in range(1, 9))]

    @pytest.mark.parametrize(
        "cursor",
        ["x", "AAAA", "bnVsbA", "WzEsMiwzXQ", "é", "W10", "WyJuYW1lIixmYWxzZSxmYWxzZSwxLCJhIl0"],
    )
    def test_a_cursor_of_no_page_is_an_error_with_a_remedy(self, fleet: Fleet, cursor: str) -> None:
        with pytest.raises(CloudError, match="open the first page"):
            fleet.page(BoxFilter(), PageOrder(cursor=cursor))

    def test_a_cursor_of_another_order_is_refused(self, fleet: Fleet) -> None:
        cursor = fleet.page(BoxFilter(), PageOrder(limit=5)).next
        with pytest.raises(CloudError, match="open the first page"):
            fleet.page(BoxFilter(), PageOrder(sort=BoxSort.FREE, cursor=cursor))

    def test_the_views_of_all_boxes_come_by_name(self, fleet: Fleet) -> None:
        assert [view.name for view in fleet.boxes()] == [f"box-{number:03d}" for number in range(BOXES)]
        assert fleet.names("box-00", limit=3) == ["box-000", "box-001", "box-002"]
        assert fleet.names_of([device(1), device(999)]) == {device(1): "box-001"}
        assert (fleet.is_name("box-001"), fleet.is_name("box-0"), fleet.is_name(device(1))) == (True, False, False)
