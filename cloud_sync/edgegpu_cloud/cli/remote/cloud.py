"""A controller on another machine: its services by its API, each imported when a command uses it."""

from functools import cached_property
from typing import TYPE_CHECKING

from edgegpu_cloud.cli.remote.client import ApiClient

if TYPE_CHECKING:  # slow to load
    from edgegpu_cloud.cli.remote.alerts import RemoteAlerts
    from edgegpu_cloud.cli.remote.enrolment import RemoteEnrolment
    from edgegpu_cloud.cli.remote.evidence import RemoteEvidence
    from edgegpu_cloud.cli.remote.fleet import RemoteFleet
    from edgegpu_cloud.cli.remote.operations import RemoteOperations
    from edgegpu_cloud.cli.remote.rollouts import RemoteRollouts


class RemoteCloud:
    """The services of a controller on another machine. `by`: who asks."""

    def __init__(self, client: ApiClient, by: str) -> None:
        """Take who sends the requests, and the name of who runs the command."""
        self._client, self.by = client, by

    @cached_property
    def fleet(self) -> "RemoteFleet":
        """Return its fleet."""
        from edgegpu_cloud.cli.remote.fleet import RemoteFleet  # noqa: PLC0415  (slow to load, as those below)

        return RemoteFleet(self._client)

    @cached_property
    def rollouts(self) -> "RemoteRollouts":
        """Return its rollouts."""
        from edgegpu_cloud.cli.remote.rollouts import RemoteRollouts  # noqa: PLC0415

        return RemoteRollouts(self._client)

    @cached_property
    def operations(self) -> "RemoteOperations":
        """Return its operations."""
        from edgegpu_cloud.cli.remote.operations import RemoteOperations  # noqa: PLC0415

        return RemoteOperations(self._client)

    @cached_property
    def alerts(self) -> "RemoteAlerts":
        """Return its alerts."""
        from edgegpu_cloud.cli.remote.alerts import RemoteAlerts  # noqa: PLC0415

        return RemoteAlerts(self._client)

    @cached_property
    def evidence(self) -> "RemoteEvidence":
        """Return the evidence of its boxes."""
        from edgegpu_cloud.cli.remote.evidence import RemoteEvidence  # noqa: PLC0415

        return RemoteEvidence(self._client)

    @cached_property
    def enrolment(self) -> "RemoteEnrolment":
        """Return its enrolment."""
        from edgegpu_cloud.cli.remote.enrolment import RemoteEnrolment  # noqa: PLC0415

        return RemoteEnrolment(self._client)
