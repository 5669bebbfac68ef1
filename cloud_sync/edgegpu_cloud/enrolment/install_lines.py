"""The lines that a person pastes on a box: what installs edgegpu and enrols the box, and what takes it off again."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from edgegpu_cloud.enrolment.key_files import file_sha256, pin, read_file
from edgegpu_cloud.enrolment.manager import NewToken
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import CloudLayout
from edgegpu_cloud.phrases import phrase

UNINSTALL_LINE = "sudo edgegpu uninstall"
"""What takes edgegpu off a box, and the box out of the cloud."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentAddress:
    """Where boxes enrol, and what they pin.

    `ca_sha256` is the SHA-256 of the authority's file, `pin` that of the HTTPS server's public key for curl.
    `problems` say why a line with this address works on no box, or not on other machines.
    """

    url: str
    ca_sha256: str
    pin: str
    problems: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolLine:
    """The line that a person pastes, and its parts."""

    token: str = field(repr=False)
    line: str = field(repr=False)
    line_sudo: str = field(repr=False)
    expires_at: int
    uses: int
    approval: bool
    url: str
    ca_sha256: str
    pin: str


def enrolment_address(layout: CloudLayout, url: str) -> EnrolmentAddress:
    """Read what boxes pin from the certificates: no private key is needed.

    Raises:
        CloudError: a certificate cannot be read.
    """
    path = layout.cert("https")
    try:
        public = x509.load_pem_x509_certificate(read_file(path).encode()).public_key()
    except ValueError as error:
        raise CloudError(
            phrase("cannot use %(path)s: %(error)s", path=path, error=error), remedy=phrase("restore it from a backup")
        ) from error
    if not isinstance(public, ec.EllipticCurvePublicKey):
        text = phrase("cannot use %(path)s: its key is not one of an elliptic curve", path=path)
        raise CloudError(text, remedy=phrase("restore it from a backup"))
    return EnrolmentAddress(url=url, ca_sha256=file_sha256(read_file(layout.ca_cert("servers"))), pin=pin(public))


def line_problems(url: str, *, has_bundle: bool) -> Sequence[str]:
    """Return why the lines of a controller cannot install a box; empty where nothing is known against them.

    Args:
        url: by which boxes reach the controller.
        has_bundle: whether the controller offers what boxes are installed from.
    """
    found = list[str]()
    if not has_bundle:
        found.append(
            phrase(
                "No box can be installed from here: the controller has no bundle. `make bundle` makes one, and "
                "`edgegpu-cloud serve --bundle FOLDER` offers it"
            )
        )
    host = urlsplit(url).hostname or ""
    if _is_loopback(host):
        found.append(
            phrase(
                "Other machines do not reach this controller: %(host)s is its own machine alone. Set `https.url` in "
                "controller.yaml to an address that boxes reach",
                host=host,
            )
        )
    return found


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def enrol_line(at: EnrolmentAddress, new: NewToken) -> EnrolLine:
    """Return the lines for a new token; they hold its secret."""
    fetch = f"curl -fsSLk --pinnedpubkey 'sha256//{at.pin}' {at.url}/install.sh"
    options = f"sh -s -- --url {at.url} --ca-sha256 {at.ca_sha256}"
    return EnrolLine(
        token=new.text,
        line=f"{fetch} | EDGEGPU_TOKEN={new.text} {options}",
        line_sudo=f"{fetch} | EDGEGPU_TOKEN={new.text} sudo --preserve-env=EDGEGPU_TOKEN {options}",
        expires_at=int(new.token.expires_at_s),
        uses=new.token.uses,
        approval=new.token.approval,
        url=at.url,
        ca_sha256=at.ca_sha256,
        pin=at.pin,
    )
