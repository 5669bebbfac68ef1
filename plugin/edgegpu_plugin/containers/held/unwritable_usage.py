"""Containers whose programs may not write their usage file: the limiter gives them no memory, and leaves a mark.

Nothing else tells them from programs that have not used a card yet: a label of SELinux or a profile of AppArmor shows
in no mode and no mount, and the driver lists no process that gets no context.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgegpu_plugin.containers.cgroups import CgroupOwner, PodProcesses, owner_of_process
from edgegpu_plugin.containers.held.bypass import ContainerKey, CountedContainer
from edgegpu_plugin.containers.held.reasons import UNWRITABLE
from edgegpu_plugin.containers.usage_file import is_unused, process_maps

_LOG = logging.getLogger(__name__)

_MARK = b" /memfd:edgegpu-usage-unwritable (deleted)\n"
"""What the limiter maps in a program that is refused (`plugin/limiter/common/unwritable.c`), as the kernel lists it.

A pod's author can forge it, and says with it that his own programs get nothing.
"""


@dataclass(eq=False, slots=True, kw_only=True)
class UnwritableUsage:
    """What was found in containers; `look` is called on one thread, `reason` on any."""

    proc: Path
    _processes: PodProcesses = field(init=False)
    _found: frozenset[ContainerKey] = field(default=frozenset(), init=False)

    def __post_init__(self) -> None:
        """Remember the processes of the machine from look to look."""
        self._processes = PodProcesses(proc=self.proc)

    def reason(self, key: ContainerKey) -> str:
        """Return that a container's programs get no memory, and why; empty while nothing is known of it."""
        return UNWRITABLE if key in self._found else ""

    def look(
        self, held: Mapping[ContainerKey, CountedContainer], key_of: Callable[[CgroupOwner], ContainerKey]
    ) -> bool:
        """Search the processes of containers whose usage file nobody has written; return whether a `reason` changed.

        A program that has ended, or that seccomp forbids the mark, leaves none: that says nothing, also not that it is
        well again. What was found holds until a program has written the file, also over starts of the container.

        Args:
            held: the containers that the limiter holds.
            key_of: returns the container of a process.
        """
        unused = {key for key, container in held.items() if container.usage and all(map(is_unused, container.usage))}
        before, known = self._found, self._found & unused
        new = set(self._marked(unused - known, key_of))
        for uid, name in new:
            _LOG.warning("container %s of pod %s: %s", name, uid, UNWRITABLE)
        self._found = known | new
        return self._found != before

    def _marked(
        self, wanted: Collection[ContainerKey], key_of: Callable[[CgroupOwner], ContainerKey]
    ) -> Iterator[ContainerKey]:
        """Yield those of these containers of which a process has the mark; /proc is not read without need."""
        for pid in self._processes.of({uid for uid, _ in wanted}):
            owner = owner_of_process(pid, self.proc)
            if owner is not None and key_of(owner) in wanted and _MARK in process_maps(self.proc / str(pid)):
                yield key_of(owner)
