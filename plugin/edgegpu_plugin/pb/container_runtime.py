"""The container runtime's interface (CRI): its configuration, which containers run, and a program in one.

The package's `__init__` leaves this module out: the plugin loads it to ask for the configuration alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from edgegpu_plugin.pb.gen import containerruntime_pb2 as cri
from edgegpu_plugin.pb.types import CallRefusedError

POD_UID, CONTAINER_NAME = "io.kubernetes.pod.uid", "io.kubernetes.container.name"
"""The labels by which kubelet names a container to the runtime (pkg/kubelet/kuberuntime/labels.go, all versions)."""

_VERSIONS = ("v1", "v1alpha2")
"""containerd has v1 since 1.6 (k3s 1.23); before that v1alpha2 alone, with the same messages."""
_LIST_MOST_BYTES = 16 * 1024 * 1024
_GRACE_S = 2.0
"""The runtime ends a program at its timeout and answers; the call waits this much longer for the answer."""
_EXECUTABLE_MISSING = "executable file not found"


class RuntimeCallError(Exception):
    """A call of the runtime that gave no answer; the text says why, in a line."""


class ProgramMissingError(RuntimeCallError):
    """The container has no such program."""


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A container that runs: its id and its labels, which kubelet sets."""

    id: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """The UID of its pod and its name there; empty where kubelet has not made it."""
        return self.labels.get(POD_UID, ""), self.labels.get(CONTAINER_NAME, "")


@dataclass(frozen=True, slots=True)
class ExecutedProgram:
    """A program that was run in a container: its outputs and its exit status."""

    out: bytes
    errors: bytes = b""
    status: int = 0


class ContainerRuntimeCaller:
    """A client of the runtime on a Unix socket; any thread may call it. An answer has at most `most_bytes`."""

    def __init__(self, socket: str, *, most_bytes: int) -> None:
        """Open a channel; nothing is sent before the first call."""
        self._links = [_channel(socket, most_bytes=size) for size in (_LIST_MOST_BYTES, most_bytes)]
        self._version = _VERSIONS[0]

    def close(self) -> None:
        """Close the channel; calls under way end."""
        for link in self._links:
            link.close()

    def running(self, *, timeout_s: float) -> list[RunningContainer]:
        """Return the containers that run.

        Raises:
            RuntimeCallError: no runtime answers there, or not in time.
        """
        state = cri.ContainerStateValue(state=cri.CONTAINER_RUNNING)
        asked = cri.ListContainersRequest(filter=cri.ContainerFilter(state=state))
        answer = self._call_any("ListContainers", asked, cri.ListContainersResponse, timeout_s)
        return [RunningContainer(one.id, dict(one.labels)) for one in answer.containers]

    def information(self, *, timeout_s: float) -> Mapping[str, str]:
        """Return what the runtime says of itself: texts by name, containerd's configuration as JSON by `config`.

        Raises:
            RuntimeCallError: no runtime answers there, or not in time.
        """
        answer = self._call_any("Status", cri.StatusRequest(verbose=True), cri.StatusResponse, timeout_s)
        return dict(answer.info)

    def run(self, container: str, command: Sequence[str], *, timeout_s: int) -> ExecutedProgram:
        """Run a program in a container, without a shell; the runtime kills it after `timeout_s`.

        Raises:
            ProgramMissingError: the container has no such program.
            RuntimeCallError: the container is gone, the program did not end in time or printed more than `most_bytes`.
        """
        asked = cri.ExecSyncRequest(container_id=container, cmd=command, timeout=timeout_s)
        try:
            answer = self._call(1, "ExecSync", asked, cri.ExecSyncResponse, timeout_s + _GRACE_S)
        except grpc.RpcError as error:
            if _EXECUTABLE_MISSING in _details(error):
                raise ProgramMissingError(f"there is no {command[0]} in the container") from error
            raise RuntimeCallError(_why_not_run(error, timeout_s)) from error
        return ExecutedProgram(answer.stdout, answer.stderr, answer.exit_code)

    def _call_any(self, name: str, request: Any, response: Any, timeout_s: float) -> Any:  # noqa: ANN401
        """Make a call by the newest version of the interface that the runtime has.

        Raises:
            RuntimeCallError: no runtime answers there, or not in time.
        """
        for version in _VERSIONS:
            self._version = version
            try:
                return self._call(0, name, request, response, timeout_s)
            except grpc.RpcError as error:
                if version == _VERSIONS[-1] or _code(error) is not grpc.StatusCode.UNIMPLEMENTED:
                    raise RuntimeCallError(_words(error)) from error
        raise AssertionError(_VERSIONS)

    def _call(self, link: int, name: str, request: Any, response: Any, timeout_s: float) -> Any:  # noqa: ANN401
        call = self._links[link].unary_unary(
            f"/runtime.{self._version}.RuntimeService/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        return call(request, timeout=timeout_s)


def _channel(socket: str, *, most_bytes: int) -> grpc.Channel:
    return grpc.insecure_channel(
        f"unix://{socket}",
        options=[
            ("grpc.max_receive_message_length", most_bytes),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.default_authority", "localhost"),
            ("grpc.enable_http_proxy", 0),
        ],
    )


def _code(error: grpc.RpcError) -> grpc.StatusCode | None:
    return getattr(error, "code", lambda: None)()  # every error of a call has it; grpc's base class does not say so


def _details(error: grpc.RpcError) -> str:
    return getattr(error, "details", lambda: "")() or ""


def _words(error: grpc.RpcError) -> str:
    code = _code(error)
    return f"{_details(error) or 'no answer'} ({code.name if code else 'no status'})"


def _why_not_run(error: grpc.RpcError, timeout_s: float) -> str:
    match _code(error):
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"it did not end within {timeout_s:g} s"
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return "it printed too much"
        case grpc.StatusCode.NOT_FOUND:
            return "the container has ended"
        case _:
            return _words(error)


def container_runtime_handlers(
    running: Callable[[], Sequence[RunningContainer]],
    run: Callable[[str, Sequence[str], int], ExecutedProgram],
    *,
    version: str = _VERSIONS[0],
    information: Mapping[str, str] | None = None,
) -> "grpc.GenericRpcHandler[Any, Any]":
    """Return the gRPC handler of a simulated runtime.

    Args:
        running: returns the running containers.
        run: runs a command (container, words, timeout in seconds); CallRefusedError becomes the call's error.
        version: of the interface.
        information: what it says of itself; None for one that does not.
    """

    def listed(_: cri.ListContainersRequest, __: grpc.ServicerContext) -> cri.ListContainersResponse:
        found = [cri.Container(id=one.id, state=cri.CONTAINER_RUNNING, labels=one.labels) for one in running()]
        return cri.ListContainersResponse(containers=found)

    def executed(asked: cri.ExecSyncRequest, context: grpc.ServicerContext) -> cri.ExecSyncResponse:
        try:
            done = run(asked.container_id, list(asked.cmd), asked.timeout)
        except CallRefusedError as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))  # raises
            raise
        return cri.ExecSyncResponse(stdout=done.out, stderr=done.errors, exit_code=done.status)

    def unary(call: Any, request: Any) -> "grpc.RpcMethodHandler[Any, Any]":  # noqa: ANN401
        return grpc.unary_unary_rpc_method_handler(
            call,
            request_deserializer=request.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    methods = {
        "ListContainers": unary(listed, cri.ListContainersRequest),
        "ExecSync": unary(executed, cri.ExecSyncRequest),
    }
    if information is not None:
        status = cri.StatusResponse(info=information)
        methods["Status"] = unary(lambda _asked, _context: status, cri.StatusRequest)
    return grpc.method_handlers_generic_handler(f"runtime.{version}.RuntimeService", methods)
