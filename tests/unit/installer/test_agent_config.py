"""Where a box belongs, as the installer writes it and the agent reads it."""

from pathlib import Path

import pytest
import yaml

from edgegpu_agent import settings
from edgegpu_installer.errors import InstallError
from edgegpu_installer.plan.agent_config import agent_yaml, holds_secret, limits_namespaces, refuse_homeless
from edgegpu_installer.plan.site import InstallOptions

URL, HEX = "https://cloud.example.com:8443/a", "0123456789abcdef" * 4
HERE = InstallOptions(cloud=URL, ca_sha256=HEX)


def written(existing: str | None, options: InstallOptions) -> str:
    text = agent_yaml(existing, options)
    assert text is not None
    return text


@pytest.mark.parametrize("url", [URL, "https://[fd00::1]:8443", "https://x/'\"#:{}%20"])
@pytest.mark.parametrize("ca", ["", HEX, "1" * 64])
def test_the_agent_reads_what_the_installer_writes(tmp_path: Path, url: str, ca: str) -> None:
    (tmp_path / "agent.yaml").write_text(written(None, InstallOptions(cloud=url, ca_sha256=ca)))
    read = settings.load(tmp_path / "agent.yaml")
    assert (read.cloud.url, read.cloud.ca_sha256) == (url, ca)


def test_a_file_that_says_so_already_is_kept_to_the_byte() -> None:
    text = f'# mine\nversion: 1\ncloud:\n  url: "{URL}"\n  ca_sha256: "{HEX}"\n'
    assert agent_yaml(text, HERE) == text
    assert agent_yaml(text, InstallOptions(cloud=URL)) == text
    assert agent_yaml(text, InstallOptions()) is None


def test_what_a_person_wrote_besides_stays(tmp_path: Path) -> None:
    own = {
        "version": 1,
        "cloud": {"url": "https://old", "ca_sha256": HEX, "proxy": "http://p:1"},
        "metrics": {"period_s": 30},
    }
    (tmp_path / "agent.yaml").write_text(written(yaml.safe_dump(own), InstallOptions(cloud=URL)))
    read = settings.load(tmp_path / "agent.yaml")
    assert (read.cloud.url, read.cloud.ca_sha256, read.cloud.proxy, read.metrics.period_s) == (
        URL,
        "",
        "http://p:1",
        30,
    )


def test_the_proxy_is_set_kept_and_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(written(None, InstallOptions(cloud=URL, proxy="http://ann:s@p:1")))
    assert settings.load(path).cloud.proxy == "http://ann:s@p:1"
    assert holds_secret(path.read_text())
    assert agent_yaml(path.read_text(), HERE) is not None
    assert settings.load(path).cloud.proxy == "http://ann:s@p:1", "not named, it stays"
    path.write_text(written(path.read_text(), InstallOptions(proxy="https://q:2")))
    assert settings.load(path).cloud.proxy == "https://q:2"
    assert not holds_secret(path.read_text())
    path.write_text(written(path.read_text(), InstallOptions(proxy="")))
    assert "proxy" not in yaml.safe_load(path.read_text())["cloud"]


def test_the_brokers_address_is_set_kept_and_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(written(None, InstallOptions(cloud=URL, broker="mqtt.example.com:443", proxy="http://p:1")))
    assert settings.load(path).cloud.broker_address == ("mqtt.example.com", 443)
    assert agent_yaml(path.read_text(), InstallOptions(cloud=URL)) == path.read_text(), "not named, it stays"
    path.write_text(written(path.read_text(), InstallOptions(broker="")))
    read = settings.load(path).cloud
    assert (read.broker, read.proxy) == ("", "http://p:1")


def test_a_proxy_to_nowhere_is_not_written() -> None:
    assert agent_yaml(None, InstallOptions(proxy="http://p:1")) is None


@pytest.mark.parametrize("text", ["- 1", "cloud: {", "words"])
def test_what_cannot_be_kept_is_not_overwritten(text: str) -> None:
    with pytest.raises(InstallError, match="cannot keep the settings"):
        agent_yaml(text, HERE)


def test_a_token_needs_somewhere_to_go() -> None:
    with pytest.raises(InstallError, match="no cloud is named") as refused:
        refuse_homeless(InstallOptions(token="t"), belongs=False)  # noqa: S106
    assert "--cloud https://HOST" in refused.value.remedy
    refuse_homeless(InstallOptions(token="t"), belongs=True)  # noqa: S106
    refuse_homeless(InstallOptions(token="t", cloud=URL), belongs=False)  # noqa: S106
    with pytest.raises(InstallError, match="alone"):
        refuse_homeless(InstallOptions(ca_sha256=HEX), belongs=True)


def test_where_apps_may_be_changed_is_kept_for_the_next_installation(tmp_path: Path) -> None:
    text = written(None, InstallOptions(cloud=URL, limits_namespaces=("asr", "default")))
    (tmp_path / "agent.yaml").write_text(text)
    assert settings.load(tmp_path / "agent.yaml").limits.namespaces == ("asr", "default")
    assert limits_namespaces(text, InstallOptions()) == ("asr", "default")
    assert limits_namespaces(text, InstallOptions(limits_namespaces=())) == ()
    other = written(text, InstallOptions(limits_namespaces=("*",)))
    assert yaml.safe_load(other)["cloud"]["url"] == URL
    assert limits_namespaces(other, InstallOptions()) == ("*",)


def test_without_a_cloud_there_is_nobody_to_change_limits() -> None:
    assert limits_namespaces(None, InstallOptions()) is None
    assert limits_namespaces(None, InstallOptions(cloud=URL)) == ("*",)
    assert limits_namespaces(written(None, InstallOptions(cloud=URL)), InstallOptions()) == ("*",)
    with pytest.raises(InstallError, match="no cloud"):
        refuse_homeless(InstallOptions(limits_namespaces=()), belongs=False)


def test_an_account_that_somebody_else_has_made_is_left_alone() -> None:
    text = yaml.safe_dump({"version": 1, "cloud": {"url": URL}, "limits": {"kubeconfig": "/etc/own"}})
    assert limits_namespaces(text, InstallOptions()) is None
