"""The controller's part of a process: builds store, signer, link and loop from a folder, and names their tasks."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgegpu_cloud.controller import Controller
from edgegpu_cloud.keyfiles import load_signing_key
from edgegpu_cloud.layout import CloudConfig, CloudLayout, load
from edgegpu_cloud.store import Store
from edgegpu_cloud.tasks import Task, TaskGroup
from edgegpu_sync.link import Address, Link, LinkEvent
from edgegpu_sync.signing import Signer
from edgegpu_sync.topics import CONTROLLER_FILTER

MAX_INFLIGHT = 1_000
"""Publishes to boxes that may wait for the broker's word at once; the broker's own limit may be lower."""


@dataclass(frozen=True, slots=True)
class ControllerParts:
    """What a controller is made of; `tasks` are to be run in a group, `store` is closed by who opened it."""

    controller: Controller
    link: Link

    def tasks(self) -> list[Task]:
        """Return all tasks by name."""
        return [
            Task("link", self.link.run, self.link.stop),
            Task("controller", self.controller.run, self.controller.stop),
        ]


def build(layout: CloudLayout, config: CloudConfig, store: Store) -> ControllerParts:
    """Put a controller together; nothing runs yet.

    Raises:
        CloudError: the signing key cannot be read.
    """
    parts: list[Controller] = []

    def put(event: LinkEvent) -> None:
        parts[0].put(event)

    def address() -> Address:
        return Address(
            host=config.broker.host,
            port=config.broker.controller_port,
            client_id=config.controller_name,
            ca=layout.ca_cert("servers"),
            cert=layout.cert("controller"),
            key=layout.key("controller"),
        )

    link = Link(
        address,
        subscribe=[CONTROLLER_FILTER],
        will=lambda: None,
        put=put,
        rng=random.Random(),  # noqa: S311  (jitter)
        clock=time.monotonic,
        max_inflight=MAX_INFLIGHT,
        receive_max=MAX_INFLIGHT,
    )
    parts.append(Controller(store, link, signer=Signer.of(load_signing_key(layout.signing_key))))
    return ControllerParts(parts[0], link)


def run(folder: Path, group: TaskGroup, *, more: Sequence[Task] = ()) -> None:
    """Run a controller out of its folder until the group is told to end.

    Args:
        folder: a `CloudLayout`.
        group: what ends it.
        more: tasks to be run beside it, HTTPS for one.

    Raises:
        CloudError: configuration, key or store cannot be read.
        Exception: what a task failed with.
    """
    layout = CloudLayout(folder)
    config = load(layout.config)
    store = Store.open_file(layout.database)
    try:
        group.run([*build(layout, config, store).tasks(), *more])
    finally:
        store.close()
