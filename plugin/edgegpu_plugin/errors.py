"""The plugin's errors: one base, and a class of its own only where a caller reacts to it."""

from collections.abc import Sequence
from enum import Enum

from edgegpu_base.errors import EdgegpuError


class PluginError(EdgegpuError):
    """Something that the plugin cannot do; the text reads "cannot x: cause" and says what to do about it."""


class ConfigError(PluginError):
    """A configuration file that cannot be used; `problems` has one line each, with file, line, value and remedy."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class UnknownContainerError(PluginError):
    """There is no such container, or it holds no devices."""


class LiveLimitError(PluginError):
    """A live limit that a container cannot have; nothing has changed."""


class PodResourcesError(PluginError):
    """kubelet's PodResources service is there but did not answer."""


class NvmlProblem(Enum):
    """Why NVML cannot list the cards."""

    NO_DRIVER = "no driver library"
    NOT_LOADED = "driver not loaded"
    NO_CARDS = "driver without cards"
    HANGS = "NVML hangs"
    FAILED = "NVML call failed"


class NvmlError(PluginError):
    """NVML cannot list the cards; `kind` says why."""

    def __init__(self, kind: NvmlProblem, text: str) -> None:
        self.kind = kind
        super().__init__(text)
