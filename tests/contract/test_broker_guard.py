"""Whether a mosquitto starts with a guard: found out with a real one, before its configuration names it."""

from __future__ import annotations

import json
import site
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kits.mqtt import compile_guard, end_mosquitto, need_mosquitto, wait_for

from edgegpu_cloud.broker.guard import MARK, load_problem
from edgegpu_cloud.controller.broker_drops import BLOCKED_TOPIC
from edgegpu_sim.ports import answers, free_port


def test_a_guard_is_known_by_the_topic_that_it_hears() -> None:
    assert BLOCKED_TOPIC.encode() == MARK


def test_a_guard_that_was_compiled_here_is_loaded(tmp_path: Path) -> None:
    assert not load_problem(compile_guard(tmp_path), need_mosquitto())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"\x7fELF of before", "is of an older edgegpu"),
        (b"no library " + MARK, "Unable to load"),
    ],
)
def test_one_that_is_none_is_said(tmp_path: Path, content: bytes | None, words: str) -> None:
    library = tmp_path / "mosquitto_guard.so"
    if content is not None:
        library.write_bytes(content)
    assert words in load_problem(library, need_mosquitto())


def test_a_mosquitto_that_does_not_start_is_said(tmp_path: Path) -> None:
    assert load_problem(compile_guard(tmp_path), "/bin/false") == "it does not start"


@dataclass(frozen=True, slots=True)
class Installed:
    """This program under a prefix of its own, where the set-up compiles the guard."""

    prefix: Path

    @property
    def guard(self) -> Path:
        return self.prefix / "lib/mosquitto_guard.so"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `edgegpu-cloud`."""
        start = "import sys; from edgegpu_cloud.cli.app import main; sys.exit(main())"
        program = [str(self.prefix / "bin/python"), "-c", start]
        return subprocess.run([*program, *words], capture_output=True, text=True, timeout=300, check=False)

    def init(self, folder: Path, *words: str) -> Any:  # noqa: ANN401
        """Make a controller in a folder, and return what `init --json` prints."""
        done = self.run("init", "--folder", str(folder), "--name", "127.0.0.1", "--json", *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def refusal(self, folder: Path, *words: str) -> str:
        """Return why a controller cannot be made in a folder."""
        done = self.run("init", "--folder", str(folder), "--name", "127.0.0.1", *words)
        assert done.returncode, done.stdout
        assert not folder.exists()
        return done.stderr


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    need_mosquitto()
    prefix = tmp_path / "prefix"
    venv.create(prefix, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    lines = [f"import site; site.addsitedir({place!r})\n" for place in site.getsitepackages()]
    (prefix / f"lib/{version}/site-packages/these.pth").write_text("".join(lines))
    return Installed(prefix)


def test_init_takes_the_guard_that_is_there_and_this_machines_mosquitto_starts_with_it(
    tmp_path: Path, installed: Installed
) -> None:
    compile_guard(installed.guard.parent)
    folder, boxes, controllers = tmp_path / "cloud", free_port(), free_port()
    ports = ("--broker", f"127.0.0.1:{boxes}", "--controller-port", str(controllers))
    assert installed.init(folder, *ports)["guard"] == str(installed.guard)
    config = folder / "broker/mosquitto.conf"
    assert config.read_text().count(f"\nplugin {installed.guard}\n") == 2
    with (tmp_path / "log").open("wb") as log:
        broker = subprocess.Popen([need_mosquitto(), "-c", config], stdout=log, stderr=log)
    try:
        wait_for(lambda: broker.poll() is not None or answers(controllers), what="mosquitto has loaded the guard")
        assert broker.poll() is None, (tmp_path / "log").read_text()
    finally:
        end_mosquitto(broker)


def test_init_without_the_guard_has_none_whatever_is_there(tmp_path: Path, installed: Installed) -> None:
    compile_guard(installed.guard.parent)
    assert installed.init(tmp_path / "cloud", "--no-guard")["guard"] == ""
    assert "plugin" not in (tmp_path / "cloud/broker/mosquitto.conf").read_text()


def test_init_says_why_it_takes_none_and_refuses_where_it_is_wanted(tmp_path: Path, installed: Installed) -> None:
    folder = tmp_path / "cloud"
    assert f"{installed.guard} is not there" in installed.refusal(folder, "--guard")
    installed.guard.write_bytes(b"no library " + MARK)
    assert "mosquitto cannot load it: Unable to load" in installed.refusal(folder, "--guard")
    assert "the broker is on another machine" in installed.refusal(folder, "--guard", "--broker", "other.example.com")
    assert installed.init(folder)["guard"] == ""
    assert "plugin" not in (folder / "broker/mosquitto.conf").read_text()
