"""What a pod's annotations choose, and what a node allows of that."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edgegpu_core.choices.modes import PluginIsolation
from edgegpu_core.sentences import listed, sentence

ISOLATION_ANNOTATION = "edgegpu.io/isolation"
"""Set by a pod's author: what holds its containers to their shares. In kubelet's answer: what does so."""


@dataclass(frozen=True, slots=True)
class PodChoice:
    """What a pod's annotations ask for, as they are written; empty for what the pod leaves to its node."""

    isolation: str = ""


NO_CHOICE = PodChoice()


@dataclass(frozen=True, slots=True)
class AllowedChoices:
    """What a node gives pods that choose nothing, and what they may choose there. Modes of a newer version are kept."""

    isolation: str = PluginIsolation.NONE
    """The node's own mode, which every pod may name."""
    isolations: tuple[str, ...] = ()
    """The modes that a pod may choose beside it."""
    cannot: str = ""
    """Why this node can hold no container, whatever it was told; empty where it can."""

    def refusal(self, choice: PodChoice) -> str:
        """Return why a pod with this choice cannot be on the node; empty when it can."""
        asked, allowed_here = choice.isolation, dict.fromkeys((str(self.isolation), *map(str, self.isolations)))
        if not asked or (asked in allowed_here and (not self.cannot or asked == PluginIsolation.NONE)):
            return ""
        if asked in allowed_here:
            return sentence(
                "annotation %(annotation)s: this node cannot give %(asked)s: %(why)s",
                annotation=ISOLATION_ANNOTATION,
                asked=asked,
                why=self.cannot,
            )
        allowed = listed(allowed_here)
        if asked not in set(PluginIsolation):
            return sentence(
                "annotation %(annotation)s: there is no isolation %(asked)r (this node allows: %(allowed)s)",
                annotation=ISOLATION_ANNOTATION,
                asked=asked,
                allowed=allowed,
            )
        return sentence(
            "annotation %(annotation)s: this node does not allow %(asked)s (it allows: %(allowed)s): change the "
            "annotation, or add %(asked)s to isolation.pods_may in the node's plugin.yaml",
            annotation=ISOLATION_ANNOTATION,
            asked=asked,
            allowed=allowed,
        )

    def given_to(self, choices: Iterable[PodChoice]) -> PodChoice:
        """Return what a container gets that belongs to one of the pods with these choices: the stricter of them.

        What the node does not allow counts as its own mode; such a pod is refused at its start.
        """
        found = [self._mode(choice) for choice in choices] or [self._mode(NO_CHOICE)]
        return PodChoice(max(found, key=lambda mode: mode.strictness))

    def to_json(self) -> dict[str, Any]:
        """Return it for the node's report; what is empty is left out, to keep that short."""
        value: dict[str, Any] = {"isolation": str(self.isolation)}
        if self.isolations:
            value["isolations"] = [str(one) for one in self.isolations]
        return value | ({"cannot": self.cannot} if self.cannot else {})

    def _mode(self, choice: PodChoice) -> PluginIsolation:
        asked = choice.isolation
        return PluginIsolation(asked if asked in set(self.isolations) & set(PluginIsolation) else self.isolation)


def read_allowed(value: Any) -> AllowedChoices:  # noqa: ANN401  (JSON)
    """Read what `to_json` has written. Raises KeyError, TypeError, AttributeError."""
    isolations = tuple(str(one) for one in value.get("isolations") or ())
    return AllowedChoices(str(value["isolation"]), isolations, str(value.get("cannot") or ""))


NODE_WITHOUT = AllowedChoices()
"""A node that holds nothing, and lets no pod choose."""

TOO_OLD = sentence(
    "annotation %(annotation)s: this node's edgegpu is of a version that does not know it: upgrade edgegpu there",
    annotation=ISOLATION_ANNOTATION,
)


def choice_refusal(choice: PodChoice, allowed: AllowedChoices | None) -> str:
    """Return why a pod with this choice cannot be on a node; `allowed` is None where its plugin reports nothing."""
    if allowed is None:
        return "" if choice == NO_CHOICE else TOO_OLD
    return allowed.refusal(choice)


def start_refusal(choice: PodChoice, given: PodChoice, allowed: AllowedChoices) -> str:
    """Return why a container may not start with what kubelet's answer gives it; empty when it may.

    A container that was given what its pod chooses goes on, also when its node allows that no more. One that was given
    more may start: kubelet's call was taken for that of another pod, and the stricter choice counted.
    """
    if not choice.isolation or choice.isolation == given.isolation:
        return ""
    if refusal := allowed.refusal(choice):
        return refusal
    if PluginIsolation(given.isolation).strictness < PluginIsolation(choice.isolation).strictness:
        return sentence(
            "annotation %(annotation)s: it asks for %(asked)s, and the container was given %(given)s when its pod was "
            "admitted: delete the pod",
            annotation=ISOLATION_ANNOTATION,
            asked=choice.isolation,
            given=given.isolation,
        )
    return ""


def read_choice(annotations: Mapping[str, Any]) -> PodChoice:
    """Return the choice in a pod's annotations."""
    return PodChoice(str(annotations.get(ISOLATION_ANNOTATION) or ""))
