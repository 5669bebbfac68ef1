"""The evidence of a controller on another machine: what the commands use of `EvidenceService`, by the API."""

from collections.abc import Sequence
from typing import Any

from edgegpu_cloud.cli.remote.client import ApiClient, name_in_path, read_as
from edgegpu_cloud.fleet.history.evidence import BoxEvidence
from edgegpu_sync.ids import CommandId

_OF_CONTAINER = ("uid", "namespace", "pod", "container")


class RemoteEvidence:
    """One person's way to the evidence on another machine; each method does what that of `EvidenceService` does."""

    def __init__(self, client: ApiClient) -> None:
        """Take who sends the requests."""
        self._client = client

    def of_box(self, name_or_id: str) -> BoxEvidence:
        """Return the evidence of a box."""
        found = self._client.get(f"/boxes/{name_in_path(name_or_id)}/evidence")
        return read_as(BoxEvidence, {**found, "containers": [*map(_container, found["containers"])]})

    def check(self, name_or_id: str) -> Sequence[CommandId]:
        """Ask a box what its containers see; return the commands, those under way where it is asked already."""
        found = self._client.send("POST", f"/boxes/{name_in_path(name_or_id)}/evidence/check")
        return [CommandId(one) for one in found["commands"]]


def _container(body: Any) -> Any:  # noqa: ANN401  (whatever JSON has)
    """Return a container with its own names in what was stored of it, which the API does not repeat."""
    if body["checked"] is None:
        return body
    return {**body, "checked": {**{name: body[name] for name in _OF_CONTAINER}, **body["checked"]}}
