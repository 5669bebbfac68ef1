"""Whether k3s's scheduler looks at pods after a start; where it does not, its stacks, and one more start."""

from __future__ import annotations

import os
import signal
import warnings
from typing import TYPE_CHECKING

from e2e.manifests import pod
from lab.labkit import LabError, Node, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from e2e.k3s import K3s

NAMESPACE, NAME = "default", "scheduler-probe"


def wait_for_scheduler(cluster: K3s, server: Node, stacks: Path) -> None:
    """Wait until the scheduler has judged a pod that fits nowhere.

    A scheduler was seen that was silent from its start on, with all else well, on a busy machine; the next start of k3s
    cured it. So k3s starts once more then, with a warning, and `stacks` has the scheduler's goroutines of before.

    Raises:
        LabError: the scheduler is silent after the second start too.
    """
    spec = {"containers": [{"name": "main", "image": "none", "resources": {"limits": {"edgegpu.test/none": "1"}}}]}
    cluster.apply(pod(NAME, spec, namespace=NAMESPACE))

    def judged() -> bool:
        status = cluster.get("pods", NAME, namespace=NAMESPACE)["status"]
        return any(row["type"] == "PodScheduled" for row in status.get("conditions", []))

    try:
        wait_until(judged, what="the scheduler looks at a pod", timeout_s=60.0, every_s=0.3)
    except LabError:
        stacks.write_text(scheduler_stacks(server))
        warnings.warn(f"the scheduler looked at no pod for a minute; k3s was started again: {stacks}", stacklevel=1)
        wait_until(judged, what="the scheduler looks at a pod", every_s=0.3)
    finally:
        cluster.kubectl("delete", "pod", NAME, "-n", NAMESPACE, "--now", "--wait=false")


def scheduler_stacks(server: Node) -> str:
    """Let a server's k3s print its goroutines and start again; return those of its scheduler."""
    before, ended = len(server.log()), server.pid
    os.kill(ended, signal.SIGQUIT)
    wait_until(lambda: server.pid != ended, what="k3s starts again")
    server.ready()
    stacks = server.log()[before:].split("\n\n")
    return "\n\n".join(stack for stack in stacks if stack.startswith("goroutine ") and "scheduler" in stack.lower())
