"""The containers that the limiter holds to their memory: their folders, and the state of each."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from edgegpu_core.choices.answers import choice_marks
from edgegpu_core.choices.modes import Capability, PluginIsolation
from edgegpu_core.choices.pod_choice import AllowedChoices, GivenChoice
from edgegpu_core.ledger import CheckpointEntry
from edgegpu_core.model import CORE_PER_CARD
from edgegpu_core.nodeview import NodeView
from edgegpu_plugin.cards.nvml_library import CardProcess
from edgegpu_plugin.config.schema import BypassPolicy, ComputePolicy, IsolationSection
from edgegpu_plugin.containers.cgroups import CgroupOwner
from edgegpu_plugin.containers.container_folder import Charge, ContainerFolders
from edgegpu_plugin.containers.held.abandoned_folders import AbandonedFolders
from edgegpu_plugin.containers.held.bypass import LOOK_S, BypassDetector, ContainerKey, CountedContainer
from edgegpu_plugin.containers.held.container_reasons import ContainerReasons
from edgegpu_plugin.containers.held.container_state import MIB, ContainerIsolation, TimedContainer
from edgegpu_plugin.containers.held.limits_texts import LimitsTexts
from edgegpu_plugin.containers.held.preload_lists import PreloadLists
from edgegpu_plugin.containers.held.reasons import PRELOAD_ONLY, why_unread
from edgegpu_plugin.containers.held.records import (
    check_live,
    check_marks,
    check_names,
    enforced,
    has_folder,
    is_limited,
    is_mps_client,
    is_preloaded,
    opened_by,
    unheld,
    units_by_card,
)
from edgegpu_plugin.containers.held.sharing import FolderSharing, alike, strictest
from edgegpu_plugin.containers.held.state_file import StateFiles
from edgegpu_plugin.containers.held.uncounted import UncountedMemory
from edgegpu_plugin.containers.held.unwritable_usage import UnwritableUsage
from edgegpu_plugin.containers.held.usage_sizes import UsageSizes
from edgegpu_plugin.containers.image.image_check import ImageCheck
from edgegpu_plugin.containers.image.verdicts import ImageVerdicts
from edgegpu_plugin.containers.limiter_files import PRELOADED_OVER, LimiterFiles, find_limiter, limiter_stamps
from edgegpu_plugin.containers.live_limits import LiveLimit, LiveLimits
from edgegpu_plugin.containers.memory_use import container_of
from edgegpu_plugin.containers.mps.shares import MpsShares
from edgegpu_plugin.errors import PluginError
from edgegpu_plugin.pb import Allocation
from edgegpu_plugin.records.node_state import NodeState, PodNote, Snapshot
from edgegpu_plugin.records.selftest_results import SelftestResults

_LOG = logging.getLogger(__name__)


class IsolatedContainers:
    """The containers that the limiter holds; calls come from gRPC's threads and the reconciler's."""

    _has_renewed = False
    """Whether the live limits were written again since this process began."""
    mounted: LimiterFiles | None = None
    """The limiter's libraries as containers get them; None until the driver's files are made."""

    def __init__(
        self,
        settings: IsolationSection,
        state: NodeState,
        *,
        run: Path,
        live: LiveLimits,
        proc: Path,
        selftest: SelftestResults | None = None,
        driver: Path = Path("/"),
        verdicts: ImageVerdicts | None = None,
    ) -> None:
        """Build what holds containers.

        Args:
            settings: the section `isolation` of the configuration.
            state: what is known of this node.
            run: the run folder.
            live: the live limits.
            proc: where the processes that use cards, and through those of containers their images, are looked at.
            selftest: what the self-test said of each card; None where nobody asks it.
            driver: the root of the driver's files.
            verdicts: what is kept of images; None keeps it in the run folder.
        """
        self.folders = ContainerFolders(root=run / "containers", proc=proc)
        self._live, self._settings, self._state, self._selftest = live, settings, state, selftest
        self._libraries: tuple[object, LimiterFiles] | None = None
        self._mps = MpsShares(state, root=driver, run=run, proc=proc, is_wanted=settings.mode is PluginIsolation.MPS)
        self._bypass = BypassDetector(kills=settings.on_bypass is BypassPolicy.KILL, proc=proc)
        self._uncounted, self._sizes, self._unwritable = UncountedMemory(), UsageSizes(), UnwritableUsage(proc=proc)
        self._unwritten: set[ContainerKey] = set()  # their limits do not say yet what was found
        # those of the last look: in the folder of a new one may stand what was true before, or of another one
        self._looked_at: set[ContainerKey] = set()
        self._images = ImageCheck(proc=proc)
        self._preload = PreloadLists(policy=settings.preload, verdicts=verdicts or ImageVerdicts(run))
        self._reasons = ContainerReasons(
            settings=settings,
            bypass=self._bypass,
            sizes=self._sizes,
            unwritable=self._unwritable,
            images=self._images,
            preload=self._preload,
            selftest=selftest,
        )
        # held while folders or limits are made, changed or removed; the state's lock is taken inside it alone
        self._changing = threading.Lock()
        self._sharing, self._abandoned = FolderSharing(), AbandonedFolders(self.folders)
        self._state_files = StateFiles(self.folders, self._with_room)
        self._limits = LimitsTexts(settings=settings, able=self._mps.able, selftest=selftest, uncounted=self._uncounted)

    @property
    def is_on(self) -> bool:
        """Whether containers of pods that choose nothing are held by the limiter from now on."""
        return self._settings.mode.has_limiter

    def start_mps(self) -> None:
        """Make what the unit of MPS's daemon waits for, or take it away; before that unit is started."""
        self._mps.prepare()

    def allowed(self, *, cannot: str = "") -> AllowedChoices:
        """Return what pods may choose on this node; where nothing can hold a container, why (`cannot`, or else)."""
        chosen = self._settings.chosen_by_pods
        holds_some = self.is_on or any(mode.has_limiter for mode in chosen)
        cannot = cannot or self._cannot_hold() if holds_some else ""
        return AllowedChoices(self._settings.mode, chosen, cannot, self._settings.capabilities)

    def _cannot_hold(self) -> str:
        """Return why no container can be held on this node; empty when it can."""
        cards = [card.uuid for card in self._state.cards()]
        try:
            self.libraries()
        except PluginError as error:
            return str(error)
        if self._selftest is not None and self._selftest.stops_programs(cards):
            return self._selftest.why_degraded(cards)
        return ""

    @property
    def is_needed(self) -> bool:
        """Whether the limiter holds containers, from now on or by answers that kubelet replays."""
        return self.is_on or any(is_limited(entry) for entry in self._state.recorded())

    def stops_programs(self, cards: Iterable[str]) -> bool:
        """Return whether the limiter stops programs on one of these cards, by the self-test.

        It is not laid over containers that are given them: these are `degraded`.
        """
        return self._selftest is not None and self._selftest.stops_programs(cards)

    def libraries(self) -> LimiterFiles:
        """Return the limiter's libraries; they are looked at again when they change.

        Raises:
            PluginError: they are missing, or cannot be used on this machine.
        """
        stamps = limiter_stamps(self._settings.libraries)
        known = self._libraries
        if known is None or known[0] != stamps:
            known = self._libraries = (stamps, find_limiter(self._settings.libraries))
        return known[1]

    def add_to(self, answer: Allocation, ids: Iterable[str], given: GivenChoice) -> Allocation:
        """Return what kubelet shall give a container that is held as `given` says, for one resource.

        A container has a folder for its memory units. It may hold a whole card without asking for memory, so a whole
        card's core brings a folder as well. Of two folders kubelet mounts all of one, by chance; both are made.
        """
        ids = tuple(ids)
        mounts = self.folders.mounts(self.folders.of(ids)) if has_folder(ids) else []
        there = {mount.container_path for mount in answer.mounts}  # the nvidia runtime's containers have a list
        mounts = [mount for mount in mounts if mount.container_path not in there]
        annotations = {**answer.annotations, **choice_marks(given)}
        envs = answer.envs
        if given.isolation == PluginIsolation.MPS:
            envs, mounts = self._mps.add_to(envs, mounts, ids)
        return replace(answer, envs=envs, annotations=annotations, mounts=[*answer.mounts, *mounts])

    def prepare(self, uid: str, *containers: str) -> None:
        """Make what the limiter needs in a container before its start, if kubelet's answer for it names the limiter.

        Args:
            uid: kubelet's UID of its pod.
            *containers: its name; several where it may be each of them. It is held to the strictest of their limits.

        Raises:
            PluginError: the limiter cannot hold the container; it must not start without.
        """
        view = (snapshot := self._state.snapshot()).view
        held = {one: self._entries_of(view, uid, one) for one in containers}
        if not [one for one in containers if check_marks(held[one])]:
            return
        self.libraries()
        container = strictest(view, uid, containers)
        check_names(view.ledger.grant(uid, container).cards())
        with self._changing:
            text = self._limits_text(view, uid, container, self._live_units(view, uid, container))
            preload = self._preload.text(view, uid, containers)
            for entry in held[container]:
                if has_folder(entry.device_ids):
                    self._abandoned.check_free(self.folders.of(entry.device_ids), uid, snapshot)
                    make = partial(self.folders.make, self.folders.of(entry.device_ids), text, preload=preload)
                    self._with_room(make)
                    self._sharing.starts(view, uid, containers, entry.device_ids)

    def opened_for(self, uid: str, container: str) -> frozenset[str]:
        """Return what of the driver a container was given beside compute."""
        return opened_by(self._entries_of(self._state.snapshot().view, uid, container))

    def set_live_limit(self, uid: str, container: str, memory_units: Mapping[str, int]) -> ContainerIsolation:
        """Hold a container to less than it holds, or to all of it again, while it runs and at each later start.

        Args:
            uid: its pod's UID, in the API or in kubelet's records.
            container: its name.
            memory_units: the units that it may use, by card; a card that is left out keeps all that is held there.

        Returns:
            The container's state with the new limit.

        Raises:
            UnknownContainerError: there is no such container, or it has no devices.
            LiveLimitError: nothing holds it to its memory, it holds less, or it has no such card.
            PluginError: a file cannot be written; asking again is safe.
        """
        with self._changing:
            view = self._state.snapshot().view
            uid = next((kubelet_uid for kubelet_uid, pod in view.pods.items() if pod.uid == uid), uid)
            entries = self._entries_of(view, uid, container)
            check_live(self._container(entries, view, by_runtime=False), view, entries, memory_units)
            held = units_by_card(view, uid, container)
            units = {card: count for card, count in memory_units.items() if count < held[card]}
            if units:  # after a crash in between, the plugin's next start does what the store says
                self._live.put(LiveLimit(uid, container, units))
            self._renew(view, uid, container, units)
            self._live.put(LiveLimit(uid, container, units))
            return self._vouched((uid, container), entries, view, by_runtime=False)

    def clean(self) -> None:
        """Remove the folders of containers that are gone.

        A folder is made after kubelet has booked the devices. So whoever is not in the snapshot that is taken here,
        under the lock, is gone, or will wait for the lock and make the folder anew. Where kubelet has lost its record
        of a container, `AbandonedFolders` says what may go.
        """
        self._mps.keep(self._known_entries)
        with self._changing:
            found, live = self.folders.names(), self._live.all()
            snapshot = self._state.snapshot() if found or live else None
            if snapshot is None or not snapshot.checkpoint_read:
                return
            ledger = snapshot.view.ledger
            self._keep_live(snapshot.view)
            self._sharing.keep(ledger.pods())
            self._renew_clients(snapshot.view)
            grants = [grant for uid in ledger.pods() for grant in ledger.grants(uid).values()]
            wanted = {self.folders.of(ids) for grant in grants for ids in grant.ids.values()}
            self._abandoned.remove([folder for folder in found if folder not in wanted], snapshot)

    def has_mounted(self) -> bool:
        """Return whether a container that lives has its folder mounted."""
        return self._abandoned.has_mounted()

    def states(self, snapshot: Snapshot, *, by_runtime: bool) -> dict[tuple[str, str], ContainerIsolation]:
        """Return the state of each container with devices, by kubelet's UID of its pod and by name."""
        view = snapshot.view
        return {
            key: self._vouched(key, entries, view, by_runtime=by_runtime)
            for key, entries in self._by_container(view).items()
        }

    def notes(self, snapshot: Snapshot, *, by_runtime: bool) -> Iterator[PodNote]:
        """Yield what the people of each pod with devices should know of it, whatever holds it."""
        view = snapshot.view
        for (uid, container), entries in self._by_container(view).items():
            if (pod := view.pods.get(uid)) is not None:
                yield from self._reasons.events(pod, (uid, container), entries, by_runtime=by_runtime)

    def tell_inside(self, *, by_runtime: bool) -> None:
        """Leave each container's state in the folder that it has now."""
        view = (snapshot := self._state.snapshot()).view
        states = self.states(snapshot, by_runtime=by_runtime)  # takes a while where MPS's daemon is asked
        with self._changing:
            for key, found in states.items():
                owned = self._sharing.owned(view, self._entries_of(view, *key))
                self._state_files.tell(self._folders(owned), found)

    def _vouched(
        self, key: ContainerKey, entries: list[CheckpointEntry], view: NodeView, *, by_runtime: bool
    ) -> ContainerIsolation:
        """Return a container's state: `degraded` also where its files are right and it is not held all the same."""
        found = self._container(entries, view, by_runtime=by_runtime)
        notes = self._reasons.notes(view.pods.get(key[0]), key, entries, by_runtime=by_runtime)
        found = replace(found, notes=tuple(note.text for note in notes))
        reason = self._reasons.why_loose(key, entries, found, self._folders(entries))
        reason = reason or self._mps.reason(key, entries, found)
        return replace(found, state="degraded", reason=reason) if reason else found

    def look_at_images(self, snapshot: Snapshot) -> bool:
        """Look at the images of containers that have started with the limiter mounted; return whether a state changed.

        Where it is preloaded the driver comes from elsewhere, and the state is known without a look.
        """
        held = {
            (entry.pod_uid, entry.container)
            for entry in self._entries(snapshot.view)
            if is_limited(entry) and not is_preloaded(entry)
        }
        pods = snapshot.view.pods.items()
        started = {id_: (uid, name) for uid, pod in pods for name, id_ in pod.running if (uid, name) in held}
        changed = self._images.check(started)
        for uid, name in started.values():
            self._preload.keep(snapshot.view.pods[uid], name, self._images.findings((uid, name)))
        return changed

    def look(self, processes: Mapping[str, Iterable[CardProcess]]) -> bool:
        """Compare the processes on each card with what held containers count; return whether a state changed."""
        held = self._held(snapshot := self._state.snapshot())

        def key_of(owner: CgroupOwner) -> ContainerKey:
            return owner.pod_uid, container_of(owner, snapshot)

        clients = [key for key, one in held.items() if one.is_spared]
        changed = self._mps.clients.look(processes, clients, key_of) | self._bypass.look(processes, held, key_of)
        for key in held:
            if used := self._bypass.own_driver(key):
                self._preload.keep(snapshot.view.pods.get(key[0]), key[1], self._images.findings(key), used=used)
        self._count_unseen(held)
        return changed | self._sizes.look(held) | self._unwritable.look(held, key_of)

    def _count_unseen(self, held: Mapping[ContainerKey, CountedContainer]) -> None:
        """Have the limiter count what the driver has counted of containers beyond it."""
        changed = self._uncounted.look(self._bypass.uses, held, unsaid=self._bypass.is_unsaid)
        waiting = changed | self._unwritten | (held.keys() - self._looked_at)
        self._unwritten, self._looked_at = set(), set(held)
        for key in waiting:
            try:
                with self._changing:
                    self._renew_all([key])
            except PluginError as error:
                _LOG.warning("%s", error)
                self._unwritten.add(key)

    def timed(self, snapshot: Snapshot) -> list[TimedContainer]:
        """Return the containers that are held to a part of a card's time; those that MPS holds share no time."""
        view, elastic = snapshot.view, self._settings.compute is ComputePolicy.ELASTIC
        found = []
        for key, container in self._held(snapshot).items():
            if any(is_mps_client(entry) for entry in self._entries_of(view, *key)):
                continue
            core = {card: percent for card, percent in self._limits.core(view, key).items() if percent < CORE_PER_CARD}
            if core:
                found.append(TimedContainer(key, tuple(container.usage), core, elastic))
        return found

    def charge(self, charges: Mapping[ContainerKey, Mapping[str, Charge]]) -> None:
        """Charge containers for a part of what is measured of their time, by card; all others for all of it.

        Raises:
            PluginError: a file cannot be written; what stands in it ends by itself.
        """
        with self._changing:
            before = self._limits.charges
            changed = {key for key in charges.keys() | before.keys() if charges.get(key) != before.get(key)}
            self._limits.charges = charges
            self._renew_all(changed)

    def _renew_all(self, keys: Iterable[ContainerKey]) -> None:
        """Write the limits of some containers again; those that are gone have none."""
        view = self._state.snapshot().view if keys else None
        for uid, container in keys:
            if view is not None and container in view.ledger.grants(uid):
                self._renew(view, uid, container, self._live_units(view, uid, container))

    @property
    def look_s(self) -> float | None:
        """Seconds between two looks at the cards' processes; None while the limiter holds nothing."""
        return LOOK_S if self.folders.names() else None

    def _held(self, snapshot: Snapshot) -> dict[ContainerKey, CountedContainer]:
        """Return what each container is held to: all that it holds, for a live limit takes nothing away.

        Of containers with one folder there is the one that has it now.
        """
        view = snapshot.view
        found = self._by_container(view, wanted=is_limited)
        unit_bytes, limiter = view.model.unit_mib * MIB, self._limiter_library()
        return {
            key: CountedContainer(
                [folder / "usage" for folder in self._folders(owned)],
                {card: units * unit_bytes for card, units in units_by_card(view, *key).items()},
                limiter=limiter,
                is_spared=any(is_mps_client(entry) for entry in entries),
                draws=Capability.GRAPHICS in opened_by(entries),
            )
            for key, entries in found.items()
            if (owned := self._sharing.owned(view, entries)) or not any(has_folder(one.device_ids) for one in entries)
        }

    def _limiter_library(self) -> Path | None:
        try:
            return (self.mounted or self.libraries()).libraries[Path(PRELOADED_OVER).name]
        except PluginError:
            return None

    def document(self, *, by_runtime: bool, selftest_problem: str = "") -> dict[str, str]:
        """Return this node's entries of the status document: the mode, and why it does not hold."""
        problem = ""
        if self.is_needed:
            try:
                self.libraries()
            except PluginError as error:
                problem = str(error)
            else:
                found = (PRELOAD_ONLY if by_runtime else "", selftest_problem)
                problem = "; ".join(filter(None, found)) or self._mps.problem()
        return {"isolation": self._settings.mode.value, "isolation_problem": problem}

    def _renew_clients(self, view: NodeView) -> None:
        """Write the limits of MPS's clients again where the driver said only after their start what a card can."""
        for uid, container in {(one.pod_uid, one.container) for one in self._entries(view) if is_mps_client(one)}:
            try:
                self._renew(view, uid, container, self._live_units(view, uid, container))
            except PluginError as error:
                _LOG.warning("%s", error)

    def _keep_live(self, view: NodeView) -> None:
        """Forget the live limits of pods that are gone; once, write those again that a crash may have kept from it."""
        try:
            self._live.keep({*view.ledger.pods(), *view.pods})
            if not self._has_renewed:
                for limit in self._live.all():
                    self._renew(view, limit.uid, limit.container, limit.memory_units)
            self._has_renewed = True
        except PluginError as error:
            _LOG.warning("%s", error)

    def _renew(self, view: NodeView, uid: str, container: str, live: Mapping[str, int]) -> None:
        """Write a container's limits into the folders that it has; a start makes those that are missing."""
        for folder in self._folders(self._sharing.standing(view, self._entries_of(view, uid, container))):
            if folder.is_dir():
                text = self._limits_text(view, uid, container, live)
                self._with_room(partial(self.folders.write_limits, folder, text))

    def _live_units(self, view: NodeView, uid: str, container: str) -> Mapping[str, int]:
        """Return a container's live limit, which also is that of one that hands the same devices on to it."""
        return next(filter(None, (self._live.units(uid, one) for one in alike(view, uid, container))), {})

    def _with_room(self, write: Callable[[], None]) -> None:
        self._sizes.with_room(write, lambda: self._held(self._state.snapshot()))

    def _limits_text(self, view: NodeView, uid: str, container: str, live: Mapping[str, int]) -> str:
        return self._limits.text(view, (uid, container), self._entries_of(view, uid, container), live)

    def _folders(self, entries: list[CheckpointEntry]) -> list[Path]:
        return [self.folders.of(entry.device_ids) for entry in entries if has_folder(entry.device_ids)]

    def _container(self, entries: list[CheckpointEntry], view: NodeView, *, by_runtime: bool) -> ContainerIsolation:
        if not any(is_limited(entry) for entry in entries):
            pod = view.pods.get(entries[0].pod_uid) if entries else None
            return unheld(pod, self._settings, by_runtime=by_runtime)
        folders = self._folders(entries)
        states = [state for folder in folders if (state := self.folders.state(folder)) is not None]
        if not states or len(states) < len(folders):
            other = any(self.folders.is_of_another_version(folder) for folder in folders)
            pod, name = view.pods.get(entries[0].pod_uid), entries[0].container
            started = pod is None or pod.has_started(name)
            return ContainerIsolation("degraded", why_unread(folders, is_of_another_version=other, has_started=started))
        units = units_by_card(view, entries[0].pod_uid, entries[0].container)
        return enforced(states, units, view.model.unit_mib * MIB)

    def _by_container(
        self, view: NodeView, *, wanted: Callable[[CheckpointEntry], bool] = lambda _: True
    ) -> dict[ContainerKey, list[CheckpointEntry]]:
        """Return the wanted entries of each container."""
        found: dict[ContainerKey, list[CheckpointEntry]] = {}
        for entry in filter(wanted, self._entries(view)):
            found.setdefault((entry.pod_uid, entry.container), []).append(entry)
        return found

    def _entries_of(self, view: NodeView, uid: str, container: str) -> list[CheckpointEntry]:
        return [entry for entry in self._entries(view) if (entry.pod_uid, entry.container) == (uid, container)]

    def _known_entries(self) -> list[CheckpointEntry] | None:
        """Return the entries as they are now; None while kubelet's checkpoint cannot be read, or lacks containers."""
        snapshot = self._state.snapshot()
        return list(self._entries(snapshot.view)) if snapshot.checkpoint_read and not snapshot.unrecorded else None

    def _entries(self, view: NodeView) -> Iterator[CheckpointEntry]:
        """Yield the entries of our resources in kubelet's checkpoint of pods that still hold something."""
        names = {view.model.memory_resource, view.model.core_resource}
        for entry in self._state.recorded():
            if entry.resource in names and entry.container in view.ledger.grants(entry.pod_uid):
                yield entry
