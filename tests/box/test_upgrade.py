"""agent.upgrade over MQTT in a booted box: to a release that is well, and to one whose agent ends after two seconds."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from box.bed import BUNDLE, LAN, ROOT, WAITS, WITH_K3S, Bed, differences
from box.cloudbed import HTTPS_PORT, Cloud
from box.heldpod import HeldPod, is_the_share, push_programs
from lab.labrun import run, wait_until

pytestmark = pytest.mark.skipif(not os.environ.get("BOX_FULL"), reason="BOX_FULL=1: two upgrades, some three minutes")

HALL = "hall"
GOOD, BAD = "9.9.9", "9.9.10"
ENVIRONMENT = ROOT / "build/env/edgegpu"
DIES = """\
#!/bin/sh
# Stands in for an agent that is up, and ends two seconds later.
here=$(readlink -f "$0")
exec "${here%/bin/*}/python/bin/python3" -c '
import os, socket, sys, time
systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
systemd.connect(os.environ["NOTIFY_SOCKET"])
systemd.send(b"READY=1")
time.sleep(2)
sys.exit("this release cannot go on")'
"""


class Vendor:
    """Makes releases of the environment that boxes here are installed from: the same files, another version."""

    def __init__(self, folder: Path) -> None:
        """Make the release key, and the folder that the controller serves."""
        self.folder, self.key = folder, folder / "release.key"
        self.bundle = folder / "bundle"
        self.bundle.mkdir(parents=True)
        for path in BUNDLE.iterdir():
            os.link(path, self.bundle / path.name)
        self._tool("key", self.key)

    @property
    def public(self) -> str:
        """The key's public half, as a file's text."""
        return self.key.with_name("release.key.pub").read_text()

    def release(self, version: str, *, dies: bool = False) -> list[str]:
        """Make a bundle and sign it; returns the words of a command that upgrades to it.

        A release that is well has a limiter of its version.
        """
        name = f"edgegpu-{version}-linux-amd64"
        made = self.folder / name
        run(["cp", "-al", ENVIRONMENT, made], timeout_s=60)
        changed = {"VERSION": f"{version}\n", "release.pub": self.public} | (
            {"bin/edgegpu-agent": DIES} if dies else {}
        )
        for path, text in changed.items():
            (made / path).unlink(missing_ok=True)  # it is a link to that of the environment
            (made / path).write_text(text)
            (made / path).chmod(0o755 if path.startswith("bin/") else 0o644)
        if not dies:
            self._limiter(made / "limiter", version)
        archive = self.bundle / f"{name}.tar.gz"
        packed = f"tar --owner=0 --group=0 -C {self.folder} -c {name} | gzip -1 > {archive}"
        run(["bash", "-o", "pipefail", "-c", packed], timeout_s=120)
        signed = json.loads(self._tool("sign", archive, version, "--key", self.key))
        given = {**signed, "url": f"https://{LAN}:{HTTPS_PORT}/{archive.name}"}
        return [word for key, value in given.items() for word in ("--arg", f"{key}={value}")]

    def _limiter(self, into: Path, version: str) -> None:
        """Put the limiter's libraries into a release, built for its version."""
        built, make = self.folder / f"limiter-{version}", ["env", "-u", "MAKEFLAGS", "-u", "MAKELEVEL", "make", "-s"]
        run([*make, "-C", ROOT / "plugin/limiter", f"VERSION={version}", f"OUT={built}"], timeout_s=300)
        for path in into.iterdir():
            path.unlink()  # it is a link to that of the environment
            shutil.copy(built / path.name, path)

    @staticmethod
    def _tool(*words: str | Path) -> str:
        return run([sys.executable, ROOT / "tools/release.py", *words], timeout_s=60).stdout


@pytest.fixture(scope="module")
def world(bed: Bed) -> Iterator[tuple[Cloud, Vendor]]:
    """Yield a controller with one box that has pasted its line, and who makes releases for it."""
    bed.fresh(WITH_K3S)
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
        vendor = Vendor(Path(folder) / "vendor")
        cloud = Cloud(bed, Path(folder) / "cloud", bundle=vendor.bundle)
        cloud.start()
        try:
            cloud.paste(cloud.line(HALL))
            cloud.online(HALL)
            # What tools/env does with EDGEGPU_RELEASE_PUB; the environment of the other tests has no key.
            bed.machine.exec("tee", "/opt/edgegpu/current/release.pub", input=vendor.public)
            yield cloud, vendor
        finally:
            cloud.stop()


def test_a_release_that_is_well_runs(world: tuple[Cloud, Vendor], limiter_build: Path, tmp_path: Path) -> None:
    """And a container that the limiter holds is held on by the one that it started with."""
    cloud, vendor = world
    bed = cloud.bed
    bed.offered()
    push_programs(bed, tmp_path, limiter_build)
    held = HeldPod(bed, "held")
    assert held.is_held()
    old, k3s, container = running(bed), bed.restarts(), held.identity()
    assert limiter_of(held) == old
    cloud.done("command", HALL, "agent.upgrade", *vendor.release(GOOD))
    assert running(bed) == GOOD
    assert answers(bed)["agent"] == GOOD
    assert versions(bed) == {old, GOOD}, "the one before is kept"
    told(cloud, GOOD)
    bed.offered()
    assert bed.restarts() == k3s, "k3s reads nothing of this"
    assert held.identity() == container
    assert held.is_held()
    percent = held.core_percent()
    assert is_the_share(percent), percent
    later = HeldPod(bed, "later")
    assert later.is_held()
    assert (limiter_of(held), limiter_of(later)) == (old, GOOD)
    for one in (held, later):
        one.delete()


def test_one_whose_agent_dies_is_put_back_and_says_why(world: tuple[Cloud, Vendor]) -> None:
    cloud, vendor = world
    bed = cloud.bed
    before, k3s = running(bed), bed.restarts()
    ended = cloud.end(cloud.begin("command", HALL, "agent.upgrade", *vendor.release(BAD, dies=True)))
    print(ended["state"], ended["text"])  # noqa: T201  (what people are told)
    assert ended["state"] == "ROLLED_BACK"
    assert f"edgegpu-agent {BAD} ends again and again" in ended["text"]
    assert running(bed) == before
    assert answers(bed)["agent"] == before
    told(cloud, before)
    bed.offered()
    assert bed.restarts() == k3s, "k3s reads nothing of this"
    record = bed.journal()
    assert (record["state"], record["agent"]) == ("ROLLED_BACK", "linked")
    cloud.done("command", HALL, "plugin.restart")


def test_an_uninstall_leaves_no_version(world: tuple[Cloud, Vendor]) -> None:
    cloud, _ = world
    bed = cloud.bed
    assert len(versions(bed)) > 1
    bed.edgegpu("uninstall", "--yes", "--force")
    bed.machine.ready()
    left = differences(cloud.disk_before, bed.disk())
    assert not {path: what for path, what in left.items() if not re.search(WAITS, path)}


def limiter_of(held: HeldPod) -> str:
    """Wait until a container is held for certain, and return the version of its limiter."""

    def found() -> str:
        isolation = held.isolation()
        return str(isolation["limiter"]) if isolation.get("state") == "enforced" else ""

    return wait_until(found, what=f"{held.name} is enforced", every_s=1)


def running(bed: Bed) -> str:
    """Return the version that the link leads to."""
    return bed.machine.exec("readlink", "/opt/edgegpu/current").stdout.strip()


def versions(bed: Bed) -> set[str]:
    """Return those that lie on the disk."""
    return set(bed.machine.exec("ls", "/opt/edgegpu").stdout.split()) - {"current"}


def answers(bed: Bed) -> dict[str, Any]:
    """Wait until the agent is on the link, and return what it says of itself."""

    def said() -> dict[str, Any]:
        shown = bed.edgegpu("agent", "status", "--json", check=False).stdout
        agent: dict[str, Any] = (json.loads(shown) if shown else {}).get("agent") or {}
        return agent if agent.get("connected") else {}

    return wait_until(said, what="the agent is on the link", every_s=0.5)


def told(cloud: Cloud, version: str) -> None:
    """Wait until the controller has heard of this version, from a box that is on the link."""

    def heard() -> bool:
        box = cloud.box(HALL)
        return bool(box["online"]) and box["versions"]["agent"] == version

    wait_until(heard, what=f"the birth of {version}", every_s=0.5)
