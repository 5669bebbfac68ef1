"""gRPC servers of device plugins: one event loop for all sockets, which sleeps while kubelet asks for nothing.

gRPC's threaded servers wake up five times a second each to check for signals. Two of them cost more than everything
else in an idle plugin (grpcio 1.85: 0.11 % of a core for two idle servers, 0.04 % with the event loop).
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, TypeVar

import grpc
from grpc import aio

from edgegpu_plugin.pb.device_messages import allocation_message, encode_devices, options_message
from edgegpu_plugin.pb.gen import deviceplugin_pb2 as dp
from edgegpu_plugin.pb.types import (
    CallRefusedError,
    DevicePlugin,
    OfferedDevice,
    PreferredRequest,
    WouldWaitError,
)

_T = TypeVar("_T")

_ENDED = object()


class ServingLoop:
    """The event loop and its thread; calls of a plugin that may block run on the executor.

    A call through the executor took 0.15 ms longer, since two threads have to wake up.
    """

    def __init__(self, executor: Executor) -> None:
        """Make the loop; its thread starts with the first server.

        Args:
            executor: its threads: an open stream to kubelet holds one, and so does a call while it blocks.
        """
        self.executor = executor
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the loop and return its answer, or raise what it raises."""
        return self.begin(work).result()

    def begin(self, work: Coroutine[Any, Any, _T]) -> "Future[_T]":
        """Start a coroutine on the loop and return its future."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._serve, args=(self._loop,), name="kubelet-loop", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End the thread and abandon what still runs on the loop."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        loop.close()


class DevicePluginServer:
    """One socket of a device plugin (`v1beta1.DevicePlugin`)."""

    def __init__(
        self, plugin: DevicePlugin, *, address: str, loop: ServingLoop, options: Sequence[tuple[str, Any]] = ()
    ) -> None:
        """Listen at an address.

        Args:
            plugin: the plugin that answers kubelet.
            address: a gRPC address, e.g. `unix:///PATH`.
            loop: the loop and the threads to serve on.
            options: gRPC's arguments of the server.

        Raises:
            RuntimeError: nothing can listen at this address.
        """
        self._loop = loop
        self._server = loop.run(self._start(plugin, address, options))

    def stop(self) -> "Future[None]":
        """End all streams at once, and the socket; the future is done when they have ended."""
        return self._loop.begin(self._server.stop(None))

    async def _start(self, plugin: DevicePlugin, address: str, options: Sequence[tuple[str, Any]]) -> aio.Server:
        server = aio.server(options=options)
        server.add_generic_rpc_handlers((_handler(plugin, self._loop.executor),))
        try:
            server.add_insecure_port(address)
            await server.start()
        except RuntimeError:
            await server.stop(None)
            raise
        return server


class _Stop:
    """The signal of a stream's end, for the generator that waits for the next list."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] | None = []

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Call back when the stream ends; at once when it has ended already."""
        with self._lock:
            if self._callbacks is not None:
                self._callbacks.append(callback)
                return
        callback()

    def end(self) -> None:
        """Run the callbacks of the stream's end, once."""
        with self._lock:
            callbacks, self._callbacks = self._callbacks or [], None
        for callback in callbacks:
            callback()


def _on_executor(call: Callable[[Any], Any], executor: Executor) -> Callable[[Any], Awaitable[Any]]:
    async def answer(message: Any) -> Any:  # noqa: ANN401
        return await asyncio.get_running_loop().run_in_executor(executor, call, message)

    return answer


def _on_loop_first(call: Callable[..., Any], executor: Executor) -> Callable[[Any], Awaitable[Any]]:
    """Return a handler that runs the call on the loop, and again on the executor if it raises WouldWaitError."""
    wait = _on_executor(partial(call, may_wait=True), executor)

    async def answer(message: Any) -> Any:  # noqa: ANN401
        try:
            return call(message, may_wait=False)
        except WouldWaitError:
            return await wait(message)

    return answer


def _unary(
    request: Any,  # noqa: ANN401  (generated classes have no types)
    response: Any,  # noqa: ANN401
    answer: Callable[[Any], Awaitable[Any]],
) -> "grpc.RpcMethodHandler[Any, Any]":
    async def handle(message: Any, context: "aio.ServicerContext[Any, Any]") -> Any:  # noqa: ANN401
        try:
            return await answer(message)
        except CallRefusedError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))

    return grpc.unary_unary_rpc_method_handler(
        handle, request_deserializer=request.FromString, response_serializer=response.SerializeToString
    )


def _list_and_watch(plugin: DevicePlugin, executor: Executor) -> Callable[[Any, Any], AsyncIterator[bytes]]:
    """Return a handler that yields the plugin's lists and stops waiting for the next one when the stream ends."""

    async def watch(_: dp.Empty, _context: "aio.ServicerContext[Any, Any]") -> AsyncIterator[bytes]:
        stop = _Stop()
        lists = iter(plugin.watch(stop))
        waiting: Future[Any] | None = None
        try:
            while True:
                waiting = executor.submit(next, lists, _ENDED)
                devices = await asyncio.wrap_future(waiting)
                if devices is _ENDED:
                    return
                yield encode_devices(devices)
        finally:
            stop.end()
            if waiting is not None:  # a generator can be closed only when it no longer waits for its next list
                waiting.add_done_callback(lambda _: _close(lists))

    return watch


def _close(lists: Iterator[Sequence[OfferedDevice]]) -> None:
    close = getattr(lists, "close", None)
    if close is not None:
        close()


def _handler(plugin: DevicePlugin, executor: Executor) -> "grpc.GenericRpcHandler[Any, Any]":
    """Return the gRPC handler that serves a device plugin as `v1beta1.DevicePlugin`."""

    def preferred(message: dp.PreferredAllocationRequest, *, may_wait: bool) -> dp.PreferredAllocationResponse:
        asked = [
            PreferredRequest(list(r.available_device_ids), list(r.must_include_device_ids), r.allocation_size)
            for r in message.container_requests
        ]
        chosen = plugin.preferred(asked, may_wait=may_wait)
        answers = [dp.ContainerPreferredAllocationResponse(device_ids=ids) for ids in chosen]
        return dp.PreferredAllocationResponse(container_responses=answers)

    def allocate(message: dp.AllocateRequest, *, may_wait: bool) -> dp.AllocateResponse:
        given = plugin.allocate([r.devices_ids for r in message.container_requests], may_wait=may_wait)
        return dp.AllocateResponse(container_responses=[allocation_message(one) for one in given])

    def pre_start(message: dp.PreStartContainerRequest) -> dp.Empty:
        plugin.pre_start(message.devices_ids)
        return dp.Empty()

    def options(_: dp.Empty) -> dp.DevicePluginOptions:
        return options_message(plugin.options())

    preferring, allocating = _on_loop_first(preferred, executor), _on_loop_first(allocate, executor)
    starting, telling = _on_executor(pre_start, executor), _on_executor(options, executor)
    return grpc.method_handlers_generic_handler(
        "v1beta1.DevicePlugin",
        {
            "GetDevicePluginOptions": _unary(dp.Empty, dp.DevicePluginOptions, telling),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                _list_and_watch(plugin, executor),
                request_deserializer=dp.Empty.FromString,
                response_serializer=bytes,
            ),
            "GetPreferredAllocation": _unary(dp.PreferredAllocationRequest, dp.PreferredAllocationResponse, preferring),
            "Allocate": _unary(dp.AllocateRequest, dp.AllocateResponse, allocating),
            "PreStartContainer": _unary(dp.PreStartContainerRequest, dp.Empty, starting),
        },
    )
