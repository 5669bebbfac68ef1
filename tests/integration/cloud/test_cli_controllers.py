"""`edgegpu-cloud controllers`: the folder of a further controller, and how boxes come to obey it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from kits.cloudcli import ok, run

from edgegpu_cloud.controller.leases import PartitionLeases
from edgegpu_cloud.controller.status import hold
from edgegpu_cloud.enrolment.ca import days_left
from edgegpu_cloud.enrolment.key_files import load_signing_key, read_file
from edgegpu_cloud.layout import CloudLayout, load
from edgegpu_cloud.store.records import ControllerBeat
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.keys import key_id, public_text

if TYPE_CHECKING:
    from pathlib import Path

    from kits.postgres import PostgresServer


def made(tmp_path: Path, server: PostgresServer) -> tuple[Path, str]:
    url = server.new_database()
    folder = tmp_path / "first"
    ok("init", "--name", "cloud.example.com", "--no-console", "--database", url, folder=folder)
    return folder, url


def keys_in_effect(folder: Path) -> list[str]:
    found: list[str] = ok("keys", "show", "--json", folder=folder).json["sets"][-1]["keys"]
    return found


def signing(folder: Path) -> str:
    return key_id(public_text(load_signing_key(CloudLayout(folder).signing_key)))


def test_a_further_controller_has_a_name_a_certificate_and_a_key_that_boxes_obey(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    first, _ = made(tmp_path, postgres_server)
    out = tmp_path / "second"
    assert ok("controllers", "add", "2", "--out", str(out), "--json", folder=first).json["signed"]
    (added,) = ok("audit", "--what", "controller", "--json", folder=first).json
    assert (added["before"], added["after"], added["result"]["state"]) == ({}, {"name": "2"}, "done")
    layout = CloudLayout(out)
    config = load(layout.config)
    assert (config.controller_name, config.console) == ("controller-2", None)
    assert config.database == load(CloudLayout(first).config).database
    assert days_left(read_file(layout.cert("controller")), now_s=0) > 0
    assert set(keys_in_effect(first)) == {signing(first), signing(out)}
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()) == [
        "ca/servers.crt",
        "controller.yaml",
        "keys/root.pub",
        "keys/signing.key",
        "tls/controller.crt",
        "tls/controller.key",
    ]
    assert out.stat().st_mode & 0o777 == 0o700
    assert layout.signing_key.stat().st_mode & 0o777 == 0o600


def test_with_the_root_key_elsewhere_the_request_is_signed_there(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    first, _ = made(tmp_path, postgres_server)
    root = tmp_path / "root.key"
    CloudLayout(first).root_key.rename(root)
    out = tmp_path / "second"
    done = ok("controllers", "add", "2", "--out", str(out), folder=first)
    assert "boxes do not obey it yet" in done.out
    assert keys_in_effect(first) == [signing(first)]
    signed = ok("keys", "sign", "--root", str(root), stdin=(out / "request.json").read_text())
    (tmp_path / "signed.json").write_text(signed.out)
    ok("keys", "add", str(tmp_path / "signed.json"), folder=first)
    assert set(keys_in_effect(first)) == {signing(first), signing(out)}


def test_a_new_key_of_the_first_one_leaves_the_others_in(tmp_path: Path, postgres_server: PostgresServer) -> None:
    first, url = made(tmp_path, postgres_server)
    ok("controllers", "add", "2", "--out", str(tmp_path / "second"), folder=first)
    store = ControllerStore.open(url)
    with store.write() as tx:
        for name in ("controller-1", "controller-2"):
            tx.leases.join(ControllerBeat(name=name, instance="1", beat=1, host="here", seen_at_s=1.0))
        tx.leases.give(tx.leases.all()[0], "controller-2")
    store.close()
    before = signing(first)
    ok("keys", "rotate", folder=first)
    assert set(keys_in_effect(first)) == {signing(first), before, signing(tmp_path / "second")}
    ok("keys", "rotate", "--drop-old", folder=first)
    assert keys_in_effect(first) == [signing(first)]

    told = ok("controllers", "list", "--json", folder=first).json
    assert [(one["name"], one["partitions"]) for one in told["controllers"]] == [
        ("controller-1", 0),
        ("controller-2", 1),
    ]
    assert told["unheld"] == 63
    assert "controller-2  here" in ok("controllers", "list", folder=first).out


def test_a_controller_that_is_alone_is_seen_while_it_runs(tmp_path: Path) -> None:
    """It renews no lease: the store has the time of its start alone."""
    folder = tmp_path / "alone"
    ok("init", "--name", "127.0.0.1", "--no-console", folder=folder)
    layout = CloudLayout(folder)
    store = ControllerStore.open(f"sqlite:///{layout.database}", create=False)
    PartitionLeases(store, load(layout.config).controller_name, clock=lambda: time.time() - 3_700).begin()
    store.close()
    assert "1 h ago" in ok("controllers", "list", folder=folder).out
    held = hold(layout, link=True)
    try:
        assert "0 s ago" in ok("controllers", "list", folder=folder).out
        (one,) = ok("controllers", "list", "--json", folder=folder).json["controllers"]
        assert abs(one["seen_at"] - time.time()) < 60
    finally:
        held.close()


def test_what_cannot_be_is_refused_with_a_remedy(tmp_path: Path, postgres_server: PostgresServer) -> None:
    alone = tmp_path / "alone"
    ok("init", "--name", "127.0.0.1", "--no-console", folder=alone)
    refused = run("controllers", "add", "2", "--out", str(tmp_path / "x"), folder=alone)
    assert refused.code == 1
    assert "docs/cloud/postgresql.md" in refused.err
    assert not (tmp_path / "x").exists()

    first, _ = made(tmp_path, postgres_server)
    assert "this one has that name" in run("controllers", "add", "1", "--out", str(tmp_path / "x"), folder=first).err
    assert "it is not empty" in run("controllers", "add", "2", "--out", str(first), folder=first).err
    assert run("controllers", "add", "Two!", "--out", str(tmp_path / "x"), folder=first).code == 2
    assert json.dumps(keys_in_effect(first)) == json.dumps([signing(first)])
