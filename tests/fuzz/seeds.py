"""What fuzzing begins with: the examples of docs/mqtt-api.md, what is asked over HTTPS, and usage files."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from edgegpu_plugin.containers.usage_file import OWN_FORM
from edgegpu_sync.topics import TopicKind, parse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edgegpu_sync.ids import DeviceId
    from edgegpu_sync.signing import Signer

_DOCUMENT = Path(__file__).resolve().parents[2] / "docs/mqtt-api.md"
_ARGS: tuple[dict[str, Any], ...] = (
    {"url": "https://cloud.example/logs/", "since_s": 60, "max_mib": 2},
    {"version": "1.2.3", "url": "https://cloud.example/b", "sha256": "a" * 64, "signature": "A" * 86},
    {"min_rev": 3, "critical": ["softly"]},
)


def bodies(kind: TopicKind) -> list[bytes]:
    """Return the examples of a kind, without their spaces."""
    found = re.findall(rf"```json {re.escape(kind)}\n(.*?)```", _DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    return [json.dumps(json.loads(text), separators=(",", ":")).encode() for text in found]


def commands() -> list[bytes]:
    """Return the example with the arguments of each op."""
    plain = json.loads(bodies(TopicKind.COMMAND)[0])
    return [json.dumps(plain | {"args": args}).encode() for args in (plain["args"], *_ARGS)]


def payloads(signer: Signer, device: DeviceId, kinds: Iterable[TopicKind]) -> list[bytes]:
    """Return topic and payload of an example of each kind."""
    made = []
    for kind in kinds:
        tail = {TopicKind.COMMAND: "/k3s.restart/01j9zq4v7m2c8x5n", TopicKind.RESULT_BY_ID: "/01j9zq4v7m2c8x5n"}.get(
            kind, ""
        )
        topic = parse(f"edgegpu/v1/{device}/{kind}{tail}")
        for body in bodies(kind):
            payload = b"s0\n" + body if kind is TopicKind.KEYS else signer.seal(topic, body)
            made.append(str(topic).encode() + b"\n" + payload)
    return made


def asks(public: str) -> list[bytes]:
    """Return an ask for an enrolment and one for a renewal, with a request that is well signed."""
    key = ec.derive_private_key(7, ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "box")])
    made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    csr = made.public_bytes(serialization.Encoding.PEM).decode()
    both = {"csr": csr, "instance": "ab" * 32}
    enrol = {"token": "t", "request": "0" * 16, "sign_key": public, "host": "box", "versions": {"agent": "0.2.0"}}
    renew = {"device": "k3f9x2m7q1w8e5r4", "enrolment": 3, "nonce": "n"}
    return [json.dumps(both | one).encode() for one in (enrol, renew)]


def usages() -> list[bytes]:
    """Return the begins of a usage file that nobody has used, and of one with two cards and two slots, one aside."""
    head = (0x45474C4D, OWN_FORM.version, OWN_FORM.bytes, 512, 0, 2, 2, 2, bytes(range(32)), 3, b"0.1.0")
    shared = struct.pack("=56xQ", 1 << 28).ljust(1024, b"\0")
    slots = (struct.pack("=4Qq34Q", tag, 1, tag, 1, 7, 0, 2 << 16 | 1, 1 << 20, 1, *([0] * 30)) for tag in (1, 2))
    used = b"".join((struct.pack("=4I2Q2I32s224xQ120x16s", *head), shared, *slots, bytes(range(64))))
    return [bytes(1), used]
