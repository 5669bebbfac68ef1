"""A plugin's socket in kubelet's folder: served, kept at its path, replaced without closing open streams."""

import contextlib
import hashlib
import logging
import os
import socket
import stat
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from pathlib import Path

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

_MOST_SLUG = 48
_UCRED = struct.Struct("3i")
_PROBE_S = 1.0


def socket_name(resource: str) -> str:
    """Return the name of a resource's socket in kubelet's folder: `edgegpu/baidu.com_vcuda-memory.sock`.

    A starting kubelet deletes every socket in its folder, but no folders in it (CleanupPluginDirectory, 1.33). A
    socket in a folder of ours survives that, so that only the registration is left to do.
    """
    slug = resource.replace("/", "_")
    if len(slug) > _MOST_SLUG:
        slug = slug[:31] + "-" + hashlib.sha256(resource.encode()).hexdigest()[:16]
    return f"edgegpu/{slug}.sock"


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
        self._kubelet = 0
        self._plugin = plugin
        self._told = told
        self._lock = threading.Lock()

    def options(self) -> DevicePluginOptions:
        _log.debug("kubelet dialled for %s", self._plugin.resource)
        return self._plugin.options()

    def reset_count(self) -> None:
        """Reset the count, so that only streams of the new kubelet count."""
        with self._lock:
            self._kubelet += 1
            self.count = 0

    def watch(self, stopped: StopSignal) -> Iterator[Sequence[OfferedDevice]]:
        counted, kubelet = False, self._kubelet
        _log.debug("kubelet opened its stream of %s", self._plugin.resource)
        try:
            for devices in self._plugin.watch(stopped):
                yield devices
                if not counted:  # gRPC asks for the next list once this one is sent
                    counted = True
                    self._add(1, kubelet)
        finally:
            if counted:
                self._add(-1, kubelet)

    def _add(self, step: int, kubelet: int) -> None:
        with self._lock:
            if kubelet != self._kubelet:
                return
            self.count += step
        self._told()


class PluginSocket:
    """The socket of one resource; one thread calls its methods.

    Each server listens on a temporary name that is then renamed: gRPC deletes the path of a socket when it binds and,
    some time later, when it stops, whoever owns that path by then.
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
        self.name = socket_name(plugin.resource)
        self.path = folder / self.name
        self._made = 0
        self._loop = loop
        self._told = told
        self._servers: list[tuple[DevicePluginServer, _Streams]] = []
        self._own: FileIdentity | None = None

    @property
    def streams(self) -> int:
        """The number of open streams to kubelet that have had their first list."""
        return sum(streams.count for _, streams in self._servers)

    def await_kubelet(self) -> None:
        """Serve, unless a server runs, and reset the count of streams, before a new kubelet dials.

        Raises:
            PluginError: the socket is another process's, or cannot be made.
        """
        for _, streams in self._servers:
            streams.reset_count()
        if not self._servers:
            self._serve()
        self.keep()

    def keep(self) -> bool:
        """Make the socket again if it was deleted (open streams go on), and return whether it was.

        Raises:
            PluginError: another process serves there now, or the socket cannot be made.
        """
        found = FileIdentity.of(self.path)
        if self._own is None or found == self._own:
            return False
        if found is not None and _answering(self.path) == os.getpid():
            self._own = found  # touched, not replaced
            return False
        if len(self._servers) > 1:  # the first has kubelet's stream, the second has none and is replaced
            self._servers.pop()[0].stop()
        self._serve()
        return True

    def close(self) -> None:
        """End all streams and remove the socket, unless it is another process's by now."""
        ours = self._own is not None and FileIdentity.of(self.path) == self._own
        self._own = None
        if ours:
            with contextlib.suppress(OSError):
                self.path.unlink()
                self.path.parent.rmdir()
        self._end(wait_s=_PROBE_S)

    def _serve(self) -> None:
        self._made += 1
        temp = self.path.with_name(f".{self.path.name}.{self._made}")
        if len(os.fsencode(temp)) > _MOST_PATH:
            raise PluginError(
                f"cannot listen on {self.path}: {temp} is longer than a socket's path may be ({_MOST_PATH})"
            )
        try:
            self.path.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise PluginError(f"cannot make the folder {self.path.parent}: {error}") from error
        _refuse_foreign(self.path, self._own)
        streams = _Streams(self.plugin, self._told)
        try:
            server = DevicePluginServer(streams, address=f"unix://{temp}", loop=self._loop, options=_OPTIONS)
        except RuntimeError as error:
            raise self._unmade(error) from error
        try:
            temp.rename(self.path)
        except OSError as error:
            server.stop()
            raise self._unmade(error) from error
        self._own = FileIdentity.of(self.path)
        self._servers.append((server, streams))

    def _unmade(self, error: Exception) -> PluginError:
        return PluginError(
            f"cannot make the socket {self.path}: {error}; the plugin must be able to write to kubelet's folder"
        )

    def _end(self, wait_s: float) -> None:
        ended = [server.stop() for server, _ in self._servers]
        self._servers = []
        wait(ended, wait_s)


def _refuse_foreign(path: Path, own: FileIdentity | None) -> None:
    """Refuse a path where another process answers; the socket of a dead process is no problem."""
    found = FileIdentity.of(path)
    if found is None or found == own:
        return
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise PluginError(f"cannot listen on {path}: it is not a socket; move the file away")
    pid = _answering(path)
    if pid is None or (pid == os.getpid() and own is not None):  # our own socket, whose metadata changed
        return
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        name = "its name is hidden"
    raise PluginError(
        f"cannot listen on {path}: another process ({name}, pid {pid}) answers there; "
        "end it, or give this one other resource names"
    )


def _answering(path: Path) -> int | None:
    """Return the pid of the process that listens on a socket (0 when it cannot be seen); None when no process does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(str(path))
            pid: int = _UCRED.unpack(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))[0]
        except (TimeoutError, BlockingIOError):
            return 0  # it listens, but its queue is full
        except OSError:
            return None
        return pid
