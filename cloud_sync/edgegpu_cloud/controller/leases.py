"""The partitions that this controller holds: taken, renewed and given up in the store, by the rules of `partitions`."""

import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from edgegpu_cloud.controller.partitions import LeasePlan, LeaseTimes, Tenure
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.store.controllers.leadership import LeasesLostError
from edgegpu_cloud.store.controllers.next_turn import tried_next_turn
from edgegpu_cloud.store.records import LEADER, ControllerBeat, Lease, partition_of
from edgegpu_cloud.store.store import ControllerStore, Transaction
from edgegpu_sync.ids import DeviceId

_LOG = logging.getLogger(__name__)

FORGOTTEN_S = 7 * 86_400
"""How long a controller that died is still shown to people."""


def boottime() -> float:
    """Return seconds of a clock that nobody sets and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def place_of(folder: Path) -> str:
    """Return what tells this folder of this machine from all others; empty where the machine has no identity."""
    try:
        machine = Path("/etc/machine-id").read_text().strip()
        found = folder.stat()
    except (OSError, UnicodeDecodeError):
        return ""
    return sha256(f"{machine} {found.st_dev} {found.st_ino}".encode()).hexdigest() if machine else ""


@dataclass(frozen=True, slots=True)
class LeaseChange:
    """The partitions that were gained, and those that were lost or given up, in one look at the store."""

    gained: frozenset[int] = frozenset()
    gone: frozenset[int] = frozenset()


class PartitionLeases:
    """The leases of one controller. `begin`, `look` and `end` are for its thread; all else is for any thread."""

    def __init__(
        self,
        store: ControllerStore,
        name: str,
        *,
        shared: bool = False,
        place: str = "",
        host: str = "",
        times: LeaseTimes | None = None,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = boottime,
    ) -> None:
        """Build it; nothing is held yet.

        Args:
            store: where the leases are.
            name: of the controller; no other one of this store has it.
            shared: whether other controllers may use the store. If not, all partitions are taken at once, whoever is
                in the store, and held without renewals: the caller knows that nobody else runs.
            place: machine and folder, whose lock the caller has; empty where that cannot be told.
            host: the machine, for people.
            times: of the leases.
            clock: seconds since 1970, for people.
            steady: seconds of a clock that nobody sets.
        """
        self._store, self._clock, self._steady, self._host = store, clock, steady, host
        self.shared = shared
        self._tenure = Tenure(name=name, instance=secrets.token_hex(8), place=place, times=times or LeaseTimes())
        self._next_look_s = steady()

    # for any thread

    @property
    def held(self) -> frozenset[int]:
        """The partitions that are held."""
        return frozenset(dict(self._tenure.fences))

    @property
    def leads(self) -> bool:
        """Whether this controller does what is done once for all boxes; `lead` makes sure of it."""
        return self.acts_for(LEADER)

    @property
    def _idle_s(self) -> float:
        return self._tenure.times.lost_s * 0.8

    @property
    def times(self) -> LeaseTimes:
        """The times of the leases."""
        return self._tenure.times

    def acts_for(self, number: int) -> bool:
        """Whether anything may be sent for a partition now."""
        return number in self._tenure.fences and (not self.shared or self._tenure.valid(self._steady()))

    def holds(self, device: DeviceId) -> bool:
        """Whether a box's partition is held."""
        return partition_of(device) in self._tenure.fences

    @contextmanager
    def write(self, numbers: Collection[int]) -> Iterator[Transaction]:
        """Change the store for some partitions, whose leases nobody takes until the transaction has ended.

        Raises:
            LeasesLostError: one of them is not held any more; nothing is written.
            StoreError: the database refuses.
        """
        fences = dict(self._tenure.fences)
        if missing := set(numbers).difference(fences):
            raise LeasesLostError(missing)
        with self._store.write() as tx:
            tx.leases.bound_idle(self._idle_s)
            if lost := tx.leases.lost({number: fences[number] for number in numbers}):
                raise LeasesLostError(lost)
            yield tx

    def lead(self) -> AbstractContextManager[Transaction]:
        """Change the store as the one controller that leads; raises as `write`."""
        return self.write((LEADER,))

    # for the controller's thread

    def begin(self) -> LeaseChange:
        """Take all partitions where nobody else may be there; else do nothing yet."""
        if self.shared:
            return LeaseChange()
        with self._store.write() as tx:
            tx.leases.join(self._row())
            taken = {one.number: tx.leases.give(one, self._tenure.name) for one in tx.leases.all()}
            tx.commands.park_all()
        self._tenure.gained({number: fence for number, fence in taken.items() if fence is not None})
        return LeaseChange(gained=self.held)

    def look_due(self) -> bool:
        """Whether to call `look` now."""
        return self.shared and self._steady() >= self._next_look_s

    def look(self) -> LeaseChange:
        """Renew the leases where that is due, take what this controller shall hold, give up what others shall.

        The commands to the boxes of a partition that is taken wait until their boxes are heard.

        Raises:
            CloudError: another process under the same name is alive.
            StoreError: the database refuses.
        """
        began_s, tenure = self._steady(), self._tenure
        self._next_look_s = began_s + tenure.times.look_s
        with self._store.read() as tx:
            beats, leases = tx.leases.controllers(), tx.leases.all()
        tenure.watch.look(beats, self._steady())
        if tenure.name_taken():
            raise self._other()
        if not tenure.joined and not tenure.may_join():
            return LeaseChange()
        lost = tenure.lost(leases)
        tenure.gone(lost)
        plan = tenure.plan(leases)
        done = LeaseChange()
        if plan != LeasePlan() or tenure.renewal_due(began_s):
            with tried_next_turn("renew the leases"):  # they end by themselves where it stays so
                done = self._carry_out(plan, began_s)
        if lost or done != LeaseChange():
            _LOG.info(
                "holds %d partitions: %d taken, %d given up, %d lost",
                len(tenure.fences),
                len(done.gained),
                len(done.gone),
                len(lost),
            )
        return LeaseChange(gained=done.gained, gone=lost | done.gone)

    def _carry_out(self, plan: LeasePlan, began_s: float) -> LeaseChange:
        """Renew, take and give up in one transaction; return what was taken and given up."""
        tenure, taken = self._tenure, dict[int, int]()
        with self._store.write() as tx:
            tx.leases.bound_idle(self._idle_s)
            if not tenure.joined:
                tx.leases.join(self._row())
            elif not tx.leases.beat(tenure.name, tenure.instance, now_s=self._clock()):
                raise self._other()
            for lease in plan.take:
                if (fence := tx.leases.give(lease, tenure.name)) is not None:
                    taken[lease.number] = fence
            for number in plan.release:
                tx.leases.give(Lease(number, tenure.name, tenure.fences[number]), "")
            if taken:
                tx.commands.park_all(taken)
        tenure.renewed(began_s)
        tenure.gone(plan.release)
        tenure.gained(taken)
        return LeaseChange(gained=frozenset(taken), gone=frozenset(plan.release))

    def tidy(self, tx: Transaction) -> None:
        """Remove controllers that died long ago; it is one controller's to do so."""
        if LEADER in self.held:
            tx.leases.forget_controllers(self._clock() - FORGOTTEN_S, live=self._tenure.watch.live())

    def give_up(self, numbers: Collection[int]) -> None:
        """Note partitions that another controller was found to hold."""
        self._tenure.gone(numbers)

    def end(self) -> LeaseChange:
        """Give up everything, so that others take it at once; `look` begins anew."""
        tenure = self._tenure
        if not self.shared or not tenure.joined:
            return LeaseChange()
        held = self.held
        with self._store.write() as tx:
            for number, fence in tenure.fences.items():
                tx.leases.give(Lease(number, tenure.name, fence), "")
            tx.leases.leave(tenure.name, tenure.instance)
        self._tenure = Tenure(name=tenure.name, instance=secrets.token_hex(8), place=tenure.place, times=tenure.times)
        return LeaseChange(gone=held)

    def _row(self) -> ControllerBeat:
        tenure = self._tenure
        return ControllerBeat(
            name=tenure.name,
            instance=tenure.instance,
            beat=1,
            place=tenure.place,
            host=self._host,
            seen_at_s=self._clock(),
        )

    def _other(self) -> CloudError:
        return CloudError(
            f"cannot go on: another process is {self._tenure.name} in this store, so boxes would be lost to both",
            remedy="give each controller a name of its own: `controller:` in controller.yaml (docs/deploy.md)",
        )


def numbers_of(devices: Collection[DeviceId]) -> frozenset[int]:
    """Return the partitions of boxes."""
    return frozenset(map(partition_of, devices))
