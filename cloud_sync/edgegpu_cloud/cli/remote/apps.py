"""The apps of a fleet on another machine: what the command `apps` uses of `FleetApps`, by the API."""

from typing import Any

from edgegpu_cloud.cli.remote.client import ApiClient, name_in_path, read_as
from edgegpu_cloud.fleet.limits.app_page import BoxValue
from edgegpu_cloud.fleet.limits.app_values import AppValue, AppValues, CountedValue
from edgegpu_cloud.fleet.limits.history import ContainerKey


class RemoteApps:
    """One person's view of the apps on another machine; each method does what that of `FleetApps` does."""

    def __init__(self, client: ApiClient) -> None:
        """Take who sends the requests."""
        self._client = client

    def all(self, words: str = "", selector: str = "") -> list[AppValues]:
        """Return every app with its values."""
        found = self._client.items("/apps", search=words, labels=selector)
        return [_app(one) for one in found]

    def all_boxes(self, key: ContainerKey, *, value: str = "", selector: str = "") -> list[BoxValue]:
        """Return every box that has a container, or of them those with one value."""
        path = "/".join(name_in_path(one) for one in (key.namespace, key.app, key.container))
        found = self._client.items(f"/apps/{path}/boxes", value=value, labels=selector)
        return [read_as(BoxValue, one) for one in found]


def _app(row: dict[str, Any]) -> AppValues:
    values = [CountedValue(read_as(AppValue, one), int(one["boxes"])) for one in row["values"]]
    key = ContainerKey(str(row["namespace"]), str(row["app"]), str(row["container"]))
    return AppValues(key=key, values=values)
