"""Sources of the plugin's status that do not answer, in words."""

import time

from edgegpu_agent.cli.clients.document import API, KUBELET, PENDING, SilentSource, StatusDocument

_STANDS = {
    API: "names and phases of pods are as they were then",
    KUBELET: "which pods hold which units is as it was then",
    PENDING: "the list of them is as it was then",
}


def silence_lines(document: StatusDocument) -> list[str]:
    """Return a line for each source that does not answer: since when, why, and what is as old."""
    return [f"{one.name} is silent{_since(one)}: {one.why}; {_STANDS[one.name]}" for one in document.silent]


def _since(one: SilentSource) -> str:
    if one.name == KUBELET:
        return ""
    if one.heard_at is None:
        return ", not heard since the plugin's start"
    return f", heard last at {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(one.heard_at))}"
