"""What this box can do: the acts and settlers that there are, each with what it needs of the machine."""

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from edgegpu_agent.actions.redact import Clean, cleaned
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
"""The capability that comes and goes with the account: an uninstall takes that away and leaves the agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What this box can do, and sees; `tasks` are those that need the worker: the look at app limits."""

    acts: Acts
    settlers: Settlers
    sharing: SharingProbe
    telemetry: TelemetrySource
    versions: Callable[[], BoxVersions]
    stopping: threading.Event
    """Set when the box leaves the link: acts stop waiting."""
    clean: Clean
    """Takes secrets out of what goes up."""
    tasks: Callable[[DriftChecks], list[Task]]
    lacks: Callable[[], Collection[str]]
    """Which capabilities are not there now, of those that come with acts and settlers; asked each second."""
    limits_trouble: Callable[[], str]
    """What a person has to mend about app limits; empty when all is well."""


@dataclass(frozen=True, slots=True)
class NoAccount:
    """App limits on a box that has no account for them: without sharing it comes with that, else by an installation."""

    layout: Layout

    def settle(self, one: AskedItem, notes: SettlerNotes) -> Settlement:
        """See `Settler`."""
        del one, notes
        if not self.layout.has_sharing:
            return NO_SHARING
        text = "this box has no account for app limits: run `edgegpu install` on it once, then set them again"
        return Settlement.unsupported(text)


def abilities(
    identity: BoxIdentity,
    *,
    layout: Layout,
    edgegpu: str,
    telemetry: TelemetryReader,
    keeper: IdentityKeeper,
    limits: "AppLimitsService | None",
    max_mib: int,
    proxy: str = "",
) -> Abilities:
    """Return the capabilities of this box.

    Args:
        identity: this box.
        layout: where things are.
        edgegpu: the command line, which installs and examines.
        telemetry: what is seen of the box.
        keeper: renews the certificate.
        limits: settles app limits; None where this box has no account for it.
        max_mib: of an archive of logs.
        proxy: by which archives go up and bundles are fetched; empty: straight.
    """
    stop = threading.Event()
    box = ActionContext(
        stop=stop,
        identity=identity.folder,
        renew=keeper.renew,
        refusals=(IdentityError,),
        passing=(UnreachableError,),
        looked=telemetry.refresh,
        layout=layout,
        program=(edgegpu,),
        proxy=proxy,
        proc=layout.at("/proc"),
        most_mib=max_mib,
    )
    of_limits: Settler = NoAccount(layout) if limits is None else limits.settler
    return Abilities(
        acts=acts(box),
        settlers={**standard_settlers(box), AppLimitsItem: of_limits},
        sharing=SharingOfBox(layout),
        telemetry=telemetry,
        versions=telemetry.versions,
        stopping=stop,
        clean=partial(cleaned, redactor=box.redactor),
        tasks=lambda board: [] if limits is None else limits.tasks(board),
        limits_trouble=lambda: "" if limits is None else limits.trouble,
        lacks=lambda: () if limits is not None and limits.able else (APP_LIMITS,),
    )
