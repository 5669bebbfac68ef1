"""The limiter in a container's root: by which ways programs find it or get past it, and that it stops none of them.

Each way is tried on a real loader, with the limiter mounted over the driver's names alone, with it preloaded alone
(/etc/ld.so.preload), and with both.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from native.limiterkit import SOURCES, compile_program
from native.rootkit import LIBRARIES, NAMES, LaidOutRoot, make_root

from edgegpu_plugin.containers.image.image_check import first_process
from edgegpu_plugin.containers.image.loaders import verdict_of
from edgegpu_plugin.containers.image.root_files import ContainerRoot
from edgegpu_plugin.containers.limiter_files import DRIVER_FOLDER, PRELOAD_LIST, PRELOADED

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and chroot need root")

LIMIT_MIB = 64
EXEC_US = 250
SLACK = 2.0
"""This machine is nobody's alone."""
COMPAT = "/usr/local/cuda-12.4/compat"
MUSL = shutil.which("musl-gcc")
LOADER = "/lib64/ld-linux-x86-64.so.2"
SSH = Path(__file__).with_name("ssh.sh")
WITHOUT_MUSL = pytest.mark.skipif(MUSL is None, reason="musl-gcc is missing (Debian: musl-tools)")

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
WAYS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "by name": (("lookup", "open"), "held", "held"),
    "by the plain name": (("lookup", "open", "libcuda.so"), "held", "past"),
    "by the driver's file name": (("lookup", "open", "libcuda.so.999.0"), "held", "past"),
    "by path": (("lookup", "open", f"{LIBRARIES}/libcuda.so.1"), "held", "past"),
    "by the path of the file": (("lookup", "open", f"{LIBRARIES}/libcuda.so.999.0"), "held", "past"),
    "dlmopen": (("lookup", "dlmopen"), "held", "past"),
    "deepbind": (("lookup", "deepbind"), "held", "held"),
    "link time": (("linked", "link"), "held", "held"),
    "dlsym of all": (("linked", "default"), "held", "held"),
    "RTLD_NEXT of the program": (("linked", "next"), "held", "held"),
    "RTLD_NEXT of a library before the driver": (("linked", "nextlib"), "held", "none"),
    "DT_RPATH": (("rpath", "link"), "held", "held"),
    "dlvsym": (("lookup", "dlvsym", "libcuda.so.1", "libcuda.so.1"), "held", "held"),
    "env -i": (("env", "-i", "/programs/lookup", "open"), "held", "held"),
    "setuid": ((*NOBODY, "/programs/setuid", "open"), "held", "held"),
    "another user": ((*NOBODY, "/programs/lookup", "open"), "held", "held"),
    "su": (("su", "-s", "/bin/sh", "nobody", "-c", "/programs/lookup open"), "held", "held"),
    "ssh": (("unshare", "--net", "/programs/ssh.sh", "/programs/lookup", "open"), "held", "held"),
    "exec": (("lookup", "exec"), "held", "held"),
    "fork": (("lookup", "fork"), "held", "held"),
    "static, by name": (("static", "open"), "held", "past"),
    "static, by path": (("static", "open", f"{LIBRARIES}/libcuda.so.1"), "held", "past"),
    "a driver of the image by LD_LIBRARY_PATH": (
        ("env", f"LD_LIBRARY_PATH={COMPAT}", "/programs/lookup", "open"),
        "past",
        "held",
    ),
    "a driver of the image by ld.so --library-path": (
        (LOADER, "--library-path", COMPAT, "/programs/lookup", "open"),
        "past",
        "held",
    ),
    "a driver of the image by DT_RPATH": (("rpath_compat", "link"), "past", "held"),
    "a driver of the image by LD_PRELOAD": (
        ("env", f"LD_PRELOAD={COMPAT}/libcuda.so.1", "/programs/lookup", "open"),
        "past",
        "past",
    ),
    "a driver of the image by an auditor": (
        ("env", "LD_AUDIT=/programs/audit.so", "/programs/lookup", "open"),
        "past",
        "past",
    ),
    "a driver of the image by path": (("lookup", "open", f"{COMPAT}/libcuda.so.1"), "past", "past"),
    "the driver's folder": (("lookup", "open", f"{DRIVER_FOLDER}/libcuda.so.1"), "past", "past"),
}
"""What a program does, and what comes of it with the mount, and with the preload: `held` to its limit, `past` it, or
that it finds no function (`none`). With both it is held by either."""


@dataclass(frozen=True)
class Parts:
    """What is laid into roots: the programs, the limiter's library and a driver that answers at once."""

    programs: Path
    limiter: Path
    driver: Path

    def root(self, folder: Path, *, way: str, driver: Path | None) -> LaidOutRoot:
        """Return a container's root with the programs in /programs and a driver in the folder of cuda-compat."""
        made = make_root(folder, driver=driver, limiter=self.limiter, way=way, limit_mib=LIMIT_MIB)
        for program in self.programs.iterdir():
            made.put(f"/programs/{program.name}", program, mode=0o4755 if program.name == "setuid" else 0o755)
        made.put(f"{LIBRARIES}/libnext.so", self.programs / "libnext.so")
        return made


@pytest.fixture(scope="module")
def parts(limiter_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    folder = tmp_path_factory.mktemp("parts")
    programs, source, limiter = folder / "programs", ["tests/lookup.c"], limiter_build / "libcuda.so.1"
    programs.mkdir()
    # a static program gives a library no thread-local storage but that of this model
    model = ("-ftls-model=initial-exec", "-Wl,-soname,libcuda.so.1")
    compile_program(folder / "driver", limiter_build, ["tests/nulldriver.c"], "-shared", "-fPIC", *model)
    compile_program(programs / "lookup", limiter_build, source)
    shutil.copy(programs / "lookup", programs / "setuid")
    shutil.copy(SSH, programs / SSH.name)
    compile_program(programs / "static", limiter_build, source, "-static", "-w", "-Wl,--no-warnings")
    next_library = programs / "libnext.so"
    compile_program(next_library, limiter_build, source, "-shared", "-fPIC", "-DNEXT", "-Wl,-soname,libnext.so")
    linked = ("-DLINKED", "-Wl,--no-as-needed", next_library, limiter)
    compile_program(programs / "linked", limiter_build, source, *linked)
    rpath = ("-Wl,--disable-new-dtags", f"-Wl,-rpath,{LIBRARIES}")
    compile_program(programs / "rpath", limiter_build, source, *linked, *rpath)
    rpath = ("-Wl,--disable-new-dtags", f"-Wl,-rpath,{COMPAT}")
    compile_program(programs / "rpath_compat", limiter_build, source, *linked[:-1], folder / "driver", *rpath)
    auditor = ("-shared", "-fPIC", f'-DELSEWHERE="{COMPAT}"')
    compile_program(programs / "audit.so", limiter_build, ["tests/audit.c"], *auditor)
    compile_program(programs / "asan", limiter_build, source, "-fsanitize=address")
    compile_program(programs / "asan_static", limiter_build, source, "-fsanitize=address", "-static-libasan")
    if MUSL:
        subprocess.run([MUSL, "-w", "-o", programs / "musl", SOURCES / source[0]], check=True)
    return Parts(programs, limiter, folder / "driver")


@pytest.fixture(scope="module", params=["mount", "preload", "both"])
def held(parts: Parts, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> LaidOutRoot:
    made = parts.root(tmp_path_factory.mktemp("held") / request.param, way=request.param, driver=parts.driver)
    made.put(f"{COMPAT}/libcuda.so.1", parts.driver)
    return made


def words_of(*command: str) -> tuple[str, ...]:
    """Return a command with the path of a program of ours."""
    is_ours = command[0] not in {"env", "setpriv", "su", "unshare", LOADER}
    return (f"/programs/{command[0]}", *command[1:]) if is_ours else command


@pytest.mark.parametrize("name", WAYS)
def test_each_way_to_the_driver(held: LaidOutRoot, name: str) -> None:
    command, by_mount, by_preload = WAYS[name]
    if name == "ssh" and shutil.which("dropbear") is None:
        pytest.skip("dropbear is missing (Debian: dropbear-bin)")
    done = held.run(*words_of(*command))
    by_both = "held" if "held" in {by_mount, by_preload} else "past"
    if name.startswith("RTLD_NEXT of a library"):
        by_both = by_preload  # the limiter stands before that library then
    outcome = {"mount": by_mount, "preload": by_preload, "both": by_both}[held.folder.name]
    assert (done.stdout, done.returncode, done.stderr) == (f"{outcome}\n", 0, "")


@WITHOUT_MUSL
@pytest.mark.parametrize(("way", "outcome"), [("mount", "none"), ("preload", "past")])
def test_musl_loads_no_limiter_and_reads_no_list_of_libraries(
    parts: Parts, tmp_path: Path, limiter_build: Path, way: str, outcome: str
) -> None:
    """So a program of musl gets nothing where the limiter is mounted, and past it where a driver is made for musl."""
    driver = tmp_path / "driver"
    include = (f"-I{SOURCES}/common", f"-I{SOURCES}/cuda", f"-I{limiter_build}/cuda")
    flags = ("-w", "-shared", "-fPIC", *include, "-o", driver)
    subprocess.run([str(MUSL), *flags, SOURCES / "tests/nulldriver.c"], check=True)
    root = parts.root(tmp_path / "root", way=way, driver=driver)
    assert root.run("/programs/musl", "open").stdout == "none\n"  # it does not look where the driver is
    assert root.run("/programs/musl", "open", env={"LD_LIBRARY_PATH": LIBRARIES}).stdout == f"{outcome}\n"


DAMAGES = ("missing", "of another processor", "cut off")
OLD_DRIVER = "int cuInit(unsigned int flags) { return (int)flags; }"
WITHOUT_CARD = ("asan_static", "static", "asan")
"""Programs of ours that use no card: without a way they say so and end with 2."""


def damage(library: Path, kind: str) -> None:
    """Make of a library one that no loader takes, or none."""
    data = library.read_bytes()
    match kind:
        case "missing":
            library.unlink()
        case "of another processor":
            library.write_bytes(data[:18] + (183).to_bytes(2, "little") + data[20:])
        case "cut off":
            library.write_bytes(data[:200])


@pytest.mark.parametrize("driver", ["whole", "old", *DAMAGES])
@pytest.mark.parametrize("way", ["mount", "preload"])
def test_it_stops_no_program_whatever_the_driver_is(parts: Parts, tmp_path: Path, way: str, driver: str) -> None:
    own, source = tmp_path / "driver", tmp_path / "old.c"
    shutil.copy(parts.driver, own)
    damage(own, driver)
    if driver == "old":
        source.write_text(OLD_DRIVER)
        subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", own, source], check=True)
    root = parts.root(tmp_path / "root", way=way, driver=own if own.exists() else None)
    done = root.run("/bin/true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for program in WITHOUT_CARD:
        if (program, way) != ("asan", "preload"):  # below
            assert root.run(f"/programs/{program}").stderr == "no way \n"
    done = root.run("/programs/linked", "link") if way == "mount" else root.run("/programs/lookup", "open")
    assert (done.stdout, done.returncode, done.stderr) == ("held\n" if driver == "whole" else "no start\n", 0, "")


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_limiter_that_is_mounted_stops_no_program(parts: Parts, tmp_path: Path, kind: str) -> None:
    """The plugin lets no container start with such a file; one that is preloaded is told of by every program there."""
    for way in ("mount", "preload"):
        root = parts.root(tmp_path / way, way=way, driver=parts.driver)
        for path in [PRELOADED] if way == "preload" else [f"{LIBRARIES}/{name}" for name in NAMES]:
            damage(root.files / path[1:], kind)
        done = root.run("/bin/true")
        assert done.returncode == 0
        assert ("cannot be preloaded" in done.stderr) == (way == "preload")
        assert bool(done.stderr) == (way == "preload")


def test_a_program_with_gccs_sanitizer_refuses_any_preload(parts: Parts, tmp_path: Path) -> None:
    root = parts.root(tmp_path / "root", way="preload", driver=parts.driver)
    done = root.run("/programs/asan", "open")
    assert "ASan runtime does not come first" in done.stderr
    assert root.run("/programs/asan", "open", env={"ASAN_OPTIONS": "verify_asan_link_order=0"}).stdout == "held\n"


def test_a_preload_costs_each_start_of_a_program_less_than_its_limit(parts: Parts, tmp_path: Path) -> None:
    took_us: dict[str, int] = {}
    for way in ("mount", "preload", "both") * 2:
        root = parts.root(tmp_path / f"{way}{len(took_us)}", way=way, driver=parts.driver)
        us = int(root.run("/programs/lookup", "spawn", "/bin/true").stdout)
        took_us[way] = min(us, took_us.get(way, us))
    assert max(took_us["preload"], took_us["both"]) - took_us["mount"] < EXEC_US * SLACK, took_us


CACHED = f"echo {COMPAT} > /etc/ld.so.conf.d/00-compat.conf; ldconfig 2>/dev/null; "
LAYOUTS: dict[str, tuple[str, dict[str, str], str]] = {
    "nothing of its own": ("", {}, "held"),
    "a driver that nothing names": (f"{COMPAT}/libcuda.so.1", {}, "held"),
    "LD_LIBRARY_PATH": (f"{COMPAT}/libcuda.so.1", {"LD_LIBRARY_PATH": f"/nothing:{COMPAT}"}, "past"),
    "LD_LIBRARY_PATH after the mount": (
        f"{COMPAT}/libcuda.so.1",
        {"LD_LIBRARY_PATH": f"{LIBRARIES}:{COMPAT}"},
        "held",
    ),
    "a folder of newer processors": (f"{LIBRARIES}/glibc-hwcaps/x86-64-v2/libcuda.so.1", {}, "past"),
    "such a folder on the path": (
        f"{COMPAT}/glibc-hwcaps/x86-64-v2/libcuda.so.1",
        {"LD_LIBRARY_PATH": COMPAT},
        "past",
    ),
    "ld.so.conf": (f"{COMPAT}/libcuda.so.1", {"CACHED": "yes"}, "past"),
    "a link out of the root": ("/usr/local/link", {"LD_LIBRARY_PATH": "/usr/local/link"}, "past"),
}
"""A driver's place in an image, its environment, and what a program gets that asks for libcuda.so.1."""


@contextmanager
def waiting(root: LaidOutRoot, *command: str, env: dict[str, str]) -> Iterator[int]:
    """Have a program of ours wait in a root; its process's number."""
    words = root.command(*command)
    with subprocess.Popen(words, env={**os.environ, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


def verdict(root: LaidOutRoot, *command: str, env: dict[str, str]) -> str:
    """Return what the plugin says of a container with this first process."""
    with waiting(root, *command, env=env) as pid:
        seen = ContainerRoot(Path(f"/proc/{pid}/root"))
        try:
            return verdict_of(seen, first_process(Path(f"/proc/{pid}")), machine="x86_64").reason
        finally:
            seen.close()


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("program", ["lookup", "static"])
def test_the_plugin_says_of_an_image_what_its_loader_does(
    parts: Parts, tmp_path: Path, name: str, program: str
) -> None:
    place, env, outcome = LAYOUTS[name]
    root = parts.root(tmp_path / "root", way="mount", driver=parts.driver)
    if name == "a link out of the root":
        root.put("/etc/own/libcuda.so.1", parts.driver)
        (root.files / "usr/local").mkdir(parents=True, exist_ok=True)
        (root.files / "usr/local/link").symlink_to("../../../../../../../../etc/own")
    elif place:
        root.put(place, parts.driver)
    before = CACHED if "CACHED" in env else ""
    done = root.run("sh", "-c", f"{before}exec /programs/{program} open", env=env)
    if program == "lookup":
        assert (done.stdout, done.stderr) == (f"{outcome}\n", "")
    said = verdict(root, "sh", "-c", f"{before}exec /programs/{program} wait", env=env)
    assert ("a driver of its own" in said) == (outcome == "past"), said
    assert bool(said) == (outcome == "past")


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_list_that_names_the_limiter_holds_each_image_and_the_plugin_sees_that(
    parts: Parts, tmp_path: Path, name: str
) -> None:
    place, env, _ = LAYOUTS[name]
    root = parts.root(tmp_path / "root", way="both", driver=parts.driver)
    if place and name != "a link out of the root":
        root.put(place, parts.driver)
    before = CACHED if "CACHED" in env else ""
    done = root.run("sh", "-c", f"{before}exec /programs/lookup open", env=env)
    assert (done.stdout, done.stderr) == ("held\n", "")
    said = verdict(root, "sh", "-c", f"{before}exec /programs/lookup wait", env=env)
    finds_it = MUSL is not None and name == "LD_LIBRARY_PATH"  # this machine's musl, which reads no list
    assert said == "" or finds_it, said


def test_an_empty_list_changes_no_program(parts: Parts, tmp_path: Path) -> None:
    """Each held container has it mounted: of glibc, static, of musl, with a sanitizer, setuid, 32-bit."""
    root = parts.root(tmp_path / "root", way="mount", driver=parts.driver)
    root.put(PRELOAD_LIST, "")
    assert (root.files / PRELOAD_LIST[1:]).stat().st_size == 0
    programs = [("/bin/true",), ("/programs/lookup", "open"), ("/programs/static", "open"), ("/programs/asan", "open")]
    programs.append((*NOBODY, "/programs/setuid", "open"))
    programs += [("/programs/musl",)] if MUSL else []
    with_it = [root.run(*words) for words in programs]
    (root.files / PRELOAD_LIST[1:]).unlink()
    without = [root.run(*words) for words in programs]
    assert [(one.returncode, one.stdout, one.stderr) for one in with_it] == [
        (one.returncode, one.stdout, one.stderr) for one in without
    ]


@WITHOUT_MUSL
def test_of_an_image_with_musl_beside_glibc_the_one_that_finds_the_driver_counts(parts: Parts, tmp_path: Path) -> None:
    root = parts.root(tmp_path / "root", way="mount", driver=parts.driver)
    assert verdict(root, "/programs/musl", "wait", env={}) == ""
    root.put(f"{COMPAT}/libcuda.so.1", parts.driver)
    assert "a driver of its own" in verdict(root, "/programs/musl", "wait", env={"LD_LIBRARY_PATH": COMPAT})
