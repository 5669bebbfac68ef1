"""The folder of a further controller, made where the authorities are and carried to its machine."""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edgegpu_base.x509 import key_pem, new_key
from edgegpu_cloud.enrolment.bootstrap import authority_of
from edgegpu_cloud.enrolment.key_files import read_file, write_file
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import CloudConfig, CloudLayout, dump
from edgegpu_sync.keys import public_text


def make_further(layout: CloudLayout, config: CloudConfig, name: str, folder: Path, *, now_s: float) -> str:
    """Write the folder of a further controller; return the public half of its signing key.

    The folder has what one controller needs: its configuration, its certificate for the broker, a signing key of its
    own, the root's public key, and the certificate by which it knows the broker. It has no authority's key: that
    controller enrols nobody, and asks for its next certificate through the store (`controller_renewal.py`).

    Args:
        layout: of the controller that has the authorities.
        config: of that controller.
        name: of the further one; `config.controller` of no other.
        folder: empty, or not there yet.
        now_s: the clock.

    Raises:
        CloudError: the store is one of SQLite, the name is this controller's, or the folder cannot be used.
    """
    if not config.database.url:
        text = "cannot add a controller: the store is a file of this folder, which one controller alone may use"
        raise CloudError(text, remedy="keep the store in PostgreSQL first (docs/cloud/postgresql.md)")
    if name == config.controller:
        raise CloudError(f"cannot add controller {name}: this one has that name", remedy="choose another name")
    further = CloudConfig.model_validate(config.model_dump() | {"controller": name, "console": None})
    new = CloudLayout(folder)
    try:
        if folder.exists() and any(folder.iterdir()):
            raise CloudError(f"cannot write to {folder}: it is not empty", remedy="name an empty folder, or a new one")
        for path in (folder, new.keys, new.ca, new.tls):
            path.mkdir(mode=0o700, parents=path is folder, exist_ok=path is folder)
        folder.chmod(0o700)
    except OSError as error:
        raise CloudError(f"cannot write to {folder}: {error}", remedy="name a folder that you may write") from error
    tls, signing = new_key(), Ed25519PrivateKey.generate()
    days = config.certificates.server_days
    certificate = authority_of(layout, "controllers").client(
        tls.public_key(), further.controller_name, now_s=now_s, days=days
    )
    write_file(new.key("controller"), key_pem(tls))
    write_file(new.cert("controller"), certificate, private=False)
    write_file(new.signing_key, key_pem(signing))
    write_file(new.root_public, read_file(layout.root_public), private=False)
    write_file(new.ca_cert("servers"), read_file(layout.ca_cert("servers")), private=False)
    write_file(new.config, dump(further))
    return public_text(signing)
