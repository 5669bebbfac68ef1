"""The broker's files beside the controller, rendered with the paths of this folder."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from edgegpu_base.files import open_folder, replace_in
from edgegpu_cloud.broker.config import TEMPLATES, BrokerPaths, Listeners, render
from edgegpu_cloud.enrolment.key_files import owner_in, read_file
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import CloudConfig, CloudLayout
from edgegpu_cloud.ownership import Json, account, owner

_DATA, _KEY = "data", "broker.key"


def write_broker(
    layout: CloudLayout, config: CloudConfig, *, into: Path, older_boxes: bool = False, blocked: Sequence[str] = ()
) -> None:
    """Write the broker's configuration for the files of a controller; the broker runs as the owner of that folder.

    Args:
        layout: where the files will be when the broker reads them.
        config: ports.
        into: the folder that is written to; `layout.broker` in the end.
        older_boxes: whether boxes may send results under topics that end with a command's id.
        blocked: device ids of boxes that may nothing.

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
    user = account(owner(layout.folder))
    _write(_rendered(paths, config, user=user, older_boxes=older_boxes, blocked=blocked), into=into)


def broker_elsewhere(
    layout: CloudLayout,
    config: CloudConfig,
    *,
    place: Path,
    user: str,
    older_boxes: bool = False,
    blocked: Sequence[str] = (),
) -> Json:
    """Return all files for a broker that cannot read this controller's folder; `write_broker_elsewhere` writes them.

    Args:
        layout: of this controller.
        config: ports.
        place: where the files will be when the broker reads them.
        user: the user that the broker becomes; empty: the owner of this controller's folder.
        older_boxes: whether boxes may send results under topics that end with a command's id.
        blocked: device ids of boxes that may nothing.

    Raises:
        CloudError: a file cannot be read.
    """
    paths = BrokerPaths(
        folder=place,
        data=place / _DATA,
        boxes_ca=place / "boxes-ca.crt",
        controllers_ca=place / "controllers-ca.crt",
        crl=place / "boxes.crl",
        cert=place / "broker.crt",
        key=place / _KEY,
    )
    files = _rendered(
        paths, config, user=user or account(owner(layout.folder)), older_boxes=older_boxes, blocked=blocked
    )
    files[paths.boxes_ca.name] = read_file(layout.ca_cert("boxes"))
    files[paths.controllers_ca.name] = read_file(layout.ca_cert("controllers"))
    files[paths.crl.name] = read_file(layout.crl)
    files[paths.cert.name] = read_file(layout.cert("broker"))
    files[_KEY] = read_file(layout.key("broker"))
    return files


def write_broker_elsewhere(folder: Path, files: Json) -> None:
    """Write what `broker_elsewhere` returned into a folder, which is created where it is missing.

    Whoever may write in that folder gains nothing by what they put there: it is opened once, and no link is followed.

    Raises:
        CloudError: it cannot be written, or it holds somebody else's files.
    """
    _check_ours(folder, {_DATA, *files})
    _write(files, into=folder)


def _check_ours(folder: Path, names: set[str]) -> None:
    """Refuse a folder that holds somebody else's files, such as those of another broker on that machine."""
    there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if there and not (there <= names and set(TEMPLATES) <= there):
        text = f"cannot write to {folder}: it has other files, {', '.join(sorted(there)[:3])}"
        raise CloudError(text, remedy="name a folder that is empty, or that this command has written")


def _rendered(
    paths: BrokerPaths, config: CloudConfig, *, user: str, older_boxes: bool, blocked: Sequence[str]
) -> dict[str, str]:
    listeners = Listeners(boxes=config.broker.port, controllers=config.broker.controller_port)
    guard = config.broker.guard
    return render(listeners, paths, user=user, older_boxes=older_boxes, guard=guard, blocked=blocked)


def _write(files: Mapping[str, str], *, into: Path) -> None:
    try:
        into.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_folder(into) as folder:
            owned_by = owner_in(folder)
            with suppress(FileExistsError):
                os.mkdir(_DATA, 0o700, dir_fd=folder)
            data = os.open(_DATA, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            try:
                if owned_by is not None:
                    os.fchown(data, *owned_by)
            finally:
                os.close(data)
            for name, text in files.items():
                mode = 0o600 if name == _KEY else 0o644
                replace_in(folder, name, text.encode(), mode=mode, owner=owned_by)
    except OSError as error:
        raise CloudError(f"cannot write to {into}: {error}", remedy="name a folder that you may write") from error
