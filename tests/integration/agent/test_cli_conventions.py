"""What every command line of the field can: --version, -o, -w, -A, -f, --since, completion of names."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import yaml
from kits.child import ENDS_S, running_child
from kits.cli import CARD_0, CARD_1, document, edgegpu, plugin, pod

from edgegpu_base.cli.commandline import installed_version
from edgegpu_base.http_unix import LocalServer, Response

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = [sys.executable, "-m", "edgegpu_agent.cli.app"]


def test_version() -> None:
    assert edgegpu("--version").out == f"edgegpu {installed_version()}\n"


def test_a_document_as_yaml_is_that_of_json(short_tmp: Path) -> None:
    with plugin(short_tmp, document()) as socket:
        for command in ("status", "pods", "version"):
            said = edgegpu(command, "--socket", socket, "-o", "yaml")
            assert yaml.safe_load(said.out) == json.loads(edgegpu(command, "--socket", socket, "-o", "json").out)
    assert edgegpu("status", "-o", "xml").code == 2


def test_wide_has_more_columns(short_tmp: Path) -> None:
    with plugin(short_tmp, document()) as socket:
        head, first, *_ = edgegpu("pods", "-o", "wide", "--socket", socket).out.splitlines()
    assert head.split()[-4:] == ["PHASE", "UID", "STATE", "REASON"]
    assert first.split()[-3:] == ["Running", "uid-face", "allocated"]


def test_pods_by_name_and_of_all_namespaces(short_tmp: Path) -> None:
    with plugin(short_tmp, document()) as socket:
        one = edgegpu("pods", "fa", "--socket", socket, "--json")
        everything = edgegpu("pods", "-A", "--socket", socket, "--json")
        none = edgegpu("pods", "nobody", "--socket", socket)
        both = edgegpu("pods", "-A", "-n", "x", "--socket", socket)
    assert [row["pod"] for row in json.loads(one.out)["pods"]] == ["face"]
    assert len(json.loads(everything.out)["pods"]) == 2
    assert (none.code, none.err) == (
        1,
        "edgegpu: cannot find a pod called nobody on box-1\n  edgegpu pods lists all of them\n",
    )
    assert both.code == 2


def complete(*words: str) -> list[str]:
    """Return what bash is offered for the last word."""
    env = {"_EDGEGPU_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    return edgegpu(env=env).out.split()


def test_the_shell_completes_pods_namespaces_and_checks(short_tmp: Path) -> None:
    line = ("edgegpu", "pods", "--socket", str(short_tmp / "plugin.sock"))
    assert complete(*line, "") == [], "silent where nothing answers"
    with plugin(short_tmp, document(pending=[pod("later", 3, state="pending", namespace="prod")])):
        assert complete(*line, "") == ["face", "later", "plate"]
        assert complete(*line, "-n", "prod", "") == ["later"]
        assert complete(*line, "-n", "bae") == ["baetyl-edge"]
    assert complete("edgegpu", "doctor", "--check", "enr") == ["enrolment"]


def test_letters_stay_with_their_pods_from_call_to_call(short_tmp: Path) -> None:
    first = [pod("face", 4, CARD_0), pod("plate", 20, CARD_0)]
    said: dict[str, Any] = document(pods=first)
    with plugin(short_tmp, said) as socket:
        assert "  B    20 units  core 1    baetyl-edge/plate" in edgegpu("status", "--socket", socket).out
        said["pods"] = [pod("another", 1, CARD_1), pod("plate", 20, CARD_0)]
        out = edgegpu("status", "--socket", socket).out
    assert "  B    20 units  core 1    baetyl-edge/plate" in out
    assert "  C     1 unit   core 1    baetyl-edge/another" in out


def test_watch_prints_anew_what_changed_until_it_is_interrupted(short_tmp: Path) -> None:
    said: dict[str, Any] = document(pods=[pod("face", 4, CARD_0)])
    with plugin(short_tmp, said) as socket:
        words = [*PROGRAM, "pods", "-w", "--socket", str(socket)]
        with running_child(words) as (process, lines):
            assert lines.readline().startswith("NAMESPACE")
            assert "face" in lines.readline()
            said["pods"] = [pod("plate", 20, CARD_0)]
            assert lines.readline().startswith("NAMESPACE")
            assert "plate" in lines.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(ENDS_S) == 130


@contextmanager
def journal(folder: Path, lines: list[dict[str, Any]]) -> Iterator[Path]:
    """Serve a journal that may grow, the newest first."""

    def answer(_: str) -> Response:
        return Response(200, json.dumps({"version": 1, "lines": lines[::-1]}).encode())

    server = LocalServer(folder / "agent.sock", answer, owner="x", remedy="y")
    server.open()
    thread = threading.Thread(target=server.run)
    thread.start()
    yield folder / "agent.sock"
    server.stop()
    thread.join(30)


def line(number: int, *, age_s: float = 0) -> dict[str, Any]:
    told = {"n": number, "at": int(time.time() - age_s), "kind": "command", "about": f"id-{number}", "state": "RUNNING"}
    return {**told, "text": "k3s.restart", "by": ""}


def test_the_journal_since_a_time(short_tmp: Path) -> None:
    with journal(short_tmp, [line(1, age_s=9_000), line(2, age_s=60)]) as socket:
        done = edgegpu("journal", "--since", "2h", "--socket", socket)
        assert [one.split()[3] for one in done.out.splitlines()] == ["id-2"]
        assert edgegpu("journal", "--since", "yesterday", "--socket", socket).code == 2
        assert edgegpu("journal", "-f", "--json", "--socket", socket).code == 2


def test_the_journal_is_followed(short_tmp: Path) -> None:
    told = [line(1)]
    with journal(short_tmp, told) as socket:
        words = [*PROGRAM, "journal", "-f", "--socket", str(socket)]
        with running_child(words) as (process, lines):
            assert "id-1" in lines.readline()
            told.append(line(2))
            assert "id-2" in lines.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(ENDS_S) == 130


def test_an_output_that_there_is_not_is_said_without_a_word_of_the_library() -> None:
    done = edgegpu("status", "-o", "xml")
    assert done.code == 2
    assert "Invalid value for '--output' / '-o': 'xml' is not one of 'json', 'yaml', 'wide'." in done.err
