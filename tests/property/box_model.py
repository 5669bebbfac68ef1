"""A box in a cluster: what the API server has, kubelet and the plugin, put together for the state machine."""

import random

from property.cases import MODEL, NODE, slots_of
from property.kubelet_model import KubeletModel
from property.plugin_model import PluginModel

from edgegpu_core.choices.answers import least
from edgegpu_core.choices.pod_choice import GivenChoice, PodChoice
from edgegpu_core.deviceid import DeviceKind, core_ids, memory_ids
from edgegpu_core.nodeview import is_complete
from edgegpu_core.placement import PodPlan, Share, footprint, plan_pod
from edgegpu_core.podview import PodView
from edgegpu_core.request import ContainerRequest, ContainerRole, RequestedAmounts

SHAPES = {
    "one": (ContainerRole.APP,),
    "two": (ContainerRole.APP, ContainerRole.APP),
    "init": (ContainerRole.INIT, ContainerRole.APP),
    "sidecar": (ContainerRole.SIDECAR, ContainerRole.APP),
    "inits": (ContainerRole.INIT, ContainerRole.SIDECAR, ContainerRole.APP),
}


class BoxModel:
    """One node. `api` is what the API server has; `bound` are the pods that bind placed."""

    def build(self, units: list[int], seed: int, menu: list[RequestedAmounts]) -> None:
        """Begin with an empty node; pods ask for what is on the menu, so that they are often alike."""
        self.menu = menu
        self.slots = slots_of(*units)
        self.api: dict[str, PodView] = {}
        self.bound: set[str] = set()
        self.number = 0
        self.running: set[str] = set()
        self.due = ""
        self.last: dict[str, tuple[Share, ...]] = {}
        self.ended_before: frozenset[str] = frozenset()
        self.kubelet = KubeletModel(
            model=MODEL,
            devices={
                DeviceKind.MEMORY: tuple(text for slot in self.slots for text in memory_ids(slot.uuid, slot.units)),
                DeviceKind.CORE: tuple(text for slot in self.slots for text in core_ids(slot.uuid)),
            },
            plugins=self,
            rng=random.Random(seed),
        )
        self.plugin = PluginModel(
            model=MODEL,
            slots=self.slots,
            checkpoint=lambda: (self.kubelet.writes, self.kubelet.checkpoint),
            kubelet_pods=lambda: [self.api.get(uid, pod) for uid, pod in self.kubelet.active.items()],
            given=lambda: {key: least(some) for key, some in self.answers().items()},
        )

    def answers(self) -> dict[tuple[str, str], set[GivenChoice]]:
        """Return what kubelet's answers give each container, by its pod's UID and by name; one, if they agree."""
        found: dict[tuple[str, str], set[GivenChoice]] = {}
        for (uid, container, _), answer in self.kubelet.answers.items():
            found.setdefault((uid, container), set()).add(answer)
        return found

    def preferred(self, kind: DeviceKind, available: list[str], must_include: list[str], size: int) -> list[str]:
        """Hand a call on."""
        return self.plugin.preferred(kind, available, must_include, size)

    def allocate(self, kind: DeviceKind, ids: tuple[str, ...]) -> GivenChoice:
        """Hand a call on."""
        return self.plugin.allocate(kind, ids)

    def add(self, pod: PodView, *, known: bool) -> None:
        self.api[pod.uid] = pod
        self.kubelet.active[pod.uid] = pod
        if known:
            self.plugin.put(pod)

    def new(self, containers: tuple[ContainerRequest, ...], choice: PodChoice) -> PodView:
        self.number += 1
        uid = f"u{self.number:03d}"
        return PodView(
            uid=uid,
            namespace="ns",
            name=uid,
            node=NODE,
            containers=containers,
            choice=choice,
            kubelet_uid=uid,
            created=uid,
        )

    def containers(self, shape: str, picks: tuple[int, int]) -> tuple[ContainerRequest, ...]:
        """Make a pod of what is on this run's menu, so that pods are often alike."""
        first, second = (self.menu[pick % len(self.menu)] for pick in picks)
        requests = (first, second, first)
        return tuple(ContainerRequest(f"c{n}", role, requests[n]) for n, role in enumerate(SHAPES[shape]))

    def lacks(self, uid: str) -> bool:
        """Whether the pod lacks devices, by kubelet's checkpoint: for what is not in it, it asks anew after a crash."""
        pod = self.api.get(uid)
        view = self.plugin.view()
        complete = pod is not None and all(is_complete(c, view.ledger.grant(uid, c.name)) for c in pod.containers)
        return pod is not None and (not complete or uid in self.plugin.matcher.unwritten())

    def holdings(self) -> dict[str, tuple[Share, ...]]:
        """Return what the pods that bind placed hold, those that the plugin's watch has not shown yet too."""
        view = self.plugin.view()
        held = {uid: shares for uid, shares in view.holdings().items() if uid in self.bound}
        for uid in self.bound & self.api.keys() - held.keys():
            pod = self.api[uid]
            plan = plan_pod(pod.containers, MODEL)
            if pod.cards is not None and isinstance(plan, PodPlan) and not pod.is_terminal:
                held[uid] = footprint(plan, pod.cards, self.slots)
        return held
