"""HTTPS goes on while its PostgreSQL is away, and its log says so in lines for people."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from kits import postgres
from kits.cloudcli import ok
from kits.mqtt import wait_for

from edgegpu_sim.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kits.postgres import PostgresServer


@pytest.fixture
def server(short_tmp: Path) -> Iterator[PostgresServer]:
    postgres.need()
    short_tmp.chmod(0o711)  # the server's user has to come through
    folder = short_tmp / "pg"
    folder.mkdir()
    with postgres.running(folder) as made:
        yield made


def test_a_database_that_is_away_and_back_is_said_without_tracebacks(short_tmp: Path, server: PostgresServer) -> None:
    folder, log = short_tmp / "cloud", short_tmp / "https.log"
    ports = ("--https-port", str(free_port()), "--broker", f"127.0.0.1:{free_port()}")
    ok("init", "--name", "127.0.0.1", *ports, "--no-console", "--database", server.new_database(), folder=folder)
    words = [sys.executable, "-m", "edgegpu_cloud.cli.app", "serve", "--no-link", "--folder", str(folder)]
    with log.open("wb") as output, subprocess.Popen(words, stdout=output, stderr=output) as process:
        try:
            wait_for(lambda: b"boxes enrol at" in log.read_bytes(), what="HTTPS answers", timeout_s=120)
            server.stop()
            for work in (b"cannot write the list of revoked certificates", b"cannot pass on controllers' certificates"):
                wait_for(lambda work=work: work in log.read_bytes(), what=f"the log has {work!r}", timeout_s=120)  # type: ignore[misc]
            server.start()
            wait_for(lambda: log.read_bytes().count(b"works again: ") == 2, what="both work again", timeout_s=120)
        finally:
            process.terminate()
    assert b"Traceback" not in log.read_bytes(), log.read_text()
    assert b"is PostgreSQL running there" in log.read_bytes()
