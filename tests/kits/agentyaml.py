"""The agent's configuration as an installation writes it."""

from __future__ import annotations

from edgegpu_installer.plan.agent_config import agent_yaml
from edgegpu_installer.plan.site import InstallOptions


def written(url: str, ca_sha256: str = "") -> str:
    """Return the text of a file with nothing but the cloud."""
    text = agent_yaml(None, InstallOptions(cloud=url, ca_sha256=ca_sha256))
    assert text is not None
    return text
