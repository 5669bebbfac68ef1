"""What the driver counts of a container beyond its own count: what is charged for it, and what never is."""

import struct
from pathlib import Path

import pytest

from edgegpu_plugin.containers.held.bypass import SLACK, CountedContainer
from edgegpu_plugin.containers.held.uncounted import UncountedMemory
from edgegpu_plugin.containers.usage_file import USAGE_BYTES, form_text

CARD, OTHER = "GPU-11111111-2222-3333-4444-555555555555", "GPU-11111111-2222-3333-4444-666666666666"
KEY = ("u", "main")
MIB = 1 << 20
LIMIT_MIB, SLACK_MIB, STEP_MIB = 1024, 20, 8


class Held:
    """A container that is held to 1 GiB, and its usage file."""

    def __init__(self, folder: Path) -> None:
        self.usage = folder / "usage"
        (folder / "form").write_text(form_text())
        self.memory = UncountedMemory()
        self.held = {KEY: CountedContainer([self.usage], {CARD: LIMIT_MIB * MIB})}
        self.counts(0)

    def counts(self, mib: int, *, most: int = 0) -> None:
        """Have the container count so much now, and at most so much since the plugin has looked."""
        uuid = bytes.fromhex(CARD.removeprefix("GPU-").replace("-", ""))
        head = struct.pack("=4I2Q2I256s128s16s", 0x45474C4D, 5, USAGE_BYTES, 512, 0, 1, 1, 1, uuid, b"", b"0.1.0")
        shared = struct.pack("=56xQ", most * MIB).ljust(1024, b"\0")
        slot = struct.pack("=4Qq34Q", 1, 1, 1, 1, 1, 0, 0, mib * MIB, 1, *([0] * 30))
        self.usage.write_bytes((head + shared + slot).ljust(USAGE_BYTES, b"\0"))

    def look(self, used_mib: int, card: str = CARD) -> bool:
        return self.memory.look({(KEY, card): used_mib * MIB}, self.held) == {KEY}

    @property
    def charged_mib(self) -> float:
        return self.memory.bytes.get(KEY, {}).get(CARD, 0) / MIB


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(tmp_path)


@pytest.mark.parametrize(
    ("counted", "used", "charged"),
    [(500, 500, 0), (500, 300, 0), (500, 500 + SLACK_MIB, 0), (500, 522, STEP_MIB), (500, 600, 80), (0, 2000, 1984)],
)
def test_what_is_beyond_the_count_and_what_a_driver_rounds_up_is_charged(
    held: Held, counted: int, used: int, charged: float
) -> None:
    held.counts(counted)
    assert held.look(used) is bool(charged)
    assert held.charged_mib == charged
    assert not held.look(used)


def test_what_a_driver_may_round_up_to_the_last_byte_is_no_charge_of_nothing(held: Held) -> None:
    rounded = int(LIMIT_MIB * MIB * (SLACK - 1))
    assert held.memory.look({(KEY, CARD): rounded}, held.held) == set()
    assert held.memory.bytes == {}
    assert held.memory.look({(KEY, CARD): rounded + 1}, held.held) == {KEY}


def test_what_was_freed_before_the_look_is_not_charged(held: Held) -> None:
    """The driver's count is of an earlier moment than the file's."""
    held.counts(100, most=900)
    assert not held.look(900)
    held.counts(0)
    assert not held.look(100)  # counted right after the last look, freed since
    assert held.look(100)
    assert held.charged_mib == 80


def test_the_most_is_of_the_time_since_the_last_look(held: Held) -> None:
    held.counts(100, most=900)
    held.look(900)
    assert held.look(900)
    assert held.charged_mib == 784
    assert held.usage.stat().st_size == USAGE_BYTES


def test_what_is_gone_is_charged_no_longer(held: Held) -> None:
    held.look(500)
    assert held.charged_mib == 480
    assert held.memory.look({}, held.held) == {KEY}
    assert held.charged_mib == 0


def test_a_card_that_it_may_not_use_and_a_file_that_is_none(held: Held) -> None:
    assert held.look(5, card=OTHER)
    assert held.memory.bytes == {KEY: {OTHER: 5 * MIB}}
    held.usage.write_bytes(b"x")
    assert held.look(500)
    assert held.charged_mib == 480
    held.usage.unlink()
    assert not held.look(500)


def test_of_two_folders_the_one_that_the_container_uses_counts(held: Held, tmp_path: Path) -> None:
    held.counts(500)
    unused = tmp_path / "unused"
    unused.write_bytes(bytes(USAGE_BYTES))
    held.held = {KEY: CountedContainer([unused, held.usage], {CARD: LIMIT_MIB * MIB})}
    assert not held.look(500)


def test_a_file_that_the_container_has_made_huge_is_not_read(held: Held) -> None:
    with held.usage.open("r+b") as file:
        file.truncate(1 << 40)
    assert held.look(500)
    assert held.charged_mib == 480


def test_what_a_container_writes_as_its_most_hides_no_more_than_its_limit(held: Held) -> None:
    held.counts(0, most=2**43)
    assert not held.look(1000)
    held.counts(0, most=2**43)
    assert held.look(1500)
    assert held.charged_mib == 456


def test_what_was_found_stays_while_the_driver_does_not_say_what_a_container_has(held: Held) -> None:
    held.counts(500)
    assert held.look(600)
    assert held.memory.look({}, held.held, unsaid=lambda key, card: (key, card) == (KEY, CARD)) == set()
    assert held.charged_mib == 80
    assert held.memory.look({}, held.held, unsaid=lambda _key, card: card == OTHER) == {KEY}
    assert held.charged_mib == 0
    assert held.look(600)
    assert held.memory.look({}, {}, unsaid=lambda _key, _card: True) == {KEY}, "its container has ended"
