"""Who may start: what was promised, what wrongs nobody, and the words of a refusal."""

from dataclasses import replace

from property.cases import MODEL, Book, box, pod_of, slots_of, view_of

from edgegpu_core.admission import AdmissionVerdict, admission_failure, admission_verdict, is_split_share, would_fit
from edgegpu_core.choices.pod_choice import AllowedChoices, GivenChoice, PodChoice
from edgegpu_core.deviceid import DeviceKind
from edgegpu_core.inventory import CardCapacity
from edgegpu_core.ledger import Grant
from edgegpu_core.model import ResourceModel
from edgegpu_core.nodeview import WaitingContainer
from edgegpu_core.podview import PodView

SLOTS = slots_of(29, 29)


def verdict(
    pod: PodView, book: Book, *others: PodView, model: ResourceModel | None = None, name: str = ""
) -> AdmissionVerdict:
    container = next(c for c in pod.containers if not name or c.name == name)
    return admission_verdict(
        pod, container, view_of(book.slots, pod, *others, ledger=book.ledger, model=model or MODEL)
    )


def test_a_pod_on_its_promised_card_is_admitted() -> None:
    pod = pod_of("u", box("main", 20, 10), cards={"main": ("GPU-1",)})
    book = Book(SLOTS)
    book.share("u", "GPU-1", 20, 10)
    assert verdict(pod, book) == AdmissionVerdict(("GPU-1",))
    assert verdict(pod, book).admitted


def test_a_pod_that_nobody_placed_is_admitted_where_it_wrongs_nobody() -> None:
    late = pod_of("u", box("main", 20, 10), created="2")
    promised = pod_of("v", box("main", 20, 30), cards={"main": ("GPU-0",)}, created="3")
    book = Book(SLOTS)
    book.share("u", "GPU-0", 20, 10)
    assert verdict(late, book) == AdmissionVerdict(("GPU-0",))
    assert verdict(late, book, promised) == AdmissionVerdict(
        ("GPU-0",),
        "needs 20 vcuda-memory and 10 vcuda-core on one card; card 0 has 9 free, card 1 has 29 free",
    )


def test_among_pods_that_nobody_placed_the_older_is_in_its_right() -> None:
    model = ResourceModel(core_required=False)
    old, young = pod_of("1", box("main", 4, 100), created="1"), pod_of("2", box("main", 4, 0), created="2")
    book = Book(SLOTS)
    book.share("1", "GPU-0", 4, 100)
    book.share("2", "GPU-0", 4, 0)
    assert verdict(old, book, young, model=model).admitted
    assert not verdict(young, book, old, model=model).admitted


def test_devices_on_two_cards_are_refused() -> None:
    pod = pod_of("u", box("main", 20, 10))
    book = Book(SLOTS)
    book.give("u", "main", DeviceKind.MEMORY, {"GPU-0": 12, "GPU-1": 8})
    book.give("u", "main", DeviceKind.CORE, {"GPU-0": 10})
    assert verdict(pod, book).reason == (
        "needs 20 vcuda-memory and 10 vcuda-core on one card; card 0 has 29 free, card 1 has 29 free"
    )


def test_memory_and_core_on_different_cards_are_refused_even_when_promised() -> None:
    pod = pod_of("u", box("main", 20, 10), cards={"main": ("GPU-0",)})
    book = Book(SLOTS)
    book.give("u", "main", DeviceKind.MEMORY, {"GPU-0": 20})
    book.give("u", "main", DeviceKind.CORE, {"GPU-1": 10})
    assert not verdict(pod, book).admitted


def test_too_few_devices_are_refused() -> None:
    pod = pod_of("u", box("main", 20, 10), cards={"main": ("GPU-0",)})
    book = Book(SLOTS)
    book.share("u", "GPU-0", 20, 0)
    assert not verdict(pod, book).admitted


def test_an_amount_that_can_never_be_placed_is_refused_with_the_remedy() -> None:
    pod = pod_of("u", box("main", 20, 0))
    book = Book(SLOTS)
    book.share("u", "GPU-0", 20, 0)
    assert verdict(pod, book).reason == (
        "container main asks 20 vcuda-memory without vcuda-core: add baidu.com/vcuda-core (1 to 100) to its limits"
    )
    assert verdict(pod, book, model=ResourceModel(core_required=False)).admitted
    assert not would_fit(pod, view_of(SLOTS, pod, ledger=book.ledger))


def test_a_card_that_is_gone() -> None:
    pod = pod_of("u", box("main", 20, 10), cards={"main": ("GPU-1",)})
    book = Book(SLOTS)
    book.share("u", "GPU-1", 20, 10)
    view = view_of(SLOTS[:1], pod, ledger=book.ledger)
    found = admission_verdict(pod, pod.containers[0], view)
    assert found.reason == "its card GPU-1 is not offered on this node: it is not there any more, or excluded"
    assert found.card_missing


def test_devices_that_no_container_may_have_are_known_without_the_pod() -> None:
    book = Book(slots_of(29, 29))
    book.share("sound", "GPU-0", 4, 10)
    book.give("torn", "main", DeviceKind.MEMORY, {"GPU-0": 4})
    book.give("torn", "main", DeviceKind.CORE, {"GPU-1": 10})
    book.give("split", "main", DeviceKind.MEMORY, {"GPU-0": 4, "GPU-1": 4})
    whole = Book(SLOTS)
    whole.give("whole", "main", DeviceKind.CORE, {"GPU-0": 100, "GPU-1": 100})
    whole.give("whole", "main", DeviceKind.MEMORY, {"GPU-0": 3, "GPU-1": 2})
    assert [is_split_share(book.ledger.grant(uid, "main")) for uid in ("sound", "torn", "split")] == [False, True, True]
    assert not is_split_share(whole.ledger.grant("whole", "main"))


def test_whole_cards_with_memory_spread_evenly() -> None:
    pod = pod_of("u", box("main", 9, 200))
    book = Book(SLOTS)
    book.give("u", "main", DeviceKind.CORE, {"GPU-0": 100, "GPU-1": 100})
    book.give("u", "main", DeviceKind.MEMORY, {"GPU-0": 4, "GPU-1": 5})
    assert verdict(pod, book) == AdmissionVerdict(("GPU-0", "GPU-1"))
    uneven = pod_of("v", box("main", 9, 200))
    book = Book(SLOTS)
    book.give("v", "main", DeviceKind.CORE, {"GPU-0": 100, "GPU-1": 100})
    book.give("v", "main", DeviceKind.MEMORY, {"GPU-0": 3, "GPU-1": 6})
    assert not verdict(uneven, book).admitted


def test_nobody_starts_beside_a_whole_card() -> None:
    whole = pod_of("u", box("main", 4, 100), cards={"main": ("GPU-0",)})
    beside = pod_of("v", box("main", 4, 0))
    model = ResourceModel(core_required=False)
    book = Book(SLOTS)
    book.share("u", "GPU-0", 4, 100)
    book.share("v", "GPU-0", 4, 0)
    assert verdict(whole, book, beside, model=model).admitted
    assert verdict(beside, book, whole, model=model).reason == (
        "needs 4 vcuda-memory on one card; card 0 has 0 free, card 1 has 29 free"
    )
    assert would_fit(beside, view_of(SLOTS, whole, beside, ledger=book.ledger, model=model))


def test_a_pods_own_containers_do_not_share_a_whole_card_either() -> None:
    pod = pod_of("u", box("whole", 4, 100), box("rest", 4, 0))
    model = ResourceModel(core_required=False)
    book = Book(slots_of(29))
    book.share("u", "GPU-0", 4, 100, container="whole")
    book.share("u", "GPU-0", 4, 0, container="rest")
    assert not verdict(pod, book, model=model, name="rest").admitted


def test_a_refused_pod_would_fit_when_its_own_devices_are_given_back() -> None:
    pod = pod_of("u", box("main", 20, 10))
    promised = pod_of("v", box("main", 20, 10), cards={"main": ("GPU-0",)})
    book = Book(SLOTS)
    book.give("u", "main", DeviceKind.MEMORY, {"GPU-0": 9, "GPU-1": 11})
    book.give("u", "main", DeviceKind.CORE, {"GPU-0": 10})
    assert not verdict(pod, book, promised).admitted
    assert would_fit(pod, view_of(SLOTS, pod, promised, ledger=book.ledger))
    assert not would_fit(pod, view_of(SLOTS[:1], pod, promised, ledger=book.ledger))


def fate(pod: PodView, *others: PodView, slots: tuple[CardCapacity, ...] = SLOTS) -> str:
    view = view_of(slots, pod, *others, ledger=Book(slots).ledger)
    return admission_failure(WaitingContainer(pod, pod.containers[0], Grant(), started=False), view)


def test_a_bare_pod_for_which_no_card_has_room_fails() -> None:
    others = [pod_of(str(n), box("main", 15, 1), cards={"main": (f"GPU-{n}",)}) for n in range(2)]
    pod = pod_of("u", box("main", 20, 10))
    said = "needs 20 vcuda-memory and 10 vcuda-core on one card; card 0 has 14 free, card 1 has 14 free"
    assert fate(pod, *others) == said
    assert fate(pod, others[0]) == ""
    assert "add baidu.com/vcuda-core" in fate(pod_of("u", box("main", 20, 0)))


def test_whoever_would_be_made_again_or_is_in_its_right_does_not_fail() -> None:
    others = [pod_of(str(n), box("main", 15, 1), cards={"main": (f"GPU-{n}",)}) for n in range(2)]
    pod = pod_of("u", box("main", 20, 10))
    assert fate(replace(pod, controlled=True), *others) == ""
    assert fate(replace(pod, is_static=True), *others) == ""
    assert fate(replace(pod, cards={"main": ("GPU-0",)}), *others) == ""
    assert fate(pod, *others, slots=()) == ""
    later = WaitingContainer(pod, pod.containers[0], Grant(), started=True)
    assert admission_failure(later, view_of(SLOTS, pod, *others, ledger=Book(SLOTS).ledger)) == ""


def test_a_pod_that_was_given_less_than_it_chooses_is_refused_and_made_anew_only_where_that_helps() -> None:
    pod = replace(pod_of("u", box("main", 20, 10), cards={"main": ("GPU-1",)}), choice=PodChoice("limiter"))
    book = Book(SLOTS)
    book.share("u", "GPU-1", 20, 10)
    free = replace(
        view_of(SLOTS, pod, ledger=book.ledger),
        given={("u", "main"): GivenChoice()},
        allowed=AllowedChoices("none", ("limiter",)),
    )
    found = admission_verdict(pod, pod.containers[0], free)
    assert "the container was given none when its pod was admitted: delete the pod" in found.reason
    assert would_fit(pod, free)
    closed = replace(free, allowed=AllowedChoices("none"))
    assert "does not allow limiter" in admission_verdict(pod, pod.containers[0], closed).reason
    assert not would_fit(pod, closed), "its controller would make one after the other"
