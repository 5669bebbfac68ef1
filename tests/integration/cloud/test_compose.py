"""docs/examples/compose.yaml: its services hang together, and its commands run as one cloud on one database."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from kits.cloudcli import ok, run
from kits.haproxy import FILE as HAPROXY
from kits.mqtt import need_mosquitto, wait_for

from edgegpu_cloud.layout import CloudLayout
from edgegpu_cloud.store.records import PARTITIONS
from edgegpu_sim.ports import free_port

if TYPE_CHECKING:
    from kits.postgres import PostgresServer

FILE = Path(__file__).parents[3] / "docs/examples/compose.yaml"
PLACE = "/var/lib/edgegpu-cloud"
SERVED = ("https", "controller-1", "controller-2", "console-1", "console-2")


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return found


def test_its_services_name_only_what_there_is() -> None:
    whole = compose()
    services, volumes = whole["services"], whole["volumes"]
    for name, one in services.items():
        assert {"image"} <= one.keys(), name
        assert set(one.get("depends_on", {})) <= services.keys(), name
        for needed, how in one.get("depends_on", {}).items():
            assert how["condition"] != "service_healthy" or "healthcheck" in services[needed], (name, needed)
        secrets = {two if isinstance(two, str) else two["source"] for two in one.get("secrets", ())}
        assert secrets <= whole["secrets"].keys(), name
        assert {word.split(":")[0] for word in one.get("volumes", ())} <= volumes.keys(), name
        assert {two["source"] for two in one.get("configs", ())} <= whole["configs"].keys(), name


def test_the_proxy_runs_with_the_file_of_the_documents_and_sees_no_key() -> None:
    whole = compose()
    services, proxy = whole["services"], whole["services"]["proxy"]
    assert (FILE.parent / whole["configs"]["haproxy"]["file"]).resolve() == HAPROXY
    assert "volumes" not in proxy
    seen = {one["target"] for one in (*proxy["configs"], *proxy["secrets"])}
    assert set(re.findall(r"(?:crt|ca-file) (/\S+)", HAPROXY.read_text())) <= seen
    servers = re.findall(r"^  server (\S+) (\S+):(\d+)$", HAPROXY.read_text(), re.MULTILINE)
    assert [(name, port) for _, name, port in servers] == [(name, "8444") for name in services if "console-" in name]


def test_each_command_is_one_of_ours(tmp_path: Path) -> None:
    ours = {name: one for name, one in compose()["services"].items() if one.get("entrypoint") == ["edgegpu-cloud"]}
    assert {*SERVED, "init", "add-controller-2"} == ours.keys()
    for name, one in ours.items():
        assert one["environment"]["EDGEGPU_CLOUD"] == PLACE
        done = run(*one["command"], "--help", folder=tmp_path)
        assert done.code == 0, (name, done.err)


@pytest.mark.timeout(400)
def test_its_processes_share_one_database_and_one_broker(tmp_path: Path, postgres_server: PostgresServer) -> None:
    """The commands and the environment of the file; a folder in place of each volume, ports of this machine."""
    services, folder = compose()["services"], tmp_path / "cloud"
    consoles = (free_port(), free_port())
    ports = ["--broker", f"127.0.0.1:{free_port()}", "--controller-port", str(free_port())]
    ports += ["--https-port", str(free_port()), "--console-port", str(consoles[0])]
    ok("init", "--name", "127.0.0.1", *ports, "--database", postgres_server.new_database(), folder=folder)
    ok("controllers", "add", "2", "--out", str(tmp_path / "controller-2"), folder=folder)
    folders = dict.fromkeys(SERVED, folder) | {"controller-2": tmp_path / "controller-2"}
    with ExitStack() as stack:
        words = [need_mosquitto(), *services["broker"]["command"]]
        stack.enter_context(Started([word.replace(PLACE, str(folder)) for word in words], tmp_path / "broker.log"))
        for name in SERVED:
            if name == "console-2":  # of this machine's ports it needs another than the first
                wait_for(lambda: ready(folder, consoles[0]), what="the first web process is ready", timeout_s=120)
                folders[name] = console_folder(folder, tmp_path / "console-2")
                text = (folders[name] / "controller.yaml").read_text()
                text = text.replace(f"port: {consoles[0]}", f"port: {consoles[1]}")
                (folders[name] / "controller.yaml").write_text(text)
            words = [sys.executable, "-m", "edgegpu_cloud.cli.app", *services[name]["command"]]
            env = {"EDGEGPU_CLOUD": str(folders[name])}
            stack.enter_context(Started(words, tmp_path / f"{name}.log", env))
        wait_for(lambda: shares(folder) == [PARTITIONS // 2] * 2, what="both controllers share", timeout_s=120)
        wait_for(
            lambda: all(ready(folder, port) for port in consoles), what="both web processes are ready", timeout_s=120
        )
        assert "boxes enrol at" in (tmp_path / "https.log").read_text()


def console_folder(folder: Path, new: Path) -> Path:
    """Return a folder with what a web process needs, as docs/deploy.md lists it: no key but that of its certificate."""
    for name in (
        "controller.yaml",
        "keys/root.pub",
        "ca/servers.crt",
        "tls/https.crt",
        "tls/console.crt",
        "tls/console.key",
    ):
        (new / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy(folder / name, new / name)
    return new


class Started:
    """A process that runs while the block does, and ends with status 0."""

    def __init__(self, words: list[str], log: Path, env: dict[str, str] | None = None) -> None:
        self._words, self._log, self._env = words, log, {**os.environ, **(env or {})}

    def __enter__(self) -> None:
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(self._words, stdout=out, stderr=out, env=self._env)

    def __exit__(self, kind: object, *_: object) -> None:
        self._process.terminate()
        status = self._process.wait(30)
        assert kind is not None or status == 0, self._log.read_text()


def shares(folder: Path) -> list[int]:
    told = ok("controllers", "list", "--json", folder=folder).json["controllers"]
    return [one["partitions"] for one in told]


def ready(folder: Path, port: int) -> bool:
    trust = ssl.create_default_context(cafile=str(CloudLayout(folder).ca_cert("servers")))
    try:
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/readyz", context=trust, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
