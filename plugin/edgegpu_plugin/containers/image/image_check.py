"""The look at the image of each container that the limiter holds: once after its start, bounded in time."""

import logging
import os
import platform
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgegpu_core.choices.driver_capabilities import CAPABILITIES_VARIABLE
from edgegpu_plugin.containers.cgroups import first_processes
from edgegpu_plugin.containers.image.loaders import FirstProcess, interpreter_of, verdict_of
from edgegpu_plugin.containers.image.own_list import own_list
from edgegpu_plugin.containers.image.root_files import ContainerRoot, read_all

_LOG = logging.getLogger(__name__)

_MOST_ATTEMPTS = 5
"""How often a container's processes are searched for; one without a process uses no card."""

_MOST_STUCK = 4
"""How many looks may hang at a time; each ends with its container at the latest."""

_HEAD_BYTES, _ENVIRON_BYTES, _VALUE_BYTES = 64 << 10, 1 << 20, 16 << 10
_LIBRARY_PATH = "LD_LIBRARY_PATH"

_Key = tuple[str, str]
"""kubelet's UID of the pod, and the container's name."""


@dataclass(frozen=True, slots=True)
class ImageFindings:
    """What a look has found in a container."""

    reason: str = ""
    """Why the limiter does not hold its programs; empty while nothing is known against it."""
    own_driver: str = ""
    """The path of a driver of its image's own that its programs load in the limiter's place."""
    can_preload: bool = False
    """Whether a preload of the limiter ends that."""
    own_list: tuple[str, ...] = ()
    """The libraries in its image's own list of preloaded ones, which the container's list hides."""
    is_hidden: bool = False
    """Whether the container's list lacks some of them."""
    driver_capabilities: str = ""
    """What NVIDIA's variable of that name is there, by its pod or by its image."""


_NOTHING = ImageFindings()


@dataclass(eq=False, slots=True, kw_only=True)
class ImageCheck:
    """What the images of running containers mean for the limiter; `check` is called on one thread, `reason` on any."""

    proc: Path
    machine: str = platform.machine()
    limit_s: float = 2.0
    """How long one look may take: a container's author can have a file system there that never answers."""
    _attempts: dict[str, int] = field(default_factory=dict, init=False)
    _found: Mapping[str, ImageFindings] = field(default_factory=dict, init=False)
    _told: Mapping[_Key, ImageFindings] = field(default_factory=dict, init=False)
    _stuck: list[threading.Thread] = field(default_factory=list, init=False)

    def findings(self, key: _Key) -> ImageFindings:
        """Return what was found in a container."""
        return self._told.get(key, _NOTHING)

    def check(self, running: Mapping[str, _Key]) -> bool:
        """Look at the containers that have started since the last call; return whether the findings changed.

        Args:
            running: the containers that run with the limiter mounted, by the runtime's id.
        """
        self._attempts = {id_: count for id_, count in self._attempts.items() if id_ in running}
        found = {id_: findings for id_, findings in self._found.items() if id_ in running}
        wanted = {id_ for id_ in running if id_ not in found and self._attempts.get(id_, 0) < _MOST_ATTEMPTS}
        for id_ in wanted:
            self._attempts[id_] = self._attempts.get(id_, 0) + 1
        for id_, pid in first_processes(self.proc, wanted).items():
            found[id_] = self._look(pid)
            if found[id_].reason:
                key = running[id_]
                _LOG.warning("container %s of pod %s may not be held: %s", key[1], key[0], found[id_].reason)
        self._found = found
        told = {running[id_]: findings for id_, findings in found.items() if findings != _NOTHING}
        changed = told != self._told
        self._told = told
        return changed

    def _look(self, pid: int) -> ImageFindings:
        """Return what is found in a container, or that there was no answer in time."""
        self._stuck = [thread for thread in self._stuck if thread.is_alive()]
        if len(self._stuck) >= _MOST_STUCK:
            return _unseen("others do not answer")
        answers: list[ImageFindings] = []
        thread = threading.Thread(target=lambda: answers.append(self._answer(pid)), name="image", daemon=True)
        thread.start()
        thread.join(self.limit_s)
        if answers:
            return answers[0]
        self._stuck.append(thread)
        return _unseen(f"its files do not answer within {self.limit_s:g} s")

    def _answer(self, pid: int) -> ImageFindings:
        folder = self.proc / str(pid)
        try:
            root = ContainerRoot(folder / "root")
        except OSError as error:
            return _NOTHING if not folder.exists() else _unseen(error.strerror or str(error))
        try:
            first = first_process(folder)
            verdict = verdict_of(root, first, machine=self.machine)
            listed, is_hidden = own_list(root, folder)
            return ImageFindings(
                verdict.reason,
                own_driver=verdict.own_driver,
                can_preload=verdict.can_preload,
                own_list=listed,
                is_hidden=is_hidden,
                driver_capabilities=first.driver_capabilities,
            )
        except OSError as error:  # what has ended meanwhile uses no card
            return _NOTHING if not folder.exists() else _unseen(error.strerror or str(error))
        finally:
            root.close()


def _unseen(why: str) -> ImageFindings:
    return ImageFindings(f"whether its image loads the limiter is not known, {why}: start the container again")


def _value(environ: bytes, name: str) -> str:
    """Return a variable of an environment; of equal names the first counts, as in libc."""
    head = name.encode() + b"="
    entry = next((one for one in environ.split(b"\0") if one.startswith(head)), b"")
    return entry.removeprefix(head)[:_VALUE_BYTES].decode("utf-8", "surrogateescape")


def first_process(folder: Path) -> FirstProcess:
    """Return what a process says of its loader, and asks of the driver. Raises OSError."""
    program = read_all(os.open(folder / "exe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), most=_HEAD_BYTES)
    environ = read_all(os.open(folder / "environ", os.O_RDONLY | os.O_CLOEXEC), most=_ENVIRON_BYTES)
    return FirstProcess(
        interpreter=interpreter_of(program),
        library_path=_value(environ, _LIBRARY_PATH),
        driver_capabilities=_value(environ, CAPABILITIES_VARIABLE),
    )
