"""The controller's folder: the path of each file, and its configuration file `controller.yaml`."""

import os
import re
import stat
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import quote, urlsplit, urlunsplit

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.numbers import is_number
from edgegpu_cloud.ownership import account, open_regular, remedy_for
from edgegpu_cloud.yaml_file import Form, explain, parse, place

DEFAULT_FOLDER = Path("/var/lib/edgegpu-cloud")

Port = Annotated[int, Field(ge=1, le=65_535)]
ListenPort = Annotated[int, Field(ge=0, le=65_535)]
AuthorityName = Literal["boxes", "controllers", "servers"]
CertificateName = Literal["https", "broker", "controller", "console"]


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


def _receiver(url: str) -> str:
    """Refuse an address that no message can be sent to; what is said of it has no path, which may be a secret."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError as error:
        raise ValueError("this is not a URL: [ and ] stand around an IPv6 address") from error
    try:
        _host(host.removesuffix("."))
    except ValueError as error:
        raise ValueError(f"{host!r} is not a host name or an address") from error
    try:
        usable = parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(f"the port of {host} is not a number from 1 to 65535")
    return url


def _host_port(text: str) -> str:
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if text and (not is_number(port, digits=_PORT_DIGITS) or not 0 < int(port) <= _MOST_PORT):
        raise ValueError(f"{text!r} is not HOST:PORT")
    if text:
        _host(bare)
        if (":" in bare) != (host != bare):
            raise ValueError(f"{text!r} is not HOST:PORT, or [HOST]:PORT for an IPv6 address")
    return text


_PORT_DIGITS, _MOST_PORT = 5, 65_535
_HOST_LENGTH = 253
_HOST = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*")
Host = Annotated[str, AfterValidator(_host)]
HostPort = Annotated[str, AfterValidator(_host_port)]
Days = Annotated[int, Field(ge=1, le=36_500)]
HttpsUrl = Annotated[str, Form(r"^(https://[!-~]{1,200})?$", "https://HOST or https://HOST:PORT")]
DatabaseUrl = Annotated[str, Form(r"^(postgresql(\+psycopg)?://[!-~]{1,1000})?$", "postgresql://USER@HOST/DATABASE")]
AbsolutePath = Annotated[str, Form(r"^(/.{1,4000})?$", "an absolute path, /DIRECTORY/FILE")]
ControllerWord = Annotated[str, Form(r"^[a-z0-9-]{1,40}$", "small letters, digits and -, 40 at most")]


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
        """Return the path of the store's SQLite file; it is not there where the configuration names a PostgreSQL."""
        return self.folder / "controller.db"

    @property
    def database_dump(self) -> Path:
        """The copy of a store in PostgreSQL, where a backup was unpacked: `pg_restore` reads it."""
        return self.folder / "controller.pgdump"

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
    boxes_address: HostPort = ""
    """Where boxes reach it, HOST:PORT, if that is not `host` and `port`: what passes on their connections."""
    watch_drops: bool = True
    """Whether the broker counts the messages that it drops, as mosquitto does, and lets a controller read the count."""
    guard: AbsolutePath = ""
    """The absolute path of the plugin by which mosquitto holds a box to its filters and its rate; empty: none."""
    block_floods: bool = True
    """Whether a box that goes on flooding is blocked until a person unblocks it; else there is the alarm alone."""

    @property
    def for_boxes(self) -> tuple[str, int]:
        """Host and port that boxes are told at their enrolment."""
        host, colon, port = self.boxes_address.rpartition(":")
        return (host.strip("[]"), int(port)) if colon else (self.host, self.port)


class HttpsConfig(_Section):
    """The HTTPS service: it listens on `host` and `port`; boxes reach it by `url` (made of names[0] if empty)."""

    host: Host = "0.0.0.0"  # noqa: S104  (boxes come from anywhere)
    port: ListenPort = 8443
    url: HttpsUrl = ""


def _proxy(text: str) -> str:
    """Refuse what is neither an address nor a network: a name would have to be looked up at each request."""
    try:
        ip_network(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not an address or a network such as 10.1.0.0/16") from error
    return text


ProxyAddress = Annotated[str, AfterValidator(_proxy)]


class ConsoleConfig(_Section):
    """The web console: it listens on `host` and `port`; people reach it by `url` (made of names[0] if empty).

    `trusted_proxies`: addresses or networks whose X-Forwarded-For counts; none by default. `proxy_secret_file`: the
    absolute path of a file whose first line those proxies send as X-Edgegpu-Proxy; one on this machine does not count
    without. `metrics_from`: addresses or networks that read /metrics without a token; none by default.
    """

    host: Host = "0.0.0.0"  # noqa: S104  (people come from anywhere)
    port: ListenPort = 8444
    url: HttpsUrl = ""
    trusted_proxies: Annotated[tuple[ProxyAddress, ...], Field(max_length=32)] = ()
    proxy_secret_file: AbsolutePath = ""
    metrics_from: Annotated[tuple[ProxyAddress, ...], Field(max_length=32)] = ()


class DatabaseConfig(_Section):
    """The store's database: a PostgreSQL by its URL; an empty one: SQLite, the file `controller.db` in the folder."""

    url: DatabaseUrl = ""
    password_file: AbsolutePath = ""
    """The absolute path of a file whose first line is the password of the URL's user."""

    @model_validator(mode="after")
    def _one_password(self) -> Self:
        if not self.password_file:
            return self
        user = urlsplit(self.url)
        if not user.username or user.password is not None:
            raise ValueError(
                "password_file belongs to a url with a user and without a password: …://USER@HOST/DATABASE"
            )
        return self


class LeaseConfig(_Section):
    """The times of the leases by which controllers share the boxes of one database; all of them have the same."""

    renew_s: Annotated[float, Field(ge=0.1, le=60)] = 2.0
    """How often a controller shows that it lives, in seconds."""
    lost_s: Annotated[float, Field(ge=0.5, le=600)] = 8.0
    """After so many seconds of silence the others take its boxes."""

    @model_validator(mode="after")
    def _longer(self) -> Self:
        if self.lost_s < 3 * self.renew_s:
            raise ValueError(f"lost_s is {self.lost_s:g}: give at least three times renew_s, {3 * self.renew_s:g}")
        return self


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


ReceiverUrl = Annotated[str, Form(r"^https://[!-~]{1,900}$", "https://HOST/PATH"), AfterValidator(_receiver)]


MOST_RECEIVERS = 8
"""Webhooks of the file, and of it and the store together."""


class WebhookConfig(_Section):
    """The receivers of messages about alerts, and the secret that signs these; none where `urls` is empty."""

    urls: Annotated[tuple[ReceiverUrl, ...], Field(max_length=MOST_RECEIVERS)] = ()
    secret: Annotated[str | None, Field(min_length=16, max_length=200, repr=False)] = None
    allow_local: bool = False
    """Whether a receiver may be on this machine or its own link (loopback, link-local addresses)."""
    ca: str = ""
    """A file with the CA of the receivers; empty: those of the system."""

    @model_validator(mode="after")
    def _signed(self) -> Self:
        """Refuse receivers without a secret: they could not tell who sends."""
        if self.urls and self.secret is None:
            raise ValueError(
                "alerts.webhook.urls needs alerts.webhook.secret: 16 characters or more, `openssl rand -hex 32`"
            )
        return self


class AlertConfig(_Section):
    """When a box counts as offline, when a certificate is near its end, and who is told."""

    offline_minutes: Annotated[int, Field(ge=1, le=10_080)] = 15
    certificate_days: Annotated[int, Field(ge=1, le=365)] = 14
    webhook: WebhookConfig = WebhookConfig()


KeptDays = Annotated[int, Field(ge=1, le=36_500)]


class RetentionConfig(_Section):
    """For how many days the store keeps what has ended; what is open is kept however old it is."""

    commands_days: KeptDays = 90
    """Commands, with their history, after their end."""
    events_days: KeptDays = 90
    """Events of boxes; of each box 10 000 at most."""
    operations_days: KeptDays = 90
    rollouts_days: KeptDays = 90
    alerts_days: KeptDays = 90
    """Alerts after their end, and alarms that somebody has seen."""
    evidence_days: KeptDays = 90
    """What containers saw of their cards."""
    use_days: KeptDays = 30
    """The use of each card, a row for each quarter of an hour."""
    enrolments_days: KeptDays = 90
    """Enrolment tokens after the time until which they were valid, with what came of them; certificates of boxes after
    their end: until then the revoked ones are on the list that the broker reads."""
    audit_days: Annotated[int, Field(ge=0, le=36_500)] = 0
    """0: for ever."""


class CloudConfig(_Section):
    """The content of `controller.yaml`; only `version` is required. `names` are what servers' certificates are for."""

    version: Literal[1]
    names: Annotated[tuple[Host, ...], Field(max_length=32)] = ("localhost", "127.0.0.1")
    controller: ControllerWord = "1"
    """The certificate name and client-id at the broker is `controller-` followed by this."""
    broker: BrokerConfig = BrokerConfig()
    https: HttpsConfig = HttpsConfig()
    console: ConsoleConfig | None = None
    """None: this controller serves no console."""
    certificates: CertificateConfig = CertificateConfig()
    tokens: TokenConfig = TokenConfig()
    database: DatabaseConfig = DatabaseConfig()
    leases: LeaseConfig = LeaseConfig()
    alerts: AlertConfig = AlertConfig()
    retention: RetentionConfig = RetentionConfig()
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @model_validator(mode="after")
    def _apart(self) -> Self:
        """Refuse two listeners on one port; HTTPS may use a port of the broker where that is another machine."""
        broker, https = self.broker, self.https.port
        if broker.port == broker.controller_port:
            raise ValueError(f"broker.port and broker.controller_port are both {broker.port}: give each its own")
        if broker.host in self.names and https in {broker.port, broker.controller_port}:
            raise ValueError(f"https.port and a port of the broker are both {https}: give each its own")
        if self.console is not None and self.console.port == https and https:
            raise ValueError(f"console.port and https.port are both {https}: give each its own")
        return self

    @property
    def controller_name(self) -> str:
        """Certificate name and client-id of this controller."""
        return f"controller-{self.controller}"


def load(path: Path) -> CloudConfig:
    """Read `controller.yaml`.

    Raises:
        CloudError: missing, unreadable, no YAML, or a value that cannot be; the text names each line and key.
    """
    try:
        text = parse(_text(path))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        words = place(error) if isinstance(error, yaml.YAMLError) else error
        raise CloudError(f"cannot read {path}: {words}", remedy=_remedy(path, error)) from error
    try:
        return CloudConfig.model_validate(text.value)
    except ValidationError as error:
        wrong = "; ".join(explain(text, error, CloudConfig))
        remedy = "correct it there; docs/cloud/configure.md has each key"
        raise CloudError(f"cannot use {path}: {wrong}", remedy=remedy) from error


def with_console_port(config: CloudConfig, port: int) -> CloudConfig:
    """Return the configuration with another port of its console, if it has one; people's URL stays as it was given."""
    if config.console is None:
        return config
    return config.model_copy(update={"console": config.console.model_copy(update={"port": port})})


def _text(path: Path) -> str:
    with os.fdopen(open_regular(path, os.O_RDONLY), encoding="utf-8") as file:
        return file.read()


def _remedy(path: Path, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "`edgegpu-cloud init --name HOST` makes a controller; or name the right --folder (or EDGEGPU_CLOUD)"
    if isinstance(error, PermissionError):
        return remedy_for(path)
    return "put it right: it is YAML, `key: value`, sections two spaces in (docs/cloud/configure.md has each key)"


def store_url(layout: CloudLayout, database: DatabaseConfig) -> str:
    """Return the URL of the store's database, with its password; that of the SQLite file where none is configured.

    Raises:
        CloudError: the password's file cannot be read, or is empty.
    """
    if not database.url:
        return f"sqlite:///{layout.database}"
    url = urlsplit(database.url)._replace(scheme="postgresql+psycopg")
    if database.password_file:
        user, at, host = url.netloc.rpartition("@")
        url = url._replace(
            netloc=f"{user}:{quote(_secret(Path(database.password_file), _PASSWORD), safe='')}{at}{host}"
        )
    return urlunsplit(url)


def proxy_secret(console: ConsoleConfig) -> str:
    """Return what proxies before the console show; empty where nothing is configured.

    Raises:
        CloudError: the file cannot be read, or other users can read it, or its line is too short.
    """
    if not console.proxy_secret_file:
        return ""
    path = Path(console.proxy_secret_file)
    secret = _secret(path, "the proxies' secret")
    if path.stat().st_mode & stat.S_IROTH:
        raise CloudError(f"cannot use {path}: every user of this machine can read it", remedy=f"chmod 600 {path}")
    if len(secret) < _LEAST_SECRET or not secret.isascii():
        remedy = f"(umask 077; openssl rand -hex 32 > {path}), and let the proxy send the same line"
        raise CloudError(f"cannot use {path}: its line has to have {_LEAST_SECRET} characters of ASCII", remedy=remedy)
    return secret


_LEAST_SECRET = 32
_PASSWORD = "the database's password"  # noqa: S105  (its name)


def _secret(path: Path, name: str) -> str:
    try:
        secret = _text(path).partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        remedy = (
            f"it has to be there and readable for {account(os.geteuid())}: chmod 600, chown {account(os.geteuid())}"
        )
        raise CloudError(f"cannot read {name} in {path}: {error}", remedy=remedy) from error
    if not secret:
        raise CloudError(f"cannot use {path}: its first line is empty", remedy=f"write {name} there")
    return secret


def dump(config: CloudConfig) -> str:
    """Return a configuration as the text of `controller.yaml`, which `load` reads back."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)


def with_database(text: str, config: CloudConfig) -> str:
    """Return the text of a `controller.yaml` with the database of a configuration, and all else as a person wrote it.

    Raises:
        CloudError: the text has its section `database` in a form that only a person can change.
    """
    database = yaml.safe_dump({"database": config.database.model_dump(mode="json")}, sort_keys=False)
    kept = re.sub(
        r"^database:.*\n(?:[ \t].*\n|\n)*", "", text if text.endswith("\n") else f"{text}\n", flags=re.MULTILINE
    )
    new = kept + database
    try:
        right = CloudConfig.model_validate(parse(new).value) == config
    except (yaml.YAMLError, ValidationError):
        right = False
    if not right:
        remedy = f"write it there yourself, then start `serve`: {' '.join(database.split())}"
        raise CloudError("cannot change `database` in controller.yaml: it is not written as usual", remedy=remedy)
    return new
