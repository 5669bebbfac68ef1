"""The agent's configuration as an installation writes it: the cloud of the box; a person's other settings stay."""

from typing import Any

import yaml

from edgegpu_installer.cluster.app_limits_account import EVERYWHERE
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import AGENT_YAML, LIMITS_KUBECONFIG
from edgegpu_installer.plan.site import InstallOptions

_HEADER = "# Where this box belongs; read by edgegpu-agent.\n"
_RIGHT = f"put {AGENT_YAML} right, or remove it"


def agent_yaml(existing: str | None, options: InstallOptions) -> str | None:
    """Return the configuration's text; None when there is nothing to write, the same bytes when nothing changes.

    The SHA-256 belongs to the cloud's CA: when the options have none, it is kept for the same address only.

    Raises:
        InstallError: the existing file is not a mapping of sections.
    """
    chosen = options.limits_namespaces
    ways = {name: value for name, value in (("proxy", options.proxy), ("broker", options.broker)) if value is not None}
    if not options.cloud and chosen is None and not ways:
        return None
    now = _read(existing)
    cloud = _section(now, "cloud")
    if not options.cloud and chosen is None and not cloud.get("url"):
        return None  # a proxy or a broker, and no cloud to reach
    if options.cloud and cloud.get("url") != options.cloud:
        cloud.pop("ca_sha256", None)
    if options.cloud:
        cloud |= {"url": options.cloud, **({"ca_sha256": options.ca_sha256} if options.ca_sha256 else {})}
    for name, value in ways.items():
        cloud.pop(name, None)
        cloud |= {name: value} if value else {}
    wanted = {"version": 1, **now, "cloud": cloud}
    if chosen is not None:
        wanted["limits"] = {**_section(now, "limits"), "namespaces": list(chosen)}
    if existing is not None and wanted == now:
        return existing
    return _HEADER + yaml.safe_dump(wanted, sort_keys=False, default_flow_style=False)


def holds_secret(text: str) -> bool:
    """Return whether a configuration holds a password, which only the proxy can have."""
    return "@" in str(_section(_read(text), "cloud").get("proxy", ""))


def limits_namespaces(existing: str | None, options: InstallOptions) -> tuple[str, ...] | None:
    """Return the namespaces in which the cloud may change app limits; None when the machine belongs to no cloud.

    Raises:
        InstallError: the existing file has no sections.
    """
    now = _read(existing)
    if not options.cloud and not _section(now, "cloud").get("url"):
        return None
    if options.limits_namespaces is not None:
        return options.limits_namespaces
    section = _section(now, "limits")
    if section.get("kubeconfig", LIMITS_KUBECONFIG) != LIMITS_KUBECONFIG:
        return None  # the account was made by somebody else
    found = section.get("namespaces", [EVERYWHERE])
    return tuple(str(one) for one in found) if isinstance(found, list) else (EVERYWHERE,)


def refuse_homeless(options: InstallOptions, *, belongs: bool) -> None:
    """Refuse a token or a CA's hash without a cloud; `belongs` says that the configuration already names a cloud.

    Raises:
        InstallError: there is no cloud for the token or the hash.
    """
    if options.cloud:
        return
    remedy = (
        "add --cloud https://HOST, and --ca-sha256 where it has one of its own: both are in the line that it prints"
    )
    if options.ca_sha256:
        raise InstallError("cannot install with --ca-sha256 alone: it is a cloud's", remedy)
    if options.limits_namespaces is not None and not belongs:
        raise InstallError("cannot allow app limits: this box belongs to no cloud that would set them", remedy)
    if options.token and not belongs:
        raise InstallError("cannot enrol with this token: no cloud is named, and this box belongs to none", remedy)


def _read(text: str | None) -> dict[str, Any]:
    try:
        value = yaml.safe_load(text or "{}") or {}
    except yaml.YAMLError as error:
        raise InstallError(f"cannot keep the settings of {AGENT_YAML}: it is not YAML", _RIGHT) from error
    if not isinstance(value, dict):
        raise InstallError(f"cannot keep the settings of {AGENT_YAML}: it does not consist of sections", _RIGHT)
    return dict(value)


def _section(config: dict[str, Any], name: str) -> dict[str, Any]:
    value = config.get(name)
    return dict(value) if isinstance(value, dict) else {}
