"""kubectl as this box has it."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from edgegpu_agent.demo.model import DemoError

_K3S_KUBECONFIG = Path("/etc/rancher/k3s/k3s.yaml")
_CALL_S = 60.0


class KubectlError(DemoError):
    """kubectl ended with an error; the text is its own."""


class DemoKubectl:
    """Runs kubectl; each call has a deadline."""

    def __init__(self, command: tuple[str, ...], environment: dict[str, str]) -> None:
        self._command = command
        self._environment = environment

    @classmethod
    def find(cls) -> "DemoKubectl":
        """Return the kubectl of this box: `kubectl`, else `k3s kubectl`.

        Raises:
            DemoError: there is none.
        """
        environment = dict(os.environ)
        if "KUBECONFIG" not in environment and os.access(_K3S_KUBECONFIG, os.R_OK):
            environment["KUBECONFIG"] = str(_K3S_KUBECONFIG)
        if shutil.which("kubectl"):
            return cls(("kubectl",), environment)
        if shutil.which("k3s"):
            return cls(("k3s", "kubectl"), environment)
        raise DemoError(
            "cannot run on this box: there is no kubectl and no k3s on the PATH; "
            "run it on a k3s server, or leave --real out for the simulated demo"
        )

    def run(self, *args: str, given: str | None = None, timeout_s: float = _CALL_S) -> str:
        """Return what a call prints.

        Raises:
            KubectlError: it failed, or took too long.
        """
        try:
            done = subprocess.run(
                [*self._command, *args],
                input=given,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
                env=self._environment,
            )
        except subprocess.TimeoutExpired as error:
            raise KubectlError(f"cannot {args[0]}: kubectl did not end within {timeout_s:g} s") from error
        if done.returncode:
            text = done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}"
            raise KubectlError(f"cannot {args[0]} with kubectl: {text}")
        return done.stdout

    def json(self, *args: str) -> Any:  # noqa: ANN401  (what kubectl prints)
        """Return what a call prints with `-o json`.

        Raises:
            KubectlError: it failed.
        """
        return json.loads(self.run(*args, "-o", "json"))
