"""Settles or follows an item of app limits as the agent does, in a process of its own in the node: JSON in and out."""

import json
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

from edgegpu_agent.app_limits.lease import DURATION_S, NAME, NAMESPACE, LeaseKeeper
from edgegpu_agent.app_limits.live import PluginLimits
from edgegpu_agent.app_limits.settler import AppLimitsSettler
from edgegpu_agent.app_limits.task import AppLimitsService
from edgegpu_agent.app_limits.waiting import SettlementTimer, Timeouts
from edgegpu_agent.kube.apps import Apps
from edgegpu_agent.kube.client import AgentClient
from edgegpu_agent.kube.leases import Leases
from edgegpu_agent.ports import DriftChecks
from edgegpu_agent.ports import SettledItem as Looked
from edgegpu_base.kube import load_kubeconfig
from edgegpu_core.model import ResourceModel
from edgegpu_installer.layout import Layout
from edgegpu_sync.messages.spec import AppLimits as AppLimitsItem
from edgegpu_sync.messages.spec import AskedItem, TryKey, item_name
from edgegpu_sync.messages.uplink import Condition, ItemState
from edgegpu_sync.rules.settle import Settlement

WAIT_S, SETTLE_S = 30.0, 4.0
PATIENCE = Timeouts(look_s=0.3, rollout_s=60, blame_s=20, forced_s=3, ready_s=20, restore_s=60)


class FileNotes:
    """Notes in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Any:  # noqa: ANN401  (JSON)
        return json.loads(self._path.read_text()) if self._path.exists() else None

    def write(self, note: dict[str, Any]) -> None:
        self._path.write_text(json.dumps(note))


def watch(client: AgentClient, asked: AskedItem, order: dict[str, Any]) -> dict[str, Any]:
    """Follow one settled item as the agent does, write its limits back by another name, and say what came of it."""
    told: queue.Queue[tuple[Condition, ...]] = queue.Queue()
    one = Looked(asked=asked, settlement=Settlement.applied(), notes=FileNotes(Path(order["notes"])))
    checks = DriftChecks(
        settled=lambda: [one], landed=print, noticed=lambda _name, conditions: told.put(conditions), again=print
    )
    root = Path(order["notes"]).with_suffix(".root")
    part = AppLimitsService(client, Layout(root), node=order["me"], look_s=float(order["watch"]))
    tasks = part.tasks(checks)
    for task in tasks:
        threading.Thread(target=task.run, daemon=True).start()
    calm = told.get(timeout=WAIT_S)
    time.sleep(SETTLE_S)  # until the watches have become those of the one kind
    assert isinstance(asked.item, AppLimitsItem)
    containers = [{"name": asked.item.container, "resources": {"limits": order["back"]}}]
    change = {"spec": {"template": {"spec": {"containers": containers}}}}
    [found] = Apps(client).find(asked.item.namespace, asked.item.app)
    began = time.monotonic()
    Apps(client).patch(found, change)
    while not (conditions := told.get(timeout=WAIT_S)):
        pass
    took_s = time.monotonic() - began
    for task in tasks:
        task.stop()
    return {
        "calm": [one.type for one in calm],
        "conditions": [one.type for one in conditions],
        "took_s": took_s,
        "trouble": part.trouble,
    }


def follow(client: AgentClient, asked: AskedItem, order: dict[str, Any]) -> None:
    """Follow one settled item as the agent does, until the process is killed."""
    one = Looked(asked=asked, settlement=Settlement.applied(), notes=FileNotes(Path(order["notes"])))

    def said(texts: list[str]) -> None:
        sys.stdout.write(f"{texts}\n")
        sys.stdout.flush()

    checks = DriftChecks(
        settled=lambda: [one],
        landed=print,
        noticed=lambda _name, conditions: said([one.text for one in conditions]),
        again=print,
    )
    part = AppLimitsService(client, Layout(), node=order["me"])
    for task in part.tasks(checks):
        threading.Thread(target=task.run, daemon=True).start()
    threading.Event().wait()


def main() -> None:
    order = json.load(sys.stdin) if len(sys.argv) == 1 else json.loads(Path(sys.argv[1]).read_text())
    client = AgentClient(load_kubeconfig(Path(order["kubeconfig"])))
    lease = LeaseKeeper(Leases(client, namespace=NAMESPACE, name=NAME, duration_s=DURATION_S), me=order["me"])
    lease.look()
    settler = AppLimitsSettler(
        Apps(client),
        lease,
        model=ResourceModel,
        installed=lambda: True,
        timer=SettlementTimer(PATIENCE),
        port=PluginLimits(Layout().plugin_socket),
    )
    fields = {"cluster": Apps(client).cluster_uid(), **order["item"]}
    item = AppLimitsItem.model_validate_json(json.dumps(fields))
    asked = AskedItem(name=item_name(item), key=TryKey(item.rev, "00", item.retry), item=item)
    notes = FileNotes(Path(order["notes"]))
    if order.get("follow"):
        follow(client, asked, order)
    if order.get("watch"):
        sys.stdout.write(json.dumps(watch(client, asked, order)))
        return
    if order.get("settled"):
        settled = Settlement(state=ItemState(order["settled"]))
        sight = settler.look(asked, settled, notes)
        landed = sight.landed.state.value if sight.landed else ""
        conditions = [one.model_dump() for one in sight.conditions or ()]
        sys.stdout.write(json.dumps({"landed": landed, "conditions": conditions}))
        return
    came = settler.settle(asked, notes)
    numbers = came.numbers.model_dump() if came.numbers else None
    answer = {"state": came.state.value, "code": came.code, "text": came.text, "restored": came.restored}
    sys.stdout.write(json.dumps({**answer, "numbers": numbers}))


if __name__ == "__main__":
    main()
