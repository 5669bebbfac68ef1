"""What an installation is made of beside its plan: the accounts and certificates minted for this box, and the release."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import AGENT_UNIT, OPT, PLUGIN_UNIT, RECOVER_UNIT, Layout

_UNITS = (PLUGIN_UNIT, AGENT_UNIT, RECOVER_UNIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """Minted for one box; certificates and keys are PEM. Those of the extender are None on a node that has none."""

    kubeconfig: str = field(repr=False)
    ca: str | None = None
    server_cert: str | None = None
    server_key: str | None = field(default=None, repr=False)
    client_cert: str | None = None
    client_key: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    """Of the cloud link that follows; None where none was given."""


@dataclass(frozen=True, slots=True)
class Release:
    """One version under /opt/edgegpu; `units` by name, `recover` the program that needs nothing below /opt."""

    version: str
    units: Mapping[str, bytes]
    recover: bytes

    @property
    def folder(self) -> str:
        """Where it lies on the box."""
        return f"{OPT}/{self.version}"


def read_release(layout: Layout, version: str) -> Release:
    """Read what a plan takes out of a release.

    Raises:
        InstallError: something of it is not there.
    """
    folder = layout.version(version)
    try:
        units = {name: (folder / "systemd" / name).read_bytes() for name in _UNITS}
        recover = (folder / "installer/edgegpu-recover").read_bytes()
    except OSError as error:
        raise InstallError(
            f"cannot use the release {folder}: {error.filename}: {error.strerror}",
            remedy="unpack the bundle again: run install.sh once more",
        ) from error
    return Release(version, units, recover)
