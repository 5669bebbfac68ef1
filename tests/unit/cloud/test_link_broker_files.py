"""The broker's files: rendered whole, and nothing in a path that would become a line of its own."""

from pathlib import Path

import pytest

from edgegpu_cloud.broker.config import TEMPLATES, BrokerLimits, BrokerPaths, Listeners, render
from edgegpu_cloud.errors import CloudError
from edgegpu_sync.link.pahoclient import PACKET_MAX_BYTES
from edgegpu_sync.link.rules import heartbeat_topic
from edgegpu_sync.topics import PLAIN_KINDS, PREFIX

HERE = Path("/etc/mosquitto/edgegpu")


def paths(crl: str = "boxes.crl") -> BrokerPaths:
    return BrokerPaths(
        folder=HERE,
        data=HERE / "data",
        boxes_ca=HERE / "boxes-ca.crt",
        controllers_ca=HERE / "controllers-ca.crt",
        crl=HERE / crl,
        cert=HERE / "broker.crt",
        key=HERE / "broker.key",
    )


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_is_rendered_whole() -> None:
    made = render(Listeners(boxes=1, controllers=2, bind="10.0.0.1"), paths())
    assert set(made) == set(TEMPLATES)
    assert "${" not in "".join(made.values())
    config = lines(made["mosquitto.conf"])
    assert "listener 1 10.0.0.1" in config
    assert "listener 2 10.0.0.1" in config
    assert f"acl_file {HERE}/boxes.acl" in config


def test_the_boxes_port_forces_the_client_id_and_knows_the_revoked() -> None:
    config = lines(render(Listeners(), paths())["mosquitto.conf"])
    boxes = config[config.index("listener 8883") : config.index("listener 8884")]
    for line in ("use_identity_as_username true", "use_username_as_clientid true", "require_certificate true"):
        assert line in boxes
    assert f"crlfile {HERE}/boxes.crl" in boxes
    assert f"cafile {HERE}/boxes-ca.crt" in boxes
    controllers = config[config.index("listener 8884") :]
    assert f"cafile {HERE}/controllers-ca.crt" in controllers
    assert "require_certificate true" in controllers
    assert "use_username_as_clientid true" not in controllers


def test_both_ports_have_the_guard_and_only_where_it_is_named() -> None:
    config = lines(render(Listeners(), paths(), guard="/usr/local/lib/mosquitto_guard.so")["mosquitto.conf"])
    plugin = config.index("plugin /usr/local/lib/mosquitto_guard.so")
    controllers = config.index("listener 8884")
    assert config.index("listener 8883") < plugin < controllers
    assert config[-2:] == ["plugin /usr/local/lib/mosquitto_guard.so", f"plugin_opt_blocked {HERE}/data/blocked"]
    assert "plugin_opt_blocked" not in " ".join(config[:controllers])
    assert "plugin" not in render(Listeners(), paths())["mosquitto.conf"]


def test_rights_are_those_of_the_protocol() -> None:
    made = render(Listeners(), paths())
    assert lines(made["boxes.acl"]) == [
        f"pattern read {PREFIX}/%u/down/#",
        *(f"pattern write {PREFIX}/%u/{kind}" for kind in PLAIN_KINDS if kind.startswith("up/")),
        f"pattern write {heartbeat_topic('%u')}",
    ]
    assert lines(made["controllers.acl"]) == [
        f"pattern write {PREFIX}/+/down/#",
        f"pattern read {PREFIX}/+/up/#",
        f"pattern write {heartbeat_topic('%c')}",
        "pattern read $SYS/broker/#",
        "pattern write $CONTROL/edgegpu/v1",
    ]


def test_boxes_write_topics_without_number_only_where_an_older_agent_is_left() -> None:
    narrow = lines(render(Listeners(), paths())["boxes.acl"])
    wide = lines(render(Listeners(), paths(), older_boxes=True)["boxes.acl"])
    assert not [line for line in narrow if line.startswith("pattern write") and set(line) & set("+#")]
    assert wide == [*narrow, f"pattern write {PREFIX}/%u/up/cmd/+"]


def test_the_broker_takes_what_the_link_may_send() -> None:
    assert BrokerLimits().max_packet_size == PACKET_MAX_BYTES


def test_a_path_with_a_line_break_is_refused() -> None:
    with pytest.raises(CloudError, match="crl is '/etc/mosquitto/edgegpu/x"):
        render(Listeners(), paths(crl="x\nallow_anonymous true"))
