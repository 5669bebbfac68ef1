"""A container runtime on a real socket that speaks CRI: its containers answer a program as a test says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import grpc

from edgegpu_plugin.pb.container_runtime import (
    CONTAINER_NAME,
    POD_UID,
    ExecutedProgram,
    RunningContainer,
    container_runtime_handlers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    Behaviour = Callable[[], ExecutedProgram]


def nvidia_smi(*uuids: str, status: int = 0) -> ExecutedProgram:
    """What `nvidia-smi -L` prints where it sees these cards."""
    lines = [f"GPU {number}: NVIDIA Tesla P4 (UUID: {uuid})\n" for number, uuid in enumerate(uuids)]
    return ExecutedProgram("".join(lines).encode() or b"No devices found.\n", status=status or (0 if uuids else 6))


@contextmanager
def container_runtime(
    socket: Path,
    containers: Mapping[tuple[str, str], Behaviour],
    *,
    version: str = "v1",
    information: Mapping[str, str] | None = None,
) -> Iterator[list[Sequence[str]]]:
    """Serve CRI; containers by the UID of their pod and their name. The commands that were run come out."""
    ids = {f"{uid}-{name}": key for key in containers for uid, name in [key]}
    commands: list[Sequence[str]] = []

    def running() -> list[RunningContainer]:
        own = [RunningContainer(id_, {POD_UID: uid, CONTAINER_NAME: name}) for id_, (uid, name) in ids.items()]
        return [*own, RunningContainer("nobody's")]

    def run(container: str, words: Sequence[str], _timeout_s: int) -> ExecutedProgram:
        commands.append(words)
        return containers[ids[container]]()

    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers(
        (container_runtime_handlers(running, run, version=version, information=information),)
    )
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    try:
        yield commands
    finally:
        server.stop(0).wait()
