"""Small images with the settings of popular ones: environment, users, folders, loader cache, entry point.

Their files are this machine's glibc and loader, laid out as Debian and Ubuntu have them, busybox, ldconfig, and the
program that asks for card memory. What each sets is data: popular_images.yaml.
"""

import io
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from e2e.memoryclient import make_memory_client
from lab.mkimage import Image, write_images

DATA = Path(__file__).with_name("popular_images.yaml")
TAKEN_MIB = 100
"""What the program of each image takes at once."""

_TRIPLET = f"{platform.machine()}-linux-gnu"
_LIBRARIES = ("libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1", "libgomp.so.1")
_FOLDERS = ("dev", "proc", "run", "sys", "root", "var", "opt", "home", "etc", "tmp", "usr/bin", "usr/sbin", "usr/lib64")
_LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
_STUB = "int cuInit(unsigned int flags) { (void)flags; return 34; }\n"
"""What CUDA's stub of the driver answers: it is there to link with (CUDA_ERROR_STUB_LIBRARY)."""
_ENTRY = """#!/bin/sh
trap 'kill $! 2>/dev/null; exit 0' TERM INT
{first}
{{ /usr/local/bin/memory_client --keep {mib} || sleep 2147483647; }} &
wait $!
"""
_WAYS = {
    "name": "libcuda.so.1",
    "path": "$(ls -d /usr/local/cuda*/targets/*/lib/libcuda.so* /usr/lib/*/libcuda.so* 2>/dev/null | tail -n 1)",
    "cache": (
        '$([ -n "$TRITON_LIBCUDA_PATH" ] && echo "$TRITON_LIBCUDA_PATH/libcuda.so.1" '
        "|| ldconfig -p | awk '$1 == \"libcuda.so.1\" {print $NF; exit}')"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PopularImage:
    """What an image sets; popular_images.yaml says what each field means."""

    name: str
    env: Mapping[str, str]
    entrypoint: list[str]
    opens: str
    uid: int
    sources: list[str]
    workdir: str = "/"
    user: str = ""
    users: Mapping[str, int] = field(default_factory=dict)
    cmd: list[str] = field(default_factory=list)
    own_driver: str = ""
    stub: str = ""
    cached: list[str] = field(default_factory=list)
    links: Mapping[str, str] = field(default_factory=dict)
    first: str = ":"
    video: bool = False

    @property
    def reference(self) -> str:
        """The name by which pods use the small image."""
        return f"popular-{self.name}:lab"

    @property
    def driver(self) -> str:
        """What its programs open as the driver, for a shell in it."""
        return _WAYS[self.opens]

    @property
    def loads_another(self) -> bool:
        """Whether its loader finds a libcuda.so.1 of the image's own before what lies in the usual folders."""
        return bool(self.cached and (self.own_driver or self.stub)) or self.own_driver in self._named()

    def _named(self) -> set[str]:
        folders = self.env.get("LD_LIBRARY_PATH", "").split(":")
        return {str(Path(folder).parent / self.links.get(folder, Path(folder).name)) for folder in folders if folder}


def popular_images() -> dict[str, PopularImage]:
    """Return the images by their names."""
    data = yaml.safe_load(DATA.read_text())
    return {name: PopularImage(name=name, **settings) for name, settings in data.items()}


def write_popular(out: Path, work: Path, *, driver: Path) -> None:
    """Write all of them into one archive.

    Args:
        out: the archive.
        work: an empty folder.
        driver: the libcuda.so.1 that images have as their own.
    """
    base = _make_base(work)
    lowest = _layer(base)
    images = []
    for image in popular_images().values():
        root = work / image.name
        _lay(image, base, root, driver=driver)
        config = {
            "Env": [f"{name}={value}" for name, value in image.env.items()],
            "User": image.user,
            "WorkingDir": image.workdir,
            "Entrypoint": image.entrypoint,
            "Cmd": image.cmd,
        }
        images.append(Image(image.reference, [lowest, _layer(root)], config))
    write_images(out, images, machine=platform.machine())


def _make_base(work: Path) -> Path:
    """Lay out what all images have."""
    base = work / "base"
    for folder in _FOLDERS:
        (base / folder).mkdir(parents=True)
    (base / "tmp").chmod(0o1777)
    libraries = base / "usr/lib" / _TRIPLET
    libraries.mkdir(parents=True)
    for link, target in _LINKS.items():
        (base / link).symlink_to(target)
    for name in _LIBRARIES:
        shutil.copy(f"/lib/{_TRIPLET}/{name}", libraries / name)
    loader = next(Path("/").glob("lib64/ld-linux-*.so.*"), None) or next(Path("/lib").glob("ld-linux-*.so.*"))
    shutil.copy(loader, base / loader.relative_to("/"))
    shutil.copy("/bin/busybox", base / "usr/bin/busybox")
    shutil.copy("/sbin/ldconfig", base / "usr/sbin/ldconfig")
    listed = subprocess.run(["/bin/busybox", "--list"], capture_output=True, text=True, check=True).stdout.split()
    for applet in set(listed) - {"busybox", "ldconfig"}:
        (base / "usr/bin" / applet).symlink_to("busybox")
    programs = base / "usr/local/bin"
    programs.mkdir(parents=True)
    shutil.copy(make_memory_client(work / "client") / "memory_client", programs)
    for name in ("libGLdispatch.so.0", "libGLdispatch.so"):  # what an image preloads by itself
        _compile("", libraries / name, soname="libGLdispatch.so.0")
    return base


def _compile(source: str, out: Path, *, soname: str) -> None:
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", f"-Wl,-soname,{soname}", "-o", str(out)]
    subprocess.run(command, input=source, text=True, check=True)


def _lay(image: PopularImage, base: Path, root: Path, *, driver: Path) -> None:
    """Lay out what one image has beside the common files, with a cache as its build makes it."""
    for folder in (image.workdir, "/etc/ld.so.conf.d", *filter(None, [image.own_driver, image.stub]), *image.cached):
        _inside(root, folder).mkdir(parents=True, exist_ok=True)
    if image.own_driver:
        shutil.copy(driver, _inside(root, image.own_driver) / "libcuda.so.1")
    if image.stub:
        _compile(_STUB, _inside(root, image.stub) / "libcuda.so.1", soname="libcuda.so.1")
    for link, target in image.links.items():
        place = _inside(root, link)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
    rows = [f"{name}:x:{uid}:{uid}::/:/bin/sh" for name, uid in {"root": 0, **image.users}.items()]
    _inside(root, "/etc/passwd").write_text("\n".join([*rows, ""]))
    _inside(root, "/etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
    _inside(root, "/etc/ld.so.conf.d/image.conf").write_text("".join(f"{each}\n" for each in image.cached))
    entry = _inside(root, image.entrypoint[0])
    entry.parent.mkdir(parents=True, exist_ok=True)
    entry.write_text(_ENTRY.format(first=image.first, mib=TAKEN_MIB))
    entry.chmod(0o755)
    _make_cache(base, root)


def _inside(root: Path, path: str) -> Path:
    """Return a path of the image in its own layer, where the links of the common files do not lie."""
    first, _, rest = path.strip("/").partition("/")
    return root / _LINKS.get(first, first) / rest


def _make_cache(base: Path, root: Path) -> None:
    """Let ldconfig make the cache of both layers together."""
    whole = root.with_name(f"{root.name}.whole")
    shutil.copytree(base, whole, symlinks=True)
    shutil.copytree(root, whole, symlinks=True, dirs_exist_ok=True)
    subprocess.run(["/sbin/ldconfig", "-X", "-r", str(whole)], check=True)
    shutil.copy(whole / "etc/ld.so.cache", root / "etc/ld.so.cache")
    shutil.rmtree(whole)


def _layer(root: Path) -> bytes:
    """Return a folder as a layer, owned by root."""

    def owned(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mtime = 0
        return info

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(root.iterdir()):
            tar.add(path, arcname=path.name, filter=owned)
    return buffer.getvalue()
