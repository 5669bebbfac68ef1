"""The part of the process for this node's cards: device plugins, placement's records, reconciler."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.http_unix import ChangeRequest, Response
from edgegpu_base.kube import EventRecorder, Handlers, Json, KubeClient, KubeObjects, Reflector
from edgegpu_base.process.clocks import boot_id
from edgegpu_base.process.tasks import Task
from edgegpu_core.deviceid import DeviceKind
from edgegpu_core.injection import Injection, NodeVersions
from edgegpu_core.inventory import Card, kept_as_before, offer_text, usable
from edgegpu_core.model import ModelError, ResourceModel
from edgegpu_core.podview import PodView, pod_view
from edgegpu_core.reasons import cardless
from edgegpu_plugin.cards.card_requests import CardRequests
from edgegpu_plugin.cards.inventory_store import InventoryStore, SavedInventory
from edgegpu_plugin.cards.nvml import Nvml
from edgegpu_plugin.cards.nvml_library import CardProcess
from edgegpu_plugin.cards.verdicts import CardVerdicts
from edgegpu_plugin.compute.control import ComputeControl
from edgegpu_plugin.config.schema import PluginConfig
from edgegpu_plugin.containers.cgroups import any_runs, owner_of_process
from edgegpu_plugin.containers.held.bypass import ContainerKey
from edgegpu_plugin.containers.held.ended_slots import EndedSlots
from edgegpu_plugin.containers.held.state_file import StateLook
from edgegpu_plugin.containers.image.verdicts import ImageVerdicts
from edgegpu_plugin.containers.injector import Injector
from edgegpu_plugin.containers.isolation import IsolatedContainers
from edgegpu_plugin.containers.limit_requests import LimitRequests
from edgegpu_plugin.containers.live_limits import LiveLimits
from edgegpu_plugin.containers.memory_use import MemoryUseReader, container_of
from edgegpu_plugin.containers.visibility import VisibilityCheck
from edgegpu_plugin.kubelet.allocator import Allocator
from edgegpu_plugin.kubelet.device_list import DeviceList
from edgegpu_plugin.kubelet.device_plugin import ResourcePlugin
from edgegpu_plugin.kubelet.link import KubeletLink
from edgegpu_plugin.kubelet.node_api import NodeKubeletFacts, NodePods
from edgegpu_plugin.kubelet.node_versions import NodeVersionsFile
from edgegpu_plugin.kubelet.pods import KubeletPods, PodResources
from edgegpu_plugin.kubelet.start_lease import StartLease, start_file
from edgegpu_plugin.records.cluster_check import ClusterCheck
from edgegpu_plugin.records.collector import Collector
from edgegpu_plugin.records.node_state import NodeState, Snapshot
from edgegpu_plugin.records.publisher import Publisher
from edgegpu_plugin.records.reconciler import Reconciler, RefusedPod
from edgegpu_plugin.records.selftest_results import SelftestResults
from edgegpu_plugin.records.sharing_change import SharingChange
from edgegpu_plugin.selftest.node_selftest import TARGET as SELFTEST_TARGET
from edgegpu_plugin.selftest.node_selftest import NodeSelftest
from edgegpu_plugin.selftest.runner import SelftestRunner
from edgegpu_plugin.status import SilentSources, cards_part, mark_changed, other_cards_part, pods_part

_LOG = logging.getLogger(__name__)

READY_WAIT_S = 10.0

_MOST_GONE = 32
"""How many cards that are gone are remembered by name."""


class NodePart:
    """The node's part of the process; `tasks` lists what runs."""

    _was_needed = False
    """Whether a container needed the limiter when that was last looked at."""

    def __init__(self, config: PluginConfig, client: KubeClient, *, beat: Callable[[], None], proc: Path) -> None:
        model, name, unit_mib = config.model(), config.node_name, config.resources.unit_mib
        objects, self._config, self._proc = KubeObjects(client), config, proc
        self._store = InventoryStore(config.paths.state)
        self._sharing_change = SharingChange(config.paths.state)
        self._cluster_check = ClusterCheck(config.paths.state, config.kubelet.checkpoint, holders_run=self._holders_run)
        self._saved = self._store.load()
        model = replace(model, unit_mib=self._saved.unit_mib or model.unit_mib)
        self.state = NodeState(
            model=model,
            policy=config.policy,
            checkpoint=config.kubelet.checkpoint,
            unit_wanted_mib=None if model.unit_mib == unit_mib else unit_mib,
            on_unit=self._unit_changed,
        )
        self._device_list = DeviceList(model)
        self._memory_use = MemoryUseReader(proc=proc)
        results = SelftestResults(config.paths.state)
        self._isolation = _isolated(config, self.state, results, proc=proc)
        self.nvml = self._nvml(config)
        self._compute = self._compute_control()
        self._ended_slots = EndedSlots(self._isolation.folders)
        self._state_look = StateLook(self._tell_inside, self._isolation.folders)
        self._node_versions = NodeVersionsFile(config.paths.state, objects, config.node_name)
        self.injector = self._injector()
        self._selftest = self._node_selftest(results)
        self._kubelet_pods = KubeletPods(node=name, objects=objects, folder=config.kubelet.folder / "pods")
        kubelet_facts = NodeKubeletFacts(
            model=model, kubelet=self._kubelet_pods, pod_resources=PodResources(config.kubelet.pod_resources)
        )
        self.link = self._kubelet_link(model, kubelet_facts)
        self.pods = self._reflector(client, model)
        self._visibility = VisibilityCheck(dev=config.driver.root / "dev", cards=self.state.cards, proc=proc)
        self.publisher = _publisher(objects, name, self._on_node, before_report=self._before_report)
        self.reconciler = Reconciler(
            state=self.state,
            collector=Collector(self.state, kubelet_facts),
            publisher=self.publisher,
            pods=NodePods(objects, EventRecorder(objects, host=name)),
            synced=self.pods.synced.is_set,
            beat=beat,
            missing_s=config.driver.absent_s,
            find_cardless=self._find_cardless,
            find_notes=lambda snapshot: self._isolation.notes(snapshot, by_runtime=self.injector.is_by_runtime),
            changed=partial(mark_changed, config.paths.run),
            look_at_images=self._look_at_images,
            clean_containers=self._isolation.clean,
        )
        self._stopping = threading.Event()
        self._past: dict[str, Card] = {}  # the cards that this machine has or had, as last seen, the earliest first

    def _holders_run(self) -> bool:
        """Return whether containers of pods that hold devices run on, by the kernel: by cgroups, or by their mounts."""
        return any_runs(frozenset(self.state.booked()), self._proc) or self._isolation.has_mounted()

    def _nvml(self, config: PluginConfig) -> Nvml:
        return Nvml(
            config.driver,
            on_cards=self._on_cards,
            on_silence=self._cards_lost,
            on_processes=self._on_processes,
            processes_s=lambda: self._isolation.look_s,
            verdicts=CardVerdicts(config.paths.state),
        )

    def _node_selftest(self, results: SelftestResults) -> NodeSelftest:
        config = self._config
        return NodeSelftest(
            results,
            SelftestRunner(config.paths.run),
            root=config.driver.root,
            is_wanted=lambda: self._isolation.is_needed,
            cards=self.state.cards,
            driver_version=lambda: self.nvml.driver_version,
            limiter=self.injector.limiter_files,
            changed=partial(mark_changed, config.paths.run),
        )

    def _compute_control(self) -> ComputeControl:
        return ComputeControl(
            containers=lambda: self._isolation.timed(self.state.snapshot()),
            shares=self.nvml.process_shares,
            container_of=self._container_of,
            charge=self._isolation.charge,
        )

    def _container_of(self, pid: int) -> ContainerKey | None:
        owner = owner_of_process(pid, self._proc)
        return None if owner is None else (owner.pod_uid, container_of(owner, self.state.snapshot()))

    def _injector(self) -> Injector:
        config = self._config
        return Injector(
            config.driver,
            self.nvml,
            run=config.paths.run,
            state=config.paths.state,
            isolation=self._isolation,
            versions=self._node_versions.saved(),
            ask_versions=self._node_versions.ask,
        )

    def _kubelet_link(self, model: ResourceModel, kubelet_facts: NodeKubeletFacts) -> KubeletLink:
        allocator = Allocator(state=self.state, injector=self.injector, kubelet_pods=kubelet_facts.pods)
        names = {DeviceKind.MEMORY: model.memory_resource, DeviceKind.CORE: model.core_resource}
        kubelet = self._config.kubelet
        file = start_file(kubelet_folder=kubelet.folder, resolv_conf=kubelet.resolv_conf)
        return KubeletLink(
            folder=kubelet.device_plugins,
            plugins=[
                ResourcePlugin(kind=kind, resource=resource, device_list=self._device_list, allocator=allocator)
                for kind, resource in names.items()
            ],
            on_registered=lambda _ms: self._registered(),
            on_kubelet_restart=self._kubelet_restarted,
            on_checkpoint=self.state.checkpoint_written,
            start_lease=StartLease(file if kubelet.wait_at_start else None),
        )

    def _reflector(self, client: KubeClient, model: ResourceModel) -> Reflector[PodView]:
        return Reflector(
            client,
            "/api/v1/pods",
            convert=lambda pod: pod_view(pod, model),
            handlers=Handlers[PodView](
                on_replace=lambda pods: self.state.replace_pods(pods.values()),
                on_change=lambda _uid, pod: self.state.put_pod(pod),
                on_delete=self.state.drop_pod,
            ),
            params={"fieldSelector": f"spec.nodeName={self._config.node_name}"},
        )

    def change_requests(self) -> Callable[[ChangeRequest], Response]:
        """Return what answers requests on the status socket: for live limits, cards, and the self-test."""
        limits = LimitRequests(self._isolation, changed=partial(mark_changed, self._config.paths.run))
        cards = CardRequests(self.nvml, cards=self.state.cards)

        def answer(request: ChangeRequest) -> Response:
            if (request.method, request.target) == ("PUT", SELFTEST_TARGET):
                return self._selftest.ask()
            return cards.answer(request) if cards.takes(request.target) else limits.answer(request)

        return answer

    def load_saved(self) -> None:
        """Offer the cards from the saved inventory, before NVML is asked, and say what pods may choose."""
        self._set_allowed()
        everything = self._saved.cards
        self._past = {card.uuid: card for card in (*self._saved.gone, *everything)}
        self.injector.use_saved(everything)
        self.state.set_machine(self._past.values())  # NVML's answer will show which of them are gone
        if everything:
            self._cluster_check.kubelet_started()
        self._limit_offer(self.state.snapshot())  # before any card is offered, by NVML's thread too
        saved = usable(everything, self._config.exclude)
        if not saved:
            return
        try:
            self._offer(saved)
        except ModelError as error:  # the machine may have other cards now, which NVML will list
            _LOG.warning("the cards are not offered as saved: %s", error)
        else:
            _LOG.info("those are the cards as saved; NVML is asked next")

    def is_ready(self) -> bool:
        """Return whether file or NVML has named the cards, or NVML has said why not; kubelet's start waits for that."""
        return bool(self._device_list.cards) or self.nvml.has_queried

    def tasks(self) -> list[Task]:
        """Return the tasks in the order of their start."""
        return [
            Task("kubelet", self.link.run, self.link.stop),
            Task("nvml", self.nvml.run, self.nvml.stop),
            Task("compute", self._compute.run, self._compute.stop),
            Task("slots", self._ended_slots.run, self._ended_slots.stop),
            Task("states", self._state_look.run, self._state_look.stop),
            Task("pods", self._follow_pods, self._stop_pods),
            Task("selftest", self._selftest.run, self._selftest.stop),
            Task("reconciler", lambda: self.reconciler.run(self._stopping.is_set), self._stop_reconciler),
        ]

    def document(self) -> dict[str, Any]:
        """Return this part's entries of the status document."""
        snapshot = self.state.snapshot()
        return {
            **self.injector.document(),
            **self._isolation.document(
                by_runtime=self.injector.is_by_runtime, selftest_problem=self._selftest.problem()
            ),
            "selftest": self._selftest.document(),
            "kubelet": {
                "registered": self.link.registered,
                "registered_ms": self.link.last_registration_ms,
                "waiting_for": self.link.waiting_for.removeprefix("waiting for "),
                "checkpoint": self.state.checkpoint_problem,
                "silent": self._kubelet_silence(),
                "pods_by": self._kubelet_pods.source,
                "start_wait": self.link.start_lease.document(),
            },
            "api": {"synced": self.pods.synced.is_set(), "problem": self._api_problem(), "silent": self._api_silence()},
            "unit_mib": snapshot.view.model.unit_mib,
            "unit_wanted_mib": self.state.unit_wanted_mib,
            "cards": cards_part(snapshot, {card.uuid: card for card in self.state.cards()}),
            "other_cards": other_cards_part(snapshot),
            "pods": self._pods_part(snapshot),
            "memory_use": self._memory_use.document(snapshot),
            "report_generation": self.publisher.generation,
        }

    def _api_problem(self) -> str:
        return self._cluster_check.problem or self.pods.problem or self.reconciler.last_error

    def _api_silence(self) -> Json | None:
        """Return why the API server says nothing of the pods, with when it was heard last; a refused write is none."""
        return self._cluster_check.silence or self.pods.silence

    def _kubelet_silence(self) -> str:
        """Return why kubelet says nothing of its devices; empty while it does."""
        return self.state.checkpoint_problem or ("" if self.link.registered else self.link.waiting_for)

    def _pods_part(self, snapshot: Snapshot) -> list[dict[str, Any]]:
        known = self.reconciler
        silent = SilentSources(api=self._api_silence() is not None, kubelet=bool(self._kubelet_silence()))
        rows = pods_part(snapshot, known.refused, known.lost, known.cardless, known.unrecorded, silent=silent)
        states = self._isolation.states(snapshot, by_runtime=self.injector.is_by_runtime)
        uids = {pod.uid: uid for uid, pod in snapshot.view.pods.items()}
        for row in rows:
            found = states.get((uids.get(row["uid"], row["uid"]), row["container"]))
            if found is not None:
                row["isolation"] = found.to_json()
        return rows

    def _find_cardless(self, snapshot: Snapshot) -> tuple[RefusedPod, ...]:
        """Return the containers that run without their cards, and why."""
        labels = {card.uuid: card.label for card in self.state.cards()}
        found = self._visibility.check(snapshot)
        mode = Injection(self.injector.mode)
        return tuple(
            RefusedPod(
                one.pod,
                cardless(one.container, [labels.get(card, card) for card in one.cards], mode),
                container=one.container,
            )
            for one in found
        )

    def _tell_inside(self) -> None:
        self._isolation.tell_inside(by_runtime=self.injector.is_by_runtime)

    def _look_at_images(self, snapshot: Snapshot) -> None:
        if self._isolation.look_at_images(snapshot):
            mark_changed(self._config.paths.run)

    def _on_node(self, node: Json) -> Json:
        """Take kubelet's version from this machine's Node object, and save it for the next start without an API."""
        self.injector.learn_versions(NodeVersions.of(node))
        if self.injector.versions.kubelet:  # an Allocate may have learned it first
            self._node_versions.save(self.injector.versions)
        return node

    def _registered(self) -> None:
        self.injector.look_again()
        self.publisher.kubelet_registered()
        self.state.changed.set()

    def _follow_pods(self) -> None:
        self.pods.start()
        self._stopping.wait()

    def _stop_pods(self) -> None:
        self._stopping.set()
        self.pods.stop(timeout_s=0)

    def _stop_reconciler(self) -> None:
        self._stopping.set()
        self.state.changed.set()

    def _on_cards(self, cards: tuple[Card, ...]) -> None:
        """Take the cards that NVML found; runs on NVML's thread."""
        cards = tuple(kept_as_before(card, self._past.get(card.uuid)) for card in cards)
        offered = usable(cards, self._config.exclude)
        if cards and not offered:
            _LOG.warning("placement.exclude leaves none of the %d cards", len(cards))
        self.injector.use(cards)
        gone = self._remember_cards(cards)
        self.state.set_machine(cards, gone)
        self._offer(offered)
        self._saved = SavedInventory(cards, gone)
        self._save()
        self._selftest.look()

    def _on_processes(self, processes: Mapping[str, tuple[CardProcess, ...]]) -> None:
        """Take the processes on each card; runs on NVML's thread."""
        self._memory_use.take(time.time(), processes)
        if self._isolation.look(processes):
            mark_changed(self._config.paths.run)
        self._compute.look(processes)

    def _unit_changed(self, model: ResourceModel) -> None:
        """Offer the cards in units of another size, now that no pod holds a share."""
        self._device_list.use(model)
        self._save()

    def _save(self) -> None:
        try:
            self._store.save(replace(self._saved, unit_mib=self.state.model.unit_mib))
        except EdgegpuError as error:
            _LOG.warning("%s", error)

    def _remember_cards(self, cards: tuple[Card, ...]) -> tuple[Card, ...]:
        """Remember these cards and return the remembered ones that are gone."""
        here = {card.uuid: card for card in cards}
        gone = tuple(card for uuid, card in self._past.items() if uuid not in here)[-_MOST_GONE:]
        for card in gone:
            if card.answers:
                _LOG.warning("card %s %s (%s) is gone from this machine", card.label, card.name, card.uuid)
        gone = tuple(replace(card, healthy=False, answers=False) for card in gone)
        self._past = {card.uuid: card for card in gone} | here
        return gone

    def _cards_lost(self) -> None:
        """Take the cards out of allocatable after NVML has not listed them for so long that they may be gone.

        Until then the saved inventory is offered: after a boot kubelet fails the pods that it admits anew while their
        resource has no healthy device, and a driver that is built or loaded late takes minutes. Containers that start
        meanwhile wait in PreStart.
        """
        cards = self._device_list.cards
        if any(card.healthy for card in cards):
            _LOG.error("no word of NVML for %g s: no card is offered until it answers", self._config.driver.absent_s)
            self._offer(tuple(replace(card, healthy=False, problem=self.nvml.problem) for card in cards))

    def _kubelet_restarted(self) -> None:
        """Take up a new kubelet; if its k3s has the extender, the first lists that it gets are whole."""
        self.state.kubelet_restarted()
        self._cluster_check.kubelet_started()
        if self._cluster_check.is_unknown:
            self.pods.list_again(timeout_s=0)  # a watch that is open may say nothing for a minute
        # else nothing delays the registration, which kubelet's admissions do not wait for
        if self._device_list.is_limited or self._cluster_check.is_unknown:
            self._limit_offer(self.state.snapshot())

    def _before_report(self, snapshot: Snapshot) -> None:
        self._set_allowed()
        self._wake_selftest()
        self._limit_offer(snapshot)

    def _wake_selftest(self) -> None:
        """Have the limiter tried as soon as the first pod has chosen it on a node that holds no others."""
        is_needed = self._isolation.is_needed
        if is_needed and not self._was_needed:
            self._selftest.look()
        self._was_needed = is_needed

    def _set_allowed(self) -> None:
        """Take what pods may choose here: the way of injection or the limiter's libraries may have changed."""
        self.state.set_allowed(self._isolation.allowed(cannot=self.injector.cannot_hold))

    def _limit_offer(self, snapshot: Snapshot) -> None:
        """Offer only what pods hold while a change of this machine lets k3s run without the extender beside the plugin.

        A pod that waits for a card would otherwise be bound by the node's sum alone. An uninstall stops the plugin
        after the restart of k3s, and an installation starts it before. A k3s that was removed and installed again has
        no extender either, until `edgegpu install`, and gets nothing: its kubelet knows of no pod that holds devices.
        Else devices that pods hold stay healthy: a starting kubelet fails pods that it admits anew while their devices
        are unhealthy.
        """
        only: frozenset[str] | None = None
        if self._cluster_check.is_unknown and not self._sharing_change.brings_extender():
            self._cluster_check.heard(self.pods.last_contact)
        if self._cluster_check.is_unknown:
            only = frozenset()  # the pods that this process knows are those of the k3s that was removed
        elif self._sharing_change.is_without_extender():
            if any(not want.runs for want in snapshot.view.waiting_containers()):
                return  # kubelet is giving devices to a pod that was placed before
            only = snapshot.view.ledger.ids()
        if self._device_list.limit(only):
            offer = "only what pods hold" if only else "nothing"
            _LOG.info("offering all" if only is None else f"offering {offer}: k3s may have no extender now")

    def _offer(self, cards: tuple[Card, ...]) -> None:
        """Offer cards to kubelet and placement; the state comes first, so that no call finds an unknown card.

        Raises:
            ModelError: more devices than kubelet's message limit carries; nothing has changed.
        """
        self.state.model.check_device_count([card.memory_mib for card in cards])
        self.state.set_cards(cards)
        if self._device_list.set(cards):
            told = (offer_text(card, self.state.model) for card in cards if card.healthy)
            _LOG.info("offering %s", ", ".join(told) or "no card")


def _isolated(config: PluginConfig, state: NodeState, selftest: SelftestResults, *, proc: Path) -> IsolatedContainers:
    made = IsolatedContainers(
        config.isolation,
        state,
        run=config.paths.run,
        live=LiveLimits(config.paths.state),
        proc=proc,
        driver=config.driver.root,
        selftest=selftest,
        verdicts=ImageVerdicts(config.paths.state),
    )
    made.start_mps()
    return made


def _publisher(
    objects: KubeObjects, node: str, on_node: Callable[[Json], Json], *, before_report: Callable[[Snapshot], None]
) -> Publisher:
    return Publisher(
        before_report=before_report,
        write=lambda annotations, labels: objects.annotate_node(node, annotations, labels=labels),
        read=lambda: on_node(objects.get_node(node)),
        boot=boot_id(),
    )
