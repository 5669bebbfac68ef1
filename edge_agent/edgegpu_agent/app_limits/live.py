"""Live app limits: within the units that an app's pods hold, only what holds them changes, and no pod is touched.

The plugin's socket says what holds each container, and takes another limit.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from edgegpu_agent.app_limits.cluster_snapshot import ClusterSnapshot
from edgegpu_agent.app_limits.errors import refused
from edgegpu_agent.kube.apps import FoundWorkload
from edgegpu_agent.ports import SettlerNotes
from edgegpu_base.http_unix import ChangeRequest, NoHttpError, get, send
from edgegpu_base.kube import Json
from edgegpu_core.model import CORE_PER_CARD
from edgegpu_core.request import RequestedAmounts
from edgegpu_sync.messages.spec import AppLimits
from edgegpu_sync.messages.uplink import Condition
from edgegpu_sync.rules import box_sentences as said
from edgegpu_sync.rules.settle import Settlement
from edgegpu_sync.states import ResultCode
from edgegpu_sync.wire import clipped

_LOG = logging.getLogger(__name__)
_ENDED = frozenset({"Succeeded", "Failed"})
_ANSWER_S = 10.0
_OK = 200
_MOST_NAMES = 5

ContainerKey = tuple[str, str]
"""A pod's UID and the name of its container."""


class PluginLimitError(Exception):
    """The plugin does not answer, or refuses a live limit; the text is "cannot x: cause"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldContainer:
    """A container that the limiter holds on one card: what it holds there, and what it is held to, in units."""

    uid: str
    container: str
    card: str
    held_units: int
    limit_units: int


class LiveLimitPort(Protocol):
    """What the settler needs of the containers on its box."""

    def held(self) -> Mapping[ContainerKey, HeldContainer]:
        """Return the containers that are `enforced` on exactly one card. Raises PluginLimitError."""
        ...

    def limit(self, one: HeldContainer, units: int) -> None:
        """Hold a container to so many units, from then on. Raises PluginLimitError."""
        ...


class NoLiveLimits:
    """A box on which nothing is held."""

    def held(self) -> Mapping[ContainerKey, HeldContainer]:
        """Return no containers."""
        return {}

    def limit(self, one: HeldContainer, units: int) -> None:
        """Refuse the limit."""
        raise PluginLimitError(f"cannot hold {one.container} to {units} units: nothing is held here")


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Card(_Row):
    card: str
    limit_units: int = 0
    held_units: int = 0


class _Isolation(_Row):
    state: str
    cards: tuple[_Card, ...] = ()


class _Container(_Row):
    uid: str
    container: str
    isolation: _Isolation | None = None


class _Document(_Row):
    pods: tuple[_Container, ...] = ()


class PluginLimits:
    """The live limits by the plugin's socket; calls block for ten seconds at most."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def held(self) -> Mapping[ContainerKey, HeldContainer]:
        """Return the containers that are `enforced` on exactly one card; none from a plugin that is older.

        Raises:
            PluginLimitError: it does not answer.
        """
        try:
            status, body = get(self._socket, "/v1/status", timeout_s=_ANSWER_S)
            rows = _Document.model_validate_json(body).pods if status == _OK else ()
        except (OSError, NoHttpError, ValidationError) as error:
            raise PluginLimitError(f"cannot ask the plugin what it holds: {error}") from error
        found = [one for row in rows if (one := _held(row)) is not None]
        return {(one.uid, one.container): one for one in found}

    def limit(self, one: HeldContainer, units: int) -> None:
        """Hold a container to so many units; with all that it holds, its live limit ends.

        Raises:
            PluginLimitError: the plugin does not answer, or refuses.
        """
        target = f"/v1/pods/{one.uid}/{one.container}/live-limit"
        body = json.dumps({"memory_units": {one.card: units}}).encode()
        try:
            status, answer = send(self._socket, ChangeRequest("PUT", target, body), timeout_s=_ANSWER_S)
        except (OSError, NoHttpError) as error:
            raise PluginLimitError(f"cannot hold {one.container} to {units} units: {error}") from error
        if status != _OK:
            raise PluginLimitError(f"cannot hold {one.container} to {units} units: {_error_in(answer)}")


def _held(row: _Container) -> HeldContainer | None:
    isolation = row.isolation
    if isolation is None or isolation.state != "enforced" or len(isolation.cards) != 1:
        return None
    (card,) = isolation.cards
    return HeldContainer(
        uid=row.uid,
        container=row.container,
        card=card.card,
        held_units=card.held_units,
        limit_units=card.limit_units,
    )


def _error_in(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):
        return "the plugin does not say why"


@dataclass(frozen=True, slots=True)
class LiveNote:
    """The note of limits that were set live: the workload's UID, and the amounts of its template at that time."""

    uid: str
    template: RequestedAmounts

    @classmethod
    def read(cls, notes: SettlerNotes) -> "LiveNote | None":
        """Return the note; None when there is none, or one of another kind."""
        value: Any = notes.read()
        try:
            return cls(str(value["live_uid"]), RequestedAmounts(int(value["memory_units"]), int(value["core"])))
        except (KeyError, TypeError, ValueError):
            return None

    def write(self, notes: SettlerNotes) -> None:
        """Write the note; it is on the disk when this returns."""
        notes.write({"live_uid": self.uid, "memory_units": self.template.memory_units, "core": self.template.core})


class LiveLimiter:
    """Sets limits live on this box; its calls raise KubeError where the API server does not give an app's pods."""

    def __init__(self, snapshot: ClusterSnapshot, port: LiveLimitPort, *, node: Callable[[], str]) -> None:
        """Build it; `node` returns the name of this box's node, whose containers the port holds."""
        self._snapshot = snapshot
        self._port = port
        self._node = node

    def settle(
        self, found: FoundWorkload, limits: AppLimits, template: RequestedAmounts, notes: SettlerNotes
    ) -> Settlement | None:
        """Set an app's limits live; return None, with nothing changed, where that is not possible.

        It is possible where the item allows it, the template has more memory and the same core, and every pod of the
        app is held by the limiter and holds at least the units asked for. New pods get the template's units, and the
        limit once they are held.

        Args:
            found: the workload.
            limits: the limits asked for.
            template: the amounts of its template.
            notes: where the change is noted before it begins.

        Raises:
            LimitsRefusedError: pods of the app are on other boxes, whose containers this agent does not reach.
        """
        asked = RequestedAmounts(limits.memory_units, limits.core)
        if not limits.live or not _is_within(asked, template):
            return None
        pods = self._pods(found)
        self._refuse_elsewhere(pods)
        held = self._held()
        containers = [held.get(_key(pod, limits.container)) for pod in pods]
        whole = [one for one in containers if one is not None and one.held_units >= asked.memory_units]
        if not whole or len(whole) < len(containers):
            return None
        LiveNote(found.uid, template).write(notes)
        error = self._limit_all(whole, asked.memory_units)
        if error is not None:
            return error
        _LOG.info("%s: held to %d of its %d units, live", found.ref, asked.memory_units, template.memory_units)
        return Settlement.applied(_words(said.LIVE_APPLIED, asked, template))

    def _refuse_elsewhere(self, pods: list[Json]) -> None:
        here = self._node()
        far = [f"{pod['metadata']['name']} on {node}" for pod in pods if (node := _node_of(pod)) not in {"", here}]
        if far:
            more = [f"{len(far) - _MOST_NAMES} more"] if len(far) > _MOST_NAMES else []
            names = ", ".join([*far[:_MOST_NAMES], *more])
            words = said.LIVE_ELSEWHERE.of(count=str(len(far)), all=str(len(pods)), node=here, pods=names)
            raise refused(ResultCode.PRECHECK, words)

    def end(self, found: FoundWorkload, container: str) -> None:
        """End the live limits of an app whose template has what is asked; its containers get all that they hold.

        Raises:
            PluginLimitError: the plugin refuses it, or does not answer any more.
        """
        held = self._held()
        for pod in self._pods(found) if held else ():
            one = held.get(_key(pod, container))
            if one is not None and one.limit_units < one.held_units:
                self._port.limit(one, one.held_units)
                _LOG.info("%s: its live limit has ended", found.ref)

    def look(self, found: FoundWorkload, limits: AppLimits, template: RequestedAmounts) -> Condition:
        """Set the live limits of new pods, and return the app's condition: `Live`, or `Drifted` with the reason."""
        asked, held, loose = RequestedAmounts(limits.memory_units, limits.core), self._held(), []
        for pod in self._pods(found):
            one = held.get(_key(pod, limits.container))
            why = self._unheld(pod) if one is None else self._set_again(one, asked.memory_units)
            if why and pod["status"].get("phase") == "Running":  # another may be about to start, and is held before
                loose.append(f"{pod['metadata']['name']}: {why}")
        if loose:
            return Condition(type="Drifted", text=clipped(f"asked were {asked.memory_units} units; {'; '.join(loose)}"))
        return Condition(type="Live", text=_words(said.LIVE_HELD, asked, template))

    def _unheld(self, pod: Json) -> str:
        """Return why a pod is not held to its live limit, of which the plugin of this box knows nothing."""
        node = _node_of(pod)
        return f"no live limit reaches it on {node}" if node != self._node() else "nothing holds it to its memory"

    def _set_again(self, one: HeldContainer, units: int) -> str:
        """Hold a container to its live limit; return why that is not possible."""
        if one.limit_units != units:
            try:
                self._port.limit(one, units)
            except PluginLimitError as error:
                return str(error)
        return ""

    def _limit_all(self, containers: list[HeldContainer], units: int) -> Settlement | None:
        """Hold all to so many units; where one fails, put the others back and return the settlement that says so."""
        done: list[HeldContainer] = []
        try:
            for one in containers:
                self._port.limit(one, units)
                done.append(one)
        except PluginLimitError as error:
            restored = self._put_back(done)
            return Settlement.failed(ResultCode.ERROR, clipped(str(error)), restored=restored)
        return None

    def _put_back(self, containers: list[HeldContainer]) -> bool:
        try:
            for one in containers:
                self._port.limit(one, one.limit_units)
        except PluginLimitError as error:
            _LOG.warning("%s", error)
            return False
        return True

    def _held(self) -> Mapping[ContainerKey, HeldContainer]:
        """Return what the limiter holds; nothing where the plugin does not answer."""
        try:
            return self._port.held()
        except PluginLimitError as error:
            _LOG.warning("%s", error)
            return {}

    def _pods(self, found: FoundWorkload) -> list[Json]:
        """Return the app's pods that have not ended and are not leaving."""
        return [
            pod
            for pod in self._snapshot.pods(found)
            if not pod["metadata"].get("deletionTimestamp") and pod["status"].get("phase") not in _ENDED
        ]


def _is_within(asked: RequestedAmounts, template: RequestedAmounts) -> bool:
    """Return whether other memory is less of what the template gives on one card, with the same core."""
    is_less = 0 < asked.memory_units < template.memory_units
    return is_less and asked.core == template.core and asked.core < CORE_PER_CARD


def _key(pod: Json, container: str) -> ContainerKey:
    return str(pod["metadata"]["uid"]), container


def _node_of(pod: Json) -> str:
    return str(pod["spec"].get("nodeName") or "")


def _words(sentence: said.BoxSentence, asked: RequestedAmounts, template: RequestedAmounts) -> str:
    return sentence.of(units=str(asked.memory_units), held=str(template.memory_units))
