"""The composition root of edgegpu-plugin: builds the parts for the role, lists the tasks and runs them."""

import importlib.metadata
import logging
import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

from edgegpu_base import kube
from edgegpu_base.kube import KubeClient, KubeconfigError, KubeError
from edgegpu_base.process import memory
from edgegpu_base.process.memory import Footprint
from edgegpu_base.process.sdnotify import Notifier, notifier
from edgegpu_base.process.tasks import Task, TaskGroup
from edgegpu_plugin.config.schema import PluginConfig
from edgegpu_plugin.extender.extender import Extender
from edgegpu_plugin.node import READY_WAIT_S, NodePart
from edgegpu_plugin.status import STATUS_VERSION, StatusServer

_LOG = logging.getLogger(__name__)

_BEAT_S = 5.0


class PluginApp:
    """The plugin's process: `run` returns when its task group is asked to end, or raises what ended it."""

    def __init__(self, config: PluginConfig, group: TaskGroup, *, proc: Path) -> None:
        """Build the parts of the process without starting anything.

        Args:
            config: the configuration.
            group: the process's tasks.
            proc: where the processes of containers are looked up.

        Raises:
            PluginError: a file that the configuration names cannot be used.
        """
        self._config = config
        self._group = group
        self._notifier: Notifier = notifier(os.environ)
        client = _client(config.kubernetes.kubeconfig)
        self._node = (
            NodePart(config, client, beat=self._notifier.watchdog, proc=proc) if config.role.has_plugin else None
        )
        self._extender = Extender(config, client) if config.role.has_extender else None
        change = self._node.change_requests() if self._node is not None else None
        self._status = StatusServer(config.paths.run, self.document, change=change)
        self._stopping = threading.Event()

    def run(self) -> None:
        """Run until the task group is asked to end.

        Raises:
            Exception: the error of a failed task; PluginError and ModelError have texts for people.
        """
        config = self._config
        _LOG.info("edgegpu-plugin %s on %s as %s", version(), config.node_name, config.role.value)
        self._status.open()
        try:
            self._run()
        finally:
            self._status.close()
        _LOG.info("stopped")

    def _run(self) -> None:
        group = self._group
        if self._node is not None:
            self._node.load_saved()
        if group.ended:
            return
        if self._extender is not None:
            self._extender.start()  # if its port is taken, the process ends before it registers with kubelet
        group.start(self.tasks())
        if self._node is not None:
            group.wait_until(self._node.is_ready, timeout_s=READY_WAIT_S)
        if not group.ended:
            self._notifier.ready()
            memory.settle()
        group.wait()
        self._notifier.stopping()

    def tasks(self) -> list[Task]:
        """Return all tasks by name."""
        footprint = Footprint()
        tasks = [
            Task("status", self._status.run, self._status.stop),
            Task("footprint", footprint.run, footprint.stop),
        ]
        if self._extender is not None:
            tasks.append(Task("extender", self._extender.run, partial(self._extender.stop, watches_s=0)))
        if self._node is not None:
            return tasks + self._node.tasks()
        return [*tasks, Task("beat", self._beat, self._stopping.set)]

    def document(self) -> dict[str, Any]:
        """Return the status document."""
        config, extender = self._config, self._extender
        head: dict[str, Any] = {
            "v": STATUS_VERSION,
            "version": version(),
            "node": config.node_name,
            "role": config.role.value,
            "policy": config.policy.value,
            "unit_mib": config.resources.unit_mib,
            "resources": {"memory": config.resources.memory, "core": config.resources.core},
            "extender": None,
        }
        if extender is not None:
            head["extender"] = {
                "listen": config.extender.listen,
                "healthy": extender.healthy(),
                "insecure": config.extender.insecure,
                "problem": "; ".join(extender.problems()),
            }
            head["api"] = {"synced": extender.synced(), "problem": extender.api_problem}
            head |= extender.document()
        return head | (self._node.document() if self._node is not None else {"cards": [], "pods": []})

    def _beat(self) -> None:
        while not self._stopping.wait(_BEAT_S):
            if self._extender is None or self._extender.healthy():
                self._notifier.watchdog()


def version() -> str:
    """Return the version of the installed package."""
    return importlib.metadata.version("edgegpu")


def _client(path: Path) -> KubeClient:
    access = kube.load_kubeconfig(path)
    try:
        return KubeClient(access)
    except KubeError as error:
        raise KubeconfigError(f"cannot use kubeconfig {path}: {error}") from error
