"""Injection of cards by our own CDI spec, the nvidia runtime's environment, or device nodes in kubelet's answer."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgegpu_base.driver_libraries import MISSING_REMEDY, missing_text
from edgegpu_base.errors import EdgegpuError
from edgegpu_core.choices.answers import choice_marks
from edgegpu_core.choices.modes import PluginIsolation
from edgegpu_core.choices.pod_choice import GIVEN_NOTHING, GivenChoice
from edgegpu_core.injection import Injection, InjectionChoice, NodeVersions
from edgegpu_core.inventory import Card
from edgegpu_plugin.cards.device_nodes import ensure_nodes, link_nodes
from edgegpu_plugin.cards.nvml import Nvml
from edgegpu_plugin.config.schema import Driver
from edgegpu_plugin.containers import driver_files, runtime
from edgegpu_plugin.containers.cdi import (
    build_capabilities,
    build_spec,
    capability_name,
    cdi_name,
    node_names,
    write_spec,
)
from edgegpu_plugin.containers.driver.limiter_copies import LimiterCopies
from edgegpu_plugin.containers.driver_files import CONTROL_NODES, DriverFiles
from edgegpu_plugin.containers.held.reasons import PRELOAD_ONLY
from edgegpu_plugin.containers.image.loader_cache import find_program
from edgegpu_plugin.containers.isolation import IsolatedContainers
from edgegpu_plugin.containers.kept_open import KeptOpen, shared_files
from edgegpu_plugin.containers.kubelet_injection import DeviceNodeInjection
from edgegpu_plugin.containers.limiter_files import LimiterFiles
from edgegpu_plugin.errors import PluginError
from edgegpu_plugin.pb import Allocation

_LOG = logging.getLogger(__name__)

NO_VERSIONS = NodeVersions()

NO_DRIVER_FILES = "the nvidia runtime brings the driver, and the plugin does not find its files: set driver.root"

_HELD_CAPABILITIES = ("compute", "utility")
"""What the nvidia runtime brings of the driver into a container that is held, whatever its image asks for."""

DRIVER_WAIT_S = 20.0
"""How long a container's start waits for the driver after a boot; kubelet allows PreStart 30 s and asks again."""


class CdiSpecInjection:
    """Injection by the names of a CDI spec that the plugin writes."""

    def __init__(self, settings: Driver) -> None:
        self._settings = settings
        self._left_out: tuple[str, ...] = ()
        self._missing: tuple[str, ...] = ()
        self._hook_problem = ""

    def allocation(
        self, cards: Sequence[str], *, limited: bool = False, capabilities: Iterable[str] = ()
    ) -> Allocation:
        """Return the allocation with the CDI names of these cards.

        Args:
            cards: the cards' UUIDs.
            limited: whether the limiter lies over the driver.
            capabilities: what of the driver a container gets then beside compute; one without the limiter has all.
        """
        opened = [capability_name(one) for one in capabilities] if limited else []
        return Allocation(cdi_devices=[*(cdi_name(card, limited=limited) for card in cards), *opened])

    def find(self, cards: Sequence[Card], driver_version: str) -> DriverFiles:
        """Make device nodes and links that are missing after a boot; return the driver's files.

        Raises:
            PluginError: a part of the driver is missing.
        """
        root = self._settings.root
        if root == Path("/"):
            names = [*CONTROL_NODES, *(name for card in cards for name in node_names(card))]
            ensure_nodes(names)
            link_nodes(Path("/dev") / name for name in names)
        files = driver_files.find(root, version=driver_version)
        for text in files.left_out if files.left_out != self._left_out else ():
            _LOG.warning("%s", text)
        if files.missing and files.missing != self._missing:
            _LOG.warning("%s; %s", missing_text(files.missing), MISSING_REMEDY)
        self._left_out, self._missing = files.left_out, files.missing
        return files

    def make(self, cards: Sequence[Card], files: DriverFiles, limiter: LimiterFiles | None) -> None:
        """Make the specs.

        Raises:
            PluginError: a file cannot be written.
        """
        hook = self._hook()
        if write_spec(self._settings.cdi_folder, build_spec(cards, files, hook=hook)):
            _LOG.info("CDI spec written for %d cards, driver %s", len(cards), files.version or "of unknown version")
        if limiter is not None:
            write_spec(self._settings.cdi_folder, build_spec(cards, files, limiter=limiter, hook=hook))
            if (spec := build_capabilities(files, hook=hook)) is not None:
                write_spec(self._settings.cdi_folder, spec)

    def _hook(self) -> Path | None:
        """Return the hook that adds libraries to loader caches; with one that cannot be run no container starts."""
        program, problem = None, ""
        try:
            program = find_program()
        except PluginError as error:
            problem = str(error)
        if problem and problem != self._hook_problem:
            _LOG.warning("Triton and other programs do not find the driver in new containers: %s", problem)
        self._hook_problem = problem
        return program


class Injector:
    """The chosen injection mode and the cards to inject; a container's start waits until NVML has listed them.

    Answers are frozen for a pod's life, so pods from before a change of the mode still name what the old mode made.
    Therefore spec and links are made in every mode, as far as this machine allows.
    """

    def __init__(
        self,
        settings: Driver,
        nvml: Nvml,
        *,
        run: Path,
        state: Path | None = None,
        isolation: IsolatedContainers | None = None,
        versions: NodeVersions = NO_VERSIONS,
        ask_versions: Callable[[], NodeVersions] = NodeVersions,
    ) -> None:
        """Choose the injection mode by what is known without the API server.

        Args:
            settings: the section `driver` of the configuration.
            nvml: the source of the driver's version and problems.
            run: the folder below which the links for the mode `devices` are made.
            state: the folder below which the limiter is fitted to the driver's functions; None for `run`.
            isolation: what holds containers to their memory; None for nothing.
            versions: kubelet's version and the runtime's as they were last, so that containerd is asked once: a
                start must not keep kubelet waiting.
            ask_versions: returns kubelet's version and the runtime's, empty when they cannot be learned now; called
                until kubelet's is known.

        Raises:
            PluginError: containerd's configuration cannot be read.
        """
        self._settings = settings
        self._nvml = nvml
        self._isolation = isolation
        self._limiter_problem = ""
        self._openable: frozenset[str] = frozenset()
        """The capabilities that the driver has files for."""
        self._cdi = CdiSpecInjection(settings)
        self._devices = DeviceNodeInjection(root=settings.root, folder=run / "driver")
        self._copies = LimiterCopies((state or run) / "limiter")
        self._kept_open = KeptOpen()
        self._ask_versions = ask_versions
        self._making = threading.Lock()
        """Held while files are made, by each container's start and by NVML's thread."""
        self._changed = threading.Condition()
        self._saved: dict[str, Card] = {}
        self._cards: dict[str, Card] = {}
        self.versions = versions
        """Kubelet's version and the container runtime's; empty while they are unknown."""
        self._choice = self._choose()

    @property
    def mode(self) -> str:
        """The injection mode: how cards come into containers."""
        return self._choice.mode.value

    @property
    def why(self) -> str:
        """Return the reason for the mode."""
        return self._choice.why

    def document(self) -> dict[str, Any]:
        """Return the parts of the status document about the driver and how cards come into containers."""
        driver = {"version": self._nvml.driver_version, "problem": self._nvml.problem}
        return {
            "injection": {"mode": self.mode, "why": self.why},
            "driver": {**driver, "unknown_functions": list(self._copies.unlisted)},
        }

    def learn_versions(self, versions: NodeVersions) -> None:
        """Take kubelet's version and the runtime's, and choose the injection mode by it."""
        if not versions.kubelet or versions == self.versions:
            return
        self.versions = versions
        self.look_again()

    def look_again(self) -> None:
        """Ask containerd again, which a kubelet that has started may have found with another configuration.

        The mode stays unchanged when containerd does not answer and its configuration cannot be read.
        """
        try:
            self._choice = self._choose(before=self._choice)
        except EdgegpuError as error:
            _LOG.error("%s", error)

    def use_saved(self, cards: Iterable[Card]) -> None:
        """Take the cards of the saved inventory, which NVML's list replaces."""
        self._saved = {card.uuid: card for card in cards}

    @property
    def answers_at_once(self) -> bool:
        """Whether `allocation` has what it needs: kubelet's version, and for the mode `devices` the driver's files."""
        return not self._asks_first and (self._choice.mode is not Injection.DEVICES or self._devices.is_made)

    @property
    def _asks_first(self) -> bool:
        """Whether the mode needs kubelet's version, which is still unknown: an old kubelet ignores CDI silently."""
        return (
            not self.versions.kubelet
            and self._choice.mode is Injection.CDI
            and self._settings.injection is Injection.AUTO
        )

    @property
    def is_by_runtime(self) -> bool:
        """Whether the nvidia runtime brings the driver's files, so that the limiter is preloaded alone."""
        return self._choice.mode is Injection.RUNTIME

    @property
    def cannot_hold(self) -> str:
        """Return why the limiter cannot come into containers, in this mode; empty where it can."""
        return NO_DRIVER_FILES if self.is_by_runtime and not self._devices.preload() else ""

    def allocation(
        self, cards: Sequence[str], ids: Sequence[str] = (), given: GivenChoice = GIVEN_NOTHING
    ) -> Allocation:
        """Return what kubelet shall give a container with these cards; kubelet stores and replays it."""
        if self._asks_first:
            self.learn_versions(self._ask_versions())
        is_held = given.isolation != PluginIsolation.NONE
        isolation = self._isolation if is_held else None
        if isolation is not None and isolation.stops_programs(cards):
            isolation = None  # it is told as degraded
        if self.is_by_runtime:
            preload = () if isolation is None else self._devices.preload()
            isolation = isolation if preload else None
            envs = {"NVIDIA_VISIBLE_DEVICES": ",".join(cards)}
            if isolation is not None:
                envs["NVIDIA_DRIVER_CAPABILITIES"] = ",".join((*_HELD_CAPABILITIES, *given.capabilities))
            answer = Allocation(envs=envs, mounts=preload)
        elif self._choice.mode is Injection.DEVICES:
            known = self._saved | self._cards
            some = [known[card] for card in cards if card in known]
            answer = self._devices.allocation(some, limited=isolation is not None, capabilities=given.capabilities)
        else:
            answer = self._cdi.allocation(cards, limited=isolation is not None, capabilities=given.capabilities)
        if isolation is not None:
            return isolation.add_to(answer, ids, given)
        return replace(answer, annotations={**answer.annotations, **choice_marks(given)}) if given.replaced else answer

    def use(self, cards: Sequence[Card]) -> None:
        """Take the cards that NVML found and make the files for containers, before waiting starts continue."""
        with self._making:
            if cards:
                try:
                    self._make(tuple(cards))
                except (EdgegpuError, OSError) as error:  # one file must not end the process; starts report it
                    _LOG.error("cannot make what containers need of the driver: %s", error)
            with self._changed:
                self._cards = {card.uuid: card for card in cards}
                self._changed.notify_all()

    def prepare(self, cards: Sequence[str], uid: str = "", *containers: str) -> None:
        """Make all files that the allocation of these cards refers to, before their container starts.

        Args:
            cards: the container's cards.
            uid: kubelet's UID of its pod.
            *containers: its name; several where the start may be of each of them.

        Raises:
            PluginError: the driver does not answer in time, a card is missing, a file cannot be made, or the limiter
                cannot hold the container.
        """
        deadline = time.monotonic() + DRIVER_WAIT_S
        with self._changed:
            if not self._cards:
                _LOG.info("a container's start waits for the driver")
            while not self._cards and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            present = tuple(self._cards.values())
        missing = [card for card in cards if card not in {one.uuid for one in present}]
        if not present:
            raise PluginError(f"the driver does not answer yet: {self._nvml.problem or 'NVML has not been heard'}")
        if missing:
            raise PluginError(f"card {missing[0]} is not in this machine any more: delete the pod to place it anew")
        with self._making:
            self._make(tuple(self._cards.values()) or present)  # NVML may have found other cards meanwhile
        if self._isolation is not None and containers:
            for one in containers:
                self._check_opened(self._isolation.opened_for(uid, one))
            self._isolation.prepare(uid, *containers)

    def _check_opened(self, wanted: Collection[str]) -> None:
        """Check that the driver has the files for what a container was opened, before containerd looks for them."""
        missing = set() if self.is_by_runtime else set(wanted) - self._openable
        if missing:
            raise PluginError(
                f"the driver has no libraries for {', '.join(sorted(missing))} below {self._settings.root}: install "
                "the whole driver, or take that out of the pod's annotation"
            )

    def _make(self, cards: tuple[Card, ...]) -> None:
        """Make the files that allocations refer to; each start calls this, mostly without anything to do."""
        mode, limiter = self._choice.mode, self._limiter()
        try:
            files = self._cdi.find(cards, self._nvml.driver_version)
            limiter = None if limiter is None else self._copies.of(limiter, files)
            if self._isolation is not None:
                self._isolation.mounted = limiter
            self._cdi.make(cards, files, limiter)
        except (EdgegpuError, OSError) as error:
            if mode is not Injection.RUNTIME:
                raise
            _LOG.debug("neither CDI spec nor links are kept, and the nvidia runtime needs none: %s", error)
            return
        self._openable = frozenset(files.opened)
        shared = [*shared_files(files, limiter)]
        try:
            self._devices.make(cards, files, limiter)
            shared += self._devices.own_files
        except EdgegpuError as error:
            if mode is Injection.DEVICES:
                raise
            _LOG.warning("pods of before, whose cards came in kubelet's own answer, may not start again: %s", error)
        self._kept_open.keep(shared)

    def limiter_files(self) -> LimiterFiles:
        """Return the limiter's libraries as containers get them.

        Raises:
            PluginError: they are missing, or cannot be used on this machine.
        """
        if self._isolation is None:
            raise PluginError("nothing holds containers here")
        limiter = self._isolation.libraries()
        try:
            files = driver_files.find(self._settings.root, version=self._nvml.driver_version)
        except PluginError:
            return limiter  # whoever tries them needs the driver too, and reports what it lacks
        return self._copies.of(limiter, files)

    def _limiter(self) -> LimiterFiles | None:
        """Return the limiter's libraries; without them only the containers that they hold cannot start."""
        if self._isolation is None or not self._isolation.is_needed:
            return None
        limiter, problem = None, ""
        try:
            limiter = self._isolation.libraries()
        except PluginError as error:
            problem = str(error)
        if problem and problem != self._limiter_problem:
            _LOG.error("containers that the limiter holds cannot start: %s", problem)
        self._limiter_problem = problem
        return limiter

    def _choose(self, *, before: InjectionChoice | None = None) -> InjectionChoice:
        settings = self._settings
        configs = runtime.CONTAINERD_CONFIGS if settings.containerd_config is None else [settings.containerd_config]
        choice = runtime.choose(
            settings.injection, cdi_folder=settings.cdi_folder, versions=self.versions, configs=configs
        )
        if before is not None and choice == before:
            return choice
        _LOG.info("cards get into containers by %s: %s", choice.mode.value, choice.why)
        if choice.mode is Injection.RUNTIME:
            _LOG.warning("a pod that sets NVIDIA_VISIBLE_DEVICES itself sees the cards that it names; CDI forbids it")
            _LOG.warning("pods need runtimeClassName: nvidia to see their cards, unless it is containerd's default")
            if self._isolation is not None and self._isolation.is_on:
                _LOG.error("isolation.mode is not none, and does not hold every program: %s", PRELOAD_ONLY)
        if choice.mode is Injection.CDI and choice.cdi_problem:
            _LOG.warning("containers start without their cards: %s; set driver.injection to auto", choice.cdi_problem)
        return choice
