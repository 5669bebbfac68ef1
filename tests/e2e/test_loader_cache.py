"""What `ldconfig -p` and the loader of an image find of the driver, on a real kubelet, containerd and runc."""

import json
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.conftest import LOGS, SERVER, insert_cards
from e2e.k3s import EXTENDER, K3s
from e2e.manifests import Manifest, container, pod, pod_spec
from e2e.plugin_node import cards
from lab.mkimage import write_image

from edgegpu_plugin.containers.image.loader_cache import find_program

IMAGE = "edgegpu-ldconfig:lab"
FOLDER = f"/usr/lib/{platform.machine()}-linux-gnu"
LOADER = Path("/lib64/ld-linux-x86-64.so.2")
BUSYBOX = Path("/bin/busybox")
LISTED = f"libcuda.so.1 (libc6,x86-64) => {FOLDER}/libcuda.so.1"
LIBRARIES = ("libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1")
BY_CACHE = re.compile(rf"search cache=/etc/ld\.so\.cache\n[^\n]*trying file={FOLDER}/libcuda\.so\.1\n")
"""What glibc's loader says with LD_DEBUG=libs when it takes a library from the cache."""
READ_ONLY = {"readOnlyRootFilesystem": True}
NOBODY = {"runAsUser": 65534, "runAsGroup": 65534, "allowPrivilegeEscalation": False}


@pytest.fixture(scope="module")
def image(k3s: K3s) -> str:
    """Return an image with glibc, ldconfig, a loader cache of its own, and a program that opens the driver."""
    LOGS.mkdir(parents=True, exist_ok=True)
    program, archive, cache = LOGS / "opener", LOGS / "ldconfig.tar", LOGS / "ld.so.cache"
    subprocess.run(["cc", "-O1", "-o", program, Path(__file__).with_name("driver_opener.c"), "-ldl"], check=True)
    subprocess.run(["/sbin/ldconfig", "-X", "-C", cache], check=True)
    lib = f"/lib/{platform.machine()}-linux-gnu"
    files = {f"{lib}/{name}": Path(lib, name) for name in LIBRARIES}
    files |= {str(LOADER): LOADER, "bin/busybox": BUSYBOX, "sbin/ldconfig": Path("/sbin/ldconfig")}
    files |= {"opener": program, "etc/ld.so.cache": cache}
    items = [f"{name}={path.resolve()}" for name, path in files.items()]
    items += [f"bin/{name}->busybox" for name in ("sh", "sleep", "env", "stat")]
    write_image(archive, name=IMAGE, entrypoint=["/bin/sh"], items=[*items, "tmp/"], machine=platform.machine())
    k3s.nodes[SERVER].lab.exec("k3s", "ctr", "-n", "k8s.io", "images", "import", str(archive))
    return IMAGE


@pytest.fixture(scope="module")
def node(k3s: K3s, limiter_build: Path) -> Iterator[K3s]:
    """Yield the cluster with a card in its server, and containers that the limiter holds."""
    isolation = {"mode": "limiter", "libraries": str(limiter_build), "pods_may": ["none"]}
    k3s.nodes[SERVER].configure(extender={"listen": EXTENDER}, isolation=isolation)
    insert_cards(k3s, {SERVER: cards(7611)})
    yield k3s
    k3s.nodes[SERVER].configure(extender={"listen": EXTENDER})
    insert_cards(k3s, {SERVER: cards(7611)})


def waiting(image: str, **more: object) -> Manifest:
    command = ("/bin/sh", "-c", "trap 'exit 0' TERM; sleep 2147483647 & wait")
    return container(memory=4, core=10, command=command) | {"image": image} | more


def run(k3s: K3s, namespace: str, name: str, *command: str) -> str:
    return k3s.kubectl("exec", "-n", namespace, name, "--", *command, check=False)


@pytest.mark.parametrize("annotations", [None, {"edgegpu.io/isolation": "none"}], ids=["held", "not held"])
@pytest.mark.parametrize("context", [{}, READ_ONLY, NOBODY | READ_ONLY], ids=["root", "read-only", "nobody"])
def test_programs_that_ask_ldconfig_find_the_driver(
    node: K3s, namespace: str, image: str, context: dict[str, object], annotations: dict[str, str] | None
) -> None:
    spec = pod_spec(waiting(image, securityContext=context))
    node.apply(pod("asks", spec, namespace=namespace, annotations=annotations))
    node.wait_phase(namespace, "asks", "Running")
    listed = run(node, namespace, "asks", "/sbin/ldconfig", "-p")
    assert LISTED in listed
    assert f"libc.so.6 (libc6,x86-64) => /lib/{platform.machine()}-linux-gnu/libc.so.6" in listed, "the image's own"
    looked = run(node, namespace, "asks", "sh", "-c", "LD_DEBUG=libs /opener once 2>&1")
    assert "opened" in looked
    assert BY_CACHE.search(looked), looked
    assert run(node, namespace, "asks", "stat", "-c", "%u %a", "/etc/ld.so.cache").split() == ["0", "644"]


def bundle(folder: Path, *, user: int, read_only: bool) -> Path:
    """Make a bundle of a container that asks ldconfig, in a user namespace where its root is another user's."""
    shutil.rmtree(folder, ignore_errors=True)
    root = folder / "rootfs"
    for name in ("etc", "proc", "dev", "sbin", FOLDER[1:]):
        (root / name).mkdir(parents=True)
    shutil.copy("/sbin/ldconfig", root / "sbin")
    subprocess.run(["/sbin/ldconfig", "-X", "-C", root / "etc/ld.so.cache"], check=True)
    (root / FOLDER[1:] / "libcuda.so.1").write_bytes(b"")
    subprocess.run(["chown", "-R", f"{user}:{user}", root], check=True)
    linux: Manifest = {"namespaces": [{"type": kind} for kind in ("mount", "pid", "ipc", "uts")]}
    if user:
        linux["namespaces"].append({"type": "user"})
        linux |= {key: [{"containerID": 0, "hostID": user, "size": 65536}] for key in ("uidMappings", "gidMappings")}
    config = {
        "ociVersion": "1.0.2",
        "process": {"user": {"uid": 0, "gid": 0}, "args": ["/sbin/ldconfig", "-p"], "cwd": "/", "env": []},
        "root": {"path": "rootfs", "readonly": read_only},
        "mounts": [{"destination": "/proc", "type": "bind", "source": "/proc", "options": ["rbind"]}],
        "linux": linux,
        "hooks": {"createContainer": [{"path": str(find_program()), "args": ["hook", FOLDER, "--", "libcuda.so.1"]}]},
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("read_only", [False, True], ids=["", "read-only"])
@pytest.mark.parametrize("user", [0, 100_000], ids=["", "user namespace"])
def test_the_runtime_runs_the_hook_before_the_root_is_closed(k3s: K3s, user: int, *, read_only: bool) -> None:
    """By runc alone: the lab's containerd gives no pod a user namespace (hostUsers: false)."""
    folder = bundle(LOGS / "bundle", user=user, read_only=read_only)
    command = ("runc", "--root", "/run/edgegpu-hook", "run", "-b", str(folder), f"hook-{user}-{read_only}")
    assert LISTED in k3s.nodes[SERVER].lab.exec(*command).stdout
    assert (folder / "rootfs/etc/ld.so.cache").stat().st_uid == user


def test_an_image_without_a_cache_starts_and_gets_none(node: K3s, namespace: str) -> None:
    node.apply(pod("plain", pod_spec(container(memory=4, core=10)), namespace=namespace))
    node.wait_phase(namespace, "plain", "Running")
    assert run(node, namespace, "plain", "ls", "/etc/ld.so.cache") == ""
    assert len(node.sees(namespace, "plain")) == 1


def test_a_hook_that_the_runtime_could_not_run_keeps_no_container_from_starting(
    node: K3s, namespace: str, image: str
) -> None:
    """The program goes while pods are there, as in an installation that was damaged; each start makes the spec anew."""
    lab, program = node.nodes[SERVER].lab, str(find_program())
    node.apply(pod("before", pod_spec(waiting(image)), namespace=namespace))
    node.wait_phase(namespace, "before", "Running")
    empty = LOGS / "no-program"
    empty.write_bytes(b"")
    empty.chmod(0o755)
    lab.exec("mount", "--bind", str(empty), program)
    try:
        node.apply(pod("without", pod_spec(waiting(image)), namespace=namespace))
        node.wait_phase(namespace, "without", "Running")
        assert "libcuda" not in run(node, namespace, "without", "/sbin/ldconfig", "-p")
        assert "opened" in run(node, namespace, "without", "/opener", "once")
    finally:
        lab.exec("umount", program)
    assert "do not find the driver in new containers" in node.nodes[SERVER].log_file.read_text()
