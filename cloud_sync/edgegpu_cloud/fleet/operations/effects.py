"""What a change does on a box beside what it names, and whether it can be undone, in words; pure."""

from collections.abc import Mapping

from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.operations.records import OperationKind
from edgegpu_cloud.store.records import Json

CONFIRMED_OPS = ("k3s.restart", "sharing.uninstall")
"""The ops that are confirmed for one box alone too."""

READING_OPS = frozenset({"inventory.refresh", "doctor.run", "evidence.check", "logs.collect"})
"""The ops that change nothing on a box: they are confirmed for no number of boxes."""

_RESTART = phrase("A restart cannot be undone.")
_EFFECTS: Mapping[str, tuple[str, str]] = {
    "k3s.restart": (
        phrase("k3s restarts: running pods go on, new pods wait until it is back."),
        _RESTART,
    ),
    "plugin.restart": (
        phrase("The plugin restarts: running pods go on, new GPU pods wait until it is back."),
        _RESTART,
    ),
    "sharing.uninstall": (
        phrase(
            "k3s restarts once. Pods that hold shares go on, and keep their cards until they end; new GPU pods wait "
            "Pending."
        ),
        phrase("The agent stays, so that sharing can be installed again from here."),
    ),
    "sharing.install": (
        phrase("k3s restarts once; running pods go on."),
        phrase("If it does not come well, the box puts everything back by itself."),
    ),
    "agent.upgrade": (
        phrase("The agent restarts as another version; pods go on."),
        phrase("The way back is an upgrade to the version before."),
    ),
    "identity.rotate": (
        phrase("The box gets a new key and certificate; pods go on."),
        phrase("A new certificate cannot be taken back."),
    ),
}
_OPS = {OperationKind.INSTALL: "sharing.install", OperationKind.UNINSTALL: "sharing.uninstall"}


def op_of_change(kind: OperationKind, args: Json) -> str:
    """Return the op that a change of boxes sends; empty where it sets limits or settings."""
    return str(args.get("op", "")) if kind is OperationKind.COMMAND else _OPS.get(kind, "")


def effects_of(op: str) -> tuple[str, ...]:
    """Return what an op does on a box beside what it names, and whether it can be undone; nothing of other changes."""
    return _EFFECTS.get(op, ())


def is_confirmed(kind: OperationKind, args: Json, *, boxes: int) -> bool:
    """Whether a person confirms a change of so many boxes."""
    op = op_of_change(kind, args)
    return op in CONFIRMED_OPS or (boxes > 1 and op not in READING_OPS)
