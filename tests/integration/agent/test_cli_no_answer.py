"""`edgegpu status` and `pods` where the plugin gives no answer, or a broken one: a sentence and its remedy."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from kits.cli import document, edgegpu, http, plugin, raw_server

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = 65534


@pytest.mark.parametrize("command", ["status", "pods"])
def test_without_the_plugin_the_remedy_is_named(short_tmp: Path, command: str) -> None:
    socket = short_tmp / "plugin.sock"
    done = edgegpu(command, "--socket", socket)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"edgegpu: cannot reach edgegpu-plugin at {socket}: it is not running (no socket there)\n"
        "  see `systemctl status edgegpu-plugin` and `journalctl -u edgegpu-plugin`\n"
    )
    said = json.loads(edgegpu(command, "--json", "--socket", socket).out)
    assert set(said) == {"error", "remedy"}


def test_a_socket_that_a_dead_process_left(short_tmp: Path) -> None:
    with raw_server(short_tmp / "left.sock", b"") as socket:
        pass
    assert "nothing listens on the socket" in edgegpu("status", "--socket", socket).err


def test_without_permission_it_says_sudo(short_tmp: Path) -> None:
    me = os.geteuid()
    short_tmp.chmod(0o755)
    with plugin(short_tmp, document()) as socket:
        socket.chmod(0)
        try:
            if me == 0:
                os.seteuid(NOBODY)
            done = edgegpu("status", "--socket", socket)
        finally:
            os.seteuid(me)
    assert done.code == 1
    assert "only root may ask it\n  run it again as root, with sudo" in done.err


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "the answer is not complete HTTP"),
        (b"", "the answer is not complete HTTP"),
        (http("{"), "cannot read the status"),
        (http("[]"), "the document is no object"),
        (http('{"v": 7}'), "version 7, and this edgegpu reads version 1"),
        (http("\N{LATIN SMALL LETTER E WITH ACUTE}"), "cannot read the status"),
        (http("{}", "404 Not Found"), "does not know /v1/status"),
        (http("oh", "500 Broken"), "answered 500"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\n{", "the answer is not complete HTTP"),
    ],
)
def test_a_broken_answer_is_a_sentence_and_no_traceback(short_tmp: Path, answer: bytes, words: str) -> None:
    with raw_server(short_tmp / "s", answer) as socket:
        done = edgegpu("status", "--socket", socket)
        as_json = edgegpu("pods", "--json", "--socket", socket)
    assert (done.code, as_json.code) == (1, 1)
    assert words in done.err
    assert "Traceback" not in done.err + as_json.err
    assert words in json.loads(as_json.out)["error"]


def test_the_socket_of_a_configuration_is_found(short_tmp: Path) -> None:
    file = short_tmp / "plugin.yaml"
    file.write_text(f"version: 1\npaths: {{run: {short_tmp}}}\n")
    with plugin(short_tmp, document()):
        done = edgegpu("version", "--config", file)
    assert "edgegpu-plugin 0.1.0 runs" in done.out
    file.write_text("version: 1\nrole: king\n")
    broken = edgegpu("status", "--config", file)
    assert broken.code == 1
    assert f"{file}:2: role" in broken.err
