"""Reads of the virtual machine's API server: an emulated processor takes seconds for each kubectl."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from e2e.apireads import ApiReads
from lab.labrun import LabError
from lab.vm.machine import FOLDER

if TYPE_CHECKING:
    from lab.vm.machine import Vm

_UNIT = "lab-api"
_INSIDE = "/run/lab-api.sock"
_PROXY = f"rm -f {_INSIDE}; exec k3s kubectl proxy --unix-socket={_INSIDE}"


class VmReads(ApiReads):
    """`kubectl proxy` as a unit of the machine, its socket forwarded; set up again after a boot."""

    def __init__(self, machine: Vm) -> None:
        self._machine = machine
        self._socket = FOLDER / "api"

    def get(self, kind: str, name: str, *, namespace: str, query: dict[str, str]) -> dict[str, Any]:
        """Return an object or a list, as `kubectl get -o json` does.

        Raises:
            LabError: the API server is away, or refuses it.
        """
        try:
            return super().get(kind, name, namespace=namespace, query=query)
        except LabError:
            self._set_up()
            return super().get(kind, name, namespace=namespace, query=query)

    def _set_up(self) -> None:
        self._machine.exec("systemctl", "reset-failed", _UNIT, check=False)
        options = (f"--unit={_UNIT}", "--collect", "--quiet", "-p", "Restart=always", "-p", "RestartSec=1")
        self._machine.exec("systemd-run", *options, "sh", "-c", _PROXY, check=False)  # it may run already
        self._machine.exec("sh", "-c", f"until test -S {_INSIDE}; do sleep 0.5; done")
        self._machine.forward(_INSIDE, self._socket)

    def stop(self) -> None:
        """Leave it: it goes with the machine."""
