"""Several controllers on one PostgreSQL, with a real broker and boxes: they die, are stopped, lose the database.

The times of the leases are a fifth of the usual ones, so that a death is noticed in two seconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from kits import postgres
from kits.cloudcli import ok
from kits.enrol import Box
from kits.livebox import LiveBox, enrol
from kits.mqtt import need_mosquitto, wait_for

from edgegpu_cloud.layout import CloudLayout
from edgegpu_cloud.store.engine import open_engine
from edgegpu_cloud.store.records import PARTITIONS, partition_of
from edgegpu_cloud.store.schema import TableRow
from edgegpu_cloud.store.store import ControllerStore, StoreError
from edgegpu_sim.ports import answers, free_port
from edgegpu_sync.states import CommandState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kits.postgres import PostgresServer

    from edgegpu_cloud.store.records import Lease
    from edgegpu_sync.ids import CommandId


RENEW_S, LOST_S = 0.6, 2.0
BOXES = 6
FAKETIME = next(iter(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)
SKEW = {"controller-1": "+0s", "controller-2": "+60s", "controller-3": "-60s"}


@dataclass
class Controller:
    """A controller's process; `tend` starts it again when it has ended, as systemd does."""

    name: str
    folder: Path
    log: Path
    held: bool = False
    process: subprocess.Popen[bytes] | None = None

    def tend(self) -> None:
        if not self.held and (self.process is None or self.process.poll() is not None):
            words = [sys.executable, "-m", "edgegpu_cloud.cli.app", "serve", "--no-https", "--folder", str(self.folder)]
            env = dict(os.environ) | {"PGAPPNAME": self.name}
            if FAKETIME is not None:
                env |= {"LD_PRELOAD": str(FAKETIME), "FAKETIME": SKEW[self.name], "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(words, stdout=log, stderr=log, env=env)

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill it, and leave it dead."""
        self.held = True
        self.send(signal.SIGKILL)
        assert self.process is not None
        self.process.wait(30)

    def stop(self) -> None:
        self.held = True
        if self.process is not None and self.process.poll() is None:
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
            self.process.wait(30)


@dataclass
class Place:
    """The database, the broker, HTTPS, three controllers and their boxes."""

    server: PostgresServer
    url: str
    folder: Path
    store: ControllerStore
    controllers: dict[str, Controller]
    boxes: dict[str, LiveBox] = field(default_factory=dict)

    def wait(self, what: str, probe: object, *, timeout_s: float = 60.0) -> None:
        """Wait until a probe is true, and keep the processes alive meanwhile."""
        assert callable(probe)

        def look() -> bool:
            for one in self.controllers.values():
                one.tend()
            try:
                return bool(probe())
            except StoreError:
                return False

        try:
            wait_for(look, what=what, timeout_s=timeout_s)
        except TimeoutError:
            for one in self.controllers.values():
                sys.stderr.write(f"--- {one.name}\n{one.log.read_text(errors='replace')[-3_000:]}\n")
            raise

    def leases(self) -> list[Lease]:
        with self.store.read() as tx:
            return tx.leases.all()

    def shares(self) -> dict[str, int]:
        found = dict.fromkeys(self.controllers, 0)
        for one in self.leases():
            found[one.holder] = found.get(one.holder, 0) + 1
        return found

    def even(self, *names: str) -> bool:
        """Whether these hold everything in even shares."""
        shares = self.shares()
        held = [shares[name] for name in names]
        return sum(held) == PARTITIONS and max(held) - min(held) <= 1

    def holder(self, name: str) -> str:
        return self.leases()[partition_of(self.boxes[name].box.device)].holder

    def restart_all(self) -> dict[str, CommandId]:
        """Ask every box for a restart of k3s, which may be done once only."""
        ids = {}
        for name in self.boxes:
            told = ok("command", name, "k3s.restart", "--yes", "--json", folder=self.folder).json
            ids[name] = told["id"] if isinstance(told, dict) else told[0]["id"]
        return ids

    def ended(self, ids: dict[str, CommandId]) -> bool:
        with self.store.read() as tx:
            found = tx.commands.get(list(ids.values()))
        return all(found[id_].tracked.ended for id_ in ids.values())

    def check(self, ids: dict[str, CommandId]) -> None:
        """See that each command has succeeded, and was done once."""
        with self.store.read() as tx:
            found = tx.commands.get(list(ids.values()))
        assert {one.tracked.state for one in found.values()} == {CommandState.SUCCEEDED}
        for name, id_ in ids.items():
            box = self.boxes[name]
            assert box.world.done[box.box.device, id_] == 1


@pytest.fixture
def place(short_tmp: Path) -> Iterator[Place]:
    postgres.need()
    with ExitStack() as stack:
        short_tmp.chmod(0o711)  # the server's user has to come through
        database = short_tmp / "pg"
        database.mkdir()
        server = stack.enter_context(postgres.running(database))
        yield stack.enter_context(_running(short_tmp, server))


@contextmanager
def _running(work: Path, server: PostgresServer) -> Iterator[Place]:
    mosquitto = need_mosquitto()
    first, url = work / "controller-1", server.new_database()
    https, broker, controllers = free_port(), free_port(), free_port()
    ports = ("--https-port", str(https), "--broker", f"127.0.0.1:{broker}", "--controller-port", str(controllers))
    ok("init", "--name", "127.0.0.1", *ports, "--no-console", "--database", url, folder=first)
    for name in ("2", "3"):
        ok("controllers", "add", name, "--out", str(work / f"controller-{name}"), folder=first)
    made = {f"controller-{number}": work / f"controller-{number}" for number in (1, 2, 3)}
    for folder in made.values():
        config = yaml.safe_load((folder / "controller.yaml").read_text())
        config["leases"] = {"renew_s": RENEW_S, "lost_s": LOST_S}
        (folder / "controller.yaml").write_text(yaml.safe_dump(config))
    store = ControllerStore.open(url)
    processes = {name: Controller(name, at, work / f"{name}.log") for name, at in made.items()}
    place = Place(server, url, first, store, processes)
    serve = [sys.executable, "-m", "edgegpu_cloud.cli.app", "serve", "--no-link", "--folder", str(first)]
    with ExitStack() as stack:
        stack.callback(store.close)
        log = stack.enter_context((work / "https.log").open("wb"))
        commands = ([mosquitto, "-c", str(first / "broker/mosquitto.conf")], serve)
        for process in [subprocess.Popen(command, stdout=log, stderr=log) for command in commands]:
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)
        for one in place.controllers.values():
            stack.callback(one.stop)
        place.wait("all share", lambda: place.even(*place.controllers))
        place.wait("HTTPS answers", lambda: answers(https))
        _add_boxes(place, stack, work, f"https://127.0.0.1:{https}")
        yield place


_NOTE_WRITER = """
CREATE OR REPLACE FUNCTION note_writer() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    written jsonb := to_jsonb(coalesce(new, old));
    key text := tg_table_name;
    one text;
BEGIN
    FOREACH one IN ARRAY tg_argv LOOP key := key || ' ' || (written ->> one); END LOOP;
    INSERT INTO writers VALUES (key, current_setting('application_name'));
    RETURN NULL;
END $$
"""


@contextmanager
def writers_of_rows(url: str) -> Iterator[dict[str, set[str]]]:
    """Yield a mapping that has at the end of the block, by table and key, which controllers have written the row."""
    engine, found, tables = open_engine(url), defaultdict[str, set[str]](set), TableRow.metadata.sorted_tables
    one_by_one = engine.execution_options(
        isolation_level="AUTOCOMMIT"
    )  # else the locks of many tables are held at once
    with one_by_one.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS writers (row text, who text)")
        connection.exec_driver_sql(_NOTE_WRITER)
        for one in tables:
            keys = ", ".join(f"'{column.name}'" for column in one.primary_key.columns)
            on = f"AFTER INSERT OR UPDATE OR DELETE ON {one.name} FOR EACH ROW"
            connection.exec_driver_sql(f"CREATE TRIGGER note_writer {on} EXECUTE FUNCTION note_writer({keys})")
    yield found
    with one_by_one.connect() as connection:
        for one in tables:
            connection.exec_driver_sql(f"DROP TRIGGER note_writer ON {one.name}")
        for row, who in connection.exec_driver_sql("SELECT DISTINCT * FROM writers"):
            found[row].add(who)
        connection.exec_driver_sql("TRUNCATE writers")
    engine.dispose()


def writers_while_nobody_moves(place: Place) -> dict[str, set[str]]:
    """Return who writes which rows while commands go to all boxes; where a lease has moved meanwhile, see once more."""
    for _ in range(5):
        before = place.leases()
        with writers_of_rows(place.url) as writers:
            ids = place.restart_all()
            place.wait("commands end with three controllers", lambda ids=ids: place.ended(ids))
        place.check(ids)
        if place.leases() == before:
            return writers
        place.wait("all share again", lambda: place.even(*place.controllers))
    raise AssertionError("leases move all the time: this machine has no time for controllers")


def _add_boxes(place: Place, stack: ExitStack, work: Path, url: str) -> None:
    ca = CloudLayout(place.folder).ca_cert("servers")
    for number in range(1, BOXES + 1):
        name = f"box-{number}"
        hand = Box(ok("enrol", "--name", name, "--json", folder=place.folder).json["token"])
        box = LiveBox(work / name, hand, enrol(url, ca, hand))
        place.boxes[name] = stack.enter_context(box)

    def there() -> bool:
        with place.store.read() as tx:
            devices = [box.box.device for box in place.boxes.values()]
            return all(box.online and box.sequence.epoch for box in tx.boxes.get(devices).values())

    place.wait("all boxes are on the link", there)


def test_controllers_that_die_are_stopped_or_lose_the_database_lose_nothing_and_do_nothing_twice(place: Place) -> None:
    """One place for all of it: to make one takes longer than what happens in it."""
    writers = writers_while_nobody_moves(place)
    busy = {place.holder(name) for name in place.boxes}
    assert busy <= {name for row in writers.values() for name in row}
    assert {row: names for row, names in writers.items() if len(busy & names) > 1} == {}, "rows that several write"

    dead = place.controllers[place.holder("box-1")]
    ids = place.restart_all()
    dead.kill()
    alive = sorted(set(place.controllers) - {dead.name})
    place.wait("the partitions of the dead one move", lambda: place.even(*alive))
    place.wait("its commands end too", lambda: place.ended(ids))
    place.check(ids)
    dead.held = False
    place.wait("it is back, and has its share", lambda: place.even(*place.controllers))

    zombie = place.controllers[place.holder("box-2")]
    zombie.send(signal.SIGSTOP)
    ids = place.restart_all()
    others = sorted(set(place.controllers) - {zombie.name})
    place.wait("the partitions of the stopped one move", lambda: place.even(*others))
    place.wait("commands end without it", lambda: place.ended(ids))
    before = {one.number: one.fence for one in place.leases()}
    zombie.send(signal.SIGCONT)
    place.wait("it goes on, and shares again", lambda: place.even(*place.controllers))
    assert all(one.fence >= before[one.number] for one in place.leases())
    place.check(ids)
    ids = place.restart_all()
    place.wait("commands end after that", lambda: place.ended(ids))
    place.check(ids)

    ids = place.restart_all()
    place.server.stop()
    place.server.start()
    place.wait("all share after the database was away", lambda: place.even(*place.controllers))
    place.wait("commands end after the database was away", lambda: place.ended(ids))
    place.check(ids)

    leaver = place.controllers["controller-2"]
    leaver.stop()
    assert place.shares()[leaver.name] == 0, "one that ends gives up what it holds itself"
    place.wait("the others share what it held", lambda: place.even("controller-1", "controller-3"))
