"""A small API server as a process of its own, so that what it costs is not measured: `api.py KUBECONFIG`.

KUBECONFIG is the plugin's, KUBECONFIG.agent the agent's, KUBECONFIG.own the measurement's. A user's name on stdin is
answered with the numbers of reads and of writes that it has made.
"""

import random
import sys
from pathlib import Path

from edgegpu_sim.api import ApiServer, Registry, ServerSettings, write_kubeconfig

NODE = "bench"
PLUGIN, AGENT, OWN = "plugin", "agent", "own"
READS = ("get", "list", "watch")


def main() -> None:
    """Serve until stdin ends."""
    registry = Registry(random_names=random.Random(1))
    api = ApiServer(registry, ServerSettings(tokens={name: name for name in (PLUGIN, AGENT, OWN)}))
    api.start()
    registry.create("nodes", {"metadata": {"name": NODE}, "status": {"allocatable": {}}})
    api.requests.proxies[NODE] = lambda _: {"items": registry.items("pods")}  # kubelet has the pods that the API has
    path = Path(sys.argv[1])
    write_kubeconfig(path, url=api.url, token=PLUGIN, user=PLUGIN)
    for user in (AGENT, OWN):
        write_kubeconfig(path.with_suffix(f".{user}"), url=api.url, token=user, user=user)
    sys.stdout.write("up\n")
    sys.stdout.flush()
    for line in sys.stdin:
        reads = [call.verb in READS for call in list(api.calls) if call.user == line.strip()]
        sys.stdout.write(f"{sum(reads)} {len(reads) - sum(reads)}\n")
        sys.stdout.flush()
    api.stop()


if __name__ == "__main__":
    main()
