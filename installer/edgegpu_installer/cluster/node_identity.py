"""The account of an agent node, which has no administrator's kubeconfig: its own, or that of a join token.

Its own: the client certificate of its kubelet (`system:node:NAME`). The Node authorizer and NodeRestriction let it read
and mark its own Node, list, watch, evict and delete its own pods, write events, and annotate its own pods only through
the subresource `status`. It may not read kubelet's own pod list (`nodes/proxy`): the plugin reads the folders of
kubelet's pods instead. tests/e2e/test_agent_node.py has the whole table.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import yaml

from edgegpu_installer.changes import FileChange
from edgegpu_installer.cluster import kubeconfig
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import KUBECONFIG

_PREFIX = "edgegpu1."
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----([^-]+)-----END CERTIFICATE-----")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")
_AGAIN = "copy the whole line that `edgegpu install` printed on the server"


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The contents of a kubelet's kubeconfig: files by absolute path, so that a renewed certificate is used at once."""

    server: str
    ca_file: str
    cert_file: str
    key_file: str


def identity(text: str, *, path: str) -> NodeIdentity:
    """Read a kubelet's kubeconfig.

    Raises:
        InstallError: the text is no kubeconfig, or does not name the certificates by absolute paths.
    """
    try:
        config = yaml.safe_load(text)
        entry = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], entry["cluster"])["cluster"]
        user = _named(config["users"], entry["user"])["user"]
        found = NodeIdentity(
            str(cluster["server"]).rstrip("/"),
            str(cluster["certificate-authority"]),
            str(user["client-certificate"]),
            str(user["client-key"]),
        )
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise _unusable(
            path, f"it does not name server, CA, certificate and key ({type(error).__name__}: {error})"
        ) from error
    if not all(file.startswith("/") for file in (found.ca_file, found.cert_file, found.key_file)):
        raise _unusable(path, "it names files that are not absolute paths")
    return found


def link(path: str) -> FileChange:
    """Return the change that makes our kubeconfig a link to kubelet's, so that the node uses its own account.

    It is no copy, because k3s writes kubelet's file at each start, with the port of its load balancer over all servers.
    """
    return FileChange(KUBECONFIG, link_to=path)


@dataclass(frozen=True, slots=True)
class JoinToken:
    """What a server gives an agent node to use the account edgegpu-agent. The repr has no token."""

    server: str
    ca_sha256: str
    token: str = field(repr=False)

    def kubeconfig(self, ca_pem: str, *, server: str = "") -> str:
        """Return the kubeconfig of the join token, for a CA that came from the node or the server.

        Args:
            ca_pem: the API server's CA.
            server: another address of the same API: on a k3s agent node its own load balancer's.

        Raises:
            InstallError: the CA has another hash than the token's.
        """
        if (found := ca_sha256(ca_pem)) != self.ca_sha256:
            raise InstallError(
                f"cannot join {self.server}: its CA has the hash {found[:16]}…, the token says {self.ca_sha256[:16]}…",
                remedy="take the token from a server of this node's own cluster; else another machine answers for it",
            )
        return kubeconfig.render(server=server or self.server, ca_pem=ca_pem, token=self.token)


def pack(*, server: str, ca_pem: str, token: str) -> str:
    """Return the word for `--join`: server, hash of the CA and token, with a checksum over all."""
    values = {"s": server, "h": ca_sha256(ca_pem), "t": token}
    body = _encode(json.dumps(values, separators=(",", ":")).encode())
    return f"{_PREFIX}{body}.{_checksum(body)}"


def unpack(word: str) -> JoinToken:
    """Parse the word that `pack` made; white space around it and line breaks in it, from terminals, are ignored.

    Raises:
        InstallError: the word is no join token, or is not complete.
    """
    word = "".join(word.split())
    body, _, checksum = word.removeprefix(_PREFIX).partition(".")
    if not word.startswith(_PREFIX) or not checksum:
        raise InstallError(f"cannot join: this is not a join token ({_PREFIX}…)", remedy=_AGAIN)
    if checksum != _checksum(body):
        raise InstallError("cannot join: the join token is not complete, or was changed", remedy=_AGAIN)
    try:
        values = json.loads(_decode(body))
        found = JoinToken(str(values["s"]), str(values["h"]), str(values["t"]))
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise InstallError("cannot join: the join token is of another version", remedy=_AGAIN) from error
    if urlsplit(found.server).scheme != "https" or not _TOKEN.fullmatch(found.token):
        raise InstallError("cannot join: the join token names no https server or no token", remedy=_AGAIN)
    return found


def ca_sha256(pem: str) -> str:
    """Return the hash of a bundle's certificates, whatever their layout. Raises InstallError when there is none."""
    try:
        ders = [base64.b64decode("".join(body.split()), validate=True) for body in _CERTIFICATE.findall(pem)]
    except binascii.Error:
        ders = []
    if not ders:
        raise InstallError("cannot use the API server's CA: it is not a PEM certificate", remedy=_AGAIN)
    return hashlib.sha256(b"".join(sorted(ders))).hexdigest()


def _named(entries: list[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    for entry in entries:
        if entry["name"] == name:
            return entry
    raise KeyError(name)


def _unusable(path: str, why: str) -> InstallError:
    return InstallError(
        f"cannot act as this node: {path}: {why}", remedy="use the token that the server prints: --join"
    )


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:8]


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
