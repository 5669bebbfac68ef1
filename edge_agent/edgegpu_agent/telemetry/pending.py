"""The pods of the plugin's status document that have no card yet. Pure; what cannot be sent is left out."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from edgegpu_agent.telemetry.parts import count_of, part_of, rows_of, seconds_of, silence_words
from edgegpu_sync.messages.telemetry import MOST_PENDING, PendingPod, PendingPods
from edgegpu_sync.wire import MAX_COUNT, clipped

Document = Mapping[str, Any]

_WITHOUT_CARD = frozenset({"pending", "waiting", "refused"})
_MOST_CONTAINERS = 16


def pending_pods(document: Document) -> PendingPods:
    """Return the pods that the plugin's status names as without a card, with its words."""
    rows = [row for row in (*rows_of(document, "pending"), *rows_of(document, "pods")) if _lacks_card(row)]
    pods = list(_pods(rows))
    return PendingPods(
        pods=tuple(pods[:MOST_PENDING]),
        more=min(count_of(document.get("pending_more")) + max(0, len(pods) - MOST_PENDING), MAX_COUNT),
        cluster=isinstance(document.get("extender"), Mapping),
        silent=clipped(silence_words(part_of(document, "pending_silent"))),
    )


def _lacks_card(row: Document) -> bool:
    return row.get("state") in _WITHOUT_CARD


def _pods(rows: Iterable[Document]) -> Iterable[PendingPod]:
    """Yield the pods of the containers' rows; a pod that cannot be sent is left out."""
    by_uid: dict[str, list[Document]] = {}
    for row in rows:
        by_uid.setdefault(str(row.get("uid") or ""), []).append(row)
    for uid, mine in by_uid.items():
        try:
            yield _pod(uid, mine)
        except ValidationError:
            continue


def _pod(uid: str, rows: list[Document]) -> PendingPod:
    reasons = dict.fromkeys(str(row.get("reason") or "") for row in rows)
    return PendingPod.model_validate(
        {
            "uid": uid,
            "namespace": rows[0].get("namespace"),
            "name": rows[0].get("pod"),
            "state": rows[0].get("state"),
            "reason": clipped("; ".join(filter(None, reasons))),
            "created_at": seconds_of(rows[0].get("created")),
            "containers": tuple(
                {
                    "name": row.get("container"),
                    "memory_units": _amount(row.get("memory_units")),
                    "core": _amount(row.get("core")),
                }
                for row in rows[:_MOST_CONTAINERS]
            ),
        }
    )


def _amount(value: object) -> int:
    """Return an amount as far as a message can carry it: somebody may have asked for bytes."""
    return min(count_of(value), MAX_COUNT)
