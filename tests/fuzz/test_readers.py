"""The readers without atheris: what fuzzing begins with is read, and what it has found once is found no more."""

from __future__ import annotations

import base64
import json

import pytest
from fuzz import seeds
from fuzz.mutate import mutated
from fuzz.readers import Reader, readers
from fuzz.shapes import misfits
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegpu_cloud.enrolment import ca
from edgegpu_sync.errors import MessageRefusedError
from edgegpu_sync.messages.readers import read
from edgegpu_sync.topics import TopicKind

ALL = readers()


@pytest.mark.parametrize("reader", ALL.values(), ids=list(ALL))
def test_seeds_and_some_changes_of_them_are_read(reader: Reader) -> None:
    assert reader.seeds
    for number, data in enumerate(reader.seeds):
        reader.read(data)
        for place in range(40):
            reader.read(mutated(data, 100 * number + place) or data[: place * 9])


def of_another_version() -> str:
    """Return a certificate request of a version that there is not."""
    plain: str = json.loads(seeds.asks("A" * 43)[0])["csr"]
    der = base64.b64decode("".join(plain.splitlines()[1:-1])).replace(b"\x02\x01\x00", b"\x02\x01\x40", 1)
    head, *_, end = plain.splitlines()
    return f"{head}\n{base64.b64encode(der).decode()}\n{end}\n"


def test_a_certificate_request_of_an_unknown_version_is_refused() -> None:
    with pytest.raises(ca.RequestError):
        ca.read_request(of_another_version())


@pytest.mark.parametrize("kind", [TopicKind.DESIRED, TopicKind.COMMAND, TopicKind.RECEIPT])
@given(st.data())
@settings(max_examples=150)
def test_what_is_called_a_misfit_is_refused_by_its_reader(kind: TopicKind, data: st.DataObject) -> None:
    body = data.draw(misfits(seeds.bodies(kind)[0], kind))
    with pytest.raises(MessageRefusedError, match=r"Malformed|UnknownVersion|Oversize"):
        read(kind, body)
