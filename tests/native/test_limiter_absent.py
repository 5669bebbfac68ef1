"""Functions that the driver lacks are not found behind the limiter, by loaders, linkers and NVIDIA's runtimes."""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from native import cudart
from native.limiterkit import NULL_CARD, Container, make_container, make_null_container
from unit.plugin.test_leases import is_soon, leased

from edgegpu_base.elf import ElfError, library_of, opened_library, without
from edgegpu_plugin.containers.driver.limiter_copies import LimiterCopies
from edgegpu_plugin.containers.driver_files import DriverFiles, Library
from edgegpu_plugin.containers.limiter_files import LimiterFiles, find_limiter

LOADERS = [name for name in ("cc", "musl-gcc") if shutil.which(name)]
NAMES = ("first", "second", "third", "fourth")
_LIBRARY = "".join(f"int {name}(void) {{ return {number}; }}\n" for number, name in enumerate(NAMES))
_OWN_TABLE = "int own(void) { return 7; }\nvoid *table[] = { own };\n"
_LOOKUP = """
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
	void *library = dlopen(argv[1], RTLD_NOW);
	for (int i = 2; library && i < argc; i++) {
		int (*function)(void) = (int (*)(void))dlsym(library, argv[i]);
		printf("%s %d\\n", argv[i], function ? function() : -1);
	}
	return library == NULL;
}
"""
_OLD = """
int cuInit(unsigned flags) { return 100; }
int cuDriverGetVersion(int *version) { *version = 11040; return 0; }
int cuMemAlloc_v2(unsigned long *out, unsigned long bytes) { return 801; }
#ifdef NEWER
int cuMemCreate(void *out) { return 801; }
int cuFromTomorrow(void) { return 42; }
int cudbgForDebuggers(void) { return 0; }
#include <string.h>
int cuGetProcAddress_v2(const char *name, void **out, int version, unsigned long flags, int *status)
{
	*out = strcmp(name, "cuFromTomorrow") == 0 ? (void *)cuFromTomorrow :
		strcmp(name, "cuInit") == 0 ? (void *)cuInit : 0;
	if (status)
		*status = *out ? 0 : 1;
	return 0;
}
int cuGetProcAddress(const char *name, void **out, int version, unsigned long flags)
{
	cuGetProcAddress_v2(name, out, version, flags, 0);
	return *out ? 0 : 500;
}
#endif
"""
_HAS = """
import ctypes, sys
library = ctypes.CDLL("libcuda.so.1")
print(*(int(hasattr(library, name)) for name in sys.argv[1:]))
"""
_VERSION = """
import ctypes, sys
version = ctypes.c_int()
print(ctypes.CDLL(sys.argv[1]).cudaDriverGetVersion(ctypes.byref(version)), version.value)
"""
_TOMORROW = """
import ctypes
cuda, found, status = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_int()
for name in (b"cuInit", b"cuFromTomorrow"):
    plain = cuda.cuGetProcAddress(name, ctypes.byref(found), 12000, ctypes.c_uint64(0)), found.value is not None
    newer = cuda.cuGetProcAddress_v2(name, ctypes.byref(found), 12000, ctypes.c_uint64(0), ctypes.byref(status))
    print(*plain, newer, status.value, found.value is not None)
"""
_NOEXEC = """
import pathlib, sys
from edgegpu_plugin.containers.driver.limiter_copies import LimiterCopies
from edgegpu_plugin.containers.driver_files import DriverFiles, Library
from edgegpu_plugin.containers.limiter_files import find_limiter
copies, driver = map(pathlib.Path, sys.argv[1:])
library = Library(driver / "libcuda.so.1", ("libcuda.so.1",))
limiter = find_limiter(pathlib.Path("{limiter}"))
print(LimiterCopies(copies).of(limiter, DriverFiles(root=driver, version="", libraries=(library,))) == limiter)
"""
_ALLOCATE = """
import ctypes
cuda, context, memory = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
print(cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context), end=" ")
print(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20)))
"""
CARD = "GPU-abababab-abab-abab-abab-abababababab"


def compiled(out: Path, source: str, *flags: str | Path, compiler: str = "cc") -> Path:
    path = out.with_suffix(".c")
    path.write_text(source)
    out.unlink(missing_ok=True)  # a new file, as a package manager brings it
    subprocess.run([compiler, "-w", "-o", out, path, *flags], check=True)
    return out


def said(*command: str | Path, library_path: Path | None = None) -> tuple[int, list[str]]:
    env = {**os.environ, **({} if library_path is None else {"LD_LIBRARY_PATH": str(library_path)})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    return done.returncode, (done.stdout + done.stderr).splitlines()


@pytest.mark.parametrize("compiler", LOADERS)
@pytest.mark.parametrize("hashes", ["sysv", "gnu", "both"])
def test_a_loader_finds_only_what_is_left(tmp_path: Path, compiler: str, hashes: str) -> None:
    flags = ("-shared", "-fPIC", f"-Wl,--hash-style={hashes}")
    whole = compiled(tmp_path / "whole.so", _LIBRARY, *flags, compiler=compiler)
    lookup = compiled(tmp_path / "lookup", _LOOKUP, "-ldl", compiler=compiler)
    assert said(lookup, whole, *NAMES) == (0, ["first 0", "second 1", "third 2", "fourth 3"])
    less = tmp_path / "less.so"
    less.write_bytes(without(whole.read_bytes(), ["second", "fourth"]))
    assert said(lookup, less, *NAMES) == (0, ["first 0", "second -1", "third 2", "fourth -1"])
    with opened_library(whole) as before, opened_library(less) as after:
        assert after.exports().keys() == before.exports().keys() - {"second", "fourth"}


def test_the_limiters_libraries_lose_any_of_their_functions(limiter_build: Path) -> None:
    for path in find_limiter(limiter_build).libraries.values():
        content = path.read_bytes()
        functions = [name for name, is_function in library_of(content).exports().items() if is_function]
        assert len(functions) > 400
        assert list(library_of(without(content, functions)).exports()) == ["edgegpu_limiter"]


def test_a_function_that_a_library_finds_by_its_name_itself_stays(tmp_path: Path) -> None:
    whole = compiled(tmp_path / "own.so", _OWN_TABLE, "-shared", "-fPIC").read_bytes()
    with pytest.raises(ElfError, match="it finds own by its name itself"):
        without(whole, ["own"])
    with pytest.raises(ElfError, match="it does not export nothing"):
        without(whole, ["nothing"])


class Box:
    """A driver of some functions, and the limiter's copies over it."""

    def __init__(self, folder: Path, limiter_build: Path) -> None:
        self.folder, self.driver, self.limiter = folder, folder / "driver", find_limiter(limiter_build)
        self.driver.mkdir()
        self.copies = LimiterCopies(folder / "state/limiter")

    def install(self, *flags: str) -> None:
        compiled(self.driver / "libcuda.so.1", _OLD, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", *flags)

    def made(self) -> LimiterFiles:
        library = Library(self.driver / "libcuda.so.1", ("libcuda.so.1", "libcuda.so"))
        return self.copies.of(self.limiter, DriverFiles(root=self.folder, version="", libraries=(library,)))

    def container(self) -> Container:
        self.made()
        name = f"container {len(list(self.folder.iterdir()))}"
        container = make_container(self.folder / name, self.copies_folder, self.driver)
        container.limit((CARD, 1024))
        return container

    @property
    def copies_folder(self) -> Path:
        return self.folder / "state/limiter"

    def has(self, names: Sequence[str]) -> str:
        return self.container().run(sys.executable, "-c", _HAS, *names).strip()


@pytest.fixture
def box(tmp_path: Path, limiter_build: Path) -> Box:
    made = Box(tmp_path, limiter_build)
    made.install()
    return made


def test_a_program_finds_what_this_driver_has_and_after_its_upgrade_what_the_new_one_has(box: Box) -> None:
    names = ["cuInit", "cuMemAlloc_v2", "cuMemCreate", "cuGetProcAddress", "cuGetProcAddress_v2", "cuFromTomorrow"]
    assert box.has(names) == "1 1 0 0 0 0"
    box.install("-DNEWER")
    assert box.has(names) == "1 1 1 1 1 0"


@pytest.mark.parametrize("major", ["11", "12"])
def test_a_runtime_that_is_newer_than_the_driver_is_told_its_version(box: Box, major: str) -> None:
    bare = said(sys.executable, "-c", _VERSION, cudart.SHARED[major], library_path=box.driver)
    assert bare == (0, ["0 11040"])
    assert box.container().run(sys.executable, "-c", _VERSION, cudart.SHARED[major]) == "0 11040\n"


def test_a_linker_takes_what_is_left_and_nothing_else(box: Box) -> None:
    """An image may be built where the driver is, against the library that is mounted there."""
    libraries = box.container().libraries
    for name, links in (("cuInit", True), ("cuMemCreate", False)):
        program = box.folder / name
        program.with_suffix(".c").write_text(f"int {name}(); int main(void) {{ return {name}(0) == 100 ? 0 : 1; }}")
        status, lines = said("cc", "-w", "-o", program, program.with_suffix(".c"), libraries / "libcuda.so.1")
        assert (status == 0) == links, lines
        if not links:
            assert "undefined reference to `cuMemCreate'" in " ".join(lines)
    assert said(box.folder / "cuInit", library_path=libraries)[0] == 0


def test_a_name_that_the_lists_lack_is_absent_by_each_way_and_told_once(
    box: Box, caplog: pytest.LogCaptureFixture
) -> None:
    box.install("-DNEWER")
    container = box.container()
    lines = container.run(sys.executable, "-c", _TOMORROW).splitlines()
    assert lines == ["0 True 0 0 True", "500 False 0 1 False"]
    assert box.copies.unlisted == ("cuFromTomorrow",)
    box.made()
    (warning,) = [record.message for record in caplog.records if record.name.endswith("limiter_copies")]
    assert warning.startswith("the driver has a function that this edgegpu does not know (cuFromTomorrow): programs")


def test_a_copy_is_made_once_for_a_driver_and_one_that_runs_keeps_its_own(box: Box, limiter_build: Path) -> None:
    made = box.made()
    path = made.libraries["libcuda.so.1"]
    assert path == box.copies_folder / "libcuda.so.1"
    assert path.stat().st_mode == (limiter_build / "libcuda.so.1").stat().st_mode
    first = path.stat().st_ino
    with path.open("rb") as mapped:
        assert (box.made(), path.stat().st_ino) == (made, first)
        assert (LimiterCopies(box.copies_folder).of(box.limiter, _files(box)), path.stat().st_ino) == (made, first)
        before = mapped.read()
        box.install("-DNEWER")
        assert box.made() == made
        assert path.stat().st_ino != first
        mapped.seek(0)
        assert mapped.read() == before
    path.write_bytes(b"damaged")
    box.made()
    assert library_of(path.read_bytes()).soname == "libcuda.so.1"
    assert sorted(one.name for one in box.copies_folder.iterdir()) == ["libcuda.so.1", "libnvidia-ml.so.1"]


def test_a_copy_on_which_a_container_has_a_lease_is_made_anew_at_once(box: Box) -> None:
    """The plugin has it open no more after its own restart."""
    path = box.made().libraries["libcuda.so.1"]
    first = path.stat().st_ino
    with leased(path):
        assert is_soon(lambda: LimiterCopies(box.copies_folder).of(box.limiter, _files(box)))
        assert path.stat().st_ino != first
    assert library_of(path.read_bytes()).soname == "libcuda.so.1"


def _files(box: Box) -> DriverFiles:
    library = Library(box.driver / "libcuda.so.1", ("libcuda.so.1",))
    return DriverFiles(root=box.folder, version="", libraries=(library,))


def test_over_a_driver_that_is_no_library_the_whole_limiter_is_laid_and_that_is_told_once(
    box: Box, caplog: pytest.LogCaptureFixture
) -> None:
    (box.driver / "libcuda.so.1").write_bytes(b"\x7fELF\x02\x01 cut off")
    for _ in range(2):
        assert box.made() == box.limiter
    (warning,) = [record.message for record in caplog.records]
    assert warning == (
        "cannot fit the limiter to the driver's functions: it is cut off; programs find functions that this driver "
        "does not have"
    )


def test_where_no_copy_can_be_written_the_whole_limiter_is_laid(box: Box) -> None:
    (box.folder / "state").write_text("a file in the folder's place")
    assert box.made() == box.limiter


def test_on_a_file_system_without_programs_the_whole_limiter_is_laid(box: Box) -> None:
    """No loader maps a library from there: of a list it would be left out, and the image's own driver be used."""
    box.copies_folder.mkdir(parents=True)
    code = _NOEXEC.format(limiter=str(next(iter(box.limiter.libraries.values())).parent))
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,noexec "$1" && exec "$2" -c "$3" "$1" "$4"'
    user = () if os.geteuid() == 0 else ("-Ur",)
    command = ["unshare", *user, "-m", "sh", "-c", script, "sh", box.copies_folder, sys.executable, code, box.driver]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout == "True\n"
    assert f"the file system of {box.copies_folder} is mounted with noexec; programs find functions" in done.stderr


def test_the_copy_of_a_library_is_loaded_beside_a_driver_of_its_name(box: Box) -> None:
    """It is the limiter, by its mark, that the driver's folder must not hold."""
    container = box.container()
    library = ctypes.CDLL(str(container.libraries / "libcuda.so.1"))
    assert ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "edgegpu_limiter"))) == b"libcuda.so.1"


@pytest.mark.parametrize(("flags", "answer"), [((), "0 0 0 0"), (("-DcuDeviceGetUuid_v2=noUuid",), "0 2 0 201")])
def test_a_driver_that_does_not_say_which_card_it_is_grants_nothing(
    limiter_build: Path, tmp_path: Path, flags: tuple[str, ...], answer: str
) -> None:
    """So such drivers, before 396, are refused by the installer (`edgegpu_base/driver_libraries.py`)."""
    container = make_null_container(tmp_path, limiter_build, *flags)
    container.limit((NULL_CARD, 1024))
    assert container.run(sys.executable, "-c", _ALLOCATE).strip() == answer
