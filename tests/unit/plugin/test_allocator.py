"""Which of kubelet's calls are answered with an error, which is final for its pod, when it may be for several pods."""

import base64
import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from property.cases import MODEL, box, pod_of

from edgegpu_core.choices.answers import choice_marks
from edgegpu_core.choices.modes import PluginIsolation
from edgegpu_core.choices.pod_choice import AllowedChoices, GivenChoice, PodChoice
from edgegpu_core.deviceid import DeviceKind, card_of, core_ids, memory_ids
from edgegpu_core.inventory import Card
from edgegpu_core.placement import Policy
from edgegpu_core.podview import PodView
from edgegpu_plugin.kubelet.allocator import Allocator
from edgegpu_plugin.pb import Allocation, CallRefusedError, PreferredRequest, WouldWaitError
from edgegpu_plugin.pb.device_messages import allocation_message
from edgegpu_plugin.records.node_state import NodeState


class NoInjector:
    """Gives nothing into containers."""

    answers_at_once = True

    def allocation(self, cards: object, ids: object, given: object) -> Allocation:
        """Return an empty answer."""
        assert isinstance(given, GivenChoice)
        return Allocation(envs={"CARDS": str(cards), "IDS": str(ids), "GIVEN": str(given.isolation)})

    def prepare(self, cards: object, uid: str, *containers: str) -> None:
        """Make nothing."""


@pytest.fixture
def allocator(tmp_path: Path) -> Allocator:
    """Two cards with 9 units free on each; `bare` and `kept` came past the scheduler and fit on neither."""
    state = NodeState(model=MODEL, policy=Policy.FIRST_FIT, checkpoint=tmp_path / "checkpoint")
    state.set_cards(
        tuple(Card(uuid=f"GPU-{n}", index=n, name="T", memory_mib=7611, pci=f"{n}", minor=n) for n in range(2))
    )
    for number in range(2):
        state.put_pod(pod_of(f"old-{number}", box("main", 20, 2), cards={"main": (f"GPU-{number}",)}))
    state.put_pod(pod_of("bare", box("main", 16, 1), created="1"))
    state.put_pod(pod_of("kept", box("main", 15, 1), created="2", controlled=True))
    return Allocator(state=state, injector=NoInjector(), kubelet_pods=lambda: None)


CORE = core_ids("GPU-0")[50:]
MEMORY = (*memory_ids("GPU-0", 29)[20:], *memory_ids("GPU-1", 29)[20:])


def test_a_call_that_may_be_for_a_pod_with_a_controller_is_no_error(allocator: Allocator) -> None:
    allocator.allocate(DeviceKind.CORE, CORE[:1])
    allocator.allocate(DeviceKind.MEMORY, MEMORY[:15])
    with pytest.raises(CallRefusedError, match="needs 16 vcuda-memory on one card"):
        allocator.allocate(DeviceKind.CORE, CORE[1:2])


def test_the_call_that_can_only_be_for_the_bare_pod_is_one(allocator: Allocator) -> None:
    with pytest.raises(CallRefusedError, match="card 0 has 9 free, card 1 has 9 free"):
        allocator.allocate(DeviceKind.MEMORY, MEMORY[:16])
    allocator.allocate(DeviceKind.MEMORY, MEMORY[:15])
    allocator.allocate(DeviceKind.CORE, CORE[:1])


def test_a_call_that_may_not_wait_asks_for_its_turn_again(allocator: Allocator) -> None:
    available = memory_ids("GPU-0", 29)[20:]
    with pytest.raises(WouldWaitError):
        allocator.preferred(DeviceKind.MEMORY, PreferredRequest(available, (), 7), may_wait=False)  # nobody asks for 7


def late(folder: Path, *known: PodView, unseen: PodView, cards: int) -> Allocator:
    """So many cards of 29 units; kubelet has one pod more than the watch has told of."""
    state = NodeState(model=MODEL, policy=Policy.FIRST_FIT, checkpoint=folder / "checkpoint")
    state.set_cards(
        tuple(Card(uuid=f"GPU-{n}", index=n, name="T", memory_mib=7611, pci=f"{n}", minor=n) for n in range(cards))
    )
    state.replace_pods(known)
    return Allocator(state=state, injector=NoInjector(), kubelet_pods=lambda: [*known, unseen])


def ask(allocator: Allocator, kind: DeviceKind, size: int, *, may_wait: bool = True) -> list[str]:
    """Ask for devices where the last 9 units and 98 hundredths of each of two cards are available."""
    ids = [
        text
        for card in ("GPU-0", "GPU-1")
        for text in (memory_ids(card, 29)[20:] if kind is DeviceKind.MEMORY else core_ids(card)[2:])
    ]
    return allocator.preferred(kind, PreferredRequest(ids, (), size), may_wait=may_wait)


FORCED = pod_of("forced", box("main", 4, 30), created="1")


def test_a_guess_leaves_alone_what_a_pod_in_kubelet_s_list_is_promised(tmp_path: Path) -> None:
    placed = pod_of("placed", box("main", 6, 80), created="2", cards={"main": ("GPU-0",)})
    allocator = late(tmp_path, FORCED, unseen=placed, cards=2)
    assert {card_of(text) for text in ask(allocator, DeviceKind.CORE, 30)} == {"GPU-1"}


def test_a_placed_pod_that_only_kubelet_shows_gets_its_card(tmp_path: Path) -> None:
    placed = pod_of("placed", box("main", 4, 80), created="2", cards={"main": ("GPU-1",)})
    allocator = late(tmp_path, FORCED, unseen=placed, cards=2)
    assert {card_of(text) for text in ask(allocator, DeviceKind.MEMORY, 4)} == {"GPU-1"}


def test_a_placed_pod_that_only_kubelet_shows_does_not_fail_for_one_that_has_no_room(tmp_path: Path) -> None:
    old = pod_of("old", box("main", 20, 2), cards={"main": ("GPU-0",)})
    bare = pod_of("bare", box("main", 9, 99), created="1")
    placed = pod_of("placed", box("main", 9, 50), created="2", cards={"main": ("GPU-0",)})
    allocator = late(tmp_path, old, bare, unseen=placed, cards=1)
    allocator.allocate(DeviceKind.MEMORY, ask(allocator, DeviceKind.MEMORY, 9))


def test_before_a_guess_a_call_asks_for_its_turn_again(tmp_path: Path) -> None:
    placed = pod_of("placed", box("main", 6, 80), created="2", cards={"main": ("GPU-1",)})
    allocator = late(tmp_path, FORCED, placed, unseen=placed, cards=2)
    with pytest.raises(WouldWaitError):
        ask(allocator, DeviceKind.CORE, 30, may_wait=False)
    assert {card_of(text) for text in ask(allocator, DeviceKind.CORE, 80, may_wait=False)} == {"GPU-1"}


def choosing(folder: Path, **choices: str) -> Allocator:
    """A node that holds containers and lets pods choose none; pods of its cards, each with a choice."""
    state = NodeState(model=MODEL, policy=Policy.FIRST_FIT, checkpoint=folder / "checkpoint")
    state.set_cards((Card(uuid="GPU-0", index=0, name="T", memory_mib=7611, pci="0", minor=0),))
    state.set_allowed(AllowedChoices("limiter", ("none",)))
    for at, (name, choice) in enumerate(choices.items()):
        placed = pod_of(name, box("main", 4, 10 + at), created=str(at), cards={"main": ("GPU-0",)})
        state.put_pod(replace(placed, choice=PodChoice(choice)))
    return Allocator(state=state, injector=NoInjector(), kubelet_pods=lambda: None)


def given_to(allocator: Allocator, kind: DeviceKind, ids: tuple[str, ...]) -> str:
    return allocator.allocate(kind, ids).envs["GIVEN"]


UNITS, HUNDREDTHS = memory_ids("GPU-0", 29), core_ids("GPU-0")


def test_a_pod_gets_what_it_chooses(tmp_path: Path) -> None:
    allocator = choosing(tmp_path, free="none")
    assert given_to(allocator, DeviceKind.MEMORY, UNITS[:4]) == "none"
    assert given_to(allocator, DeviceKind.CORE, HUNDREDTHS[:10]) == "none"


@pytest.mark.parametrize("choices", [{"free": "none", "held": ""}, {"held": "limiter", "free": "none"}])
def test_of_pods_that_a_call_may_be_for_the_stricter_choice_counts_for_both_calls(
    tmp_path: Path, choices: dict[str, str]
) -> None:
    allocator = choosing(tmp_path, **choices)
    free = HUNDREDTHS[: 10 + list(choices).index("free")]
    assert given_to(allocator, DeviceKind.MEMORY, UNITS[:4]) == "limiter"
    assert given_to(allocator, DeviceKind.CORE, free) == "limiter"  # of `free` alone, and the first was not


def test_a_call_of_no_known_pod_gets_what_the_node_gives(tmp_path: Path) -> None:
    assert given_to(choosing(tmp_path), DeviceKind.MEMORY, UNITS[:4]) == "limiter"


@pytest.mark.parametrize("choice", ["none", "strong"])
def test_a_bare_pod_that_its_node_does_not_allow_fails(tmp_path: Path, choice: str) -> None:
    allocator = choosing(tmp_path)
    allocator.state.set_allowed(AllowedChoices("limiter"))
    allocator.state.put_pod(replace(pod_of("bare", box("main", 4, 1)), choice=PodChoice(choice)))
    with pytest.raises(CallRefusedError, match=f"annotation edgegpu.io/isolation: .*{choice}"):
        allocator.allocate(DeviceKind.MEMORY, UNITS[:4])


def kept(folder: Path, uid: str, given: GivenChoice) -> None:
    """Write kubelet's book: a container with 4 units and what the answer for it gave."""
    answer = base64.b64encode(allocation_message(Allocation(annotations=choice_marks(given))).SerializeToString())
    entry = {"PodUID": uid, "ContainerName": "main", "ResourceName": MODEL.memory_resource}
    entries = [{**entry, "DeviceIDs": {"-1": UNITS[:4]}, "AllocResp": answer.decode()}]
    (folder / "checkpoint").write_text(json.dumps({"Data": {"PodDeviceEntries": entries}}))


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        (GivenChoice(PluginIsolation.LIMITER), ""),
        (GivenChoice(), ""),
        (GivenChoice(PluginIsolation.NONE, replaced="limiter"), "its pod is not known yet; see that the API server"),
    ],
)
def test_a_container_of_a_pod_that_is_not_known_yet_starts_unless_it_is_held_less_by_a_choice(
    tmp_path: Path, given: GivenChoice, refused: str
) -> None:
    allocator = choosing(tmp_path)
    kept(tmp_path, "unknown", given)
    with pytest.raises(CallRefusedError, match=refused) if refused else nullcontext():
        allocator.pre_start(DeviceKind.MEMORY, UNITS[:4])
