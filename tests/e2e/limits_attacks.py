"""Plays requests to the API server with a token, in a process of its own in the node: JSON in, answers out."""

import json
import sys
from pathlib import Path
from typing import Any

from edgegpu_base.kube import KubeClient, KubeError, load_kubeconfig


class Requests(KubeClient):
    """A client that sends what it is given."""

    def answer(self, request: dict[str, Any]) -> str:
        """Send a request; empty when it is taken, else the API server's words."""
        try:
            self._call(
                request["method"],
                request["path"],
                body=request["body"],
                params=request.get("params") or {"fieldManager": "edgegpu-agent"},
                content_type=request["type"],
            )
        except KubeError as error:
            return str(error)
        return ""


def main() -> None:
    order = json.load(sys.stdin)
    client = Requests(load_kubeconfig(Path(order["kubeconfig"])))
    json.dump([client.answer(one) for one in order["requests"]], sys.stdout)


if __name__ == "__main__":
    main()
