"""A machine on which NVIDIA's packages are installed, and containers with what the plugin finds there.

test_layouts.py runs it as root, in a mount namespace of its own: nothing of it is left when it ends. The machine is
this one with another layer over it, into which dpkg installs the packages with their own scripts. A container is this
machine without the packages, with the plugin's mounts.

    layouts.py VERSION PACKAGE...   install, find, and try: prints a `Tried` as JSON
    layouts.py --find VERSION       run by the former in the machine: prints a `Found` as JSON
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from driver.cache import cache_folder

from edgegpu_agent.cli.clients.doctor import BoxClients
from edgegpu_core.inventory import Card
from edgegpu_installer.doctor.driver import check_versions
from edgegpu_installer.doctor.probe import BoxProbe
from edgegpu_installer.layout import Layout
from edgegpu_installer.machine.facts import read_facts
from edgegpu_installer.machine.programs import SYSTEM_PATH
from edgegpu_installer.plan.precheck import precheck
from edgegpu_installer.plan.site import InstallOptions
from edgegpu_plugin.cards.nvml_library import NvmlLibrary
from edgegpu_plugin.containers.cdi import build_spec
from edgegpu_plugin.containers.driver_files import DriverFiles, find
from edgegpu_plugin.containers.kubelet_injection import DeviceNodeInjection
from edgegpu_plugin.errors import NvmlError, PluginError

ROOT = Path(__file__).resolve().parents[2]
CARD = Card(uuid="GPU-1", index=0, name="T4", memory_mib=15360, pci="00000000:01:00.0", minor=0)
LINKS = Path("/run/edgegpu-links")
PYTHON = "/usr/bin/python3"
OPEN = "import ctypes, sys; print(getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])(0))"
LOAD = "import ctypes, sys; [ctypes.CDLL(name) for name in sys.argv[1:]]; print('loaded')"
TRIES = {
    "nvidia-smi": ("nvidia-smi",),
    "cuInit": (PYTHON, "-c", OPEN, "libcuda.so.1", "cuInit"),
    "nvmlInit_v2": (PYTHON, "-c", OPEN, "libnvidia-ml.so.1", "nvmlInit_v2"),
}
"""What is tried in a container, by name."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the plugin finds on the machine; with an error nothing else."""

    error: str = ""
    libraries: tuple[str, ...] = ()
    """The names of all libraries in a container."""
    tools: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """What libcuda asks for and is not there: with the packages as they are, and without the compiler of PTX."""
    same_without_version: bool = False
    """Whether it finds the same while the module is not loaded and nobody says the driver's version."""
    mounts: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    """By the way of injection: from paths in a container to files of the machine."""
    unloaded: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """What plugin, doctor and installer say of the driver, whose module is not loaded; a card is on the bus."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What was found, and what programs say in a container, by the way of injection: status and last line."""

    found: Found
    answers: dict[str, dict[str, tuple[int, str]]]


def _run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=env)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def _overlay(work: Path, name: str) -> Path:
    """Return a folder that has this machine's files, and keeps all changes to itself."""
    upper, inner, root = (work / name / part for part in ("upper", "work", "root"))
    for folder in (upper, inner, root):
        folder.mkdir(parents=True)
    _run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={inner}", root)
    _run("mount", "-t", "proc", "proc", root / "proc")
    _run("mount", "--rbind", "/dev", root / "dev")
    for folder in (ROOT, Path(sys.base_prefix), cache_folder()):
        if folder.stat().st_dev != Path("/").stat().st_dev:
            (root / folder.relative_to("/")).mkdir(parents=True, exist_ok=True)
            _run("mount", "--bind", folder, root / folder.relative_to("/"))
    return root


def _install(machine: Path, packages: Sequence[str]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    options = (
        "--force-depends",
        "--force-confold",
        "--force-unsafe-io",
        "--path-exclude=/usr/share/man/*",  # manuals would be indexed
    )
    _run("chroot", machine, "dpkg", *options, "-i", *packages, env=environment)


def _mounts(files: DriverFiles) -> dict[str, dict[str, str]]:
    """Return the mounts of a container without the limiter, by the way of injection."""
    links = DeviceNodeInjection(root=Path("/"), folder=LINKS)
    links.make([CARD], files)
    return {
        "cdi": {
            mount["containerPath"]: os.path.realpath(mount["hostPath"])
            for mount in build_spec([CARD], files)["containerEdits"]["mounts"]
        },
        "devices": {
            mount.container_path: os.path.realpath(mount.host_path) for mount in links.allocation([CARD]).mounts
        },
    }


def _unloaded() -> dict[str, list[str]]:
    card = Path("/sys/bus/pci/devices/0000:01:00.0")
    card.mkdir(parents=True)
    for name, text in (("vendor", "0x10de\n"), ("class", "0x030200\n")):
        (card / name).write_text(text)
    try:
        NvmlLibrary(root=Path("/"), recover_s=1).query()
        plugin = ["no error"]
    except NvmlError as error:
        plugin = [error.kind.name, str(error)]
    now = datetime.now(UTC)
    doctor = check_versions(BoxProbe(root=Path("/"), clients=BoxClients(Path("/")), path=SYSTEM_PATH, now=lambda: now))
    facts = replace(read_facts(Layout(Path("/"))), root=True, machine="x86_64", rooms=())
    installer = [finding.what for finding in precheck(facts, InstallOptions()) if "NVIDIA" in finding.what]
    return {"plugin": plugin, "doctor": [problem.text for problem in doctor.problems], "installer": installer}


def _names(files: DriverFiles) -> tuple[str, ...]:
    opened = (library for capability in files.opened.values() for library in capability.libraries)
    return tuple(sorted({name for library in (*files.libraries, *opened) for name in library.names}))


def _find(version: str) -> Found:
    try:
        files = find(Path("/"), version=version)
        unloaded = find(Path("/"))
    except PluginError as error:
        return Found(str(error))
    return Found(
        libraries=_names(files),
        tools=tuple(path.name for path in files.tools),
        left_out=files.left_out,
        missing=(*files.missing, "-", *_without_compiler(version)),
        same_without_version=files == unloaded,
        mounts=_mounts(files),
        unloaded=_unloaded(),
    )


def _without_compiler(version: str) -> tuple[str, ...]:
    """Return what is missing where the package of the compiler of PTX was left out."""
    (path,) = (path for path in Path("/usr/lib").rglob("libnvidia-ptxjitcompiler.so.*.*") if not path.is_symlink())
    away = path.rename(path.with_name("away"))
    try:
        return find(Path("/"), version=version).missing
    finally:
        away.rename(path)


def _answers(container: Path, machine: Path, mounts: dict[str, str]) -> Iterator[tuple[str, tuple[int, str]]]:
    for inside, outside in mounts.items():
        target = container / inside.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
        _run("mount", "--bind", machine / outside.lstrip("/"), target)
    libraries = sorted({Path(inside).name for inside in mounts if ".so" in inside})
    for name, command in {**TRIES, "load": (PYTHON, "-c", LOAD, *libraries)}.items():
        done = subprocess.run(["chroot", container, *command], capture_output=True, text=True, check=False)
        lines = (done.stdout + done.stderr).strip().splitlines()
        yield name, (done.returncode, lines[-1] if lines else "")


def _try(version: str, packages: Sequence[str]) -> Tried:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        _run("mount", "-t", "tmpfs", "tmpfs", work)
        try:
            machine = _overlay(work, "machine")
            _install(machine, packages)
            found = Found(**json.loads(_run("chroot", machine, sys.executable, __file__, "--find", version)))
            ways = found.mounts.items()
            return Tried(found, {way: dict(_answers(_overlay(work, way), machine, to)) for way, to in ways})
        finally:
            _run("umount", "--lazy", "--recursive", work)


if __name__ == "__main__":
    made = _find(sys.argv[2]) if sys.argv[1] == "--find" else _try(sys.argv[1], sys.argv[2:])
    sys.stdout.write(json.dumps(dataclasses.asdict(made)))
