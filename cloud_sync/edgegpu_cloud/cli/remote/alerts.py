"""The alerts of a controller on another machine: what the commands use of `Alerts`, by the API."""

from collections.abc import Mapping, Sequence

from edgegpu_cloud.alerts.service import AlertView
from edgegpu_cloud.cli.remote.client import ApiClient, read_as
from edgegpu_cloud.store.alerts.tables import THAT_FIRE, AlertFilter

_STATES: Mapping[bool | None, str] = {False: "firing", True: "over", None: "all"}


class RemoteAlerts:
    """One person's view of alerts on another machine; each method does what that of `Alerts` does."""

    def __init__(self, client: ApiClient) -> None:
        """Take who sends the requests."""
        self._client = client

    def list(self, name_or_id: str = "", *, where: AlertFilter = THAT_FIRE, limit: int = 500) -> Sequence[AlertView]:
        """Return alerts, newest first: of all boxes, or of one; the API filters by state."""
        found = self._client.items("/alerts", most=limit, box=name_or_id, state=_STATES[where.over])
        return [read_as(AlertView, {"alert": one, "box": one["box"]}) for one in found]

    def silence(self, number: int, *, for_s: float) -> None:
        """Let nobody be told of an alert for a while; 0: from now on again."""
        self._client.send("POST", f"/alerts/{number}/silence", {"for_s": int(for_s)})

    def waiting(self) -> tuple[int, str]:
        """Return how many messages wait for a receiver, and the last error of one that was tried."""
        found = self._client.get("/alerts/webhook")
        return int(found["waiting"]), str(found["error"])

    def test(self) -> Sequence[str]:
        """Let a test message wait for each receiver; return their hosts: the API tells no more of an address."""
        return [str(one) for one in self._client.send("POST", "/alerts/webhook/test")["receivers"]]
