"""What was written through the API of a k3s server, brought to the disk: k3s' own datastore leaves that for later."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import PurePosixPath

from edgegpu_installer.layout import Layout
from edgegpu_installer.plan.site import Site

_FILES = ("state.db-wal", "state.db")


def settle(site: Site, layout: Layout, *, sync: Callable[[int], None] = os.fsync) -> None:
    """Bring it to the disk, on a k3s server with its own SQLite; elsewhere nothing is to be done, or nothing can be.

    Its SQLite is built to sync its log only now and then: a power cut takes the last writes, seconds or minutes of
    them, though the API has confirmed each (seen: accounts gone whose kubeconfig, synced by us, was there). Where the
    files have become other ones meanwhile, it has synced them itself.
    """
    if not (site.kind.is_k3s and site.kind.is_server):
        return
    folder = layout.at(str(PurePosixPath(site.admin_kubeconfig).parents[1])) / "db"
    for name in _FILES:
        with suppress(OSError), (folder / name).open("rb") as file:  # not there: another datastore
            sync(file.fileno())
