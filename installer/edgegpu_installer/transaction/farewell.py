"""What an uninstall leaves until kubelet forgets the resources: the program edgegpu-farewell, its unit, its file."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from edgegpu_core.model import ResourceModel
from edgegpu_installer.changes import FileChange
from edgegpu_installer.layout import LIB, RUN, UNITS, WANTS

UNIT = "edgegpu-farewell.service"
PROGRAM = f"{LIB}/edgegpu-farewell"
CONF = f"{LIB}/farewell.conf"
UNIT_FILE = f"{UNITS}/{UNIT}"
LINK = f"{WANTS}/{UNIT}"
PASSING = frozenset({PROGRAM, CONF, UNIT_FILE, LINK})
"""The files that edgegpu-farewell removes itself, so that no baseline is needed for them."""

CDI_FILE = "edgegpu.json"
CDI_SPEC = f"/var/run/cdi/{CDI_FILE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Farewell:
    """The settings of edgegpu-farewell: what it has to clean up.

    `kubeconfig` is kubelet's own (k3s: DATA/agent/kubelet.kubeconfig; kubeadm: /etc/kubernetes/kubelet.conf). `folders`
    were made by edgegpu; they are removed when they are empty, inner ones first. /usr/local/lib/edgegpu always goes.
    """

    node: str
    kubeconfig: str
    model: ResourceModel
    cdi_spec: str = CDI_SPEC
    run: str = RUN
    folders: tuple[str, ...] = ()


def conf(farewell: Farewell) -> str:
    """Return the text of farewell.conf, which a shell reads."""
    values = {
        "NODE": farewell.node,
        "RESOURCES": " ".join(_names(farewell.model)),
        "KUBECONFIG": farewell.kubeconfig,
        "CDI_SPEC": farewell.cdi_spec,
        "RUN_FOLDER": farewell.run,
        "FOLDERS": " ".join(farewell.folders),
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def files(farewell: Farewell, *, program: bytes, unit: bytes) -> tuple[FileChange, ...]:
    """Return the files that an uninstall puts in place; `UNIT` is to be started after them.

    Args:
        farewell: the settings.
        program: the release's installer/edgegpu-farewell.
        unit: the release's systemd/edgegpu-farewell.service.
    """
    return (
        FileChange(CONF, conf(farewell).encode()),
        FileChange(PROGRAM, program, mode=0o755),
        FileChange(UNIT_FILE, unit),
        FileChange(LINK, link_to=UNIT_FILE),
    )


def _names(model: ResourceModel) -> Iterable[str]:
    return dict.fromkeys((model.memory_resource, model.core_resource))
