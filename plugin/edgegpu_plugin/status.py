"""The status document, one JSON object on a Unix socket, which the command line and tests read."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgegpu_base.http_unix import ChangeRequest, LocalServer, Response
from edgegpu_core.deviceid import DeviceKind, count_by_card
from edgegpu_core.inventory import Card
from edgegpu_core.ledger import Grant
from edgegpu_core.nodeview import is_complete
from edgegpu_core.podview import PodView
from edgegpu_plugin.records.node_state import PodName, Snapshot
from edgegpu_plugin.records.reconciler import RefusedPod

_LOG = logging.getLogger(__name__)

SOCKET_NAME = "plugin.sock"
"""The socket's name in the run folder; its mode is 0600."""

CHANGED_NAME = "plugin.changed"
"""The name, beside the socket, of an empty file that is touched when what the document says of pods or cards changes.

Who follows the document looks at the file's time, which costs neither process anything, and asks when it is another.
"""

STATUS_VERSION = 1


@dataclass(frozen=True, slots=True)
class SilentSources:
    """The sources that do not answer now: what came of them is as old as their last word, and no news follows of it."""

    api: bool = False
    kubelet: bool = False


NONE_SILENT = SilentSources()

_HELD = "kubelet has not let go of its devices yet"
_KUBELET_SILENT = "kubelet is silent: whether it has let go of the devices since is not known"
_UNREAD = "the API server has not been read since the plugin's start, so it is not known what its pod does"
_API_SILENT = "the API server is silent, and has not shown this pod before: what its pod does is not known"


def mark_changed(run_folder: Path) -> None:
    """Touch the file that says that the document has changed; a follower that sees no mark asks at intervals."""
    try:
        (run_folder / CHANGED_NAME).touch(mode=0o600)
    except OSError as error:
        _LOG.warning("cannot mark the change of the status document: %s", error)


def cards_part(snapshot: Snapshot, cards: Mapping[str, Card]) -> list[dict[str, Any]]:
    """Return the cards with what is free on each; `cards` are those that are offered, by UUID."""
    view = snapshot.view
    free = view.free()
    return [
        {
            "index": slot.label,
            "uuid": slot.uuid,
            "name": cards[slot.uuid].name if slot.uuid in cards else "",
            "units": slot.units,
            "units_free": free.memory[position],
            "core_free": free.core[position],
            "healthy": slot.healthy,
            "problem": cards[slot.uuid].problem if slot.uuid in cards else "",
            "watched": slot.uuid not in cards or cards[slot.uuid].watched,
        }
        for position, slot in enumerate(view.slots)
    ]


def other_cards_part(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return the cards that are not offered (gone, or excluded) but on which a pod holds a share."""
    view, offered = snapshot.view, {slot.uuid for slot in snapshot.view.slots}
    held = {share.card for shares in view.holdings().values() for share in shares} - offered
    return [
        {"index": card.label, "uuid": uuid, "name": card.name, "gone": uuid in snapshot.gone}
        for uuid, card in snapshot.cards.items()
        if uuid in held
    ]


def pods_part(
    snapshot: Snapshot,
    refused: tuple[RefusedPod, ...],
    lost: tuple[RefusedPod, ...] = (),
    cardless: tuple[RefusedPod, ...] = (),
    unrecorded: tuple[RefusedPod, ...] = (),
    *,
    silent: SilentSources = NONE_SILENT,
) -> list[dict[str, Any]]:
    """Return one row for each GPU container of this node, and one for each holder that the API does not know.

    Args:
        snapshot: the node's snapshot.
        refused: pods that may not start.
        lost: pods whose card is gone.
        cardless: containers that run without their cards.
        unrecorded: containers that run, and of whose devices kubelet has no record.
        silent: the sources that do not answer now.
    """
    troubles = {(one.pod.uid, one.container): ("unrecorded", one.reason) for one in unrecorded}
    troubles |= {(one.pod.uid, one.container): ("cardless", one.reason) for one in cardless}
    reasons = {one.pod.uid: ("refused", one.reason) for one in refused}
    reasons |= {one.pod.uid: ("lost", one.reason) for one in lost}
    rows = [
        row
        for pod in sorted(snapshot.view.pods.values(), key=lambda pod: pod.full_name)
        for row in _pod_rows(pod, snapshot, *reasons.get(pod.uid, ("", "")))
    ]
    for row in rows:
        state, reason = troubles.get((row["uid"], row["container"]), ("", ""))
        if state and row["state"] not in {"refused", "lost"}:
            row.update(state=state, reason=reason)
    strangers = [uid for uid in snapshot.view.ledger.pods() if uid not in snapshot.view.pods]
    return rows + [row for uid in strangers for row in _stranger_rows(uid, snapshot, silent)]


def _stranger_rows(uid: str, snapshot: Snapshot, silent: SilentSources) -> list[dict[str, Any]]:
    """Return the rows of a holder that is no live pod of the API: it has ended, or the API server was not read of it.

    A pod is gone where the API server has shown its end, or lists the pods now without it. While it is silent a pod may
    have come of which it has shown nothing: kubelet starts static ones without it.
    """
    labels, ended = _labels(snapshot), snapshot.pods.get(uid)
    name = snapshot.names.get(uid, PodName("", "")) if ended is None else PodName(ended.namespace, ended.name)
    phase = "Gone" if ended is None else ended.phase
    state, reason = "held", _KUBELET_SILENT if silent.kubelet else _HELD
    if not snapshot.is_told:
        phase, state, reason = "Unknown", "unknown", _UNREAD
    elif silent.api and ended is None and uid not in snapshot.deleted:
        phase, state, reason = "Unknown", "unknown", _API_SILENT
    return [
        {
            "namespace": name.namespace,
            "pod": name.name,
            "uid": uid,
            "container": container,
            "memory_units": len(grant.ids.get(DeviceKind.MEMORY, ())),
            "core": len(grant.ids.get(DeviceKind.CORE, ())),
            "cards": _card_refs(grant, grant.cards(), labels),
            "phase": phase,
            "created": "" if ended is None else ended.created,
            "started": "" if ended is None else ended.started,
            "state": state,
            "reason": reason,
        }
        for container, grant in snapshot.view.ledger.grants(uid).items()
    ]


def _card_refs(grant: Grant, cards: tuple[str, ...], labels: dict[str, str]) -> list[dict[str, Any]]:
    """Return a container's cards, each with its units there; the devices of a refused container may not be sound."""
    refs: list[dict[str, Any]] = [{"index": labels.get(card, "?"), "uuid": card} for card in cards]
    if DeviceKind.MEMORY in grant.ids:
        units = count_by_card(grant.ids[DeviceKind.MEMORY])
        for ref in refs:
            ref["units"] = units.get(ref["uuid"], 0)
    return refs


def _labels(snapshot: Snapshot) -> dict[str, str]:
    """Return the cards' labels by UUID; a card that is gone has its last one."""
    offered = {slot.uuid: slot.label for slot in snapshot.view.slots}
    return {uuid: card.label for uuid, card in snapshot.cards.items()} | offered


def _pod_rows(pod: PodView, snapshot: Snapshot, trouble: str, reason: str) -> list[dict[str, Any]]:
    view = snapshot.view
    labels = _labels(snapshot)
    rows = []
    for container in pod.containers:
        grant = view.ledger.grant(pod.kubelet_uid, container.name)
        complete = is_complete(container, grant)
        promised = view.promises.get(pod.kubelet_uid, {}).get(container.name, ())
        rows.append(
            {
                "namespace": pod.namespace,
                "pod": pod.name,
                "uid": pod.uid,
                "container": container.name,
                "memory_units": container.request.memory_units,
                "core": container.request.core,
                "cards": _card_refs(grant, grant.cards() or promised, labels),
                "phase": pod.phase,
                "created": pod.created,
                "started": pod.started,
                "state": trouble or ("allocated" if complete else "waiting"),
                "reason": reason,
            }
        )
    return rows


class StatusServer(LocalServer):
    """The server of the status document at RUN/plugin.sock; `change` answers what asks for another limit."""

    def __init__(
        self,
        run_folder: Path,
        document: Callable[[], dict[str, Any]],
        *,
        change: Callable[[ChangeRequest], Response] | None = None,
    ) -> None:
        super().__init__(
            run_folder / SOCKET_NAME,
            self._said,
            owner="edgegpu-plugin",
            remedy="set paths.run to a folder of root's",
            change=change,
        )
        self._document = document

    def _said(self, target: str) -> Response:
        if target != "/v1/status":
            return Response(404, b'{"error": "ask for /v1/status"}')
        return Response(200, json.dumps(self._document()).encode())
