"""What a restore takes away again: a backup would give back what people have taken from anybody since."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from kits.backups import passphrase_words
from kits.cloudcli import ok, run
from kits.cloudprocess import Cloud, running
from kits.people import LOCAL, PASSWORD, CheapHasher
from kits.sync import birth
from sqlalchemy import create_engine, inspect

from edgegpu_cloud.enrolment.issuing import write_crl
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.layout import CloudLayout, DatabaseConfig, load, store_url
from edgegpu_cloud.people.passwords import HashGate, Passwords
from edgegpu_cloud.people.people import People
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.records import EnrolledBox, Latest
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.ids import device_id
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kits.postgres import PostgresServer

ANNA, OWNER = "anna", "hall-1"


@contextmanager
def store_of(folder: Path) -> Iterator[ControllerStore]:
    layout = CloudLayout(folder)
    with closing(ControllerStore.open(store_url(layout, load(layout.config).database), create=False)) as store:
        yield store


def people_of(store: ControllerStore) -> People:
    return People(store, clock=time.time, passwords=Passwords(CheapHasher(), HashGate()))


def add_people(folder: Path) -> None:
    """Add an admin who stays as she is, three whose rights shrink later, and what they have."""
    with store_of(folder) as store:
        people = people_of(store)
        for name, role in ((ANNA, Role.ADMIN), ("carl", Role.OPERATOR), ("dora", Role.ADMIN), ("emil", Role.VIEWER)):
            people.create(name, role=role, by=LOCAL)
            people.set_password(name, PASSWORD, by=LOCAL)
        people.reset_password("emil", by=LOCAL)  # a link that is not used
        people.sign_in(ANNA, PASSWORD, address="192.0.2.1")
        for name in ("lasting", "revoked"):
            people.create_token(ANNA, name, role=Role.VIEWER, scope="", days=30, by=LOCAL)


def add_old_box(folder: Path) -> None:
    """Add a box whose agent is one version older."""
    device = device_id("k3f9x2m7q1w8e5r4")
    box = EnrolledBox(device=device, enrolment=3, public="x", instance="ab" * 32, name="old-box")
    last = Latest(device=device, kind=TopicKind.STATUS, stamp=birth().stamp, at_s=1.0, body={"state": "birth"})
    with store_of(folder) as store, store.write() as tx:
        add_box(tx, box, Author("anna", 1.0))
        tx.boxes.add_latest([last])


def take_away(cloud: Cloud) -> None:
    """Take away, after the backup, what the restore would give back."""
    cloud.ok("revoke", "hall-2", "--yes")
    cloud.ok("boxes", "forget", "hall-3", "--yes")
    assert cloud.enrols("hall-4")
    cloud.ok("revoke", "hall-4", "--yes")
    [token] = [one["id"] for one in cloud.ok("tokens", "--json").json if one["name"] == "late-2"]
    cloud.ok("tokens", "--take-back", token)
    with store_of(cloud.folder) as store:
        people = people_of(store)
        people.revoke_token(ANNA, "revoked", by=LOCAL)
        people.disable("carl", by=LOCAL)
        people.set_role("dora", Role.VIEWER, by=LOCAL)
        people.set_scope("dora", "site=a", by=LOCAL)
        people.set_password("emil", f"{PASSWORD}, anew", by=LOCAL)


@dataclass
class Site:
    """A backup, the words that open it, and the controller's folder as it was last."""

    backup: Path
    words: tuple[str, ...]
    last: Path

    def restore(self, folder: Path, *more: str, **how: Any) -> Any:  # noqa: ANN401  (the arguments of `run`)
        return run("restore", str(self.backup), *self.words, *more, folder=folder, **how)

    def restored(self, folder: Path, *more: str) -> dict[str, Any]:
        done = self.restore(folder, "--yes", "--json", *more)
        assert done.code == 0, done.err
        document: dict[str, Any] = json.loads(done.out)
        return document


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    work = tmp_path_factory.mktemp("site")
    with running(work) as cloud:
        add_people(cloud.folder)
        for name in (OWNER, "hall-2", "hall-3"):
            assert cloud.enrols(name)
        for name in ("late-1", "late-2"):
            cloud.ok("enrol", "--name", name)
        words = passphrase_words(work)
        cloud.ok("backup", str(work / "a.backup"), *words)
        take_away(cloud)
        cloud.end()
        return Site(work / "a.backup", words, cloud.folder)


@pytest.fixture
def folder(site: Site, tmp_path: Path) -> Path:
    """Return the folder of a restore; beside it is the controller's as it was last."""
    shutil.copytree(site.last, tmp_path / "cloud.old")
    return tmp_path / "cloud"


def listed(folder: Path) -> set[str]:
    revoked = x509.load_pem_x509_crl(CloudLayout(folder).crl.read_bytes())
    return {f"{one.serial_number:x}" for one in revoked}


def states(folder: Path) -> dict[str, str]:
    return {one["name"]: one["state"] for one in ok("boxes", "--json", folder=folder).json}


def test_what_was_taken_away_since_the_backup_stays_taken_away(site: Site, folder: Path) -> None:
    done = site.restored(folder)
    assert done["later"] == str(folder.with_name("cloud.old") / "ca/boxes.crl")
    assert (done["sessions"], done["links"]) == (1, 1)
    assert done["enrolment_tokens"] == ["late-2"]
    assert done["api_tokens"] == ["anna/revoked"]
    assert sorted(done["boxes"]) == ["hall-2", "hall-3"]
    assert [line.partition(":")[0] for line in done["people"]] == ["carl", "dora", "dora", "emil"]
    assert done["kept"] == []
    assert listed(folder) == listed(site.last), "also the box that the backup does not know"
    assert done["certificates"] > 0
    assert states(folder) == {OWNER: "ENROLLED", "hall-2": "REVOKED", "hall-3": "REVOKED"}
    with store_of(folder) as store, store.read() as tx:
        accounts = {one.name: one for one in tx.people.accounts()}
        assert [one.name for one in tx.people.tokens()] == ["lasting"]
        assert (tx.people.links(), tx.people.sessions(ANNA)) == ([], [])
    assert (accounts[ANNA].role, bool(accounts[ANNA].password)) == (Role.ADMIN, True)
    assert accounts["carl"].disabled
    assert (accounts["dora"].role, accounts["dora"].scope) == (Role.VIEWER, "site=a")
    assert not accounts["emil"].password
    what = [one["what"] for one in ok("audit", "--json", folder=folder).json]
    assert {"store.restored", "person.disabled", "person.role", "person.token_revoked", "box.revoked"} <= set(what)


def test_a_revoked_box_that_the_backup_does_not_know_stays_on_lists_that_are_written_later(
    site: Site, folder: Path
) -> None:
    site.restored(folder)
    with store_of(folder) as store:
        write_crl(CloudLayout(folder), store, clock=time.time)
    assert listed(folder) == listed(site.last)


def test_where_nothing_is_left_tokens_end_and_who_comes_back_is_named(site: Site, tmp_path: Path) -> None:
    done = site.restored(tmp_path / "cloud")
    assert done["later"] is None
    assert done["enrolment_tokens"] == ["late-1", "late-2"]
    assert done["api_tokens"] == ["anna/lasting", "anna/revoked"]
    assert (done["boxes"], done["people"]) == ([], [])
    assert [line.partition(",")[0] for line in done["kept"]] == [ANNA, "carl", "dora", "emil"]
    kept = site.restored(tmp_path / "kept", "--keep-api-tokens")
    assert kept["api_tokens"] == []
    assert kept["kept"][-2:] == ["API token anna/lasting, viewer", "API token anna/revoked, viewer"]


def test_the_brokers_list_alone_revokes_the_boxes(site: Site, tmp_path: Path) -> None:
    done = site.restored(tmp_path / "cloud", "--later", str(CloudLayout(site.last).crl))
    assert sorted(done["boxes"]) == ["hall-2", "hall-3"]
    assert done["enrolment_tokens"] == ["late-1", "late-2"], "the list says nothing of tokens"
    assert listed(tmp_path / "cloud") == listed(site.last)


def test_a_list_of_another_controller_is_refused_and_nothing_is_there(site: Site, tmp_path: Path) -> None:
    ok("init", "--name", "127.0.0.1", folder=tmp_path / "other")
    (tmp_path / "text").write_text("no list")
    for later, words in (
        (CloudLayout(tmp_path / "other").crl, "another controller's authority"),
        (tmp_path / "other", "another controller's authority"),
        (tmp_path / "text", "no list of revoked certificates"),
        (tmp_path / "missing", "cannot read"),
    ):
        done = site.restore(tmp_path / "cloud", "--yes", "--later", str(later))
        assert (done.code, words in done.err) == (1, True), done.err
        assert not (tmp_path / "cloud").exists()


def test_a_folder_beside_that_is_another_controllers_does_not_count(site: Site, tmp_path: Path) -> None:
    ok("init", "--name", "127.0.0.1", folder=tmp_path / "cloud-2")
    assert site.restored(tmp_path / "cloud")["later"] is None


def test_a_later_store_that_cannot_be_read_is_named_and_its_list_counts(site: Site, folder: Path) -> None:
    for file in folder.with_name("cloud.old").glob("controller.db*"):
        file.write_bytes(b"a disk that has lied" * 500)
    done = site.restore(folder, "--yes")
    assert done.code == 0, done.err
    assert "nothing later is known of people and tokens (" in done.out
    assert "box hall-2: revoked" in done.out
    assert "enrolment token late-1" in done.out


def test_it_asks_and_a_no_leaves_nothing(site: Site, folder: Path) -> None:
    done = site.restore(folder, stdin="n\n")
    assert done.code == 1
    assert "box hall-2: revoked" in done.out
    assert "the list of the revoked is " in done.out
    assert "restore it? [y/N]" in done.out
    assert not folder.exists()
    done = site.restore(folder)
    assert (done.code, "nobody has confirmed" in done.err, "pass --yes" in done.err) == (1, True, True), done.err
    assert site.restore(folder, "--json").code == 1
    assert not folder.exists()
    assert site.restore(folder, stdin="y\n").code == 0


def test_a_no_leaves_no_tables_in_postgresql(tmp_path: Path, postgres_server: PostgresServer) -> None:
    made, url = tmp_path / "made", postgres_server.new_database()
    ok("init", "--name", "127.0.0.1", "--database", postgres_server.new_database(), folder=made)
    words = passphrase_words(tmp_path)
    ok("backup", str(tmp_path / "all"), *words, folder=made)
    again = ("restore", str(tmp_path / "all"), *words, "--database", url)
    assert run(*again, folder=tmp_path / "back", stdin="n\n").code == 1
    engine = create_engine(store_url(CloudLayout(made), DatabaseConfig(url=url)))
    assert inspect(engine).get_table_names() == []
    engine.dispose()
    ok(*again, "--yes", "--later", str(made), folder=tmp_path / "back")


def test_a_copy_that_is_older_than_the_backup_takes_nothing_away(tmp_path: Path) -> None:
    made, folder = tmp_path / "made", tmp_path / "cloud"
    ok("init", "--name", "127.0.0.1", folder=made)
    shutil.copytree(made, tmp_path / "cloud.bak")
    add_people(made)
    add_old_box(made)
    words = passphrase_words(tmp_path)
    ok("backup", str(tmp_path / "all"), *words, folder=made)
    done = run("restore", str(tmp_path / "all"), *words, "--yes", folder=folder)
    assert done.code == 0, done.err
    assert "(its store is older than the backup)" in done.out
    assert states(folder) == {"old-box": "ENROLLED"}
    with store_of(folder) as store, store.read() as tx:
        assert [one.name for one in tx.people.accounts() if one.disabled or not one.password] == []


def test_of_several_folders_with_one_list_the_newest_store_counts(tmp_path: Path) -> None:
    made, folder = tmp_path / "made", tmp_path / "cloud"
    ok("init", "--name", "127.0.0.1", folder=made)
    shutil.copytree(made, tmp_path / "cloud.bak")
    add_people(made)
    words = passphrase_words(tmp_path)
    ok("backup", str(tmp_path / "all"), *words, folder=made)
    shutil.copytree(made, tmp_path / "cloud.old")
    with store_of(tmp_path / "cloud.old") as store:
        people_of(store).disable("carl", by=LOCAL)
    document = ok("restore", str(tmp_path / "all"), *words, "--yes", "--json", folder=folder).json
    assert document["later"] == str(tmp_path / "cloud.old/ca/boxes.crl")
    assert (document["people"], document["kept"]) == (["carl: disabled"], [])
    same = ("--later", str(made))
    document = ok("restore", str(tmp_path / "all"), *words, "--yes", "--json", *same, folder=tmp_path / "same").json
    assert (document["people"], document["api_tokens"], document["kept"]) == ([], [], []), "as old as the backup"


def test_the_brokers_access_list_is_as_wide_as_the_restored_boxes_need(tmp_path: Path) -> None:
    made, folder, wide = tmp_path / "made", tmp_path / "cloud", "pattern write edgegpu/v1/%u/up/cmd/+"
    ok("init", "--name", "127.0.0.1", folder=made)
    words = passphrase_words(tmp_path)
    ok("backup", str(tmp_path / "none"), *words, folder=made)
    add_old_box(made)
    ok("backup", str(tmp_path / "all"), *words, folder=made)
    ok("restore", str(tmp_path / "all"), *words, "--yes", folder=folder)
    assert wide in (folder / "broker/boxes.acl").read_text()
    ok("restore", str(tmp_path / "none"), *words, "--yes", folder=tmp_path / "narrow")
    assert wide not in (tmp_path / "narrow/broker/boxes.acl").read_text()


def test_without_the_authoritys_key_a_later_list_is_taken_over_as_it_is(tmp_path: Path) -> None:
    made, folder = CloudLayout(tmp_path / "made"), CloudLayout(tmp_path / "cloud")
    ok("init", "--name", "127.0.0.1", folder=made.folder)
    key, words = made.ca_key("boxes"), passphrase_words(tmp_path)
    content, first = key.read_bytes(), made.crl.read_bytes()
    key.unlink()
    ok("backup", str(tmp_path / "all"), *words, folder=made.folder)
    key.write_bytes(content)
    with store_of(made.folder) as store:
        write_crl(made, store, clock=time.time, also=("ab",))
    newer = made.crl.read_bytes()
    shutil.copytree(made.folder, tmp_path / "cloud.old")
    ok("restore", str(tmp_path / "all"), *words, "--yes", folder=folder.folder)
    assert (folder.crl.read_bytes(), folder.crl.stat().st_mode & 0o777) == (newer, 0o644)
    key.unlink()
    ok("backup", str(tmp_path / "newer"), *words, folder=made.folder)
    (tmp_path / "first.crl").write_bytes(first)
    last = ("--later", str(tmp_path / "first.crl"))
    ok("restore", str(tmp_path / "newer"), *words, "--yes", *last, folder=tmp_path / "again")
    assert CloudLayout(tmp_path / "again").crl.read_bytes() == newer, "the list of the backup is the newer one"


def test_a_later_path_that_is_no_controller_is_named(tmp_path: Path) -> None:
    made = tmp_path / "made"
    ok("init", "--name", "127.0.0.1", folder=made)
    words = passphrase_words(tmp_path)
    ok("backup", str(tmp_path / "all"), *words, folder=made)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    for later, reason in (
        (tmp_path / "folder", f"cannot read {tmp_path / 'folder/ca/boxes.crl'}"),
        (tmp_path / "empty", f"cannot use {tmp_path / 'empty'}: it is no list of revoked certificates"),
        (tmp_path / ("x" * 300), "cannot read "),
    ):
        done = run("restore", str(tmp_path / "all"), *words, "--yes", "--later", str(later), folder=tmp_path / "cloud")
        assert (done.code, reason in done.err, "df" in done.err) == (1, True, False), done.err
        assert "ca/boxes.crl" in done.err
        assert not (tmp_path / "cloud").exists()
