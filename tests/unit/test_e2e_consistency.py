"""The checker of the end-to-end tests: a plugin that does not run agrees with nothing."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from e2e.consistency import compare
from lab.labkit import LabError


def test_a_plugin_that_does_not_run_agrees_with_nothing() -> None:
    node: Any = SimpleNamespace(name="box-1", running=False)
    with pytest.raises(LabError, match="box-1: its plugin does not run"):
        compare(cast("Any", None), node)
