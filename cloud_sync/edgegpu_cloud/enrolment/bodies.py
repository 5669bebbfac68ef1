"""The bodies of enrolment and renewal over HTTPS: the requests of boxes, and the answers."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from edgegpu_sync.ids import DeviceId
from edgegpu_sync.keys import PublicKey
from edgegpu_sync.messages.downlink import KeySetLink
from edgegpu_sync.wire import Line, Sha256

RETRY_S = 15
"""Seconds after which a box asks again while a person has not approved it."""

Device = Annotated[str, Field(pattern=r"^[a-z0-9]{16}$")]
Pem = Annotated[str, Field(max_length=8_192)]

HostName = Annotated[str, Field(max_length=253, pattern="^[^\\x00-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069]*$")]
"""A name that people see in many places: nothing in it breaks a line, or reverses the direction of writing."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class EnrolAsk(_Model):
    """`POST /v1/enrol`: a token for an identity. The same `request` with the same keys gets the same answer."""

    token: Annotated[str, Field(min_length=1, max_length=256)]
    request: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    csr: Pem
    sign_key: PublicKey
    instance: Sha256
    host: HostName = ""
    versions: Annotated[dict[Line, Line], Field(max_length=16)] = {}


class RenewAsk(_Model):
    """`POST /v1/renew`: signed by the box's Ed25519 key, so it needs no valid certificate."""

    device: Device
    enrolment: Annotated[int, Field(ge=1, le=2**53 - 1)]
    csr: Pem
    instance: Sha256
    nonce: Annotated[str, Field(max_length=128)] = ""


class BrokerAddress(_Model):
    """Where the broker listens for boxes."""

    host: str
    port: int


class EnrolmentGranted(_Model):
    """200: the box is taken in. `broker_ca` is the authority of broker and HTTPS, `root` what the box pins.

    `name` is what people call the box at that time.
    """

    device: DeviceId
    name: str
    enrolment: int
    certificate: str
    broker: BrokerAddress
    broker_ca: str
    root: PublicKey
    keys: tuple[KeySetLink, ...]
    server_time: int


class ApprovalPending(_Model):
    """202: a person has to say yes first."""

    state: Literal["waiting"] = "waiting"
    retry_s: int = RETRY_S


class RenewalAnswer(_Model):
    """200: another certificate for the same box."""

    certificate: str
    server_time: int


class EnrolmentDenied(_Model):
    """4xx: no, why, and what a person can do."""

    code: str
    text: str
    remedy: str = ""
