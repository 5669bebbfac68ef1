"""Images with a driver of their own before the limiter's mount, and the list of preloaded libraries that ends it."""

import os
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e.conftest import LOGS, SERVER, units
from e2e.k3s import EXTENDER, K3s
from e2e.manifests import Manifest, pod
from e2e.plugin_node import cards
from e2e.test_isolation import CONTEXT_MIB, LIMIT_MIB, OOM, by, client, held, isolation, run, spec_of
from kits.daily import of_the_day
from lab.labkit import LabError, wait_until
from lab.mkimage import write_image

__all__ = ["by", "client"]

LAB = Path(os.environ.get("EDGEGPU_LAB", "/var/tmp/edgegpu-lab"))  # noqa: S108 - the lab's own default
TOO_MUCH = str(LIMIT_MIB - CONTEXT_MIB + 1)
LOADER = "/lib64/ld-linux-x86-64.so.2"
OURS = "/usr/lib64/libcuda.so.1\n"
BY_PATH, BY_RPATH = "LD_LIBRARY_PATH=/compat", "-Wl,--disable-new-dtags,-rpath,/compat"

pytestmark = pytest.mark.parametrize("by", of_the_day(["cdi", "devices"], parts=2), indirect=True)

Build = Callable[..., str]


@pytest.fixture
def build(k3s: K3s, tmp_path: Path) -> Build:
    """Return what builds an image over the lab's, with a driver of its own in /compat, and gives it to the node."""

    def made(name: str, *items: str, env: tuple[str, ...] = (), flags: tuple[str, ...] = ()) -> str:
        node = k3s.nodes[SERVER]
        assert node.driver is not None
        program, out, image = tmp_path / "client", LOGS / f"{name}.tar", f"{name}:lab"
        source = Path(__file__).with_name("memory_client.c")
        subprocess.run(["cc", "-O1", "-w", *flags, "-o", program, source, "-ldl"], check=True)
        own = (f"bin/own_client={program}", f"compat/libcuda.so.1={node.driver.libraries / 'libcuda.so.1'}")
        write_image(
            out,
            name=image,
            entrypoint=["/entry"],
            items=[*own, *items],
            machine=platform.machine(),
            env=(*env, f"MARK={name}"),
            base=LAB / "images/edgegpu-test.tar",
        )
        node.lab.exec("k3s", "ctr", "-n", "k8s.io", "images", "import", str(out))
        out.unlink()
        return image

    return made


def keeping(client: Path, namespace: str, name: str, image: str, *, program: str = "/bin/own_client") -> Manifest:
    """Return a pod that asks for more than its limit, and keeps what it gets."""
    spec = spec_of(client, held(program, "--keep", TOO_MUCH))
    spec["containers"][0]["image"] = image
    return pod(name, spec, namespace=namespace)


def answer(k3s: K3s, namespace: str, name: str) -> str:
    """Return the status of CUDA that a pod's program was given."""
    k3s.wait_phase(namespace, name, "Running")
    return wait_until(
        lambda: k3s.kubectl("logs", "-n", namespace, name).strip(), what=f"the program of {name} has asked"
    )


def told(k3s: K3s, name: str, state: str, *words: str) -> None:
    """Wait until the plugin says this of a pod."""

    def is_told() -> bool:
        found = isolation(k3s, name)
        if found["state"] != state or not all(one in found["reason"] for one in words):
            raise LabError(str(found))
        return True

    wait_until(is_told, what=f"{name} is {state}: {words}")


def start_again(k3s: K3s, namespace: str, name: str) -> None:
    """End a pod's container; kubelet starts it again."""

    def starts() -> int:
        found = k3s.get("pod", name, namespace=namespace)["status"]["containerStatuses"][0]
        return int(found["restartCount"]) if found.get("state", {}).get("running") else -1

    before = starts()
    k3s.kubectl("exec", "-n", namespace, name, "--", "kill", "1", check=False)  # it ends with the container
    wait_until(lambda: starts() > before, what=f"{name} runs again")


def listed(k3s: K3s, namespace: str, name: str) -> str:
    return k3s.kubectl("exec", "-n", namespace, name, "--", "cat", "/etc/ld.so.preload")


def configure(k3s: K3s, limiter: Path, mode: str, **isolation: str) -> None:
    """Start the plugin anew with other settings."""
    node, common = k3s.nodes[SERVER], {"mode": "limiter", "context_mib": CONTEXT_MIB, "libraries": str(limiter)}
    node.stop()
    node.configure(extender={"listen": EXTENDER}, driver={"injection": mode}, isolation=common | isolation)
    node.start()
    k3s.wait_allocatable(SERVER, units(cards(7611)), 100)


@pytest.mark.parametrize("way", ["LD_LIBRARY_PATH", "DT_RPATH"])
def test_an_image_with_its_own_driver_is_held_from_its_next_start_on(
    k3s: K3s, namespace: str, by: str, client: Path, build: Build, limiter_build: Path, way: str
) -> None:
    if way == "DT_RPATH":
        image = build(f"rpath-{by}", flags=(BY_RPATH,))
        words = ["past the limiter, by a driver of its image's own, /compat/libcuda.so.1"]
    else:
        image = build(f"path-{by}", env=(BY_PATH,))
        words = ["its image has a driver of its own, /compat/libcuda.so.1"]
    k3s.apply(keeping(client, namespace, "first", image))
    assert answer(k3s, namespace, "first") == "0", "nobody knows the image yet"
    assert listed(k3s, namespace, "first") == ""
    told(k3s, "first", "degraded", *words, "start it again: the limiter is preloaded then")
    configure(k3s, limiter_build, by)  # the plugin starts anew, and the verdict stays
    k3s.apply(keeping(client, namespace, "second", image))
    assert answer(k3s, namespace, "second") == OOM
    assert listed(k3s, namespace, "second") == OURS
    assert run(k3s, namespace, "second", "sh", "-c", "true 2>&1; /bin/own_client 1") == ["0"]
    told(k3s, "second", "enforced")
    start_again(k3s, namespace, "first")
    assert answer(k3s, namespace, "first") == OOM
    told(k3s, "first", "enforced")


def test_the_setting_preloads_everywhere_or_nowhere(
    k3s: K3s, namespace: str, by: str, client: Path, build: Build, limiter_build: Path
) -> None:
    image = build(f"setting-{by}", env=(BY_PATH,))
    configure(k3s, limiter_build, by, preload="off")
    k3s.apply(keeping(client, namespace, "off", image))
    assert answer(k3s, namespace, "off") == "0"
    told(k3s, "off", "degraded", "a driver of its own", "or set isolation.preload to auto")
    start_again(k3s, namespace, "off")
    assert (answer(k3s, namespace, "off"), listed(k3s, namespace, "off")) == ("0", "")
    configure(k3s, limiter_build, by, preload="on")
    k3s.apply(keeping(client, namespace, "on", build(f"unknown-{by}", env=(BY_PATH,))))
    assert (answer(k3s, namespace, "on"), listed(k3s, namespace, "on")) == (OOM, OURS)
    told(k3s, "on", "enforced")


def test_an_image_s_own_list_is_hidden_once_and_then_counts(
    k3s: K3s, namespace: str, by: str, client: Path, build: Build, tmp_path: Path
) -> None:
    source, library, own = tmp_path / "own.c", tmp_path / "libown.so", tmp_path / "list"
    source.write_text("int own(void) { return 1; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    own.write_text("# of the image\n/lib/libown.so\n")
    image = build(f"listed-{by}", f"lib/libown.so={library}", f"etc/ld.so.preload={own}")
    manifest = keeping(client, namespace, "own-list", image)
    manifest["spec"]["containers"][0]["args"] = ["sleep", "3600"]
    k3s.apply(manifest)
    k3s.wait_phase(namespace, "own-list", "Running")
    assert listed(k3s, namespace, "own-list") == ""

    def is_noted() -> bool:
        return "/etc/ld.so.preload of its own" in str(isolation(k3s, "own-list")["notes"])

    wait_until(is_noted, what="the list is told of")
    described = ("describe", "pod", "-n", namespace, "own-list")
    wait_until(lambda: "GPUPreload" in k3s.kubectl(*described), what="its pod has the event")
    start_again(k3s, namespace, "own-list")
    assert listed(k3s, namespace, "own-list") == "/lib/libown.so\n"
    assert "/lib/libown.so" in run(k3s, namespace, "own-list", LOADER, "--list", "/bin/own_client")
    wait_until(lambda: not is_noted(), what="it is told of no more")


STATIC = """
#include <stdio.h>
#include <unistd.h>
int main(void)
{
	puts("runs");
	fflush(stdout);
	for (;;)
		pause();
}
"""


def test_an_empty_list_stops_no_image(k3s: K3s, namespace: str, by: str, client: Path, tmp_path: Path) -> None:
    """Of nothing but a static program, and read-only; as another user; in a user namespace."""
    assert client.is_dir()
    source, program, out = tmp_path / "static.c", tmp_path / "static", LOGS / "scratch.tar"
    source.write_text(STATIC)
    subprocess.run(["cc", "-static", "-o", program, source], check=True)
    write_image(
        out, name="scratch:lab", entrypoint=["/static"], items=[f"static={program}"], machine=platform.machine()
    )
    k3s.nodes[SERVER].lab.exec("k3s", "ctr", "-n", "k8s.io", "images", "import", str(out))
    out.unlink()
    contexts: dict[str, Manifest] = {
        "plain": {},
        "readonly": {"readOnlyRootFilesystem": True},
        "nobody": {"readOnlyRootFilesystem": True, "runAsUser": 65534, "allowPrivilegeEscalation": False},
    }
    for name, context in contexts.items():
        for image in ("scratch:lab", "edgegpu-test:lab"):
            spec = spec_of(client, held())
            (main,) = spec["containers"]
            main.update(image=image, imagePullPolicy="Never", securityContext=context)
            if image == "edgegpu-test:lab":
                main["args"] = [
                    "sh",
                    "-c",
                    "cat /etc/ld.so.preload && /client/memory_client 1 && exec sleep 3600",
                ]
            kind = image.partition(":")[0]
            k3s.apply(pod(f"{name}-{kind}", spec, namespace=namespace))
            said = answer(k3s, namespace, f"{name}-{kind}")
            assert said.split()[-1] in {"runs", "0"}, (by, name, kind, said)
            k3s.kubectl("delete", "pod", "-n", namespace, f"{name}-{kind}", "--now", "--wait=true")
