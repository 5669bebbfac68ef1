"""logs.collect against a host that wants the box's certificate; the doctor, the inventory and the identity."""

from __future__ import annotations

import io
import json
import tarfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from box.webcert import make_web_cert
from kits.acts import ID, NOTHING, Bench, Uploads, uploads
from kits.install import proxy

from edgegpu_agent.actions.idempotent import doctor_data
from edgegpu_agent.actions.registry import acts
from edgegpu_agent.ports import ActionOutcome
from edgegpu_sync.ids import command_id, op_name
from edgegpu_sync.rules.ops import Args, LogsArgs
from edgegpu_sync.states import CommandState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2lnbmF0dXJl"  # noqa: S105  (none)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    found = Bench(tmp_path / "box")
    found.unit("k3s.service")
    checks = [{"name": f"check-{n}", "level": "broken", "text": "x" * 900, "troubles": []} for n in range(3)]
    found.tell("doctor.json", json.dumps({"v": 1, "version": "1", "level": "broken", "checks": checks}))
    found.tell("logs/edgegpu-plugin", "plugin says hello\n")
    found.tell("logs/k3s", f"k3s starts with --token K10{'a' * 64}::server:secret\nbearer {TOKEN}\n")
    return found


@pytest.fixture
def host(tmp_path: Path, bench: Bench) -> Iterator[Uploads]:
    with uploads(make_web_cert(tmp_path / "keys", "127.0.0.1"), bench.layout.state / "identity") as found:
        yield found


def do(bench: Bench, op: str, args: Args = NOTHING, **more: object) -> ActionOutcome:
    return acts(bench.box(**more))[op_name(op)].act(ID, args, "")


def opened(archive: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        return {one.name: (tar.extractfile(one) or io.BytesIO()).read().decode() for one in tar}


def left(bench: Bench) -> list[str]:
    return [path.name for path in (bench.layout.state / "collected").iterdir()]


def test_an_archive_comes_with_the_boxs_certificate_and_without_secrets(bench: Bench, host: Uploads) -> None:
    found = do(bench, "logs.collect", LogsArgs(url=f"{host.url}/boxes/"))
    assert found.state is CommandState.SUCCEEDED, found.text
    assert list(host.files) == [f"/boxes/{ID}.tar.gz"]
    archive = host.files[f"/boxes/{ID}.tar.gz"]
    assert found.data is not None
    assert found.data["bytes"] == len(archive)
    files = opened(archive)
    assert files["logs/edgegpu-plugin.log"] == "plugin says hello\n"
    assert "k3s starts with" in files["logs/k3s.log"]
    assert json.loads(files["doctor.json"])["level"] == "broken"
    assert {"versions.txt", "status.json", "transactions.json", "logs/edgegpu-agent.log"} <= set(files)
    for text in files.values():
        assert "secret" not in text
        assert TOKEN not in text
    assert left(bench) == []


def test_an_archive_goes_by_the_proxy_where_one_is_named(bench: Bench, host: Uploads) -> None:
    with proxy(user="ann:secret") as (address, asked):
        named = address.replace("//", "//ann:secret@")
        assert (
            do(bench, "logs.collect", LogsArgs(url=f"{host.url}/boxes/"), proxy=named).state is CommandState.SUCCEEDED
        )
    assert asked == [host.url.removeprefix("https://")]
    assert list(host.files) == [f"/boxes/{ID}.tar.gz"]


def test_a_url_that_names_the_file_is_taken_as_it_is(bench: Bench, host: Uploads) -> None:
    assert do(bench, "logs.collect", LogsArgs(url=f"{host.url}/x/{ID}.tgz?a=1")).state is CommandState.SUCCEEDED
    assert list(host.files) == [f"/x/{ID}.tgz?a=1"]


def test_twice_is_once(bench: Bench, host: Uploads) -> None:
    for _ in range(2):
        assert do(bench, "logs.collect", LogsArgs(url=f"{host.url}/boxes/")).state is CommandState.SUCCEEDED
    assert len(host.files) == 1


def test_two_at_once_leave_each_other_alone_and_what_was_left_over_goes(bench: Bench, host: Uploads) -> None:
    old = bench.layout.state / "collected"
    (old / "of-an-agent-that-died").mkdir(parents=True)
    (old / "clean").write_text("of an older version")
    collect = acts(bench.box())[op_name("logs.collect")]
    ids = [command_id(f"{ID[:-1]}{number}") for number in range(3)]
    with ThreadPoolExecutor(len(ids)) as pool:
        found = list(pool.map(lambda id_: collect.act(id_, LogsArgs(url=f"{host.url}/boxes/"), ""), ids))
    assert [(one.state, one.text) for one in found] == [(CommandState.SUCCEEDED, "")] * len(ids)
    assert sorted(host.files) == [f"/boxes/{id_}.tar.gz" for id_ in ids]
    for archive in host.files.values():
        assert opened(archive)["logs/edgegpu-plugin.log"] == "plugin says hello\n"
    assert left(bench) == []


def test_it_is_not_larger_than_asked_for_and_the_newest_stays(bench: Bench, host: Uploads) -> None:
    lines = [f"{number:06} {number * 7919 % 104729:x} {number**5 % 99991:x}" for number in range(200_000)]
    bench.tell("logs/k3s", "\n".join(lines))
    assert do(bench, "logs.collect", LogsArgs(url=f"{host.url}/", max_mib=1)).state is CommandState.SUCCEEDED
    (archive,) = host.files.values()
    assert len(archive) <= 1024 * 1024
    assert opened(archive)["logs/k3s.log"].endswith(lines[-1])


def test_a_host_that_is_busy_is_asked_again(bench: Bench, host: Uploads) -> None:
    host.answers += [503, 503]
    assert do(bench, "logs.collect", LogsArgs(url=f"{host.url}/")).state is CommandState.SUCCEEDED


def test_a_host_that_refuses_is_asked_once(bench: Bench, host: Uploads) -> None:
    host.answers += [403]
    found = do(bench, "logs.collect", LogsArgs(url=f"{host.url}/?sig=hush"))
    assert found.state is CommandState.FAILED
    assert "the host answers 403" in found.text
    assert "hush" not in found.text
    assert left(bench) == []


def test_a_program_that_is_missing_is_said_in_the_archive(bench: Bench, host: Uploads) -> None:
    (bench.fake / "bin/edgegpu").unlink()
    assert do(bench, "logs.collect", LogsArgs(url=f"{host.url}/")).state is CommandState.SUCCEEDED
    (archive,) = host.files.values()
    assert "cannot run" in opened(archive)["doctor.json"]


# --- the others


def test_the_doctors_word_is_a_result_though_things_are_broken(bench: Bench) -> None:
    found = do(bench, "doctor.run")
    assert (found.state, found.text) == (CommandState.SUCCEEDED, "broken")
    assert found.data is not None
    assert found.data["checks"] == 3


def test_each_trouble_is_told_with_what_mends_it() -> None:
    troubles = [{"level": "broken", "text": f"this {n}", "remedy": f"do {n}"} for n in range(2)]
    checks: list[dict[str, Any]] = [
        {"name": "k3s", "level": "broken", "text": "2 troubles", "troubles": troubles},
        {"name": "d", "level": "ok"},
    ]
    found = doctor_data("1", "broken", checks)
    assert (found["checks"], found["troubled"]) == (2, [{"name": "k3s", **one} for one in troubles])


def test_what_the_doctor_says_fits_into_a_result() -> None:
    for many in (1, 10, 30, 100, 1000):
        checks = [{"name": f"check-{n}", "level": "warning", "text": "ü" * 2000} for n in range(many)]
        assert len(json.dumps(doctor_data("1", "warning", checks))) < 7000


def test_a_doctor_that_says_nothing_has_failed(bench: Bench) -> None:
    bench.tell("doctor.json", "no json")
    assert do(bench, "doctor.run").state is CommandState.FAILED


def test_without_a_plugin_the_inventory_is_sent_all_the_same(bench: Bench) -> None:
    looked: list[int] = []
    found = do(bench, "inventory.refresh", refresh_telemetry=lambda: looked.append(1), speed=1000.0)
    assert (found.state, looked) == (CommandState.FAILED, [1])


class CannotError(Exception):
    """What renewing raises."""


class LaterError(CannotError):
    """The same, in passing."""


def test_the_identity_is_renewed_for_the_commands_id(bench: Bench) -> None:
    causes: list[str] = []

    def renew(cause: str) -> None:
        causes.append(cause)
        if len(causes) == 1:
            raise LaterError("no answer")

    found = do(bench, "identity.rotate", renew=renew, refusals=(CannotError,), retried=(LaterError,))
    assert found.state is CommandState.SUCCEEDED
    assert causes == [ID, ID]


def test_a_denied_renewal_has_failed(bench: Bench) -> None:
    def renew(_: str) -> None:
        raise CannotError("revoked")

    found = do(bench, "identity.rotate", renew=renew, refusals=(CannotError,))
    assert (found.state, found.text) == (CommandState.FAILED, "revoked")


def test_what_cannot_be_done_is_not_among_the_acts(bench: Bench) -> None:
    everything = set(acts(bench.box(renew=lambda _: None)))
    assert everything - set(acts(bench.box())) == {"identity.rotate"}
