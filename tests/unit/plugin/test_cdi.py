"""The CDI spec."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgegpu_core.choices.modes import Capability
from edgegpu_core.inventory import Card
from edgegpu_plugin.containers.cdi import build_capabilities, build_spec, capability_name, cdi_name, write_spec
from edgegpu_plugin.containers.driver_files import CapabilityFiles, DriverFiles, Library
from edgegpu_plugin.containers.limiter_files import LimiterFiles

CARD = Card(uuid="GPU-1", index=0, name="T4", memory_mib=15360, pci="00000000:01:00.0", minor=0)
MIG = Card(
    uuid="MIG-1",
    index=1,
    name="A100",
    memory_mib=5120,
    pci="00000000:02:00.0",
    minor=3,
    mig=0,
    parent="GPU-2",
    caps=(12, 13),
)


def files(root: Path) -> DriverFiles:
    return DriverFiles(
        root=root,
        version="570.1",
        libraries=(Library(root / "usr/lib64/libcuda.so.570.1", ("libcuda.so.570.1", "libcuda.so.1")),),
        tools=(root / "usr/bin/nvidia-smi",),
        read_only=(root / "lib/firmware/nvidia/570.1",),
        sockets=(root / "run/nvidia-persistenced/socket",),
        shared=(root / "var/lib/nvidia-sim",),
        control_nodes=("nvidiactl", "nvidia-uvm"),
    )


READ_ONLY = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
SOCKET = ["nosuid", "nodev", "noexec", "rbind", "rprivate"]
SHARED = ["rbind", "nosuid", "nodev", "rprivate"]


def mount(host: str, options: list[str], inside: str = "") -> dict[str, object]:
    return {"hostPath": host, "containerPath": inside or host, "options": options}


def nodes(*names: str) -> dict[str, object]:
    return {"deviceNodes": [{"path": f"/dev/{name}", "permissions": "rw"} for name in names]}


def without_numbers(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a spec as on a machine without the nodes: this one may have cards."""
    for edits in (spec, *spec["devices"]):
        for node in edits["containerEdits"]["deviceNodes"]:
            for key in ("type", "major", "minor"):
                node.pop(key, None)
    return spec


def test_the_whole_spec_of_a_machine() -> None:
    spec = without_numbers(build_spec([CARD, MIG], files(Path("/")), machine="x86_64"))
    libraries = [
        mount("/usr/lib64/libcuda.so.570.1", READ_ONLY, f"{folder}/{name}")
        for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")
        for name in ("libcuda.so.570.1", "libcuda.so.1")
    ]
    assert spec == {
        "cdiVersion": "0.5.0",
        "kind": "edgegpu.io/gpu",
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            **nodes("nvidiactl", "nvidia-uvm"),
            "mounts": [
                *libraries,
                mount("/usr/bin/nvidia-smi", READ_ONLY),
                mount("/lib/firmware/nvidia/570.1", READ_ONLY),
                mount("/run/nvidia-persistenced/socket", SOCKET),
                mount("/var/lib/nvidia-sim", SHARED),
            ],
        },
        "devices": [
            {"name": "GPU-1", "containerEdits": nodes("nvidia0")},
            {
                "name": "MIG-1",
                "containerEdits": nodes("nvidia3", "nvidia-caps/nvidia-cap12", "nvidia-caps/nvidia-cap13"),
            },
        ],
    }


def test_another_root_stays_on_the_host_s_side(tmp_path: Path) -> None:
    spec = build_spec([CARD], files(tmp_path), machine="aarch64")
    edits, device = spec["containerEdits"], spec["devices"][0]["containerEdits"]
    inside = [node["path"] for node in edits["deviceNodes"] + device["deviceNodes"]]
    inside += [mount["containerPath"] for mount in edits["mounts"]]
    outside = [node["hostPath"] for node in edits["deviceNodes"] + device["deviceNodes"]]
    outside += [mount["hostPath"] for mount in edits["mounts"]]
    assert not any(path.startswith(str(tmp_path)) for path in inside)
    assert all(path.startswith(str(tmp_path)) for path in outside)
    assert "/usr/lib/aarch64-linux-gnu/libcuda.so.1" in inside


def test_a_node_has_its_number_of_now_since_containerd_keeps_one_that_it_looked_up_itself() -> None:
    """A reloaded driver has other numbers (`tests/vm/test_vm_hardening.py`); a file that stays is not read again."""
    spec = build_spec([CARD], replace(files(Path("/")), control_nodes=("null", "zero")))
    assert spec["containerEdits"]["deviceNodes"] == [
        {"path": "/dev/null", "permissions": "rw", "type": "c", "major": 1, "minor": 3},
        {"path": "/dev/zero", "permissions": "rw", "type": "c", "major": 1, "minor": 5},
    ]


@pytest.mark.parametrize("name", ["shm", "stdin", "no-such-node"])
def test_what_is_no_device_has_no_number(name: str) -> None:
    spec = build_spec([CARD], replace(files(Path("/")), control_nodes=(name,)))
    assert spec["containerEdits"]["deviceNodes"] == [{"path": f"/dev/{name}", "permissions": "rw"}]


def test_a_held_container_has_none_of_what_is_opened_and_gets_it_by_a_name_of_its_own() -> None:
    draws = CapabilityFiles(
        (Library(Path("/usr/lib64/libGLX_nvidia.so.570.1"), ("libGLX_nvidia.so.570.1", "libGLX_nvidia.so.0")),),
        (Path("/etc/vulkan/icd.d/nvidia_icd.json"),),
    )
    encodes = CapabilityFiles((Library(Path("/usr/lib64/libnvcuvid.so.570.1"), ("libnvcuvid.so.1",)),))
    all_ = replace(files(Path("/")), opened={Capability.GRAPHICS: draws, Capability.VIDEO: encodes})
    wanted = [
        mount("/usr/lib64/libGLX_nvidia.so.570.1", READ_ONLY, f"{folder}/{name}")
        for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")
        for name in ("libGLX_nvidia.so.570.1", "libGLX_nvidia.so.0")
    ]
    wanted.append(mount("/etc/vulkan/icd.d/nvidia_icd.json", READ_ONLY))
    spec = build_capabilities(all_, machine="x86_64")
    assert spec is not None
    assert {key: spec[key] for key in ("cdiVersion", "kind")} == {
        "cdiVersion": "0.5.0",
        "kind": "edgegpu.io/capability",
    }
    assert [one["name"] for one in spec["devices"]] == ["graphics", "video"]
    assert spec["devices"][0]["containerEdits"] == {"mounts": wanted}
    free = build_spec([CARD], all_, machine="x86_64")["containerEdits"]["mounts"]
    assert all(one in free for device in spec["devices"] for one in device["containerEdits"]["mounts"])
    limiter = LimiterFiles({"libcuda.so.1": Path("/opt/edgegpu/limiter/libcuda.so.1")})
    held = json.dumps(build_spec([CARD], all_, limiter=limiter, machine="x86_64"))
    assert "GLX" not in held
    assert "nvcuvid" not in held
    assert capability_name("graphics") == "edgegpu.io/capability=graphics"
    assert build_capabilities(files(Path("/"))) is None


@pytest.mark.parametrize(
    ("uuid", "name"),
    [("GPU-1", "edgegpu.io/gpu=GPU-1"), ("MIG-GPU-1/7/0", "edgegpu.io/gpu=MIG-GPU-1_7_0")],
)
def test_a_card_is_asked_for_by_its_uuid(uuid: str, name: str) -> None:
    assert cdi_name(uuid) == name


def test_the_file_is_written_when_it_says_something_new(tmp_path: Path) -> None:
    folder = tmp_path / "run/cdi"
    spec = build_spec([CARD], files(Path("/")))
    assert write_spec(folder, spec)
    written = (folder / "edgegpu.json").stat()
    assert written.st_mode & 0o777 == 0o644
    assert not write_spec(folder, spec)
    assert (folder / "edgegpu.json").stat().st_ino == written.st_ino
    assert write_spec(folder, build_spec([CARD, MIG], files(Path("/"))))
    assert [path.name for path in folder.iterdir()] == ["edgegpu.json"]
    assert len(json.loads((folder / "edgegpu.json").read_text())["devices"]) == 2
