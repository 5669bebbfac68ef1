"""Who listens on a Unix socket, and what is left of who did."""

import os
import socket
from pathlib import Path

import pytest

from edgegpu_base.listeners import UNSEEN, listener


@pytest.mark.parametrize(
    ("kind", "pid"), [(socket.SOCK_STREAM, os.getpid()), (socket.SOCK_SEQPACKET, UNSEEN)], ids=["stream", "packets"]
)
def test_a_process_that_listens_is_told_from_a_name_that_is_left(short_tmp: Path, kind: int, pid: int) -> None:
    path = short_tmp / "s"
    with socket.socket(socket.AF_UNIX, kind) as server:
        server.bind(str(path))
        server.listen()
        assert listener(path) == pid
    assert path.exists()
    assert listener(path) is None


def test_a_full_queue_is_one_of_somebody(short_tmp: Path) -> None:
    path = short_tmp / "s"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(path))
        server.listen(0)
        client.connect(str(path))
        assert listener(path, timeout_s=0.05) == UNSEEN


def test_neither_a_file_nor_nothing_listens(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert [listener(tmp_path / name) for name in ("file", "nothing")] == [None, None]
