"""Reading and writing of bodies: JSON, frozen models, unknown fields ignored, sizes limited."""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from edgegpu_core.sentences import sentence
from edgegpu_sync.errors import MessageRefusedError, RefusalReason, TooLargeError
from edgegpu_sync.faults import first_fault

WIRE_MAX_BYTES = 65_536
"""The limit of a whole payload, signature line included.

A broker closes the connection on a payload above its own limit, and the client sends it again for ever. So the size is
checked before a message is kept.
"""

BODY_MAX_BYTES = WIRE_MAX_BYTES - 256
"""The limit of a body; the signature line takes less than the rest."""

RESULT_MAX_BYTES = 8_192
"""The limit of a result's body: the outbox has room for each in advance."""

MAX_COUNT = 2**53 - 1
"""The largest whole number that every JSON reader keeps."""

Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Seconds = Annotated[int, Field(ge=0, le=2**31)]
Core = Annotated[int, Field(ge=0, le=6_400)]
Units = Annotated[int, Field(ge=0, le=1_000_000)]
Token = Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.:/-]{0,63}$")]
Code = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,39}$")]
Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{2,128}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Https = Annotated[str, Field(pattern=r"^https://[!-~]{1,1000}$")]
_PRINTABLE = r"^[^\x00-\x08\x0b-\x1f\x7f]*$"
Text = Annotated[str, Field(max_length=1_000, pattern=_PRINTABLE)]
Line = Annotated[str, Field(max_length=253, pattern=_PRINTABLE)]
ITEM_NAME_MAX = 400
ItemName = Annotated[str, Field(max_length=ITEM_NAME_MAX, pattern=_PRINTABLE)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]


def _finite(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    json.dumps(value, allow_nan=False)  # ValueError: NaN and the infinities are no JSON
    return value


Json = Annotated[dict[str, JsonValue], AfterValidator(_finite)]


T = TypeVar("T")


class WireModel(BaseModel):
    """A piece of a message: frozen, strict about types, and silent about fields that it does not know."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)


class MessageBody(WireModel):
    """A whole message."""

    v: Literal[1] = 1


class CriticalPiece(WireModel):
    """A piece whose sender may name fields that must be understood: a reader that does not know one leaves it be."""

    critical: Annotated[tuple[Token, ...], Field(max_length=32)] = ()

    def not_understood(self) -> tuple[str, ...]:
        """Return the fields named in `critical` that this version does not know."""
        return tuple(name for name in self.critical if name not in type(self).model_fields)


def encode(body: MessageBody, *, limit_bytes: int = BODY_MAX_BYTES) -> bytes:
    """Write a body; fields that are None are left out.

    Raises:
        TooLargeError: when it has more than `limit_bytes`.
    """
    data = body.model_dump_json(exclude_none=True).encode()
    if len(data) > limit_bytes:
        text = sentence(
            "cannot send %(what)s: %(size)d bytes, the limit is %(limit)d",
            what=type(body).__name__,
            size=len(data),
            limit=limit_bytes,
        )
        raise TooLargeError(text)
    return data


def decode(reader: TypeAdapter[T], data: bytes) -> T:
    """Read a body.

    Raises:
        MessageRefusedError: UnknownVersion or Malformed, with the first thing that is wrong.
    """
    try:
        return reader.validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        why = RefusalReason.UNKNOWN_VERSION if first["loc"][-1:] == ("v",) else RefusalReason.MALFORMED
        raise MessageRefusedError(why, first_fault(error, whole="body")[:300]) from error


def digest(value: JsonValue | Mapping[str, JsonValue]) -> str:
    """Return a digest of a JSON value, whatever the order of its keys: 16 hexadecimal digits of SHA-256."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def clipped(text: str, limit: int = 1_000) -> str:
    """Return a text that can be sent: control characters and lone surrogates replaced, cut to `limit` characters."""
    clean = text.encode("utf-8", "replace").decode().replace("\r\n", "\n")
    clean = "".join("?" if (c < " " and c not in "\n\t") or c == "\x7f" else c for c in clean)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def to_base64(data: bytes) -> str:
    """Write bytes in base64: the URL alphabet, no padding, one text for each value."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def from_base64(text: str) -> bytes:
    """Read bytes from base64.

    Raises:
        ValueError: for another alphabet, padding, or a text that `to_base64` would not have written.
    """
    data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if to_base64(data) != text:
        raise ValueError("not the one text of these bytes")
    return data
