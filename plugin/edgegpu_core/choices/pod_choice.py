"""What a pod's annotations choose, and what a node allows of that."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edgegpu_core.choices.modes import Capability, PluginIsolation
from edgegpu_core.sentences import listed, sentence

ISOLATION_ANNOTATION = "edgegpu.io/isolation"
"""Set by a pod's author: what holds its containers to their shares. In kubelet's answer: what does so."""

CAPABILITIES_ANNOTATION = "edgegpu.io/capabilities"
"""Set by a pod's author: what of the driver its containers get beside compute, with commas between. In kubelet's
answer: what they got."""

REPLACED_ANNOTATION = "edgegpu.io/isolation-replaced"
"""In kubelet's answer: the node's own mode, where a pod's choice took a less strict one."""


@dataclass(frozen=True, slots=True)
class PodChoice:
    """What a pod's annotations ask for, as they are written; empty for what the pod leaves to its node."""

    isolation: str = ""
    capabilities: tuple[str, ...] = ()
    """In order, each once."""


NO_CHOICE = PodChoice()


@dataclass(frozen=True, slots=True)
class GivenChoice:
    """What an answer to kubelet gives a container."""

    isolation: PluginIsolation = PluginIsolation.NONE
    capabilities: tuple[str, ...] = ()
    """In order, each once."""
    replaced: str = ""
    """The node's own mode at that time, where a pod's choice took a less strict one; else empty."""
    differs: bool = False
    """Whether the answers for the container's two resources differ in whether it is held."""


GIVEN_NOTHING = GivenChoice()


@dataclass(frozen=True, slots=True)
class AllowedChoices:
    """What a node gives pods that choose nothing, and what they may choose there. Modes of a newer version are kept."""

    isolation: str = PluginIsolation.NONE
    """The node's own mode, which every pod may name."""
    isolations: tuple[str, ...] = ()
    """The modes that a pod may choose beside it."""
    cannot: str = ""
    """Why this node can hold no container, whatever it was told; empty where it can."""
    capabilities: tuple[str, ...] = ()
    """What a pod may open of the driver for a held container."""

    def refusal(self, choice: PodChoice) -> str:
        """Return why a pod with this choice cannot be on the node; empty when it can."""
        return self._refused_isolation(choice) or self._refused_capability(choice)

    def _refused_capability(self, choice: PodChoice) -> str:
        is_held = (choice.isolation or self.isolation) != PluginIsolation.NONE
        for asked in choice.capabilities:
            if asked not in {*Capability, *self.capabilities}:
                return sentence(
                    "annotation %(annotation)s: there is no capability %(asked)r (there are: %(all)s)",
                    annotation=CAPABILITIES_ANNOTATION,
                    asked=asked,
                    all=listed(Capability),
                )
            if is_held and asked not in self.capabilities:
                return sentence(
                    "annotation %(annotation)s: this node does not open %(asked)s to containers that it holds: change "
                    "the annotation, or add %(asked)s to isolation.capabilities in the node's plugin.yaml",
                    annotation=CAPABILITIES_ANNOTATION,
                    asked=asked,
                )
        return ""

    def _refused_isolation(self, choice: PodChoice) -> str:
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

    def given_to(self, choices: Iterable[PodChoice]) -> GivenChoice:
        """Return what a container gets that belongs to one of the pods with these choices: the stricter of them.

        What the node does not allow counts as its own mode; such a pod is refused at its start. A held container gets
        the capabilities that all of them ask for and the node opens; one that nothing holds has all without asking.
        """
        found, own = list(choices) or [NO_CHOICE], PluginIsolation(self.isolation)
        mode = max((self._mode(choice) for choice in found), key=lambda one: one.strictness)
        opened = set(self.capabilities if mode.has_limiter else ()).intersection(*(one.capabilities for one in found))
        return GivenChoice(mode, tuple(sorted(opened)), own if mode.strictness < own.strictness else "")

    def to_json(self) -> dict[str, Any]:
        """Return it for the node's report; what is empty is left out, to keep that short."""
        value: dict[str, Any] = {"isolation": str(self.isolation)}
        if self.isolations:
            value["isolations"] = [str(one) for one in self.isolations]
        if self.capabilities:
            value["capabilities"] = [str(one) for one in self.capabilities]
        return value | ({"cannot": self.cannot} if self.cannot else {})

    def _mode(self, choice: PodChoice) -> PluginIsolation:
        asked = choice.isolation
        return PluginIsolation(asked if asked in set(self.isolations) & set(PluginIsolation) else self.isolation)


def read_allowed(value: Any) -> AllowedChoices:  # noqa: ANN401  (JSON)
    """Read what `to_json` has written. Raises KeyError, TypeError, AttributeError."""
    isolations = tuple(str(one) for one in value.get("isolations") or ())
    capabilities = tuple(str(one) for one in value.get("capabilities") or ())
    return AllowedChoices(str(value["isolation"]), isolations, str(value.get("cannot") or ""), capabilities)


NODE_WITHOUT = AllowedChoices()
"""A node that holds nothing, and lets no pod choose."""


def choice_refusal(choice: PodChoice, allowed: AllowedChoices | None) -> str:
    """Return why a pod with this choice cannot be on a node; `allowed` is None where its plugin reports nothing."""
    if allowed is None:
        return "" if choice == NO_CHOICE else _too_old(choice)
    return allowed.refusal(choice)


def _too_old(choice: PodChoice) -> str:
    return sentence(
        "annotation %(annotation)s: this node's edgegpu is of a version that does not know it: upgrade edgegpu there",
        annotation=ISOLATION_ANNOTATION if choice.isolation else CAPABILITIES_ANNOTATION,
    )


def start_refusal(choice: PodChoice, given: GivenChoice, allowed: AllowedChoices) -> str:
    """Return why a container may not start with what kubelet's answer gives it; empty when it may.

    A container that was given what its pod chooses goes on, also when its node allows that no more; one whose pod
    chooses nothing goes on with the mode that its node had. One that was given more may start: kubelet's call was taken
    for that of another pod, and the stricter choice counted.
    """
    if given.differs:
        return sentence("its devices were given under two settings of isolation: delete the pod")
    missing, wanted = _missing(choice, given), choice.isolation or given.replaced or given.isolation
    if wanted == given.isolation and not missing:
        return ""
    if refusal := allowed.refusal(choice):
        return refusal
    if given.isolation.strictness < PluginIsolation(wanted).strictness:
        return _given_less(choice, given)
    return _not_opened(missing) if missing else ""


def _not_opened(missing: Iterable[str]) -> str:
    return sentence(
        "annotation %(annotation)s: it asks for %(asked)s, and the container was not given that when its pod was "
        "admitted: delete the pod",
        annotation=CAPABILITIES_ANNOTATION,
        asked=listed(missing),
    )


def _given_less(choice: PodChoice, given: GivenChoice) -> str:
    if not choice.isolation:
        return sentence(
            "annotation %(annotation)s: its pod has none, and the container was given %(given)s in place of this "
            "node's %(own)s when its pod was admitted: delete the pod",
            annotation=ISOLATION_ANNOTATION,
            given=given.isolation,
            own=given.replaced,
        )
    return sentence(
        "annotation %(annotation)s: it asks for %(asked)s, and the container was given %(given)s when its pod was "
        "admitted: delete the pod",
        annotation=ISOLATION_ANNOTATION,
        asked=choice.isolation,
        given=given.isolation,
    )


def _missing(choice: PodChoice, given: GivenChoice) -> list[str]:
    """Return what a pod asks of the driver, and its held container was not given."""
    if given.isolation == PluginIsolation.NONE:
        return []
    return [one for one in choice.capabilities if one not in given.capabilities]


def read_choice(annotations: Mapping[str, Any]) -> PodChoice:
    """Return the choice in a pod's annotations."""
    asked = str(annotations.get(CAPABILITIES_ANNOTATION) or "").split(",")
    return PodChoice(
        str(annotations.get(ISOLATION_ANNOTATION) or ""),
        tuple(sorted({name for one in asked if (name := one.strip())})),
    )
