"""The controller's folder and the tasks of its process."""

import threading
from pathlib import Path

import pytest

from edgegpu_base.process.tasks import Task, TaskGroup
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
        ("version: 2\n", "version: Input should be 1"),
        ("version: 1\nbroker: {port: 70000}\n", "broker.port"),
        ("version: 1\ncolour: blue\n", "colour: Extra"),
        ("version: [\n", "put it right"),
        ("version: 1\nnames: [a]\nnames: [b]\n", "names is given twice"),
        ("version: 1\nbroker: {port: 1, host: h, port: 2}\n", "port is given twice"),
        ("version: 1\nnames: [999.1.1.1]\n", "names.0: .* not a host name"),
        ("version: 1\nbroker: {port: 8884}\n", "both 8884"),
        ("", "cannot use"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "controller.yaml"
    path.write_text(text)
    with pytest.raises(CloudError, match=words):
        load(path)


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
