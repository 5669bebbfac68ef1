"""The plugin's configuration as an installation writes it: without defaults; a person's settings stay."""

from dataclasses import dataclass
from typing import Any

import yaml

from edgegpu_core.model import ResourceModel
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import KUBECONFIG, KUBELET, PLUGIN_YAML, RUN, START_LINK, Layout
from edgegpu_installer.plan.site import InstallOptions, MachineRole, Site
from edgegpu_installer.scheduler.file import DEFAULT_LISTEN
from edgegpu_installer.scheduler.refs import ReadFile

_HEADER = """\
# /etc/edgegpu/plugin.yaml, written by `edgegpu install`: what is not here has its default (edgegpu config check).
# Yours to edit: a later install changes only what it is asked to. A change counts after
# `systemctl restart edgegpu-plugin`.
"""
_MODEL = ResourceModel()
_DEFAULTS: dict[str, Any] = {
    "placement.policy": "first-fit",
    "placement.exclude": [],
    "resources.unit_mib": 256,
    "resources.reserve_mib": 0,
    "driver.root": "/",
    "driver.containerd_config": "auto",
    "kubelet.folder": KUBELET,
    "kubelet.resolv_conf": "auto",
    "kubelet.wait_at_start": True,
    "kubernetes.kubeconfig": KUBECONFIG,
}
"""The defaults, which need not be written, as in docs/examples/plugin.yaml.

The mode of isolation is not here: who chooses one keeps it when a later version has another default."""


def plugin_yaml(
    existing: str | None, *, site: Site, options: InstallOptions, role: MachineRole, read_file: ReadFile
) -> str:
    """Return the configuration's text; the same bytes when the existing one already has the wanted settings.

    A `containerd_config` whose file is gone gives way: an installation may have written it before k3s was moved.

    Raises:
        InstallError: the existing configuration is not a mapping of sections.
    """
    now = _read(existing)
    wanted: dict[str, Any] = {"version": 1, "node_name": site.node_name, "role": role.value, **_without_ours(now)}
    asked: dict[str, Any] = {
        "placement.policy": options.policy,
        "placement.exclude": None if options.exclude is None else list(options.exclude),
        "resources.unit_mib": options.unit_mib,
        "resources.reserve_mib": options.reserve_mib,
        "isolation.mode": options.isolation,
        "driver.root": options.driver_root,
        "kubelet.folder": site.kubelet_folder,
        **_start_wait(options),
    }
    driver = now.get("driver") or {}
    named = driver.get("containerd_config")
    if "containerd_config" not in driver or (str(named).startswith("/") and read_file(str(named)) is None):
        asked["driver.containerd_config"] = site.containerd_config or "auto"
    for key, value in asked.items():
        if value is not None:
            _set(wanted, key, value)
    if existing is not None and wanted == now:
        return existing
    return _HEADER + yaml.safe_dump(wanted, sort_keys=False, default_flow_style=False)


def _start_wait(options: InstallOptions) -> dict[str, Any]:
    """Return the settings of the wait at kubelet's start; nothing where they stay as they are."""
    match options.wait_at_start:
        case None:
            return {}
        case True:
            return {"kubelet.resolv_conf": START_LINK, "kubelet.wait_at_start": True}
        case False:
            return {"kubelet.resolv_conf": "auto"}


def _without_ours(now: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in now.items() if key not in {"version", "node_name", "role"}}


def _read(text: str | None) -> dict[str, Any]:
    try:
        value = yaml.safe_load(text or "{}") or {}
    except (yaml.YAMLError, RecursionError) as error:
        raise InstallError(
            f"cannot keep the settings of {PLUGIN_YAML}: it is not YAML",
            f"edgegpu config check, or remove {PLUGIN_YAML}",
        ) from error
    sections = isinstance(value, dict) and all(
        part is None or isinstance(part, dict) or name in {"version", "node_name", "role", "log_level"}
        for name, part in value.items()
    )
    if not sections:
        raise InstallError(
            f"cannot keep the settings of {PLUGIN_YAML}: it does not consist of sections",
            f"edgegpu config check, or remove {PLUGIN_YAML}",
        )
    return dict(value)


def _set(config: dict[str, Any], key: str, value: object) -> None:
    """Set one key of a section; a default is not added, and no empty section is left."""
    section, _, name = key.partition(".")
    part = dict(config.get(section) or {})
    if key in _DEFAULTS and value == _DEFAULTS[key]:
        part.pop(name, None)
    else:
        part[name] = value
    if part:
        config[section] = part
    elif section in config:
        del config[section]


def resource_model(existing: str | None) -> ResourceModel:
    """Return names and sizes of the resources that a configuration offers; defaults for what it does not set.

    Raises:
        InstallError: the existing configuration is not a mapping of sections.
    """
    asked = dict(_read(existing).get("resources") or {})
    return ResourceModel(
        memory_resource=str(asked.get("memory", _MODEL.memory_resource)),
        core_resource=str(asked.get("core", _MODEL.core_resource)),
    )


def unit_mib(existing: str | None) -> int:
    """Return the MiB of a unit in a configuration; the default when it is not set.

    Raises:
        InstallError: the existing configuration is not a mapping of sections.
    """
    found = dict(_read(existing).get("resources") or {}).get("unit_mib")
    return found if isinstance(found, int) else _MODEL.unit_mib


def resolv_conf(existing: str | None) -> str:
    """Return the resolv.conf at which kubelet waits, as a configuration has it; empty when it is not set.

    Raises:
        InstallError: the existing configuration is not a mapping of sections.
    """
    found = (_read(existing).get("kubelet") or {}).get("resolv_conf")
    return "" if found in {None, "auto"} else str(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginPaths:
    """The extender's address of a configuration, and the folders that the plugin writes to."""

    listen: str
    cdi_folder: str
    run: str


def places(existing: str | None) -> PluginPaths:
    """Return the extender's address and the folders of a configuration; defaults for what it does not set.

    Raises:
        InstallError: the existing configuration is not a mapping of sections.
    """
    config = _read(existing)

    def at(section: str, key: str, default: str) -> str:
        return str((config.get(section) or {}).get(key) or default)

    return PluginPaths(
        listen=at("extender", "listen", DEFAULT_LISTEN),
        cdi_folder=at("driver", "cdi_folder", "/var/run/cdi"),
        run=at("paths", "run", RUN),
    )


def configured_model(layout: Layout) -> ResourceModel:
    """Return names and sizes of the resources that this machine's configuration offers; the defaults without one."""
    path = layout.at(PLUGIN_YAML)
    return resource_model(path.read_text() if path.exists() else None)
