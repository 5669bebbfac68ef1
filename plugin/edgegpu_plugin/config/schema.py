"""The configuration file: its schema, and `load`, which reads it or reports all problems in it."""

import socket
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    Field,
    StrictBool,
    ValidationInfo,
    field_validator,
)

from edgegpu_core.choices.modes import Capability, PluginIsolation
from edgegpu_core.injection import Injection
from edgegpu_core.model import ResourceModel
from edgegpu_core.placement import Policy
from edgegpu_plugin.config import yaml_file
from edgegpu_plugin.config.types import (
    AbsolutePath,
    CardName,
    Listen,
    Mib,
    NodeName,
    ResourceName,
    Seconds,
    Section,
    none_if_auto,
    says,
    word_of_switch,
)

DEFAULT_PATH = Path("/etc/edgegpu/plugin.yaml")


class ProcessRole(StrEnum):
    """The plugin's role on this machine: which parts of it run."""

    SERVER = "server"
    AGENT = "agent"
    EXTENDER_ONLY = "extender-only"

    @property
    def has_plugin(self) -> bool:
        """Whether this machine has cards to share."""
        return self is not ProcessRole.EXTENDER_ONLY

    @property
    def has_extender(self) -> bool:
        """Whether this machine runs the scheduler's extender."""
        return self is not ProcessRole.AGENT


class Resources(Section):
    """Names and sizes of what is offered."""

    memory: ResourceName = "baidu.com/vcuda-memory"
    core: ResourceName = "baidu.com/vcuda-core"
    unit_mib: Annotated[Mib, Field(ge=1), says("the MiB of one unit of memory, a whole number from 1 to 1048576")] = 256
    reserve_mib: Annotated[
        Mib | None,
        BeforeValidator(none_if_auto),
        says("auto, which is what the driver keeps, or the MiB of each card that are not offered, 0 to 1048576"),
    ] = 0
    core_required: Annotated[StrictBool, says("true, or false to let memory be asked for without core")] = True

    @field_validator("core")
    @classmethod
    def _differs(cls, core: str, info: ValidationInfo) -> str:
        if core == info.data.get("memory"):
            raise ValueError("the same name as resources.memory")
        return core


class PlacementSection(Section):
    """How cards are chosen, and which are excluded."""

    policy: Annotated[Policy, says("one of first-fit, best-fit, spread")] = Policy.FIRST_FIT
    exclude: Annotated[
        tuple[CardName, ...],
        says("a list of card numbers (0), MIG devices (0:1) or UUIDs (GPU-…), none of which is offered"),
    ] = ()


class KubeletSection(Section):
    """Where kubelet keeps its files and sockets.

    `--root-dir` moves pods and pod-resources. The folder of the device plugins is a constant of kubelet's
    (DevicePluginPath in k8s.io/kubelet/pkg/apis/deviceplugin).
    """

    folder: Annotated[AbsolutePath, says("kubelet's --root-dir, an absolute path")] = Path("/var/lib/kubelet")
    device_plugins: Annotated[AbsolutePath, says("the folder of the device plugins' sockets, an absolute path")] = Path(
        "/var/lib/kubelet/device-plugins"
    )
    wait_at_start: Annotated[
        StrictBool, says("true, or false to let kubelet look at its pods before it has the devices")
    ] = True
    resolv_conf: Annotated[
        AbsolutePath | None,
        BeforeValidator(none_if_auto),
        says("auto, or the file of kubelet's --resolv-conf, where that is a link for kubelet alone, an absolute path"),
    ] = None

    @property
    def checkpoint(self) -> Path:
        """The file in which kubelet records devices, its checkpoint."""
        return self.device_plugins / "kubelet_internal_checkpoint"

    @property
    def pod_resources(self) -> Path:
        """The socket of kubelet's PodResources service."""
        return self.folder / "pod-resources/kubelet.sock"


class Kubernetes(Section):
    """How the API server is reached."""

    kubeconfig: Annotated[AbsolutePath, says("a kubeconfig file of the plugin's own, an absolute path")] = Path(
        "/etc/edgegpu/kubeconfig"
    )


class Driver(Section):
    """The NVIDIA driver and how it gets into containers."""

    root: Annotated[AbsolutePath, says("the folder that the driver is installed under, / for this machine")] = Path("/")
    injection: Annotated[Injection, says("one of auto, cdi, runtime, devices")] = Injection.AUTO
    cdi_folder: Annotated[AbsolutePath, says("a folder that containerd reads CDI specs from, an absolute path")] = Path(
        "/var/run/cdi"
    )
    containerd_config: Annotated[
        AbsolutePath | None,
        BeforeValidator(none_if_auto),
        says("auto, or the file that containerd reads, an absolute path"),
    ] = None
    nvml_timeout_s: Annotated[Seconds, says("the seconds that a call of NVML may take, more than 0")] = 5.0
    poll_s: Annotated[Seconds, says("the seconds between two looks at the cards, more than 0")] = 5.0
    recover_s: Annotated[
        Seconds, says("the seconds after which a card that reported an error and is quiet is offered again")
    ] = 300.0
    absent_s: Annotated[
        Seconds, says("the seconds without a word of NVML after which no card is offered, until it answers again")
    ] = 300.0


class BypassPolicy(StrEnum):
    """What is done with a process that uses a card past the limiter."""

    REPORT = "report"
    KILL = "kill"


class PreloadPolicy(StrEnum):
    """Into which containers the limiter is preloaded beside its mount."""

    AUTO = "auto"
    """Those of images that were seen with a driver of their own before it."""
    ON = "on"
    OFF = "off"


class ComputePolicy(StrEnum):
    """How the limiter holds a container to its share of a card's time."""

    STRICT = "strict"
    ELASTIC = "elastic"
    OFF = "off"


class IsolationSection(Section):
    """What holds containers to their shares, for those that are given devices from now on."""

    mode: Annotated[PluginIsolation, says("one of none, limiter, mps")] = PluginIsolation.LIMITER
    pods_may: Annotated[
        tuple[PluginIsolation, ...] | None,
        BeforeValidator(none_if_auto),
        says("auto, or a list of the modes that a pod may choose for itself: none, limiter, with mode mps also mps"),
    ] = None
    capabilities: Annotated[
        tuple[Capability, ...],
        says("a list of what pods may open of the driver beside compute: graphics, video"),
    ] = ()
    context_mib: Annotated[
        Mib | None,
        BeforeValidator(none_if_auto),
        says("auto, or the MiB that count for each CUDA context, a whole number from 0 to 1048576"),
    ] = None
    compute: Annotated[ComputePolicy, BeforeValidator(word_of_switch), says("one of strict, elastic, off")] = (
        ComputePolicy.STRICT
    )
    on_bypass: Annotated[
        BypassPolicy, says("one of report, kill; report with isolation.mode mps, where a kill faults other containers")
    ] = BypassPolicy.REPORT
    preload: Annotated[PreloadPolicy, BeforeValidator(word_of_switch), says("one of auto, on, off")] = (
        PreloadPolicy.AUTO
    )
    libraries: Annotated[
        AbsolutePath | None,
        BeforeValidator(none_if_auto),
        says("auto, or the folder with the limiter's libraries, an absolute path"),
    ] = None

    @field_validator("on_bypass")
    @classmethod
    def _spares_clients(cls, policy: BypassPolicy, info: ValidationInfo) -> BypassPolicy:
        if policy is BypassPolicy.KILL and info.data.get("mode") is PluginIsolation.MPS:
            raise ValueError("isolation.mode is mps: a client of MPS that is killed faults the others on its card")
        return policy

    @field_validator("pods_may")
    @classmethod
    def _has_a_daemon(
        cls, modes: tuple[PluginIsolation, ...] | None, info: ValidationInfo
    ) -> tuple[PluginIsolation, ...] | None:
        if PluginIsolation.MPS in (modes or ()) and info.data.get("mode") is not PluginIsolation.MPS:
            raise ValueError("isolation.mode is not mps: the daemon that mps needs runs only then")
        return modes

    @property
    def chosen_by_pods(self) -> tuple[PluginIsolation, ...]:
        """The modes that a pod may choose beside the node's own: unless the file lists them, the stricter ones."""
        if self.pods_may is not None:
            return self.pods_may
        stricter = (mode for mode in PluginIsolation if mode.strictness > self.mode.strictness)
        return tuple(mode for mode in stricter if mode is not PluginIsolation.MPS)


class Tls(Section):
    """The extender's certificate, and the authority that signs the certificates of its clients."""

    cert: AbsolutePath = Path("/etc/edgegpu/extender/server.crt")
    key: AbsolutePath = Path("/etc/edgegpu/extender/server.key")
    client_ca: AbsolutePath = Path("/etc/edgegpu/extender/ca.crt")


class ExtenderSection(Section):
    """Where the scheduler calls the extender."""

    listen: Listen = "127.0.0.1:8787"
    insecure: Annotated[StrictBool, says("false, or true to let every process of this machine bind pods")] = False
    tls: Tls = Tls()

    @property
    def host(self) -> str:
        """The address to listen on."""
        return self.listen.rpartition(":")[0].removeprefix("[").removesuffix("]")

    @property
    def port(self) -> int:
        """The port to listen on; 0 lets the system choose."""
        return int(self.listen.rpartition(":")[2])


class Paths(Section):
    """Where the plugin keeps its own files."""

    state: Annotated[AbsolutePath, says("a folder that stays, an absolute path")] = Path("/var/lib/edgegpu")
    run: Annotated[AbsolutePath, says("a folder that a reboot empties, an absolute path")] = Path("/run/edgegpu")


class PluginConfig(Section):
    """The whole file; every section but `version` may be left out."""

    version: Annotated[Literal[1], says("1, the version of this file's form")]
    node_name: NodeName = Field(default_factory=lambda: socket.gethostname().lower())
    role: Annotated[ProcessRole, says("one of server, agent, extender-only")] = ProcessRole.SERVER
    resources: Resources = Resources()
    placement: PlacementSection = PlacementSection()
    kubelet: KubeletSection = KubeletSection()
    kubernetes: Kubernetes = Kubernetes()
    driver: Driver = Driver()
    isolation: IsolationSection = IsolationSection()
    extender: ExtenderSection = ExtenderSection()
    paths: Paths = Paths()
    log_level: Annotated[Literal["debug", "info", "warning", "error"], says("one of debug, info, warning, error")] = (
        "info"
    )

    def model(self) -> ResourceModel:
        """Return the resource model: resource names, unit size and reserve."""
        return ResourceModel(
            memory_resource=self.resources.memory,
            core_resource=self.resources.core,
            unit_mib=self.resources.unit_mib,
            reserve_mib=self.resources.reserve_mib,
            core_required=self.resources.core_required,
        )

    @property
    def policy(self) -> Policy:
        """The placement policy for pods that name none."""
        return self.placement.policy

    @property
    def exclude(self) -> frozenset[str]:
        """The cards that are not offered, as `edgegpu_core.inventory.usable` takes them."""
        return frozenset(self.placement.exclude)


def load(path: Path) -> PluginConfig:
    """Read the configuration file.

    Raises:
        ConfigError: it has one line for each problem: file, line, key, value, what is wrong, what would be right.
    """
    return yaml_file.load(path, PluginConfig)
