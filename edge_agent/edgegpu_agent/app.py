"""The composition root of edgegpu-agent: builds its parts, lists the tasks, runs them."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgegpu_agent.session.settings_watch import SettingsWatch
from edgegpu_agent.session.transaction_keeper import TransactionKeeper
from edgegpu_agent.session.watchdog import LoopHealthTable
from edgegpu_base.process import memory
from edgegpu_base.process.inotify import folder_watch
from edgegpu_base.process.sdnotify import notifier
from edgegpu_base.process.tasks import Task, TaskGroup
from edgegpu_installer.layout import Layout
from edgegpu_installer.transaction.journal import TransactionJournal

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """The options of the command line; `command` finishes a transaction, within `deadline_s`."""

    root: Path
    command: Sequence[str]
    deadline_s: float
    edgegpu: str = "edgegpu"
    """The program `edgegpu`, for everything else that the agent runs it for."""


class AgentApp:
    """The process edgegpu-agent; `run` returns when its task group was asked to end, or raises what ended it."""

    def __init__(self, options: AgentOptions, group: TaskGroup) -> None:
        """Build all parts; nothing runs yet."""
        self._group = group
        self._layout = Layout(options.root)
        self._notifier = notifier(os.environ)
        self._vitals = LoopHealthTable(self._notifier)
        self._keeper = TransactionKeeper(
            journal=TransactionJournal(self._layout.tx),
            root=options.root,
            command=options.command,
            deadline_s=options.deadline_s,
            watch=folder_watch(),
            notifier=self._notifier,
            feed_watchdog=self._vitals.feed_watchdog,
        )
        self._settings = SettingsWatch(self._layout.agent_yaml, group.end)
        self._cloud = self._cloud_tasks(options)

    def _cloud_tasks(self, options: AgentOptions) -> list[Task]:
        """Return the tasks of a box that belongs to a cloud; their modules are loaded on such a box only."""
        path = self._layout.agent_yaml
        if not path.exists():
            _LOG.info("there is no %s: this box belongs to no cloud", path)
            return []
        from edgegpu_agent.session.session import cloud_tasks  # noqa: PLC0415  (some 35 MiB)
        from edgegpu_agent.worker.steps import from_environment  # noqa: PLC0415

        at_step = from_environment(os.environ)
        return cloud_tasks(path, self._layout, edgegpu=options.edgegpu, vitals=self._vitals, at_step=at_step)

    def run(self) -> None:
        """Run until the group is asked to end.

        Raises:
            Exception: the error that a task failed with.
        """
        group = self._group
        if group.ended:
            return
        _LOG.info("edgegpu-agent starts")
        group.start(self.tasks())
        if not self._cloud:
            self._vitals.report_ready()
        memory.settle()
        group.wait()
        self._notifier.stopping()
        _LOG.info("stopped")

    def tasks(self) -> list[Task]:
        """Return all tasks by name."""
        return [
            Task("keeper", self._keeper.run, self._keeper.stop),
            Task("settings", self._settings.run, self._settings.stop),
            *self._cloud,
        ]
