"""The embedded kubelet's registration socket: device plugins register there, and kubelet dials back and watches."""

import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc

from edgegpu_plugin.pb import (
    API_VERSION,
    CallRefusedError,
    DevicePluginCaller,
    Registration,
    channel,
    registration_handler,
)
from edgegpu_sim.kubelet.devicemanager import DeviceManager
from edgegpu_sim.kubelet.endpoint import PluginClient, go_text

SOCKET = "kubelet.sock"
_CONNECT_S = 10.0


@dataclass(frozen=True, slots=True)
class _Client:
    """A connection to one plugin."""

    link: grpc.Channel
    caller: DevicePluginCaller


class RegistrationServer:
    """The server in the device-plugin folder; at the start it deletes the sockets that are there."""

    def __init__(self, folder: Path, manager: DeviceManager) -> None:
        self._folder = folder
        self._manager = manager
        self._lock = threading.Lock()
        self._clients: dict[str, _Client] = {}
        self._watchers: list[threading.Thread] = []
        self._stopped = False
        _delete_sockets(folder)
        self._server = serve(folder / SOCKET, registration_handler(self._register))

    def stop(self) -> None:
        """Close the connection to every plugin and stop the server."""
        with self._lock:
            self._stopped = True
            clients = list(self._clients.values())
            self._clients.clear()
        self._server.stop(grace=0).wait()
        for client in clients:
            client.link.close()
        for watcher in self._watchers:
            watcher.join()

    def _register(self, asked: Registration) -> None:
        """Dial the plugin back during its call: a plugin must serve before it registers."""
        if asked.version != API_VERSION:
            supported = f"Supported version is {[API_VERSION]}"
            raise CallRefusedError(f'requested API version "{asked.version}" is not supported by kubelet. {supported}')
        if "/" not in asked.resource or asked.resource.startswith("kubernetes.io/"):
            raise CallRefusedError(f'the ResourceName "{asked.resource}" is invalid')
        link = channel(str(self._folder / asked.endpoint))
        client = _Client(link, DevicePluginCaller(link))
        try:
            options = client.caller.options(_CONNECT_S)
        except grpc.RpcError as error:
            link.close()
            raise CallRefusedError(
                f"failed to dial device plugin with socketPath {asked.endpoint}: {go_text(error)}"
            ) from error
        watcher = threading.Thread(target=self._watch, args=(asked.resource, client), name=asked.resource)
        with self._lock:
            if self._stopped:
                link.close()
                raise CallRefusedError("kubelet stops")
            self._clients[asked.resource] = client
            self._watchers.append(watcher)
            self._manager.connected(asked.resource, PluginClient(asked.resource, client.caller, options))
            watcher.start()

    def _watch(self, resource: str, client: _Client) -> None:
        try:
            for devices in client.caller.watch():
                self._manager.listed(resource, devices)
        except (grpc.RpcError, ValueError):
            pass  # the plugin has gone, or this kubelet stops and has closed the channel
        # Close the registered client, even a newer one, as the real kubelet does.
        with self._lock:
            current = self._clients.pop(resource, None)
        client.link.close()
        if current is not None:
            current.link.close()
        self._manager.disconnected(resource)


def serve(path: Path, handler: grpc.GenericRpcHandler) -> grpc.Server:  # type: ignore[type-arg]  # generic in stubs only
    """Start and return a gRPC server of one service on a Unix socket."""
    server = grpc.server(ThreadPoolExecutor(8, thread_name_prefix=path.name))
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix://{path}")
    server.start()
    return server


def _delete_sockets(folder: Path) -> None:
    for path in folder.iterdir():
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
