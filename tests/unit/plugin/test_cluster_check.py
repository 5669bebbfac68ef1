"""A kubelet without its checkpoint on a node that has run before: the cluster is unknown until it takes the account."""

from pathlib import Path

import pytest

from edgegpu_plugin.records.cluster_check import MARK, UNKNOWN, ClusterCheck


class Node:
    """A node's state folder, kubelet's checkpoint, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.state, self.checkpoint, self.now_s = folder / "state", folder / "kubelet_internal_checkpoint", 100.0
        self.state.mkdir()

    def check(self) -> ClusterCheck:
        return ClusterCheck(self.state, self.checkpoint, clock=lambda: self.now_s)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_kubelet_with_its_checkpoint_is_known(node: Node) -> None:
    node.checkpoint.write_text("{}")
    check = node.check()
    check.kubelet_started()
    assert (check.is_unknown, check.problem) == (False, "")


def test_a_kubelet_without_one_is_unknown_until_the_api_server_answers_after_that(node: Node) -> None:
    check = node.check()
    check.kubelet_started()
    assert check.problem == UNKNOWN
    for heard in (None, 99.0, 100.0):
        check.heard(heard)
        assert check.is_unknown
    check.heard(100.5)
    assert not check.is_unknown
    assert not (node.state / MARK).exists()


def test_the_next_process_knows_no_more_though_kubelet_has_a_checkpoint_by_then(node: Node) -> None:
    node.check().kubelet_started()
    node.checkpoint.write_text("{}")
    check = node.check()
    assert check.is_unknown
    check.kubelet_started()
    assert check.problem == UNKNOWN
    check.heard(101.0)
    assert check.problem == ""
    assert not node.check().is_unknown


def test_what_was_heard_before_the_last_start_of_kubelet_does_not_count(node: Node) -> None:
    check = node.check()
    check.kubelet_started()
    node.now_s = 200.0
    check.kubelet_started()
    check.heard(150.0)
    assert check.is_unknown


def test_a_folder_that_cannot_be_written_does_not_end_the_plugin(node: Node) -> None:
    node.state.rmdir()
    check = node.check()
    check.kubelet_started()
    assert check.problem == UNKNOWN
    check.heard(101.0)
    assert check.problem == ""


def test_a_kubelet_that_has_lost_its_checkpoint_under_running_containers_is_known(node: Node) -> None:
    """Were it offered nothing, it would end their pods: these would not fit on the node any more."""
    runs = True
    check = ClusterCheck(node.state, node.checkpoint, holders_run=lambda: runs)
    check.kubelet_started()
    assert check.problem == ""
    assert not (node.state / MARK).exists()
    runs = False
    check.kubelet_started()
    assert check.problem == UNKNOWN
    runs = True  # what runs from now on is of the new k3s
    check.kubelet_started()
    assert check.problem == UNKNOWN
