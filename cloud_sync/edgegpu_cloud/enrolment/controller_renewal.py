"""The renewal of a further controller's certificate: it asks through the database, the authority's controller answers.

A request is signed by the controller's signing key, and holds the certificate that it has. The authority renews that
name and that key alone, and only while the signing key is in the newest key set: `keys rotate --drop-old` ends it.
"""

from typing import Annotated, Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgegpu_base.x509 import distinguished_name
from edgegpu_cloud.enrolment.bootstrap import authority_of, read_key
from edgegpu_cloud.enrolment.ca import Authority, CertificateRequest, days_left, read_request
from edgegpu_cloud.enrolment.key_files import load_signing_key, read_file, write_file
from edgegpu_cloud.enrolment.key_sets import chain_of, read_set
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import CloudConfig, CloudLayout
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.keys import is_signed_by, public_text
from edgegpu_sync.wire import to_base64

_DAY_S = 86_400
_REFUSED = "refused: "

Pem = Annotated[str, Field(max_length=16_384)]


class ControllerRenewal(BaseModel):
    """A controller's request for a new certificate; `signature` is over the text of `csr`, by the signing key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    v: Literal[1] = 1
    csr: Pem
    certificate: Pem
    signer: Annotated[str, Field(max_length=64)]
    signature: Annotated[str, Field(max_length=128)]


def report_end(layout: CloudLayout, config: CloudConfig, store: ControllerStore) -> None:
    """Write into the store when this controller's certificate ends; a request that waits stays."""
    ends_at_s = days_left(read_file(layout.cert("controller")), now_s=0) * _DAY_S
    with store.write() as tx:
        request, _ = tx.controller_certificates.of(config.controller_name)
        if tx.controller_certificates.ends().get(config.controller_name) != ends_at_s:
            tx.controller_certificates.write(config.controller_name, ends_at_s=ends_at_s, request=request)


def ask_renewal(layout: CloudLayout, config: CloudConfig, store: ControllerStore) -> None:
    """Write a request for a new certificate, for the key that this controller has.

    Raises:
        CloudError: a file cannot be read, or the store cannot be written.
    """
    key, signing = read_key(layout, "controller"), load_signing_key(layout.signing_key)
    builder = x509.CertificateSigningRequestBuilder().subject_name(distinguished_name(config.controller_name))
    csr = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
    certificate = read_file(layout.cert("controller"))
    request = ControllerRenewal(
        csr=csr,
        certificate=certificate,
        signer=public_text(signing),
        signature=to_base64(signing.sign(csr.encode())),
    )
    ends_at_s = days_left(certificate, now_s=0) * _DAY_S
    with store.write() as tx:
        tx.controller_certificates.write(config.controller_name, ends_at_s=ends_at_s, request=request.model_dump_json())


def answer_renewals(
    layout: CloudLayout, config: CloudConfig, store: ControllerStore, *, now_s: float
) -> dict[str, str]:
    """Answer the requests of all controllers, where the authority is; return what was said to each, by its name.

    Returns:
        An empty text for a new certificate, else why there is none.

    Raises:
        CloudError: the authority cannot be read, or the store cannot be written.
    """
    with store.read() as tx:
        waiting = tx.controller_certificates.unanswered()
    if not waiting:
        return {}
    authority = authority_of(layout, "controllers")
    chain = chain_of(store)
    signers = {key.public for key in read_set(chain[-1]).keys} if chain else set()
    told: dict[str, str] = {}
    for name, text in waiting.items():
        try:
            csr = _checked(authority, name, text, signers=signers, now_s=now_s)
            days = config.certificates.server_days
            answer, told[name] = authority.client(csr.public, name, now_s=now_s, days=days), ""
        except CloudError as error:
            answer, told[name] = f"{_REFUSED}{error.text}", error.text
        with store.write() as tx:
            tx.controller_certificates.answer(name, text, answer)
    return told


def take_renewal(layout: CloudLayout, config: CloudConfig, store: ControllerStore) -> str | None:
    """Write the new certificate, where the answer has one; return why there is none, None while there is no answer.

    Raises:
        CloudError: the answer is another key's, or the file cannot be written.
    """
    with store.read() as tx:
        request, answer = tx.controller_certificates.of(config.controller_name)
    if not request or not answer:
        return None
    if answer.startswith(_REFUSED):
        return answer.removeprefix(_REFUSED)
    certificate = x509.load_pem_x509_certificate(answer.encode())
    if certificate.public_key() != read_key(layout, "controller").public_key():
        raise CloudError("cannot take a new certificate: it is another key's", remedy="restart serve: it asks again")
    write_file(layout.cert("controller"), answer, private=False)
    with store.write() as tx:
        tx.controller_certificates.write(config.controller_name, ends_at_s=certificate.not_valid_after_utc.timestamp())
    return ""


def _checked(authority: Authority, name: str, text: str, *, signers: set[str], now_s: float) -> CertificateRequest:
    try:
        asked = ControllerRenewal.model_validate_json(text)
        csr, held = read_request(asked.csr), x509.load_pem_x509_certificate(asked.certificate.encode())
        held.verify_directly_issued_by(authority.certificate)
    except (ValidationError, ValueError, TypeError, InvalidSignature) as error:
        raise CloudError(f"the request of {name} does not hold: {type(error).__name__}") from error
    if held.subject != distinguished_name(name) or held.public_key() != csr.public:
        raise CloudError(f"the request of {name} is not for the name and the key that it has a certificate for")
    if held.not_valid_after_utc.timestamp() < now_s:
        raise CloudError(f"the certificate of {name} has ended: make its folder anew (`controllers add`)")
    if not is_signed_by(asked.signer, asked.signature, asked.csr.encode()):
        raise CloudError(f"the request of {name} has a wrong signature")
    if asked.signer not in signers:
        raise CloudError(f"the signing key of {name} is not in the newest key set")
    return csr
