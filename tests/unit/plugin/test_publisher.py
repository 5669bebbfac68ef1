"""When the Node's report is written: at a change, once more after a release, and when kubelet offers other amounts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from property.cases import Book, box, pod_of, slots_of, view_of

from edgegpu_base.kube import KubeError
from edgegpu_core.podview import PodView
from edgegpu_plugin.records.node_state import Snapshot
from edgegpu_plugin.records.publisher import CHECK_S, ECHO_S, SETTLE_CHECK_S, SETTLE_S, Publisher, report_of

SLOTS = slots_of(29, 29)


class Desk:
    """A Node object, a clock, and a publisher between them."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.writes = 0
        self.labels: Mapping[str, str] = {}
        self.node: dict[str, Any] = {"metadata": {"annotations": {}}, "status": {"allocatable": {"m": "58"}}}
        self.publisher = Publisher(
            write=self._write, read=self._read, boot="b", clock=lambda: self.now_s, wall=lambda: self.now_s
        )
        self.unread: KubeError | None = None

    def _read(self) -> dict[str, Any]:
        if self.unread is not None:
            raise self.unread
        return self.node

    def _write(self, annotations: Mapping[str, str], labels: Mapping[str, str]) -> None:
        self.writes += 1
        self.labels = labels
        self.node["metadata"]["annotations"] |= annotations

    def publish(self, *holders: str) -> int:
        """Publish a node on which these pods hold something; returns how many writes it made."""
        before = self.writes
        self.publisher.publish(snapshot(*holders))
        return self.writes - before


def snapshot(*holders: str) -> Snapshot:
    book = Book(SLOTS)
    pods: list[PodView] = []
    for uid in holders:
        pods.append(pod_of(uid, box("main", 4, 10)))
        book.share(uid, "GPU-0", 4, 10)
    view = view_of(SLOTS, *pods, ledger=book.ledger)
    return Snapshot(view, dict(view.pods), checkpoint_read=True)


def settled(*holders: str) -> Desk:
    desk = Desk()
    assert desk.publish(*holders) == 1
    desk.now_s += ECHO_S
    assert desk.publish(*holders) == 1
    assert desk.publish(*holders) == 0
    return desk


def test_a_release_is_written_twice() -> None:
    desk = settled("a")
    assert desk.publish() == 1
    desk.now_s += ECHO_S / 2
    assert desk.publish() == 0
    desk.now_s += ECHO_S / 2
    assert desk.publish() == 1
    assert desk.publisher.wait_s is None


def test_another_change_does_not_swallow_the_second_write_of_a_release() -> None:
    desk = settled("a")
    assert desk.publish() == 1
    desk.now_s += 0.05
    assert desk.publish("b") == 1
    assert desk.publisher.wait_s is not None
    desk.now_s += ECHO_S
    assert desk.publish("b") == 1
    assert desk.publisher.wait_s is None


def test_a_lost_report_is_written_anew() -> None:
    desk = settled("a")
    desk.node["metadata"]["annotations"].clear()
    desk.now_s += 60
    assert desk.publish("a") == 1


def test_what_kubelet_offers_after_a_registration_is_followed_by_a_write() -> None:
    desk = settled("a")
    desk.publisher.kubelet_registered()
    desk.node["status"]["allocatable"] = {"m": "0"}
    desk.now_s += SETTLE_CHECK_S
    assert desk.publish("a") == 1
    desk.node["status"]["allocatable"] = {"m": "58"}
    assert desk.publish("a") == 0
    desk.now_s += desk.publisher.wait_s or 0.0
    assert desk.publish("a") == 1
    desk.now_s += SETTLE_S
    assert desk.publisher.wait_s == 0.0
    assert desk.publish("a") == 1
    assert desk.publisher.wait_s is None


def test_a_write_follows_a_registration_though_every_read_finds_the_same_offer() -> None:
    desk = settled("a")
    desk.publisher.kubelet_registered()
    while desk.publisher.wait_s:
        desk.now_s += desk.publisher.wait_s
        due = desk.now_s >= 1000.0 + ECHO_S + SETTLE_S
        assert desk.publish("a") == due
    assert desk.publisher.wait_s is None
    desk.publisher.kubelet_registered()
    desk.now_s += SETTLE_S / 2
    desk.publisher.kubelet_registered()
    desk.now_s += SETTLE_S / 2
    assert desk.publish("a") == 0, "another registration begins the time anew"
    desk.now_s += SETTLE_S / 2
    assert desk.publish("a") == 1


@pytest.mark.parametrize(("kubelet", "bumps"), [("v1.28.15+k3s1", True), ("v1.33.1+k3s1", False), ("odd", False)])
def test_older_schedulers_are_woken_by_a_label(kubelet: str, bumps: bool) -> None:  # noqa: FBT001
    desk = Desk()
    desk.node["status"]["nodeInfo"] = {"kubeletVersion": kubelet}
    assert desk.publish("a") == 1
    assert desk.publish() == 1
    assert desk.labels == ({"edgegpu.io/report": str(desk.publisher.generation)} if bumps else {})


def test_a_pod_waits_until_kubelet_has_written_its_devices_down() -> None:
    written = snapshot("a", "b")
    assert not report_of(written, boot="b").waiting
    assert report_of(replace(written, unwritten=frozenset({"a", "gone"})), boot="b").waiting == {"a"}


def test_a_node_that_could_not_be_read_is_read_at_the_next_look() -> None:
    desk = settled()
    desk.now_s += CHECK_S
    desk.unread = KubeError("the API server restarts")
    with pytest.raises(KubeError):
        desk.publish()
    desk.unread = None
    desk.node["metadata"]["annotations"].clear()
    assert desk.publish() == 1
