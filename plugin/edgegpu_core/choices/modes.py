"""The modes of isolation: what holds a container to its share."""

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
