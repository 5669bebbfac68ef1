"""What kubelet is answered for a card, and what is made for it, by the way that fits kubelet and containerd."""

import base64
import json
import platform
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from unit.plugin.test_isolation import library
from unit.plugin.test_leases import gets_lease, leased

from edgegpu_base.errors import EdgegpuError
from edgegpu_core.choices.answers import given_by
from edgegpu_core.choices.modes import PluginIsolation
from edgegpu_core.choices.pod_choice import GivenChoice
from edgegpu_core.deviceid import core_ids, memory_ids
from edgegpu_core.injection import Injection, NodeVersions
from edgegpu_core.inventory import Card
from edgegpu_core.model import ResourceModel
from edgegpu_core.placement import Policy
from edgegpu_plugin.cards.nvml import Nvml
from edgegpu_plugin.config.schema import Driver, IsolationSection
from edgegpu_plugin.containers.injector import Injector
from edgegpu_plugin.containers.isolation import IsolatedContainers
from edgegpu_plugin.containers.limiter_files import LIBRARIES as LIMITER
from edgegpu_plugin.containers.live_limits import LiveLimits
from edgegpu_plugin.errors import PluginError
from edgegpu_plugin.pb import Allocation
from edgegpu_plugin.pb.device_messages import allocation_message
from edgegpu_plugin.records.node_state import NodeState

LIBRARIES = "usr/lib/x86_64-linux-gnu"
CARDS = [Card(uuid=f"GPU-{n}", index=n, name="T4", memory_mib=15360, pci=f"0000:0{n}:00.0", minor=n) for n in range(2)]
CDI_ON = 'version = 2\n[grpc]\naddress = "/none.sock"\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = true\n'


class Machine:
    """A driver's root, containerd's configuration, and an injector on them."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "driver"
        self.run = folder / "run"
        self.config = folder / "config.toml"
        self.config.write_text(CDI_ON + f'cdi_spec_dirs = ["{folder}/cdi"]\n')
        self.driver("570.1")
        for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1"):
            self.file(f"dev/{name}")
        self.file("usr/bin/nvidia-smi")
        self.settings = Driver(root=self.root, cdi_folder=folder / "cdi", containerd_config=self.config)
        self.asked = 0

    def file(self, name: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(name)

    def driver(self, version: str) -> None:
        """Install this version in the place of another."""
        for old in (self.root / LIBRARIES).glob("*"):
            old.unlink()
        for stem in ("cuda", "nvidia-ml", "nvidia-gpucomp"):
            self.file(f"{LIBRARIES}/lib{stem}.so.{version}")

    def injector(
        self,
        kubelet: str,
        *,
        asked: Callable[[], str] = str,
        isolation: IsolatedContainers | None = None,
        **settings: object,
    ) -> Injector:
        """Return an injector that was told kubelet's version."""
        driver = self.settings.model_copy(update=settings)

        def ask() -> str:
            self.asked += 1
            return asked()

        made = Injector(
            driver, Nvml(driver), run=self.run, isolation=isolation, ask_versions=lambda: NodeVersions(ask())
        )
        made.learn_versions(NodeVersions(kubelet))
        return made


@contextmanager
def silent_socket(path: Path, asked: list[int]) -> Iterator[None]:
    """Listen as a containerd that takes connections and answers none; count them."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen(8)
        server.settimeout(0)
        yield
        with suppress(BlockingIOError):
            while True:
                server.accept()[0].close()
                asked.append(1)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def followed(given: Allocation) -> dict[str, Path]:
    """What a container would have, by its own paths: the host's files behind the links."""
    sides = [(mount.container_path, mount.host_path) for mount in given.mounts]
    sides += [(node.container_path, node.host_path) for node in given.devices]
    return {inside: Path(outside).resolve(strict=True) for inside, outside in sides}


@pytest.mark.parametrize(
    ("kubelet", "mode"),
    [("v1.33.13+k3s1", "cdi"), ("v1.29.0", "cdi"), ("v1.28.15", "devices"), ("v1.20.15", "devices")],
)
def test_kubelets_version_decides(machine: Machine, kubelet: str, mode: str) -> None:
    injector = machine.injector(kubelet)
    assert injector.mode == mode
    injector.use(CARDS)
    given = injector.allocation(["GPU-1"])
    assert list(given.cdi_devices) == (["edgegpu.io/gpu=GPU-1"] if mode == "cdi" else [])
    assert bool(given.devices) == (mode == "devices")
    assert machine.asked == 0


def test_a_start_with_known_versions_asks_containerd_once(machine: Machine, tmp_path: Path) -> None:
    """It stands between the plugin's start and its registration with kubelet."""
    path, asked = tmp_path / "c.sock", list[int]()
    machine.config.write_text(machine.config.read_text().replace("/none.sock", str(path)))
    with silent_socket(path, asked):
        driver = machine.settings
        injector = Injector(driver, Nvml(driver), run=machine.run, versions=NodeVersions("v1.33.1", ""))
    assert injector.mode == "cdi"
    assert len(asked) <= 1  # none where a busy machine has not connected within the second


def test_a_version_that_is_not_known_is_asked_for_before_an_answer_that_it_may_ignore(machine: Machine) -> None:
    injector = machine.injector("", asked=lambda: "v1.24.17+k3s1")
    injector.use(CARDS)
    assert not injector.allocation(["GPU-0"]).cdi_devices
    assert injector.mode == "devices"
    assert injector.allocation(["GPU-0"]).devices
    assert machine.asked == 1


def test_where_nobody_tells_the_version_containerd_decides(machine: Machine) -> None:
    injector = machine.injector("")
    assert injector.allocation(["GPU-0"]).cdi_devices


def test_another_kubelet_after_an_upgrade_changes_the_way(machine: Machine) -> None:
    injector = machine.injector("v1.24.17+k3s1")
    injector.learn_versions(NodeVersions("v1.30.1+k3s1"))
    assert injector.mode == "cdi"


def test_another_containerd_after_an_upgrade_changes_the_way(machine: Machine) -> None:
    text = f"version = 2\n[plugins.'io.containerd.grpc.v1.cri']\ncdi_spec_dirs = ['{machine.settings.cdi_folder}']\n"
    machine.config.write_text(text)
    injector = machine.injector("v1.37.2+k3s1")
    assert injector.mode == "devices"
    injector.learn_versions(NodeVersions("v1.37.2+k3s1", "containerd://2.4.2-k3s1"))
    assert injector.mode == "cdi"


def test_what_is_asked_for_outright_is_obeyed_and_warned_about(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    injector = machine.injector("v1.24.17+k3s1", injection=Injection.CDI)
    assert injector.allocation(["GPU-0"]).cdi_devices
    assert "containers start without their cards: kubelet v1.24.17+k3s1 passes no CDI devices on" in caplog.text


def test_where_pods_choose_their_cards_themselves_the_log_says_so(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    words = "a pod that sets NVIDIA_VISIBLE_DEVICES itself sees the cards that it names"
    for closed in (Injection.CDI, Injection.DEVICES):
        machine.injector("v1.33.4+k3s1", injection=closed)
    assert words not in caplog.text
    machine.injector("v1.33.4+k3s1", injection=Injection.RUNTIME)
    assert words in caplog.text


def test_kubelets_own_answer_brings_the_card_and_the_driver(machine: Machine) -> None:
    injector = machine.injector("v1.20.15+k3s1")
    injector.use(CARDS)
    given = injector.allocation(["GPU-1"])
    debian = f"/usr/lib/{platform.machine()}-linux-gnu"
    assert given.envs == {"NVIDIA_VISIBLE_DEVICES": "void", "TRITON_LIBCUDA_PATH": debian}
    inside = followed(given)
    assert inside["/dev/nvidia1"] == machine.root / "dev/nvidia1"
    assert "/dev/nvidia0" not in inside
    assert inside["/dev/nvidiactl"] == machine.root / "dev/nvidiactl"
    for path in (f"{debian}/libcuda.so.570.1", f"{debian}/libcuda.so", "/usr/lib64/libcuda.so.570.1"):
        assert inside[path] == machine.root / LIBRARIES / "libcuda.so.570.1"
    assert inside["/usr/bin/nvidia-smi"] == machine.root / "usr/bin/nvidia-smi"


@pytest.fixture
def limited(machine: Machine, tmp_path: Path) -> IsolatedContainers:
    """Return an isolation whose limiter is in the folder `limiter`."""
    (tmp_path / "limiter").mkdir()
    for name in LIMITER:
        (tmp_path / "limiter" / name).write_bytes(library(name))
    settings = IsolationSection(mode=PluginIsolation.LIMITER, libraries=tmp_path / "limiter")
    state = NodeState(model=ResourceModel(), policy=Policy.FIRST_FIT, checkpoint=tmp_path / "checkpoint")
    return IsolatedContainers(settings, state, run=machine.run, live=LiveLimits(tmp_path), proc=Path("/proc"))


def test_where_the_nvidia_runtime_brings_the_driver_the_limiter_is_preloaded(
    machine: Machine, limited: IsolatedContainers, tmp_path: Path
) -> None:
    for name in LIMITER:  # the driver's own have the same SONAMEs
        (machine.root / LIBRARIES / f"{name.removesuffix('1')}570.1").write_bytes(library(name))
    injector = machine.injector("v1.33.4+k3s1", isolation=limited, injection=Injection.RUNTIME)
    injector.use(CARDS)
    given = injector.allocation(["GPU-1"], memory_ids("GPU-1", 4), GivenChoice(PluginIsolation.LIMITER))
    assert (given.envs, given.annotations) == (
        {"NVIDIA_VISIBLE_DEVICES": "GPU-1", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"},
        {"edgegpu.io/isolation": "limiter"},
    )
    draws = injector.allocation(["GPU-1"], memory_ids("GPU-1", 4), GivenChoice(PluginIsolation.LIMITER, ("graphics",)))
    assert draws.envs["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility,graphics"
    assert all(mount.read_only for mount in given.mounts if not mount.container_path.endswith("/usage"))
    limited.folders.make(limited.folders.of(memory_ids("GPU-1", 4)), "edgegpu-limits 1\n")
    inside = followed(given)
    assert inside["/etc/ld.so.preload"].read_text() == "/run/edgegpu/container/preload/libcuda.so.1\n"
    assert inside["/run/edgegpu/container/preload/libcuda.so.1"] == tmp_path / "limiter/libcuda.so.1"
    for name in LIMITER:
        assert inside[f"/run/edgegpu/container/driver/{name}"].parent == machine.root / LIBRARIES
    assert inside["/run/edgegpu/container/usage"] == inside["/run/edgegpu/container"] / "usage"
    assert [path for path in inside if path.startswith("/usr")] == []  # the runtime brings those


@pytest.mark.parametrize("kubelet", ["v1.33.4+k3s1", "v1.20.15+k3s1"])
def test_a_held_container_has_graphics_where_its_pod_opened_that(
    machine: Machine, limited: IsolatedContainers, kubelet: str
) -> None:
    glx, icd = f"{LIBRARIES}/libGLX_nvidia.so.570.1", "usr/share/vulkan/icd.d/nvidia_icd.json"
    for name in (glx, icd):
        machine.file(name)
    injector = machine.injector(kubelet, isolation=limited)
    injector.use(CARDS)

    def has(given: GivenChoice) -> bool:
        answer = injector.allocation(["GPU-1"], core_ids("GPU-1")[:1], given)
        mounts = [(one.container_path, one.host_path) for one in answer.mounts]
        if not mounts:
            assert answer.cdi_devices
            for name in answer.cdi_devices:
                mounts += cdi_mounts(machine, name)
        found = {inside: Path(outside).resolve() for inside, outside in mounts}
        there = {found.get("/usr/lib64/libGLX_nvidia.so.570.1"), found.get(f"/{icd}")}
        assert there in ({None}, {machine.root / glx, machine.root / icd})
        return None not in there

    assert has(GivenChoice(PluginIsolation.LIMITER, ("graphics",)))
    assert not has(GivenChoice(PluginIsolation.LIMITER))
    assert has(GivenChoice(PluginIsolation.NONE)), "nothing holds it, so it has all"


@pytest.mark.parametrize("injection", [Injection.CDI, Injection.RUNTIME, Injection.DEVICES])
@pytest.mark.parametrize(
    "given",
    [
        GivenChoice(PluginIsolation.LIMITER, ("video",)),
        GivenChoice(PluginIsolation.NONE, replaced="limiter"),
        GivenChoice(PluginIsolation.NONE),
    ],
)
def test_kubelets_answer_says_later_what_a_container_was_given(
    machine: Machine, limited: IsolatedContainers, injection: Injection, given: GivenChoice
) -> None:
    for name in LIMITER:  # the driver's own have the same SONAMEs
        (machine.root / LIBRARIES / f"{name.removesuffix('1')}570.1").write_bytes(library(name))
    injector = machine.injector("v1.33.4+k3s1", isolation=limited, injection=injection)
    injector.use(CARDS)
    answer = allocation_message(injector.allocation(["GPU-1"], memory_ids("GPU-1", 4), given))
    assert given_by(base64.b64encode(answer.SerializeToString()).decode()) == given


def cdi_mounts(machine: Machine, name: str) -> list[tuple[str, str]]:
    """Return what a CDI name brings, as containerd reads it: all specs of the folder, by kind and device."""
    specs = [json.loads(path.read_text()) for path in machine.settings.cdi_folder.iterdir()]
    (spec,) = (one for one in specs if one["kind"] == name.partition("=")[0])
    (device,) = (one for one in spec["devices"] if one["name"] == name.partition("=")[2])
    edits = (spec.get("containerEdits", {}), device["containerEdits"])
    return [(one["containerPath"], one["hostPath"]) for some in edits for one in some.get("mounts", [])]


def test_a_container_does_not_start_where_the_driver_lacks_what_was_opened(
    machine: Machine, limited: IsolatedContainers, tmp_path: Path
) -> None:
    uuid = "GPU-11111111-2222-3333-4444-555555555555"
    injector = machine.injector("v1.33.4+k3s1", isolation=limited)
    injector.use([Card(uuid=uuid, index=0, name="T4", memory_mib=15360, pci="0000:01:00.0", minor=0)])
    ids = core_ids(uuid)[:1]
    answer = injector.allocation([uuid], ids, GivenChoice(PluginIsolation.LIMITER, ("video",)))
    text = base64.b64encode(allocation_message(answer).SerializeToString()).decode()
    entry = {"PodUID": "u", "ContainerName": "main", "ResourceName": ResourceModel().core_resource, "AllocResp": text}
    entries = {"PodDeviceEntries": [entry | {"DeviceIDs": {"-1": ids}}], "RegisteredDevices": {}}
    (tmp_path / "checkpoint").write_text(json.dumps({"Data": entries}))
    with pytest.raises(PluginError, match=r"the driver has no libraries for video below .*: install the whole driver"):
        injector.prepare([uuid], "u", "main")
    machine.file(f"{LIBRARIES}/libnvcuvid.so.570.1")
    injector.prepare([uuid], "u", "main")


def test_where_the_runtimes_driver_is_not_found_nothing_is_preloaded(
    machine: Machine, limited: IsolatedContainers
) -> None:
    for path in (machine.root / LIBRARIES).iterdir():
        path.unlink()
    injector = machine.injector("v1.33.4+k3s1", isolation=limited, injection=Injection.RUNTIME)
    given = injector.allocation(["GPU-1"], memory_ids("GPU-1", 4), GivenChoice(PluginIsolation.LIMITER))
    assert given == Allocation(envs={"NVIDIA_VISIBLE_DEVICES": "GPU-1"})
    bare = machine.injector("v1.33.4+k3s1", injection=Injection.RUNTIME).allocation(["GPU-1"])
    assert bare == given


def test_an_answer_outlives_the_driver_that_it_was_given_with(machine: Machine) -> None:
    """kubelet gives it again after a reboot: every path of it must lead to something, and to no other card."""
    injector = machine.injector("v1.20.15+k3s1")
    injector.use(CARDS)
    given = injector.allocation(["GPU-1"])
    machine.driver("580.2")
    (machine.root / LIBRARIES / "libnvidia-gpucomp.so.580.2").unlink()
    swapped = [CARDS[0], Card(uuid="GPU-1", index=2, name="T4", memory_mib=15360, pci="0000:02:00.0", minor=2)]
    machine.file("dev/nvidia2")
    machine.injector("v1.20.15+k3s1").use(swapped)
    inside = followed(given)
    debian = f"/usr/lib/{platform.machine()}-linux-gnu"
    assert inside[f"{debian}/libcuda.so"] == machine.root / LIBRARIES / "libcuda.so.580.2"
    assert inside[f"{debian}/libnvidia-gpucomp.so.570.1"] == machine.run / "driver/absent"
    assert inside["/dev/nvidia1"] == machine.root / "dev/nvidia2"


def test_a_folder_that_containerd_made_for_a_missing_link_gives_way(machine: Machine) -> None:
    """It makes one where a boot's driver, or an older version of edgegpu, had no file for an answer of before."""
    injector = machine.injector("v1.20.15+k3s1")
    injector.use(CARDS)
    given = injector.allocation(["GPU-1"])
    made = next(link for link in (machine.run / "driver/files").iterdir() if "gpucomp" in link.name)
    made.unlink()
    made.mkdir()
    injector.prepare(["GPU-1"])
    assert made.readlink() == machine.root / LIBRARIES / "libnvidia-gpucomp.so.570.1"
    assert followed(given)


def test_the_links_are_kept_in_every_way_for_pods_of_before(machine: Machine) -> None:
    given = machine.injector("v1.28.15")
    given.use(CARDS)
    answer = given.allocation(["GPU-0"])
    for link in (machine.run / "driver").rglob("*"):
        if link.is_symlink():
            link.unlink()
    machine.injector("v1.30.1").use(CARDS)
    assert followed(answer)


def test_before_nvml_answers_the_saved_cards_count(machine: Machine) -> None:
    injector = machine.injector("v1.20.15+k3s1")
    injector.use_saved(CARDS)
    assert [one.container_path for one in injector.allocation(["GPU-1"]).devices][-1] == "/dev/nvidia1"


@pytest.mark.parametrize("kubelet", ["v1.30.1", "v1.20.15+k3s1"])
def test_starts_that_waited_for_the_driver_all_go_on(machine: Machine, kubelet: str) -> None:
    """After a boot there are no links yet, and each of kubelet's calls makes them."""
    starts = 16
    for boot in range(6):
        machine.run = machine.run.with_name(f"run{boot}")
        injector = machine.injector(kubelet)
        together = threading.Barrier(starts + 1)

        def start(injector: Injector = injector, together: threading.Barrier = together) -> None:
            together.wait(timeout=30)
            injector.prepare(["GPU-1"])

        with ThreadPoolExecutor(starts) as pool:
            running = [pool.submit(start) for _ in range(starts)]
            together.wait(timeout=30)
            injector.use(CARDS)
            for one in running:
                one.result(timeout=30)
        links = list((machine.run / "driver/files").iterdir())
        assert links
        assert not [link.name for link in links if link.readlink() == machine.run / "driver/absent"]


def test_a_link_that_is_being_made_is_no_file_of_another_driver(machine: Machine) -> None:
    half = machine.run / "driver/files/.libother.so.new"
    half.parent.mkdir(parents=True)
    half.symlink_to("/half")
    machine.injector("v1.30.1").use(CARDS)
    assert half.readlink() == Path("/half")


@pytest.mark.parametrize(("kubelet", "starts"), [("v1.30.1", True), ("v1.20.15+k3s1", False)])
def test_links_that_cannot_be_made_stop_only_what_refers_to_them(
    machine: Machine, caplog: pytest.LogCaptureFixture, kubelet: str, *, starts: bool
) -> None:
    machine.run.mkdir()
    (machine.run / "driver").write_text("a file in the folder's place")
    injector = machine.injector(kubelet)
    injector.use(CARDS)
    if starts:
        injector.prepare(["GPU-1"])
        assert "cannot make the links in" in caplog.text
    else:
        with pytest.raises(EdgegpuError, match="cannot make the links in"):
            injector.prepare(["GPU-1"])


@pytest.mark.parametrize("injection", [Injection.CDI, Injection.RUNTIME])
def test_no_container_gets_a_lease_on_what_all_of_them_have_of_the_machine(
    machine: Machine, limited: IsolatedContainers, tmp_path: Path, injection: Injection
) -> None:
    for name in ("usr/bin/nvidia-cuda-mps-server", "lib/firmware/nvidia/570.1/gsp.bin", "usr/share/nvidia/nvoptix.bin"):
        machine.file(name)
    machine.file(f"{LIBRARIES}/libnvoptix.so.570.1")
    shared = [path for path in machine.root.rglob("*") if path.is_file() and "dev" not in path.parts]
    shared += (tmp_path / "limiter").iterdir()
    assert len(shared) == 3 + 1 + 4 + 2
    assert all(gets_lease(path) for path in shared)

    injector = machine.injector("v1.33.4+k3s1", isolation=limited, injection=injection)
    injector.use(CARDS)
    shared += [machine.run / "driver/ld.so.preload", machine.run / "driver/absent"]
    assert [path for path in shared if gets_lease(path)] == []

    machine.driver("580.1")
    injector.prepare(["GPU-0"])
    fresh = [*(machine.root / LIBRARIES).iterdir()]
    assert len(fresh) == 3
    assert [path for path in fresh if gets_lease(path)] == []


def test_a_container_starts_while_another_has_a_lease_on_a_file_of_the_driver_and_ends_that(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    tool = machine.root / "usr/bin/nvidia-smi"
    injector = machine.injector("v1.33.4+k3s1")
    with leased(tool):
        injector.use(CARDS)
        injector.prepare(["GPU-0"])
    assert caplog.text.count(f"{tool} is not kept open: a process has a lease on it") == 1
    assert gets_lease(tool)
    injector.prepare(["GPU-0"])
    assert not gets_lease(tool)
