"""agent.upgrade from a real host: what is not signed, newer and whole changes nothing; no kill makes it twice."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kits.acts import ID, Bench, Vendor, wait_for
from kits.install import Host, serve
from kits.lockers import locked_by_another_user, open_folder

from edgegpu_agent.actions.bundles import sha256_of
from edgegpu_agent.actions.registry import acts
from edgegpu_agent.ports import Action, ActionOutcome
from edgegpu_installer.transaction.lock import locked
from edgegpu_sync.ids import CommandId, op_name
from edgegpu_sync.rules.ops import Evidence, UpgradeArgs
from edgegpu_sync.states import CommandState

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class World:
    """A box, a vendor whose key is in its environment, and a host with a bundle."""

    bench: Bench
    vendor: Vendor
    host: Host
    folder: Path
    archive: Path

    @property
    def act(self) -> Action:
        return acts(self.bench.box())[op_name("agent.upgrade")]

    def args(self, archive: Path | None = None, **more: str) -> UpgradeArgs:
        path = archive or self.archive
        return self.vendor.args(f"{self.host.url}/{path.name}", sha256_of(path), **more)

    def run(self, args: UpgradeArgs | None = None, *, id_: CommandId = ID) -> ActionOutcome:
        args = args or self.args()
        act = self.act
        token = act.token(id_, args)
        found = act.act(id_, args, token)
        verified = act.verify(id_, args, token) if found.state is CommandState.VERIFYING else found
        assert verified is not None
        return verified

    @property
    def link(self) -> str:
        return str(self.bench.layout.current.readlink())

    def untouched(self) -> bool:
        names = {path.name for path in self.bench.layout.opt.iterdir()}
        return names == {"1.0.0", "current"} and self.link == "1.0.0" and self.bench.said("done") == []


@contextmanager
def a_world(root: Path) -> Iterator[World]:
    bench, vendor, folder = Bench(root / "box"), Vendor(), root / "web"
    bench.write("/opt/edgegpu/1.0.0/release.pub", f"{vendor.public}\n")
    folder.mkdir()
    archive = vendor.bundle(folder)
    with serve(folder, root / "keys") as host:
        bench.write("/var/lib/edgegpu/identity/cloud-ca.crt", host.cert.ca)
        yield World(bench, vendor, host, folder, archive)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_world(tmp_path) as made:
        yield made


def test_a_signed_release_is_installed_by_its_own_installer(world: World) -> None:
    found = world.run()
    assert (found.state, found.data) == (CommandState.SUCCEEDED, {"before": "1.0.0", "version": "2.0.0"})
    assert world.link == "2.0.0"
    assert world.bench.said("done") == [f"install --yes --json --transaction-id {ID}"]
    assert list((world.bench.layout.state / "upgrades").iterdir()) == []


def test_a_user_without_root_keeps_no_release_from_being_unpacked() -> None:
    """The user holds the lock of each file and folder of the box that they can open."""
    with open_folder() as folder, a_world(folder) as world, locked_by_another_user(folder) as paths:
        assert "box/opt/edgegpu" in paths
        found = world.run()
    assert found.state is CommandState.SUCCEEDED, found.text


def test_an_installer_that_unpacks_is_not_disturbed(world: World) -> None:
    lock = world.bench.layout.at("/run/edgegpu-unpack.lock")
    with locked(lock):
        found = world.run()
    assert (found.state, "an install.sh is at work on this box" in found.text) == (CommandState.FAILED, True)
    assert world.untouched()


def test_where_sharing_was_taken_off_it_does_not_come_back(world: World) -> None:
    (world.bench.layout.units / "edgegpu-plugin.service").unlink()
    assert world.run().state is CommandState.SUCCEEDED
    assert world.bench.said("done") == [f"install --yes --agent-only --json --transaction-id {ID}"]


def test_the_version_that_runs_is_not_installed_again(world: World) -> None:
    assert world.run(world.args(version="1.0.0")).state is CommandState.SUCCEEDED
    assert world.untouched()


def test_a_release_that_another_has_signed_is_refused(world: World) -> None:
    signed = Vendor().args(world.host.url, sha256_of(world.archive)).signature
    found = world.run(world.args(signature=signed))
    assert (found.state, found.code) == (CommandState.REJECTED, "BAD_SIGNATURE")
    assert world.untouched()
    assert world.host.faults.asked == []


def test_an_older_release_is_refused(world: World) -> None:
    found = world.run(world.args(version="0.9.9"))
    assert (found.state, found.code) == (CommandState.REJECTED, "DOWNGRADE")
    assert world.untouched()


def test_without_a_release_key_nothing_is_taken(world: World) -> None:
    (world.bench.layout.current / "release.pub").unlink()
    found = world.run()
    assert (found.state, found.code) == (CommandState.REJECTED, "NO_RELEASE_KEY")


def test_a_bundle_that_is_another_is_not_unpacked(world: World) -> None:
    args = world.vendor.args(f"{world.host.url}/{world.archive.name}", "c" * 64)
    found = world.run(args)
    assert (found.state, found.code) == (CommandState.FAILED, "ERROR")
    assert "its sha256 is" in found.text
    assert world.untouched()


@pytest.mark.parametrize(
    ("starts", "named", "words"), [(False, "", "cannot start"), (True, "2.0.1", "is of version 2.0.1")]
)
def test_a_bundle_that_is_not_well_is_not_put_in_place(world: World, *, starts: bool, named: str, words: str) -> None:
    folder = world.folder / "other"
    folder.mkdir()
    archive = world.vendor.bundle(folder, starts=starts, named=named)
    archive = archive.rename(world.folder / "other.tar.gz")
    found = world.run(world.args(archive))
    assert found.state is CommandState.FAILED
    assert words in found.text
    assert world.untouched()
    assert list((world.bench.layout.state / "upgrades").iterdir()) == []


def test_a_download_that_breaks_off_goes_on_where_it_was(world: World) -> None:
    world.host.faults.cut = 2
    world.host.faults.busy = 1
    assert world.run().state is CommandState.SUCCEEDED
    ranges = [wanted for _, wanted in world.host.faults.asked]
    assert ranges[:2] == ["", ""]
    assert all(wanted.startswith("bytes=") for wanted in ranges[2:])
    assert len(ranges) == 4


def test_what_a_download_goes_on_from_is_checked_with_the_rest(world: World) -> None:
    """Something else lies in the place of its beginning."""
    args = world.args()
    folder = world.bench.layout.state / "upgrades"
    folder.mkdir(parents=True)
    (folder / f"{args.sha256}.part").write_bytes(b"x" * 1_000)
    found = world.run(args)
    assert [wanted for _, wanted in world.host.faults.asked] == ["bytes=1000-"]
    assert (found.state, "its sha256 is" in found.text) == (CommandState.FAILED, True)
    assert world.untouched()
    assert list(folder.iterdir()) == []


def test_the_release_key_changes_by_a_version_that_knows_both_keys(world: World) -> None:
    """As docs/box/bundle.md has it: the old key signs what brings both, then the new one signs, and the old no more."""
    new = Vendor()
    steps = (
        (new, "2.0.0", new.public, "BAD_SIGNATURE"),
        (world.vendor, "2.0.0", f"{world.vendor.public}\n{new.public}\n", ""),
        (new, "3.0.0", f"{new.public}\n", ""),
        (world.vendor, "4.0.0", f"{world.vendor.public}\n", "BAD_SIGNATURE"),
        (new, "4.0.0", f"{new.public}\n", ""),
    )
    for number, (signer, version, keys, refusal) in enumerate(steps):
        place = world.folder / str(number)
        place.mkdir()
        archive = signer.bundle(place, version, keys=keys).rename(world.folder / f"{number}.tar.gz")
        args = signer.args(f"{world.host.url}/{archive.name}", sha256_of(archive), version=version)
        found = world.run(args, id_=CommandId(f"cmd-{number:08d}"))
        assert (found.code, found.state is CommandState.SUCCEEDED) == (refusal, not refusal), found.text
    assert world.link == "4.0.0"


def test_a_host_that_has_it_not_is_asked_once(world: World) -> None:
    args = world.vendor.args(f"{world.host.url}/none.tar.gz", sha256_of(world.archive))
    assert world.run(args).state is CommandState.FAILED
    assert len(world.host.faults.asked) == 1


def test_a_version_that_is_not_well_is_put_back_and_removed(world: World) -> None:
    world.bench.tell("end", "ROLLED_BACK")
    world.bench.tell("old", "1.0.0")
    world.bench.tell("why", "the agent did not start")
    found = world.run()
    assert (found.state, found.text) == (CommandState.ROLLED_BACK, "the agent did not start")
    assert world.link == "1.0.0"
    assert not world.bench.layout.version("2.0.0").exists()


def test_what_the_installer_refuses_is_rejected(world: World) -> None:
    world.bench.tell("refuse", "REFUSED\n")
    found = world.run()
    assert (found.state, found.code) == (CommandState.REJECTED, "PRECHECK")
    assert world.untouched()


def die_while(world: World, hold: str, token: str) -> None:
    world.bench.tell(f"hold-{hold}")
    pid = os.fork()
    if pid == 0:
        try:
            world.act.act(ID, world.args(), token)
        finally:
            os._exit(3)
    world.bench.comes(f"at-{hold}")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("hold", ["BEFORE", "PREPARED", "VERIFYING", "LINKED", "COMMITTED", "MARKS"])
def test_killed_while_it_is_installed_it_is_found_and_not_begun_again(world: World, hold: str) -> None:
    token = world.act.token(ID, world.args())
    die_while(world, hold, token)
    assert world.act.evidence(ID, token) is Evidence.UNDER_WAY
    assert world.act.verify(ID, world.args(), token) is None
    world.bench.untell(f"hold-{hold}")
    act = world.act
    gone = threading.Event()
    while act.evidence(ID, token) is Evidence.UNDER_WAY:
        gone.wait(0.01)
    found = act.verify(ID, world.args(), token)
    assert found is not None
    assert found.state is CommandState.SUCCEEDED
    assert len(world.bench.said("done")) == 1


def test_killed_with_its_installer_before_anything_it_is_done_again(world: World) -> None:
    token = world.act.token(ID, world.args())
    die_while(world, "BEFORE", token)
    os.kill(world.bench.installer_pid(), signal.SIGKILL)
    world.bench.untell("hold-BEFORE")
    wait_for(lambda: world.act.evidence(ID, token) is Evidence.NOT_DONE)  # one that was killed takes a moment to go
    asked = len(world.host.faults.asked)
    assert world.act.act(ID, world.args(), token).state is CommandState.VERIFYING
    assert len(world.host.faults.asked) == asked  # it lies there unpacked
    assert len(world.bench.said("done")) == 1


def test_somebody_else_has_moved_the_link(world: World) -> None:
    token = world.act.token(ID, world.args())
    world.bench.layout.current.unlink()
    world.bench.layout.current.symlink_to("3.0.0")
    assert world.act.evidence(ID, token) is Evidence.OTHER
