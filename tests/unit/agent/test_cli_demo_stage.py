"""The demo's checks: a cluster that tells the truth passes, and each lie is found out."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from kits.cli import CARD_0, CARD_1, LABELS, card, document

from edgegpu_agent.cli.clients.document import StatusDocument, read_document
from edgegpu_agent.demo import scenarios
from edgegpu_agent.demo.model import LABEL, DemoError, DemoService, Json, deployment
from edgegpu_agent.demo.plan import FIELD_PAIR, FIELD_THREE, ServiceAmounts
from edgegpu_agent.demo.stage import DemoStage
from edgegpu_core.podview import CARDS_ANNOTATION, write_cards

MEMORY = "baidu.com/vcuda-memory"


class PaperBed:
    """A cluster on paper: two cards, first fit; each of its statements can be made a lie."""

    namespace, node, policy, timeout_s, memory_resource = "demo", "box-1", "", 5.0, MEMORY

    def __init__(self, units: int) -> None:
        self.units = units
        self.order = [CARD_0, CARD_1]
        self.made: dict[str, Json] = {}
        self.cards: dict[str, str] = {}
        self.numbers = itertools.count()
        self.now = 0.0
        self.listing = "GPU 0: NVIDIA X (UUID: {card})\n"
        self.sees_card = self.booked = self.annotated = ""
        self.state = "allocated"
        self.word = f"FailedScheduling: 0/1 nodes are available: 1 Insufficient {MEMORY}."

    def manifest(self, service: DemoService) -> Json:
        resources = {"memory": MEMORY, "core": "baidu.com/vcuda-core"}
        return deployment(service, namespace="demo", resources=resources, image="i", annotations={}, more={})

    def apply(self, manifest: Json) -> None:
        template = manifest["spec"]["template"]
        name = template["metadata"]["labels"][LABEL]
        uid = f"u{next(self.numbers)}"
        self.delete(name)
        units = int(template["spec"]["containers"][0]["resources"]["limits"][MEMORY])
        chosen = next((uuid for uuid in self.order if self.free(uuid) >= units), "")
        annotations = {CARDS_ANNOTATION: write_cards(uid, "box-1", {"main": (self.annotated or chosen,)})}
        metadata = {"name": f"{name}-{uid}", "namespace": "demo", "uid": uid, "annotations": annotations}
        spec = {**template["spec"], "nodeName": "box-1" if chosen else ""}
        status = {"phase": "Running" if chosen else "Pending"}
        self.made[name] = {"metadata": metadata, "spec": spec, "status": status}
        self.cards[uid] = chosen

    def delete(self, service: str) -> None:
        gone = self.made.pop(service, None)
        if gone is not None:
            del self.cards[gone["metadata"]["uid"]]

    def pods(self, service: str) -> list[Json]:
        return [self.made[service]] if service in self.made else []

    def events(self, pod: Json) -> list[str]:
        return [] if self.cards[pod["metadata"]["uid"]] else [self.word]

    def sees(self, pod: Json) -> str:
        return self.listing.format(card=self.sees_card or self.cards[pod["metadata"]["uid"]])

    def kubelet_says(self, pod: Json) -> frozenset[str] | None:
        return frozenset({self.booked or self.cards[pod["metadata"]["uid"]]})

    def status(self) -> StatusDocument:
        cards = [card(uuid, units=self.units, free=self.free(uuid)) for uuid in (CARD_0, CARD_1)]
        return read_document(document(cards=cards, pods=[self.row(pod) for pod in self.made.values()]))

    def pause(self) -> None:
        self.now += 1

    def row(self, pod: Json) -> dict[str, Any]:
        uid = pod["metadata"]["uid"]
        held = [{"index": LABELS[self.cards[uid]], "uuid": self.cards[uid]}] if self.cards[uid] else []
        state = self.state if held else "waiting"
        names = {"namespace": "demo", "pod": pod["metadata"]["name"], "uid": uid, "container": "main"}
        return {**names, "memory_units": units_of(pod), "core": 1, "cards": held, "state": state}

    def free(self, uuid: str) -> int:
        held = (units_of(pod) for pod in self.made.values() if self.cards[pod["metadata"]["uid"]] == uuid)
        return self.units - sum(held)


def units_of(pod: Json) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["limits"][MEMORY])


def stage_on(bed: PaperBed) -> DemoStage:
    return DemoStage(bed=bed, scenario="s", say=lambda _line: None, clock=lambda: bed.now)


def test_a_cluster_that_tells_the_truth_passes() -> None:
    three, pairs, filling = stage_on(PaperBed(29)), stage_on(PaperBed(16)), stage_on(PaperBed(47))
    scenarios.three_on_two_cards(three, FIELD_THREE)
    scenarios.pairs(pairs, FIELD_PAIR)
    scenarios.three_services(filling, ServiceAmounts(40, 30, 1, 48))
    for stage in (three, pairs, filling):
        assert stage.failures == []
        assert all(row.sees == ((row.card_uuid,) if row.card_uuid else ()) for row in stage.rows)


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ({"listing": "GPU 0: X (UUID: {card})\nGPU 1: X (UUID: GPU-9)\n"}, "sees 2 cards, one is right"),
        ({"listing": ""}, "sees 0 cards, one is right"),
        ({"listing": "GPU 1: X (UUID: {card})\n"}, "does not print one `GPU 0"),
        ({"sees_card": CARD_1}, f"sees ('{CARD_1}',), `edgegpu pods` says {CARD_0}"),
        ({"annotated": CARD_1}, f"the annotation of a-u0 says {{'main': ('{CARD_1}',)}}, it is on {CARD_0}"),
        ({"booked": CARD_1}, f"PodResources says ['{CARD_1}'] of a-u0, it is on {CARD_0}"),
        ({"state": "refused"}, "runs, and the plugin says refused"),
        ({"order": [CARD_1, CARD_0]}, "is on card 1, the first with room for 8 units is 0"),
    ],
)
def test_each_lie_about_a_card_is_found_out(lie: dict[str, Any], words: str) -> None:
    bed = PaperBed(16)
    for name, value in lie.items():
        setattr(bed, name, value)
    stage = stage_on(bed)
    stage.run(DemoService("a", 8))
    assert any(words in failure for failure in stage.failures), stage.failures


def test_together_and_apart_are_what_they_say() -> None:
    stage = stage_on(PaperBed(16))
    one, other, far = (stage.run(DemoService(name, 8)) for name in "abc")
    stage.together(one, other)
    stage.apart(one, far)
    assert stage.failures == []
    stage.apart(one, other)
    stage.together(one, far)
    assert len(stage.failures) == 2


def test_what_never_comes_ends_the_act_with_what_was_last_seen() -> None:
    bed = PaperBed(16)
    stage = stage_on(bed)
    with pytest.raises(DemoError, match=rf"waited 5 s for a to run; a-u0 Pending FailedScheduling: .*{MEMORY}"):
        stage.run(DemoService("a", 17))
    bed.word = "FailedScheduling: something else"
    with pytest.raises(DemoError, match="waited 5 s for the event 'Insufficient'"):
        stage.pend(DemoService("a", 18), "Insufficient")


def test_what_a_cloud_asks_for_is_seen_to_happen_or_not() -> None:
    bed = PaperBed(16)
    stage = stage_on(bed)
    first = stage.run(DemoService("a", 8))
    refused = stage.goes_on(DemoService("a", 17), phase="Rejected", reason="no room", command="set 17")
    assert (refused.pod, refused.units, refused.sees, refused.reason) == (first.pod, 17, (), "no room")
    before = stage.seen
    bed.apply(bed.manifest(DemoService("a", 4)))
    grown = stage.runs(DemoService("a", 4), before, command="set 4")
    assert (grown.units, grown.command, grown.document()["command"]) == (4, "set 4", "set 4")
    assert stage.goes_on(DemoService("a", 4), phase="Running", reason="off", command="off").sees == (CARD_0,)
    assert stage.failures == []
    bed.apply(bed.manifest(DemoService("a", 4)))
    stage.goes_on(DemoService("a", 4), phase="Running", reason="off", command="off")
    stage.runs(DemoService("a", 4), stage.seen | {"u2"})
    assert [one.partition(" ")[2] for one in stage.failures] == [
        "a-u1 does not run on as it was after 'off'",
        "a took 0 pods until one ran, one is right",
    ]
