"""What the plugin says of containers whose images do not load the limiter, on a real kubelet and containerd."""

import platform
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from e2e.conftest import LOGS, SERVER
from e2e.k3s import K3s
from e2e.manifests import Manifest, pod
from e2e.test_isolation import CONTEXT_MIB, LIMIT_MIB, OOM, by, client, held, isolation, run, spec_of
from lab.labkit import LabError, wait_until
from lab.mkimage import write_image

__all__ = ["by", "client"]

IMAGE = "edgegpu-musl:lab"
LOADER = Path(f"/lib/ld-musl-{platform.machine()}.so.1")

pytestmark = pytest.mark.parametrize("by", ["cdi"], indirect=True)


@pytest.fixture(scope="module")
def musl(k3s: K3s) -> str:
    """Return an image with musl's loader and a program that opens the driver."""
    compiler = shutil.which("musl-gcc")
    if compiler is None:
        pytest.skip("musl-gcc is missing (Debian: musl-tools)")
    LOGS.mkdir(parents=True, exist_ok=True)
    program, image = LOGS / "driver_opener", LOGS / "musl.tar"
    subprocess.run([compiler, "-O1", "-o", program, Path(__file__).with_name("driver_opener.c")], check=True)
    items = [f"driver_opener={program}", f"{LOADER}={LOADER.resolve()}", "etc/", "tmp/"]
    write_image(image, name=IMAGE, entrypoint=["/driver_opener"], items=items, machine=platform.machine())
    k3s.nodes[SERVER].lab.exec("k3s", "ctr", "-n", "k8s.io", "images", "import", str(image))
    return IMAGE


@pytest.fixture
def own_driver(k3s: K3s, by: str) -> Iterator[Path]:
    """Yield a folder with a driver of the image's own, as cuda-compat is: here a copy of the node's."""
    assert by
    folder = LOGS / "compat"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    driver = k3s.nodes[SERVER].driver
    assert driver is not None
    shutil.copy(driver.libraries / "libcuda.so.1", folder / "libcuda.so.1")
    yield folder
    shutil.rmtree(folder)


def degraded(k3s: K3s, name: str, words: str) -> str:
    found = isolation(k3s, name)
    if (found["state"], words in found["reason"]) != ("degraded", True):
        raise LabError(str(found))
    return str(found["reason"])


def with_driver(folder: Path, env: dict[str, str]) -> Manifest:
    """Return the spec of a pod that has a folder as /compat, and this environment."""
    spec = spec_of(LOGS / "client", held("/client/memory_client", "--keep", str(LIMIT_MIB - CONTEXT_MIB + 1)))
    (main,) = spec["containers"]
    main["volumeMounts"].append({"name": "compat", "mountPath": "/compat", "readOnly": True})
    main["env"] = [{"name": name, "value": value} for name, value in env.items()]
    spec["volumes"].append({"name": "compat", "hostPath": {"path": str(folder)}})
    return spec


@pytest.mark.parametrize("env", [{}, {"LD_LIBRARY_PATH": "/usr/lib64"}], ids=["plain", "told where"])
def test_an_image_with_musl_loads_neither_driver_nor_limiter_and_is_told(
    k3s: K3s, namespace: str, by: str, client: Path, musl: str, env: dict[str, str]
) -> None:
    assert by == "cdi"
    spec = spec_of(client, held())
    (main,) = spec["containers"]
    main["image"], main["env"] = musl, [{"name": name, "value": value} for name, value in env.items()]
    k3s.apply(pod("musl", spec, namespace=namespace))
    k3s.wait_phase(namespace, "musl", "Running")
    wait_until(partial(degraded, k3s, "musl", "its image has musl"), what="the image is told of")
    said = k3s.kubectl("logs", "-n", namespace, "musl")
    assert said.startswith("Error")
    assert "opened" not in said


def test_a_driver_of_the_image_that_comes_first_is_told(
    k3s: K3s, namespace: str, by: str, client: Path, own_driver: Path
) -> None:
    assert (by, client.is_dir()) == ("cdi", True)
    k3s.apply(pod("compat", with_driver(own_driver, {"LD_LIBRARY_PATH": "/compat"}), namespace=namespace))
    k3s.wait_phase(namespace, "compat", "Running")
    words = "a driver of its own, /compat/libcuda.so.1"
    wait_until(partial(degraded, k3s, "compat", words), what="the driver is told of")
    assert k3s.kubectl("logs", "-n", namespace, "compat").split() == ["0"], "it should get past the limit"


def test_a_driver_of_the_image_that_nothing_names_changes_nothing(
    k3s: K3s, namespace: str, by: str, client: Path, own_driver: Path
) -> None:
    assert (by, client.is_dir()) == ("cdi", True)
    k3s.apply(pod("unused", with_driver(own_driver, {}), namespace=namespace))
    k3s.wait_phase(namespace, "unused", "Running")
    left = str(LIMIT_MIB - CONTEXT_MIB + 1)
    assert run(k3s, namespace, "unused", "/client/memory_client", left) == [OOM]
    assert isolation(k3s, "unused")["state"] == "enforced"
