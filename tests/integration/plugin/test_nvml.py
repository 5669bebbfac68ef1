"""NVML behind its deadline, on the simulated driver: each driver root in a process of its own."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from edgegpu_sim.driver import SimCard, SimDriver, SimVersions, make_card

CHILD = Path(__file__).with_name("nvml_child.py")
WAIT_S = 60.0
CARDS = (make_card(0, "Tesla T4", 15360), make_card(1, "Tesla P4", 7611))


class Looker:
    """A process that looks at a driver's cards."""

    def __init__(self, root: Path, *, run: bool, settings: dict[str, Any]) -> None:
        arguments = json.dumps({"root": str(root), "poll_s": 0.05, "nvml_timeout_s": 5, **settings})
        self._log = root.with_name(f"{root.name}.log")
        with self._log.open("w") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, CHILD, arguments, *(["run"] if run else [])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=os.environ | {"PYTHONWARNINGS": "error"},
            )
        self._changes: queue.Queue[dict[str, Any]] = queue.Queue()
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def cards(self) -> list[dict[str, Any]]:
        """The next change of the cards."""
        cards: list[dict[str, Any]] = self._changes.get(timeout=WAIT_S)["cards"]
        return cards

    def health(self) -> list[bool]:
        return [card["healthy"] for card in self.cards()]

    def ask(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._answers.get(timeout=WAIT_S)

    def lines(self, words: str) -> list[str]:
        """Return the lines of its log that have these words."""
        return [line for line in self._log.read_text().splitlines() if words in line]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            assert self._process.wait(WAIT_S) == 0
        finally:
            self._process.kill()
            self._reader.join(WAIT_S)
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            (self._changes if "cards" in said else self._answers).put(said)


MakeLooker = Callable[..., Looker]


@pytest.fixture
def looker(tmp_path: Path) -> Iterator[MakeLooker]:
    with ExitStack() as stack:

        def make(root: Path = tmp_path, *, run: bool = True, **settings: float) -> Looker:
            made = Looker(root, run=run, settings=settings)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def driver(tmp_path: Path, simdriver_build: Path) -> SimDriver:
    return SimDriver.create(tmp_path, CARDS, build=simdriver_build)


def names(cards: Sequence[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return [(card["uuid"], card["index"], card["memory_mib"]) for card in cards]


@pytest.mark.usefixtures("driver")
def test_cards_are_found(looker: MakeLooker) -> None:
    process = looker()
    cards = process.cards()
    assert names(cards) == [(CARDS[0].uuid, 0, 15360), (CARDS[1].uuid, 1, 7611)]
    assert [card["minor"] for card in cards] == [0, 1]
    assert [card["pci"].lower() for card in cards] == [card.pci.lower() for card in CARDS]
    assert all(card["healthy"] and card["mig"] is None and card["caps"] == [] for card in cards)
    assert process.ask("problem") == {"problem": "", "version": "560.35.03"}


@pytest.mark.parametrize("status", [0, 13, 999])
def test_what_the_driver_keeps_of_a_card_is_known_where_it_says_that(
    looker: MakeLooker, tmp_path: Path, simdriver_build: Path, status: int
) -> None:
    driver = SimDriver.create(tmp_path, CARDS, build=simdriver_build, versions=SimVersions(reserved_mib=444))
    if status:
        driver.fail("nvmlDeviceGetMemoryInfo_v2", status)  # 13: it has no such function
    cards = looker().cards()
    assert [card["kept_mib"] for card in cards] == [None if status else 444] * 2
    assert [card["memory_mib"] for card in cards] == [15360, 7611]


def test_mig_devices_stand_for_their_gpu(looker: MakeLooker, tmp_path: Path, simdriver_build: Path) -> None:
    split = make_card(1, "NVIDIA A100", 40960, profiles=["1g.5gb", "2g.10gb"])
    SimDriver.create(tmp_path, [CARDS[0], split], build=simdriver_build)
    gpu, first, second = looker().cards()
    assert gpu["uuid"] == CARDS[0].uuid
    assert [(c["uuid"], c["mig"], c["parent"]) for c in (first, second)] == [
        (split.mig[0].uuid, 0, split.uuid),
        (split.mig[1].uuid, 1, split.uuid),
    ]
    assert [tuple(c["caps"]) for c in (first, second)] == [mig.caps for mig in split.mig]
    assert [c["memory_mib"] for c in (first, second)] == [5120, 10240]


def test_an_error_of_the_card_puts_it_out_of_order_for_a_while(looker: MakeLooker, driver: SimDriver) -> None:
    process = looker(recover_s=0.3)
    assert process.health() == [True, True]
    driver.xid(CARDS[1].uuid, 74)
    assert process.health() == [True, False]
    assert process.health() == [True, True]


def test_an_application_s_error_leaves_the_card_in_order(looker: MakeLooker, driver: SimDriver) -> None:
    process = looker(recover_s=60)
    assert process.health() == [True, True]
    driver.xid(CARDS[1].uuid, 31)
    driver.xid(CARDS[0].uuid, 48)
    assert process.health() == [False, True]


def test_a_released_card_is_let_go_of_until_it_is_accepted(looker: MakeLooker, driver: SimDriver) -> None:
    process = looker(recover_s=0.1)
    assert process.health() == [True, True]
    driver.xid(CARDS[1].uuid, 95)
    assert "out until a reset" in process.cards()[1]["problem"]
    assert process.ask(f"release {CARDS[1].uuid}") == {"done": CARDS[1].uuid}
    assert [(card["healthy"], card["answers"]) for card in process.cards()] == [(True, True), (False, True)]
    driver.vanish(CARDS[1].uuid)  # it is reset meanwhile, and nobody asks it anything
    assert [card["answers"] for card in process.ask("look")["look"]] == [True, True]
    driver.restore(CARDS[1].uuid)
    assert process.ask(f"accept {CARDS[1].uuid}") == {"done": CARDS[1].uuid}
    assert process.health() == [True, True]


def test_nothing_of_the_driver_is_open_once_all_cards_are_released(looker: MakeLooker, driver: SimDriver) -> None:
    process = looker()
    assert process.health() == [True, True]
    for card in CARDS:
        process.ask(f"release {card.uuid}")
    driver.fail("nvmlInitWithFlags", 9)
    assert [card["healthy"] for card in process.ask("look")["look"]] == [False, False]
    assert process.ask("problem")["problem"] == ""


@pytest.mark.parametrize("name", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2"])
def test_cards_whose_errors_the_driver_does_not_report_are_offered(
    looker: MakeLooker, driver: SimDriver, name: str
) -> None:
    driver.fail(name, 3)
    process = looker()
    assert [(card["healthy"], card["watched"]) for card in process.cards()] == [(True, False)] * 2
    assert process.ask("problem")["problem"] == ""
    for _ in range(3):
        process.ask("look")
    for card in CARDS:
        assert len(process.lines(f"{card.uuid} is not watched: the driver reports no errors (XID)")) == 1


@pytest.mark.parametrize("name", ["nvmlDeviceGetMigMode", "nvmlDeviceGetCudaComputeCapability"])
def test_an_odd_error_of_an_optional_query_costs_no_card(looker: MakeLooker, driver: SimDriver, name: str) -> None:
    driver.fail(name, 999)
    process = looker()
    assert process.health() == [True, True]
    for _ in range(3):
        process.ask("look")
    assert len(process.lines(f"the driver does not answer {name}, which the cards are offered without")) == 1


def test_a_split_card_that_does_not_say_its_mode_stays_split(
    looker: MakeLooker, tmp_path: Path, simdriver_build: Path
) -> None:
    split = make_card(0, "NVIDIA A100", 40960, profiles=["1g.5gb", "1g.5gb"])
    driver = SimDriver.create(tmp_path, [split, CARDS[1]], build=simdriver_build)
    process = looker(run=False)
    before = [card["uuid"] for card in process.ask("look")["look"]]
    driver.fail("nvmlDeviceGetMigMode", 999)
    assert [card["uuid"] for card in process.ask("look")["look"]] == before


def test_a_card_that_is_released_while_no_driver_answers_takes_no_other_away(
    looker: MakeLooker, driver: SimDriver
) -> None:
    driver.fail("nvmlInitWithFlags", 9)
    process = looker(run=False)
    assert process.ask("look")["kind"] == "NOT_LOADED"
    process.ask(f"release {CARDS[1].uuid}")
    assert process.ask("look")["kind"] == "NOT_LOADED"
    driver.clear()
    assert [card["healthy"] for card in process.ask("look")["look"]] == [True, False]


def test_an_error_of_a_split_card_is_one_of_all_its_parts(
    looker: MakeLooker, tmp_path: Path, simdriver_build: Path
) -> None:
    split = make_card(0, "NVIDIA A100", 40960, profiles=["1g.5gb", "1g.5gb"])
    driver = SimDriver.create(tmp_path, [split, CARDS[1]], build=simdriver_build)
    process = looker()
    assert process.health() == [True, True, True]
    driver.xid(split.uuid, 79)
    assert process.health() == [False, False, True]


def test_a_card_that_fell_off_the_bus_comes_back(looker: MakeLooker, driver: SimDriver) -> None:
    process = looker()
    assert process.health() == [True, True]
    driver.vanish(CARDS[0].uuid)
    lost = process.cards()
    assert [card["healthy"] for card in lost] == [False, True]
    assert names(lost) == [(CARDS[0].uuid, 0, 15360), (CARDS[1].uuid, 1, 7611)]
    driver.restore(CARDS[0].uuid)
    assert process.health() == [True, True]
    driver.xid(CARDS[0].uuid, 79)  # it is listened to again
    assert process.health() == [False, True]


def test_a_hanging_call_holds_nobody_up(looker: MakeLooker, driver: SimDriver) -> None:
    process = looker(nvml_timeout_s=0.3)
    assert process.health() == [True, True]
    driver.hang("nvmlDeviceGetMemoryInfo")
    until(lambda: "NVML has hung since" in process.ask("problem")["problem"])
    told = process.ask("look")
    assert told["kind"] == "HANGS"
    assert "in nvmlDeviceGetMemoryInfo: the driver does not answer" in told["text"]
    driver.clear()
    until(lambda: process.ask("problem")["problem"] == "")
    assert names(process.ask("look")["look"]) == [(CARDS[0].uuid, 0, 15360), (CARDS[1].uuid, 1, 7611)]


@pytest.mark.usefixtures("simdriver_build")
def test_no_driver_is_told_and_waited_for(looker: MakeLooker, tmp_path: Path, simdriver_build: Path) -> None:
    process = looker()
    until(lambda: "cannot find the NVIDIA driver's libnvidia-ml.so.1 under" in process.ask("problem")["problem"])
    SimDriver.create(tmp_path, CARDS, build=simdriver_build)
    assert process.health() == [True, True]


def test_a_driver_that_is_not_loaded_yet_is_waited_for(looker: MakeLooker, driver: SimDriver) -> None:
    driver.unload()
    process = looker()
    until(lambda: "the NVIDIA driver is not loaded" in process.ask("problem")["problem"])
    driver.load()
    assert process.health() == [True, True]


@pytest.mark.parametrize(
    ("breaks", "kind", "text"),
    [
        (lambda driver: driver.unload(), "NOT_LOADED", "`modprobe nvidia`"),
        (lambda driver: driver.fail("nvmlInitWithFlags", 18), "NOT_LOADED", "its kernel module was not: reboot"),
        (lambda driver: driver.fail("nvmlDeviceGetCount", 999), "FAILED", "cannot ask NVML (nvmlDeviceGetCount)"),
        (lambda driver: driver.hang("nvmlInitWithFlags"), "HANGS", "NVML has hung since"),
    ],
    ids=["not loaded", "upgraded", "failing", "hanging"],
)
def test_troubles_are_told_apart(
    looker: MakeLooker, driver: SimDriver, *, breaks: Callable[[SimDriver], None], kind: str, text: str
) -> None:
    breaks(driver)
    told = looker(run=False, nvml_timeout_s=0.05).ask("look")
    assert told["kind"] == kind
    assert text in told["text"]


def test_a_library_that_others_could_replace_is_not_loaded(looker: MakeLooker, driver: SimDriver) -> None:
    driver.libraries.chmod(0o777)
    told = looker(run=False).ask("look")
    assert told["kind"] == "NO_DRIVER"
    assert f"is not loaded: {driver.libraries} can be written by others than root" in told["text"]


def test_a_driver_without_cards(looker: MakeLooker, tmp_path: Path, simdriver_build: Path) -> None:
    none: list[SimCard] = []
    SimDriver.create(tmp_path, none, build=simdriver_build)
    told = looker(run=False).ask("look")
    assert told["kind"] == "NO_CARDS"
    assert "works but has no card" in told["text"]


def test_one_silent_card_does_not_hide_the_others(looker: MakeLooker, driver: SimDriver) -> None:
    driver.vanish(CARDS[0].uuid)
    assert names(looker().cards()) == [(CARDS[1].uuid, 1, 7611)]


def until(what: Callable[[], bool]) -> None:
    """Ask the process until it says so; each question is a round trip to it."""
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < deadline, "not so in time"
