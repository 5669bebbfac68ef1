"""The fleet of a controller on another machine: what the commands use of `Fleet`, by the API."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from edgegpu_cloud.cli.remote.apps import RemoteApps
from edgegpu_cloud.cli.remote.client import ApiClient, name_in_path, read_as
from edgegpu_cloud.errors import NotFoundError
from edgegpu_cloud.fleet.audit.views import AuditView
from edgegpu_cloud.fleet.fleet import WAIT_S, WHOLE_AUDIT
from edgegpu_cloud.fleet.following import follow
from edgegpu_cloud.fleet.history.box_history import CHANGES, MachineChange
from edgegpu_cloud.fleet.limits.changes import LimitsRevision, ReplacedLimits
from edgegpu_cloud.fleet.limits.history import ContainerKey, LimitsHistoryEntry
from edgegpu_cloud.fleet.limits.requests import RequestedItem
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.specs import LimitsPatch, SharingSettings
from edgegpu_cloud.fleet.views import BoxDetails, BoxView, CommandView
from edgegpu_cloud.store.records import Alarm, AuditFilter, BoxEvent
from edgegpu_sync.ids import CommandId
from edgegpu_sync.messages.spec import Spec

_MOST_NAMES = 100
_AMOUNTS = ("memory_units", "core")


class RemoteFleet:
    """One person's view of a fleet on another machine; each method does what that of `Fleet` does."""

    def __init__(self, client: ApiClient) -> None:
        """Take who sends the requests."""
        self._client = client

    # boxes

    def boxes(self, selector: str = "") -> list[BoxView]:
        """Return every box, by name, or those that a selector matches."""
        return self.matching(BoxFilter(selector=selector))

    def matching(self, where: BoxFilter) -> list[BoxView]:
        """Return the whole views of boxes; the API filters by selector, clusters, states, and whether restored."""
        states, clusters = sorted(one.value for one in where.states), sorted(where.clusters)
        found = self._client.items(
            "/box-views", labels=where.selector, cluster=clusters, state=states, restored=where.restored
        )
        return [read_as(BoxView, one) for one in found]

    def box(self, name_or_id: str) -> BoxView:
        """Return one box."""
        return self.details(name_or_id).box

    def details(self, name_or_id: str) -> BoxDetails:
        """Return all that is known of one box."""
        return read_as(BoxDetails, self._client.get(f"/boxes/{name_in_path(name_or_id)}/details"))

    def events(self, device: str, limit: int = 50) -> list[BoxEvent]:
        """Return the last events of a box, newest first."""
        return [
            read_as(BoxEvent, one) for one in self._client.items(f"/boxes/{name_in_path(device)}/events", most=limit)
        ]

    def changes(self, device: str, limit: int = CHANGES) -> list[MachineChange]:
        """Return the last changes of a box's machine, newest first."""
        found = self._client.items(f"/boxes/{name_in_path(device)}/changes", most=limit)
        return [read_as(MachineChange, one) for one in found]

    def requests(self, device: str) -> list[RequestedItem]:
        """Return what is requested of a box now."""
        found = self._client.items(f"/boxes/{name_in_path(device)}/requests")
        return [read_as(RequestedItem, one) for one in found]

    def limits_history(self, device: str, key: ContainerKey) -> list[LimitsHistoryEntry]:
        """Return the changes of a container's requested limits, newest first, each with what came of it."""
        path = f"{_limits_path(device, (key.namespace, key.app, key.container))}/history"
        entries = self._client.get(path)
        return read_as(
            list[LimitsHistoryEntry],
            [{**one, "at_s": one["requested_at_s"], "by": one["requested_by"]} for one in entries],
        )

    def spec(self, device: str) -> Spec:
        """Return the desired document of a box."""
        return self.details(device).spec

    def names(self, beginning: str = "", *, limit: int = 200) -> list[str]:
        """Return names of boxes whose name or device id begins so, in order."""
        return [str(one["name"]) for one in self._client.items("/box-views", most=limit, names=beginning)]

    def is_name(self, name: str) -> bool:
        """Whether a box has exactly this name."""
        if not name:
            return False
        try:
            return bool(self._client.get(f"/boxes/{name_in_path(name)}")["name"] == name)
        except NotFoundError:
            return False

    def names_of(self, devices: Collection[str]) -> Mapping[str, str]:
        """Return the names of those of these boxes that exist, by device id."""
        ids = sorted(set(devices) - {""})
        parts = [ids[at : at + _MOST_NAMES] for at in range(0, len(ids), _MOST_NAMES)]
        found = (read_as(BoxView, one) for part in parts for one in self._client.items("/box-views", device=part))
        return {one.device: one.name for one in found}

    def confirm_restored(self, device: str) -> None:
        """Resume a box that was found ahead of the store there."""
        self._client.send("POST", f"/boxes/{name_in_path(device)}/confirm")

    def set_cluster(self, device: str, *, accept: bool) -> None:
        """Let the cluster count that a box reports, or let none count."""
        self._client.send("POST", f"/boxes/{name_in_path(device)}/cluster", {"accept": accept})

    def set_blocked(self, device: str, *, blocked: bool) -> None:
        """Refuse a box until it is unblocked, or unblock it; who asks has confirmed it."""
        if blocked:
            self._end(device, "block")
        else:
            self._client.send("POST", f"/boxes/{name_in_path(device)}/unblock")

    def revoke(self, device: str) -> None:
        """Ignore a box from now on; who asks has confirmed it."""
        self._end(device, "revoke")

    def forget(self, device: str) -> None:
        """Drop a box; who asks has confirmed it."""
        self._end(device, "forget")

    def _end(self, device: str, verb: str) -> None:
        path = f"/boxes/{name_in_path(device)}"
        self._client.send("POST", f"{path}/{verb}", {"confirm": self._client.get(path)["name"]})

    def rename(self, device: str, name: str) -> None:
        """Give a box another name."""
        self._client.send("PATCH", f"/boxes/{name_in_path(device)}", {"name": name})

    def label(self, device: str, labels: dict[str, str]) -> None:
        """Set labels of a box; one with an empty value is taken away."""
        wanted = {key: value or None for key, value in labels.items()}
        self._client.send("PATCH", f"/boxes/{name_in_path(device)}", {"labels": wanted})

    # limits

    def set_limits(self, device: str, limits: LimitsPatch, *, expect_rev: int | None = None) -> LimitsRevision:
        """Set the limits of one container of an app; an older console does not say whose limits they replace."""
        amounts = {name: value for name in _AMOUNTS if (value := getattr(limits, name)) is not None}
        body = amounts | {name: getattr(limits, name) for name in ("force", "interrupt", "on_drift")}
        if limits.live:
            body["live"] = True  # an older console knows no such field
        if expect_rev is not None:
            body["seen_rev"] = expect_rev  # nor this one, and refuses it
        path = _limits_path(device, (limits.namespace, limits.app, limits.container))
        verb = "PUT" if len(amounts) == len(_AMOUNTS) else "PATCH"  # an older console knows no PATCH, and says so
        answer = self._client.send(verb, path, body)
        if (one := answer.get("replaced")) is None:
            return LimitsRevision(int(answer["revision"]), None)
        theirs = {"by": one["requested_by"], "at_s": one["requested_at_s"], "limits": one["limits"]}
        return LimitsRevision(int(answer["revision"]), read_as(ReplacedLimits, theirs))

    def forget_limits(self, device: str, namespace: str, app: str, container: str | None = None) -> int:
        """Drop the requested limits of an app, or of one container; return the revision."""
        names = [
            one.container
            for one in self.details(device).spec.app_limits
            if (one.namespace, one.app) == (namespace, app) and container in {None, one.container}
        ]
        if not names:
            text = f"cannot forget limits of {namespace}/{app}: none are requested of it"
            raise NotFoundError(text, remedy="`edgegpu-cloud limits show BOX` lists them")
        paths = [_limits_path(device, (namespace, app, name)) for name in names]
        return [int(self._client.send("DELETE", path)["revision"]) for path in paths][-1]

    @property
    def apps(self) -> RemoteApps:
        """Return the apps by the values of their limits."""
        return RemoteApps(self._client)

    # sharing

    def set_settings(self, device: str, settings: SharingSettings) -> int:
        """Set how a box shares its cards; return the revision."""
        body = {name: value for name, value in asdict(settings).items() if value is not None}
        return int(self._client.send("PATCH", f"/boxes/{name_in_path(device)}/sharing", body)["revision"])

    def forget_items(self, device: str, names: Sequence[str]) -> int:
        """Take back requested settings of a box's sharing; return the revision."""
        paths = [f"/boxes/{name_in_path(device)}/sharing/{name_in_path(name)}" for name in names]
        return [int(self._client.send("DELETE", path)["revision"]) for path in paths][-1]

    # commands

    def command(self, device: str, op: str, args: dict[str, Any], *, wait_s: int = WAIT_S) -> CommandId:
        """Queue a command for a box."""
        body = {"op": op, "args": args, "wait_s": wait_s}
        return CommandId(self._client.send("POST", f"/boxes/{name_in_path(device)}/commands", body)["id"])

    def install(self, device: str, *, wait_s: int = WAIT_S) -> CommandId:
        """Request that GPU sharing is installed."""
        return self.command(device, "sharing.install", {}, wait_s=wait_s)

    def uninstall(self, device: str, *, wait_s: int = WAIT_S) -> CommandId:
        """Request that GPU sharing is taken off."""
        return self.command(device, "sharing.uninstall", {}, wait_s=wait_s)

    def cancel(self, id_: str) -> None:
        """Leave a command no time to begin."""
        self._client.send("POST", f"/commands/{name_in_path(id_)}/cancel")

    def commands(self, device: str | None = None, limit: int = 50) -> list[CommandView]:
        """Return the last commands to a box, or to all, newest first."""
        found = self._client.items("/commands", most=limit, box=device or "")
        return [read_as(CommandView, one) for one in found]

    def one_command(self, id_: str) -> CommandView:
        """Return one command with its history."""
        return read_as(CommandView, self._client.get(f"/commands/{name_in_path(id_)}"))

    def follow(self, id_: str, *, timeout_s: float) -> Iterator[CommandView]:
        """Yield a command, and again each time it has changed, until it has ended or the time is over."""
        return follow(lambda: self.one_command(id_), clock=time.time, sleep=time.sleep, timeout_s=timeout_s)

    # alarms

    def alarms(self) -> list[Alarm]:
        """Return the alarms that nobody has seen, newest first."""
        return [read_as(Alarm, one) for one in self._client.items("/alarms")]

    def alarm_seen(self, number: int) -> None:
        """Mark an alarm as seen."""
        self._client.send("POST", f"/alarms/{number}/seen")

    def audit(self, where: AuditFilter = WHOLE_AUDIT, *, limit: int = 50) -> list[AuditView]:
        """Return who changed what, and what came of it, newest first."""
        found = self._client.items("/audit", most=limit, **_asked_audit(where))
        return [read_as(AuditView, one) for one in found]


def _limits_path(device: str, key: Sequence[str]) -> str:
    return f"/boxes/{name_in_path(device)}/limits/{'/'.join(map(name_in_path, key))}"


def _asked_audit(where: AuditFilter) -> dict[str, Any]:
    """Return the query of a filter: what does not count is left out, as an older console knows less."""
    found = {"by": where.by, "box": where.device, "what": where.what}
    more: dict[str, Any] = {
        "since_s": where.since_s,
        "until_s": where.until_s,
        "app": where.app,
        "part_of": where.part_of,
    }
    return found | {name: value for name, value in more.items() if value}
