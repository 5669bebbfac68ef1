"""The agent's configuration file: its schema, and `load`, which reads it or reports all its problems."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StrictInt, StrictStr

from edgegpu_plugin.config import yaml_file
from edgegpu_plugin.config.types import AbsolutePath, Section, says
from edgegpu_sync.link.routes import proxy_of

_SHA256 = re.compile(r"[0-9a-f]{64}")
_URL = re.compile(r"https://[!-~]{1,500}")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_PROXY = re.compile(r"https?://[!-~]{1,500}")
_BROKER = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):([0-9]{1,5})")
_MOST_PORT = 65_535


def _url(text: str) -> str:
    if not _URL.fullmatch(text):
        raise ValueError("not an https address")
    return text.rstrip("/")


def _proxy(text: str) -> str:
    if text and not _PROXY.fullmatch(text):
        raise ValueError("not a proxy's address")
    try:
        proxy_of(text)
    except ValueError as error:
        raise ValueError("not a proxy's address") from error
    return text


def _broker(text: str) -> str:
    found = _BROKER.fullmatch(text)
    if text and (found is None or not 0 < int(found[2]) <= _MOST_PORT):
        raise ValueError("not HOST:PORT")
    return text


def _sha256(text: str) -> str:
    text = text.lower().replace(":", "")
    if text and not _SHA256.fullmatch(text):
        raise ValueError("not a SHA-256")
    return text


def _namespace(text: str) -> str:
    if text != "*" and (text == "kube-system" or not _NAMESPACE.fullmatch(text)):
        raise ValueError("not a namespace of apps")
    return text


class CloudSection(Section):
    """The cloud to which this box belongs."""

    url: Annotated[StrictStr, AfterValidator(_url), says("the cloud's address, https://HOST[:PORT][/FOLDER]")]
    ca_sha256: Annotated[
        StrictStr,
        AfterValidator(_sha256),
        says("the SHA-256 of the cloud's own CA as its install line has it, 64 hexadecimal digits"),
    ] = ""
    proxy: Annotated[
        StrictStr, AfterValidator(_proxy), says("the proxy to reach url by, http://HOST:PORT, or nothing")
    ] = ""
    broker: Annotated[
        StrictStr, AfterValidator(_broker), says("where the broker is found first, HOST:PORT, or nothing")
    ] = ""

    @property
    def broker_address(self) -> tuple[str, int] | None:
        """Host and port of `broker`; None where none is named."""
        host, colon, port = self.broker.rpartition(":")
        return (host.strip("[]"), int(port)) if colon else None


class MetricsSection(Section):
    """The settings of measurements."""

    period_s: Annotated[StrictInt, Field(ge=10, le=3_600), says("the seconds between two measurements, 10 to 3600")] = (
        60
    )


class UploadsSection(Section):
    """The limits of uploads by `logs.collect`."""

    max_mib: Annotated[StrictInt, Field(ge=1, le=1_024), says("the MiB of one archive at most, 1 to 1024")] = 64


class LimitsSection(Section):
    """The settings of app limits in the cluster."""

    kubeconfig: Annotated[AbsolutePath, says("the kubeconfig of the account for app limits, an absolute path")] = Path(
        "/etc/edgegpu/limits-kubeconfig"
    )
    namespaces: Annotated[
        tuple[Annotated[StrictStr, AfterValidator(_namespace)], ...],
        says("a list of namespaces where `edgegpu install` lets the cloud change apps' limits, * for all of them"),
    ] = ("*",)


class AgentConfig(Section):
    """The whole file; every section but `version` and `cloud` may be left out."""

    version: Annotated[Literal[1], says("1, the version of this file's form")]
    cloud: Annotated[CloudSection, says("a section with the key url below it")]
    metrics: MetricsSection = MetricsSection()
    uploads: UploadsSection = UploadsSection()
    limits: LimitsSection = LimitsSection()


def load(path: Path) -> AgentConfig:
    """Read the configuration file.

    Raises:
        ConfigError: one line for each problem: file, line, key, value, what is wrong, what would be right.
    """
    return yaml_file.load(path, AgentConfig)
