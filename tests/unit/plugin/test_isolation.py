"""Which containers the limiter holds, what is made for each, and what is said of it."""

import base64
import json
import mmap
import os
import stat
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from property.cases import box as container
from property.cases import pod_of

from edgegpu_core.choices.modes import PluginIsolation
from edgegpu_core.choices.pod_choice import GivenChoice
from edgegpu_core.deviceid import core_ids, memory_ids
from edgegpu_core.inventory import Card
from edgegpu_core.model import ResourceModel
from edgegpu_core.placement import Policy
from edgegpu_plugin.cards.nvml_library import CardProcess
from edgegpu_plugin.config.schema import ComputePolicy, IsolationSection
from edgegpu_plugin.containers.container_folder import Charge
from edgegpu_plugin.containers.held.reasons import PRELOAD_ONLY
from edgegpu_plugin.containers.isolation import IsolatedContainers
from edgegpu_plugin.containers.limiter_files import LIBRARIES, PRELOADED, find_limiter
from edgegpu_plugin.containers.live_limits import LiveLimits
from edgegpu_plugin.containers.usage_file import USAGE_BYTES, read_usage, users_of
from edgegpu_plugin.errors import PluginError
from edgegpu_plugin.pb import Allocation, Mount
from edgegpu_plugin.pb.device_messages import allocation_message
from edgegpu_plugin.records.node_state import NodeState

MODEL, MIB = ResourceModel(), 1 << 20
CARD = "GPU-11111111-2222-3333-4444-555555555555"
OTHER = "GPU-11111111-2222-3333-4444-666666666666"
HELD, MPS = GivenChoice(PluginIsolation.LIMITER), GivenChoice(PluginIsolation.MPS)
MEMORY, CORE = memory_ids(CARD, 29)[:4], core_ids(CARD)[:10]


class Box:
    """A node's state with kubelet's checkpoint, and its isolation; it sees this process, or those in `proc`."""

    def __init__(self, folder: Path, *, proc: Path | None = None) -> None:
        self.run, self.saved, self._checkpoint = folder / "run", folder / "saved", folder / "checkpoint"
        self.state = NodeState(model=MODEL, policy=Policy.FIRST_FIT, checkpoint=self._checkpoint)
        self.state.set_cards(
            tuple(
                Card(uuid=c, index=n, name="T", memory_mib=7611, pci=f"{n}", minor=n, capability=(7, 5))
                for n, c in enumerate((CARD, OTHER))
            )
        )
        self.state.replace_pods([])
        self.libraries = folder / "libraries"
        self.libraries.mkdir()
        for name in LIBRARIES:
            (self.libraries / name).write_bytes(library(name))
        self._proc = proc or folder / "proc"
        if proc is None:
            self._proc.mkdir(exist_ok=True)
            (self._proc / f"{os.getpid()}").symlink_to(f"/proc/{os.getpid()}")
        self.limiter = self.isolation()
        self._entries: list[dict[str, object]] = []

    def isolation(
        self, mode: PluginIsolation = PluginIsolation.LIMITER, compute: ComputePolicy = ComputePolicy.STRICT
    ) -> IsolatedContainers:
        settings = IsolationSection(mode=mode, compute=compute, context_mib=64, libraries=self.libraries)
        live, driver = LiveLimits(self.saved), self.run / "no driver"
        return IsolatedContainers(settings, self.state, run=self.run, live=live, driver=driver, proc=self._proc)

    def book(
        self,
        uid: str,
        *resources: tuple[str, ...],
        limited: bool = True,
        mounts: Sequence[Mount] = (),
        given: GivenChoice | None = None,
        name: str = "main",
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Give a container devices as kubelet does: it keeps the answer with them."""
        bare = Allocation(mounts=list(mounts), annotations=dict(annotations or {}))
        for ids in resources:
            choice = given or self.limiter.allowed().given_to(())
            answer = self.limiter.add_to(bare, ids, choice) if limited else bare
            text = base64.b64encode(allocation_message(answer).SerializeToString()).decode()
            resource = MODEL.memory_resource if "::m" in ids[0] else MODEL.core_resource
            entry = {"PodUID": uid, "ContainerName": name, "ResourceName": resource, "AllocResp": text}
            self._entries.append({**entry, "DeviceIDs": {"-1": list(ids)}})
        self._write()

    def release(self, uid: str) -> None:
        self._entries = [entry for entry in self._entries if entry["PodUID"] != uid]
        self._write()
        for gone in ([*self.state.booked()], []):
            self.state.set_released(one for one in gone if one == uid)  # the collector has seen that it is gone

    def _write(self) -> None:
        new = self._checkpoint.with_name("new")
        new.write_text(json.dumps({"Data": {"PodDeviceEntries": self._entries, "RegisteredDevices": {}}}))
        new.replace(self._checkpoint)

    def state_of(
        self, uid: str = "u", *, isolation: IsolatedContainers | None = None, by_runtime: bool = False
    ) -> object:
        return (isolation or self.limiter).states(self.state.snapshot(), by_runtime=by_runtime)[(uid, "main")]


def library(name: str, *, machine: int = 62, folder: str = "/run/edgegpu/container") -> bytes:
    """Return an ELF file with a SONAME and the limiter's settings, and nothing else."""
    strings, soname_at = b"\0" + name.encode() + b"\0", 1
    dynamic = b"".join(struct.pack("<qQ", tag, value) for tag, value in ((5, 0x200), (14, soname_at), (0, 0)))
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, machine, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    programs = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 0x1000, 0x1000, 0x1000)
    programs += struct.pack("<IIQQQQQQ", 2, 6, 0x100, 0x100, 0, len(dynamic), len(dynamic), 8)
    body = bytearray(0x1000)
    body[: len(head)] = head
    body[64 : 64 + len(programs)] = programs
    body[0x100 : 0x100 + len(dynamic)] = dynamic
    body[0x200 : 0x200 + len(strings)] = strings
    for at, (mark, value) in enumerate((("folder", folder), ("driver", f"{folder}/driver"))):
        text = f"edgegpu-limiter-{mark}:".encode().ljust(32, b"\0") + value.encode() + b"\0"
        body[0x400 + 0x200 * at : 0x400 + 0x200 * at + len(text)] = text
    return bytes(body)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def folders(box: Box) -> list[Path]:
    return list((box.run / "containers").iterdir())


def used(*slots: tuple[int, int], cards: tuple[str, ...] = (CARD,)) -> bytes:
    """Return a usage file whose slots, each of a PID namespace, hold bytes on the first card."""
    uuids = b"".join(bytes.fromhex(card.removeprefix("GPU-").replace("-", "")) for card in cards).ljust(256, b"\0")
    told = struct.pack("=16Q16s", 3, 2**64 - 1, *([0] * 14), b"0.1.0")
    head = struct.pack("=4I2Q2I256s", 0x45474C4D, 5, USAGE_BYTES, 512, 0, 1, len(slots), len(cards), uuids)
    head += told + bytes(1024)
    body = b"".join(struct.pack("=4Qq34Q", 1, 1, space, 1, 1, 0, 0, held, 1, *([0] * 30)) for space, held in slots)
    return (head + body).ljust(USAGE_BYTES, b"\0")


def test_a_container_gets_its_folder_before_each_start(box: Box) -> None:
    box.book("u", MEMORY, CORE)
    box.limiter.prepare("u", "main")
    (folder,) = folders(box)
    assert (folder / "limits").read_text() == (
        f"edgegpu-limits 1\ncard {CARD} memory_bytes={1024 * MIB} context_bytes={64 * MIB} "
        "core_percent=10 policy=strict\n"
    )
    assert (folder / "usage").read_bytes() == bytes(USAGE_BYTES)
    assert [stat.S_IMODE(one.stat().st_mode) for one in (folder / "usage", folder.parent)] == [0o666, 0o700]
    assert [(folder / "driver" / name).exists() for name in LIBRARIES] == [True, True]
    mounts = box.limiter.add_to(Allocation(), MEMORY, HELD).mounts
    assert [(one.container_path, one.host_path, one.read_only) for one in mounts] == [
        ("/run/edgegpu/container", str(folder), True),
        ("/run/edgegpu/container/usage", str(folder / "usage"), False),
        ("/etc/ld.so.preload", str(folder / "ld.so.preload"), True),
    ]
    (folder / "usage").write_bytes(used((1, 5 * MIB)))  # of a namespace in which nothing lives
    (folder / "limits").unlink()
    box.limiter.prepare("u", "main")
    assert ((folder / "usage").read_bytes(), (folder / "limits").exists()) == (bytes(USAGE_BYTES), True)


def test_all_is_made_again_after_a_reboot_also_when_the_setting_has_changed(box: Box) -> None:
    box.book("u", MEMORY, CORE)
    box.isolation(PluginIsolation.NONE).prepare("u", "main")
    assert len(folders(box)) == 1


def test_a_container_from_before_the_setting_is_left_alone_and_told_of(box: Box) -> None:
    box.book("u", MEMORY, CORE, limited=False)
    box.limiter.prepare("u", "main")
    assert not (box.run / "containers").exists()
    told = box.state_of()
    assert getattr(told, "state", "") == "degraded"
    assert "admitted before the limiter was laid over" in getattr(told, "reason", "")
    assert "could not be preloaded" in getattr(box.state_of(by_runtime=True), "reason", "")
    assert getattr(box.state_of(isolation=box.isolation(PluginIsolation.NONE)), "state", "") == "off"


def test_a_container_whose_image_does_not_load_the_limiter_is_degraded_and_still_limited(
    box: Box, tmp_path: Path
) -> None:
    process = tmp_path / "proc/4711"
    (process / "root/lib").mkdir(parents=True)
    (process / "root/lib/ld-musl-x86_64.so.1").write_bytes(b"musl")
    (process / "cgroup").write_text(f"0::/kubepods/podu/{'ab' * 32}\n")
    (process / "exe").symlink_to("/bin/true")
    (process / "environ").touch()
    box.book("u", MEMORY, CORE)
    box.state.replace_pods([replace(pod_of("u", container("main", 4, 10)), running=(("main", "ab" * 32),))])
    box.limiter.prepare("u", "main")
    assert getattr(box.state_of(), "state", "") == "enforced"
    assert box.limiter.look_at_images(box.state.snapshot())
    told = box.state_of()
    assert (getattr(told, "state", ""), dict(getattr(told, "limits", {}))) == ("degraded", {CARD: 1024 * MIB})
    assert "its image has musl" in getattr(told, "reason", "")
    assert not box.limiter.look_at_images(box.state.snapshot())
    box.release("u")
    box.book("u", MEMORY, CORE, mounts=[Mount(PRELOADED, "/library")])
    assert box.limiter.look_at_images(box.state.snapshot())
    assert getattr(box.state_of(), "reason", "") == PRELOAD_ONLY  # of such a container no image is looked at


def test_a_whole_card_without_memory_has_all_units_of_the_card(box: Box) -> None:
    box.book("u", core_ids(CARD))
    box.limiter.prepare("u", "main")
    assert f"memory_bytes={29 * 256 * MIB} " in (folders(box)[0] / "limits").read_text()


def test_a_share_of_the_time_is_written_unless_the_node_holds_none(box: Box) -> None:
    def text(compute: ComputePolicy, *ids: tuple[str, ...]) -> str:
        limiter = box.isolation(compute=compute)
        box.book("u", *ids)
        limiter.prepare("u", "main")
        (card,) = limiter.states(box.state.snapshot(), by_runtime=False)[("u", "main")].to_json()["cards"]
        box.release("u")
        return f"{card['core_percent']} {folders(box)[0].joinpath('limits').read_text().split('context_bytes=')[1]}"

    some = core_ids(CARD)[:30]
    assert text(ComputePolicy.STRICT, MEMORY, some) == f"30 {64 * MIB} core_percent=30 policy=strict\n"
    assert text(ComputePolicy.ELASTIC, MEMORY, some) == f"30 {64 * MIB} core_percent=30 policy=elastic\n"
    assert text(ComputePolicy.OFF, MEMORY, some) == f"0 {64 * MIB}\n"
    assert text(ComputePolicy.STRICT, MEMORY) == f"0 {64 * MIB}\n", "core_required is false, and none was asked"


def test_a_charge_stands_in_the_limits_until_it_is_taken_back(box: Box) -> None:
    box.book("u", MEMORY, core_ids(CARD)[:30])
    box.book("whole", core_ids(OTHER))
    box.limiter.prepare("u", "main")
    (timed,) = box.limiter.timed(box.state.snapshot())
    assert (timed.key, dict(timed.core), timed.elastic) == (("u", "main"), {CARD: 30}, False)
    assert timed.usage == (folders(box)[0] / "usage",)
    limits = folders(box)[0] / "limits"
    before = limits.read_text()
    box.limiter.charge({("u", "main"): {CARD: Charge(850, 77)}, ("gone", "main"): {CARD: Charge(1, 1)}})
    assert limits.read_text() == before.replace("strict\n", "strict charge_permille=850 charge_until_ms=77\n")
    box.limiter.charge({})
    assert limits.read_text() == before


def test_what_the_driver_counts_beyond_a_container_s_count_stands_in_its_limits(box: Box, tmp_path: Path) -> None:
    uid = "3c8f2c55-0d0e-4a57-9a0e-1f8d2f7c9b11"
    box.book(uid, MEMORY)
    box.limiter.prepare(uid, "main")
    limits, usage = (folders(box)[0] / name for name in ("limits", "usage"))
    before = limits.read_text()
    usage.write_bytes(used((7, 500 * MIB)))
    process = tmp_path / "proc/7"
    process.mkdir(parents=True)
    (process / "cgroup").write_text(f"0::/kubepods/besteffort/pod{uid}/{'ab' * 32}\n")
    (process / "maps").write_text(f"7f71-7f72 rw-s 00000000 00:1b {usage.stat().st_ino} /usage\n")
    (process / "stat").write_text(f"7 (a) S {' '.join(['0'] * 18)} 77 0\n")
    limits.unlink()
    limits.mkdir()  # nothing can be written there: each look tries it again
    assert not box.limiter.look({CARD: [CardProcess(7, 700 * MIB)]})
    limits.rmdir()
    box.limiter.look({CARD: [CardProcess(7, 700 * MIB)]})
    words = f"context_bytes=67108864 uncounted_bytes={184 * MIB}"
    assert limits.read_text() == before.replace("context_bytes=67108864", words)
    assert box.limiter.states(box.state.snapshot(), by_runtime=False)[uid, "main"].counted == {CARD: 684 * MIB}
    box.limiter.charge({(uid, "main"): {CARD: Charge(850, 77)}})
    assert f"uncounted_bytes={184 * MIB}" in limits.read_text()
    box.limiter.charge({})
    for unsaid in ({CARD: [CardProcess(7, None)]}, {}):
        box.limiter.look(unsaid)
        assert f"uncounted_bytes={184 * MIB}" in limits.read_text(), "a look that says nothing takes nothing back"
    box.limiter.look({CARD: []})
    assert limits.read_text() == before
    limits.write_text(before.replace("context_bytes=67108864", words))
    box.isolation().look({CARD: []})  # the plugin's next run finds what the last one has left
    assert limits.read_text() == before


def test_a_whole_card_with_memory_has_two_folders_of_which_kubelet_mounts_one(box: Box) -> None:
    box.book("u", MEMORY, core_ids(CARD))
    box.limiter.prepare("u", "main")
    one, other = folders(box)
    assert (one / "limits").read_text() == (other / "limits").read_text()
    (other / "usage").write_bytes(used((1, 5 * MIB)))
    told = box.state_of()
    assert getattr(told, "counted", {}) == {CARD: 5 * MIB}
    box.limiter.clean()
    assert len(folders(box)) == 2


def test_what_a_container_is_held_to_and_has_counted(box: Box) -> None:
    box.book("u", MEMORY, CORE)
    assert getattr(box.state_of(), "state", "") == "degraded"  # not started yet, or its files are gone
    box.limiter.prepare("u", "main")
    (folder,) = folders(box)
    (folder / "usage").write_bytes(used((7, 5 * MIB), (7, 3 * MIB)))
    told = box.state_of()
    assert getattr(told, "state", "") == "enforced"
    assert (getattr(told, "limits", {}), getattr(told, "counted", {})) == ({CARD: 1024 * MIB}, {CARD: 8 * MIB})
    assert (getattr(told, "refusals", {}), getattr(told, "limiter", "")) == ({CARD: 3}, "0.1.0")
    (folder / "usage").write_bytes(b"\xff" * USAGE_BYTES)
    told = box.state_of()
    assert getattr(told, "state", "") == "degraded"
    assert str(folder) in getattr(told, "reason", "")


@pytest.mark.parametrize("scribbled", [False, True], ids=["whole", "scribbled"])
def test_a_start_waits_for_the_processes_of_the_last_run(box: Box, *, scribbled: bool) -> None:
    box.book("u", MEMORY, CORE)
    box.limiter.prepare("u", "main")
    (folder,) = folders(box)
    space = Path("/proc/self/ns/pid").stat().st_ino
    (folder / "usage").write_bytes(used((space, MIB)))
    with (folder / "usage").open("r+b") as file, mmap.mmap(file.fileno(), 0):
        assert users_of(folder / "usage", frozenset({space}), Path("/proc")) == [os.getpid()]
        if scribbled:
            (folder / "usage").write_bytes(b"x" * USAGE_BYTES)
        with pytest.raises(
            PluginError, match=f"of the container's last run still hold card memory .process {os.getpid()}"
        ):
            box.limiter.prepare("u", "main")
        assert users_of(folder / "usage", frozenset({space + 1}), Path("/proc")) == []
    box.limiter.prepare("u", "main")
    assert (folder / "usage").read_bytes() == bytes(USAGE_BYTES)


def test_folders_of_containers_that_are_gone_go(box: Box) -> None:
    box.book("u", MEMORY, CORE)
    box.book("v", memory_ids(OTHER, 29)[:2], core_ids(OTHER)[:1])
    for uid in ("u", "v"):
        box.limiter.prepare(uid, "main")
    box.isolation(PluginIsolation.NONE).clean()  # another process of the plugin, with another setting
    assert len(folders(box)) == 2
    box.release("u")
    box.limiter.clean()
    assert [folder.name for folder in folders(box)] == [box.limiter.folders.of(memory_ids(OTHER, 29)[:2]).name]


def test_while_the_checkpoint_cannot_be_read_nothing_goes(box: Box, tmp_path: Path) -> None:
    box.book("u", MEMORY, CORE)
    box.limiter.prepare("u", "main")
    (tmp_path / "checkpoint").write_text("{")
    fresh = NodeState(model=MODEL, policy=Policy.FIRST_FIT, checkpoint=tmp_path / "checkpoint")  # it started now
    IsolatedContainers(IsolationSection(), fresh, run=box.run, live=LiveLimits(box.saved), proc=Path("/proc")).clean()
    assert len(folders(box)) == 1


def test_whoever_uses_a_folder_keeps_it_also_where_the_checkpoint_is_gone(box: Box) -> None:
    box.book("u", MEMORY, CORE)
    box.limiter.prepare("u", "main")
    (folder,) = folders(box)
    (folder / "usage").write_bytes(used((Path("/proc/self/ns/pid").stat().st_ino, MIB)))
    box.release("u")
    with (folder / "usage").open("r+b") as file, mmap.mmap(file.fileno(), 0):
        box.limiter.clean()
        assert folders(box) == [folder]
    box.limiter.clean()
    assert folders(box) == []


def test_devices_of_two_settings_are_refused(box: Box) -> None:
    box.book("u", MEMORY)
    box.book("u", CORE, limited=False)
    with pytest.raises(PluginError, match=r"two settings of isolation: delete the pod"):
        box.limiter.prepare("u", "main")


def test_a_card_that_the_limiter_cannot_name_is_refused(box: Box) -> None:
    box.book("u", tuple(f"MIG-GPU-1/7/0::m000{number}" for number in range(2)))
    with pytest.raises(PluginError, match="the limiter cannot name card MIG-GPU-1/7/0"):
        box.limiter.prepare("u", "main")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda path: path.unlink(), "No such file or directory"),
        (lambda path: path.write_bytes(library("libcuda.so.2")), "no library of the name libcuda.so.1"),
        (lambda path: path.write_bytes(library("libcuda.so.1", machine=183)), "not made for this machine's processor"),
        (lambda path: path.write_bytes(library("libcuda.so.1", folder="/opt")), "not made for the folder /run/edgegpu"),
        (lambda path: path.chmod(0o777), "can be written by others than root"),
    ],
)
def test_without_its_libraries_the_limiters_containers_do_not_start(box: Box, harm: object, words: str) -> None:
    assert callable(harm)
    box.book("u", MEMORY, CORE)
    box.limiter.prepare("u", "main")
    harm(box.libraries / "libcuda.so.1")
    with pytest.raises(PluginError, match=f"{words}.*: install edgegpu's bundle again, or set isolation.mode to none"):
        box.limiter.prepare("u", "main")
    assert words in str(box.limiter.document(by_runtime=False)["isolation_problem"])


def test_the_built_libraries_are_usable_where_they_are_built(limiter_build: Path) -> None:
    assert set(find_limiter(limiter_build, machine="x86_64").libraries) == set(LIBRARIES)
    with pytest.raises(PluginError, match=r"not made for this machine's processor \(aarch64"):
        find_limiter(limiter_build, machine="aarch64")


def test_a_node_whose_driver_comes_by_the_nvidia_runtime_says_that_it_preloads_alone(box: Box) -> None:
    assert box.limiter.document(by_runtime=True) == {"isolation": "limiter", "isolation_problem": PRELOAD_ONLY}
    assert box.limiter.document(by_runtime=False) == {"isolation": "limiter", "isolation_problem": ""}
    assert box.isolation(PluginIsolation.NONE).document(by_runtime=True) == {
        "isolation": "none",
        "isolation_problem": "",
    }


@pytest.mark.parametrize("data", [b"", b"\0", bytes(USAGE_BYTES + 1), b"\xff" * USAGE_BYTES])
def test_what_is_no_usage_file(data: bytes) -> None:
    assert read_usage(data) is None


def test_numbers_that_a_container_writes_break_nothing() -> None:
    data = bytearray(used((7, 1 << 63), cards=(CARD, OTHER)))
    struct.pack_into("=2I", data, 32, 0xFFFFFFFF, 0xFFFFFFFF)
    counts = read_usage(bytes(data))
    assert counts is not None
    assert max(counts.bytes.values()) == 1 << 56
    assert max(counts.refusals.values()) == 10**9
    build_at = 40 + (16 + 8) * 16
    for text in (b"\xff" * 16, b"0.1.0\n\x1b[2J", b"x" * 16):
        data[build_at : build_at + 16] = text.ljust(16, b"\0")
        counts = read_usage(bytes(data))
        assert counts is not None
        assert counts.limiter == ""


def _limits(box: Box) -> str:
    return folders(box)[0].joinpath("limits").read_text()


def test_with_mps_a_container_gets_the_pipe_folder_and_its_limits_say_so(box: Box) -> None:
    box.limiter = box.isolation(PluginIsolation.MPS)
    box.book("u", MEMORY, CORE)
    box.limiter.prepare("u", "main")
    assert "core_percent=10 policy=mps\n" in _limits(box)
    assert (folders(box)[0] / "mps").is_dir(), "a place for the mount in a folder that is read-only there"
    answer = box.limiter.add_to(Allocation(), MEMORY, MPS)
    assert answer.envs == {"CUDA_MPS_PIPE_DIRECTORY": "/run/edgegpu/container/mps"}
    assert [(one.container_path, one.host_path, one.read_only) for one in answer.mounts[3:]] == [
        ("/run/edgegpu/container/mps", str(box.run / "mps/pipe"), False),
        ("/dev/shm", str(box.run / "mps/shm"), False),  # noqa: S108  (the container's)
    ]
    assert not box.limiter.add_to(Allocation(), CORE, MPS).mounts, "the folder comes with the memory"


def test_a_card_that_mps_cannot_share_has_no_pipe_folder_shares_of_time_and_is_told(box: Box) -> None:
    box.state.set_cards(tuple(replace(card, capability=(6, 1)) for card in box.state.cards()))
    box.limiter = box.isolation(PluginIsolation.MPS)
    answer = box.limiter.add_to(Allocation(), MEMORY, MPS)
    assert (answer.envs, len(answer.mounts)) == ({}, 3), "before Volta clients see each other's memory"
    box.book("u", MEMORY, CORE)
    box.limiter.prepare("u", "main")
    assert "core_percent=10 policy=strict\n" in _limits(box)
    assert getattr(box.state_of(), "reason", "").startswith("mps: ")


def test_what_the_driver_says_of_a_card_after_a_start_counts_too(box: Box) -> None:
    cards = tuple(box.state.cards())
    box.limiter = box.isolation(PluginIsolation.MPS)
    box.book("u", MEMORY, CORE)
    box.state.set_cards(tuple(replace(card, capability=None) for card in cards))
    box.limiter.prepare("u", "main")
    assert "core_percent=10 policy=strict\n" in _limits(box)
    box.state.set_cards(cards)
    box.limiter.clean()
    assert "core_percent=10 policy=mps\n" in _limits(box)


def test_a_node_without_the_daemon_holds_compute_by_time_and_says_so(box: Box) -> None:
    box.limiter = box.isolation(PluginIsolation.MPS)
    box.book("u", MEMORY, CORE)
    box.limiter.prepare("u", "main")
    told = box.state_of()
    assert getattr(told, "state", "") == "degraded"
    reason = str(getattr(told, "reason", ""))
    assert reason.startswith("mps: nvidia-cuda-mps-control is not below")
    assert reason.endswith("until then its compute is held by time")
    assert getattr(told, "limits", {}) == {CARD: 1024 * MIB}, "memory is held"
    assert box.limiter.document(by_runtime=False)["isolation_problem"].startswith("mps: nvidia-cuda-mps-control is not")
    live = box.limiter.set_live_limit("u", "main", {CARD: 2})
    assert (live.state, live.reason, live.limits) == ("degraded", reason, {CARD: 512 * MIB})


def test_a_container_keeps_mps_when_the_setting_changes_and_none_comes_to_one_of_before(box: Box) -> None:
    box.book("before", MEMORY, CORE)
    box.limiter = box.isolation(PluginIsolation.MPS)
    box.book("u", memory_ids(CARD, 29)[4:8], core_ids(CARD)[10:20])
    for later in (PluginIsolation.LIMITER, PluginIsolation.NONE, PluginIsolation.MPS):
        isolation = box.isolation(later)
        for uid, policy in (("before", "strict"), ("u", "mps")):
            isolation.prepare(uid, "main")
            texts = {folder.joinpath("limits").read_text() for folder in folders(box)}
            assert any(f"policy={policy}" in text for text in texts)
        assert sorted(text.split("policy=")[1].strip() for text in texts) == ["mps", "strict"]
