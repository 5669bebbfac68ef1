"""What root does in the folder of the controller's user stays that user's; who is neither is told whom to be."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from kits.cloudcli import ok, run

from edgegpu_cloud.cli.common import opened
from edgegpu_cloud.issuing import write_crl
from edgegpu_cloud.standing import hold

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")

NOBODY, OTHER = 65_534, 65_533


def test_a_root_shell_leaves_nothing_that_the_controller_cannot_read(tmp_path: Path) -> None:
    folder, stick = tmp_path / "cloud", tmp_path / "stick"
    folder.mkdir(mode=0o700)
    os.chown(folder, NOBODY, NOBODY)
    stick.mkdir(mode=0o700)
    ok("init", "--name", "127.0.0.1", folder=folder)
    (folder / "keys/root.key").rename(stick / "root.key")
    ok("keys", "rotate", "--root", str(stick / "root.key"), folder=folder)
    ok("broker", folder=folder)
    ok("enrol", folder=folder)
    with opened(folder) as cloud:
        write_crl(cloud.layout, cloud.store, clock=time.time)
        hold(cloud.layout, link=False).close()
        owners = {path: (path.stat().st_uid, path.stat().st_gid) for path in (folder, *folder.rglob("*"))}
    assert {"serve.state", ".crl.lock", "controller.db-wal"} <= {path.name for path in owners}, "the store was open"
    assert [path for path, owner in owners.items() if owner != (NOBODY, NOBODY)] == []
    assert "user nobody" in (folder / "broker/mosquitto.conf").read_text()
    ok("keys", "make-root", str(stick / "next.key"))
    assert (stick / "next.key").stat().st_uid == 0, "beside the controller's folder it is whose the folder is"


def test_another_user_is_told_whom_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cloud"
    folder.mkdir(mode=0o700)
    os.chown(folder, NOBODY, NOBODY)
    ok("init", "--name", "127.0.0.1", folder=folder)
    monkeypatch.chdir(tmp_path)  # the folders above are the tester's alone
    tmp_path.chmod(0o711)
    os.setegid(OTHER)
    os.seteuid(OTHER)
    try:
        done = run("boxes", "--folder", "cloud")
    finally:
        os.seteuid(0)
        os.setegid(0)
    assert (done.code, "runuser -u nobody -- edgegpu-cloud" in done.err) == (1, True), done.err
