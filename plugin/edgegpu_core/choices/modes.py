"""The modes of isolation, which hold a container to its share, and the capabilities that it does without then."""

from enum import StrEnum


class PluginIsolation(StrEnum):
    """What holds a container to its share, from the least to the strictest."""

    NONE = "none"
    MPS = "mps"
    """Less than the limiter alone: the containers of a card are one fault domain."""
    LIMITER = "limiter"

    @property
    def has_limiter(self) -> bool:
        """Whether the limiter is put into containers."""
        return self is not PluginIsolation.NONE

    @property
    def strictness(self) -> int:
        """The mode's place in the order."""
        return list(PluginIsolation).index(self)


class Capability(StrEnum):
    """What a driver can do beside compute, by the names that NVIDIA's container runtime has for it.

    The limiter does not count what these take, so a held container has none of them unless its pod asks.
    """

    GRAPHICS = "graphics"
    """Vulkan, OpenGL, EGL, ray tracing by OptiX."""
    VIDEO = "video"
    """Encoding and decoding: NVENC, NVDEC."""
