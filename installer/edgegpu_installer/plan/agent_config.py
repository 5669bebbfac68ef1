"""The agent's configuration as an installation writes it: where the box belongs; what a person wrote besides stays."""

from typing import Any

import yaml

from edgegpu_installer.cluster.app_limits_account import EVERYWHERE
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import AGENT_YAML, LIMITS_KUBECONFIG
from edgegpu_installer.plan.site import InstallOptions

_HEADER = "# Where this box belongs; read by edgegpu-agent.\n"
_RIGHT = f"put {AGENT_YAML} right, or remove it"


def agent_yaml(existing: str | None, options: InstallOptions) -> str | None:
    """Return the configuration's text; None where no cloud was named, the same bytes where it stands there already.

    The authority's SHA-256 is the cloud's: without one, it is kept for the same address and goes with another.

    Raises:
        InstallError: what is there has no sections that could be kept.
    """
    chosen, proxy = options.limits_namespaces, options.proxy
    if not options.cloud and chosen is None and proxy is None:
        return None
    now = _read(existing)
    cloud = _section(now, "cloud")
    if not options.cloud and chosen is None and not cloud.get("url"):
        return None  # a proxy, and nowhere to go
    if options.cloud and cloud.get("url") != options.cloud:
        cloud.pop("ca_sha256", None)
    if options.cloud:
        cloud |= {"url": options.cloud, **({"ca_sha256": options.ca_sha256} if options.ca_sha256 else {})}
    if proxy is not None:
        cloud.pop("proxy", None)
        cloud |= {"proxy": proxy} if proxy else {}
    wanted = {"version": 1, **now, "cloud": cloud}
    if chosen is not None:
        wanted["limits"] = {**_section(now, "limits"), "namespaces": list(chosen)}
    if existing is not None and wanted == now:
        return existing
    return _HEADER + yaml.safe_dump(wanted, sort_keys=False, default_flow_style=False)


def holds_secret(text: str) -> bool:
    """Say whether a configuration holds a password: that of the proxy."""
    return "@" in str(_section(_read(text), "cloud").get("proxy", ""))


def limits_namespaces(existing: str | None, options: InstallOptions) -> tuple[str, ...] | None:
    """Return where apps' limits may be changed once this is installed; None where the machine belongs to no cloud.

    Raises:
        InstallError: what is there has no sections.
    """
    now = _read(existing)
    if not options.cloud and not _section(now, "cloud").get("url"):
        return None
    if options.limits_namespaces is not None:
        return options.limits_namespaces
    section = _section(now, "limits")
    if section.get("kubeconfig", LIMITS_KUBECONFIG) != LIMITS_KUBECONFIG:
        return None  # an account that somebody else has made
    found = section.get("namespaces", [EVERYWHERE])
    return tuple(str(one) for one in found) if isinstance(found, list) else (EVERYWHERE,)


def refuse_homeless(options: InstallOptions, *, belongs: bool) -> None:
    """Refuse what leads nowhere: a token, or an authority, and no cloud that it is for; `belongs`: one stands there.

    Raises:
        InstallError: that.
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
        raise InstallError(f"cannot keep the settings of {AGENT_YAML}: it is no YAML", _RIGHT) from error
    if not isinstance(value, dict):
        raise InstallError(f"cannot keep the settings of {AGENT_YAML}: it does not consist of sections", _RIGHT)
    return dict(value)


def _section(config: dict[str, Any], name: str) -> dict[str, Any]:
    value = config.get(name)
    return dict(value) if isinstance(value, dict) else {}
