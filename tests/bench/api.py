"""A small API server as a process of its own, so that what it costs is not measured: `api.py KUBECONFIG`.

KUBECONFIG is the plugin's, KUBECONFIG.own the measurement's. A line on stdin is answered with the number of requests
that the plugin has made.
"""

import random
import sys
from pathlib import Path

from edgegpu_sim.api import ApiServer, Registry, Settings, write_kubeconfig

PLUGIN, OWN = "plugin", "own"


def main() -> None:
    """Serve until stdin ends."""
    registry = Registry(random_names=random.Random(1))
    api = ApiServer(registry, Settings(tokens={name: name for name in (PLUGIN, OWN)}))
    api.start()
    registry.create("nodes", {"metadata": {"name": "bench"}, "status": {"allocatable": {}}})
    path = Path(sys.argv[1])
    write_kubeconfig(path, url=api.url, token=PLUGIN, user=PLUGIN)
    write_kubeconfig(path.with_suffix(".own"), url=api.url, token=OWN, user=OWN)
    sys.stdout.write("up\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        sys.stdout.write(f"{sum(call.user == PLUGIN for call in list(api.calls))}\n")
        sys.stdout.flush()
    api.stop()


if __name__ == "__main__":
    main()
