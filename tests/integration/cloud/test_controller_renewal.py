"""A further controller gets its next certificate through the store, while all go on; nobody gets another's."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from kits.cloudcli import ok
from kits.cloudprocess import running
from kits.mqtt import wait_for

from edgegpu_base.x509 import key_pem, new_key
from edgegpu_cloud.enrolment.bootstrap import authority_of, read_key
from edgegpu_cloud.enrolment.ca import days_left
from edgegpu_cloud.enrolment.controller_renewal import (
    ControllerRenewal,
    answer_renewals,
    ask_renewal,
    report_end,
    take_renewal,
)
from edgegpu_cloud.enrolment.key_files import read_file, write_file
from edgegpu_cloud.layout import CloudConfig, CloudLayout, load
from edgegpu_cloud.store.store import ControllerStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kits.postgres import PostgresServer


def left(layout: CloudLayout) -> float:
    return days_left(read_file(layout.cert("controller")), now_s=time.time())


def wear(first: CloudLayout, further: CloudLayout, *, days: int) -> None:
    """Let the further controller's certificate end in so many days."""
    public = read_key(further, "controller").public_key()
    name = load(further.config).controller_name
    worn = authority_of(first, "controllers").client(public, name, now_s=time.time(), days=days)
    write_file(further.cert("controller"), worn, private=False)


@contextmanager
def served(folder: Path, log: Path) -> Iterator[None]:
    words = [sys.executable, "-m", "edgegpu_cloud.cli.app", "serve", "--no-https", "--folder", str(folder)]
    with log.open("ab") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out)
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(30) == 0, log.read_text()


def test_it_is_renewed_while_all_go_on(tmp_path: Path, postgres_server: PostgresServer) -> None:
    with running(tmp_path, "--database", postgres_server.new_database()) as cloud:
        cloud.ok("controllers", "add", "2", "--out", str(tmp_path / "second"))
        first, second = CloudLayout(cloud.folder), CloudLayout(tmp_path / "second")
        wear(first, second, days=100)
        key = read_file(second.key("controller"))
        with served(second.folder, tmp_path / "second.log"):
            wait_for(lambda: left(second) > 800, what="the second controller has a new certificate")
            assert read_file(second.key("controller")) == key
            shown = {one["name"]: one for one in cloud.ok("controllers", "list", "--json").json["controllers"]}
            ends = shown["controller-2"]["certificate_ends_at"]
            assert ends > time.time() + 800 * 86_400
            assert shown["controller-1"]["certificate_ends_at"] > time.time()
            assert time.strftime("%Y-%m-%d", time.gmtime(ends)) in cloud.ok("controllers", "list").out
            assert shown["controller-2"]["partitions"] >= 0
        log = (tmp_path / "second.log").read_text()
        assert log.count("connected: asking") == 1, "its connection stands meanwhile"
        assert "renewed the certificate of controller-2, which has asked for it" in cloud.log().decode()
        with served(second.folder, tmp_path / "again.log"):
            wait_for(lambda: "connected: asking" in (tmp_path / "again.log").read_text(), what="the broker takes it")


class TestAuthority:
    @pytest.fixture
    def bed(self, tmp_path: Path, postgres_server: PostgresServer) -> Iterator[Bed]:
        url = postgres_server.new_database()
        ok("init", "--name", "127.0.0.1", "--no-console", "--database", url, folder=tmp_path / "first")
        ok("controllers", "add", "2", "--out", str(tmp_path / "second"), folder=tmp_path / "first")
        store = ControllerStore.open(url)
        yield Bed(CloudLayout(tmp_path / "first"), CloudLayout(tmp_path / "second"), store)
        store.close()

    def test_it_answers_once_and_for_that_key(self, bed: Bed) -> None:
        wear(bed.first, bed.second, days=10)
        assert take_renewal(bed.second, bed.config, bed.store) is None
        ask_renewal(bed.second, bed.config, bed.store)
        assert take_renewal(bed.second, bed.config, bed.store) is None
        assert bed.answered() == {"controller-2": ""}
        assert bed.answered() == {}
        assert take_renewal(bed.second, bed.config, bed.store) == ""
        assert left(bed.second) > 800
        report_end(bed.second, bed.config, bed.store)
        assert take_renewal(bed.second, bed.config, bed.store) is None

    def test_a_controller_that_was_dropped_gets_none(self, bed: Bed) -> None:
        ok("keys", "rotate", "--drop-old", folder=bed.first.folder)
        ask_renewal(bed.second, bed.config, bed.store)
        assert "not in the newest key set" in bed.answered()["controller-2"]
        before = left(bed.second)
        assert "not in the newest key set" in (take_renewal(bed.second, bed.config, bed.store) or "")
        assert left(bed.second) == pytest.approx(before, abs=0.1)

    def test_a_certificate_that_has_ended_is_not_renewed(self, bed: Bed) -> None:
        ask_renewal(bed.second, bed.config, bed.store)
        assert "has ended" in bed.answered(now_s=time.time() + 826 * 86_400)["controller-2"]

    def test_nobody_gets_another_name_or_another_key(self, bed: Bed) -> None:
        ask_renewal(bed.second, bed.config, bed.store)
        with bed.store.read() as tx:
            request = ControllerRenewal.model_validate_json(tx.controller_certificates.of("controller-2")[0])
        for name, text in {
            "controller-1": request.model_dump_json(),
            "controller-3": "{}",
            "controller-4": request.model_copy(update={"csr": "none"}).model_dump_json(),
            "controller-5": request.model_copy(update={"signature": "AAAA"}).model_dump_json(),
        }.items():
            with bed.store.write() as tx:
                tx.controller_certificates.write(name, ends_at_s=1.0, request=text)
        told = bed.answered()
        assert "not for the name" in told["controller-1"]
        assert "does not hold" in told["controller-3"]
        assert "cannot read the request" in told["controller-4"]
        assert told["controller-2"] == ""

        write_file(bed.second.key("controller"), key_pem(new_key()))
        ask_renewal(bed.second, bed.config, bed.store)
        assert "the key that it has a certificate for" in bed.answered()["controller-2"]


class Bed:
    """Two controllers' folders on one store."""

    def __init__(self, first: CloudLayout, second: CloudLayout, store: ControllerStore) -> None:
        self.first, self.second, self.store = first, second, store

    @property
    def config(self) -> CloudConfig:
        return load(self.second.config)

    def answered(self, now_s: float | None = None) -> dict[str, str]:
        now_s = time.time() if now_s is None else now_s
        return answer_renewals(self.first, load(self.first.config), self.store, now_s=now_s)
