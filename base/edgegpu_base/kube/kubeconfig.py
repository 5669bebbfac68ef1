"""Reader of a kubeconfig: the address of the API server and our credentials."""

import base64
import binascii
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.tls import client_context

_ANEW = "write the file anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAccess:
    """Address and credentials for one API server; keys and certificates are PEM text, and not in the repr."""

    server: str
    ca_pem: str | None = None
    verify: bool = True
    server_name: str | None = None
    cert_pem: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    """The token's file, read again while running: kubelet and others renew tokens. As in client-go it beats `token`."""
    files: tuple[Path, ...] = ()
    """The files of the credentials, the kubeconfig first; they are read again when one of them changes."""


def tls_context(access: ApiAccess) -> ssl.SSLContext:
    """Return the client's TLS context.

    Raises:
        ssl.SSLError, ValueError: CA, certificate or key are invalid.
    """
    return client_context(ca_pem=access.ca_pem, cert_pem=access.cert_pem, key_pem=access.key_pem, verify=access.verify)


class KubeconfigError(EdgegpuError):
    """The kubeconfig cannot be used; `message` names the file and the entry, and the text the remedy too."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}: {remedy}" if remedy else message)
        self.message = message
        self.remedy = remedy


class UnreadableKubeconfigError(KubeconfigError):
    """The file itself is not there, or may not be read."""


class _Loose(BaseModel):
    """A part of the file in which unknown keys are ignored, since kubectl and others keep entries of their own."""

    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=lambda field: field.replace("_", "-"))


class ClusterEntry(_Loose):
    """The address of an API server."""

    server: str
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None


class UserEntry(_Loose):
    """The credentials of a user."""

    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    tokenFile: str | None = None  # noqa: N815  (the one key of the file that is not hyphenated)
    exec: Any = None
    auth_provider: Any = None


class ContextEntry(_Loose):
    """A cluster and a user, by their names."""

    cluster: str
    user: str = ""


class NamedCluster(_Loose):
    """An entry of `clusters`."""

    name: str
    cluster: ClusterEntry


class NamedUser(_Loose):
    """An entry of `users`."""

    name: str
    user: UserEntry = UserEntry()


class NamedContext(_Loose):
    """An entry of `contexts`."""

    name: str
    context: ContextEntry


class KubeconfigFile(_Loose):
    """The content of a kubeconfig."""

    clusters: tuple[NamedCluster, ...] = ()
    users: tuple[NamedUser, ...] = ()
    contexts: tuple[NamedContext, ...] = ()
    current_context: str = ""


def load(path: Path) -> ApiAccess:
    """Read the current context of a kubeconfig; relative file names are relative to its folder.

    Raises:
        KubeconfigError: no such file, not readable, no kubeconfig, or a login that a daemon cannot use.
    """
    config = _parse(path)
    context = next((c.context for c in config.contexts if c.name == config.current_context), None)
    if context is None:
        known = ", ".join(c.name for c in config.contexts) or "none"
        raise KubeconfigError(
            f"cannot use {path}: current-context {config.current_context!r} is not among its contexts ({known})",
            "choose one with `kubectl config use-context`",
        )
    cluster = next((c.cluster for c in config.clusters if c.name == context.cluster), None)
    if cluster is None:
        raise KubeconfigError(f"cannot use {path}: it has no cluster {context.cluster!r}", _ANEW)
    user = next((u.user for u in config.users if u.name == context.user), UserEntry())
    return _access(path, cluster, user)


def _parse(path: Path) -> KubeconfigFile:
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableKubeconfigError(
            f"cannot read kubeconfig {path}: {error.strerror}", "set kubernetes.kubeconfig to one that can be read"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"cannot read kubeconfig {path}: not YAML: {_one_line(error)}") from error
    try:
        return KubeconfigFile.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise KubeconfigError(f"cannot use kubeconfig {path}: {where}: {first['msg']}", _ANEW) from error


def _access(path: Path, cluster: ClusterEntry, user: UserEntry) -> ApiAccess:
    if not is_url(cluster.server):
        raise KubeconfigError(
            f"cannot use {path}: server {cluster.server!r} is not an http(s) URL", "write e.g. https://127.0.0.1:6443"
        )
    cert = _material(path, "client-certificate", user.client_certificate_data, user.client_certificate)
    key = _material(path, "client-key", user.client_key_data, user.client_key)
    if (cert is None) != (key is None):
        missing = "client-key" if key is None else "client-certificate"
        raise KubeconfigError(f"cannot use {path}: the user has no {missing}", "add it or use a token")
    if cert is None and not user.token and not user.tokenFile and (user.exec or user.auth_provider):
        raise KubeconfigError(
            f"cannot use {path}: the user logs in with an exec plugin or auth provider, which edgegpu cannot do",
            "use a service account's token or a client certificate",
        )
    return ApiAccess(
        server=cluster.server.rstrip("/"),
        ca_pem=_material(
            path, "certificate-authority", cluster.certificate_authority_data, cluster.certificate_authority
        ),
        verify=not cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name,
        cert_pem=cert,
        key_pem=key,
        token=user.token,
        token_file=path.parent / user.tokenFile if user.tokenFile else None,
        files=(path, *_files(path, cluster, user)),
    )


def _files(path: Path, cluster: ClusterEntry, user: UserEntry) -> list[Path]:
    """Return the files that are used: a file whose content is also inline is not."""
    pairs = (
        (cluster.certificate_authority_data, cluster.certificate_authority),
        (user.client_certificate_data, user.client_certificate),
        (user.client_key_data, user.client_key),
    )
    return [path.parent / file for data, file in pairs if file and not data]


def _material(path: Path, name: str, data: str | None, file: str | None) -> str | None:
    """Return PEM text from inline base64, which wins as in kubectl, or from a file; None when neither is given."""
    try:
        if data:
            return base64.b64decode(data, validate=True).decode("ascii")
        text = (path.parent / file).read_text(encoding="ascii") if file else None
    except (binascii.Error, UnicodeDecodeError) as error:
        raise KubeconfigError(f"cannot use {path}: {name} is not PEM text", _ANEW) from error
    except OSError as error:
        raise KubeconfigError(f"cannot use {path}: {name} {file}: {error.strerror}") from error
    if text is not None and not text.strip():  # an empty text would mean no certificate, and any authority
        raise KubeconfigError(f"cannot use {path}: {name} {file}: it is empty", _ANEW)
    return text


def is_url(text: str) -> bool:
    """Return whether a text is an http or https URL with a host."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or an IPv6 address with one bracket
        return False


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
