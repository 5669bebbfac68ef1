"""The checker of the end-to-end tests: a plugin that does not run agrees with nothing."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from e2e.consistency import compare
from e2e.k3s import K3s
from lab.labkit import LabError


def cluster(**node: Any) -> K3s:  # noqa: ANN401  (fields of a node)
    return cast("K3s", SimpleNamespace(nodes={"box-1": SimpleNamespace(name="box-1", **node)}))


def test_a_plugin_that_was_started_and_does_not_run_agrees_with_nothing() -> None:
    k3s = cluster(has_plugin=True, running=False)
    with pytest.raises(LabError, match="box-1: its plugin does not run"):
        compare(k3s, k3s.nodes["box-1"])


def test_a_node_that_is_to_have_no_plugin_is_passed_over() -> None:
    k3s = cluster(has_plugin=False, running=False)
    assert compare(k3s, k3s.nodes["box-1"]) == {}
