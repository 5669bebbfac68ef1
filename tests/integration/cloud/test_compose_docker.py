"""docs/examples/compose.yaml on a real Docker: the image is built, and the steps of docs/deploy.md lead to a cloud."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from kits.cert import Authority
from kits.mqtt import wait_for

from edgegpu_cloud.store.records import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "docs/examples"
BASES = ("python:3.11-slim-bookworm", "postgres:15", "haproxy:2.8")
NAME = "cloud.example.com"
USER = 990
"""Of the containers: docs/examples/Dockerfile."""
_PAGE = """
import ssl, urllib.request
trust = ssl.create_default_context(cafile="/share/people-ca.crt")
trust.check_hostname = False
print(urllib.request.urlopen("https://proxy:443/readyz", context=trust, timeout=5).status)
"""


def docker(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=False)


def compose_command() -> list[str]:
    """Return the words of Compose; skip the test without it, a daemon or the base images."""
    if shutil.which("docker") is None or docker("info").returncode != 0:
        pytest.skip("no Docker daemon runs here: apt-get install docker.io, and start it")
    missing = [one for one in BASES if docker("image", "inspect", one).returncode and docker("pull", one).returncode]
    if missing:
        pytest.skip(f"no base image, and none to be pulled: {', '.join(missing)}")
    if docker("compose", "version").returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    pytest.skip("no Compose: apt-get install docker-compose")


class Deployment:
    """The folder of a new user, as docs/deploy.md has it made."""

    def __init__(self, folder: Path, words: list[str]) -> None:
        self.folder, self._words = folder, words
        for name in ("compose.yaml", "haproxy.cfg"):
            shutil.copy(EXAMPLES / name, folder)
        self._fit_this_machine()
        project = f"edgegpu-test-{folder.name.replace('_', '-')}"[:40].lower()
        (folder / ".env").write_text(f"COMPOSE_PROJECT_NAME={project}\nCLOUD={NAME}\nEDGEGPU_SOURCE={ROOT}\n")
        people = Authority("people")
        pair = people.pair("proxy", hosts=[NAME])
        (folder / "share").mkdir(mode=0o700)
        files = {
            "database-password": "a password of a test\n",
            "proxy.pem": pair.cert + pair.key,
            "share/people-ca.crt": people.pem,
            "share/passphrase": "a passphrase of a test\n",
        }
        for name, text in files.items():
            (folder / name).touch(mode=0o600)
            (folder / name).write_text(text)
        for name in ("share", *files):
            shutil.chown(folder / name, USER)

    def _fit_this_machine(self) -> None:
        """Publish no port, and ask for no more open files than this machine has."""
        whole = yaml.safe_load((self.folder / "compose.yaml").read_text())
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        for service in whole["services"].values():
            service.pop("ports", None)
            if "ulimits" in service:
                service["ulimits"] = {"nofile": min(most, service["ulimits"]["nofile"])}
        (self.folder / "compose.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))

    def run(self, *words: str) -> str:
        done = subprocess.run([*self._words, *words], cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stdout[-2_000:], done.stderr[-4_000:])
        return done.stdout

    def cloud(self, *words: str) -> str:
        return self.run("exec", "-T", "controller-1", "edgegpu-cloud", *words)

    def once(self, *words: str) -> str:
        return self.run("run", "--rm", "cli", *words)

    def up(self) -> None:
        self.run("up", "-d")
        wait_for(self.shared, what="both controllers share the partitions", timeout_s=90)
        wait_for(self.page, what="a page comes through the proxy", timeout_s=90)

    def shared(self) -> bool:
        words = [*self._words, "exec", "-T", "controller-1", "edgegpu-cloud", "controllers", "list", "--json"]
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return False
        return [one["partitions"] for one in json.loads(done.stdout)["controllers"]] == [PARTITIONS // 2] * 2

    def page(self) -> bool:
        words = [*self._words, "run", "--rm", "--no-deps", "--entrypoint", "python3", "cli", "-c", _PAGE]
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=False)
        return done.stdout.strip() == "200"


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(tmp_path, compose_command())
    try:
        yield made
    finally:
        made.run("down", "-v")


def test_the_steps_of_the_documents_lead_to_a_cloud_that_keeps_its_data(deployment: Deployment) -> None:
    deployment.run("build", "image")
    assert f"https://{NAME}/link?code=" in deployment.run("run", "--rm", "init")
    deployment.run("run", "--rm", "add-controller-2")
    deployment.run("run", "--rm", "--entrypoint", "cp", "cli", "/var/lib/edgegpu-cloud/ca/servers.crt", "/share/")
    deployment.up()
    assert "New client connected" in deployment.run("logs", "broker")
    find = ("exec", "-T", "console-1", "find", "/var/lib/edgegpu-cloud", "-name", "*.key")
    assert deployment.run(*find).split() == ["/var/lib/edgegpu-cloud/tls/console.key"]
    deployment.cloud("people", "add", "bea", "--role", "viewer")
    deployment.once("backup", "/share/cloud.backup", "--passphrase-file", "/share/passphrase")
    deployment.run("down")
    deployment.up()
    assert "bea" in deployment.cloud("people", "list")

    deployment.cloud("people", "remove", "bea", "--yes")
    deployment.run("down")
    project = (deployment.folder / ".env").read_text().splitlines()[0].partition("=")[2]
    assert docker("volume", "rm", f"{project}_cloud", f"{project}_postgres").returncode == 0
    deployment.once("restore", "--yes", "/share/cloud.backup", "--passphrase-file", "/share/passphrase")
    deployment.up()
    assert "bea" in deployment.cloud("people", "list")
