"""Kubeconfig files: the reader for those of k3s and of the user, and the text of those that the installer mints."""

import base64
import binascii
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import ValidationError

from edgegpu_base.kube.kubeconfig import (
    ApiAccess,
    ClusterEntry,
    KubeconfigFile,
    NamedCluster,
    NamedContext,
    UserEntry,
    is_url,
)
from edgegpu_installer.errors import InstallError

_ANEW = "write the file anew, or name another one"


_Named = TypeVar("_Named", NamedCluster, NamedContext)


def read(path: Path, context: str | None = None) -> ApiAccess:
    """Read one context of a kubeconfig, by default the current one; file names in it are relative to its folder.

    Raises:
        InstallError: the file cannot be read, is no kubeconfig, or logs in by a program, which is not supported.
    """
    file = _parse(path)
    chosen = _pick(path, file.contexts, context or file.current_context, "context").context
    cluster = _pick(path, file.clusters, chosen.cluster, "cluster").cluster
    user = next((entry.user for entry in file.users if entry.name == chosen.user), UserEntry())
    return _access(path, cluster, user)


def render(*, server: str, ca_pem: str, token: str) -> str:
    """Return the text of a kubeconfig with an account's token; equal arguments give equal bytes."""
    ca = base64.b64encode(ca_pem.encode()).decode()
    return "\n".join(
        (
            "apiVersion: v1",
            "kind: Config",
            "clusters:",
            "  - name: k3s",
            "    cluster:",
            f"      server: {server}",
            f"      certificate-authority-data: {ca}",
            "users:",
            "  - name: edgegpu",
            "    user:",
            f"      token: {token}",
            "contexts:",
            "  - name: edgegpu",
            "    context:",
            "      cluster: k3s",
            "      user: edgegpu",
            "current-context: edgegpu",
            "",
        )
    )


def _parse(path: Path) -> KubeconfigFile:
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
        return KubeconfigFile.model_validate(value)
    except OSError as error:
        raise InstallError(
            f"cannot read the kubeconfig {path}: {error.strerror}",
            remedy="run as root on a server whose k3s is up, or name another file",
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InstallError(f"cannot read the kubeconfig {path}: it is no YAML", remedy=_ANEW) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InstallError(f"cannot use the kubeconfig {path}: {where}: {first['msg']}", remedy=_ANEW) from error


def _pick(path: Path, entries: tuple[_Named, ...], name: str, what: str) -> _Named:
    for entry in entries:
        if entry.name == name:
            return entry
    known = ", ".join(entry.name for entry in entries) or "none"
    raise InstallError(f"cannot use the kubeconfig {path}: it has no {what} {name!r} (known: {known})", remedy=_ANEW)


def _access(path: Path, cluster: ClusterEntry, user: UserEntry) -> ApiAccess:
    if not is_url(cluster.server):
        raise InstallError(f"cannot use the kubeconfig {path}: {cluster.server!r} is no http(s) URL", remedy=_ANEW)
    cert = _pem(path, user.client_certificate_data, user.client_certificate)
    key = _pem(path, user.client_key_data, user.client_key)
    if (cert is None) != (key is None):
        raise InstallError(
            f"cannot use the kubeconfig {path}: its user has a certificate or a key, not both", remedy=_ANEW
        )
    token = user.token or (_text(path, user.tokenFile).strip() if user.tokenFile else "")
    if cert is None and not token and (user.exec or user.auth_provider):
        raise InstallError(
            f"cannot use the kubeconfig {path}: its user logs in by a program",
            remedy="name one with a token or a client certificate, as k3s's own has",
        )
    return ApiAccess(
        server=cluster.server.rstrip("/"),
        ca_pem=_pem(path, cluster.certificate_authority_data, cluster.certificate_authority),
        verify=not cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name,
        cert_pem=cert,
        key_pem=key,
        token=token or None,
    )


def _pem(path: Path, data: str | None, file: str | None) -> str | None:
    """Return a PEM text from inline base64, which wins as in kubectl, or from a file; None without either."""
    if not data:
        return _text(path, file) if file else None
    try:
        return base64.b64decode(data, validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise InstallError(f"cannot use the kubeconfig {path}: it holds data that is no PEM", remedy=_ANEW) from error


def _text(path: Path, file: str) -> str:
    try:
        return (path.parent / file).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise InstallError(f"cannot use the kubeconfig {path}: cannot read {file} in it", remedy=_ANEW) from error
