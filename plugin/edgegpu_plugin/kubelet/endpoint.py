"""A plugin's socket in kubelet's folder: served under a fresh name for each registration."""

import contextlib
import hashlib
import logging
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from pathlib import Path

from edgegpu_base.listeners import listener
from edgegpu_plugin.errors import PluginError
from edgegpu_plugin.kubelet.device_plugin import ResourcePlugin
from edgegpu_plugin.pb import DevicePluginOptions, DevicePluginServer, OfferedDevice, ServingLoop, StopSignal

_log = logging.getLogger(__name__)

_MOST_PATH = 107
"""Bytes of a Unix socket's path (sockaddr_un less the closing zero)."""

_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 16 << 20),
    # A message has all ids of a full node: with the usual window of 64 KiB it would wait for us several times.
    ("grpc.http2.lookahead_bytes", 4 << 20),
    ("grpc.http2.bdp_probe", 0),
)

_FOLDER = "edgegpu"
_MOST_SLUG = 48
_MARK = "@"
"""Stands between the resource and the registration in a socket's name; no resource's name has it."""
_TOKEN_BYTES = 4
_PROBE_S = 1.0


def socket_stem(resource: str) -> str:
    """Return what the names of a resource's sockets in kubelet's folder begin with: `edgegpu/baidu.com_vcuda-memory`.

    A starting kubelet deletes every socket in its folder, but no folders in it (CleanupPluginDirectory, 1.33 to 1.37).
    A socket in a folder of ours survives that, so that only the registration is left to do.
    """
    slug = resource.replace("/", "_")
    if len(slug) > _MOST_SLUG:
        slug = slug[:31] + "-" + hashlib.sha256(resource.encode()).hexdigest()[:16]
    return f"{_FOLDER}/{slug}"


def sockets_of(folder: Path, resource: str) -> list[Path]:
    """Return the sockets of a resource in kubelet's folder: ours, those of a dead plugin and of earlier releases."""
    stem = folder / socket_stem(resource)
    own = re.compile(rf"\.?{re.escape(stem.name)}({_MARK}[0-9a-f]+)?\.sock")
    with contextlib.suppress(OSError):
        return sorted(path for path in stem.parent.iterdir() if own.fullmatch(path.name) and path.is_socket())
    return []


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """The identity of a file at a path, with its time of change, since kernels reuse inode numbers at once."""

    device: int
    inode: int
    ctime_ns: int

    @classmethod
    def of(cls, path: Path) -> "FileIdentity | None":
        """Return the identity of the file at a path without following links; None when there is no file."""
        try:
            found = path.lstat()
        except OSError:
            return None
        return cls(found.st_dev, found.st_ino, found.st_ctime_ns)

    def same_inode(self, other: "FileIdentity") -> bool:
        """Return whether device and inode are equal, whatever the time."""
        return (self.device, self.inode) == (other.device, other.inode)


class _Streams:
    """The plugin with a count of its ListAndWatch streams that have had their first list."""

    def __init__(self, plugin: ResourcePlugin, told: Callable[[], None]) -> None:
        self.preferred = plugin.preferred
        self.allocate, self.pre_start = plugin.allocate, plugin.pre_start
        self.count = 0
        self._plugin = plugin
        self._told = told
        self._lock = threading.Lock()

    def options(self) -> DevicePluginOptions:
        _log.debug("kubelet dialled for %s", self._plugin.resource)
        return self._plugin.options()

    def watch(self, stopped: StopSignal) -> Iterator[Sequence[OfferedDevice]]:
        counted = False
        _log.debug("kubelet opened its stream of %s", self._plugin.resource)
        try:
            for devices in self._plugin.watch(stopped):
                yield devices
                if not counted:  # gRPC asks for the next list once this one is sent
                    counted = True
                    self._add(1)
        finally:
            if counted:
                self._add(-1)

    def _add(self, step: int) -> None:
        with self._lock:
            self.count += step
        self._told()


@dataclass(slots=True)
class _ServedSocket:
    """A server and the name of its socket; a name goes to kubelet once."""

    name: str
    path: Path
    server: DevicePluginServer
    streams: _Streams
    registered: bool = False


class PluginSocket:
    """The socket of one resource, under a fresh name for each registration; one thread calls its methods.

    Kubelet 1.37 knows a client by resource and socket. It answers a second Register of a socket with "device plugin
    already connected", and forgets the client that it has: when that one's stream ends, the socket stays taken until
    kubelet starts again (PluginConnected and deregisterClient in cm/devicemanager). A plugin that died a moment ago,
    or an answer that came too late, is enough for that. Kubelets before 1.37 know a client by its resource.

    Each server listens on a temporary name that is then renamed: a socket appears when it is served. gRPC deletes the
    path that it has bound some time after its stop.
    """

    def __init__(
        self,
        plugin: ResourcePlugin,
        *,
        folder: Path,
        loop: ServingLoop,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        self.plugin = plugin
        self._stem = folder / socket_stem(plugin.resource)
        self._folder = folder
        self._loop = loop
        self._told = told
        self._served: _ServedSocket | None = None
        self._retired: list[_ServedSocket] = []

    @property
    def streams(self) -> int:
        """The number of kubelet's open streams, of the last name, that have had their first list."""
        return self._served.streams.count if self._served is not None else 0

    def prepare(self) -> _ServedSocket:
        """Serve under a name that kubelet has not heard, unless that is so already.

        The server of the last name goes on while kubelet has a stream of it: kubelets before 1.37 take the end of an
        old stream for the end of the new client too.

        Raises:
            PluginError: another process serves this resource, or the socket cannot be made.
        """
        served = self._served
        if served is not None and not served.registered and served.path.is_socket():
            return served
        if served is not None:
            self._served = None
            _unlink(served.path)
            self._retired.append(served)
            self.stop_retired()
        self._served = self._serve()
        return self._served

    def fresh_name(self) -> str:
        """Return a name for one registration, relative to kubelet's folder. Raises as `prepare` does."""
        served = self.prepare()
        served.registered = True
        return served.name

    def stop_retired(self) -> None:
        """Stop the servers of earlier names that kubelet has no stream of any more."""
        for served in [served for served in self._retired if not served.streams.count]:
            self._retired.remove(served)
            served.server.stop()

    def close(self) -> None:
        """End all streams, remove the socket, and the folder with the last one."""
        all_served = [*self._retired, *([self._served] if self._served is not None else [])]
        self._served, self._retired = None, []
        ended = [served.server.stop() for served in all_served]
        for served in all_served:
            _unlink(served.path)
        with contextlib.suppress(OSError):
            self._stem.parent.rmdir()
        wait(ended, _PROBE_S)

    def _serve(self) -> _ServedSocket:
        path = self._stem.with_name(f"{self._stem.name}{_MARK}{secrets.token_hex(_TOKEN_BYTES)}.sock")
        temp = path.with_name(f".{path.name}")
        if len(os.fsencode(temp)) > _MOST_PATH:
            raise PluginError(f"cannot listen on {path}: {temp} is longer than a socket's path may be ({_MOST_PATH})")
        try:
            path.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise PluginError(f"cannot make the folder {path.parent}: {error}") from error
        for other in sockets_of(self._folder, self.plugin.resource):
            _remove_dead(other)
        streams = _Streams(self.plugin, self._told)
        try:
            server = DevicePluginServer(streams, address=f"unix://{temp}", loop=self._loop, options=_OPTIONS)
        except RuntimeError as error:
            raise _unmade(path, error) from error
        try:
            temp.rename(path)
        except OSError as error:
            server.stop()
            raise _unmade(path, error) from error
        return _ServedSocket(f"{path.parent.name}/{path.name}", path, server, streams)


def listens(path: Path) -> bool:
    """Return whether a process listens on a socket."""
    return listener(path, timeout_s=_PROBE_S) is not None


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _unmade(path: Path, error: Exception) -> PluginError:
    return PluginError(f"cannot make the socket {path}: {error}; the plugin must be able to write to kubelet's folder")


def _remove_dead(path: Path) -> None:
    """Remove the socket of a dead plugin, and refuse to serve beside a living one."""
    pid = listener(path, timeout_s=_PROBE_S)
    if pid is None:
        _unlink(path)
        return
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        name = "its name is hidden"
    raise PluginError(
        f"cannot listen beside {path}: another process ({name}, pid {pid}) answers there; "
        "end it, or give this one other resource names"
    )
