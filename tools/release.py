"""The release key: `release.py key FILE` makes it, `release.py sign BUNDLE VERSION --key FILE` signs a bundle with it.

The key stays with those who make releases, on a machine without a network. Its public half, FILE.pub, is put into a
bundle's environment and its install.sh by `EDGEGPU_RELEASE_PUB=FILE.pub make bundle`; to change keys that file has two
lines for a time. `sign` writes BUNDLE.sig, which install.sh checks, and prints what agent.upgrade is told.
"""

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edgegpu_agent.actions.bundles import sign
from edgegpu_base.x509 import key_pem
from edgegpu_sync.keys import public_text
from edgegpu_sync.wire import from_base64


def make(file: Path) -> str:
    """Write a new key, 0600, and its public half beside it; return the public half."""
    key = Ed25519PrivateKey.generate()
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
        target.write(key_pem(key).encode())
    public = public_text(key)
    file.with_name(f"{file.name}.pub").write_text(f"{public}\n")
    return public


def describe(bundle: Path, version: str, *, key_file: Path) -> str:
    """Write a bundle's signature beside it; return the arguments of agent.upgrade as JSON, without its `url`."""
    key = serialization.load_pem_private_key(key_file.read_bytes(), None)
    if not isinstance(key, Ed25519PrivateKey):
        raise SystemExit(f"cannot sign with {key_file}: it is not an Ed25519 key")
    with bundle.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    signature = sign(key, version, sha256)
    bundle.with_name(f"{bundle.name}.sig").write_bytes(from_base64(signature))
    return json.dumps({"version": version, "sha256": sha256, "signature": signature}, indent=1)


def main() -> int:
    """Run the command of the command line, `key` or `sign`."""
    parser = argparse.ArgumentParser(description="Makes the release key, and signs releases with it.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("key", help="make a key").add_argument("file", type=Path)
    signing = verbs.add_parser("sign", help="sign a bundle")
    signing.add_argument("bundle", type=Path)
    signing.add_argument("version")
    signing.add_argument("--key", type=Path, required=True)
    asked = parser.parse_args()
    try:
        text = make(asked.file) if asked.verb == "key" else describe(asked.bundle, asked.version, key_file=asked.key)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"release: cannot {asked.verb}: {error}\n")
        return 1
    sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
