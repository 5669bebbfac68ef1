"""docs/examples/compose.yaml: its commands, options and paths are the program's, and run as one cloud on a database."""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import tomllib
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from kits.cli import loaded
from kits.cloudcli import ok
from kits.haproxy import FILE as HAPROXY
from kits.mqtt import need_mosquitto, wait_for
from kits.units import command, settings
from typer import Context
from typer.core import TyperGroup
from typer.main import get_command

from edgegpu_cloud.cli.tree import app
from edgegpu_cloud.layout import DEFAULT_FOLDER, BrokerConfig, CloudLayout, ConsoleConfig, HttpsConfig
from edgegpu_cloud.store.records import PARTITIONS
from edgegpu_sim.ports import free_port

if TYPE_CHECKING:
    from kits.postgres import PostgresServer

ROOT = Path(__file__).parents[3]
FILE = ROOT / "docs/examples/compose.yaml"
DOCKERFILE = FILE.with_name("Dockerfile").read_text()
PLACE = "/var/lib/edgegpu-cloud"
SERVED = ("https", "controller-1", "controller-2", "console-1", "console-2")
ONCE = ("image", "init", "add-controller-2", "cli")
FILES = ("files", "bring-files")
CONSOLE_FILES = {
    "controller.yaml",
    "keys/root.pub",
    "ca/servers.crt",
    "tls/https.crt",
    "tls/console.crt",
    "tls/console.key",
}
"""What docs/deploy.md lists for a console on another machine."""
BROKER_FILES = {
    *(f"broker/{name}" for name in ("mosquitto.conf", "boxes.acl", "controllers.acl")),
    *("ca/boxes.crt", "ca/controllers.crt", "ca/boxes.crl", "tls/broker.crt", "tls/broker.key"),
}
UNITS = {
    "https": "edgegpu-cloud-https.service",
    "controller-1": "edgegpu-cloud-controller.service",
    "controller-2": "edgegpu-cloud-controller.service",
    "console-1": "edgegpu-cloud-console@.service",
    "console-2": "edgegpu-cloud-console@.service",
}


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return found


def parsed(words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Return the command and its parameters, as `edgegpu-cloud` itself reads the words; nothing is run."""
    found: Any = get_command(app)
    names, context, left = ["edgegpu-cloud"], None, words
    while isinstance(found, TyperGroup) and left:
        context = Context(found, parent=context)
        name, command, left = found.resolve_command(context, left)
        found = loaded(command)
        names.append(str(name))
    return names[1:], found.make_context(names[-1], list(left), parent=context).params


def test_an_option_that_is_gone_is_seen() -> None:
    with pytest.raises(Exception, match="No such option"):
        parsed(["serve", "--no-linc"])


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
        named = {word.split(":")[0] for word in one.get("volumes", ()) if isinstance(word, str) and word[0] != "."}
        assert named <= volumes.keys(), name


def test_the_proxy_runs_with_the_file_of_the_documents_and_sees_no_key() -> None:
    whole = compose()
    services, proxy = whole["services"], whole["services"]["proxy"]
    files = {one["source"]: one for one in proxy["volumes"]}
    assert (FILE.parent / "haproxy.cfg") == HAPROXY
    assert files.keys() == {"./haproxy.cfg", "./share/servers.crt"}
    assert all(one["type"] == "bind" and one["read_only"] for one in files.values())
    seen = {one["target"] for one in (*proxy["volumes"], *proxy["secrets"])}
    assert set(re.findall(r"(?:crt|ca-file) (/\S+)", HAPROXY.read_text())) <= seen
    servers = re.findall(r"^  server (\S+) (\S+):(\d+)$", HAPROXY.read_text(), re.MULTILINE)
    assert [(name, port) for _, name, port in servers] == [(name, "8444") for name in services if "console-" in name]


def test_who_is_reached_from_outside_has_no_key_of_the_controller() -> None:
    """Code in a console's or the broker's process is never the fleet's owner: docs/deploy.md, "Several consoles"."""
    services = compose()["services"]
    has = {name for name, one in services.items() for word in one.get("volumes", ()) if "cloud:" in str(word)[:6]}
    ran_once = {name for name, one in services.items() if "set-up" in one.get("profiles", ())}
    assert has - ran_once == {"https", "controller-1", "files"}
    for name in FILES:  # it serves nobody: no network, no database, and what it reads it cannot change
        assert services[name]["network_mode"] == "none"
        assert services[name]["secrets"] == []
        assert not {"ports", "networks"} & services[name].keys()
        assert f"cloud:{PLACE}:ro" in services[name]["volumes"]
    assert services["console-1"]["volumes"] == services["console-2"]["volumes"] == [f"console:{PLACE}:ro"]
    assert services["broker"]["volumes"] == [f"broker:{PLACE}"]
    for name in ("broker", "console-1", "console-2"):
        assert services[name]["depends_on"]["files"]["condition"] == "service_healthy"


def test_broker_and_consoles_get_the_files_that_they_need_and_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "cloud"
    ok("init", "--name", "127.0.0.1", "--console-port", str(free_port()), folder=folder)
    keys = [*(folder / "keys").glob("*.key"), *(folder / "ca").glob("*.key")]
    assert len(keys) == 5, "root, signing key, three authorities"
    for _ in range(2):  # what is there is replaced
        bring_files(folder, tmp_path)
    assert files_in(tmp_path / "console") == CONSOLE_FILES
    assert files_in(tmp_path / "broker") == BROKER_FILES
    for name, files in (("console", CONSOLE_FILES), ("broker", BROKER_FILES)):
        for one in files:
            there, here = folder / one, tmp_path / name / one
            assert (there.read_bytes(), there.stat().st_mode) == (here.read_bytes(), here.stat().st_mode), one
    text = " ".join((ROOT / "docs/deploy.md").read_text().split())
    listed = text[text.index("The machine needs a copy") : text.index("owned by `edgegpu-cloud`")]
    assert all(f"`{one}`" in listed for one in CONSOLE_FILES if "tls/console" not in one)


def test_each_command_is_one_of_ours() -> None:
    ours = {name: one for name, one in compose()["services"].items() if one.get("entrypoint") == ["edgegpu-cloud"]}
    assert {*SERVED, *ONCE} == ours.keys()
    for name, one in ours.items():
        if one["command"][0].startswith("--"):  # of no command: they print and end
            assert ok(*one["command"]).out
            continue
        assert one["environment"]["EDGEGPU_CLOUD"] == PLACE == str(DEFAULT_FOLDER)
        names, _ = parsed(one["command"])
        assert names[0] in {"serve", "init", "controllers"}, name


def test_each_service_does_what_its_unit_does() -> None:
    services = compose()["services"]
    for name, of_unit in UNITS.items():
        program, *words = command(of_unit, "8444")
        there, here = parsed(words), parsed(services[name]["command"])
        assert Path(program).name == services[name]["entrypoint"][0]
        assert there[0] == here[0]
        assert {**there[1], "console_port": None} == {**here[1], "console_port": None}, name
    program, *words = command("edgegpu-broker.service")
    assert [Path(program).name, *words] == [*services["broker"]["entrypoint"], *services["broker"]["command"]]
    assert words[-1] == str(CloudLayout(DEFAULT_FOLDER).broker / "mosquitto.conf")
    for name, of_unit in {**UNITS, "broker": "edgegpu-broker.service"}.items():
        assert services[name]["ulimits"]["nofile"] == int(settings(of_unit, "LimitNOFILE")[0]), name
        stop_s = int(settings(of_unit, "TimeoutStopSec")[0].removesuffix("s"))
        assert int(services[name]["stop_grace_period"].removesuffix("s")) >= stop_s, name
        assert services[name]["restart"] == "unless-stopped", name


def test_init_and_the_further_controller_are_made_for_the_services() -> None:
    whole = compose()
    services, network = whole["services"], whole["networks"]["default"]["ipam"]["config"][0]
    _, made = parsed(services["init"]["command"])
    assert made["database"].split("@")[1].split("/")[0] == "postgres"
    assert str(made["database_password_file"]) == services["postgres"]["environment"]["POSTGRES_PASSWORD_FILE"]
    user = re.match(r"postgresql://(\w+)@\w+/(\w+)$", made["database"])
    environment = services["postgres"]["environment"]
    assert user is not None
    assert user.groups() == (environment["POSTGRES_USER"], environment["POSTGRES_DB"])
    address = services["proxy"]["networks"]["default"]["ipv4_address"]
    assert list(made["trusted_proxy"]) == [address]
    assert ipaddress.ip_address(address) in ipaddress.ip_network(network["subnet"])
    # Else another container that starts first may have it: seen, "Address already in use".
    assert ipaddress.ip_address(address) not in ipaddress.ip_network(network["ip_range"])
    _, added = parsed(services["add-controller-2"]["command"])
    assert f"controller-2:{added['out']}" in services["add-controller-2"]["volumes"]
    assert f"controller-2:{PLACE}" in services["controller-2"]["volumes"]
    published = {one.split(":")[1] for name in ("https", "broker") for one in services[name]["ports"]}
    assert published == {str(HttpsConfig.model_fields["port"].default), str(BrokerConfig.model_fields["port"].default)}


def test_the_image_has_the_user_the_folders_and_the_sources_of_the_wheel() -> None:
    services = compose()["services"]
    number = re.search(r"--uid (\d+)", DOCKERFILE)
    assert number is not None
    assert services["proxy"]["user"] == number[1]
    made = re.search(r"install -d -m 700 -o (\S+) -g \1 (.*)", DOCKERFILE)
    assert made is not None
    ours = [one for one in services.values() if one["image"] == "edgegpu-cloud"]
    mounted = {word.split(":")[1] for one in ours for word in one.get("volumes", ()) if not word.startswith(".")}
    assert mounted == {f"/var/lib/{name}" for name in made[2].split()}
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {Path(name).parts[0] for name in (*wheel["packages"], *wheel["shared-data"])}
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    assert {*needed, "pyproject.toml", "README.md", "LICENSE"} <= {line[1:] for line in lines if line.startswith("!")}
    for path in re.findall(r"/src/(\S+\.js|requirements/\S+\.txt)", DOCKERFILE):
        assert (ROOT / path).is_file(), path


def test_the_documents_name_its_services_and_our_commands() -> None:
    services = {*compose()["services"], "controller-3", "console-3", "add-controller-3"}
    page = (ROOT / "docs/deploy.md").read_text()
    steps = page[page.index("## With compose") : page.index("## Which key is where")]
    lines = [line.strip() for block in re.findall(r"```sh\n(.*?)```", steps, re.DOTALL) for line in block.splitlines()]
    calls = [shlex.split(line, comments=True)[2:] for line in lines if line.startswith("docker compose ")]
    seen = set[str]()
    for verb, *words in calls:
        bare = [word for word in words if word not in {"--rm", "-d", "-s", "HUP"}]
        if "--entrypoint" in bare:
            assert bare[2] in services
        elif verb in {"run", "exec", "build", "restart", "kill"}:
            assert bare[0] in services, bare
            if bare[1:]:
                seen.add(parsed([word for word in bare[1:] if word != "edgegpu-cloud"])[0][0])
    assert seen == {"controllers", "enrol", "revoke", "kick", "backup", "restore", "migrate"}
    project = re.search(r"COMPOSE_PROJECT_NAME=(\S+)", steps)
    removed = re.search(r"docker volume rm (.*)", steps)
    assert project is not None
    assert removed is not None
    volumes = {f"{project[1]}_{name}" for name in compose()["volumes"]}
    assert set(removed[1].split()) == volumes - {
        f"{project[1]}_{name}" for name in ("controller-2", "broker", "console")
    }


@pytest.mark.timeout(600)
def test_its_processes_share_one_database_and_one_broker(tmp_path: Path, postgres_server: PostgresServer) -> None:
    """The commands and the environment of the file; a folder in place of each volume, ports of this machine."""
    services, folder = compose()["services"], tmp_path / "cloud"
    consoles = (free_port(), free_port())
    ports = ["--broker", f"127.0.0.1:{free_port()}", "--controller-port", str(free_port())]
    ports += ["--https-port", str(free_port()), "--console-port", str(consoles[0])]
    ok("init", "--name", "127.0.0.1", *ports, "--database", postgres_server.new_database(), folder=folder)
    ok("controllers", "add", "2", "--out", str(tmp_path / "controller-2"), folder=folder)
    bring_files(folder, tmp_path)
    broker = tmp_path / "broker"
    configuration = broker / "broker/mosquitto.conf"  # there it is where the controller's folder is here
    configuration.write_text(configuration.read_text().replace(f"{folder}/", f"{broker}/"))
    folders = dict.fromkeys(SERVED, folder) | {"controller-2": tmp_path / "controller-2"}
    folders["console-1"] = tmp_path / "console"
    with ExitStack() as stack:
        words = [need_mosquitto(), *services["broker"]["command"]]
        stack.enter_context(Started([word.replace(PLACE, str(broker)) for word in words], tmp_path / "broker.log"))
        for name in SERVED:
            if name == "console-2":  # of this machine's ports it needs another than the first
                wait_for(lambda: ready(folder, consoles[0]), what="the first web process is ready", timeout_s=120)
                folders[name] = tmp_path / "console-2"
                shutil.copytree(tmp_path / "console", folders[name])
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
        # Written to a pipe or a file in blocks, it would still be empty.
        assert "New client connected" in (tmp_path / "broker.log").read_text()
        for name, port in zip(("console-1", "console-2"), consoles, strict=True):
            assert healthy(services[name]["healthcheck"]["test"], folders[name], port)
            assert not healthy(services[name]["healthcheck"]["test"], folders[name], free_port())
            # The volume is read-only there: a console writes nothing into its folder.
            assert files_in(folders[name]) == CONSOLE_FILES


def bring_files(folder: Path, volumes: Path) -> None:
    """Run the service that brings broker and consoles their files, once; its volumes are folders below `volumes`."""
    program, options, script, name = compose()["services"]["bring-files"]["entrypoint"]
    for volume in ("broker", "console"):
        (volumes / volume).mkdir(mode=0o700, exist_ok=True)
        script = script.replace(f"/var/lib/new-{volume}", str(volumes / volume))
    script = script.replace(PLACE, str(folder)).replace("$$", "$")
    script = re.sub(r"/\w+/brought", str(volumes / "brought"), script)
    subprocess.run([program, options, script, name, *compose()["services"]["bring-files"]["command"]], check=True)
    assert (volumes / "brought").exists()


def files_in(folder: Path) -> set[str]:
    return {str(one.relative_to(folder)) for one in folder.rglob("*") if not one.is_dir()}


def healthy(test: list[str], folder: Path, port: int) -> bool:
    """Run a healthcheck with the folder and the port of a test in their places."""
    kind, program, *words = test
    assert (kind, program) == ("CMD", "python3")
    assert f"localhost:{ConsoleConfig().port}/" in words[-1]
    words = [word.replace(f":{ConsoleConfig().port}/", f":{port}/").replace(PLACE, str(folder)) for word in words]
    return subprocess.run([sys.executable, *words], check=False).returncode == 0


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
