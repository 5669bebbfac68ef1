"""Floods and guided runs take about a minute each: they are left out unless `-m` names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fuzz: starts broker, controller and agents, or atheris; takes about a minute")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "fuzz" in str(config.getoption("-m")):
        return
    left = [one for one in items if one.get_closest_marker("fuzz") is not None]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [one for one in items if one not in left]
