"""Which controllers' keys a worker obeys: each newer set, and none from before its enrolment or its journal's."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from kits.worker import Box, Wire, fast_folder, wired
from kits.workercontroller import ROOT

from edgegpu_sync.errors import RefusalReason
from edgegpu_sync.keys import next_link, public_text
from edgegpu_sync.messages.readers import read
from edgegpu_sync.messages.uplink import Birth
from edgegpu_sync.signing import Signer
from edgegpu_sync.topics import TopicKind, parse

OTHER = Ed25519PrivateKey.from_private_bytes(bytes([9] * 32))


@pytest.fixture
def folder() -> Iterator[Path]:
    with fast_folder() as path:
        yield path


@pytest.fixture
def wire(folder: Path) -> Iterator[Wire]:
    wire = wired(folder)
    yield wire
    wire.box.crash()


def births(box: Box) -> list[Birth]:
    """Return the births that were published, and take all off the link."""
    found = [
        read(TopicKind.STATUS, text[101 + 6 :])
        for topic, text in box.link.sent
        if parse(topic).kind is TopicKind.STATUS
    ]
    box.link.sent.clear()
    return [one for one in found if isinstance(one, Birth)]


def test_new_keys_are_followed_and_old_ones_obeyed_no_more(wire: Wire) -> None:
    controller = wire.controller
    before = controller.receipt(ask=("status",))
    controller.chain.append(next_link(ROOT, keys=[public_text(OTHER)], before=controller.chain[-1]))
    wire.box.arrive(*controller.keys())
    (birth,) = births(wire.box)
    assert birth.key_set == 2
    wire.box.arrive(*before)
    assert wire.box.worker.status().refused == {RefusalReason.UNKNOWN_KEY: 1}
    controller.signer = Signer.of(OTHER)
    wire.box.arrive(*controller.receipt(ask=("status",)))
    assert len(births(wire.box)) == 1


def test_a_box_obeys_no_keys_from_before_its_enrolment(folder: Path) -> None:
    """A broker shows it the first set alone, whose key was withdrawn before the box was enrolled."""
    wire = wired(folder)
    wire.box.crash()
    (folder / "journal.db").unlink()
    withdrawn = wire.controller.receipt(ask=("status",))
    first = wire.controller.keys()
    link = next_link(ROOT, keys=[public_text(OTHER)], before=wire.controller.chain[-1])
    wire.box.keys = (*wire.controller.chain, link)
    wire.box.start()
    wire.box.connect()
    assert wire.box.worker.status().key_set == 2
    wire.box.arrive(*first)
    wire.box.arrive(*withdrawn)
    assert wire.box.worker.status().refused == {RefusalReason.OLD_KEY_SET: 1, RefusalReason.UNKNOWN_KEY: 1}
    wire.box.crash()


def test_a_journal_does_not_go_back_to_the_keys_of_the_enrolment(wire: Wire) -> None:
    wire.box.keys = tuple(wire.controller.chain)
    wire.controller.chain.append(next_link(ROOT, keys=[public_text(OTHER)], before=wire.controller.chain[-1]))
    wire.box.arrive(*wire.controller.keys())
    wire.box.crash()
    wire.box.start()
    assert wire.box.worker.status().key_set == 2
