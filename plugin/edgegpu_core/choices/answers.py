"""The marks in kubelet's stored answers that say what a container was given."""

import base64
import binascii
from collections.abc import Iterable
from itertools import combinations

from edgegpu_core.choices.modes import Capability, PluginIsolation
from edgegpu_core.choices.pod_choice import (
    CAPABILITIES_ANNOTATION,
    GIVEN_NOTHING,
    ISOLATION_ANNOTATION,
    REPLACED_ANNOTATION,
    GivenChoice,
)

_OPENED = [some for count in range(1, len(Capability) + 1) for some in combinations(sorted(Capability), count)]


def choice_marks(given: GivenChoice) -> dict[str, str]:
    """Return the annotations of kubelet's answer by which later starts know what a container was given."""
    marks: dict[str, str] = {ISOLATION_ANNOTATION: given.isolation}
    if given.capabilities:
        marks[CAPABILITIES_ANNOTATION] = ",".join(given.capabilities)
    if given.replaced:
        marks[REPLACED_ANNOTATION] = given.replaced
    return marks


def answer_bytes(stored: str) -> bytes:
    """Return an answer as it was given, of its base64 as kubelet stores it; empty where that is none."""
    try:
        return base64.b64decode(stored)
    except (binascii.Error, ValueError):
        return b""


def given_by(stored: str) -> GivenChoice:
    """Return what an answer gives, in base64 as kubelet stores it; one without a mark gives nothing that holds."""
    answer = answer_bytes(stored)
    modes = (mode for mode in PluginIsolation if _mark(ISOLATION_ANNOTATION, mode) in answer)
    opened = (some for some in _OPENED if _mark(CAPABILITIES_ANNOTATION, ",".join(some)) in answer)
    replaced = (mode for mode in PluginIsolation if _mark(REPLACED_ANNOTATION, mode) in answer)
    return GivenChoice(next(modes, PluginIsolation.NONE), next(opened, ()), next(replaced, ""))


def _mark(key: str, value: str) -> bytes:
    """Return an annotation of an answer in protobuf's form: the key's text, then field 2 of the map's entry."""
    return key.encode() + b"\x12" + bytes([len(value)]) + value.encode()


def least(some: Iterable[GivenChoice]) -> GivenChoice:
    """Return the least that a container's answers give: the least strict, and the capabilities that all have."""
    found = list(some)
    if not found:
        return GIVEN_NOTHING
    mode = min((one.isolation for one in found), key=lambda one: one.strictness)
    replaced = max((one.replaced for one in found), key=lambda one: PluginIsolation(one).strictness if one else -1)
    opened = set(found[0].capabilities).intersection(*(one.capabilities for one in found))
    differs = len({one.isolation.has_limiter for one in found}) > 1
    return GivenChoice(mode, tuple(sorted(opened)), replaced if replaced != mode else "", differs)
