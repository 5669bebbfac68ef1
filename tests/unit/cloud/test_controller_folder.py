"""The controller's folder and the tasks of its process."""

import threading
from pathlib import Path

import pytest
from kits.cert import Authority
from kits.enrol import office

from edgegpu_base.process.tasks import Task, TaskGroup
from edgegpu_cloud.enrolment.bootstrap import renew_expiring
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import BrokerConfig, CloudConfig, CloudLayout, dump, load
from edgegpu_cloud.supervision import ended_by_itself


def test_a_configuration_is_read_as_it_was_written(tmp_path: Path) -> None:
    config = CloudConfig(version=1, names=("cloud.example",), broker=BrokerConfig(host="mq.example", port=1))
    path = CloudLayout(tmp_path).config
    path.write_text(dump(config))
    assert load(path) == config
    path.write_text("version: 1\n")
    assert load(path) == CloudConfig(version=1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version: 2\n", "line 1: version: must be 1;"),
        ("version: 1\nbroker: {port: 70000}\n", "line 2: broker.port: must be 65535 or less"),
        ("version: 1\nbroker:\n  port: x\n", "line 3: broker.port: is not a whole number"),
        ("version: 1\nbroker:\n", "line 2: broker: it is a section"),
        ("version: 1\nnames: a\n", r"line 2: names: it is a list: write \[ONE, ANOTHER\]"),
        ("version: 1\ncolour: blue\n", "line 2: colour: there is no such key; there are alerts, broker, "),
        ("version: 1\nconsole:\n  prot: 1\n", r"line 3: console.prot: there is no such key; is it port\?"),
        ("version: 1\nhttps:\n  url: http://a\n", "line 3: https.url: give https://HOST or https://HOST:PORT"),
        ("version: 1\ndatabase: {url: mysql://a}\n", "database.url: give postgresql://USER@HOST/DATABASE"),
        ("version: 1\ncontroller: A\n", "controller: give small letters, digits and -"),
        ("version: 1\nlog_level: loud\n", "log_level: must be one of 'debug', 'info', 'warning', 'error'"),
        ("version: 1\nhttps: {port: x}\nbroker: {port: y}\n", "line 2: https.port: .*; line 3: broker.port: "),
        ("names: [a]\n", "version: is missing"),
        ("just words\n", "line 1: write `key: value`"),
        ("version: [\n", "line 2: .*; put it right"),
        ("version: 1\nnames: [a]\nnames: [b]\n", "line 1: names is given twice"),
        ("version: 1\nbroker: {port: 1, host: h, port: 2}\n", "port is given twice"),
        ("version: 1\nnames: [999.1.1.1]\n", "names.0: .* not a host name"),
        ("version: 1\nbroker: {port: 8884}\n", "both 8884"),
        ("version: 1\nbroker: {boxes_address: mqtt}\n", "line 2: broker.boxes_address: 'mqtt' is not HOST:PORT"),
        ("version: 1\nbroker: {boxes_address: 'm:0'}\n", "broker.boxes_address: 'm:0' is not HOST:PORT"),
        ("version: 1\nbroker: {boxes_address: 'a b:443'}\n", "broker.boxes_address: .*not a host name"),
        ("version: 1\nbroker: {boxes_address: 'fd00::1:443'}\n", r"is not HOST:PORT, or \[HOST\]:PORT"),
        ("", "it is empty: write at least `version: 1`"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "controller.yaml"
    path.write_text(text)
    with pytest.raises(CloudError, match=words):
        load(path)


def test_boxes_are_told_the_brokers_own_address_or_another_one() -> None:
    for text, told in (("", ("mq", 1)), ("m.example:443", ("m.example", 443)), ("[fd00::1]:443", ("fd00::1", 443))):
        assert BrokerConfig(host="mq", port=1, boxes_address=text).for_boxes == told


def test_a_certificate_that_lacks_a_name_is_made_anew_and_others_stay(tmp_path: Path) -> None:
    here = office(tmp_path / "cloud", names=["cloud.example"])
    layout, now_s = here.layout, here.clock()
    assert renew_expiring(layout, here.config, now_s=now_s) == []
    more = here.config.model_copy(update={"broker": BrokerConfig(boxes_address="mqtt.example:443")})
    key = layout.key("broker").read_bytes()
    assert renew_expiring(layout, more, now_s=now_s) == ["broker"]
    assert renew_expiring(layout, more, now_s=now_s) == []
    assert layout.key("broker").read_bytes() == key
    assert renew_expiring(layout, here.config, now_s=now_s) == [], "a name too many is no harm"
    names = more.model_copy(update={"names": ("cloud.example", "boxes.example", "10.0.0.1")})
    assert renew_expiring(layout, names, now_s=now_s) == ["https", "broker"]
    foreign = Authority("people").pair("https", hosts=["elsewhere"])
    layout.cert("https").write_text(foreign.cert)
    assert renew_expiring(layout, names, now_s=now_s) == [], "its owner's to renew"


def test_a_missing_configuration_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(CloudError, match="edgegpu-cloud init"):
        load(tmp_path / "controller.yaml")


def waiting() -> tuple[Task, threading.Event]:
    told = threading.Event()
    return Task("waits", lambda: _wait(told), told.set), told


def _wait(told: threading.Event) -> None:
    assert told.wait(30)


def test_the_first_failure_ends_all_tasks() -> None:
    def fail() -> None:
        raise KeyError("broken")

    task, told = waiting()
    with pytest.raises(KeyError):
        TaskGroup().run([task, Task("fails", fail, lambda: None)])
    assert told.is_set()


def test_a_task_that_ends_by_itself_is_a_failure() -> None:
    task, _ = waiting()
    with pytest.raises(CloudError, match="ends ended by itself"):
        TaskGroup(ended_by_itself=ended_by_itself).run([task, Task("ends", lambda: None, lambda: None)])


def test_told_to_end_before_it_began_and_while_it_runs() -> None:
    group = TaskGroup()
    group.end()
    task, told = waiting()
    group.run([task])
    assert told.is_set()

    other = TaskGroup()
    task, told = waiting()
    other.run([task, Task("ends it", other.end, lambda: None)])
    assert told.is_set()
