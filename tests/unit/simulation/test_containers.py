"""A container sees what CDI and the device plugins give it, in the order of the real runtime."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from edgegpu_plugin.pb import Allocation, DeviceNode, Mount
from edgegpu_sim.containers import ContainerView, CreateError, make_view
from edgegpu_sim.kubelet.runtime import ContainerBehaviour, behaviour

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def host(tmp_path: Path) -> Path:
    host = tmp_path / "host"
    for name in ("dev/nvidia0", "dev/nvidia1", "dev/nvidiactl", "lib/libcuda.so.1", "shared/inner/file"):
        (host / name).parent.mkdir(parents=True, exist_ok=True)
        (host / name).write_text(name)
    (host / "tool").write_text("#!/bin/sh\necho $1 $WHO $LD_LIBRARY_PATH\n")
    (host / "tool").chmod(0o755)
    spec = {
        "cdiVersion": "0.5.0",
        "kind": "edgegpu.io/gpu",
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": "/dev/nvidiactl", "hostPath": str(host / "dev/nvidiactl")}],
            "mounts": [
                {"hostPath": str(host / "lib"), "containerPath": "/usr/lib/x86_64-linux-gnu", "options": ["ro"]},
                {"hostPath": str(host / "tool"), "containerPath": "/usr/bin/tool"},
                {"hostPath": str(host / "shared"), "containerPath": "/srv/shared"},
                {"hostPath": str(host / "dev/nvidia1"), "containerPath": "/srv/shared/inner/more"},
            ],
        },
        "devices": [
            {"name": f"GPU-{i}", "containerEdits": {"deviceNodes": [
                {"path": f"/dev/nvidia{i}", "hostPath": str(host / f"dev/nvidia{i}")}]}}
            for i in range(2)
        ],
    }  # fmt: skip
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi/edgegpu.json").write_text(json.dumps(spec))
    (tmp_path / "cdi/broken.json").write_text("{")
    return host


def view_of(tmp_path: Path, given: Allocation, env: dict[str, str] | None = None) -> ContainerView:
    return make_view(tmp_path / "view", cdi_folders=[tmp_path / "cdi"], given=given, pod_env=env or {})


def test_only_the_named_device_is_there(tmp_path: Path, host: Path) -> None:
    view = view_of(tmp_path, Allocation(cdi_devices=["edgegpu.io/gpu=GPU-1"]))
    assert sorted(path.name for path in (view.root / "dev").iterdir()) == ["nvidia1", "nvidiactl"]
    assert (view.root / "usr/lib/x86_64-linux-gnu/libcuda.so.1").exists()
    assert (view.root / "srv/shared/inner/file").exists()
    assert (view.root / "srv/shared/inner/more").exists()
    assert not (host / "shared/inner/more").exists()  # nothing is written into the host's folders


def test_a_pods_environment_beats_the_plugins_and_cdi_beats_both(tmp_path: Path, host: Path) -> None:
    assert host.exists()
    given = Allocation(envs={"NVIDIA_VISIBLE_DEVICES": "GPU-1", "WHO": "plugin"}, cdi_devices=["edgegpu.io/gpu=GPU-1"])
    view = view_of(tmp_path, given, {"NVIDIA_VISIBLE_DEVICES": "all", "WHO": "pod"})
    assert view.env == {"NVIDIA_VISIBLE_DEVICES": "void", "WHO": "pod"}
    done = view.run(["tool", "x"])
    assert done.stdout == f"x pod {view.root}/usr/lib/x86_64-linux-gnu\n"


def test_mounts_and_device_nodes_of_the_response_are_there(tmp_path: Path, host: Path) -> None:
    given = Allocation(
        mounts=[Mount("/etc/limits", str(host / "lib"))], devices=[DeviceNode("/dev/x", str(host / "dev/nvidia0"))]
    )
    view = view_of(tmp_path, given)
    assert (view.root / "dev/x").read_text() == "dev/nvidia0"
    assert (view.root / "etc/limits/libcuda.so.1").exists()


def test_what_cannot_be_resolved_is_a_create_error(tmp_path: Path, host: Path) -> None:
    assert host.exists()
    with pytest.raises(CreateError, match=r"unresolvable CDI devices edgegpu.*=GPU-7"):
        view_of(tmp_path, Allocation(cdi_devices=["edgegpu.io/gpu=GPU-7"]))
    with pytest.raises(CreateError, match="no such file or directory"):
        view_of(tmp_path, Allocation(mounts=[Mount("/etc/limits", str(tmp_path / "none"))]))


def test_a_command_that_the_image_lacks(tmp_path: Path) -> None:
    done = view_of(tmp_path, Allocation()).run(["nvidia-smi"])
    assert done.returncode == 126
    assert 'exec: "nvidia-smi": executable file not found in $PATH' in done.stderr


@pytest.mark.parametrize(
    ("command", "does"),
    [
        ([], ContainerBehaviour()),
        (["/pause"], ContainerBehaviour()),
        (["true"], ContainerBehaviour(0, 0)),
        (["/bin/false"], ContainerBehaviour(0, 1)),
        (["sleep", "0.5"], ContainerBehaviour(0.5, 0)),
        (["sleep", "infinity"], ContainerBehaviour()),
        (["sh", "-c", "sleep 1; exit 3"], ContainerBehaviour(1, 3)),
        (["sh", "-c", "sleep 1 && python serve.py"], ContainerBehaviour()),
    ],
)
def test_what_a_command_does(command: list[str], does: ContainerBehaviour) -> None:
    assert behaviour({"command": command}) == does
