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
START_LINK = "/var/lib/edgegpu/kubelet-resolv.conf"
"""The link to the machine's resolv.conf that kubelet alone reads, and waits at when it starts."""
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
SELFTEST_UNIT = "edgegpu-selftest.service"
"""The unit that tries the limiter; the plugin starts it, and nothing enables it."""
MPS_UNIT = "edgegpu-mps.service"
"""The control daemon of NVIDIA MPS. The plugin's unit wants it; no change of the machine restarts it."""
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
DEVICE_PLUGINS = f"{KUBELET}/device-plugins"
"""The folder of the device plugins' sockets and of kubelet's checkpoint: a constant of kubelet's."""


@dataclass(frozen=True, slots=True)
class _BoxPath:
    """A path of the box that a Layout gives as this process reaches it."""

    path: str

    def __get__(self, layout: "Layout", _owner: type["Layout"]) -> Path:
        return layout.at(self.path)


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of a box whose `/` is at `root`; in a test the root is a folder."""

    root: Path = Path("/")

    opt = _BoxPath(OPT)
    """The folder of edgegpu's versions."""
    current = _BoxPath(CURRENT)
    """The link to the version in use."""
    etc = _BoxPath(ETC)
    """The folder of edgegpu's configuration."""
    plugin_yaml = _BoxPath(PLUGIN_YAML)
    """The plugin's configuration."""
    kubeconfig = _BoxPath(KUBECONFIG)
    """The kubeconfig of edgegpu's own account, 0600."""
    agent_yaml = _BoxPath(AGENT_YAML)
    """The agent's configuration: the cloud of the box."""
    cloud_token = _BoxPath(CLOUD_TOKEN)
    """The token of the cloud link, 0600."""
    state = _BoxPath(STATE)
    """The folder of what edgegpu keeps over a boot."""
    tx = _BoxPath(TX)
    """The folder with the journal of the last transaction, 0700."""
    baseline = _BoxPath(BASELINE)
    """The folder with the state of each path before edgegpu first touched it, 0700."""
    run = _BoxPath(RUN)
    """The folder of what edgegpu keeps until the next boot."""
    plugin_socket = _BoxPath(PLUGIN_SOCKET)
    """The socket on which the running plugin gives its status."""
    units = _BoxPath(UNITS)
    """The folder of the administrator's unit files."""

    def at(self, path: str | Path) -> Path:
        """Return the path by which this process reaches a path of the box, without following links."""
        return self.root / str(path).lstrip("/")

    def read(self, path: str) -> bytes | None:
        """Return the content of a file of the box; None when it cannot be read."""
        try:
            return self.at(path).read_bytes()
        except OSError:
            return None

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
