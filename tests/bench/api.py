"""A small API server as a process of its own, so that what it costs is not measured: `api.py KUBECONFIG`."""

import random
import sys
from pathlib import Path

from edgegpu_sim.api import ApiServer, Registry, Settings, write_kubeconfig


def main() -> None:
    """Serve until stdin ends."""
    registry = Registry(random_names=random.Random(1))
    api = ApiServer(registry, Settings(tokens={"t": "bench"}))
    api.start()
    registry.create("nodes", {"metadata": {"name": "bench"}, "status": {"allocatable": {}}})
    write_kubeconfig(Path(sys.argv[1]), url=api.url, token="t", user="bench")  # noqa: S106  (a test's token)
    sys.stdout.write("up\n")
    sys.stdout.flush()
    sys.stdin.read()
    api.stop()


if __name__ == "__main__":
    main()
