"""Every path that edgegpu uses on a box, on the box itself and below this process's root."""

from dataclasses import dataclass
from pathlib import Path

OPT = "/opt/edgegpu"
CURRENT = "/opt/edgegpu/current"
"""The link to the version in use."""
COMMAND = "/usr/local/bin/edgegpu"
ETC = "/etc/edgegpu"
PLUGIN_YAML = "/etc/edgegpu/plugin.yaml"
KUBECONFIG = "/etc/edgegpu/kubeconfig"
LIMITS_KUBECONFIG = "/etc/edgegpu/limits-kubeconfig"
"""The kubeconfig of the account for app limits, which the agent uses."""
EXTENDER = "/etc/edgegpu/extender"
EXTENDER_CA = "/etc/edgegpu/extender/ca.crt"
EXTENDER_CERT = "/etc/edgegpu/extender/server.crt"
EXTENDER_KEY = "/etc/edgegpu/extender/server.key"
AGENT_YAML = "/etc/edgegpu/agent.yaml"
CLOUD_TOKEN = "/etc/edgegpu/cloud-token"  # noqa: S105  (a path)
STATE = "/var/lib/edgegpu"
TX = "/var/lib/edgegpu/tx"
BASELINE = "/var/lib/edgegpu/baseline"
RUN = "/run/edgegpu"
PLUGIN_SOCKET = "/run/edgegpu/plugin.sock"
LIB = "/usr/local/lib/edgegpu"
RECOVER = "/usr/local/lib/edgegpu/edgegpu-recover"
"""The program that undoes a change whose author died; it needs nothing below /opt."""
UNITS = "/etc/systemd/system"
WANTS = "/etc/systemd/system/multi-user.target.wants"
RUN_UNITS = "/run/systemd/system"
"""The folder of unit files that are lost at a boot; a file of the same name in UNITS wins (systemd.unit(5))."""
PLUGIN_UNIT, AGENT_UNIT, RECOVER_UNIT = "edgegpu-plugin.service", "edgegpu-agent.service", "edgegpu-recover.service"
UNIT_DROP_IN = "50-edgegpu.conf"
"""The drop-in of k3s's unit: it runs edgegpu-recover at every start."""
K3S_DROP_IN = "90-edgegpu.yaml"
"""The drop-in of k3s's configuration: it names the scheduler's file."""
SCHEDULER_YAML = "edgegpu-scheduler.yaml"

K3S_FOLDER = "/etc/rancher/k3s"
K3S_CONFIG = "/etc/rancher/k3s/config.yaml"
K3S_DATA = "/var/lib/rancher/k3s"
K3S_KUBECONFIG = "/etc/rancher/k3s/k3s.yaml"
KUBELET = "/var/lib/kubelet"


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of a box whose `/` is at `root`; in a test the root is a folder."""

    root: Path = Path("/")

    def at(self, path: str | Path) -> Path:
        """Return the path by which this process reaches a path of the box, without following links."""
        return self.root / str(path).lstrip("/")

    @property
    def opt(self) -> Path:
        """The folder of edgegpu's versions."""
        return self.at(OPT)

    @property
    def current(self) -> Path:
        """The link to the version in use."""
        return self.at(CURRENT)

    @property
    def etc(self) -> Path:
        """The folder of edgegpu's configuration."""
        return self.at(ETC)

    @property
    def plugin_yaml(self) -> Path:
        """The plugin's configuration."""
        return self.at(PLUGIN_YAML)

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of edgegpu's own account, 0600."""
        return self.at(KUBECONFIG)

    @property
    def agent_yaml(self) -> Path:
        """The agent's configuration: the cloud of the box."""
        return self.at(AGENT_YAML)

    @property
    def cloud_token(self) -> Path:
        """The token of the cloud link, 0600."""
        return self.at(CLOUD_TOKEN)

    @property
    def state(self) -> Path:
        """The folder of what edgegpu keeps over a boot."""
        return self.at(STATE)

    @property
    def tx(self) -> Path:
        """The folder with the journal of the last transaction, 0700."""
        return self.at(TX)

    @property
    def baseline(self) -> Path:
        """The folder with the state of each path before edgegpu first touched it, 0700."""
        return self.at(BASELINE)

    @property
    def run(self) -> Path:
        """The folder of what edgegpu keeps until the next boot."""
        return self.at(RUN)

    @property
    def plugin_socket(self) -> Path:
        """The socket on which the running plugin gives its status."""
        return self.at(PLUGIN_SOCKET)

    @property
    def units(self) -> Path:
        """The folder of the administrator's unit files."""
        return self.at(UNITS)

    @property
    def has_sharing(self) -> bool:
        """Whether GPU sharing is installed, which means that the plugin's unit file exists."""
        return (self.units / PLUGIN_UNIT).exists()

    def version(self, version: str) -> Path:
        """Return the folder of a version of edgegpu."""
        return self.at(f"{OPT}/{version}")


def unit_drop_in(unit: str) -> str:
    """Return the path of our drop-in for a service; the name has no `.service`, such as `k3s`."""
    return f"{UNITS}/{unit}.service.d/{UNIT_DROP_IN}"
