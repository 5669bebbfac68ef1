"""An agent that is put together wrongly, on purpose: its journal lies, all that bears on commands is the real thing.

A chaos run that finds nothing wrong with this one would find nothing wrong with any.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgegpu_agent.actions.registry import ActionContext, acts, standard_settlers
from edgegpu_agent.actions.settlers import SharingOfBox
from edgegpu_agent.identity.identity_files import BoxIdentity, load_identity
from edgegpu_agent.identity.machine_id import instance
from edgegpu_agent.journal.contents import JournalContents
from edgegpu_agent.journal.journal import BoxJournal
from edgegpu_agent.ports import BoxContext, Clock
from edgegpu_agent.session.transaction_keeper import TransactionKeeper
from edgegpu_agent.worker.worker import Worker, WorkerParts
from edgegpu_base.process.inotify import folder_watch
from edgegpu_base.process.sdnotify import notifier
from edgegpu_installer.layout import Layout
from edgegpu_installer.transaction import journal as installer_journal
from edgegpu_sync.link.events import Address
from edgegpu_sync.link.link import Link
from edgegpu_sync.messages.uplink import BoxVersions
from edgegpu_sync.signing import Signer
from edgegpu_sync.topics import box_filter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from kits.workerworld import BY_FORM, NoTelemetry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edgegpu_agent.journal.contents import HistoryEntry
    from edgegpu_sync.ids import CommandId
    from edgegpu_sync.messages.stamps import Stamp
    from edgegpu_sync.rules.commands import CommandRecord
    from edgegpu_sync.wire import Json

_LATE_S = 1.0


class LateJournal(BoxJournal):
    """`save` returns before anything is on the disk, but for births: messages are acknowledged and acts begun first."""

    _late: JournalContents | None = None
    _since_s = 0.0
    _bodies: dict[CommandId | Stamp, bytes]
    _notes: dict[str, Json | None]

    def save(
        self,
        held: JournalContents,
        *,
        bodies: Mapping[CommandId | Stamp, bytes] | None = None,
        notes: Mapping[str, Json | None] | None = None,
        told: Sequence[HistoryEntry] = (),
        spare: bool = False,
    ) -> None:
        if self._late is None:
            self._since_s, self._bodies, self._notes = time.monotonic(), {}, {}
        before = self._late or self.held
        self._late = held
        self._bodies |= bodies or {}
        self._notes |= notes or {}
        born = before is None or before.replay_guard.epoch != held.replay_guard.epoch
        if born or time.monotonic() - self._since_s > _LATE_S:
            super().save(held, bodies=self._bodies, notes=self._notes, told=told, spare=spare)
            self._late = None

    def close(self) -> None:
        if self._late is not None:
            super().save(self._late, bodies=self._bodies, notes=self._notes)
        super().close()

    def note(self, name: str) -> Json | None:
        if self._late is not None and name in self._notes:
            return self._notes[name]
        return super().note(name)

    def body(self, key: CommandId | Stamp) -> bytes | None:
        if self._late is not None and key in self._bodies:
            return self._bodies[key]
        return super().body(key)


class ForgetfulJournal(BoxJournal):
    """Knows nothing, after a start, of what has ended: neither ids and results, nor the numbers that are spent."""

    def load(self, *, enrolment: int, root: str) -> JournalContents:
        held = super().load(enrolment=enrolment, root=root)
        records = {id_: one for id_, one in held.records.items() if not one.state.terminal}
        spent = [one.seq for one in records.values() if one.seq > held.replay_guard.floor]
        seen = sum(1 << (seq - held.replay_guard.floor - 1) for seq in spent)
        outbox = replace(held.outbox, results=(), refusals=())
        return replace(held, records=records, outbox=outbox, replay_guard=replace(held.replay_guard, seen=seen))

    def recall(self, id_: CommandId) -> CommandRecord | None:
        del id_
        return None


BUGS: dict[str, type[BoxJournal]] = {
    "ack-before-journal": LateJournal,
    "forget-ids": ForgetfulJournal,
    "no-bug": BoxJournal,  # what is found is found of the journals above, and not of how this agent is put together
}


class _Place:
    """The folders of a box, as the agent has them."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(root)
        self.identity = self.layout.state / "identity"
        self.journals = self.layout.state / "agent"


def _enrolled(place: _Place, command: tuple[str, ...]) -> BoxIdentity:
    """Return the identity; without one become the real agent, which enrols and is killed then."""
    identity = load_identity(place.identity)
    if identity is None:
        os.execv(command[0], command)  # noqa: S606  (the agent beside this Python)
    return identity


def _run(place: _Place, identity: BoxIdentity, *, edgegpu: str, bug: str) -> None:
    stop = threading.Event()
    box = ActionContext(
        stop=stop,
        identity=place.identity,
        layout=place.layout,
        program=(edgegpu,),
        proc=place.layout.at("/proc"),
    )
    boot = place.layout.at("/proc/sys/kernel/random/boot_id").read_text().strip()
    place.journals.mkdir(exist_ok=True)
    journal = BUGS[bug](place.journals / f"{identity.id}.db", wall_s=time.time)
    worker = Worker(
        WorkerParts(
            journal=journal,
            root=identity.device.root,
            me=BoxContext(
                device=identity.id,
                enrolment=identity.device.enrolment,
                instance=instance(place.layout.root),
                signer=Signer.of(identity.sign_key()),
                versions=lambda: BoxVersions(agent="0"),
            ),
            clock=Clock(boot=boot, boot_s=lambda: time.clock_gettime(time.CLOCK_BOOTTIME), wall_s=time.time),
            rng=random.Random(),
            acts=acts(box),
            settlers=standard_settlers(box),
            sharing=SharingOfBox(place.layout),
            telemetry=NoTelemetry(),
            clean=BY_FORM,
        )
    )
    link = _link(identity, worker)
    worker.attach(link)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    for task in (link.run, _keeper(place, edgegpu).run):
        threading.Thread(target=task, daemon=True).start()
    worker.run()
    journal.close()


def _keeper(place: _Place, edgegpu: str) -> TransactionKeeper:
    return TransactionKeeper(
        journal=installer_journal.TransactionJournal(place.layout.tx),
        root=place.layout.root,
        command=(edgegpu, "transaction", "resume", "--json"),
        deadline_s=60,
        watch=folder_watch(),
        notifier=notifier({}),
        feed_watchdog=lambda: None,
    )


def _link(identity: BoxIdentity, worker: Worker) -> Link:
    broker = identity.device.broker

    def address() -> Address:
        return Address(
            host=broker.host,
            port=broker.port,
            client_id=identity.id,
            ca=identity.broker_ca,
            cert=identity.tls_cert,
            key=identity.tls_key,
        )

    return Link(
        address,
        subscribe=[box_filter(identity.id)],
        will=worker.will,
        put=worker.put,
        rng=random.Random(),
        clock=time.monotonic,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bug", choices=sorted(BUGS), required=True)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--edgegpu", required=True)
    chosen = parser.parse_args()
    place = _Place(chosen.root)
    real = (str(Path(sys.executable).with_name("edgegpu-agent")), "--root", str(chosen.root))
    _run(place, _enrolled(place, (*real, "--edgegpu", chosen.edgegpu)), edgegpu=chosen.edgegpu, bug=chosen.bug)
    return 0


if __name__ == "__main__":
    sys.exit(main())
