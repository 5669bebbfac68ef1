"""Asks kubelet which cards a pod has."""

from pathlib import Path

from edgegpu_agent.demo.model import DemoError, Json
from edgegpu_core.deviceid import card_of
from edgegpu_plugin.errors import PodResourcesError
from edgegpu_plugin.kubelet.podresources import PodResources


def booked_cards(socket: Path, pod: Json) -> frozenset[str] | None:
    """Return the cards that kubelet's PodResources names for a pod; None where this user may not ask, or it is too old.

    Raises:
        DemoError: kubelet does not answer.
    """
    try:
        listed = PodResources(socket).list()
    except PermissionError:
        return None
    except PodResourcesError as error:
        raise DemoError(str(error)) from error
    if listed is None:
        return None
    wanted = (pod["metadata"]["namespace"], pod["metadata"]["name"])
    return frozenset(card_of(device) for one in listed if (one.namespace, one.pod) == wanted for device in one.ids)
