"""A box with a machine id and a token, and the keeper of its identity in a thread."""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kits.identity import Cloud, CloudServer

from edgegpu_agent.identity.clock_floor import ClockFloor
from edgegpu_agent.identity.enrolment_client import CloudClient
from edgegpu_agent.identity.identity_files import BoxIdentity, CloudAddress
from edgegpu_agent.identity.status import EnrolmentState
from edgegpu_agent.identity.task import IdentityKeeper, IdentitySettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WAIT_S = 60.0


class Box:
    """A root with a machine id and a token, and the keeper of its identity, run in a thread."""

    def __init__(self, root: Path, cloud: Cloud, *, clock: Callable[[], float] = time.time) -> None:
        self.root, self.cloud = root, cloud
        (root / "etc/edgegpu").mkdir(parents=True)
        (root / "etc/machine-id").write_text("3d1219c7c4c5404aaa1f6d2a48adfda4\n")
        self.token = root / "etc/edgegpu/cloud-token"
        self.token.write_text("good\n")
        self.folder = root / "var/lib/edgegpu/identity"
        self.pin = cloud.servers.sha256
        self.clock = clock
        self.proxy = ""
        self.changes = threading.Semaphore(0)
        self.renewals = 0
        self.keeper = self.make()
        self._thread: threading.Thread | None = None

    def make(self) -> IdentityKeeper:
        floor = self.floor = ClockFloor(self.root / "clock.json", clock=self.clock)
        settings = IdentitySettings(
            folder=self.folder,
            token=self.token,
            standing=self.root / "run/edgegpu/identity.json",
            root=self.root,
            cloud=CloudAddress(url=self.cloud.url, ca_sha256=self.pin),
            host="box-1",
            agent="0.2.0",
        )

        def client(ca: bytes) -> CloudClient:
            return CloudClient(
                url=self.cloud.url,
                ca_pem=ca,
                check_dates=lambda: floor.is_right,
                timeout_s=5,
                proxy=self.proxy,
            )

        return IdentityKeeper(
            settings,
            clock=floor,
            client=client,
            rng=random.Random(1),
            changed=self.changes.release,
            renewed=self._renewed,
            look_s=0.02,
        )

    def _renewed(self) -> None:
        self.renewals += 1

    def start(self) -> None:
        self._thread = threading.Thread(target=self.keeper.run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.keeper.stop()
        if self._thread is not None:
            self._thread.join(WAIT_S)
            assert not self._thread.is_alive()

    def again(self) -> None:
        self.stop()
        self.keeper = self.make()
        self.start()

    def until(self, what: Callable[[], object]) -> None:
        ends = time.monotonic() + WAIT_S
        while not what():
            assert time.monotonic() < ends, self.keeper.standing
            threading.Event().wait(0.005)

    def stands(self, stand: EnrolmentState) -> None:
        self.until(lambda: self.keeper.standing.stand is stand)

    def enrolled(self) -> BoxIdentity:
        self.stands(EnrolmentState.ENROLLED)
        identity = self.keeper.identity
        assert identity is not None
        return identity


@contextmanager
def a_box(root: Path, cloud: Cloud) -> Iterator[Box]:
    """Yield a box whose cloud is served; its keeper is stopped at the end."""
    with CloudServer(cloud):
        made = Box(root, cloud)
        yield made
        made.stop()
