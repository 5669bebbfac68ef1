"""The limiter where somebody else brings the driver, as the nvidia runtime does, on a real kubelet and containerd."""

from pathlib import Path

import pytest
from e2e.k3s import K3s
from e2e.manifests import Manifest, pod
from e2e.plugin_node import DRIVER_ROOT
from e2e.test_isolation import CONTEXT_MIB, LIMIT_MIB, OOM, by, client, held, isolation, run, spec_of

__all__ = ["by", "client"]

DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia0")
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
FOLDER = "usr/lib/x86_64-linux-gnu"
STATE = "var/lib/nvidia-sim"
"""The simulated driver's, which containers share with the node."""


def with_runtime(client: Path) -> Manifest:
    """Return the spec of a pod into which the driver and a card come as by the nvidia runtime, which the lab lacks."""
    spec = spec_of(client, held())
    (main,) = spec["containers"]
    main["securityContext"] = {"privileged": True}  # for the device nodes
    places = {f"/usr/lib64/{name}": f"{DRIVER_ROOT}/{FOLDER}/{name}" for name in LIBRARIES}
    places |= {f"/dev/{name}": f"{DRIVER_ROOT}/dev/{name}" for name in DEVICES}
    places[f"/{STATE}"] = f"{DRIVER_ROOT}/{STATE}"
    for number, (inside, outside) in enumerate(places.items()):
        main["volumeMounts"].append({"name": f"driver{number}", "mountPath": inside})
        spec["volumes"].append({"name": f"driver{number}", "hostPath": {"path": outside}})
    return spec


@pytest.mark.parametrize("by", ["runtime"], indirect=True)
def test_a_preload_holds_those_who_ask_for_the_driver_by_name_and_is_told_as_degraded(
    k3s: K3s, namespace: str, by: str, client: Path
) -> None:
    assert by == "runtime"
    k3s.apply(pod("held", with_runtime(client), namespace=namespace))
    k3s.wait_phase(namespace, "held", "Running")
    left = LIMIT_MIB - CONTEXT_MIB
    assert run(k3s, namespace, "held", "/client/memory_client", str(left), "1") == ["0", OOM]
    assert run(k3s, namespace, "held", "env", "-i", "/client/memory_client", str(left + 1)) == [OOM]
    said = k3s.kubectl("exec", "-n", namespace, "held", "--", "sh", "-c", "cat /etc/ld.so.preload; /bin/true 2>&1")
    assert said == "/run/edgegpu/container/preload/libcuda.so.1\n"
    found = isolation(k3s, "held")
    assert (found["state"], [card["limit_mib"] for card in found["cards"]]) == ("degraded", [LIMIT_MIB])
    assert found["reason"].startswith("preload only: ")
    beside = "LD_LIBRARY_PATH=/run/edgegpu/container/driver"  # whose SONAME the limiter has already
    assert run(k3s, namespace, "held", "env", beside, "/client/memory_client", str(left + 1)) == [OOM]
