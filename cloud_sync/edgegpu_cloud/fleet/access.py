"""What a person may do, and with which boxes: role, permissions, scope; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from edgegpu_cloud.errors import ForbiddenError
from edgegpu_cloud.fleet.selectors import BoxSelector, read_selector
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.people.records import Role

ALL_BOXES = BoxSelector(())
"""The scope of a person who sees all boxes."""


class Permission(StrEnum):
    """The kinds of things that people do."""

    VIEW = "view"
    """See boxes, apps, commands, events, alarms."""
    CHANGE = "change"
    """Set limits and settings, send commands, roll out, mark alarms as seen, name and label boxes."""
    ENROL = "enrol"
    """Make tokens, take in or refuse boxes that wait."""
    REMOVE = "remove"
    """Revoke a box, forget it."""
    CLUSTER = "cluster"
    """Say whether the cluster counts that a box reports."""
    MOVE = "move"
    """Change the labels of a box so that it leaves one's own scope."""
    AUDIT = "audit"
    """See who changed what."""
    PEOPLE = "people"
    """Accounts, their roles and scopes; needs the scope of all boxes."""
    METRICS = "metrics"
    """Read the numbers of the whole fleet; needs the scope of all boxes."""
    SETTINGS = "settings"
    """What belongs to the controller as a whole, as webhooks; needs the scope of all boxes."""


LEAST: Mapping[Permission, Role] = {
    Permission.VIEW: Role.VIEWER,
    Permission.CHANGE: Role.OPERATOR,
    Permission.ENROL: Role.OPERATOR,
    Permission.REMOVE: Role.ADMIN,
    Permission.CLUSTER: Role.ADMIN,
    Permission.MOVE: Role.ADMIN,
    Permission.AUDIT: Role.ADMIN,
    Permission.PEOPLE: Role.ADMIN,
    Permission.METRICS: Role.VIEWER,
    Permission.SETTINGS: Role.ADMIN,
}
"""The least role that has each permission."""

OF_ALL_BOXES = frozenset({Permission.PEOPLE, Permission.METRICS, Permission.SETTINGS})
"""The permissions that nobody has whose scope is a part of the boxes."""

_WORDS: Mapping[Permission, str] = {
    Permission.VIEW: phrase("show this"),
    Permission.CHANGE: phrase("change this"),
    Permission.ENROL: phrase("enrol boxes"),
    Permission.REMOVE: phrase("take a box away"),
    Permission.CLUSTER: phrase("say which cluster a box belongs to"),
    Permission.MOVE: phrase("move a box out of your scope"),
    Permission.AUDIT: phrase("show the audit"),
    Permission.PEOPLE: phrase("manage people"),
    Permission.METRICS: phrase("show the metrics"),
    Permission.SETTINGS: phrase("change settings of the controller"),
}


@dataclass(frozen=True, slots=True)
class Access:
    """Who does something, by which role, and the boxes that exist for them. `by`: the name in the audit."""

    by: str
    role: Role = Role.ADMIN
    scope: BoxSelector = ALL_BOXES

    @property
    def is_whole(self) -> bool:
        """Whether the scope is all boxes."""
        return not self.scope.terms

    def may(self, permission: Permission) -> bool:
        """Whether the person has a permission."""
        is_wide_enough = self.is_whole or permission not in OF_ALL_BOXES
        return self.role.rank >= LEAST[permission].rank and is_wide_enough

    def require(self, permission: Permission) -> None:
        """Refuse what the person may not do.

        Raises:
            ForbiddenError: the role is too low, or the scope is not all boxes.
        """
        if self.may(permission):
            return
        least = LEAST[permission]
        if self.role.rank < least.rank:
            why = phrase("your role is %(role)s", role=self.role.value)
            remedy = phrase("ask an admin for the role %(role)s", role=least.value)
        else:
            why = phrase("your scope is a part of the boxes")
            remedy = phrase("ask an admin whose scope is all boxes")
        raise ForbiddenError(phrase("cannot %(do)s: %(why)s", do=_WORDS[permission], why=why), remedy=remedy)

    def sees(self, labels: Mapping[str, str]) -> bool:
        """Whether a box with these labels exists for the person."""
        return self.scope.matches(labels)


def read_scope(text: str) -> BoxSelector:
    """Read a scope: a selector over labels of boxes; an empty text is all boxes.

    Raises:
        CloudError: the text is no selector.
    """
    return read_selector(text) if text.strip() else ALL_BOXES


def both_scopes(one: str, other: str) -> str:
    """Return the selector of the boxes that both selectors match."""
    return ",".join(text.strip() for text in (one, other) if text.strip())
