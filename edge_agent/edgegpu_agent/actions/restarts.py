"""k3s.restart and plugin.restart: ask systemd once; the unit's InvocationID then shows whether it has restarted."""

import contextlib
import datetime as dt
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509

from edgegpu_agent.actions.programs import ActionTimer
from edgegpu_agent.actions.units import Units, state_text
from edgegpu_agent.ports import ActionOutcome
from edgegpu_base.kube import ApiAccess, Forbidden, KubeClient, KubeconfigError, KubeError, load_kubeconfig
from edgegpu_installer.layout import K3S_DATA, KUBECONFIG, PLUGIN_UNIT, Layout
from edgegpu_installer.machine.systemd import UnitState
from edgegpu_sync.ids import CommandId
from edgegpu_sync.rules.ops import Args, Evidence, UnitRun
from edgegpu_sync.states import CommandState, ResultCode

STEADY_S = 10.0
"""A unit in a crash loop is never up for so long."""

_BUSY_S = 240.0
_LOOK_S = 1.0

_NODE = "system:node:"
_CALL_S = 5.0
_SECOND_S = 1.0
"""The resolution of a heartbeat: the API has whole seconds."""

NodeReady = Callable[[float], bool | None]
"""Whether this node is Ready by a heartbeat after a time (seconds since 1970); None: the cluster cannot be asked."""


def readiness_unknown(_since_s: float) -> bool | None:
    """Return None: on this box the cluster cannot be asked."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """The action that restarts one unit.

    `unit` returns its name, empty where there is none. `first` is a unit that must be active, else the restart is
    rejected: a kubelet that starts without the plugin fails pods. `within_s`: the restart has failed where the unit is
    not well after so long.
    """

    units: Units
    timer: ActionTimer
    unit: Callable[[], str]
    within_s: float
    first: str = ""
    ready: NodeReady = readiness_unknown
    steady_s: float = STEADY_S
    busy: Callable[[], bool] = lambda: False
    """Return whether an installer is at work; its own restarts must not be mixed with ours."""
    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    _since_s: dict[CommandId, float] = field(default_factory=dict)
    _runs: dict[CommandId, str] = field(default_factory=dict)
    """The first run that was seen after each restart; an installer may begin another before that one is steady."""

    def token(self, id_: CommandId, args: Args) -> str:
        """Return the run that the restart will end; wait first for an installer that is at work."""
        del id_, args
        self.timer.wait_for(lambda: None if self.busy() else True, every_s=_LOOK_S, within_s=_BUSY_S)
        name = self.unit()
        run = self.units.run_of(self.units.read(name)) if name else None
        known = run or UnitRun(boot="", invocation="")
        return json.dumps({"unit": name, "boot": known.boot, "invocation": known.invocation})

    def act(self, id_: CommandId, args: Args, token: str) -> ActionOutcome:
        """Ask systemd for the restart."""
        del id_, args
        name, _ = _read(token)
        if why := self._refusal(name):
            return ActionOutcome.rejected(*why)
        if refused := self.units.restart(name):
            return ActionOutcome.failed(f"cannot restart {name}: {refused}")
        return ActionOutcome(state=CommandState.VERIFYING)

    def _refusal(self, name: str) -> tuple[ResultCode, str] | None:
        now = self.units.read(name) if name else None
        if not name or (now is not None and not now.is_there):
            return ResultCode.NOT_INSTALLED, f"there is no {name or 'k3s'} on this box"
        if now is None:
            return ResultCode.PRECHECK, "systemd does not answer"
        if self.busy():
            return ResultCode.PRECHECK, f"an installer has been at work for {_BUSY_S:g} s: edgegpu transaction show"
        before = self.units.read(self.first) if self.first else None
        if before is not None and before.is_there and not before.is_active:
            return (
                ResultCode.PRECHECK,
                f"{state_text(before)}: pods would fail that {name} starts without it; restart it first",
            )
        return None

    def evidence(self, id_: CommandId, token: str) -> Evidence:
        """Return whether the unit was restarted since; a job of systemd that waits counts as UNDER_WAY."""
        del id_
        name, before = _read(token)
        if not name:
            return Evidence.NOT_DONE
        now = self.units.read(name)
        found = before.evidence(self.units.run_of(now))
        return Evidence.UNDER_WAY if found is Evidence.NOT_DONE and now is not None and now.is_changing else found

    def verify(self, id_: CommandId, args: Args, token: str) -> ActionOutcome | None:
        """Return the outcome once the unit runs again and stays up, or has failed to; None before."""
        del args
        name, before = _read(token)
        began = self._since_s.setdefault(id_, self.monotonic())
        now = self.units.read(name)
        well = False
        if now is not None and before.evidence(self.units.run_of(now)) is Evidence.DONE:
            self._runs.setdefault(id_, now.invocation)
            well = self._is_well(now)
        if not well and self.monotonic() - began < self.within_s:
            return None
        self._since_s.pop(id_, None)
        run = self._runs.pop(id_, "")
        if well:
            return ActionOutcome(state=CommandState.SUCCEEDED, data={"unit": name, "invocation": run})
        words = state_text(now) if now is not None else "systemd does not answer"
        ready = ", or its node is not Ready" if now is not None and now.is_active else ""
        text = f"not well {self.within_s:g} s after the restart: {words}{ready}; journalctl -e -u {name}"
        return ActionOutcome.failed(text, ResultCode.TIMED_OUT)

    def _is_well(self, now: UnitState) -> bool:
        if not now.is_active or now.job:
            return False
        mono = self.monotonic()
        steady = mono - now.up_since_s >= self.steady_s
        return steady and self.ready(self.wall() - (mono - now.started_s)) is not False


def _read(token: str) -> tuple[str, UnitRun]:
    value = json.loads(token)
    return str(value["unit"]), UnitRun(boot=str(value["boot"]), invocation=str(value["invocation"]))


K3S_S, PLUGIN_S = 600.0, 120.0


def restart_k3s(
    units: Units, *, timer: ActionTimer, ready: NodeReady, busy: Callable[[], bool], steady_s: float = STEADY_S
) -> Restart:
    """Return the action `k3s.restart`."""
    return Restart(
        units=units,
        timer=timer,
        unit=units.k3s,
        within_s=K3S_S,
        first=PLUGIN_UNIT,
        ready=ready,
        busy=busy,
        steady_s=steady_s,
    )


def restart_plugin(units: Units, *, timer: ActionTimer, busy: Callable[[], bool], steady_s: float = 3.0) -> Restart:
    """Return the action `plugin.restart`."""
    return Restart(units=units, timer=timer, unit=lambda: PLUGIN_UNIT, within_s=PLUGIN_S, busy=busy, steady_s=steady_s)


@dataclass(frozen=True, slots=True)
class NodeReadiness:
    """A question to the API server about this node, with kubelet's own certificate, whose name is the node's."""

    layout: Layout
    candidates: tuple[str, ...] = (f"{K3S_DATA}/agent/kubelet.kubeconfig", KUBECONFIG)

    def __call__(self, since_s: float) -> bool | None:
        """Return what `NodeReady` describes; False where the API server does not answer yet."""
        found = self._access()
        if found is None:
            return None
        access, name = found
        try:
            with contextlib.closing(KubeClient(access, timeout_s=_CALL_S)) as client:
                return ready_since(client.get(f"/api/v1/nodes/{name}"), since_s)
        except Forbidden:
            return None
        except KubeError:
            return False

    def _access(self) -> tuple[ApiAccess, str] | None:
        for path in self.candidates:
            try:
                access = load_kubeconfig(self.layout.at(path))
            except KubeconfigError:
                continue
            if name := _name_in(access.cert_pem or ""):
                return access, name
        return None


def ready_since(node: dict[str, Any], since_s: float) -> bool:
    """Return whether a Node object is Ready by a heartbeat that is not older than `since_s`."""
    for condition in (node.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "Ready":
            beat = dt.datetime.fromisoformat(str(condition.get("lastHeartbeatTime", "1970-01-01T00:00:00Z")))
            return condition.get("status") == "True" and beat.timestamp() >= since_s - _SECOND_S
    return False


def _name_in(pem: str) -> str:
    try:
        subject = x509.load_pem_x509_certificate(pem.encode()).subject
    except ValueError:
        return ""
    names = [str(one.value) for one in subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    return names[0].removeprefix(_NODE) if names and names[0].startswith(_NODE) else ""
