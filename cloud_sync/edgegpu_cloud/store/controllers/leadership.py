"""The leadership of the one controller that does what is done once for all boxes: rollouts, alerts, operations."""

from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Protocol

from edgegpu_cloud.store.store import ControllerStore, Transaction


class LeasesLostError(Exception):
    """Another controller holds some of the partitions that a transaction was to write for: nothing was written."""

    def __init__(self, numbers: Collection[int]) -> None:
        super().__init__(f"{len(numbers)} partitions have another holder")
        self.numbers = frozenset(numbers)


class Leadership(Protocol):
    """What a task asks that works for all boxes: whether its process leads, and a transaction for the leader alone."""

    @property
    def leads(self) -> bool:
        """Whether this process leads now, as far as it knows; `lead` makes sure of it."""
        ...

    def lead(self) -> AbstractContextManager[Transaction]:
        """Change the store as the leader; nobody else becomes the leader until the transaction has ended.

        Raises:
            LeasesLostError: another process leads by now; nothing is written.
            StoreError: the database refuses.
        """
        ...


class SoleLeader:
    """The leadership of a process that has its store for itself."""

    leads = True

    def __init__(self, store: ControllerStore) -> None:
        self._store = store

    def lead(self) -> AbstractContextManager[Transaction]:
        """Change the store."""
        return self._store.write()
