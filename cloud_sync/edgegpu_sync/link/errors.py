"""The error of a connection of the link."""

from edgegpu_sync.link.rules import ConnectionEnd


class LinkError(Exception):
    """A connection that could not be made, or that has ended.

    The next wait depends on `ending`. `blamed`: the broker has said that one of our messages is the cause.
    """

    def __init__(self, ending: ConnectionEnd, why: str, *, blamed: bool = False) -> None:
        super().__init__(why)
        self.ending, self.blamed = ending, blamed
