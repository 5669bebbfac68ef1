"""What a container's amounts mean: the whole table, and the words for what can never be placed."""

import pytest
from property.cases import MODEL, box

from edgegpu_core.model import ResourceModel
from edgegpu_core.placement import plan_pod
from edgegpu_core.request import ContainerRole, ImpossibleRequest, PlaceableRequest, RequestedAmounts, classify

LOOSE = ResourceModel(core_required=False)


@pytest.mark.parametrize(
    ("memory", "core", "ask"),
    [
        (1, 1, PlaceableRequest(cards=1, memory_units=1, core=1, whole=False)),
        (20, 99, PlaceableRequest(cards=1, memory_units=20, core=99, whole=False)),
        (20, 100, PlaceableRequest(cards=1, memory_units=20, core=100, whole=True)),
        (0, 100, PlaceableRequest(cards=1, memory_units=0, core=100, whole=True)),
        (0, 200, PlaceableRequest(cards=2, memory_units=0, core=100, whole=True)),
        (7, 300, PlaceableRequest(cards=3, memory_units=7, core=100, whole=True)),
    ],
)
def test_amounts_that_can_be_placed(memory: int, core: int, ask: PlaceableRequest) -> None:
    assert classify(RequestedAmounts(memory, core), MODEL) == ask
    assert classify(RequestedAmounts(memory, core), LOOSE) == ask


@pytest.mark.parametrize(
    ("memory", "core", "words"),
    [
        (4, 0, "asks 4 vcuda-memory without vcuda-core: add baidu.com/vcuda-core (1 to 100) to its limits"),
        (0, 30, "asks 30 vcuda-core without vcuda-memory: add baidu.com/vcuda-memory to its limits"),
        (4, 101, "asks 101 vcuda-core: more than one card goes in whole cards only, so ask 100 or 200"),
        (
            8 << 30,
            20,
            "asks 8589934592 vcuda-memory, which are units of 256 MiB and not bytes: for 8 GiB ask 32",
        ),
        (
            8_000_000_000,
            0,
            "asks 8000000000 vcuda-memory, which are units of 256 MiB and not bytes: for 7.45 GiB ask 30",
        ),
        (0, 250, "asks 250 vcuda-core: more than one card goes in whole cards only, so ask 200 or 300"),
    ],
)
def test_amounts_that_never_can(memory: int, core: int, words: str) -> None:
    assert classify(RequestedAmounts(memory, core), MODEL) == ImpossibleRequest(words)


def test_memory_alone_is_best_effort_where_core_is_not_required() -> None:
    assert classify(RequestedAmounts(4, 0), LOOSE) == PlaceableRequest(cards=1, memory_units=4, core=0, whole=False)
    assert isinstance(classify(RequestedAmounts(0, 30), LOOSE), ImpossibleRequest)


def test_the_words_use_the_configured_names() -> None:
    model = ResourceModel(memory_resource="example.org/mem", core_resource="example.org/cores")
    assert classify(RequestedAmounts(4, 0), model) == ImpossibleRequest(
        "asks 4 mem without cores: add example.org/cores (1 to 100) to its limits",
    )


@pytest.mark.parametrize(
    ("memory", "cards", "parts"), [(0, 2, (0, 0)), (7, 3, (3, 2, 2)), (8, 2, (4, 4)), (1, 2, (1, 0))]
)
def test_memory_of_whole_cards_is_spread_evenly(memory: int, cards: int, parts: tuple[int, ...]) -> None:
    assert PlaceableRequest(cards, memory, 100, whole=True).memory_parts() == parts


def test_a_pod_is_unplaceable_with_its_containers_name() -> None:
    refused = plan_pod((box("good", 4, 10), box("bad", 4, 0)), MODEL)
    assert refused == ImpossibleRequest(
        "container bad asks 4 vcuda-memory without vcuda-core: add baidu.com/vcuda-core (1 to 100) to its limits",
    )


def test_whole_cards_behind_an_init_container_must_be_the_same() -> None:
    same = plan_pod((box("i", 0, 200, ContainerRole.INIT), box("a", 0, 200)), MODEL)
    assert not isinstance(same, ImpossibleRequest)
    for others in (
        (box("i", 4, 10, ContainerRole.INIT), box("a", 0, 200)),
        (box("i", 0, 200, ContainerRole.INIT), box("a", 0, 200), box("b", 0, 200)),
        (box("i", 0, 200, ContainerRole.INIT), box("a", 4, 10)),
    ):
        refused = plan_pod(others, MODEL)
        assert isinstance(refused, ImpossibleRequest)
        assert refused.reason.startswith("has a GPU init container beside whole cards")
