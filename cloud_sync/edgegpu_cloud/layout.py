"""The controller's folder: the path of each file, and its configuration file `controller.yaml`."""

import os
import re
from collections.abc import Hashable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.ownership import open_regular, remedy_for

DEFAULT_FOLDER = Path("/var/lib/edgegpu-cloud")

Port = Annotated[int, Field(ge=1, le=65_535)]
ListenPort = Annotated[int, Field(ge=0, le=65_535)]
AuthorityName = Literal["boxes", "controllers", "servers"]
CertificateName = Literal["https", "broker", "controller"]


def _host(text: str) -> str:
    """Refuse what is neither a host name nor an address; a text with a port, or of digits alone, is no host name."""
    if ":" in text or not text.strip("0123456789."):
        try:
            ip_address(text)
        except ValueError as error:
            raise ValueError(f"{text!r} is not a host name or an address (without port and https://)") from error
    elif len(text) > _HOST_LENGTH or not _HOST.fullmatch(text):
        raise ValueError(f"{text!r} is not a host name or an address (without port and https://)")
    return text


_HOST_LENGTH = 253
_HOST = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*")
Host = Annotated[str, AfterValidator(_host)]
Days = Annotated[int, Field(ge=1, le=36_500)]


@dataclass(frozen=True, slots=True)
class CloudLayout:
    """The paths below the controller's folder; folders with keys are 0700, keys 0600."""

    folder: Path

    @property
    def config(self) -> Path:
        """The file that a person edits: `CloudConfig`."""
        return self.folder / "controller.yaml"

    @property
    def database(self) -> Path:
        """Return the path of the store's SQLite file."""
        return self.folder / "controller.db"

    @property
    def keys(self) -> Path:
        """The folder of the keys that sign messages and key sets."""
        return self.folder / "keys"

    @property
    def signing_key(self) -> Path:
        """The Ed25519 key of this controller, PEM (PKCS #8): it signs what goes down to boxes."""
        return self.keys / "signing.key"

    @property
    def root_key(self) -> Path:
        """The Ed25519 root key, PEM; absent where it is kept offline, as it should be."""
        return self.keys / "root.key"

    @property
    def root_public(self) -> Path:
        """The root's public key as boxes pin it: 43 characters of base64url."""
        return self.keys / "root.pub"

    @property
    def ca(self) -> Path:
        """The folder of the certificate authorities: `{name}.crt`, `{name}.key` of boxes, controllers, servers."""
        return self.folder / "ca"

    def ca_cert(self, name: AuthorityName) -> Path:
        """The certificate of an authority; that of `servers` signs broker and HTTPS, and boxes pin it."""
        return self.ca / f"{name}.crt"

    def ca_key(self, name: AuthorityName) -> Path:
        """The private key of an authority."""
        return self.ca / f"{name}.key"

    @property
    def crl(self) -> Path:
        """The list of boxes' certificates that are revoked, for the broker."""
        return self.ca / "boxes.crl"

    @property
    def tls(self) -> Path:
        """The folder of the certificates that processes present: `{name}.crt`, `{name}.key`."""
        return self.folder / "tls"

    def cert(self, name: CertificateName) -> Path:
        """A certificate with its chain; `controller` is the one that this controller presents to the broker."""
        return self.tls / f"{name}.crt"

    def key(self, name: CertificateName) -> Path:
        """The private key of a certificate."""
        return self.tls / f"{name}.key"

    @property
    def release(self) -> Path:
        """The folder of what boxes download: install.sh, the bundle, its checksums."""
        return self.folder / "release"

    @property
    def broker(self) -> Path:
        """The folder of the broker's own files, where it runs beside the controller."""
        return self.folder / "broker"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class BrokerConfig(_Section):
    """The broker's address: boxes reach it at `port`, controllers at `controller_port`, a listener with its own CA."""

    host: Host = "127.0.0.1"
    port: Port = 8883
    controller_port: Port = 8884
    watch_drops: bool = True
    """Whether the broker counts the messages that it drops, as mosquitto does, and lets a controller read the count."""


class HttpsConfig(_Section):
    """The HTTPS service: it listens on `host` and `port`; boxes reach it by `url` (made of names[0] if empty)."""

    host: Host = "0.0.0.0"  # noqa: S104  (boxes come from anywhere)
    port: ListenPort = 8443
    url: Annotated[str, Field(pattern=r"^(https://[!-~]{1,200})?$")] = ""


class CertificateConfig(_Section):
    """The lifetimes of certificates."""

    box_days: Days = 365
    server_days: Days = 825
    ca_days: Days = 7_300


class TokenConfig(_Section):
    """The defaults of one-time tokens."""

    lasts_s: Annotated[int, Field(ge=60, le=31_536_000)] = 3_600
    uses: Annotated[int, Field(ge=1, le=100_000)] = 1
    approval: bool = False


class CloudConfig(_Section):
    """The content of `controller.yaml`; only `version` is required. `names` are what servers' certificates are for."""

    version: Literal[1]
    names: Annotated[tuple[Host, ...], Field(max_length=32)] = ("localhost", "127.0.0.1")
    controller: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}$")] = "1"
    """The certificate name and client-id at the broker is `controller-` followed by this."""
    broker: BrokerConfig = BrokerConfig()
    https: HttpsConfig = HttpsConfig()
    certificates: CertificateConfig = CertificateConfig()
    tokens: TokenConfig = TokenConfig()
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @model_validator(mode="after")
    def _apart(self) -> Self:
        """Refuse two listeners on one port; HTTPS may use a port of the broker where that is another machine."""
        broker, https = self.broker, self.https.port
        if broker.port == broker.controller_port:
            raise ValueError(f"broker.port and broker.controller_port are both {broker.port}: give each its own")
        if broker.host in self.names and https in {broker.port, broker.controller_port}:
            raise ValueError(f"https.port and a port of the broker are both {https}: give each its own")
        return self

    @property
    def controller_name(self) -> str:
        """Certificate name and client-id of this controller."""
        return f"controller-{self.controller}"


class _Once(yaml.SafeLoader):
    """A YAML loader that refuses a key given twice, of which the last would be taken without a warning."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
        names = [key.value for key, _ in node.value]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"{', '.join(twice)} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


def load(path: Path) -> CloudConfig:
    """Read `controller.yaml`.

    Raises:
        CloudError: missing, unreadable, no YAML, or a value that cannot be; the text names each key.
    """
    try:
        value = yaml.load(_text(path), _Once)  # noqa: S506  (a safe loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        words = " ".join(str(error).split())
        raise CloudError(f"cannot read {path}: {words}", remedy=_remedy(path, error)) from error
    try:
        return CloudConfig.model_validate(value)
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, one['loc'])) or 'the file'}: {one['msg']}" for one in error.errors())
        raise CloudError(f"cannot use {path}: {'; '.join(wrong)}", remedy="correct these keys") from error


def _text(path: Path) -> str:
    with os.fdopen(open_regular(path, os.O_RDONLY), encoding="utf-8") as file:
        return file.read()


def _remedy(path: Path, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "`edgegpu-cloud init` makes a controller; or name the right --folder (or EDGEGPU_CLOUD)"
    if isinstance(error, PermissionError):
        return remedy_for(path)
    return "put it right: it is YAML, `key: value`, sections two spaces in (docs/cloud/configure.md has each key)"


def dump(config: CloudConfig) -> str:
    """Return a configuration as the text of `controller.yaml`, which `load` reads back."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
