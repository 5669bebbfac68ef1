"""The controller of this machine: its services over its store, each imported when a command uses it."""

import time
from functools import cached_property
from typing import TYPE_CHECKING

from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.layout import CloudConfig, CloudLayout

if TYPE_CHECKING:  # slow to load
    from edgegpu_cloud.alerts.service import Alerts
    from edgegpu_cloud.cli.local_enrolment import LocalEnrolment
    from edgegpu_cloud.fleet.fleet import Fleet
    from edgegpu_cloud.fleet.history.evidence import EvidenceService
    from edgegpu_cloud.fleet.operations.operations import Operations
    from edgegpu_cloud.rollouts.rollouts import Rollouts
    from edgegpu_cloud.store.store import ControllerStore


class LocalCloud:
    """The controller of this machine, open: its files, its configuration, its store, its services. `by`: who asks."""

    def __init__(self, layout: CloudLayout, config: CloudConfig, store: "ControllerStore", by: str) -> None:
        """Take the controller's files, configuration and store, and the name of who runs the command."""
        self.layout, self.config, self.store, self.by = layout, config, store, by
        self._access = Access(by)

    @cached_property
    def fleet(self) -> "Fleet":
        """Return its fleet."""
        from edgegpu_cloud.fleet.fleet import Fleet  # noqa: PLC0415  (slow to load, as those below)

        return Fleet(self.store, clock=time.time, by=self.by)

    @cached_property
    def rollouts(self) -> "Rollouts":
        """Return its rollouts."""
        from edgegpu_cloud.rollouts.rollouts import Rollouts  # noqa: PLC0415

        return Rollouts(self.store, clock=time.time, access=self._access)

    @cached_property
    def operations(self) -> "Operations":
        """Return its operations."""
        from edgegpu_cloud.fleet.operations.operations import Operations  # noqa: PLC0415

        return Operations(self.store, clock=time.time, access=self._access)

    @cached_property
    def alerts(self) -> "Alerts":
        """Return its alerts."""
        from edgegpu_cloud.alerts.service import Alerts  # noqa: PLC0415

        name = self.config.controller_name
        return Alerts(self.store, self.config.alerts, access=self._access, controller=name)

    @cached_property
    def evidence(self) -> "EvidenceService":
        """Return the evidence of its boxes."""
        from edgegpu_cloud.fleet.history.evidence import EvidenceService  # noqa: PLC0415

        return EvidenceService(self.store, access=self._access)

    @cached_property
    def enrolment(self) -> "LocalEnrolment":
        """Return its enrolment."""
        from edgegpu_cloud.cli.local_enrolment import LocalEnrolment  # noqa: PLC0415

        return LocalEnrolment(self.store, self.layout, self.config, access=self._access)
