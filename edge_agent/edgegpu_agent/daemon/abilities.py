"""What this box can do: the acts and settlers that there are, each with what it needs of the machine."""

import threading

from edgegpu_agent.acts.standard import Box, acts, standard_settlers
from edgegpu_agent.daemon.boxlink import Abilities
from edgegpu_agent.identity.device import Identity
from edgegpu_agent.identity.errors import IdentityError, UnreachableError
from edgegpu_agent.identity.keeper import IdentityKeeper
from edgegpu_agent.telemetry.source import Telemetry
from edgegpu_installer.layout import Layout


def abilities(
    identity: Identity, *, layout: Layout, edgegpu: str, telemetry: Telemetry, keeper: IdentityKeeper
) -> Abilities:
    """Return them.

    Args:
        identity: this box.
        layout: where things are.
        edgegpu: the command line, which installs and examines.
        telemetry: what is seen of the box.
        keeper: renews the certificate.
    """
    stop = threading.Event()
    box = Box(
        stop=stop,
        identity=identity.folder,
        renew=keeper.renew,
        refusals=(IdentityError,),
        passing=(UnreachableError,),
        looked=telemetry.refresh,
        layout=layout,
        program=(edgegpu,),
        proc=layout.at("/proc"),
    )
    return Abilities(
        acts=acts(box),
        settlers=standard_settlers(box),
        telemetry=telemetry,
        versions=telemetry.versions,
        stopping=stop,
    )
