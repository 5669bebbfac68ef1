"""The options of `edgegpu install` for the routes of the agent: its proxy, and where it finds the broker."""

from __future__ import annotations

import pytest

from edgegpu_agent.cli.common import CliError
from edgegpu_agent.cli.setup.enrol_options import with_routes
from edgegpu_installer.plan.site import InstallOptions


def options(proxy: str = "", broker: str = "") -> InstallOptions:
    """Return the options with these words of the command line."""
    return with_routes(InstallOptions(), proxy=proxy, broker=broker)


@pytest.mark.parametrize(("word", "kept"), [("", None), ("none", ""), ("mqtt.example.com:443", "mqtt.example.com:443")])
def test_the_broker_is_kept_removed_or_named(word: str, kept: str | None) -> None:
    assert (options(broker=word).broker, options(broker=word).proxy) == (kept, None)


@pytest.mark.parametrize("word", ["mqtt.example.com", "wss://mqtt.example.com/mqtt", "mqtt:0"])
def test_what_is_no_broker_is_refused_with_the_word(word: str) -> None:
    with pytest.raises(CliError, match=f"--cloud-broker {word}: it is not HOST:PORT"):
        options(broker=word)


@pytest.mark.parametrize("word", ["edge:hunter22@proxy:3128", "http://edge:hunter22@proxy:99999"])
def test_what_is_no_proxy_is_refused_without_the_password(word: str) -> None:
    with pytest.raises(CliError) as caught:
        options(proxy=word)
    assert "hunter22" not in f"{caught.value} {caught.value.remedy}"
    assert "it is not http://HOST:PORT" in str(caught.value)
