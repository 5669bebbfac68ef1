"""What the plugin process cannot use: one clear line, the right exit status, nothing else on the node disturbed."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import grpc
import pytest
from kits.fault import CARD, CORE, MEMORY, UNITS, Box, Process

from edgegpu_plugin.cards.inventory_store import InventoryStore, SavedInventory
from edgegpu_plugin.kubelet.endpoint import socket_stem
from edgegpu_sim.driver import make_card

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FAILED, CONFIG = 1, 2


@pytest.fixture
def box(short_tmp: Path, simdriver_build: Path) -> Iterator[Box]:
    made = Box(short_tmp, simdriver_build)
    yield made
    made.close()


@pytest.fixture
def sound(box: Box) -> Box:
    """A box on which nothing is wrong yet."""
    box.start_api()
    box.driver(CARD)
    box.start_kubelet()
    return box


def last_line(process: Process, status: int) -> str:
    """What the process ended with, less its name."""
    assert process.ends() == status, process.log
    name, _, line = process.log.splitlines()[-1].partition(": ")
    assert name == "edgegpu-plugin", process.log
    assert process.log.count("edgegpu-plugin: ") == 1
    return line


def untouched(box: Box) -> None:
    """kubelet has not heard of us, and no socket of ours is left."""
    assert not box.kubelet.lists
    assert box.sockets() == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, ": there is no such file; write one that says `version: 1`"),
        ("version: 1\nrole: [\n", ":3: not YAML: "),
        ("version: 1\nresources:\n  unit_mb: 256\n", ":3: resources.unit_mb: unknown key; did you mean unit_mib?"),
    ],
)
def test_a_configuration_that_cannot_be_used(box: Box, text: str | None, told: str) -> None:
    path = box.root / "plugin.yaml" if text is None else box.write("plugin.yaml", text)
    process = box.start_with(path)
    assert last_line(process, CONFIG).startswith(f"{path}{told}")
    assert process.log.count("\n") == 1
    untouched(box)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "No such file or directory: set kubernetes.kubeconfig to one that can be read"),
        ("}{", "not YAML: "),
        ("server: https://127.0.0.1:6443", "current-context '' is not among its contexts (none): choose one"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used(box: Box, text: str | None, told: str) -> None:
    if text is not None:
        box.kubeconfig.write_text(text)
    process = box.start()
    line = last_line(process, CONFIG)
    assert str(box.kubeconfig) in line
    assert told in line
    untouched(box)


def test_a_kubeconfig_whose_certificate_is_none(box: Box) -> None:
    box.point_to("https://127.0.0.1:6443")
    box.kubeconfig.write_text(
        box.kubeconfig.read_text().replace('"server"', '"certificate-authority-data": "eA==", "server"')
    )
    line = last_line(box.start(), CONFIG)
    assert line.startswith(f"cannot use kubeconfig {box.kubeconfig}: ")
    assert line.endswith("write the kubeconfig anew")


def test_a_unit_so_small_that_there_are_too_many_devices(sound: Box) -> None:
    sound.driver(*(make_card(index, "Tesla T4", 15360) for index in range(2)))
    sound.set("resources", unit_mib=1)
    line = last_line(sound.start(), CONFIG)
    assert line.startswith("resources.unit_mib: 1 MiB makes 30720 devices")
    assert line.endswith("set unit_mib to 2 or more")
    assert all(not devices for devices in sound.kubelet.lists.values())
    assert sound.sockets() == []


def test_a_port_that_is_taken(sound: Box) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sound.config["role"] = "server"
        sound.set("extender", listen=f"127.0.0.1:{port}", insecure=True)
        line = last_line(sound.start(), FAILED)
    assert line.startswith(f"cannot listen on 127.0.0.1:{port}: Address already in use: ")
    assert line.endswith("(`ss -ltnp` shows it) or set extender.listen")
    untouched(sound)


def test_certificates_that_are_missing(sound: Box) -> None:
    name = "key"
    sound.config["role"] = "server"
    sound.certificates()
    (sound.root / name).unlink()
    line = last_line(sound.start(), CONFIG)
    assert line.startswith(f"cannot use extender.tls.{name} {sound.root / name}: No such file or directory: ")
    assert line.endswith("write the certificates anew or set extender.insecure: true")
    untouched(sound)


def test_a_second_process_on_the_node(sound: Box) -> None:
    first = sound.start()
    first.cards([True])
    first.shows(kubelet={"registered": True})

    def is_at_rest() -> bool:
        """On a busy machine the plugin may register a second time."""
        seen = dict(sound.kubelet.streams)
        time.sleep(1)
        return len(seen) == len((MEMORY, CORE)) and seen == sound.kubelet.streams

    first.until(is_at_rest, "both streams, and no further one")
    streams = dict(sound.kubelet.streams)
    line = last_line(sound.start(), FAILED)
    assert line == f"cannot make {sound.root}/run/plugin.sock: another edgegpu-plugin answers there; stop it first"
    sound.set("paths", run=str(sound.root / "run2"))
    line = last_line(sound.start(), FAILED)
    assert f"cannot listen beside {sound.kubelet.folder}/" in line
    assert socket_stem(MEMORY) in line or socket_stem(CORE) in line
    assert f"pid {first.pid})" in line
    assert first.status()["kubelet"]["registered"]
    assert sound.kubelet.streams == streams, "kubelet was sent nothing"
    first.stop()


def test_something_else_where_our_sockets_belong(sound: Box) -> None:
    path = (sound.kubelet.folder / socket_stem(CORE)).parent
    path.write_text("")
    line = last_line(sound.start(), FAILED)
    assert line == f"cannot make the folder {path}: [Errno 17] File exists: '{path}'"
    assert path.exists()
    assert sound.sockets() == []


def test_a_run_folder_that_cannot_be_made(sound: Box) -> None:
    sound.write("run", "")
    line = last_line(sound.start(), FAILED)
    assert line.startswith(f"cannot make {sound.root}/run/plugin.sock: ")
    assert line.endswith("set paths.run to a folder of root's")
    untouched(sound)


def test_kubelet_s_folder_that_cannot_be_written_to(sound: Box) -> None:
    sound.kubelet.folder.chmod(0o555)
    line = last_line(sound.start(bound=True), FAILED)
    assert line.startswith(f"cannot write to kubelet's folder {sound.kubelet.folder}: run the plugin as root")
    sound.kubelet.folder.chmod(0o755)
    untouched(sound)


def test_where_neither_cdi_nor_the_nvidia_runtime_works_kubelet_brings_the_cards(sound: Box) -> None:
    config = sound.write("config.toml", "version = 2\n")
    sound.set("driver", injection="auto", containerd_config=str(config))
    process = sound.start()
    process.says(f"cards get into containers by devices: {config} has CDI off; kubelet is given device nodes")
    process.shows(injection={"mode": "devices"})
    sound.kubelet.wait(lambda kubelet: bool(kubelet.lists.get(MEMORY)))
    given = sound.kubelet.caller(MEMORY).allocate([sound.kubelet.lists[MEMORY][0].id], 30).devices
    assert any(node.container_path == "/dev/nvidiactl" for node in given)
    process.stop()


def test_folders_that_cannot_be_made_are_told_and_do_not_end_it(sound: Box) -> None:
    for name in ("state", "cdi"):
        sound.write(name, "")
    memory, _ = sound.save_checkpoint("uid-1", CARD)
    process = sound.start()
    process.says(f"cannot save the inventory: cannot write {sound.root}/state/inventory.json: ")
    process.says(f"cannot write {sound.root}/cdi/edgegpu.json: ")
    sound.kubelet.wait(
        lambda kubelet: [len(kubelet.lists.get(MEMORY, ())), len(kubelet.lists.get(CORE, ()))] == [UNITS, 100]
    )
    with pytest.raises(grpc.RpcError, match=f"edgegpu: cannot write {sound.root}/cdi/edgegpu.json: "):
        sound.kubelet.caller(MEMORY).pre_start(memory, 30)
    (sound.root / "cdi").unlink()
    sound.kubelet.caller(MEMORY).pre_start(memory, 30)
    assert (sound.root / "cdi/edgegpu.json").exists()
    process.stop()


def test_a_saved_inventory_that_cannot_be_read(sound: Box) -> None:
    path = sound.write("state/inventory.json", "")
    store = InventoryStore(path.parent)
    for text in ("{", "[]", "[" * 100_000, '{"version": 1, "cards": [{"uuid": "GPU-1", "index": Infinity}]}'):
        path.write_text(text)
        assert store.load() == SavedInventory()
    process = sound.start()
    process.says(f"cannot read the saved inventory {path}: ")
    process.cards([True])
    process.until(lambda: store.load().cards, "inventory that can be read again")
    process.stop()


def test_a_saved_inventory_that_makes_too_many_devices_leaves_it_to_the_driver(sound: Box) -> None:
    sound.set("resources", unit_mib=1)
    sound.save_inventory(make_card(0, "Tesla T4", 40_000))
    process = sound.start()
    process.says("the cards are not offered as saved: resources.unit_mib: 1 MiB makes 40000 devices")
    process.cards([True])
    process.stop()


def test_the_token_is_in_no_log_when_the_api_server_knows_it_not(sound: Box) -> None:
    sound.api.settings.tokens = {}
    process = sound.start()
    process.says("/api/v1/pods: cannot GET /api/v1/pods: 401")
    assert "401" in process.shows(api={"synced": False})["api"]["problem"]
    process.stop()
