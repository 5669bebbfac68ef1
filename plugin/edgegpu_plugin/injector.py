"""Brings cards into containers: by our own CDI spec, or by the environment that the nvidia runtime reads."""

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from edgegpu_core.inventory import Card
from edgegpu_plugin import driverfiles, runtime
from edgegpu_plugin.cdi import build_spec, cdi_name, node_names, write_spec
from edgegpu_plugin.config import Driver, Injection
from edgegpu_plugin.devicenodes import ensure_nodes, link_nodes
from edgegpu_plugin.errors import PluginError
from edgegpu_plugin.nvml import Nvml
from edgegpu_plugin.pb import Allocation

_LOG = logging.getLogger(__name__)

_CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")

DRIVER_WAIT_S = 20.0
"""How long a container's start waits for the driver after a boot; kubelet gives PreStart 30 s and asks again."""


class Way(Protocol):
    """One of the ways."""

    def allocation(self, cards: Sequence[str]) -> Allocation:
        """Return what kubelet shall give a container; stored and replayed, so it names nothing that changes."""

    def make(self, cards: Sequence[Card], driver_version: str) -> None:
        """Make all that allocations refer to; called at each start, so that it finds its work done.

        Raises:
            PluginError: something of the driver is not there, or a file cannot be written.
        """


class CdiWay:
    """Names of a spec that we write ourselves."""

    def __init__(self, settings: Driver) -> None:
        self._settings = settings
        self._left_out: tuple[str, ...] = ()

    def allocation(self, cards: Sequence[str]) -> Allocation:
        """Return the CDI names."""
        return Allocation(cdi_devices=[cdi_name(card) for card in cards])

    def make(self, cards: Sequence[Card], driver_version: str) -> None:
        """Make device nodes and their links where a boot left them out, then the spec."""
        root = self._settings.root
        if root == Path("/"):
            names = [*_CONTROL_NODES, *(name for card in cards for name in node_names(card))]
            ensure_nodes(names)
            link_nodes(Path("/dev") / name for name in names)
        files = driverfiles.find(root, version=driver_version)
        for text in files.left_out if files.left_out != self._left_out else ():
            _LOG.warning("%s", text)
        self._left_out = files.left_out
        if write_spec(self._settings.cdi_folder, build_spec(cards, files)):
            _LOG.info("CDI spec written for %d cards, driver %s", len(cards), files.version or "of unknown version")


class RuntimeWay:
    """The environment that the nvidia runtime reads; an author's own NVIDIA_VISIBLE_DEVICES beats it.

    Answers are frozen for a pod's life, so pods from before a change of the way still have CDI names: the spec that
    these refer to is kept as far as this machine allows.
    """

    def __init__(self, settings: Driver) -> None:
        self._spec = CdiWay(settings)

    def allocation(self, cards: Sequence[str]) -> Allocation:
        """Return the environment."""
        return Allocation(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(cards)})

    def make(self, cards: Sequence[Card], driver_version: str) -> None:
        """Leave it to the runtime, which needs no spec."""
        try:
            self._spec.make(cards, driver_version)
        except (PluginError, OSError) as error:
            _LOG.debug("no CDI spec is kept: %s", error)


class Injector:
    """Holds the way that was chosen and the cards that there are; a start waits until NVML has told them."""

    def __init__(self, settings: Driver, nvml: Nvml) -> None:
        """Choose the way.

        Raises:
            PluginError: there is none on this machine.
        """
        configs = runtime.CONTAINERD_CONFIGS if settings.containerd_config is None else [settings.containerd_config]
        choice = runtime.choose(settings.injection, cdi_folder=settings.cdi_folder, kubelet=None, configs=configs)
        self.mode = choice.mode.value
        self.why = choice.why
        self._way: Way = CdiWay(settings) if choice.mode is Injection.CDI else RuntimeWay(settings)
        self._nvml = nvml
        self._changed = threading.Condition()
        self._cards: dict[str, Card] = {}
        _LOG.info("cards get into containers by %s: %s", self.mode, self.why)
        if choice.mode is Injection.RUNTIME:
            _LOG.warning("a pod that sets NVIDIA_VISIBLE_DEVICES itself sees the cards that it names; CDI forbids it")
            _LOG.warning("pods need runtimeClassName: nvidia to see their cards, unless it is containerd's default")

    def allocation(self, cards: Sequence[str]) -> Allocation:
        """Return what kubelet shall give a container with these cards."""
        return self._way.allocation(cards)

    def use(self, cards: Sequence[Card]) -> None:
        """Take what NVML found, and make what containers need of it."""
        with self._changed:
            self._cards = {card.uuid: card for card in cards}
            self._changed.notify_all()
        if cards:
            try:
                self._way.make(tuple(cards), self._nvml.driver_version)
            except (PluginError, OSError) as error:  # one file must not end the process; a container's start tells it
                _LOG.error("cannot make what containers need of the driver: %s", error)

    def prepare(self, cards: Sequence[str]) -> None:
        """Make all that a container with these cards refers to, before it starts.

        Raises:
            PluginError: the driver does not answer in time, a card is not there, or something cannot be made.
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
        self._way.make(present, self._nvml.driver_version)
