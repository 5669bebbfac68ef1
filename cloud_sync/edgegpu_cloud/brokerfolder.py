"""The broker's files beside the controller: what `broker.render` makes, with the paths of this folder in it."""

from pathlib import Path

from edgegpu_cloud.broker import TEMPLATES, BrokerPaths, Listeners, render
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.keyfiles import read_file, write_file
from edgegpu_cloud.layout import CloudConfig, CloudLayout
from edgegpu_cloud.ownership import account, give, owner

_DATA = "data"


def write_broker(layout: CloudLayout, config: CloudConfig, *, into: Path) -> None:
    """Write the broker's configuration for the files of a controller; it runs as the user whose folder this is.

    Args:
        layout: where the files will be when the broker reads them.
        config: ports.
        into: the folder that is written to; `layout.broker` in the end.

    Raises:
        CloudError: it cannot be written.
    """
    paths = BrokerPaths(
        folder=layout.broker,
        data=layout.broker / _DATA,
        boxes_ca=layout.ca_cert("boxes"),
        controllers_ca=layout.ca_cert("controllers"),
        crl=layout.crl,
        cert=layout.cert("broker"),
        key=layout.key("broker"),
    )
    _write(paths, config, into=into, user=account(owner(layout.folder)))


def write_broker_elsewhere(layout: CloudLayout, config: CloudConfig, *, folder: Path, place: Path, user: str) -> None:
    """Write into a folder all that a broker needs which cannot read this controller's: certificates and key as well.

    Args:
        layout: of this controller.
        config: ports.
        folder: where it is written.
        place: where that folder will be when the broker reads it.
        user: whom the broker becomes; empty: the owner of this controller's folder.

    Raises:
        CloudError: something cannot be read or written.
    """
    paths = BrokerPaths(
        folder=place,
        data=place / _DATA,
        boxes_ca=place / "boxes-ca.crt",
        controllers_ca=place / "controllers-ca.crt",
        crl=place / "boxes.crl",
        cert=place / "broker.crt",
        key=place / "broker.key",
    )
    copies = {
        paths.boxes_ca: layout.ca_cert("boxes"),
        paths.controllers_ca: layout.ca_cert("controllers"),
        paths.crl: layout.crl,
        paths.cert: layout.cert("broker"),
        paths.key: layout.key("broker"),
    }
    _check_ours(folder, {*TEMPLATES, _DATA, *(target.name for target in copies)})
    _write(paths, config, into=folder, user=user or account(owner(layout.folder)))
    for target, source in copies.items():
        write_file(folder / target.name, read_file(source), private=target == paths.key)


def _check_ours(folder: Path, names: set[str]) -> None:
    """Refuse a folder in which somebody else's files are: a broker's of that machine, for one."""
    there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if there and not (there <= names and set(TEMPLATES) <= there):
        text = f"cannot write to {folder}: it has other files, {', '.join(sorted(there)[:3])}"
        raise CloudError(text, remedy="name a folder that is empty, or that this command has written")


def _write(paths: BrokerPaths, config: CloudConfig, *, into: Path, user: str) -> None:
    listeners = Listeners(boxes=config.broker.port, controllers=config.broker.controller_port)
    try:
        (into / _DATA).mkdir(mode=0o700, parents=True, exist_ok=True)
        give(into / _DATA, into)
    except OSError as error:
        raise CloudError(f"cannot write to {into}: {error}", remedy="name a folder that you may write") from error
    for name, text in render(listeners, paths, user=user).items():
        write_file(into / name, text, private=False)
