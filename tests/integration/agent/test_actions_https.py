"""A download takes no more of the disk than it may, and what was refused for good leaves nothing there."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest
from kits.install import Host, serve

from edgegpu_agent.actions.https import HttpsClient, WebError
from edgegpu_agent.actions.programs import ActionTimer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 400_000
ARCHIVE = "some.tar.gz"


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    folder = tmp_path / "web"
    folder.mkdir()
    (folder / ARCHIVE).write_bytes(os.urandom(SIZE))
    return (folder / ARCHIVE).read_bytes()


@pytest.fixture
def host(tmp_path: Path, content: bytes) -> Iterator[Host]:
    assert content
    with serve(tmp_path / "web", tmp_path / "keys") as host:
        yield host


@pytest.fixture
def web(tmp_path: Path, host: Host) -> HttpsClient:
    ca = tmp_path / "ca.crt"
    ca.write_text(host.cert.ca)
    return HttpsClient(timer=ActionTimer(threading.Event(), speed=100.0), ca=ca)


@pytest.mark.parametrize("begun", [0, 100_000])
def test_what_has_no_room_leaves_nothing(
    tmp_path: Path, web: HttpsClient, host: Host, content: bytes, *, begun: int
) -> None:
    part = tmp_path / "part"
    if begun:
        part.write_bytes(content[:begun])
    with pytest.raises(WebError, match="the disk has no room for it") as refused:
        web.fetch(f"{host.url}/{ARCHIVE}", part, free_bytes=SIZE - begun - 1)
    assert refused.value.final
    assert not part.exists()


def test_what_is_there_already_takes_no_room_when_it_goes_on(
    tmp_path: Path, web: HttpsClient, host: Host, content: bytes
) -> None:
    part = tmp_path / "part"
    part.write_bytes(content[:300_000])
    web.fetch(f"{host.url}/{ARCHIVE}", part, free_bytes=SIZE - 300_000)
    assert part.read_bytes() == content
    assert host.faults.asked[-1][1] == "bytes=300000-"


def test_what_the_host_has_no_more_is_not_kept(tmp_path: Path, web: HttpsClient, host: Host, content: bytes) -> None:
    part = tmp_path / "part"
    part.write_bytes(content[:1000])
    with pytest.raises(WebError, match="404"):
        web.fetch(f"{host.url}/none.tar.gz", part, free_bytes=SIZE)
    assert not part.exists()


def test_what_broke_off_is_kept_for_the_next_try(tmp_path: Path, web: HttpsClient, host: Host) -> None:
    part = tmp_path / "part"
    host.faults.busy = 5
    with pytest.raises(WebError, match="503"):
        web.fetch(f"{host.url}/{ARCHIVE}", part, free_bytes=SIZE)
    host.faults.cut = 1
    web.fetch(f"{host.url}/{ARCHIVE}", part, free_bytes=SIZE)
    assert part.stat().st_size == SIZE


def test_a_full_disk_is_no_reason_to_try_again(tmp_path: Path, web: HttpsClient, host: Host) -> None:
    part = tmp_path / "part"
    part.symlink_to("/dev/full")
    with pytest.raises(WebError, match="No space left") as refused:
        web.fetch(f"{host.url}/{ARCHIVE}", part, free_bytes=SIZE)
    assert refused.value.final
    assert len(host.faults.asked) == 1
    assert not part.is_symlink()
