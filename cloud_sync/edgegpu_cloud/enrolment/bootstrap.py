"""The making of a controller's folder: keys, authorities, certificates, configuration. All of it, or nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edgegpu_base.x509 import key_pem, new_key
from edgegpu_cloud.enrolment.ca import Authority, days_left, lacks_name, load_authority, make_authority
from edgegpu_cloud.enrolment.key_files import PrivateKey, load_key, read_file, write_file
from edgegpu_cloud.enrolment.new_folder import take_over, unfinished
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import AuthorityName, CertificateName, CloudConfig, CloudLayout, dump
from edgegpu_cloud.ownership import become_owner, locked
from edgegpu_sync.keys import next_link, public_text
from edgegpu_sync.messages.downlink import KeySetLink

ServerName = Literal["https", "broker", "console"]

More = Callable[[CloudLayout, KeySetLink | None], None]
"""Writes further files into a new folder; the link is the first key set, None where the root key is kept elsewhere."""

_AUTHORITIES: tuple[AuthorityName, ...] = ("boxes", "controllers", "servers")
_SERVERS: tuple[ServerName, ...] = ("https", "broker")
_CONSOLE: ServerName = "console"


def found(
    layout: CloudLayout,
    config: CloudConfig,
    *,
    root_public: str,
    now_s: float,
    more: More,
) -> None:
    """Create the folder; what an interrupted run has left is thrown away.

    Args:
        layout: its folder is created where it is missing.
        config: becomes controller.yaml.
        root_public: the public half of a root key that is kept offline; empty: a root key is made here.
        now_s: the clock.
        more: called with the layout of the unfinished folder, before it counts as made.

    Raises:
        CloudError: a controller is there already, another process makes one there, or the folder cannot be written.
    """
    become_owner(layout.folder)
    try:
        with unfinished(layout) as new:
            for folder in (new.keys, new.ca, new.tls, new.broker, new.release):
                folder.mkdir(mode=0o700)
            first = _make_signers(new, root_public)
            _make_authorities(new, config, now_s)
            more(new, first)
            write_file(new.config, dump(config))
            take_over(new, layout)
    except OSError as error:
        remedy = "name a --folder that you may write"
        raise CloudError(f"cannot make {layout.folder}: {error}", remedy=remedy) from error


def _make_signers(layout: CloudLayout, root_public: str) -> KeySetLink | None:
    signing = Ed25519PrivateKey.generate()
    write_file(layout.signing_key, key_pem(signing))
    if root_public:
        write_file(layout.root_public, root_public + "\n", private=False)
        return None
    root = Ed25519PrivateKey.generate()
    write_file(layout.root_key, key_pem(root))
    write_file(layout.root_public, public_text(root) + "\n", private=False)
    return next_link(root, keys=[public_text(signing)])


def _make_authorities(layout: CloudLayout, config: CloudConfig, now_s: float) -> None:
    made: dict[str, Authority] = {}
    for name in _AUTHORITIES:
        made[name] = make_authority(f"edgegpu-{name}", now_s=now_s, days=config.certificates.ca_days)
        write_file(layout.ca_cert(name), made[name].cert_pem, private=False)
        write_file(layout.ca_key(name), key_pem(made[name].key))
    write_file(layout.crl, made["boxes"].revoke((), number=1, now_s=now_s), private=False)
    days = config.certificates.server_days
    key = _new(layout.key("controller"))
    certificate = made["controllers"].client(key.public_key(), config.controller_name, now_s=now_s, days=days)
    write_file(layout.cert("controller"), certificate, private=False)
    servers = _SERVERS if config.console is None else (*_SERVERS, _CONSOLE)
    for kind in servers:
        _new(layout.key(kind))
        make_server(layout, config, kind, now_s=now_s)


def _new(path: Path) -> PrivateKey:
    key = new_key()
    write_file(path, key_pem(key))
    return key


def make_server(layout: CloudLayout, config: CloudConfig, kind: ServerName, *, now_s: float) -> None:
    """Write a new certificate for a server, with its authority's behind it; the key stays, and with it the pin.

    Args:
        layout: has key and authority.
        config: `names`, and for the broker its hosts.
        kind: `https`, `broker` or `console`.
        now_s: the clock.
    """
    key = read_key(layout, kind)
    names = server_names(config, kind)
    authority = authority_of(layout, "servers")
    certificate = authority.server(key.public_key(), names, now_s=now_s, days=config.certificates.server_days)
    write_file(layout.cert(kind), certificate + authority.cert_pem, private=False)


def server_names(config: CloudConfig, kind: CertificateName) -> list[str]:
    """Return the host names and addresses of a server's certificate."""
    hosts = [config.broker.host, config.broker.for_boxes[0]] if kind == "broker" else []
    return list(dict.fromkeys([*config.names, *hosts]))


def ensure_console_certificate(layout: CloudLayout, config: CloudConfig, *, now_s: float) -> None:
    """Make key and certificate of a console where there are none: its folder is from before there was a console.

    Raises:
        CloudError: they cannot be written, or the authority of servers is elsewhere.
    """
    cert, key = layout.cert("console"), layout.key("console")
    if config.console is None or (cert.exists() and key.exists()):
        return
    if not layout.ca_key("servers").exists():
        remedy = "start HTTPS where the authorities are, or copy both from there: docs/deploy.md says what else"
        raise CloudError(f"cannot serve the console: {cert} and its key are not here", remedy=remedy)
    lock = renew_lock(layout)
    with locked(lock, lock):  # several processes of the console may begin at once
        fresh = not key.exists()
        if fresh:
            _new(key)
        if fresh or not cert.exists():
            make_server(layout, config, "console", now_s=now_s)


def renew_lock(layout: CloudLayout) -> Path:
    """Return the file that processes of `serve` lock while they renew certificates of this folder."""
    return layout.tls / ".renew.lock"


def authority_of(layout: CloudLayout, name: AuthorityName) -> Authority:
    """Read an authority: `boxes`, `controllers` or `servers`.

    Raises:
        CloudError: it cannot be read.
    """
    cert, key = layout.ca_cert(name), layout.ca_key(name)
    texts = read_file(cert), read_file(key)
    try:
        return load_authority(*texts)
    except CloudError as error:
        raise CloudError(f"cannot use {key} with {cert}: {error.text}", remedy=error.remedy) from error


def read_key(layout: CloudLayout, name: CertificateName) -> PrivateKey:
    """Read a process's TLS key: `https`, `broker` or `controller`.

    Raises:
        CloudError: it cannot be read.
    """
    path = layout.key(name)
    try:
        return load_key(read_file(path))
    except ValueError as error:
        raise CloudError(f"cannot use {path}: {error}", remedy="restore it from a backup") from error


def renew_expiring(layout: CloudLayout, config: CloudConfig, *, now_s: float) -> list[CertificateName]:
    """Renew those of this controller's certificates that have less than a third of their days left, or lack a name.

    Returns:
        The renewed ones: `https`, `broker`, `controller`, `console`. The broker has to read its own again. A
        certificate of the console that another authority has signed is its owner's to renew.
    """
    least = config.certificates.server_days / 3
    kinds: list[CertificateName] = ["https", "broker", "controller"]
    if layout.cert("console").exists() and _is_ours(layout, "console"):
        kinds.append("console")
    worn = [
        kind
        for kind in kinds
        if days_left(read_file(layout.cert(kind)), now_s=now_s) < least or _lacks_name(layout, config, kind)
    ]
    for kind in worn:
        if kind == "controller":
            public = read_key(layout, kind).public_key()
            authority, days = authority_of(layout, "controllers"), config.certificates.server_days
            certificate = authority.client(public, config.controller_name, now_s=now_s, days=days)
            write_file(layout.cert(kind), certificate, private=False)
        else:
            make_server(layout, config, kind, now_s=now_s)
    return worn


def _lacks_name(layout: CloudLayout, config: CloudConfig, kind: CertificateName) -> bool:
    """Whether a server's certificate of our own authority is for fewer names than the configuration has now."""
    if kind == "controller" or not _is_ours(layout, kind):
        return False
    return lacks_name(read_file(layout.cert(kind)), server_names(config, kind))


def _is_ours(layout: CloudLayout, kind: CertificateName) -> bool:
    """Whether a certificate is from this controller's own authority."""
    authority = layout.ca_cert("servers")
    return read_file(layout.cert(kind)).rstrip().endswith(read_file(authority).rstrip())
