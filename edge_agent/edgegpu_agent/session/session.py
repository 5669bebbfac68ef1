"""One enrolled box on its link: journal, worker, link and local answers, for as long as its identity is this one."""

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgegpu_base.process.footprint import Footprint
from edgegpu_base.process.tasks import Task, TaskGroup

from edgegpu_agent.actions.action import Acts, Settlers
from edgegpu_agent.actions.uplink_redaction import BY_FORM, Clean
from edgegpu_agent.identity.clock_floor import ClockFloor
from edgegpu_agent.identity.identity_files import BoxIdentity
from edgegpu_agent.identity.status import IdentityStatus
from edgegpu_agent.journal.journal import BoxJournal
from edgegpu_agent.session.local_answers import StatusAnswer
from edgegpu_agent.session.local_api import SOCKET_NAME, LocalApi
from edgegpu_agent.session.watchdog import Vital, Vitals
from edgegpu_agent.worker.ports import Clock, LinkPort, Me, SharingSight, TelemetrySource
from edgegpu_agent.worker.steps import AtStep
from edgegpu_agent.worker.supervised import TurningWorker
from edgegpu_agent.worker.worker import Parts
from edgegpu_installer.errors import InstallError
from edgegpu_installer.machine import atomic
from edgegpu_installer.transaction import journal as installer_journal
from edgegpu_installer.transaction.states import Op, TransactionState
from edgegpu_sync.link.events import Address, Down, LinkEvent, Up
from edgegpu_sync.link.link import Link, Spoken
from edgegpu_sync.messages.uplink import Versions
from edgegpu_sync.signing import Signer
from edgegpu_sync.topics import box_filter

_LOG = logging.getLogger(__name__)

KEEPALIVE_S = 30
_LINK_HANGS_S = 4.0 * KEEPALIVE_S
"""The link gives a connection up after 1.8 keep-alives; above that it is its loop that hangs."""

_WORKER_HANGS_S = 90.0
"""It turns each second, and waits for nothing but the disk."""

_LAST_WORDS_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxPaths:
    """Where a box keeps its journals, and where it answers; `proc` is the kernel's, `tx` the installer's journal."""

    journals: Path
    run: Path
    proc: Path
    tx: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What this box can do, and sees; `tasks` are those that need the worker: the look at app limits."""

    acts: Acts
    settlers: Settlers
    sharing: SharingSight
    telemetry: TelemetrySource
    versions: Callable[[], Versions]
    stopping: threading.Event
    """Set when the box leaves the link: acts stop waiting."""
    clean: Clean = BY_FORM
    """Takes secrets out of what goes up."""
    tasks: Callable[[TurningWorker], list[Task]] = lambda _worker: []
    lacks: Callable[[], Collection[str]] = tuple
    """Which capabilities are not there now, of those that come with acts and settlers; asked each second."""
    limits_trouble: Callable[[], str] = str
    """What a person has to mend about app limits; empty when all is well."""


_STAYS = frozenset({TransactionState.ROLLING_BACK, TransactionState.ROLLED_BACK, TransactionState.INCONSISTENT})
"""An uninstall in one of these states leaves edgegpu where it is."""


def leaving(journal: installer_journal.TransactionJournal) -> Literal["stop", "uninstall"]:
    """Return why the agent goes, for its goodbye: edgegpu is being taken off this machine, or it is stopped."""
    try:
        record = journal.read()
    except InstallError:
        return "stop"
    goes = record is not None and record.op is Op.UNINSTALL and record.state not in _STAYS
    return "uninstall" if goes else "stop"


class BoxLink:
    """Everything of one identity. `run` it once; another identity gets another one."""

    def __init__(
        self,
        identity: BoxIdentity,
        *,
        instance: str,
        abilities: Abilities,
        places: BoxPaths,
        clock: ClockFloor,
        vitals: Vitals,
        standing: Callable[[], IdentityStatus],
        at_step: AtStep | None = None,
    ) -> None:
        """Open the journal and put it together.

        Args:
            identity: this box.
            instance: which machine this is.
            abilities: what it can do.
            places: where.
            clock: says whether dates in certificates count; told each time that a controller has signed.
            vitals: where its loops are watched.
            standing: how the identity stands, for local readers.
            at_step: told each step of a command, where somebody looks on.

        Raises:
            JournalError: the journal cannot be used.
            IdentityError: the key cannot.
        """
        self._identity, self._clock, self._vitals, self._at_step = identity, clock, vitals, at_step
        self._limits_trouble = abilities.limits_trouble
        self._standing, self._installer = standing, installer_journal.TransactionJournal(places.tx)
        self._group, self._stopping = TaskGroup(), abilities.stopping
        self._memory = LinkMemory(places.journals / "link.json")
        self._journal = self._open(_journal_of(places.journals, identity))
        try:
            self.worker = TurningWorker(self._parts(instance, abilities, places.proc), lacks=abilities.lacks)
        except Exception:
            self._journal.close()  # the next try needs it
            raise
        self._footprint = Footprint()
        self.link = self._link_of(self.worker)
        self.worker.attach(self._uplink())
        self._api = LocalApi(places.run / SOCKET_NAME, status=self._status, history=self.worker.history)
        self._more = abilities.tasks(self.worker)

    def _heard(self, event: LinkEvent) -> None:
        if isinstance(event, Up):
            self._footprint.soon()
        elif isinstance(event, Down):
            self._footprint.now()  # what connecting anew needs of the libraries comes in their place
        self.worker.put(event)

    def _link_of(self, worker: TurningWorker) -> Link:
        return Link(
            self._address,
            subscribe=[box_filter(self._identity.id)],
            will=worker.will,
            put=self._heard,
            rng=random.Random(),  # noqa: S311  (jitter)
            clock=time.monotonic,
            keepalive_s=KEEPALIVE_S,
            recall=self._memory.recall,
            remember=self._memory.remember,
        )

    def _status(self) -> StatusAnswer:
        """Say how all of it stands: in one answer, for the file of the identity may be another agent's words."""
        more = {"identity": self._standing().document(), "limits_trouble": self._limits_trouble()}
        return self.worker.status().model_copy(update=more)

    def _open(self, path: Path) -> BoxJournal:
        if self._at_step is None:
            return BoxJournal(path, wall_s=time.time)
        from edgegpu_agent.worker.observed import SteppedJournal  # noqa: PLC0415  (no box in the field needs it)

        journal = SteppedJournal(path, wall_s=time.time)
        journal.at_step = self._at_step
        return journal

    def _uplink(self) -> LinkPort:
        if self._at_step is None:
            return self.link
        from edgegpu_agent.worker.observed import SteppedJournal, SteppedUplink  # noqa: PLC0415

        assert isinstance(self._journal, SteppedJournal)  # noqa: S101  (`_open` made it)
        return SteppedUplink(self.link, self._journal)

    def _parts(self, instance: str, abilities: Abilities, proc: Path) -> Parts:
        """Return what the worker is made of."""
        acts, settlers = abilities.acts, abilities.settlers
        if self._at_step is not None:
            from edgegpu_agent.worker import observed  # noqa: PLC0415

            acts, settlers = observed.acts(acts, self._at_step), observed.settlers(settlers, self._at_step)
        return Parts(
            journal=self._journal,
            root=self._identity.device.root,
            keys=self._identity.device.keys,
            me=Me(
                device=self._identity.id,
                enrolment=self._identity.device.enrolment,
                instance=instance,
                signer=Signer.of(self._identity.sign_key()),
                versions=abilities.versions,
            ),
            clock=_boot_clock(proc),
            rng=random.Random(),  # noqa: S311  (jitter)
            acts=acts,
            settlers=settlers,
            sharing=abilities.sharing,
            telemetry=abilities.telemetry,
            clean=abilities.clean,
            server_time=self._clock.learn,
        )

    def run(self) -> None:
        """Hold the link until `stop`.

        Raises:
            Exception: what a task failed with.
        """
        _LOG.info("on the link as %s, enrolment %d", self._identity.id, self._identity.device.enrolment)
        if not self._group.ended:
            self._vitals.watch(
                {
                    "worker": Vital(lambda: self.worker.age_s, _WORKER_HANGS_S),
                    "link": Vital(lambda: self.link.alive_s, _LINK_HANGS_S),
                }
            )
            self._group.start(self.tasks())
            self._group.wait()
        self._stopping.set()
        self._vitals.watch({})
        if not self.worker.began.is_set() or self.worker.finished.wait(_LAST_WORDS_S):
            self._journal.close()

    def stop(self) -> None:
        """Let `run` end, after a goodbye."""
        self._stopping.set()
        self._group.end()

    def tasks(self) -> list[Task]:
        """Return all tasks by name."""
        return [
            Task("worker", self.worker.run, lambda: self.worker.stop(leaving(self._installer))),
            Task("link", self._run_link, self._stop_link),
            Task("answers", self._api.run, self._api.stop),
            Task("footprint", self._footprint.run, self._footprint.stop),
            *self._more,
        ]

    def _run_link(self) -> None:
        self.worker.began.wait()
        if not self.worker.finished.is_set():
            self._vitals.begun()  # the journal is open and the worker turns; the broker may be away
        self.link.run()

    def _stop_link(self) -> None:
        """The worker's goodbye goes first."""
        self.worker.finished.wait(_LAST_WORDS_S)
        self.link.stop()

    def _address(self) -> Address:
        identity = self._identity
        return Address(
            host=identity.device.broker.host,
            port=identity.device.broker.port,
            client_id=identity.id,
            ca=identity.broker_ca,
            cert=identity.tls_cert,
            key=identity.tls_key,
            check_dates=self._clock.is_right,
        )


class LinkMemory:
    """What the link remembers over restarts; what cannot be read or written is found out again."""

    def __init__(self, path: Path) -> None:
        """Keep it there."""
        self._path = path

    def recall(self) -> Spoken | None:
        """Return what was remembered last."""
        try:
            return Spoken(float(json.loads(self._path.read_bytes())["since"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def remember(self, spoken: Spoken | None) -> None:
        """Remember this, or nothing."""
        try:
            if spoken is None:
                self._path.unlink(missing_ok=True)
            else:
                atomic.write(self._path, json.dumps({"since": spoken.since}).encode())
        except (OSError, InstallError) as error:
            _LOG.warning("cannot keep which version the broker speaks: %s", error)


def _boot_clock(proc: Path) -> Clock:
    boot = (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return Clock(boot=boot, boot_s=lambda: time.clock_gettime(time.CLOCK_BOOTTIME), wall_s=time.time)


def _journal_of(folder: Path, identity: BoxIdentity) -> Path:
    """Return the journal of this device id, without those of others: another cloud counts enrolments anew."""
    mine = folder / f"{identity.id}.db"
    for path in folder.glob("*.db*") if folder.is_dir() else ():
        if not path.name.startswith(mine.name):
            path.unlink(missing_ok=True)
    return mine
