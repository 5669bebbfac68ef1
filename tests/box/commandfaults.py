"""One cell of the command matrix: a command stands at a step, its agent or the power dies, and it must end right."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from box import commandjudge, filejudge
from box.bed import JOURNAL, NAME
from box.cloudbed import Cloud
from box.commandjudge import INSTALL, RESTART, UNINSTALL, Seen, judged
from lab.labrun import LabError, wait_until

from edgegpu_agent.worker import steps as agent_steps
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.views import CommandView
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_installer.layout import CLOUD_TOKEN
from edgegpu_installer.transaction.states import TransactionState as Transaction
from edgegpu_sync.ids import CommandId
from edgegpu_sync.messages.uplink import ItemReport, ItemState
from edgegpu_sync.states import CommandState

OPS = (RESTART, UNINSTALL, INSTALL)

AGENT, INSTALLER = "agent", "installer"
KILL, CUT = "kill", "cut"
_STATES = {state.value for state in Transaction}
_UNIT = "edgegpu-agent.service"
_DROP_IN = f"/run/systemd/system/{_UNIT}.d/steps.conf"
_SAID, _TRACE, _ITS_TRACE = "/run/steps.said", "/run/steps.agent", "/run/steps.installer"
_STARTING, _RESTARTING = "7d4958e842da4a758f6c1cdc7b36dcc5", "5eb03494b6584870a536b337290809b3"
"""What systemd writes each time that it begins to start a unit, and before that where the unit has ended by itself
(SD_MESSAGE_UNIT_STARTING, SD_MESSAGE_UNIT_RESTART_SCHEDULED in sd-messages.h)."""

_FELL = "level=fatal|panic:|Main process exited"
"""Where k3s's own journal says why."""

_READY = f"""
since=$(date -d "$(systemctl show -p ActiveEnterTimestamp --value k3s)" +%s) || exit
lease=$(k3s kubectl get lease -n kube-node-lease {NAME} -o 'jsonpath={{.spec.renewTime}}') || exit
ready=$(k3s kubectl get node {NAME} -o 'jsonpath={{.status.conditions[?(@.type=="Ready")].status}}') || exit
[ "$ready" = True ] && [ "$(date -d "$lease" +%s)" -gt "$since" ]
"""

_HELD_S, _END_S = 120.0, 420.0


@dataclass(frozen=True, slots=True)
class Step:
    """`name` has its `before-` or `after-`; `whose` process waits there."""

    whose: str
    name: str

    def __str__(self) -> str:
        return self.name if self.whose == AGENT else f"tx {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What became of one fault at one step: how the command ended, how often k3s was started, and what is wrong.

    `fell`: the last words of a k3s that ended by itself and was started by systemd, which `starts` does not count.
    """

    op: str
    step: str
    fault: str
    end: str = ""
    starts: int = 0
    fell: list[str] = field(default_factory=list)
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Starts:
    """How often systemd has started k3s: because it was asked to, and because k3s had ended by itself."""

    asked: int
    own: int = 0

    def __sub__(self, before: Starts) -> Starts:
        return Starts(self.asked - before.asked, self.own - before.own)


BOOT = Starts(asked=1)
"""What a boot does itself."""


class Faults:
    """Strikes commands of one box that is enrolled as `name`."""

    def __init__(self, cloud: Cloud, name: str) -> None:
        """Ask as `edgegpu-cloud` does, over the controller's store, without a start of that program each time."""
        self.bed, self.name = cloud.bed, name
        self._store = ControllerStore.open_file(cloud.folder / "controller.db")
        self._fleet = Fleet(self._store, clock=time.time, by="box")
        self._files = Path()

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    # --- the steps

    def steps(self, op: str) -> list[Step]:
        """Let a command be done without a fault; return its steps: nothing lies between one's end and the next."""
        self._ready(op)
        self._hold(None)
        self._end(self._ask(op))
        receipted = f"after-{agent_steps.RECEIPTED} {op}"
        wait_until(lambda: receipted in self._read(_TRACE), what=f"the receipt for {op}")
        rows = [line.split()[0] for line in self._read(_TRACE).splitlines()]
        found = [Step(AGENT, name) for name in dict.fromkeys(rows) if name.startswith("after-")]
        its = [name for name in dict.fromkeys(self._read(_ITS_TRACE).split()) if name.startswith("after-")]
        states = [Step(INSTALLER, name) for name in its if name.removeprefix("after-") in _STATES]
        at = next((at for at, one in enumerate(found) if one.name == f"after-{agent_steps.SETTLE}"), len(found))
        return [Step(AGENT, f"before-{CommandState.RECEIVED}"), *found[:at], *states, *found[at:]]

    def _hold(self, step: Step | None) -> None:
        """Start the agent anew: it tells its steps, and waits at one where one is given; a boot forgets that."""
        variables = {agent_steps.TRACE: _TRACE, "EDGEGPU_INSTALLER_TRACE": _ITS_TRACE}
        if step is not None:
            pause = agent_steps.PAUSE if step.whose == AGENT else "EDGEGPU_INSTALLER_PAUSE"
            variables |= {pause: step.name}
        environment = " ".join(f"{name}={value}" for name, value in variables.items())
        text = f"[Service]\nEnvironment={environment}\nStandardError=append:{_SAID}\n"
        script = (
            f'set -e; rm -f {_SAID} {_TRACE} {_ITS_TRACE}; touch {_SAID} {_TRACE}; mkdir -p "$(dirname {_DROP_IN})"'
            f"; cat > {_DROP_IN}; systemctl daemon-reload; systemctl restart {_UNIT}"
        )
        self.bed.machine.exec("sh", "-c", script, input=text)
        self._files = self.bed.node.path("/run")

    def _read(self, path: str) -> str:
        try:
            return (self._files / path.removeprefix("/run/")).read_text()
        except OSError:
            return ""

    def _ask(self, op: str) -> CommandId:
        match op:
            case commandjudge.INSTALL:
                return self._fleet.install(self.name)
            case commandjudge.UNINSTALL:
                return self._fleet.uninstall(self.name)
            case _:
                return self._fleet.command(self.name, op, {})

    def _end(self, id_: CommandId) -> CommandView:
        *_, last = self._fleet.follow(id_, timeout_s=_END_S)
        if not last.ended:
            raise LabError(f"{last.op} has not ended after {_END_S:g} s: {last}")
        return last

    def _ready(self, op: str) -> None:
        """Bring sharing to where the command finds something to do."""
        wait_until(lambda: self._fleet.box(self.name).online, what="the box is online")
        if self.installed != (op != INSTALL):
            self._end(self._ask(UNINSTALL if op == INSTALL else INSTALL))

    @property
    def installed(self) -> bool:
        """Whether the box has GPU sharing."""
        unit = "/etc/systemd/system/edgegpu-plugin.service"
        return self.bed.machine.exec("test", "-e", unit, check=False).returncode == 0

    # --- one cell

    def struck(self, op: str, step: Step, fault: str) -> Cell:
        """Return what becomes of a command; of a box that does not come back why, so that other cells are seen too."""
        began = time.monotonic()
        try:
            return self._strike(op, step, fault)
        except LabError as error:
            seconds = round(time.monotonic() - began, 1)
            return Cell(op=op, step=str(step), fault=fault, end="NONE", seconds=seconds, wrong=[str(error)])

    def _strike(self, op: str, step: Step, fault: str) -> Cell:
        self._ready(op)
        self._hold(step)
        before, disk = self._starts(), self.bed.disk()
        id_ = self._ask(op)
        pid = wait_until(
            lambda: waiting(self._read(_SAID), step.name), what=f"{op} at {step}", timeout_s=_HELD_S, every_s=0.05
        )
        held, run = self._starts(), self.bed.restarts()
        struck = time.monotonic()
        if fault == CUT:
            self.bed.machine.cut()
            self.bed.machine.up()
        else:
            self._kill(step, pid)
        view = self._end(id_)
        seconds = round(time.monotonic() - struck, 1)
        wait_until(self._k3s_ready, what=f"k3s is Ready after {op} at {step}", every_s=1)
        first, second = held - before, self._starts() - (BOOT if fault == CUT else held)
        seen = Seen(
            op=op,
            step=step.name,
            cut=fault == CUT,
            view=view,
            starts=(first.asked, second.asked),
            installed=self.installed,
            runs=(run, self.bed.restarts()),
        )
        wrong = [*judged(seen), *self._ledgers(view), *self._differing(view, disk)]
        return Cell(
            op=op,
            step=str(step),
            fault=fault,
            end=str(view.state),
            starts=first.asked + second.asked,
            fell=self._last_words() if first.own + second.own else [],
            seconds=seconds,
            wrong=wrong,
        )

    def _kill(self, step: Step, pid: str) -> None:
        """Kill the agent; what it has started goes on. It is started again, sooner than in the field, and not held."""
        agent = self.bed.machine.exec("systemctl", "show", "-p", "MainPID", "--value", _UNIT).stdout.strip()
        if step.whose == AGENT and agent != pid:
            raise LabError(f"process {pid} waits at {step}, and the agent is {agent}")
        onward = f"; kill -USR1 {pid}" if step.whose == INSTALLER else ""
        unheld = f"printf '[Service]\\nRestartSec=1s\\n' > {_DROP_IN}; systemctl daemon-reload"
        self.bed.machine.exec("sh", "-ec", f"{unheld}; kill -KILL {agent}{onward}")

    def _k3s_ready(self) -> bool:
        """Say whether the node is Ready by a heartbeat of this run of k3s; the next one may be 10 s away."""
        return self.bed.machine.exec("sh", "-c", _READY, check=False).returncode == 0

    def _starts(self) -> Starts:
        """Return the starts since the boot, as systemd has written them down."""
        ids = (f"MESSAGE_ID={_STARTING}", f"MESSAGE_ID={_RESTARTING}")
        told = self.bed.machine.exec("journalctl", "-q", "-b", "-o", "json", *ids, "UNIT=k3s.service", check=False)
        found = [json.loads(line)["MESSAGE_ID"] for line in told.stdout.splitlines()]
        own = found.count(_RESTARTING)
        return Starts(asked=found.count(_STARTING) - own, own=own)

    def _last_words(self) -> list[str]:
        told = self.bed.machine.exec("journalctl", "-q", "-u", "k3s", "-o", "cat", "-n", "6", "-g", _FELL, check=False)
        return ["k3s had ended by itself", *told.stdout.splitlines()]

    def _ledgers(self, view: CommandView) -> list[str]:
        """Say what is wrong with how the controller and the box remember it, and with the item."""
        wrong = []
        ends = [line.state for line in view.history if line.state.terminal]
        if ends != [view.state]:
            wrong.append(f"the controller was told the ends {ends}")
        told = wait_until(self._journal, what="the agent tells its journal", every_s=0.5)
        ends = [
            CommandState(line["state"])
            for line in told
            if line["about"] == view.id and CommandState(line["state"]).terminal
        ]
        if ends != [view.state]:
            wrong.append(f"the box's journal has the ends {ends}")
        if view.op != RESTART:
            wanted = ItemState.APPLIED if view.state is CommandState.SUCCEEDED else ItemState.FAILED
            wait_until(lambda: self._item.state is wanted, what=f"the item is {wanted}, not {self._item}")
            if wanted is ItemState.FAILED and not self._item.restored:
                wrong.append(f"the item does not say that all is as before: {self._item}")
        return wrong

    def _differing(self, view: CommandView, before: dict[str, str]) -> list[str]:
        """Compare every file with what the end of the command says of it; kubelet is waited for between two."""
        wait_until(lambda: not self._unfinished, what="the transaction is tidied up")
        if self.installed:
            self.bed.offered()  # the plugin's sockets are there again
        if view.op == RESTART or view.state is not CommandState.SUCCEEDED:
            return filejudge.put_back(before, self.bed.disk(), first=view.op == INSTALL, farewell=view.op != RESTART)
        ours, drifted = self.bed.written()
        drifted = [path for path in drifted if path != CLOUD_TOKEN]  # the agent takes a token away that it has spent
        return filejudge.carried_out(before, self.bed.disk(), ours=ours, drifted=drifted, farewell=True)

    @property
    def _unfinished(self) -> bool:
        return self.bed.machine.exec("test", "-e", f"{JOURNAL}/files", check=False).returncode == 0

    def _journal(self) -> list[dict[str, str]]:
        lines: list[dict[str, str]] = json.loads(self.bed.edgegpu("journal", "--json").stdout)["lines"]
        return lines

    @property
    def _item(self) -> ItemReport:
        return self._fleet.box(self.name).items["sharing"]


def waiting(said: str, step: str) -> str:
    """Return the pid of who waits at a step, empty while nobody does."""
    found = re.search(rf"waiting at {re.escape(step)}, process (\d+)", said)
    return found[1] if found else ""


def write(cells: Sequence[Cell], target: Path) -> str:
    """Write the table as JSON, and return it for people."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps([asdict(cell) for cell in cells], indent=1) + "\n")
    rows = []
    for cell in cells:
        wrong = " ".join("; ".join(cell.wrong).split())
        what = f"{cell.op:<17} {cell.step:<20} {cell.fault:<5} {cell.end:<12}"
        rows.append(" ".join([f"{what} {cell.starts} starts {cell.seconds:6.1f} s", wrong, *cell.fell]).rstrip())
    return "\n".join(rows)
