"""The lock over several servers, on an API server that also stops and starts in the middle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from integration.clusterkit import Api, api

from edgegpu_installer.cluster.client import ClusterClient
from edgegpu_installer.cluster.kinds import LEASE
from edgegpu_installer.cluster.lease import (
    NAME,
    NAMESPACE,
    HeldError,
    InstallLease,
    LeaseEnvironment,
    LostError,
    acquire,
    lives,
    this_process,
)
from edgegpu_installer.cluster.lease_rule import DURATION_S, LeaseHolder

__all__ = ["api"]

ONE, TWO = LeaseHolder("box-1", 11, "boot-1"), LeaseHolder("box-2", 22, "boot-2")
LIMIT_S = 10.0


@dataclass
class World:
    """Time that passes when it is waited for, and processes that live until they are killed."""

    at_s: float = 0.0
    dead: set[LeaseHolder] = field(default_factory=set)
    said: list[str] = field(default_factory=list)
    during: Callable[[], None] = lambda: None

    def pause(self, seconds: float) -> None:
        self.at_s += seconds
        self.during()

    def around(self, *, renew_s: float = 1000.0) -> LeaseEnvironment:
        return LeaseEnvironment(
            alive=lambda who: who not in self.dead,
            clock=lambda: self.at_s,
            now=lambda: datetime.now(UTC),
            pause=self.pause,
            renew_s=renew_s,
        )

    def take(self, cluster: ClusterClient, me: LeaseHolder, *, renew_s: float = 1000.0) -> InstallLease:
        return acquire(cluster, me, environment=self.around(renew_s=renew_s), say=self.said.append)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def cluster(api: Api) -> Iterator[ClusterClient]:
    with api.cluster(timeout_s=2) as found:
        yield found


def the_lease(api: Api) -> dict[str, object]:
    found: dict[str, object] = api.registry.get("leases", "kube-system", NAME)["spec"]
    return found


def abandon(api: Api, who: LeaseHolder, *, silent_s: float = 0.0) -> None:
    """Leave a lease behind as a holder that was killed does."""
    stamp = (datetime.now(UTC) - timedelta(seconds=silent_s)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": str(who), "leaseDurationSeconds": 300, "acquireTime": stamp, "renewTime": stamp}
    api.registry.create("leases", {"metadata": {"name": NAME, "namespace": "kube-system"}, "spec": spec})


def test_it_is_taken_and_leaves_nothing(api: Api, cluster: ClusterClient, world: World) -> None:
    with world.take(cluster, ONE) as lease:
        lease.check()
        assert the_lease(api)["holderIdentity"] == "box-1/11/boot-1"
        found = cluster.find(LEASE, NAME, NAMESPACE)
        assert found is not None
        assert found["spec"]["holderIdentity"] == str(ONE)
    assert cluster.find(LEASE, NAME, NAMESPACE) is None
    assert world.at_s == 0
    assert world.said == []


def test_it_is_renewed_while_it_is_held(api: Api, cluster: ClusterClient, world: World) -> None:
    with world.take(cluster, ONE, renew_s=0.02):
        seen = api.registry.store.version
        for _ in range(3):
            seen = wait_for_write(api, seen)
        assert the_lease(api)["renewTime"] != the_lease(api)["acquireTime"]


def wait_for_write(api: Api, seen: int) -> int:
    now = api.registry.store.wait(seen, LIMIT_S)
    assert now > seen
    return now


def test_a_second_server_is_told_who_holds_it_and_since_when(api: Api, cluster: ClusterClient, world: World) -> None:
    with world.take(cluster, ONE, renew_s=0.02):

        def renewed() -> None:
            wait_for_write(api, api.registry.store.version)

        world.during = renewed
        with pytest.raises(HeldError) as caught:
            world.take(cluster, TWO)
    text = str(caught.value)
    assert "box-1 (process 11)" in text
    assert f"since {datetime.now(UTC):%Y-}" in text
    assert "delete lease edgegpu-install" in caught.value.remedy
    assert world.at_s <= 10


def test_a_dead_process_of_this_node_is_succeeded_at_once(api: Api, cluster: ClusterClient, world: World) -> None:
    before = LeaseHolder(ONE.node, 10, ONE.boot)
    abandon(api, before)
    world.dead.add(before)
    with world.take(cluster, ONE):
        assert the_lease(api)["holderIdentity"] == str(ONE)
    assert world.at_s == 0


def test_a_server_that_is_gone_is_succeeded_after_three_silent_renewals(
    api: Api, cluster: ClusterClient, world: World
) -> None:
    abandon(api, TWO, silent_s=DURATION_S + 5)
    with world.take(cluster, ONE):
        assert 30 <= world.at_s < 40
    assert len(world.said) == 1
    assert "waiting for box-2 (process 22)" in world.said[0]


def test_one_that_was_silent_for_a_while_only_is_waited_for(api: Api, cluster: ClusterClient, world: World) -> None:
    abandon(api, TWO)
    with world.take(cluster, ONE):
        assert DURATION_S <= world.at_s < DURATION_S + 5


def test_patience_ends(api: Api, cluster: ClusterClient, world: World) -> None:
    abandon(api, TWO)
    with pytest.raises(HeldError, match="last heard of"):
        acquire(cluster, ONE, environment=world.around(), say=world.said.append, patience_s=20)
    assert the_lease(api)["holderIdentity"] == str(TWO)


def test_an_api_server_that_restarts_does_not_end_it(api: Api, cluster: ClusterClient, world: World) -> None:
    with world.take(cluster, ONE, renew_s=0.02) as lease:
        api.server.stop()
        assert not cluster.ready()
        lease.check()
        api.server.start()
        wait_for_write(api, api.registry.store.version)
        lease.check()
    assert cluster.find(LEASE, NAME, NAMESPACE) is None


def test_one_that_was_taken_over_says_so(api: Api, cluster: ClusterClient, world: World) -> None:
    with world.take(cluster, ONE, renew_s=0.02) as lease:
        api.registry.patch("leases", "kube-system", NAME, {"spec": {"holderIdentity": str(TWO)}})
        assert "box-2" in str(wait_for_loss(lease))
        assert not lease.release()
    assert the_lease(api)["holderIdentity"] == str(TWO)


def wait_for_loss(lease: InstallLease) -> LostError:
    ends, tick = time.monotonic() + LIMIT_S, threading.Event()
    while time.monotonic() < ends:
        try:
            lease.check()
        except LostError as error:
            return error
        tick.wait(0.01)
    pytest.fail("it never noticed")


def test_one_that_was_deleted_is_made_again(api: Api, cluster: ClusterClient, world: World) -> None:
    with world.take(cluster, ONE, renew_s=0.02) as lease:
        api.registry.delete("leases", "kube-system", NAME)
        seen = api.registry.store.version
        wait_for_write(api, seen)
        lease.check()
        assert the_lease(api)["holderIdentity"] == str(ONE)


def test_one_that_cannot_be_released_is_left_and_said(
    api: Api, cluster: ClusterClient, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    lease = world.take(cluster, ONE)
    api.server.stop()
    assert not lease.release()
    assert "cannot release the lease" in caplog.text
    api.server.start()
    with world.take(cluster, replace(ONE)):  # the same process again
        assert the_lease(api)["holderIdentity"] == str(ONE)


def test_of_many_that_want_it_one_gets_it(api: Api) -> None:
    got: list[LeaseHolder] = []
    refused: list[LeaseHolder] = []
    all_asked = threading.Barrier(4)

    def want(me: LeaseHolder) -> None:
        world = World()
        with api.cluster() as cluster:
            all_asked.wait(LIMIT_S)
            try:
                acquire(cluster, me, environment=world.around(), say=world.said.append, patience_s=1)
                got.append(me)
            except HeldError:
                refused.append(me)

    threads = [threading.Thread(target=want, args=(LeaseHolder(f"box-{n}", n, "b"),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert (len(got), len(refused)) == (1, 3)


def test_a_process_lives_in_this_boot_alone(tmp_path: Path) -> None:
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
    me = this_process("box-1", tmp_path)
    assert (me.node, me.boot) == ("box-1", "boot-1")
    assert not lives(me, tmp_path)
    (tmp_path / f"proc/{me.pid}").mkdir()
    assert lives(me, tmp_path)
    assert not lives(replace(me, boot="boot-0"), tmp_path)
