"""What `nvidia-smi -L` prints in this node's containers, asked of the container runtime on its socket."""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgegpu_agent.cli.clients.document import PodRow
from edgegpu_agent.cli.common import CliError, with_sudo
from edgegpu_sync.messages.evidence import MOST_CARDS, ContainerEvidence, SeenCards
from edgegpu_sync.rules.evidence import cards_listed, one_line, printable, verdict_on
from edgegpu_sync.wire import clipped

if TYPE_CHECKING:
    from edgegpu_plugin.pb.container_runtime import ContainerRuntimeCaller, ExecutedProgram

COMMAND = ("nvidia-smi", "-L")
ENDPOINT = "CONTAINER_RUNTIME_ENDPOINT"
"""The variable by which crictl is told the runtime's socket too."""
PROGRAM_S = 10
"""The time that the program has in one container."""
KEPT_CHARACTERS = 4_096
"""The part of the program's output that is kept; its cards are counted in all that is read."""

_MOST_BYTES = 65_536
_LIST_S = 10.0
_ALL_S = 90.0
_SIDE_BY_SIDE = 4
_LINE = 250
_SETTINGS = ("/var/lib/rancher/k3s/agent/etc/crictl.yaml", "/etc/crictl.yaml")
"""k3s writes the first of these at its start, with the endpoint that it uses."""
_SOCKETS = ("/run/k3s/containerd/containerd.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock")
_ENDPOINT_LINE = re.compile(r"^runtime-endpoint:\s*[\"']?(?:unix://)?(/[^\s\"']+)", re.MULTILINE)
_NO_CARDS = "no devices"


@dataclass(frozen=True, slots=True)
class GpuContainer:
    """A container that holds cards, by kubelet's record."""

    row: PodRow

    @property
    def key(self) -> tuple[str, str]:
        """The UID of its pod and its name there."""
        return self.row.uid, self.row.container

    def evidence(
        self, verdict: SeenCards, *, seen: Sequence[str] = (), lines: str = "", text: str = ""
    ) -> ContainerEvidence:
        """Return the evidence of this container; what cannot be printed is replaced in its words."""
        return ContainerEvidence.model_construct(
            uid=self.row.uid,
            namespace=self.row.namespace,
            pod=self.row.pod,
            container=self.row.container,
            verdict=verdict,
            held=tuple(card.uuid for card in self.row.cards)[:MOST_CARDS],
            seen=tuple(seen),
            lines=clipped(printable(lines), KEPT_CHARACTERS).strip("\n"),
            text=one_line(text, _LINE),
        )


def find_runtime(env: Mapping[str, str] = os.environ, *, root: Path = Path("/")) -> Path:
    """Return the socket of this node's container runtime: as crictl finds it, or where k3s and containerd have it.

    Raises:
        CliError: there is none.
    """
    if named := env.get(ENDPOINT, ""):
        return Path(named.removeprefix("unix://"))
    for name in _SETTINGS:
        try:
            found = _ENDPOINT_LINE.search((root / name.lstrip("/")).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        if found and (path := root / found[1].lstrip("/")).exists():
            return path
    for name in _SOCKETS:
        if (path := root / name.lstrip("/")).exists():
            return path
    raise CliError(
        f"cannot ask the containers: no container runtime has a socket here ({', '.join(_SOCKETS)})",
        remedy=f"start k3s; where its socket lies elsewhere, set {ENDPOINT}=unix:///path",
    )


def check_evidence(
    rows: Sequence[PodRow], runtime: Path, *, program_s: int = PROGRAM_S, clock: Callable[[], float] = time.monotonic
) -> list[ContainerEvidence]:
    """Ask each container that holds cards what it sees; those that cannot be asked say why.

    Args:
        rows: the containers.
        runtime: the container runtime's socket.
        program_s: the time that the program has in one container.
        clock: monotonic seconds.

    Raises:
        CliError: the runtime does not answer.
    """
    from edgegpu_plugin.pb.container_runtime import (  # noqa: PLC0415  (loads grpc: only for this)
        ContainerRuntimeCaller,
        RuntimeCallError,
    )

    caller = ContainerRuntimeCaller(str(runtime), most_bytes=_MOST_BYTES)
    try:
        ids = {one.key: one.id for one in caller.running(timeout_s=_LIST_S)}
        until = clock() + _ALL_S
        with ThreadPoolExecutor(_SIDE_BY_SIDE) as threads:
            asker = _Asker(caller, ids, lambda: until - clock(), program_s)
            return list(threads.map(asker.check, map(GpuContainer, rows)))
    except RuntimeCallError as error:
        remedy = with_sudo() if os.geteuid() else "is k3s running? journalctl -u k3s -n 50"
        raise CliError(f"cannot ask the container runtime at {runtime}: {error}", remedy=remedy) from error
    finally:
        caller.close()


@dataclass(frozen=True, slots=True)
class _Asker:
    """Asks one container after the other; `ids` are those that run, by the UID of the pod and the name there."""

    caller: "ContainerRuntimeCaller"
    ids: Mapping[tuple[str, str], str]
    left_s: Callable[[], float]
    program_s: int

    def check(self, container: GpuContainer) -> ContainerEvidence:
        from edgegpu_plugin.pb.container_runtime import RuntimeCallError  # noqa: PLC0415  (loads grpc)

        id_ = self.ids.get(container.key)
        if id_ is None:
            return container.evidence(SeenCards.UNKNOWN, text="its container does not run")
        if self.left_s() <= 0:
            text = f"the containers before it took {_ALL_S:g} s: ask it alone"
            return container.evidence(SeenCards.UNKNOWN, text=text)
        try:
            done = self.caller.run(id_, COMMAND, timeout_s=self.program_s)
        except RuntimeCallError as error:
            return container.evidence(SeenCards.UNKNOWN, text=str(error))
        return _judged(container, done)


def _judged(container: GpuContainer, done: "ExecutedProgram") -> ContainerEvidence:
    lines = done.out.decode(errors="replace")
    seen = cards_listed(lines)
    words = f"{lines}{done.errors.decode(errors='replace')}"
    if not seen and done.status and _NO_CARDS not in words.lower():
        text = f"{COMMAND[0]} ended with {done.status}: {words.strip() or 'it said nothing'}"
        return container.evidence(SeenCards.UNKNOWN, lines=lines, text=text)
    held = tuple(card.uuid for card in container.row.cards)
    return container.evidence(verdict_on(seen, held), seen=seen, lines=lines)
