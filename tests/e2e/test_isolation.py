"""The limiter in containers of a real kubelet and containerd: what a pod gets, and what it sees of its card."""

import datetime as dt
import json
import re
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from e2e.conftest import LOGS, SERVER, insert_cards
from e2e.k3s import EXTENDER, K3s
from e2e.manifests import Manifest, container, pod, pod_spec
from e2e.memoryclient import make_memory_client
from e2e.plugin_node import cards
from kits.daily import of_the_day
from lab.labkit import LabError, wait_until

from edgegpu_base.http_unix import ChangeRequest, send
from edgegpu_plugin.containers.usage_file import USAGE_BYTES
from edgegpu_sim.cards import SimVersions

pytestmark = pytest.mark.daily

UNITS, CONTEXT_MIB = 4, 64
LIMIT_MIB = UNITS * 256
OOM = "2"
FOLDERS = "/run/edgegpu/containers"


@pytest.fixture(scope="module")
def client(simdriver_build: Path) -> Path:
    """Return the folder with a program that asks for card memory, and a copy of a library for graphics.

    Containers mount it.
    """
    folder = make_memory_client(LOGS / "client")
    (folder / "graphics").mkdir(exist_ok=True)
    shutil.copy(simdriver_build / "libGLX_nvidia.so.0", folder / "graphics")
    lies = (f"card {card.uuid} memory_bytes={1 << 40} context_bytes=0 policy=strict" for card in cards(7611))
    (folder / "liar").write_text("\n".join(["edgegpu-limits 1", *lies, ""]))
    return folder


@pytest.fixture
def by(k3s: K3s, limiter_build: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Have the limiter hold containers, in this injection mode, and as it is by default afterwards.

    `cdi kill`: what goes past the limiter is killed.
    """
    node, (mode, _, policy) = k3s.nodes[SERVER], str(request.param).partition(" ")
    isolation = {"mode": "limiter", "context_mib": CONTEXT_MIB, "libraries": str(limiter_build), "pods_may": ["none"]}
    isolation |= {"on_bypass": policy or "report"}
    node.lab.path("/var/lib/edgegpu/images.json").unlink(missing_ok=True)  # what was found of the lab's one image
    node.configure(extender={"listen": EXTENDER}, driver={"injection": mode}, isolation=isolation)
    insert_cards(k3s, {SERVER: cards(7611)})
    wait_until(lambda: _has_passed(k3s), what="the node's self-test has passed")
    yield mode
    node.configure(extender={"listen": EXTENDER})
    insert_cards(k3s, {SERVER: cards(7611)})


def _has_passed(k3s: K3s) -> bool:
    rows = k3s.nodes[SERVER].status()["selftest"]["cards"]
    return bool(rows) and {row["verdict"] for row in rows} == {"passed"}


HELD = (
    ("/client/memory_client",),
    ("env", "-i", "/client/memory_client"),
    ("env", "LD_LIBRARY_PATH=/lib64", "/client/memory_client_static"),
    ("env", "LD_PRELOAD=libcuda.so.1", "/client/memory_client"),
    ("unshare", "-Urm", "/client/memory_client"),
    ("env", "LD_PRELOAD=/client/liar.so", "LIAR_LIMITER=64", "LIAR_LIMITS=/client/liar", "/client/memory_client"),
)
"""How a program is started that the limiter holds all the same.

The last preloads a library that stands in for functions of libc, and tells of other limits: to what lies in a folder
for libraries of 64 bits, and so not to the driver.
"""


def held(*command: str, **more: Any) -> Manifest:  # noqa: ANN401  (fields of a container)
    """Return a container with four units that has the program; it runs a command, or waits."""
    mounts = [{"name": "client", "mountPath": "/client", "readOnly": True}]
    if command:
        more["args"] = list(command)
    return container(memory=UNITS, core=10, volumeMounts=mounts, **more)


def spec_of(client: Path, *containers: Manifest) -> Manifest:
    return pod_spec(*containers, volumes=[{"name": "client", "hostPath": {"path": str(client)}}])


def run(k3s: K3s, namespace: str, name: str, *command: str) -> list[str]:
    return k3s.kubectl("exec", "-n", namespace, name, "--", *command).split()


def folders(k3s: K3s) -> list[Path]:
    root = k3s.nodes[SERVER].lab.path(FOLDERS)
    return sorted(root.iterdir()) if root.exists() else []


def isolation(k3s: K3s, name: str) -> dict[str, Any]:
    """Return the isolation of a pod's one container as the plugin reports it, which has just started perhaps."""

    def found() -> dict[str, Any]:
        rows = [row for row in k3s.nodes[SERVER].status()["pods"] if row["pod"] == name]
        return dict(rows[0].get("isolation") or {}) if rows else {}

    return wait_until(found, what=f"the plugin knows the pod {name}")


@pytest.mark.parametrize("by", of_the_day(["cdi", "devices"], parts=2), indirect=True)
def test_a_container_gets_its_memory_and_not_more(k3s: K3s, namespace: str, client: Path, by: str) -> None:
    k3s.apply(pod("held", spec_of(client, held()), namespace=namespace))
    k3s.wait_phase(namespace, "held", "Running")
    assert k3s.nodes[SERVER].status()["injection"]["mode"] == by
    left = LIMIT_MIB - CONTEXT_MIB
    assert run(k3s, namespace, "held", "/client/memory_client", str(left), "1") == ["0", OOM]
    assert run(k3s, namespace, "held", "/client/memory_client", str(left + 1), str(left)) == [OOM, "0"]
    for way in HELD:
        assert run(k3s, namespace, "held", *way, str(left + 1), str(left)) == [OOM, "0"], way
    query = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
    assert run(k3s, namespace, "held", *query) == [str(LIMIT_MIB)]
    with pytest.raises(LabError):
        run(k3s, namespace, "held", "sh", "-c", "echo > /run/edgegpu/container/limits")
    found = isolation(k3s, "held")
    assert (found["state"], [card["limit_mib"] for card in found["cards"]]) == ("enforced", [LIMIT_MIB])
    assert [card["core_percent"] for card in found["cards"]] == [10]
    assert [card["refusals"] for card in found["cards"]] == [2 + len(HELD)]


@pytest.mark.parametrize("by", ["cdi"], indirect=True)
def test_what_the_driver_counts_beyond_the_container_s_count_is_counted(
    k3s: K3s, namespace: str, client: Path, by: str
) -> None:
    """A context takes 96 MiB more than the plugin believes; the driver's list says it, less what it may round up."""
    assert by == "cdi"
    node, took, unseen = k3s.nodes[SERVER], 700, 80
    node.stop()
    node.insert_cards(cards(7611), SimVersions(context_mib=CONTEXT_MIB + 96))
    node.start()
    k3s.apply(pod("more", spec_of(client, held("/client/memory_client", "--keep", str(took))), namespace=namespace))
    k3s.wait_phase(namespace, "more", "Running")

    def counted() -> bool:
        return bool(isolation(k3s, "more")["cards"][0]["counted_mib"] == CONTEXT_MIB + took + unseen)

    left = LIMIT_MIB - unseen - took - 2 * CONTEXT_MIB
    for mib, status in ((left + 1, OOM), (left, "0")):
        wait_until(counted, what="the driver's count is charged")
        assert run(k3s, namespace, "more", "/client/memory_client", str(mib)) == [status]


@pytest.mark.parametrize("by", ["cdi"], indirect=True)
def test_pods_that_are_alike_but_for_their_choice_get_what_they_choose(
    k3s: K3s, namespace: str, client: Path, by: str
) -> None:
    assert by == "cdi"
    choices = {f"{choice or 'plain'}-{number}": choice for number in range(2) for choice in ("none", "limiter", "")}
    chosen = {name: {"edgegpu.io/isolation": choice} if choice else {} for name, choice in choices.items()}
    made = [pod(name, spec_of(client, held()), namespace=namespace) for name in chosen]
    for one in made:
        one["metadata"]["annotations"] = chosen[one["metadata"]["name"]]
    k3s.apply(*made)
    for name, choice in choices.items():
        k3s.wait_phase(namespace, name, "Running")
        took = run(k3s, namespace, name, "/client/memory_client", "1500")
        assert (isolation(k3s, name)["state"], took) == (("off", ["0"]) if choice == "none" else ("enforced", [OOM]))
    strong = pod("strong", spec_of(client, held()), namespace=namespace)
    strong["metadata"]["annotations"] = {"edgegpu.io/isolation": "strong"}
    k3s.apply(strong)
    wait_until(
        lambda: "there is no isolation 'strong'" in k3s.kubectl("describe", "pod", "-n", namespace, "strong"),
        what="the scheduler says why it waits",
    )


@pytest.mark.parametrize("by", ["cdi"], indirect=True)
def test_an_init_container_and_the_one_after_it_are_each_held_to_their_own_share(
    k3s: K3s, namespace: str, by: str
) -> None:
    """They have one folder, and kubelet's calls for the memory may be for either; which is first is chance."""
    assert by == "cdi"
    say = ("cat", "/run/edgegpu/container/limits")
    names = [f"handed-{number}" for number in range(4)]
    spec = pod_spec(container(memory=1, core=2), init=[container("first", 1, 5, command=say)])
    k3s.apply(*(pod(name, spec, namespace=namespace) for name in names))
    for name in names:
        k3s.wait_phase(namespace, name, "Running")
        assert "core_percent=5 " in k3s.kubectl("logs", "-n", namespace, name, "-c", "first")
        assert "core_percent=2 " in k3s.kubectl("exec", "-n", namespace, name, "-c", "main", "--", *say)


FOLLOWS_S = 1.0
"""Within which time: the limiter looks every 0.2 s, and the program asks every 0.1 s and says itself when."""


@pytest.mark.parametrize("by", ["cdi"], indirect=True)
def test_a_running_process_follows_its_limit(k3s: K3s, namespace: str, client: Path, by: str) -> None:
    assert by == "cdi"
    watching = held("/client/memory_client", "--watch", "1500")
    k3s.apply(pod("watch", spec_of(client, watching), namespace=namespace))
    k3s.wait_phase(namespace, "watch", "Running")
    limits = folders(k3s)[0] / "limits"

    def said(count: int) -> list[list[str]]:
        lines = [line.split() for line in k3s.kubectl("logs", "-n", namespace, "watch").splitlines()]
        if len(lines) < count:
            raise LabError(f"it says {lines}")
        return lines

    def put(mib: int) -> float:
        """Write the limit where it does not stand: at a container's begin the plugin writes its own once more."""
        text, wanted = limits.read_text(), f"memory_bytes={mib << 20}"
        if wanted in text.split():
            return 0.0
        fresh = limits.with_name("limits.new")
        fresh.write_text(re.sub("memory_bytes=[0-9]+", wanted, text))
        fresh.replace(limits)
        return time.time()

    def answer(count: int, mib: int, status: str) -> list[list[str]]:
        """Write it again where the plugin was faster: what it then says is no answer yet."""
        written_s.append(put(mib))
        if (lines := said(count))[-1][1] != status:
            raise LabError(f"it says {lines}")
        return lines

    assert wait_until(lambda: said(1), what="the first answer")[0][1] == OOM
    took_s, written_s = list[float](), list[float]()
    for count, (mib, status) in enumerate([(2048, "0"), (512, OOM)], start=2):
        line = wait_until(partial(answer, count, mib, status), what=f"the answer {status}", every_s=0.2)[-1]
        took_s.append(int(line[0]) / 1000 - max(written_s))
    k3s.report("limits_file_followed_s", took_s, limit=FOLLOWS_S, most=FOLLOWS_S, typical=FOLLOWS_S)
    assert max(took_s) < 10  # the figure is a fifth of a second and the pause between two questions

    def counted() -> bool:
        put(512)  # again where the plugin was faster: its own limit is too small for the program as well
        card = isolation(k3s, "watch")["cards"][0]
        return (card["limit_mib"], card["counted_mib"]) == (512, CONTEXT_MIB)

    wait_until(counted, what="the plugin reads 512 MiB, of which the context is counted", every_s=0.2)


def containers_of(item: Manifest) -> tuple[str, list[Manifest]]:
    """Return a pod's UID and what kubelet says of its containers, less their devices: those come in any order."""
    statuses = [{**status, "allocatedResourcesStatus": None} for status in item["status"]["containerStatuses"]]
    return item["metadata"]["uid"], statuses


@pytest.mark.parametrize("by", ["cdi"], indirect=True)
def test_a_live_limit_holds_the_running_container_and_touches_no_pod(
    k3s: K3s, namespace: str, client: Path, by: str
) -> None:
    assert by == "cdi"
    k3s.apply(pod("live", spec_of(client, held()), namespace=namespace))
    k3s.wait_phase(namespace, "live", "Running")
    before = uid, _ = containers_of(k3s.get("pod", "live", namespace=namespace))
    socket, card = k3s.nodes[SERVER].lab.path("/run/edgegpu/plugin.sock"), isolation(k3s, "live")["cards"][0]["card"]
    target = f"/v1/pods/{uid}/main/live-limit"

    def asks(mib: int) -> str:
        """Return what a new process in the running container gets that asks for so much at once."""
        return run(k3s, namespace, "live", "/client/memory_client", str(mib - CONTEXT_MIB))[0]

    for units in (2, 3, 1):
        body = json.dumps({"memory_units": {card: units}}).encode()
        assert send(socket, ChangeRequest("PUT", target, body), timeout_s=30)[0] == 200
        assert (asks(units * 256), asks(units * 256 + 1)) == ("0", OOM)
    refused = send(socket, ChangeRequest("PUT", target, json.dumps({"memory_units": {card: 5}}).encode()), timeout_s=30)
    assert refused[0] == 409
    assert send(socket, ChangeRequest("DELETE", target), timeout_s=30)[0] == 200
    assert (asks(LIMIT_MIB), asks(LIMIT_MIB + 1)) == ("0", OOM)
    assert containers_of(k3s.get("pod", "live", namespace=namespace)) == before


@pytest.mark.parametrize("by", ["cdi"], indirect=True)
def test_a_folder_lives_as_long_as_its_container(k3s: K3s, namespace: str, client: Path, by: str) -> None:
    assert by == "cdi"
    node = k3s.nodes[SERVER]
    k3s.apply(pod("gone", spec_of(client, held()), namespace=namespace))
    k3s.wait_phase(namespace, "gone", "Running")
    assert len(folders(k3s)) == 1
    node.kill()
    node.start()
    wait_until(lambda: node.status()["kubelet"]["registered"], what="the plugin is back")
    assert isolation(k3s, "gone")["state"] == "enforced"
    read = ("sh", "-c", "cat /run/edgegpu/container/state || :")
    wait_until(lambda: run(k3s, namespace, "gone", *read) == ["enforced"], what="it is told so inside")
    assert run(k3s, namespace, "gone", "/client/memory_client", "2000") == [OOM]
    k3s.clear(namespace)

    def no_folder() -> bool:
        return not folders(k3s)

    wait_until(no_folder, what="the folder is removed")


KEEP, DRIVER = "/client/memory_client --keep", "/run/edgegpu/container/driver"
NESTED = f"""\
mount -t tmpfs nested /tmp && cd /tmp && cp -a /bin /lib /lib64 /client . && cp {DRIVER}/* lib/*-linux-gnu/ || exit 1
mkdir dev proc var && mount --rbind /dev dev && mount --rbind /proc proc && mount --rbind /var var || exit 1
exec chroot . {KEEP} 1500"""
_OVER = f"for file in $(find /usr /lib -name 'libcuda.so*'); do mount --bind {DRIVER}/libcuda.so.1 $file; done"
PAST = {
    "folder": f"LD_LIBRARY_PATH={DRIVER} exec {KEEP} 1500",
    "preload": f"LD_PRELOAD={DRIVER}/libcuda.so.1 exec {KEEP} 1500",
    "dlopen": f"LD_PRELOAD=/client/replaces_dlopen.so exec {KEEP} 1500",
    "copy": f"cp {DRIVER}/* /tmp && LD_LIBRARY_PATH=/tmp exec {KEEP} 1500",
    "static": f"cp {DRIVER}/* /tmp && LD_LIBRARY_PATH=/tmp:/lib64 exec /client/memory_client_static --keep 1500",
    "graphics": "LD_LIBRARY_PATH=/client/graphics exec /client/memory_client --draw 1500",
    "namespace": f'unshare -Urm sh -c "{_OVER.replace("$", chr(92) + "$")}; exec {KEEP} 1500"',
    "nested": f"exec unshare -Urmpf sh -c '{NESTED}'",
    "privileged": f"{_OVER}; exec {KEEP} 1500",
}
"""How a container's author gets more than 1 GiB, which the limiter does not prevent: by the driver's own folder, as a
library that is loaded first, or from one that replaces `dlopen`, by a copy of the driver (from a static program too) or
of its graphics, by mounts of its own in an own mount namespace, in a container of its own (user, mount and process
namespace, root and driver; kubelet's containers may not mount a /proc), or where the container is privileged."""
BY_COUNT = {
    "found": "exec /client/memory_client --found 1500",
    "beside": f"cp {DRIVER}/* /tmp && exec /client/memory_client --beside 1500",
    "seccomp": "sed 's/memory_bytes=[0-9]*/memory_bytes=99999999999/' /run/edgegpu/container/limits > /tmp/limits && "
    f"exec /client/seccomp_limits {KEEP} 1500",
    "count": f"{KEEP} 900 & sleep 1; dd if=/dev/zero of=/run/edgegpu/container/usage bs=64k count=1 conv=notrunc; "
    f"{KEEP} 900",
    "ptrace": "/client/memory_client --rob 900",
}
"""How a process that counts gets as much, of which only the sum is seen: by the driver's functions, found in its own
process, or by a copy beside the limiter; with other limits, by a filter of system calls; or by setting another one's
count to zero, in the shared file, or in its own memory."""
TWO = {"count", "ptrace"}
"""In which of them two programs ask, and half of it is enough."""
TOLD_S = 5.0
"""Within which time it is told, as `make bench` judges. What is measured has the pause of 0.2 s of the test, too."""


@pytest.mark.parametrize("by", ["cdi"], indirect=True)
def test_who_goes_past_the_limiter_is_told(k3s: K3s, namespace: str, client: Path, by: str) -> None:
    assert by == "cdi"
    took_s = {}
    for name, way in (PAST | BY_COUNT).items():
        more = {"securityContext": {"privileged": True}} if name == "privileged" else {}
        k3s.apply(pod(name, spec_of(client, held("sh", "-c", way, **more)), namespace=namespace))
        took_at = wait_until(partial(_took_all_at, k3s, namespace, name), what=f"{name} has the memory", every_s=0.2)
        words = "past the limiter" if name in PAST else "by the driver's count"
        wait_until(partial(_told, k3s, name, words), what=f"{name}: the plugin tells {words!r}", every_s=0.2)
        took_s[name] = time.time() - took_at
        k3s.kubectl("delete", "pod", "-n", namespace, name, "--grace-period=0", "--force")
    k3s.report("isolation_bypass_told_s", [*took_s.values()], limit=TOLD_S, most=TOLD_S, typical=TOLD_S)


KILLED = 137


@pytest.mark.parametrize("by", ["cdi kill"], indirect=True)
def test_who_goes_past_the_limiter_is_killed_where_the_node_says_so(
    k3s: K3s, namespace: str, client: Path, by: str
) -> None:
    """And nobody else: a program that the limiter holds runs on, in the container beside it as well."""
    assert by == "cdi"
    held_one, took_s = held("sh", "-c", f"exec {KEEP} 500"), []
    k3s.apply(pod("held", spec_of(client, held_one), namespace=namespace))
    for way in ("copy", "namespace", "nested"):
        killed, log = "is killed: it used card", k3s.nodes[SERVER].plugin_log
        before = log().count(killed)
        past = held("sh", "-c", PAST[way], name="past")
        k3s.apply(pod(way, spec_of(client, held_one, past) | {"restartPolicy": "Never"}, namespace=namespace))
        end = wait_until(partial(_end_of, k3s, namespace, way), what=f"{way}: the process is killed", every_s=0.2)
        assert end["exitCode"] == KILLED, way
        said = k3s.kubectl("logs", "-n", namespace, way, "-c", "past", "--timestamps").split()
        assert said[1] == "0", f"{way}: it had the memory"
        took_s.append(_seconds(end["finishedAt"]) - _seconds(said[0]))
        k3s.wait_phase(namespace, "held", "Running")
        for name in (way, "held"):
            statuses = k3s.the_pod(namespace, name)["status"]["containerStatuses"]
            runs = [(one["name"], one["restartCount"]) for one in statuses if "running" in one["state"]]
            assert runs == [("main", 0)]
        assert log().count(killed) == before + 1
        k3s.kubectl("delete", "pod", "-n", namespace, way, "--grace-period=0", "--force")
    k3s.report("isolation_bypass_killed_s", took_s, limit=TOLD_S, most=TOLD_S, typical=TOLD_S)


def _end_of(k3s: K3s, namespace: str, name: str) -> dict[str, Any]:
    found = k3s.the_pod(namespace, name)["status"].get("containerStatuses", [])
    return next((dict(one["state"].get("terminated") or {}) for one in found if one["name"] == "past"), {})


FILL = "while :; do dd if=/dev/zero of=/run/edgegpu/container/usage bs=1M count=8 seek=1 conv=notrunc; sleep 1; done"
"""How a container fills memory that no limit of its own counts where it has none: its usage file lies in /run."""


@pytest.mark.parametrize("by", ["cdi"], indirect=True)
def test_who_enlarges_its_usage_file_is_told_and_cut_back(k3s: K3s, namespace: str, client: Path, by: str) -> None:
    assert by == "cdi"
    k3s.apply(pod("fills", spec_of(client, held("sh", "-c", FILL)), namespace=namespace))
    wait_until(partial(_told, k3s, "fills", "made their usage file larger"), what="the plugin tells it", every_s=0.2)
    (folder,) = folders(k3s)
    usage = folder / "usage"
    wait_until(lambda: usage.stat().st_size > USAGE_BYTES, what="it is larger again", every_s=0.1)
    wait_until(lambda: usage.stat().st_size == USAGE_BYTES, what="it is cut back again", every_s=0.1)
    k3s.kubectl("delete", "pod", "-n", namespace, "fills", "--grace-period=0", "--force")


@pytest.mark.parametrize("by", ["cdi"], indirect=True)
def test_programs_that_may_not_write_their_usage_file_are_told_until_they_may(
    k3s: K3s, namespace: str, client: Path, by: str
) -> None:
    """As a label of SELinux has it: here the file's mode forbids it to a user who is not root."""
    context = {"runAsUser": 65534, "runAsGroup": 65534, "allowPrivilegeEscalation": False}
    k3s.apply(pod("refused", spec_of(client, held(securityContext=context)), namespace=namespace))
    k3s.wait_phase(namespace, "refused", "Running")
    (folder,) = folders(k3s)
    (folder / "usage").chmod(0o444)
    assert isolation(k3s, "refused")["state"] == "enforced", by
    assert run(k3s, namespace, "refused", "sh", "-c", "/client/memory_client 1; true") == ["start", OOM]
    wait_until(partial(_told, k3s, "refused", "no card memory: its programs may not write"), what="it is told")
    described = ("describe", "pod", "-n", namespace, "refused")
    wait_until(lambda: "GPUUsageFile" in k3s.kubectl(*described), what="its pod has the event")
    (folder / "usage").chmod(0o666)
    assert run(k3s, namespace, "refused", "/client/memory_client", "1") == ["0"]
    wait_until(lambda: isolation(k3s, "refused")["state"] == "enforced", what="it is enforced again")


def _took_all_at(k3s: K3s, namespace: str, name: str) -> float:
    """Return when a pod's programs said that they have all of their memory, by the machine's clock; 0 before."""
    lines = [line.split() for line in k3s.kubectl("logs", "-n", namespace, name, "--timestamps").splitlines()]
    said = [line for line in lines if len(line) == 2 and line[1].isdigit()]
    assert OOM not in {status for _, status in said}
    return _seconds(said[-1][0]) if len(said) == (2 if name in TWO else 1) else 0.0


def _seconds(stamp: str) -> float:
    """Return the time of a stamp of kubelet's, with up to nine digits behind the second."""
    return dt.datetime.fromisoformat(re.sub(r"(\.\d{6})\d*", r"\1", stamp)).timestamp()


def _told(k3s: K3s, name: str, words: str) -> bool:
    """Return whether the container is `degraded` for a reason with these words; its image may be another one."""
    found = isolation(k3s, name)
    return found["state"] == "degraded" and words in found["reason"]
