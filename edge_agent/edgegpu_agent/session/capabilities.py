"""The capabilities of this box: its actions and settlers, each with what it needs of the machine."""

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from edgegpu_agent.actions.redact import RedactBody, redacted_body
from edgegpu_agent.actions.registry import ActionContext, acts, standard_settlers
from edgegpu_agent.actions.settlers import SharingOfBox
from edgegpu_agent.identity.errors import IdentityError, UnreachableError
from edgegpu_agent.identity.identity_files import BoxIdentity
from edgegpu_agent.identity.task import IdentityKeeper
from edgegpu_agent.ports import (
    Acts,
    DriftChecks,
    Settler,
    SettlerNotes,
    Settlers,
    SharingProbe,
    TelemetrySource,
)
from edgegpu_agent.telemetry.source import TelemetryReader
from edgegpu_base.process.tasks import Task
from edgegpu_installer.layout import Layout
from edgegpu_sync.messages.spec import AppLimits as AppLimitsItem
from edgegpu_sync.messages.spec import AskedItem
from edgegpu_sync.messages.uplink import BoxVersions
from edgegpu_sync.rules.settle import NO_SHARING, Settlement

if TYPE_CHECKING:
    from edgegpu_agent.app_limits.task import AppLimitsService

APP_LIMITS = "app_limits"
"""The capability that depends on the account, which an uninstall that keeps the agent removes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxCapabilities:
    """The actions, settlers and probes of this box; `tasks` need the worker: they are the checks of app limits."""

    acts: Acts
    settlers: Settlers
    sharing: SharingProbe
    telemetry: TelemetrySource
    versions: Callable[[], BoxVersions]
    stopping: threading.Event
    """Set when the box leaves the link; then actions stop waiting."""
    clean: RedactBody
    """Takes secrets out of messages that the box sends."""
    tasks: Callable[[DriftChecks], list[Task]]
    lacks: Callable[[], Collection[str]]
    """Returns the capabilities of actions and settlers that are missing now; called each second."""
    limits_trouble: Callable[[], str]
    """Returns the problem of app limits that a person must fix; empty when there is none."""


@dataclass(frozen=True, slots=True)
class NoAccount:
    """The settler of app limits on a box without an account for them; installing sharing, or edgegpu again, adds it."""

    layout: Layout

    def settle(self, one: AskedItem, notes: SettlerNotes) -> Settlement:
        """See `Settler`."""
        del one, notes
        if not self.layout.has_sharing:
            return NO_SHARING
        text = "this box has no account for app limits: run `edgegpu install` on it once, then set them again"
        return Settlement.unsupported(text)


def box_capabilities(
    identity: BoxIdentity,
    *,
    layout: Layout,
    edgegpu: str,
    telemetry: TelemetryReader,
    keeper: IdentityKeeper,
    limits: "AppLimitsService | None",
    max_mib: int,
    proxy: str = "",
) -> BoxCapabilities:
    """Return the capabilities of this box.

    Args:
        identity: this box.
        layout: the paths of this box.
        edgegpu: the program `edgegpu`, which runs the installer and the doctor.
        telemetry: reads inventory and measurements.
        keeper: renews the certificate.
        limits: settles app limits; None where this box has no account for them.
        max_mib: the limit for an archive of logs.
        proxy: the proxy for uploads of archives and downloads of bundles; empty: none.
    """
    stop = threading.Event()
    box = ActionContext(
        stop=stop,
        identity=identity.folder,
        renew=keeper.renew,
        refusals=(IdentityError,),
        retried=(UnreachableError,),
        refresh_telemetry=telemetry.refresh,
        layout=layout,
        program=(edgegpu,),
        proxy=proxy,
        proc=layout.at("/proc"),
        most_mib=max_mib,
    )
    of_limits: Settler = NoAccount(layout) if limits is None else limits.settler
    return BoxCapabilities(
        acts=acts(box),
        settlers={**standard_settlers(box), AppLimitsItem: of_limits},
        sharing=SharingOfBox(layout),
        telemetry=telemetry,
        versions=telemetry.versions,
        stopping=stop,
        clean=partial(redacted_body, redactor=box.redactor),
        tasks=lambda checks: [] if limits is None else limits.tasks(checks),
        limits_trouble=lambda: "" if limits is None else limits.trouble,
        lacks=lambda: () if limits is not None and limits.has_account else (APP_LIMITS,),
    )
