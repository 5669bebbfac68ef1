"""Twelve popular images' settings in a real k3s: each sees one card, its limit, and gets no more than that.

The pods are those of docs/examples/images.yaml, on small images of the same settings (popular_images.py). Where the
real nvidia-smi is at hand (realsmi.py) it comes into them; else that of the simulated driver.
"""

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from driver.cache import Unpacked
from e2e.conftest import LOGS, SERVER, units
from e2e.k3s import EXTENDER, K3s
from e2e.manifests import CORE, MEMORY, Manifest
from e2e.popular_images import TAKEN_MIB, PopularImage, popular_images, write_popular
from e2e.realsmi import lay, need_newest, newest
from kits.daily import of_the_day
from lab.labkit import LabError, wait_until

from edgegpu_core.podview import CARDS_ANNOTATION, read_cards
from edgegpu_sim.cards import SimVersions
from edgegpu_sim.driver import make_card

pytestmark = pytest.mark.daily

EXAMPLE = Path(__file__).resolve().parents[2] / "docs/examples/images.yaml"
NAMESPACE = "popular-images"
UNITS, PERCENT = 4, 10
LIMIT_MIB = UNITS * 256
LEFT_MIB = LIMIT_MIB - TAKEN_MIB
OOM, OK = "2", "0"
CAPABILITIES = "edgegpu.io/capabilities"
VIDEO_LIBRARIES = ("libnvcuvid.so.1", "libnvidia-encode.so.1")
CARDS = tuple(make_card(index, "NVIDIA Tesla P4", 15360) for index in range(2))
IMAGES = popular_images()
BY_CACHE = [name for name, image in IMAGES.items() if image.opens == "cache"]
FOR_VIDEO = [name for name, image in IMAGES.items() if image.video]
WITH_ANOTHER = [name for name, image in IMAGES.items() if image.loads_another]
WITHOUT = [name for name in IMAGES if name not in WITH_ANOTHER]


def example(name: str) -> Manifest:
    """Return the Deployment of the documents, with the small image and amounts by which all fit on two cards."""
    manifests = {each["metadata"]["name"]: each for each in yaml.safe_load_all(EXAMPLE.read_text())}
    manifest: Manifest = manifests[name]
    spec = manifest["spec"]["template"]["spec"]
    spec |= {"terminationGracePeriodSeconds": 2, "enableServiceLinks": False}
    (main,) = spec["containers"]
    main |= {"image": IMAGES[name].reference, "imagePullPolicy": "IfNotPresent"}
    main["resources"] = {"limits": {MEMORY: str(UNITS), CORE: str(PERCENT)}}
    manifest["metadata"]["namespace"] = NAMESPACE
    return manifest


def unannotated(name: str) -> Manifest:
    """Return the Deployment of an image as its users have it: nothing of edgegpu's but the two amounts."""
    manifest = example(name)
    template, plain = manifest["spec"]["template"], f"{name}-plain"
    del template["metadata"]["annotations"]
    manifest["metadata"]["name"] = template["metadata"]["labels"]["app"] = plain
    manifest["spec"]["selector"]["matchLabels"]["app"] = plain
    return manifest


def privileged() -> Manifest:
    """Return Frigate's Deployment as its own compose file has it: privileged, and in the machine's process ids."""
    manifest = unannotated("frigate")
    template = manifest["spec"]["template"]
    manifest["metadata"]["name"] = template["metadata"]["labels"]["app"] = "frigate-privileged"
    manifest["spec"]["selector"]["matchLabels"]["app"] = "frigate-privileged"
    template["spec"]["hostPID"] = True
    template["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    return manifest


def lay_video(folder: Path, version: str) -> None:
    """Give the simulated driver libraries for video, which it has none of: they can be opened, and no more."""
    for soname in VIDEO_LIBRARIES:
        path = folder / f"{soname.removesuffix('.1')}.{version}"
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", f"-Wl,-soname,{soname}", "-o", str(path)]
        subprocess.run(command, input="", text=True, check=True)
        (folder / soname).unlink(missing_ok=True)
        (folder / soname).symlink_to(path.name)


@pytest.fixture(scope="module")
def imported(k3s: K3s, simdriver_build: Path) -> None:
    """Have the small images in the node."""
    work, archive = LOGS / "popular", LOGS / "popular.tar"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    write_popular(archive, work, driver=simdriver_build / "libcuda.so.1")
    shutil.rmtree(work)
    k3s.nodes[SERVER].lab.exec("k3s", "ctr", "-n", "k8s.io", "images", "import", str(archive), timeout_s=120)


@pytest.fixture(scope="module", params=of_the_day(["cdi", "devices"], parts=2))
def cluster(k3s: K3s, limiter_build: Path, imported: None, request: pytest.FixtureRequest) -> Iterator[K3s]:
    """Run the pods of all images at once on one node that holds containers, in this injection mode."""
    assert imported is None
    node, real = k3s.nodes[SERVER], newest()
    isolation = {"mode": "limiter", "context_mib": 0, "libraries": str(limiter_build)}
    isolation |= {"capabilities": ["graphics", "video"]}
    for each in k3s.nodes.values():
        each.stop()
    node.configure(extender={"listen": EXTENDER}, driver={"injection": request.param}, isolation=isolation)
    versions = SimVersions(driver=real.branch.version) if real is not None else SimVersions()
    lay_driver(k3s, real, versions)
    node.start()
    k3s.wait_allocatable(SERVER, units(CARDS), 100 * len(CARDS))
    wait_until(lambda: has_passed(k3s), what="the node's self-test has passed")
    k3s.kubectl("create", "namespace", NAMESPACE)
    k3s.apply(*map(example, IMAGES), *map(unannotated, FOR_VIDEO), privileged())
    yield k3s
    k3s.clear(NAMESPACE)
    k3s.kubectl("delete", "namespace", NAMESPACE)
    node.stop()
    for path in node.driver.libraries.iterdir() if node.driver is not None else ():
        if path.name.startswith(("libnvcuvid", "libnvidia-encode")):
            path.unlink()
    node.configure(extender={"listen": EXTENDER})


def lay_driver(k3s: K3s, real: Unpacked | None, versions: SimVersions) -> None:
    """Lay two cards, libraries for video, and the real nvidia-smi where there is one."""
    node = k3s.nodes[SERVER]
    node.insert_cards(CARDS, versions)
    assert node.driver is not None
    lay_video(node.driver.libraries, versions.driver)
    if real is not None:
        lay(real, node.driver)


def has_passed(k3s: K3s) -> bool:
    rows = k3s.nodes[SERVER].status()["selftest"]["cards"]
    return bool(rows) and {row["verdict"] for row in rows} == {"passed"}


def shell(k3s: K3s, pod: Manifest, line: str) -> list[str]:
    """Run a line in a pod's container, as its user and in its environment."""
    return k3s.kubectl("exec", "-n", NAMESPACE, pod["metadata"]["name"], "--", "/bin/sh", "-c", line).splitlines()


def ask(k3s: K3s, pod: Manifest, driver: str) -> list[str]:
    """Let a program ask for 1 MiB more than is left and then for what is left; its answers."""
    return shell(k3s, pod, f'DRIVER="{driver}" /usr/local/bin/memory_client {LEFT_MIB + 1} {LEFT_MIB} || true')


def asked_by_name(k3s: K3s, pod: Manifest) -> list[str]:
    """Ask by the driver's name, as most programs do; a program that finds no driver that works says so."""
    return ask(k3s, pod, "libcuda.so.1")


def isolation(k3s: K3s, pod: Manifest, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait until the plugin's word of a pod's container fits, and return it."""
    name = pod["metadata"]["name"]

    def probe() -> dict[str, Any]:
        rows = [row for row in k3s.nodes[SERVER].status()["pods"] if row["pod"] == name]
        state = dict(rows[0].get("isolation") or {}) if rows else {}
        if not state or not fits(state):
            raise LabError(f"{name} is {json.dumps(state)}")
        return state

    return wait_until(probe, what=f"the plugin's word of {name} fits")


def card_of(pod: Manifest) -> str:
    """Return the card on which a pod was placed."""
    meta = pod["metadata"]
    cards = read_cards(meta["annotations"][CARDS_ANNOTATION], meta["uid"], SERVER)
    assert cards is not None
    (uuid,) = cards["main"]
    return uuid


def reason(k3s: K3s, pod: Manifest) -> str:
    """Return why the plugin does not count a pod's container as held; empty where it does, or does not know yet."""
    rows = [row for row in k3s.nodes[SERVER].status()["pods"] if row["pod"] == pod["metadata"]["name"]]
    return str((rows[0].get("isolation") or {}).get("reason", "")) if rows else ""


SCREENS = """id -u; echo "$LD_LIBRARY_PATH"
nvidia-smi -L; nvidia-smi --query-gpu=uuid,memory.total --format=csv,noheader"""


def check_screens(k3s: K3s, app: str, image: PopularImage) -> Manifest:
    """Return an app's pod, whose user and nvidia-smi were checked: one card, of the size of the limit."""
    pod = k3s.wait_phase(NAMESPACE, app, "Running")
    uuid = card_of(pod)
    assert shell(k3s, pod, SCREENS) == [
        str(image.uid),
        image.env.get("LD_LIBRARY_PATH", ""),
        f"GPU 0: NVIDIA Tesla P4 (UUID: {uuid})",
        f"{uuid}, {LIMIT_MIB} MiB",
    ]
    return pod


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_runs_as_its_user_and_sees_one_card_at_its_limit(cluster: K3s, name: str) -> None:
    pod = check_screens(cluster, name, IMAGES[name])
    own = next(index for index, card in enumerate(CARDS) if card.uuid == card_of(pod))
    assert shell(cluster, pod, "ls -d /dev/nvidia[0-9]*") == [f"/dev/nvidia{own}"]


def test_the_nvidia_smi_in_them_is_nvidias_own(cluster: K3s) -> None:
    """Where it is not at hand, the simulated driver's is asked above, and this test says so by being skipped."""
    program = need_newest().program("nvidia-smi")
    assert program is not None
    own = hashlib.sha256(program.read_bytes()).hexdigest()
    pods = [cluster.wait_phase(NAMESPACE, name, "Running") for name in IMAGES]
    inside = {shell(cluster, pod, 'sha256sum "$(command -v nvidia-smi)"')[0].split()[0] for pod in pods}
    assert inside == {own}


def test_the_images_are_on_both_cards(cluster: K3s) -> None:
    pods = [cluster.wait_phase(NAMESPACE, name, "Running") for name in IMAGES]
    assert {card_of(pod) for pod in pods} == {card.uuid for card in CARDS}


@pytest.mark.parametrize("name", WITHOUT)
def test_an_image_gets_its_limit_and_no_more(cluster: K3s, name: str) -> None:
    pod, image = cluster.wait_phase(NAMESPACE, name, "Running"), IMAGES[name]
    wait_taken(cluster, pod)
    assert ask(cluster, pod, image.driver if image.opens == "path" else "libcuda.so.1") == [OOM, OK]
    state = "degraded" if image.video else "enforced"
    word = isolation(cluster, pod, lambda word: word["state"] == state)
    if image.video:
        assert word["reason"].startswith("its pod has opened "), word


@pytest.mark.parametrize("name", WITH_ANOTHER)
def test_an_image_that_loads_a_driver_of_its_own_is_held_in_its_next_pod(cluster: K3s, name: str) -> None:
    """What an image brings is known once it has run; where it was known before, its first pod is held."""
    pod = cluster.wait_phase(NAMESPACE, name, "Running")

    def known() -> bool:
        return asked_by_name(cluster, pod) == [OOM, OK] or "driver of its own" in reason(cluster, pod)

    wait_until(known, what=f"{name} is held, or known not to be")
    if asked_by_name(cluster, pod) != [OOM, OK]:
        cluster.kubectl("delete", "pod", "-n", NAMESPACE, pod["metadata"]["name"])
        pod = cluster.wait_phase(NAMESPACE, name, "Running")
        wait_taken(cluster, pod)
    assert asked_by_name(cluster, pod) == [OOM, OK]


@pytest.mark.parametrize("name", BY_CACHE)
def test_a_program_that_asks_the_loader_s_cache_is_held(cluster: K3s, name: str) -> None:
    pod = cluster.wait_phase(NAMESPACE, name, "Running")
    wait_taken(cluster, pod)
    path = "".join(shell(cluster, pod, f"echo {IMAGES[name].driver}"))
    assert re.match(r"(/usr)?/lib(64)?/", path), f"the cache names {path or 'no driver'}"
    assert ask(cluster, pod, path) == [OOM, OK]


@pytest.mark.parametrize("name", FOR_VIDEO)
def test_video_is_there_for_those_who_ask(cluster: K3s, name: str) -> None:
    asked, plain = (cluster.wait_phase(NAMESPACE, app, "Running") for app in (name, f"{name}-plain"))
    for library in VIDEO_LIBRARIES:
        assert opens(cluster, asked, library)
        assert not opens(cluster, plain, library)


@pytest.mark.parametrize("name", FOR_VIDEO)
def test_an_image_that_wants_video_and_does_not_ask_is_told_how(cluster: K3s, name: str) -> None:
    cluster.wait_phase(NAMESPACE, f"{name}-plain", "Running")
    events = cluster.wait_event(NAMESPACE, f"{name}-plain", CAPABILITIES)
    assert "video" in events


def test_a_privileged_container_in_the_machine_s_process_ids_is_held(cluster: K3s) -> None:
    pod = check_screens(cluster, "frigate-privileged", IMAGES["frigate"])
    wait_taken(cluster, pod)
    assert asked_by_name(cluster, pod) == [OOM, OK]
    assert isolation(cluster, pod, lambda word: word["state"] == "enforced")["reason"] == ""


def opens(k3s: K3s, pod: Manifest, library: str) -> bool:
    """Return whether the loader of an image opens a library: the program opens it, and then misses a function."""
    said = shell(k3s, pod, f"DRIVER={library} /usr/local/bin/memory_client 1 2>&1; true")
    return said == ["no cuInit"]


def wait_taken(k3s: K3s, pod: Manifest) -> None:
    """Wait until the pod's own program has what it takes at once."""

    def probe() -> bool:
        used = "nvidia-smi --query-gpu=memory.used --format=csv,noheader"
        return shell(k3s, pod, used) == [f"{TAKEN_MIB} MiB"]

    wait_until(probe, what=f"{pod['metadata']['name']} has taken its memory")
