"""What the store returns of settlements."""

from dataclasses import dataclass

from edgegpu_sync.messages.uplink import ItemState


@dataclass(frozen=True, slots=True, order=True)
class RequestKey:
    """One request of an item: the item's name, the revision in which it was edited, and how often it was repeated."""

    item: str
    rev: int
    retry: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSettlement:
    """How a box has settled a request; `at_s`: when the controller stored that, seconds since 1970.

    `enrolment` is the box's that settled it: a box that is enrolled anew settles the same request once more. `code` and
    `text` are the box's own words, empty where it had none.
    """

    key: RequestKey
    enrolment: int
    state: ItemState
    code: str
    text: str
    at_s: float

    def is_same_end(self, other: "StoredSettlement") -> bool:
        """Whether nothing has been settled anew since the other; texts may be left out of a long report."""
        return (self.enrolment, self.state, self.code) == (other.enrolment, other.state, other.code)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxSettlements:
    """The settlements of a box that are kept; those of requests before `since_s` may be missing."""

    by_key: dict[RequestKey, StoredSettlement]
    since_s: float
