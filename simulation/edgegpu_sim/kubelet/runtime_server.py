"""The interface of the node's container runtime (CRI) on a Unix socket: its containers, and a program run in one."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

from edgegpu_plugin.pb.container_runtime import (
    CONTAINER_NAME,
    POD_UID,
    ExecutedProgram,
    RunningContainer,
    container_runtime_handlers,
)
from edgegpu_plugin.pb.types import CallRefusedError
from edgegpu_sim.errors import SimError
from edgegpu_sim.kubelet.runtime import Runtime

_SEPARATOR = "/"


@contextmanager
def runtime_socket(runtime: Runtime, socket: Path) -> Iterator[None]:
    """Serve a runtime meanwhile: programs run in the view of the container, and print what they find there.

    Raises:
        SimError: the socket cannot be bound.
    """

    def running() -> list[RunningContainer]:
        return [
            RunningContainer(f"{uid}{_SEPARATOR}{name}", {POD_UID: uid, CONTAINER_NAME: name})
            for pod in runtime.running()
            for uid in [pod["metadata"]["uid"]]
            for name in [one["name"] for one in pod["spec"]["containers"]]
        ]

    def run(container: str, words: Sequence[str], _timeout_s: int) -> ExecutedProgram:
        uid, _, name = container.partition(_SEPARATOR)
        try:
            done = runtime.view(uid, name).run(words)
        except SimError as error:
            raise CallRefusedError(str(error)) from error
        return ExecutedProgram(done.stdout.encode(), done.stderr.encode(), done.returncode)

    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((container_runtime_handlers(running, run),))
    try:
        server.add_insecure_port(f"unix://{socket}")
    except RuntimeError as error:
        raise SimError(f"cannot serve the container runtime at {socket}: {error}") from error
    server.start()
    try:
        yield
    finally:
        server.stop(0).wait()
