"""The plugin's document and nvidia-smi's text as pieces of messages."""

from __future__ import annotations

from typing import Any

import pytest
from kits.cli import CARD_0, CARD_1, card, document, pod

from edgegpu_agent.telemetry.messages import allocations, inventory, memory_use, plugin_parts
from edgegpu_agent.telemetry.nvidia_smi import read
from edgegpu_agent.telemetry.pending import pending_pods
from edgegpu_sync.messages.stamps import Epoch
from edgegpu_sync.messages.telemetry import MOST_MEMORY_USES, Alloc, CardShare, Inventory, MemoryUse

LINE = f"{CARD_0}, 0, Tesla P4, 7611, 560.35.03, 41, 2310, 61, 52.40"
UP: dict[str, Any] = {"enrolment": 1, "epoch": Epoch(1, "9f2c4d1a7b3e5f60"), "n": 1}


def test_cards_as_nvidia_smi_sees_them() -> None:
    first, mute = read(f"{LINE}\n{CARD_1}, 1, T4, 15360, 560.35.03, [N/A], [Unknown Error], [N/A], [Not Supported]\n")
    assert (first.label, first.memory_mib, first.driver) == ("0", 7611, "560.35.03")
    sample = first.sample()
    assert sample is not None
    assert (sample.core_used, sample.memory_used_mib, sample.temperature_c, sample.power_w) == (41, 2310, 61, 52.4)
    assert mute.sample() is None


def test_what_is_no_card_is_passed_over() -> None:
    assert read("No devices were found\n") == ()
    assert read("") == ()
    assert read(f"{LINE}, more\nGPU-1, x, T4, 1, 1, 1, 1, 1, 1\n") == ()
    odd = read(f"{CARD_0}, 0, T4, nan, 1, 1e9, -1, 5000, inf\n")[0]
    assert odd.memory_mib == 0
    assert odd.sample() is None


def test_an_inventory_is_what_the_plugin_offers_with_the_true_size_of_the_cards() -> None:
    piece = inventory(document(), read(LINE), node="other", cluster="3c8f")
    assert piece is not None
    message = Inventory(**piece, **UP)
    assert (message.node, message.role, message.sharing, message.unit_mib) == ("box-1", "server", True, 256)
    assert [(one.label, one.memory_mib, one.units) for one in message.cards] == [("0", 7611, 29), ("1", 7424, 29)]


def test_without_the_plugin_the_cards_are_there_and_nothing_is_offered() -> None:
    piece = inventory(None, read(LINE), node="Box-1", cluster="")
    assert piece is not None
    message = Inventory(**piece, **UP)
    assert (message.node, message.sharing, message.driver) == ("box-1", False, "560.35.03")
    assert [(one.uuid, one.units, one.excluded) for one in message.cards] == [(CARD_0, 0, False)]


def test_a_card_that_is_not_offered_is_excluded() -> None:
    piece = inventory(document(cards=[card(CARD_1)]), read(LINE), node="", cluster="")
    assert piece is not None
    assert [(one.uuid, one.excluded) for one in piece["cards"]] == [(CARD_1, False), (CARD_0, True)]


def test_nonsense_is_left_out() -> None:
    piece = inventory(
        {"cards": [{"uuid": "a b"}, 5], "unit_mib": "x", "driver": 7, "role": 1}, (), node="n", cluster=""
    )
    assert piece is not None
    Inventory(**piece, **UP)
    assert piece["cards"] == ()
    assert inventory(None, (), node="_", cluster="") is None
    assert allocations({"pods": [1, {"cards": [{}], "container": "c"}, {"cards": 5}]}) == {}
    assert allocations({"pods": 7}) == {}
    assert plugin_parts({"cards": 7, "pods": 7, "driver": 7})


def test_allocations_by_pod_one_piece_for_each_container() -> None:
    rows = [pod("a", 4, CARD_0), pod("a", 2, CARD_1, container="side"), pod("waits", 9), pod("b", 1, CARD_1)]
    pods = allocations({"pods": [*rows, pod("b", 1, CARD_0, uid="77aa1b52", namespace="", pod="", phase="Gone")]})
    Alloc(pods=pods, **UP)
    assert [(one.container, one.card, one.memory_units) for one in pods["uid-a"].pieces] == [
        ("main", CARD_0, 4),
        ("side", CARD_1, 2),
    ]
    assert (pods["77aa1b52"].namespace, pods["77aa1b52"].name, pods["77aa1b52"].phase) == (
        "unknown",
        "77aa1b52",
        "Gone",
    )
    assert "uid-waits" not in pods


@pytest.mark.parametrize(
    ("started", "at"),
    [
        ("2026-09-21T14:13:20Z", 1_790_000_000),
        ("1960-01-01T00:00:00Z", 0),
        ("", None),
        (None, None),
        ("yesterday", None),
        (7, None),
        ({}, None),
    ],
)
def test_a_pod_has_the_time_at_which_it_started_where_the_plugin_knows_it(started: object, at: int | None) -> None:
    rows = {"pods": [pod("a", 10, CARD_0) | {"started": started}]}
    assert [one.started_at for one in allocations(rows).values()] == [at]
    assert [one.started_at for one in allocations({"pods": [pod("a", 10, CARD_0)]}).values()] == [None]


def test_a_container_with_several_cards_has_a_piece_on_each() -> None:
    torn, whole = pod("torn", 15, CARD_0, CARD_1, state="refused"), pod("whole", 9, CARD_0, CARD_1, core=200)
    for row, parts in ((torn, (9, 6)), (whole, (5, 4))):
        row["cards"] = [{**ref, "units": units} for ref, units in zip(row["cards"], parts, strict=True)]
    pods = allocations({"pods": [torn, whole]})
    assert [(one.card, one.memory_units, one.core) for pod in pods.values() for one in pod.pieces] == [
        (CARD_0, 9, 1),
        (CARD_1, 6, 0),
        (CARD_0, 5, 100),
        (CARD_1, 4, 100),
    ]


def test_a_pod_is_held_as_the_least_held_of_its_containers_with_the_reason() -> None:
    def row(container: str, state: str, reason: str = "", **card: object) -> dict[str, Any]:
        cards = [{"card": CARD_0, **card}] if card else []
        return pod("a", 4, CARD_0, container=container, isolation={"state": state, "reason": reason, "cards": cards})

    def held(*rows: dict[str, Any]) -> tuple[str, str | None]:
        (found,) = allocations({"pods": list(rows)}).values()
        return found.enforced, found.enforced_reason

    well, off, ill = row("main", "enforced"), row("side", "off"), row("old", "degraded", "its files are not whole")
    assert held(well) == ("enforced", None)
    assert held(well, off) == held(off, well) == ("off", None)
    assert held(well, ill, off) == held(off, ill) == held(ill, well) == ("degraded", "its files are not whole")
    assert held(pod("a", 4, CARD_0)) == held(row("main", "of a newer plugin")) == ("off", None)
    assert held(row("main", "degraded", "x" * 400))[1] == "x" * 252 + "…"


def test_a_piece_has_its_live_limit_only_where_that_is_below_what_it_holds() -> None:
    def live(limit_units: object) -> int | None:
        cards = [{"card": CARD_0, "held_units": 4, "limit_units": limit_units}]
        rows = [pod("a", 4, CARD_0, isolation={"state": "enforced", "reason": "", "cards": cards})]
        (found,) = allocations({"pods": rows}).values()
        return found.pieces[0].live_units

    assert [live(one) for one in (2, 4, 5, None, "2")] == [2, None, None, None, None]


def test_refusals_are_told_in_steps_so_that_a_program_that_asks_on_makes_few_messages() -> None:
    def piece(refusals: object, limiter: object = "0.1.0") -> CardShare:
        isolation = {"state": "enforced", "limiter": limiter, "cards": [{"card": CARD_0, "refusals": refusals}]}
        (found,) = allocations({"pods": [pod("a", 4, CARD_0, isolation=isolation)]}).values()
        return found.pieces[0]

    seen = [piece(count).refusals for count in (0, 1, 2, 4, 5, 9, 10, 49, 99, 10**9, -1, "7", None)]
    assert seen == [0, 1, 2, 2, 5, 5, 10, 20, 50, 10**9, 0, 0, 0]
    assert len({piece(count).refusals for count in range(1, 1000)}) == 9
    assert [piece(0, one).limiter for one in ("0.1.0", "", None)] == ["0.1.0", None, None]


def test_health_names_what_is_wrong() -> None:
    assert {one.state for one in plugin_parts(document())} == {"ok"}
    sick = document(
        cards=[card(healthy=False), card(CARD_1, healthy=False, problem="XID 95")],
        kubelet={"registered": False, "waiting_for": ""},
        driver={"version": "", "problem": "NVML hangs"},
        extender={"healthy": False},
        api={"synced": False},
        pods=[pod("big", 90, state="refused")],
    )
    told = {one.name: (one.state, one.text) for one in plugin_parts(sick)}
    assert told["driver"] == ("bad", "NVML hangs")
    assert told["cards"] == ("bad", "out of order: 0; 1 (XID 95)")
    assert told["kubelet"] == ("warn", "not registered, waiting for kubelet")
    assert told["extender"][0] == "warn"
    assert told["api"] == ("warn", "not in step yet")
    assert told["pods"] == ("warn", "refused: baetyl-edge/big")
    sick["pods"].append(pod("small", 4, state="lost"))
    told = {one.name: (one.state, one.text) for one in plugin_parts(sick)}
    assert told["pods"] == ("bad", "card gone: baetyl-edge/small; refused: baetyl-edge/big")


def test_isolation_that_does_not_hold_is_bad_and_a_self_test_that_can_say_nothing_a_warning() -> None:
    def told(**more: object) -> object:
        parts = {one.name: (one.state, one.text) for one in plugin_parts(document(**more))}
        return parts.get("isolation")

    row = {"index": "0", "verdict": "inconclusive", "reason": "why"}
    assert told() is None
    assert told(isolation="none", isolation_problem="no matter") is None
    chosen = pod("a", 4, CARD_0, isolation={"state": "degraded", "reason": "why"})
    assert told(isolation="none", isolation_problem="no library", pods=[chosen]) == ("bad", "no library")
    assert told(isolation="limiter", isolation_problem="") == ("ok", "")
    assert told(isolation="limiter", isolation_problem="card 0: self-test: why") == ("bad", "card 0: self-test: why")
    assert told(isolation="limiter", selftest={"cards": [row]}) == ("warn", "card 0: why")
    assert told(isolation="limiter", selftest={"cards": [row | {"verdict": "passed"}]}) == ("ok", "")


def test_a_driver_that_is_newer_than_the_limiter_is_a_warning_once_for_all_cards() -> None:
    newer = {"verdict": "passed", "newer_driver": "the driver's CUDA 13.6 is newer"}
    cards = [newer | {"index": "0"}, newer | {"index": "1"}, {"index": "2", "verdict": "inconclusive", "reason": "why"}]

    def told(mode: str) -> tuple[str, str] | None:
        parts = plugin_parts(document(isolation=mode, selftest={"cards": cards}))
        return {part.name: (part.state, part.text) for part in parts}.get("isolation")

    assert told("limiter") == ("warn", "card 2: why; the driver's CUDA 13.6 is newer")
    cards[0]["by_name"] = cards[1]["by_name"] = "the driver gives other addresses"
    assert told("limiter") == ("warn", "card 2: why; the driver gives other addresses; the driver's CUDA 13.6 is newer")
    assert told("none") is None


def test_a_server_without_cards_has_no_kubelet_part() -> None:
    assert {one.name for one in plugin_parts(document(role="extender-only"))} == {"plugin", "api", "extender"}


def used(**more: object) -> dict[str, Any]:
    return {"card": CARD_0, "uid": "uid-face", "container": "main", "processes": 1, "memory_mib": 700, **more}


def measured(*rows: object, at: object = 1_000) -> dict[str, Any]:
    return document(memory_use={"at": at, "containers": list(rows)})


def test_the_memory_use_of_containers_comes_the_most_first() -> None:
    host = {"card": CARD_0, "processes": 2, "memory_mib": 90}
    mute = {"card": CARD_0, "uid": "uid-x", "processes": 1}
    idle = used(container="idle", processes=0, memory_mib=0)
    assert memory_use(measured(idle, mute, host, used()), now_s=1_030) == (
        MemoryUse(card=CARD_0, processes=2, memory_mib=90),
        MemoryUse(card=CARD_0, uid="uid-face", container="main", processes=1, memory_mib=700),
        MemoryUse(card=CARD_0, uid="uid-x", processes=1),
        MemoryUse(card=CARD_0, uid="uid-face", container="idle", processes=0, memory_mib=0),
    )


def test_more_containers_than_a_message_has_room_for_are_cut_at_the_idle_ones() -> None:
    idle = [used(uid=f"uid-{number}", processes=0, memory_mib=0) for number in range(MOST_MEMORY_USES + 5)]
    found = memory_use(measured(*idle, used()), now_s=1_000)
    assert found is not None
    assert len(found) == MOST_MEMORY_USES
    assert found[0].memory_mib == 700


@pytest.mark.parametrize("at", [879, 1_121, None, "soon", True])
def test_a_measurement_of_another_time_is_none(at: object) -> None:
    assert memory_use(measured(used(), at=at), now_s=1_000) is None


def test_a_plugin_that_measures_nothing_is_no_plugin_without_use() -> None:
    assert memory_use(document(), now_s=1_000) is None
    assert memory_use(document(memory_use=None), now_s=1_000) is None
    assert memory_use(measured(), now_s=1_000) == ()


@pytest.mark.parametrize(
    "row", [None, 3, {}, used(processes=-1), used(memory_mib=2.5), used(container="No Such"), used(uid=[])]
)
def test_a_use_that_cannot_be_sent_is_left_out(row: object) -> None:
    assert memory_use(measured(row, used()), now_s=1_000) == (MemoryUse(**used()),)


def test_pods_without_a_card_by_pod_with_the_plugin_s_words() -> None:
    reason = "needs 20 vcuda-memory on one card; card 0 has 9 free"
    asks = {**pod("llm", 20), "state": "pending", "phase": "Pending", "reason": reason, "uid": "u1"}
    rows = [{**asks, "created": "2026-01-01T00:00:00Z"}, {**asks, "container": "side", "memory_units": 2**70}]
    refused = {**pod("ocr", 4, CARD_0), "state": "refused", "reason": "other cards", "uid": "u2"}
    document = {"pending": rows, "pending_more": 2, "pods": [refused, pod("a", 4, CARD_0)], "extender": {}}
    found = pending_pods(document)
    assert [(one.name, one.state, one.reason) for one in found.pods] == [
        ("llm", "pending", reason),
        ("ocr", "refused", "other cards"),
    ]
    assert [(one.name, one.memory_units) for one in found.pods[0].containers] == [("main", 20), ("side", 2**53 - 1)]
    assert (found.pods[0].created_at, found.more, found.cluster, found.silent) == (1_767_225_600, 2, True, "")
    many = pending_pods({"pending": [{**asks, "uid": f"u{number}"} for number in range(50)], "pending_more": 7})
    assert (len(many.pods), many.more, many.cluster) == (40, 17, False)
    Alloc(pods={}, pending=many, **UP)


def test_who_waits_is_read_beside_a_silent_api_server_and_from_nonsense() -> None:
    found = pending_pods({"extender": {}, "pending_silent": {"why": "connection refused", "heard_at": 1_767_225_600}})
    assert found.silent == "connection refused; heard last at 2026-01-01 00:00:00 UTC"
    unread = pending_pods({"extender": {}, "pending_silent": {"why": "not read yet", "heard_at": None}})
    assert unread.silent == "not read yet; not heard since the plugin's start"
    bad = [7, {"uid": "_"}, {"state": "pending", "uid": "a b"}, {"state": "pending", "uid": "u", "memory_units": True}]
    assert pending_pods({"pending": bad, "pending_more": "x", "extender": 5}).pods == ()


def test_a_refused_write_is_no_silence_and_its_pods_are_named_gone() -> None:
    held = pod("face", 4, CARD_0, uid="u1")
    before = allocations({"pods": [held]})
    gone = {**held, "namespace": "", "pod": "", "phase": "Gone", "state": "held"}
    refused = {"synced": True, "problem": "cannot delete pod baetyl-edge/soon: Forbidden"}
    silence = {"why": "connection refused", "heard_at": 1_767_225_600}
    for api, phase in (
        ({**refused, "silent": None}, "Gone"),
        ({**refused, "silent": silence}, "Running"),
        ({"synced": False, "problem": "", "silent": {"why": "not read yet", "heard_at": None}}, "Running"),
        (refused, "Running"),
    ):
        assert allocations({"pods": [gone], "api": api}, before)["u1"].phase == phase, api
    parts = {one.name: one for one in plugin_parts(document(api={**refused, "silent": silence}))}
    assert parts["api"].text == "connection refused; heard last at 2026-01-01 00:00:00 UTC"
