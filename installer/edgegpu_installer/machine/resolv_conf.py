"""The resolv.conf that k3s gives kubelet for the pods that get the machine's DNS: its own choice, and an operator's.

Source: k3s, `pkg/agent/config/config.go` (`locateOrGenerateResolvConf`, `isValidNameserver`): the first of two files
whose nameservers all are of use in a pod. Where neither fits k3s writes a file that names 8.8.8.8. What kubelet itself
is told, by `--kubelet-arg` or a file of its settings, counts more than what k3s tells it.
"""

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from edgegpu_installer.layout import START_LINK, Layout
from edgegpu_installer.machine.k3s import K3s
from edgegpu_installer.machine.k3s_config import ConfigValue

RESOLV_CONF = "resolv-conf"
"""The flag of k3s, and kubelet's as well."""

_CHOICES = ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")
_NAMESERVER = re.compile(r"^nameserver\s+(\S*)", re.MULTILINE)
_METADATA_SERVICE = ipaddress.ip_address("169.254.169.254")
"""The metadata service of clouds: k3s takes its address for a nameserver's, although it is link-local."""
_BROADCAST = ipaddress.ip_address("255.255.255.255")
_SETTING = "resolvConf"
"""The name of kubelet's setting in a file."""
_OF_K3S = "00-k3s-defaults.conf"
"""The file of kubelet's settings that k3s writes at its start (1.32 and newer)."""


@dataclass(frozen=True, slots=True)
class PodResolvConf:
    """The resolv.conf of a node's kubelet, without edgegpu's line in k3s's configuration."""

    choice: str = ""
    """The file that k3s chooses by itself; empty where it would write one of its own."""
    operator: tuple[ConfigValue, ...] = ()
    """What an operator has set, each with its source."""
    link_to: str = ""
    """Where edgegpu's link leads now; empty without it."""


def read_resolv_conf(layout: Layout, k3s: K3s) -> PodResolvConf:
    """Return which resolv.conf k3s gives kubelet; files that cannot be read are left out."""
    fitting = (path for path in _CHOICES if fits_pods(_text(layout, path)))
    link = layout.at(START_LINK)
    return PodResolvConf(
        choice=next(fitting, ""),
        operator=tuple(_operators(layout, k3s)),
        link_to=str(link.readlink()) if link.is_symlink() else "",
    )


def fits_pods(text: str) -> bool:
    """Return whether k3s takes a resolv.conf for pods: it has a nameserver, and each is one that a pod reaches."""
    servers = _NAMESERVER.findall(text)
    return bool(servers) and all(_is_reached(server) for server in servers)


def _is_reached(server: str) -> bool:
    """Return what Go's IsGlobalUnicast says, or whether it is the metadata service."""
    try:
        address = ipaddress.ip_address(server)
    except ValueError:
        return False
    inner = getattr(address, "ipv4_mapped", None) or address
    special = inner.is_unspecified or inner.is_loopback or inner.is_multicast or inner.is_link_local
    return inner == _METADATA_SERVICE or not (special or inner == _BROADCAST)


def _operators(layout: Layout, k3s: K3s) -> Iterator[ConfigValue]:
    flags = k3s.effective(without_ours=True)
    yield from flags.values(RESOLV_CONF)
    files = []
    for value in flags.values("kubelet-arg"):
        name, _, text = value.text.lstrip("-").partition("=")
        if name == RESOLV_CONF:
            yield ConfigValue(text, value.source)
        elif name == "config":
            files.append(text)
        elif name == "config-dir":
            files += _settings_files(layout, text)
    for path in dict.fromkeys([*files, *_settings_files(layout, f"{k3s.data}/agent/etc/kubelet.conf.d")]):
        if text := _setting(_text(layout, path)):
            yield ConfigValue(text, path)


def _settings_files(layout: Layout, folder: str) -> list[str]:
    """Return the files of kubelet's settings below a folder, without the one that k3s writes."""
    found = sorted(layout.at(folder).glob("**/*.conf"))
    return [f"/{path.relative_to(layout.root)}" for path in found if path.name != _OF_K3S]


def _setting(text: str) -> str:
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError:
        return ""
    return str(document.get(_SETTING) or "") if isinstance(document, dict) else ""


def _text(layout: Layout, path: str) -> str:
    return (layout.read(path) or b"").decode(errors="replace")
