"""The commands that need no link: what `init` makes and never overwrites, the keys' ceremony, wrong use, `serve`."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from kits.cli import subcommands
from kits.cloudcli import ok, run
from kits.stores import open_store
from kits.sync import birth
from typer.main import get_command

from edgegpu_cloud.broker.config import guard_source
from edgegpu_cloud.cli import tree
from edgegpu_cloud.cli.requests.commands import ARGS_HELP
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.store.records import EnrolledBox, Latest
from edgegpu_sim.ports import free_port
from edgegpu_sync.ids import device_id
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """`serve` in this process minds signals, and is not asked to give them back."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_init_refuses_what_is_there_and_says_what_is_next(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "cloud"
    made = ok("init", "--name", "cloud.example", "--broker", "mq.example:9000", "--json", folder=folder).json
    assert (made["url"], made["broker"]) == ("https://cloud.example:8443", "mq.example:9000")
    assert made["root_key"] == str(folder / "keys/root.key")
    assert any("mosquitto -c" in step for step in made["next"])
    for path in folder.rglob("*"):
        wanted = 0o700 if path.is_dir() else 0o600 if path.suffix == ".key" else None
        assert wanted is None or path.stat().st_mode & 0o777 == wanted, path
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = run("init", "--name", "cloud.example", folder=folder)
    assert (done.code, "already" in done.err) == (1, True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_init_without_a_name_writes_nothing(tmp_path: Path) -> None:
    done = run("init", folder=tmp_path / "cloud")
    assert (done.code, "--name 127.0.0.1" in " ".join(done.err.split())) == (2, True), done.err
    assert list(tmp_path.iterdir()) == []


def test_init_that_was_cut_short_begins_again(tmp_path: Path) -> None:
    folder = tmp_path / "cloud"
    (folder / ".init/keys").mkdir(parents=True)
    (folder / "release").mkdir()
    (folder / "release/install.sh").write_text("mine")
    ok("init", "--name", "127.0.0.1", folder=folder)
    assert (folder / "release/install.sh").read_text() == "mine"
    assert not (folder / ".init").exists()


def test_the_ceremony_with_a_root_key_that_is_never_here(tmp_path: Path) -> None:
    folder, root = tmp_path / "cloud", tmp_path / "usb-stick"
    root.mkdir()
    public = ok("keys", "make-root", str(root / "root.key"), "--json").json["public"]
    assert run("keys", "make-root", str(root / "root.key")).code == 1
    ok("init", "--name", "127.0.0.1", "--root", public, folder=folder)
    assert not (folder / "keys/root.key").exists()
    assert not ok("keys", "show", "--json", folder=folder).json["in_effect"]
    assert run("keys", "rotate", folder=folder).code == 1
    request = ok("keys", "request", folder=folder).out
    signed = ok("keys", "sign", "--root", str(root / "root.key"), stdin=request).out
    ok("keys", "add", "-", folder=folder, stdin=signed)
    shown = ok("keys", "show", "--json", folder=folder).json
    assert (shown["in_effect"], shown["root"], len(shown["sets"])) == (True, public, 1)
    done = run("keys", "add", "-", folder=folder, stdin=signed)
    assert (done.code, "OldKeySet" in done.err) == (1, True)

    next_root = ok("keys", "make-root", str(root / "next.key"), "--json").json["public"]
    request = ok("keys", "request", "--rotate", folder=folder).out
    words = ("keys", "sign", "--root", str(root / "root.key"), "--next-root", next_root)
    (tmp_path / "signed.json").write_text(ok(*words, stdin=request).out)
    ok("keys", "add", str(tmp_path / "signed.json"), folder=folder)
    later = ok("keys", "show", "--json", folder=folder).json
    assert (later["root"], later["signing_key"] != shown["signing_key"]) == (next_root, True)
    done = run("keys", "rotate", "--root", str(root / "root.key"), folder=folder)
    assert (done.code, "not the root key in effect" in done.err) == (1, True)
    ok("keys", "rotate", "--root", str(root / "next.key"), folder=folder)
    wrong = run("keys", "add", "-", folder=folder, stdin="{}")
    assert (wrong.code, "set: is missing" in wrong.err) == (1, True)


def test_the_brokers_files_for_a_broker_elsewhere(tmp_path: Path) -> None:
    folder, out = tmp_path / "cloud", tmp_path / "broker"
    ok("init", "--name", "127.0.0.1", folder=folder)
    ok("broker", folder=folder)
    done = ok("broker", "--out", str(out), "--place", "/etc/mosquitto/edgegpu", "--user", "mosquitto", folder=folder)
    assert "mosquitto -c /etc/mosquitto/edgegpu/mosquitto.conf" in done.out
    configuration = (out / "mosquitto.conf").read_text()
    assert "user mosquitto" in configuration
    assert str(tmp_path) not in configuration
    assert (out / "broker.key").stat().st_mode & 0o777 == 0o600
    assert (out / "boxes.crl").read_bytes() == (folder / "ca/boxes.crl").read_bytes()
    ok("broker", "--out", str(out), folder=folder)
    assert f"user {getpass.getuser()}" in (out / "mosquitto.conf").read_text(), "the owner of the controller's folder"
    other = tmp_path / "other"
    other.mkdir()
    (other / "mosquitto.conf").write_text("mine")
    done = run("broker", "--out", str(other), folder=folder)
    assert (done.code, "it has other files, mosquitto.conf" in done.err) == (1, True), done.err
    assert [path.name for path in other.iterdir()] == ["mosquitto.conf"]


def test_the_guard_is_printed_and_a_file_that_mosquitto_cannot_load_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cloud"
    ok("init", "--name", "127.0.0.1", folder=folder)
    assert ok("broker", "--guard", folder=folder).out == guard_source()
    config = folder / "controller.yaml"
    config.write_text(config.read_text().replace("guard: ''", "guard: /usr/local/lib/guard.so"))
    before = (folder / "broker/mosquitto.conf").read_text()
    refused = run("broker", folder=folder)
    assert refused.code == 1
    assert "mosquitto would not start with it" in refused.err
    assert "compile it anew (docs/broker.md), or take broker.guard out of controller.yaml" in refused.err
    assert (folder / "broker/mosquitto.conf").read_text() == before


def test_the_access_list_stays_wide_while_an_older_box_is_left_and_the_command_names_it(tmp_path: Path) -> None:
    folder, wide = tmp_path / "cloud", "pattern write edgegpu/v1/%u/up/cmd/+"
    ok("init", "--name", "127.0.0.1", folder=folder)
    acl = folder / "broker/boxes.acl"
    assert wide not in acl.read_text()
    device = device_id("k3f9x2m7q1w8e5r4")
    box = EnrolledBox(device=device, enrolment=3, public="x", instance="ab" * 32, name="old-box")
    last = Latest(device=device, kind=TopicKind.STATUS, stamp=birth().stamp, at_s=1.0, body={"state": "birth"})
    store = open_store(folder / "controller.db")
    with store.write() as tx:
        add_box(tx, box, Author("anna", 1.0))
        tx.boxes.add_latest([last])
    done = ok("broker", folder=folder)
    assert "1 box has an older agent (old-box)" in done.out
    assert ok("broker", "--json", folder=folder).json["older_boxes"] == ["old-box"]
    assert wide in acl.read_text()
    with store.write() as tx:
        tx.boxes.put_latest([replace(last, body={"state": "will", "one_result_topic": True})])
    store.close()
    assert "older" not in ok("broker", folder=folder).out
    assert wide not in acl.read_text()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("boxes",), 1, "edgegpu-cloud init"),
        (("enrol", "--expires", "soon"), 1, "init"),
        (("init", "--name", "a", "--broker", "host:port"), 2, "HOST:PORT"),
        (("init", "--name", "a", "--root", "short"), 2, "43 characters"),
        (("init", "--name", "no host/"), 2, "not a host name"),
        (("init", "--name", "a", "--broker", "h:99999"), 2, "HOST:PORT: h:99999"),
        (("init", "--name", "a", "--broker", f"h:{'9' * 5_000}"), 2, "HOST:PORT: h:99999"),
        (("init", "--name", "a", "--broker", "h:\N{FULLWIDTH DIGIT EIGHT}"), 2, "HOST:PORT: h:"),
        (("init", "--name", "a", "--broker", "h:8884"), 2, "both 8884"),
        (("rollouts", "show", "9" * 19), 2, "NUMBER"),
        (("rollouts", "show", "abc"), 2, "'NUMBER': is not a whole number"),
        (("rollouts", "show", "0"), 2, "'NUMBER': must be 1 or more"),
        (("limits", "set", "a", "b", "--memory", "4.5"), 2, "'--memory': is not a whole number"),
        (("alerts", "silence", "9" * 19), 2, "NUMBER"),
        (("alarms", "--seen", "9" * 19), 2, "--seen"),
        (("init", "--name", "a", "--https-port", "8883"), 2, "both 8883"),
        *(
            (("init", "--name", wrong), 2, "Invalid value for --name")
            for wrong in ("cloud.example.com:8443", "--", "1.2.3", "999.1.1.1", "http://x", "-a", "a..b", "")
        ),
        (("limits", "set", "a", "/b", "--memory", "1", "--core", "1"), 2, "NAMESPACE/APP"),
        (("limits", "set", "a", "b", "--memory", "-1", "--core", "1"), 2, "memory"),
        (("command", "a", "x", "--timeout", "never"), 2, "no length of time"),
        (("command", "a", "x", "--arg", "noequals"), 2, "KEY=VALUE"),
        (("confirm",), 2, "BOX"),
        (("keys", "rotate", "--next-root", "abc"), 2, "43 characters"),
        (("keys", "sign", "--root", "/x", "--next-root", "abc"), 2, "43 characters"),
        (("nothing",), 2, "No such command"),
        (("broker", "--out", "/x", "--place", "x"), 2, "absolute"),
        (("broker", "--out", "/x", "--user", "a b"), 2, "no name of a user"),
        (("enrol", "--for", "x", "--count", "3"), 2, "one box"),
        (("install", "a", "--timeout", "5m"), 2, "it limits --wait"),
        (("limits", "set", "a", "b", "--memory", "1", "--core", "1", "--timeout", "5m"), 2, "it limits --wait"),
        (("limits", "set", "a", "b", "--memory", "1", "--core", "1", "--container", ""), 1, "init"),
        (("command", "a", "k3s.restart", "--arg", "a=1"), 2, "takes no arguments, not a"),
        (("command", "a", "logs.collect", "--arg", "url=https://x", "--arg", "u=1"), 2, "max_mib, not u"),
        (("command", "a", "logs.collect", "--arg", "url=https://x", "--arg", "url=https://y"), 2, "url is given twice"),
        (("command", "a", "logs.collect", "--arg", "url=http://x"), 2, "https:// only"),
        (("command", "a", "agent.upgrade", "--arg", "version=1"), 2, "needs url, sha256, signature"),
        (("command", "a", "sharing.uninstall"), 2, "say: edgegpu-cloud uninstall a"),
        (("serve",), 1, "edgegpu-cloud init"),
    ],
)
def test_wrong_use_is_told_with_its_status(tmp_path: Path, words: tuple[str, ...], code: int, said: str) -> None:
    done = run(*words, folder=tmp_path / "none")
    assert (done.code, said in done.err) == (code, True), done.err


def test_errors_as_json_and_boxes_that_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "cloud"
    ok("init", "--name", "127.0.0.1", folder=folder)
    done = ok("boxes", folder=folder)
    assert ("no boxes yet" in done.out, "not running" in done.err, "edgegpu-cloud serve" in done.err) == (True,) * 3
    done = run("box", "nobody", "--json", folder=folder)
    assert (done.code, sorted(done.json)) == (1, ["error", "remedy"])
    assert run("enrol", "--expires", "soon", folder=folder).code == 2
    for wrong in ("-x", "a b", "a\nb", "\x1b[2J", "a" * 64, "a."):
        done = run("enrol", f"--name={wrong}", folder=folder)
        assert (done.code, "1 to 63 letters, digits" in done.err) == (1, True), wrong
    for words, why in (
        (("alarms", "--seen", "99"), "edgegpu-cloud alarms"),
        (("tokens", "--take-back", ""), "edgegpu-cloud tokens"),
        (("tokens", "--take-back", "zz"), "edgegpu-cloud tokens"),
    ):
        done = run(*words, folder=folder)
        assert (done.code, why in done.err) == (1, True), words
    junk = tmp_path / "junk"
    junk.write_text("junk")
    done = run("keys", "add", "/nope", folder=folder)
    assert (done.code, "`keys sign` has printed" in done.err) == (1, True), done.err
    done = run("keys", "rotate", "--root", str(junk), folder=folder)
    assert (done.code, "holds no private key" in done.err, "http" in done.err) == (1, True, False), done.err
    (tmp_path / "broken").mkdir()
    for name in ("controller.yaml", "controller.db"):
        (tmp_path / "broken" / name).write_bytes((folder / "controller.yaml").read_bytes())
    done = run("boxes", folder=tmp_path / "broken")
    assert (done.code, f"cannot use {tmp_path / 'broken'}" in done.err, "a backup" in done.err) == (1, True, True)
    for bundle in ("/nope", ""):
        done = run("serve", "--bundle", bundle, folder=folder)
        assert (done.code, "there is no bundle in" in done.err) == (1, True), done.err
    (folder / "controller.yaml").write_text("version: 2\n")
    done = run("boxes", folder=folder)
    assert (done.code, "cannot use" in done.err) == (1, True)


def commands() -> dict[str, Any]:
    """Return the commands, those of groups with the group's name before."""
    group = get_command(tree.app)
    found = subcommands(group)
    for name, one in subcommands(group).items():
        found |= {f"{name} {inner}": command for inner, command in subcommands(one).items()}
    return found


def test_each_command_has_a_help_text_that_fits(tmp_path: Path) -> None:
    listed = ok("--help").out
    for name in ("init", "serve", "enrol", "limits", "install", "uninstall", "command", "watch", "revoke", "backup"):
        assert f"  {name} " in listed
        text = ok(name, "--help", folder=tmp_path).out
        assert len(text) > 100


def test_a_help_names_no_option_that_the_command_has_not() -> None:
    for name, command in commands().items():
        options = {word for one in command.params for word in one.opts}
        text = " ".join(getattr(one, "help", None) or "" for one in command.params)
        assert "-l" in options or "with -l" not in text, name


def test_each_argument_of_an_op_is_explained_once() -> None:
    lines = [line.split()[0] for line in ARGS_HELP.splitlines() if line.startswith("  ")]
    assert sorted(lines) == sorted(set(lines))


def test_what_a_command_prints_as_json_is_in_its_help() -> None:
    found = commands()
    missing = [
        name
        for name, one in found.items()
        if any("--json" in each.opts for each in one.params) and "--json" not in str(one.help)
    ]
    assert (missing, len(found) > 30) == ([], True)
    assert ok("--version").out.startswith("edgegpu-cloud ")


def test_serve_says_what_is_missing_and_ends_with_0_when_told_to(tmp_path: Path) -> None:
    folder = tmp_path / "cloud"
    ports = ("--https-port", str(free_port()), "--controller-port", str(free_port()), "--no-console")
    ok("init", "--name", "127.0.0.1", *ports, folder=folder)
    words = [sys.executable, "-m", "edgegpu_cloud.cli.app", "serve", "--folder", str(folder)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        assert process.stderr is not None
        lines = [process.stderr.readline().decode() for _ in range(3)]
        assert "there is no bundle" in lines[0]
        assert "boxes enrol at https://127.0.0.1" in lines[1]
        assert ("not connected: " in lines[2], "is the broker running" in lines[2]) == (True, True)
        told = ok("boxes", folder=folder).err
        assert (f"not connected to the broker at 127.0.0.1:{ports[3]}" in told, "refused" in told) == (True, True), told
        told = ok("enrol", folder=folder).err
        assert "`edgegpu-cloud serve --bundle FOLDER` offers it" in told
        assert "127.0.0.1 is its own machine alone" in told
        second = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
        assert second.returncode == 1
        assert f"another `edgegpu-cloud serve` does, pid {process.pid}" in second.stderr
    finally:
        process.terminate()
        rest = process.communicate(timeout=30)[1].decode()
    assert process.returncode == 0, rest
    assert "Traceback" not in rest
