"""All that is known of a box, as a store would give it, made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edgegpu_cloud.fleet.views import BoxDetails, BoxView
from edgegpu_cloud.store.records import BoxState, Latest
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.spec import Spec
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.topics import TopicKind

STAMP = {"enrolment": 1, "epoch": {"count": 1, "nonce": "0" * 16}, "n": 5, "age_s": 9, "v": 1}


def view(name: str) -> BoxView:
    return BoxView(
        device=DeviceId(f"{name:a<16}"),
        name=name,
        labels={},
        host="",
        state=BoxState.ENROLLED,
        enrolment=1,
        online=True,
        left="",
        restored=False,
        seen_at_s=0,
        enrolled_at_s=0,
        rev=0,
        observed_rev=0,
        applied_rev=0,
        open_commands=0,
        waiting=0,
        problems=0,
        health="",
        capacity=None,
        versions={},
        capabilities=(),
        cluster="c",
        holder=False,
        items={},
    )


def card(label: str, units: int = 29, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    plain = {"uuid": f"GPU-{label}", "label": label, "name": "T4", "memory_mib": units * 256, "units": units}
    return {**plain, "healthy": True, **more}


def pod(name: str, *pieces: tuple[str, str, int, int], namespace: str = "default") -> dict[str, Any]:
    names = ("container", "card", "memory_units", "core")
    shares = [dict(zip(names, (one[0], f"GPU-{one[1]}", *one[2:]), strict=True)) for one in pieces]
    return {"namespace": namespace, "name": name, "phase": "Running", "pieces": shares}


def box(
    name: str = "box1",
    cards: tuple[dict[str, Any], ...] = (card("0"), card("1")),
    pods: dict[str, Any] | None = None,
    **more: object,
) -> BoxDetails:
    plain = {"node": name, "role": "server", "sharing": True, "unit_mib": 256, "mode": "none", "policy": "first-fit"}
    bodies = {
        TopicKind.INVENTORY: {**STAMP, **plain, "cards": list(cards), **more},
        TopicKind.ALLOC: {**STAMP, "pods": pods or {}},
    }
    stamp = Stamp(enrolment=1, epoch=Epoch(1, "0" * 16), n=5)
    device = view(name).device
    latest = {
        kind: Latest(device=device, kind=kind, stamp=stamp, at_s=100.0, body=body) for kind, body in bodies.items()
    }
    return BoxDetails(box=view(name), spec=Spec(), latest=latest, orphans=())


def saying(details: BoxDetails, kind: TopicKind, **body: Any) -> BoxDetails:  # noqa: ANN401  (the message's fields)
    """Return a box that has said one more thing."""
    held = next(iter(details.latest.values()))
    one = Latest(device=held.device, kind=kind, stamp=held.stamp, at_s=held.at_s, body={**STAMP, **body})
    return replace(details, latest={**details.latest, kind: one})


def reported(
    details: BoxDetails, *, cluster: str = "c0ffee00", holder: bool = True, rev: int = 0, **items: dict[str, Any]
) -> BoxDetails:
    """Return a box that has reported how it stands; `items` by their names, `/` written as two underscores."""
    numbers = {"observed_rev": rev, "applied_rev": rev, "seq": 0, "floor": 0}
    named = {name.replace("__", "/"): {"hash": "ab", "retry": 0, **item} for name, item in items.items()}
    return saying(details, TopicKind.REPORTED, **numbers, cluster=cluster, holder=holder, items=named)
