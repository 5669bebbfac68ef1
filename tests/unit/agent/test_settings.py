"""/etc/edgegpu/agent.yaml: what it may hold, and the words for what is wrong in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kits.agentyaml import written

from edgegpu_agent.settings import CloudSection, load
from edgegpu_plugin.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

PIN = "ab" * 32


def problems(path: Path, text: str) -> tuple[str, ...]:
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    return caught.value.problems


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(written("https://cloud.example:8443/", PIN.upper()))
    config = load(path)
    assert (config.cloud.url, config.cloud.ca_sha256) == ("https://cloud.example:8443", PIN)
    assert config.metrics.period_s == 60
    path.write_text(written("https://cloud.example"))
    assert load(path).cloud.ca_sha256 == ""


@pytest.mark.parametrize(
    ("url", "pin"), [("http://a", ""), ("https://", ""), ('https://a"\nb', ""), ("https://a", "1")]
)
def test_an_address_or_a_sha256_that_is_none_is_refused(url: str, pin: str) -> None:
    with pytest.raises(ValueError, match=r"https address|SHA-256"):
        CloudSection(url=url, ca_sha256=pin)


def test_each_problem_names_file_line_value_and_remedy(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    text = "version: 1\ncloud:\n  url: http://cloud\n  ca_sha256: 12ab\n  porxy: x\nmetrics:\n  period_s: 1\n"
    url, pin, unknown, period = problems(path, text)
    assert url.startswith(f"{path}:3: cloud.url: 'http://cloud' is not an https address; give the cloud's address, ")
    assert pin.startswith(f"{path}:4: cloud.ca_sha256: '12ab' is not a SHA-256; give the SHA-256 of the cloud's own CA")
    assert unknown == f"{path}:5: cloud.porxy: unknown key; did you mean proxy?"
    assert period.endswith(
        "'1' should be greater than or equal to 10; give the seconds between two measurements, 10 to 3600"
    )


def test_version_and_cloud_are_needed(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    assert [line.partition("agent.yaml")[2] for line in problems(path, "metrics:\n  period_s: 60\n")] == [
        ":1: version: missing; add 1, the version of this file's form",
        ":1: cloud: missing; add a section with the key url below it",
    ]


@pytest.mark.parametrize(
    "proxy", ["edge:hunter22@p:3128", "http://edge:hunter22@p:99999", "ftp://edge:hunt@er22@p", "http://edge:hunter22@"]
)
def test_a_wrong_proxy_is_named_without_its_password(tmp_path: Path, proxy: str) -> None:
    path = tmp_path / "agent.yaml"
    (problem,) = problems(path, f"version: 1\ncloud:\n  url: https://cloud\n  proxy: {proxy}\n")
    assert "cloud.proxy: '[hidden]@" in problem
    assert "is not a proxy's address; give the proxy" in problem
    assert not {word for word in ("hunt", "edge:") if word in problem}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", None),
        ("mqtt.example.com:443", ("mqtt.example.com", 443)),
        ("10.0.0.1:8883", ("10.0.0.1", 8883)),
        ("[fd00::1]:443", ("fd00::1", 443)),
    ],
)
def test_an_address_of_the_broker_is_host_and_port(text: str, address: tuple[str, int] | None) -> None:
    assert CloudSection(url="https://cloud", broker=text).broker_address == address


@pytest.mark.parametrize(
    "text", ["mqtt.example.com", ":443", "a:0", "a:65536", "a:x", "mqtt://a:1", "fd00::1:443", "a b:1"]
)
def test_what_is_no_address_of_a_broker_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not HOST:PORT"):
        CloudSection(url="https://cloud", broker=text)
