"""The plugin's status document as parts of messages. Pure; what cannot be sent is left out, not guessed."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from edgegpu_agent.telemetry.nvidia_smi import CardReading
from edgegpu_agent.telemetry.parts import Document, count_of, part_of, rows_of, seconds_of, silence_words
from edgegpu_core.model import CORE_PER_CARD
from edgegpu_core.reasons import holds_any
from edgegpu_sync.messages.telemetry import (
    MOST_MEMORY_USES,
    CardReport,
    CardShare,
    HealthPart,
    MemoryUse,
    PodAlloc,
)
from edgegpu_sync.wire import clipped

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_MOST_CARDS = 128
_LEAST_HELD = {"degraded": 0, "off": 1, "enforced": 2}
"""What a pod's containers are held to, the one first by which the whole pod is judged."""

NO_PODS: Mapping[str, PodAlloc] = {}
_VERSION_LENGTH = 32
_OLD_S = 120.0
"""The plugin measures the memory use twice a minute; what is older was measured before its driver hung."""


def inventory(
    document: Document | None, seen: Sequence[CardReading], *, node: str, cluster: str
) -> dict[str, Any] | None:
    """Return the fields of an `Inventory` without those of an uplink: the cards of a box, and what is offered of them.

    Args:
        document: the plugin's status; None while it does not answer: then the cards are those of nvidia-smi.
        seen: the cards of nvidia-smi.
        node: this machine's name, where the plugin reports none.
        cluster: the UID of kube-system, empty while it is not known.
    """
    doc = document or {}
    name = str(doc.get("node") or node).lower()
    if not _NAME.fullmatch(name):
        return None
    unit_mib = count_of(doc.get("unit_mib"))
    return {
        "node": name,
        "cluster": clipped(cluster, 253),
        "role": _role(doc.get("role")),
        "sharing": document is not None,
        "unit_mib": unit_mib,
        "mode": str(doc.get("isolation") or "none"),
        "policy": str(doc.get("policy") or "first-fit"),
        "driver": driver_version(doc, seen),
        "cards": tuple(_cards(doc, {one.uuid: one for one in seen}, unit_mib))[:_MOST_CARDS],
    }


def driver_version(document: Document | None, seen: Sequence[CardReading]) -> str:
    """Return the driver's version from the plugin, else from nvidia-smi; empty where neither has it."""
    told = part_of(document or {}, "driver").get("version")
    return clipped(str(told or next((one.driver for one in seen), "")), 253)


def _role(value: object) -> str:
    text = str(value)
    return text if text in {"server", "extender-only"} else "agent"


def _cards(doc: Document, seen: dict[str, CardReading], unit_mib: int) -> Iterable[CardReport]:
    offered = rows_of(doc, "cards")
    for row in offered:
        uuid, units = str(row.get("uuid")), count_of(row.get("units"))
        known = seen.get(uuid)
        yield from _card(
            uuid=uuid,
            label=str(row.get("index")),
            name=clipped(str(row.get("name") or ""), 253),
            memory_mib=known.memory_mib if known else units * unit_mib,
            units=units,
            healthy=row.get("healthy") is True,
            text="" if row.get("healthy") is True else clipped(str(row.get("problem") or "out of order"), 256),
        )
    there = {str(row.get("uuid")) for row in offered}
    for one in seen.values():
        if one.uuid not in there:
            yield from _card(
                uuid=one.uuid,
                label=one.label,
                name=clipped(one.name, 253),
                memory_mib=one.memory_mib,
                units=0,
                healthy=True,
                excluded=bool(doc),
            )


def _card(**fields: Any) -> Iterable[CardReport]:  # noqa: ANN401  (those of Card)
    try:
        yield CardReport(**fields)
    except ValidationError:
        return


def allocations(document: Document, known: Mapping[str, PodAlloc] = NO_PODS) -> dict[str, PodAlloc]:
    """Return what each pod holds, by the pods' UIDs.

    Args:
        document: the plugin's status.
        known: the pods as they were before: while the API server is silent, a pod whose object the plugin has not seen
            keeps its name and phase, and is not called gone.
    """
    silent = is_api_silent(document)
    pods: dict[str, PodAlloc] = {}
    for row in rows_of(document, "pods"):
        if row.get("cards"):
            _add(pods, _named(row, known) if silent and not row.get("pod") else row)
    return pods


def is_api_silent(document: Document) -> bool:
    """Whether the plugin does not know what pods there are, for the API server does not answer it.

    A problem alone is no silence: the API server may have refused a write, and shown all pods. An older plugin does not
    tell both apart.
    """
    api = part_of(document, "api")
    if "silent" in api:
        return api["silent"] is not None
    return bool(api) and (bool(api.get("problem")) or not api.get("synced"))


def _named(row: Document, known: Mapping[str, PodAlloc]) -> Document:
    """Return the row of a pod that the plugin cannot name, with its last name and phase; `Unknown` without."""
    before = known.get(str(row.get("uid") or ""))
    if before is None:
        return {**row, "phase": "Unknown"}
    return {**row, "namespace": before.namespace, "pod": before.name, "phase": before.phase}


def _add(pods: dict[str, PodAlloc], row: Document) -> None:
    """Add a container to its pod; a pod whose object is gone gets its UID as its name."""
    uid = str(row.get("uid") or "")
    before = pods.get(uid)
    enforced, reason = _enforced(row)
    if before is not None and _LEAST_HELD[before.enforced] <= _LEAST_HELD[enforced]:
        enforced, reason = before.enforced, before.enforced_reason or ""
    try:
        pieces = tuple(_pieces(row))
        pods[uid] = PodAlloc(
            namespace=str(row.get("namespace") or "unknown"),
            name=str(row.get("pod") or uid.lower()),
            phase=str(row.get("phase") or "Unknown"),
            enforced=enforced,
            enforced_reason=clipped(reason, 253) or None,
            started_at=seconds_of(row.get("started")),
            pieces=(*(before.pieces if before else ()), *pieces),
        )
    except (ValidationError, LookupError, TypeError):
        return


def _enforced(row: Document) -> tuple[str, str]:
    """Return what holds a container, and why nothing does; `off` where the plugin does not say."""
    found = part_of(row, "isolation")
    state = str(found.get("state") or "off")
    return (state, str(found.get("reason") or "")) if state in _LEAST_HELD else ("off", "")


def _pieces(row: Document) -> Iterable[CardShare]:
    """Yield a container's share of each of its cards; all on the first card where the row does not divide it."""
    cards, units, core = row["cards"], count_of(row.get("memory_units")), count_of(row.get("core"))
    parts = [count_of(card["units"]) for card in cards if "units" in card]
    if len(parts) != len(cards):
        cards, parts = cards[:1], [units]
    limits = {str(one.get("card")): one for one in rows_of(part_of(row, "isolation"), "cards")}
    live = dict(_live_units(row))
    for number, (card, part) in enumerate(zip(cards, parts, strict=True)):
        uuid, mine = (
            str(card["uuid"]),
            core // len(cards) if core >= len(cards) * CORE_PER_CARD else 0 if number else core,
        )
        yield CardShare(
            container=str(row["container"]),
            card=uuid,
            memory_units=part,
            core=mine,
            live_units=live.get(uuid),
            refusals=_at_least(count_of(limits.get(uuid, {}).get("refusals"))),
            limiter=clipped(str(part_of(row, "isolation").get("limiter") or ""), _VERSION_LENGTH) or None,
        )


def _at_least(count: int) -> int:
    """Return the largest of 1, 2, 5, 10, 20, 50 … up to a count: one that runs makes few messages."""
    power = 10 ** (len(str(count)) - 1)
    return next((step * power for step in (5, 2, 1) if step * power <= count), 0)


def _live_units(row: Document) -> Iterable[tuple[str, int]]:
    """Yield the cards on which a container is held to fewer units than it holds, each with those units."""
    for one in rows_of(part_of(row, "isolation"), "cards"):
        limit, held = one.get("limit_units"), count_of(one.get("held_units"))
        if isinstance(limit, int) and 0 <= limit < held:
            yield str(one.get("card")), limit


def memory_use(document: Document, *, now_s: float) -> tuple[MemoryUse, ...] | None:
    """Return the memory that containers use of the cards, the most first; None where it was not measured just now."""
    part = part_of(document, "memory_use")
    at = part.get("at")
    if not isinstance(at, int | float) or abs(now_s - at) > _OLD_S:
        return None
    uses = tuple(_memory_uses(part))
    return tuple(sorted(uses, key=lambda one: (-one.processes, -(one.memory_mib or 0))))[:MOST_MEMORY_USES]


def _memory_uses(part: Document) -> Iterable[MemoryUse]:
    for row in rows_of(part, "containers"):
        try:
            yield MemoryUse.model_validate(dict(row))
        except ValidationError:
            continue


def plugin_parts(document: Document) -> list[HealthPart]:
    """Return the health of the plugin and of what it depends on."""
    parts = [HealthPart(name="plugin", state="ok", text=f"version {clipped(str(document.get('version')), 64)}")]
    extender = document.get("extender")
    if isinstance(extender, Mapping):
        well = extender.get("healthy") is True
        text = "" if well else str(extender.get("problem") or "does not serve; new GPU pods wait")
        parts.append(_judged("extender", text))
    api = part_of(document, "api")
    silent = silence_words(part_of(api, "silent"))
    parts.append(_judged("api", silent or str(api.get("problem") or ("" if api.get("synced") else "not in step yet"))))
    if document.get("role") != "extender-only":
        parts += _node_parts(document)
    return parts


def _sick(card: Document) -> str:
    """Return the label of a card that is out of order, and why it is."""
    index, problem = str(card.get("index")), str(card.get("problem") or "")
    return f"{index} ({problem})" if problem else index


def _holds_any(document: Document) -> bool:
    """Return whether the node holds containers, or one whose pod has chosen that."""
    states = (str(part_of(row, "isolation").get("state") or "off") for row in rows_of(document, "pods"))
    return holds_any(document.get("isolation"), states)


def _node_parts(document: Document) -> list[HealthPart]:
    kubelet = part_of(document, "kubelet")
    waiting = (
        "" if kubelet.get("registered") else f"not registered, waiting for {kubelet.get('waiting_for') or 'kubelet'}"
    )
    sick = [_sick(row) for row in rows_of(document, "cards") if not row.get("healthy")]
    pods = rows_of(document, "pods")
    refused = [f"{row.get('namespace')}/{row.get('pod')}" for row in pods if row.get("state") == "refused"]
    parts = [
        _judged("driver", str(part_of(document, "driver").get("problem") or ""), bad=True),
        _judged("kubelet", waiting),
        _judged("cards", f"out of order: {'; '.join(sick)}" if sick else "", bad=True),
    ]
    if _holds_any(document):
        parts.append(_isolation_part(document))
    lost = [f"{row.get('namespace')}/{row.get('pod')}" for row in pods if row.get("state") == "lost"]
    without = [f"{row.get('namespace')}/{row.get('pod')}" for row in pods if row.get("state") == "cardless"]
    unrecorded = [f"{row.get('namespace')}/{row.get('pod')}" for row in pods if row.get("state") == "unrecorded"]
    named = (
        ("card gone", lost),
        ("runs without its card", without),
        ("kubelet has no record", unrecorded),
        ("refused", refused),
    )
    texts = [f"{word}: {', '.join(names)}" for word, names in named if names]
    if texts:
        parts.append(
            HealthPart(name="pods", state="bad" if lost or without else "warn", text=clipped("; ".join(texts)))
        )
    return parts


def _isolation_part(document: Document) -> HealthPart:
    """Return whether the node holds containers as it was told.

    A self-test that can say nothing is a warning, and so is a driver that is newer than the limiter's list or whose
    pointers are not its symbols.
    """
    if problem := str(document.get("isolation_problem") or ""):
        return _judged("isolation", problem, bad=True)
    cards = rows_of(part_of(document, "selftest"), "cards")
    unsure = [f"card {row.get('index')}: {row.get('reason')}" for row in cards if row.get("verdict") == "inconclusive"]
    notes = sorted({str(row[key]) for row in cards for key in ("newer_driver", "by_name") if row.get(key)})
    return _judged("isolation", "; ".join([*unsure, *notes]))


def _judged(name: str, text: str, *, bad: bool = False) -> HealthPart:
    return HealthPart(name=name, state=("bad" if bad else "warn") if text else "ok", text=clipped(text))
