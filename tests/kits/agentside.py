"""The agent's side of the cloud, its tasks in threads of this process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kits.agent import WAIT_S

from edgegpu_agent.session.session import cloud_tasks
from edgegpu_agent.session.watchdog import LoopHealthTable
from edgegpu_base.process.sdnotify import Notifier
from edgegpu_installer.layout import Layout

if TYPE_CHECKING:
    from pathlib import Path


class Tasks:
    """One agent over a root."""

    def __init__(self, root: Path) -> None:
        self.vitals = LoopHealthTable(Notifier())
        self._tasks = cloud_tasks(root / "etc/edgegpu/agent.yaml", Layout(root), edgegpu="edgegpu", vitals=self.vitals)
        self._threads = [threading.Thread(target=task.run) for task in self._tasks]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        for task in self._tasks:
            task.stop()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), thread.name
