"""Shell completion of pods, namespaces, checks, policies and roles; empty where the plugin does not answer."""

from collections.abc import Iterable

import typer

from edgegpu_agent.cli.clients.document import PodRow
from edgegpu_agent.cli.clients.plugin import fetch_status, find_socket
from edgegpu_agent.cli.common import CliError

_PATIENCE_S = 1.0


def pods(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of pods that begin with `incomplete`, in the namespace that the command line names."""
    namespace = context.params.get("namespace") or ""
    return _begin(incomplete, (row.pod for row in _rows(context) if namespace in {"", row.namespace}))


def namespaces(context: typer.Context, incomplete: str) -> list[str]:
    """Return the namespaces that begin with `incomplete`, of the plugin's pods."""
    return _begin(incomplete, (row.namespace for row in _rows(context)))


def checks(incomplete: str) -> list[str]:
    """Return the names of the doctor's checks."""
    from edgegpu_installer.doctor.checks import CHECKS  # noqa: PLC0415  (slow to load)

    return _begin(incomplete, (check.name for check in CHECKS))


def policies(incomplete: str) -> list[str]:
    """Return the placement policies."""
    from edgegpu_core.placement import Policy  # noqa: PLC0415  (not for help)

    return _begin(incomplete, (policy.value for policy in Policy))


def roles(incomplete: str) -> list[str]:
    """Return the roles of a machine."""
    return _begin(incomplete, ("server", "agent", "extender-only"))


def switches(incomplete: str) -> list[str]:
    """Return the two states of a switch."""
    return _begin(incomplete, ("on", "off"))


def _rows(context: typer.Context) -> tuple[PodRow, ...]:
    try:
        path = find_socket(context.params.get("socket"), context.params.get("config"))
        document = fetch_status(path, timeout_s=_PATIENCE_S)
    except CliError:
        return ()
    return (*document.pods, *document.pending)


def _begin(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if name and name.startswith(incomplete)})
