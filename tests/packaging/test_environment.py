"""The self-contained environment: moved, read-only, called through links, with nothing around it to lean on."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("edgegpu", "edgegpu-plugin")
NATIVE = "cryptography.hazmat.bindings._rust, ctypes, grpc._cython.cygrpc, pydantic_core, sqlite3, ssl, yaml._yaml"
SIMULATED = re.compile(rb"edgegpu_sim\b|simdriver")


@pytest.fixture(scope="module")
def moved(simdriver_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert simdriver_build.is_dir()  # what must not come along has to be there
    subprocess.run([ROOT / "tools/env"], check=True, cwd=ROOT)
    target = tmp_path_factory.mktemp("opt") / "edgegpu" / "0.1.0"
    shutil.copytree(ROOT / "build/env/edgegpu", target, symlinks=True)
    return target


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment whose PATH has the one program that a launcher needs."""
    folder = tmp_path_factory.mktemp("path")
    (folder / "readlink").symlink_to(shutil.which("readlink") or "/usr/bin/readlink")
    return {"PATH": str(folder), "HOME": "/nonexistent"}


def run(*command: str | Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd="/", timeout=60)


def say(moved: Path, code: str, env: dict[str, str]) -> str:
    """Run Python code as sys.executable of the environment would, and return what it printed."""
    done = run(moved / "python/bin/python3", "-c", code, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_starts_from_a_moved_folder_with_no_python_on_the_path(moved: Path, bare: dict[str, str], command: str) -> None:
    done = run(moved / "bin" / command, "--help", env=bare)
    assert (done.returncode, done.stderr) == (0, "")
    assert command in done.stdout


def test_starts_through_links(moved: Path, bare: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(moved)
    command = tmp_path / "edgegpu-plugin"
    command.symlink_to("current/bin/edgegpu-plugin")
    assert run(command, "--help", env=bare).returncode == 0


def test_ignores_what_is_around_it(moved: Path, bare: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "grpc.py").write_text("raise SystemExit('the wrong grpc')")
    (tmp_path / "libc.so.6").write_text("the wrong libc")
    around = dict.fromkeys(("PYTHONPATH", "PYTHONHOME"), str(tmp_path))
    program = moved / "python/bin/edgegpu-plugin"
    # sh itself would meet the wrong libc before we do, so the loader is called as the launcher does.
    words = [str(moved / "python/lib"), "--argv0", str(moved / "python/bin/python3")]
    python = next((moved / "python/bin").glob("python3.*"))
    around["LD_LIBRARY_PATH"] = str(tmp_path)
    done = run(program, "--library-path", *words, python, "-I", "-m", "edgegpu_plugin", "--help", env=bare | around)
    assert (done.returncode, done.stderr) == (0, "")


def test_gives_its_children_nothing_of_its_own(moved: Path, bare: dict[str, str]) -> None:
    assert (
        json.loads(say(moved, "import json, os; print(json.dumps(dict(os.environ)))", bare)).items()
        <= (bare | {"LC_CTYPE": "C.UTF-8", "PWD": "/", "OLDPWD": "/", "SHLVL": "0", "_": ""}).items()
    )


def test_the_plugin_finds_the_limiters_libraries_in_it(moved: Path, bare: dict[str, str]) -> None:
    code = "from edgegpu_plugin.containers.limiter_files import find_limiter as f; print(*f().libraries.values())"
    found = say(moved, code, bare).split()
    assert found == [str(moved / "limiter" / name) for name in ("libcuda.so.1", "libnvidia-ml.so.1")]
    assert not [path for path in found if str(ROOT).encode() in Path(path).read_bytes()]


def test_the_hook_for_loader_caches_is_where_the_plugin_looks(moved: Path, bare: dict[str, str]) -> None:
    code = "from edgegpu_plugin.containers.image import loader_cache as l; print(l.default_folder() / l.PROGRAM)"
    program = Path(say(moved, code, bare).strip())
    assert program == moved / "limiter/edgegpu-loader-cache"
    done = run(program, env={})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert str(ROOT).encode() not in program.read_bytes()


def test_the_self_tests_program_is_where_its_unit_starts_it(moved: Path, bare: dict[str, str]) -> None:
    unit = (moved / "systemd/edgegpu-selftest.service").read_text()
    (command,) = re.findall(r"^ExecStart=/opt/edgegpu/current/(\S+) ", unit, re.MULTILINE)
    code = "import pathlib as p; from edgegpu_plugin.selftest.runner import SelftestRunner as R; "
    code += "print(R(p.Path()).program)"
    assert say(moved, code, bare).strip() == str(moved / command)
    done = run(moved / command, env=bare)
    assert (done.returncode, done.stdout) == (2, "")
    assert str(ROOT).encode() not in (moved / command).read_bytes()


def test_a_child_finds_the_same_packages(moved: Path, bare: dict[str, str]) -> None:
    code = "import subprocess as s, sys; s.run([sys.executable, '-c', 'import grpc; print(grpc.__file__)'], check=True)"
    assert say(moved, code, bare).startswith(str(moved / "lib/grpc"))


def test_takes_every_library_from_its_own_folder(moved: Path, bare: dict[str, str]) -> None:
    code = f"import sys, {NATIVE}; print(sys.version); print(open('/proc/self/maps').read())"
    version, _, maps = say(moved, code, bare).partition("\n")
    assert version == sys.version.partition("\n")[0]
    mapped = {line.split()[-1] for line in maps.splitlines() if ".so" in line}
    assert mapped
    assert not [path for path in mapped if not path.startswith(str(moved))]


def test_the_process_is_named_after_its_command(moved: Path, bare: dict[str, str], tmp_path: Path) -> None:
    config = tmp_path / "plugin.yaml"
    os.mkfifo(config)
    with subprocess.Popen(
        [moved / "bin/edgegpu-plugin", "--config", config], env=bare, stderr=subprocess.DEVNULL
    ) as process:
        with config.open("w") as file:  # opens once the plugin reads it
            name = Path(f"/proc/{process.pid}/comm").read_text().strip()
            file.write("no: configuration\n")
        assert process.wait(timeout=30) == 2
    assert name == "edgegpu-plugin"


@pytest.mark.skipif(os.geteuid() != 0, reason="a root of its own needs root")
@pytest.mark.skipif(not shutil.which("busybox"), reason="busybox is not installed (busybox-static)")
def test_starts_where_there_is_only_a_shell(moved: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    shutil.copy(shutil.which("busybox") or "", tmp_path / "bin/busybox")
    for name in ("sh", "readlink"):
        (tmp_path / "bin" / name).symlink_to("busybox")
    shutil.copytree(moved, tmp_path / "opt", symlinks=True, copy_function=os.link)
    for command in (["edgegpu", "version"], ["edgegpu-plugin", "--version"]):
        done = run("chroot", tmp_path, f"/opt/bin/{command[0]}", *command[1:], env={"PATH": os.environ["PATH"]})
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"{command[0]} {(moved / 'VERSION').read_text().strip()}")


def test_holds_no_path_of_this_machine(moved: Path) -> None:
    places = [str(ROOT).encode(), str(moved.parent).encode()]
    if sys.base_prefix not in {"/usr", "/usr/local"}:
        places.append(sys.base_prefix.encode())
    files = [path for path in moved.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in files if any(place in path.read_bytes() for place in places)]


def test_is_not_written_to_when_it_runs(moved: Path, bare: dict[str, str]) -> None:
    before = {path: path.lstat().st_mtime_ns for path in moved.rglob("*")}
    for command in COMMANDS:
        run(moved / "bin" / command, "--help", env=bare)
    assert {path: path.lstat().st_mtime_ns for path in moved.rglob("*")} == before


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file()}


def test_brings_what_the_installer_puts_on_a_box(moved: Path) -> None:
    assert os.access(moved / "uninstall.sh", os.X_OK)
    assert os.access(moved / "bin/edgegpu-agent", os.X_OK)
    assert (moved / "examples/plugin.yaml").is_file()
    units = {path.name for path in (ROOT / "systemd").glob("*.service")}
    assert units == names(moved / "systemd")
    assert names(ROOT / "installer") - {"install.sh", "install-lib.sh", "uninstall.sh"} == names(moved / "installer")


def test_brings_nothing_of_the_simulation(moved: Path) -> None:
    """Nor does a bundle: `test_bundle.py` holds that it has what its environment has, and nothing else."""
    files = {path.relative_to(moved).as_posix() for path in moved.rglob("*")}
    assert "bin/edgegpu" in files
    assert sorted(name for name in files if SIMULATED.search(name.encode())) == []
    told = [path for path in moved.rglob("*") if path.is_file() and path.name != "METADATA"]  # it holds the README
    assert [path for path in told if SIMULATED.search(path.read_bytes())] == []


def test_names_the_licence_of_every_library(moved: Path) -> None:
    notice = (moved / "NOTICE").read_text()
    libraries = [path.name for path in (moved / "python/lib").glob("*.so*")]
    assert libraries
    assert not [name for name in libraries if name not in notice and not name.startswith("libpython")]
    named = [word for word in notice.split() if word.startswith("licenses/")]
    assert not [name for name in named if not (moved / name).is_file()]
