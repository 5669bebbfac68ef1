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
from edgegpu_sim.kubelet.endpoint import DeviceError, PluginClient, go_text

SOCKET = "kubelet.sock"
_CONNECT_S = 10.0


@dataclass(frozen=True, slots=True)
class _Client:
    """A connection to one plugin."""

    socket: str
    link: grpc.Channel
    caller: DevicePluginCaller


class RegistrationServer:
    """The server in the device-plugin folder; at the start it deletes the sockets that are there.

    Kubelets before 1.37 know one client of each resource, the last; from 1.37 on they know one of each socket.
    """

    def __init__(self, folder: Path, manager: DeviceManager, *, by_socket: bool) -> None:
        """Listen in a folder.

        Args:
            folder: the device-plugin folder.
            manager: gets what the plugins say.
            by_socket: whether clients are known by their sockets, as from 1.37 on.
        """
        self._folder = folder
        self._manager = manager
        self._by_socket = by_socket
        self._lock = threading.Lock()
        self._clients: dict[str, list[_Client]] = {}
        self._links: list[grpc.Channel] = []
        self._watchers: list[threading.Thread] = []
        self._stopped = False
        _delete_sockets(folder)
        self._server = serve(folder / SOCKET, registration_handler(self._register))

    def stop(self) -> None:
        """Close the connection to every plugin and stop the server."""
        with self._lock:
            self._stopped = True
            self._clients.clear()
        self._server.stop(grace=0).wait()
        for link in self._links:  # those of forgotten clients too: their streams end with the process
            link.close()
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
        client = _Client(asked.endpoint, link, DevicePluginCaller(link))
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
            others = self._clients.get(asked.resource, []) if self._by_socket else []
            self._clients[asked.resource] = [*others, client]
            self._links.append(link)
            self._connect(client, PluginClient(asked.resource, client.caller, options, socket=self._key(client)))
            self._watchers.append(watcher)
            watcher.start()

    def _connect(self, client: _Client, endpoint: PluginClient) -> None:
        """Hand a plugin to the manager; where that refuses its socket, all clients of the socket are forgotten."""
        try:
            self._manager.connected(endpoint.resource, endpoint)
        except DeviceError as error:
            self._forget(endpoint.resource, client.socket)
            raise CallRefusedError(str(error)) from error

    def _key(self, client: _Client) -> str:
        return str(self._folder / client.socket) if self._by_socket else ""

    def _forget(self, resource: str, socket: str) -> list[_Client]:
        """Forget the clients that the end of a socket's stream concerns, and return them."""
        clients = self._clients.get(resource, [])
        gone = [client for client in clients if not self._by_socket or client.socket == socket]
        self._clients[resource] = [client for client in clients if client not in gone]
        return gone

    def _watch(self, resource: str, client: _Client) -> None:
        try:
            for devices in client.caller.watch():
                self._manager.listed(resource, devices)
        except (grpc.RpcError, ValueError):
            pass  # the plugin has gone, or this kubelet stops and has closed the channel
        # Before 1.37 the registered client is closed, even a newer one. From 1.37 on a client that a second Register of
        # its socket made kubelet forget is never disconnected: its socket stays taken.
        with self._lock:
            gone = self._forget(resource, client.socket)
        for forgotten in gone:
            forgotten.link.close()
        if gone:
            self._manager.disconnected(resource, self._key(client))


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
