"""NVIDIA's own nvidia-smi in containers of a real k3s: it shows one card, its UUID, the limit.

It is the real nvidia-smi on simulated cards: that of the newest branch that `make driver` has fetched. It comes into
containers by the plugin, as the driver's own tool, and asks the limiter's NVML.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from driver.cache import Unpacked
from driver.pins import read_pins
from e2e.conftest import LOGS, SERVER, units
from e2e.k3s import EXTENDER, K3s
from e2e.manifests import Manifest, container, deployment, pod_spec
from e2e.memoryclient import make_memory_client
from e2e.realsmi import LABEL, lay, need_newest
from kits.daily import of_the_day
from lab.labkit import wait_until

from edgegpu_core.podview import CARDS_ANNOTATION, read_cards
from edgegpu_sim.driver import SimCard, SimVersions, make_card

pytestmark = pytest.mark.daily

ROOT = Path(__file__).resolve().parents[2]
QUERY = ("--query-gpu=uuid,memory.total,memory.used", "--format=csv")
UNIT_MIB, TAKEN_MIB = 256, 100
PICTURES = "nvidia-smi.txt"


@pytest.fixture(scope="module")
def real() -> Unpacked:
    return need_newest()


@pytest.fixture(scope="module")
def client() -> Path:
    """Return the folder with a program that takes card memory."""
    return make_memory_client(LOGS / "client")


@pytest.fixture(params=of_the_day(["cdi", "devices"], parts=2))
def node(k3s: K3s, limiter_build: Path, request: pytest.FixtureRequest) -> Iterator[K3s]:
    """Have the limiter hold containers in this injection mode; the default again afterwards."""
    isolation = {"mode": "limiter", "context_mib": 0, "libraries": str(limiter_build)}
    k3s.nodes[SERVER].configure(extender={"listen": EXTENDER}, driver={"injection": request.param}, isolation=isolation)
    yield k3s
    k3s.nodes[SERVER].stop()
    k3s.nodes[SERVER].configure(extender={"listen": EXTENDER})


def insert(k3s: K3s, real: Unpacked, *mib: int) -> tuple[SimCard, ...]:
    """Put cards into the first node, with the real nvidia-smi, and return them; the other node gets none."""
    cards = tuple(make_card(index, "NVIDIA Tesla P4", size) for index, size in enumerate(mib))
    for each in k3s.nodes.values():
        each.stop()
    node = k3s.nodes[SERVER]
    node.insert_cards(cards, SimVersions(driver=real.branch.version))
    assert node.driver is not None
    lay(real, node.driver)
    node.start()
    k3s.wait_allocatable(SERVER, units(cards), 100 * len(cards))
    wait_until(lambda: _has_passed(k3s), what="the node's self-test has passed")
    return cards


def _has_passed(k3s: K3s) -> bool:
    rows = k3s.nodes[SERVER].status()["selftest"]["cards"]
    return bool(rows) and {row["verdict"] for row in rows} == {"passed"}


def service(name: str, memory: int, client: Path, *, namespace: str) -> Manifest:
    """Return a service that has so many units and takes 100 MiB of its card at once."""
    mounts = [{"name": "client", "mountPath": "/client", "readOnly": True}]
    main = container(
        memory=memory, core=1, volumeMounts=mounts, args=["/client/memory_client", "--keep", str(TAKEN_MIB)]
    )
    spec = pod_spec(main, volumes=[{"name": "client", "hostPath": {"path": str(client)}}])
    return deployment(name, spec, namespace=namespace)


def smi(k3s: K3s, pod: Manifest, *arguments: str) -> list[str]:
    """Return the lines that nvidia-smi prints in a pod."""
    meta = pod["metadata"]
    return k3s.kubectl("exec", "-n", meta["namespace"], meta["name"], "--", "nvidia-smi", *arguments).splitlines()


def seen_by(k3s: K3s, pod: Manifest) -> tuple[str, int]:
    """Return the UUID and the MiB of the one card that three screens of nvidia-smi show alike."""
    wait_until(lambda: smi(k3s, pod, *QUERY)[1].endswith(f", {TAKEN_MIB} MiB"), what="its memory is taken")
    heading, row = smi(k3s, pod, *QUERY)
    assert heading == "uuid, memory.total [MiB], memory.used [MiB]"
    uuid, total = re.fullmatch(rf"(GPU-\S+), (\d+) MiB, {TAKEN_MIB} MiB", row).groups()  # type: ignore[union-attr]
    assert smi(k3s, pod, "-L") == [f"GPU 0: NVIDIA Tesla P4 (UUID: {uuid})"]
    assert re.findall(r"(\d+)MiB / +(\d+)MiB", "\n".join(smi(k3s, pod))) == [(str(TAKEN_MIB), total)]
    return uuid, int(total)


def check(k3s: K3s, name: str, memory: int, *, namespace: str) -> str:
    """Return the card of a running service, after checking that nvidia-smi shows this card at the limit's size."""
    pod = k3s.wait_phase(namespace, name, "Running")
    uuid, total_mib = seen_by(k3s, pod)
    noted = read_cards(pod["metadata"]["annotations"][CARDS_ANNOTATION], pod["metadata"]["uid"], SERVER)
    assert noted == {"main": (uuid,)}
    assert total_mib == memory * UNIT_MIB
    return uuid


def test_three_services_on_one_card(node: K3s, real: Unpacked, client: Path, namespace: str) -> None:
    (card,) = insert(node, real, 24259)
    sizes = {"fifty": 50, "forty": 40, "one": 1}
    node.apply(*(service(name, size, client, namespace=namespace) for name, size in sizes.items()))
    assert {check(node, name, size, namespace=namespace) for name, size in sizes.items()} == {card.uuid}


def test_services_over_two_cards_and_the_pictures_of_documents(
    node: K3s, real: Unpacked, client: Path, namespace: str
) -> None:
    first, second = insert(node, real, 7611, 7611)
    seen = {}
    for name, size in {"counter": 4, "detector": 20, "tracker": 20}.items():
        node.apply(service(name, size, client, namespace=namespace))
        seen[name] = check(node, name, size, namespace=namespace)
    assert seen == {"counter": first.uuid, "detector": first.uuid, "tracker": second.uuid}
    counter = node.the_pod(namespace, "counter")
    lines = "".join(f"{line}\n" for line in [LABEL, *smi(node, counter, "-L"), *smi(node, counter, *QUERY)])
    screen = screen_of(smi(node, counter))
    (LOGS / PICTURES).write_text(lines + screen)
    pictures = {"README.md": lines, "README.zh-CN.md": lines}
    if real.branch == read_pins().branches[-1]:  # an older one draws another screen
        pictures["docs/box/isolation.md"] = screen
    stale = [name for name, picture in pictures.items() if picture not in (ROOT / name).read_text()]
    assert stale == [], f"another picture is in build/e2e/{PICTURES}: put it into these documents"


def screen_of(lines: list[str]) -> str:
    """Return what the document shows: the label, and nvidia-smi's screen as far as the cards, without its time."""
    begin = next(at for at, line in enumerate(lines) if line.startswith("+--"))
    end = next(at for at, line in enumerate(lines) if at > begin and not line.strip())
    return "".join(f"{line.rstrip()}\n" for line in [LABEL, *lines[begin:end]])
