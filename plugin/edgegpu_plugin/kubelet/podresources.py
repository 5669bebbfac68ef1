"""Asks kubelet who holds which devices; a kubelet that cannot tell is told apart from one that does not answer."""

import contextlib
from pathlib import Path

import grpc

from edgegpu_plugin.errors import PodResourcesError
from edgegpu_plugin.pb import PodDevices, PodResourcesCaller, channel


class PodResources:
    """kubelet's PodResources service; safe to call from several threads."""

    def __init__(self, socket: Path, *, timeout_s: float = 5.0) -> None:
        self._socket = socket
        self._timeout_s = timeout_s

    def list(self) -> tuple[PodDevices, ...] | None:
        """Return what containers hold, several entries for one resource possible; None: no such service here.

        Ordinary init containers are left out by kubelet. The call makes it collect the devices of pods that are gone.
        Each call has a connection of its own: gRPC's waits grow to minutes while kubelet is down.

        Raises:
            PodResourcesError: the service did not answer in time, or with an error.
        """
        try:
            self._socket.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PodResourcesError(f"cannot look at {self._socket}: {error.strerror or error}") from error
        with contextlib.closing(channel(str(self._socket))) as link:
            try:
                return tuple(PodResourcesCaller(link).list(self._timeout_s))
            except grpc.RpcError as error:
                code, details = status_of(error)
                if code is grpc.StatusCode.UNIMPLEMENTED:
                    return None
                raise PodResourcesError(
                    f"cannot list pods' devices at {self._socket}: {details}; is kubelet (k3s) running?"
                ) from error


def status_of(error: Exception) -> tuple[grpc.StatusCode, str]:
    """Return code and details of a failed call (the stubs do not know that the errors of calls carry them)."""
    if isinstance(error, grpc.Call):
        return error.code(), str(error.details())
    return grpc.StatusCode.UNKNOWN, str(error)
