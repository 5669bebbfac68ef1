"""The marks in kubelet's stored answers that say what a container was given."""

import base64
import binascii
from collections.abc import Iterable

from edgegpu_core.choices.modes import PluginIsolation
from edgegpu_core.choices.pod_choice import ISOLATION_ANNOTATION, NO_CHOICE, PodChoice


def choice_marks(given: PodChoice) -> dict[str, str]:
    """Return the annotations of kubelet's answer by which later starts know what a container was given."""
    return {ISOLATION_ANNOTATION: given.isolation}


def answer_bytes(stored: str) -> bytes:
    """Return an answer as it was given, of its base64 as kubelet stores it; empty where that is none."""
    try:
        return base64.b64decode(stored)
    except (binascii.Error, ValueError):
        return b""


def given_by(stored: str) -> PodChoice:
    """Return what an answer gives, in base64 as kubelet stores it; one without a mark gives nothing that holds."""
    answer = answer_bytes(stored)
    found = (mode for mode in PluginIsolation if _mark(mode) in answer)
    return PodChoice(next(found, PluginIsolation.NONE))


def _mark(mode: PluginIsolation) -> bytes:
    """Return an annotation of an answer in protobuf's form: the key's text, then field 2 of the map's entry."""
    value = mode.value.encode()
    return ISOLATION_ANNOTATION.encode() + b"\x12" + bytes([len(value)]) + value


def least(some: Iterable[PodChoice]) -> PodChoice:
    """Return the least strict of what a container's answers give."""
    found = list(some)
    return min(found, key=lambda one: PluginIsolation(one.isolation).strictness) if found else NO_CHOICE
