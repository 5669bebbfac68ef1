"""One port, 443, as docs/examples/haproxy-443.cfg has it: a real agent, people and downloads, told apart by SNI."""

from __future__ import annotations

import json
import re
import shutil
import ssl
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from kits.agent import Agent, until
from kits.connectproxy import ConnectProxy
from kits.haproxy import DEBIANS, need_haproxy
from kits.port443 import BOXES, DOCUMENT, FILE, HOST, MQTT, PEOPLE, Port443, port_443

from edgegpu_agent.cli.clients.agent import fetch
from edgegpu_agent.cli.common import CliError
from edgegpu_cloud.layout import CloudLayout
from edgegpu_sim.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port443]:
    with port_443(tmp_path_factory.mktemp("port443")) as site:
        yield site


def certificate(path: Path) -> bytes:
    """Return the first certificate of a file, DER."""
    return x509.load_pem_x509_certificate(path.read_bytes()).public_bytes(Encoding.DER)


def test_each_name_shows_the_certificate_of_what_is_behind_it(site: Port443) -> None:
    layout = CloudLayout(site.cloud.folder)
    assert site.shown(MQTT) == certificate(layout.cert("broker"))
    assert site.shown(BOXES.upper()) == certificate(layout.cert("https"))
    assert site.shown(PEOPLE) == certificate(site.work / "people.pem")


@pytest.mark.parametrize("name", [None, "other.example.com", f"x.{MQTT}", HOST])
def test_another_name_or_none_leads_nowhere(site: Port443, name: str | None) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        site.tls(name)


def test_a_real_agent_enrols_and_connects_by_a_sites_proxy_through_the_port(site: Port443, short_tmp: Path) -> None:
    """The agent finds no name by itself, as on a site that has a proxy and no way out."""
    with ConnectProxy(server_port=site.port) as proxy, Agent(short_tmp / "box") as agent:
        agent.belongs(site.cloud.line("hall-1"))
        settings = agent.root / "etc/edgegpu/agent.yaml"
        settings.write_text(settings.read_text().replace("cloud:\n", f"cloud:\n  proxy: {proxy.url}\n"))
        agent.start()
        assert site.cloud.online("hall-1").versions
        asked = {line.split()[1] for line in proxy.requests}
        assert asked == {f"{BOXES}:443".encode(), f"{MQTT}:443".encode()}
        status = fetch(agent.root / "run/edgegpu/agent.sock", "/v1/status")
        assert status["route"] == f"{MQTT}:443 by the proxy {proxy.url}"
        site.stop()
        until(lambda: not fetch(agent.root / "run/edgegpu/agent.sock", "/v1/status")["connected"], lambda: agent.log)
        began = time.monotonic()
        site.start()
        until(lambda: fetch(agent.root / "run/edgegpu/agent.sock", "/v1/status")["connected"], lambda: agent.log)
        print(f"back {time.monotonic() - began:.2f} s after HAProxy was started, which waits for the console")  # noqa: T201  (a figure)
        assert site.cloud.end("hall-1", "identity.rotate").state == "SUCCEEDED"
        settings.write_text(settings.read_text().replace(proxy.url, f"http://{HOST}:{free_port()}"))  # a wrong one
        assert agent.process is not None
        assert agent.process.wait(180) == 0  # systemd starts it again
        agent.start()
        until(lambda: trouble(agent), lambda: agent.log)
        assert f"connected to {MQTT}:443 by the proxy {proxy.url}, which the settings name no more" in trouble(agent)
        assert site.cloud.online("hall-1").online
        assert agent.end() == 0


def trouble(agent: Agent) -> str:
    """Return what the agent's status says of the route; empty while it does not answer."""
    try:
        return str(fetch(agent.root / "run/edgegpu/agent.sock", "/v1/status")["route_trouble"])
    except CliError:
        return ""


def test_the_printed_line_downloads_through_the_port(site: Port443) -> None:
    line = site.cloud.line("hall-2")["line"]
    fetch_words = re.match(r"curl (-fsSLk --pinnedpubkey) '(\S+)' (https://\S+) ", line)
    assert fetch_words is not None, line
    assert fetch_words[3] == f"https://{BOXES}/install.sh"
    curl = shutil.which("curl")
    assert curl is not None
    to = f"{BOXES}:443:{HOST}:{site.port}"
    words = [curl, *fetch_words[1].split(), fetch_words[2], "--connect-to", to, fetch_words[3]]
    script = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    assert f"BASE_URL='https://{BOXES}'" in script


def test_people_are_told_apart_by_their_addresses(site: Port443) -> None:
    headers = {"Origin": f"https://{PEOPLE}", "Host": PEOPLE, "X-Forwarded-For": "127.0.0.9"}
    status, _ = site.ask(PEOPLE, "/sign-in", "name=nobody&password=x", source="127.0.0.6", headers=headers)
    assert status < 500
    entries = json.loads(site.cloud.command("audit", "--json"))
    assert "127.0.0.6" in str(entries)
    assert "127.0.0.9" not in str(entries)


def test_debians_own_configuration_takes_the_files_beside_it(site: Port443) -> None:
    if not DEBIANS.exists():
        pytest.skip(f"no {DEBIANS}: HAProxy is not Debian's")
    files = [word for name in ("people", "443") for word in ("-f", str(site.work / f"{name}.cfg"))]
    words = [need_haproxy(), "-c", "-f", str(DEBIANS), *files]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, "[WARNING]" in done.stderr) == (0, False), done.stderr


def test_the_document_names_what_the_files_have() -> None:
    text = DOCUMENT.read_text()
    for word in (MQTT, BOXES, PEOPLE, "haproxy-443.cfg"):
        assert word in text
    assert "server people unix@/people.sock send-proxy-v2" in FILE.read_text()
