"""The agent's configuration as an installation writes it: where the box belongs; what a person wrote besides stays."""

from typing import Any

import yaml

from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import AGENT_YAML
from edgegpu_installer.site import Options

_HEADER = "# Where this box belongs; read by edgegpu-agent.\n"
_RIGHT = f"put {AGENT_YAML} right, or remove it"


def agent_yaml(existing: str | None, options: Options) -> str | None:
    """Return the configuration's text; None where no cloud was named, the same bytes where it stands there already.

    The authority's SHA-256 is the cloud's: without one, it is kept for the same address and goes with another.

    Raises:
        InstallError: what is there has no sections that could be kept.
    """
    if not options.cloud:
        return None
    now = _read(existing)
    before = now.get("cloud")
    cloud: dict[str, Any] = dict(before) if isinstance(before, dict) else {}
    if cloud.get("url") != options.cloud:
        cloud.pop("ca_sha256", None)
    cloud = {**cloud, "url": options.cloud, **({"ca_sha256": options.ca_sha256} if options.ca_sha256 else {})}
    wanted = {"version": 1, **now, "cloud": cloud}
    if existing is not None and wanted == now:
        return existing
    return _HEADER + yaml.safe_dump(wanted, sort_keys=False, default_flow_style=False)


def refuse_homeless(options: Options, *, belongs: bool) -> None:
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
