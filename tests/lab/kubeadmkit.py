"""A node whose scheduler is a static pod, as kubeadm lays it out: k3s without its own, and a real kube-scheduler."""

import fcntl
import hashlib
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.labkit import LabError, Node, up_server, wait_until
from lab.labrun import HERE, run
from lab.mkimage import write_image

STANDIN = HERE / "standin"
MANIFESTS = "/etc/kubernetes/manifests"
MANIFEST = f"{MANIFESTS}/kube-scheduler.yaml"
KUBERNETES = run([HERE / "labversion.py"]).stdout.split()[0]
"""The lab's version, such as 1.37: the scheduler is of the same as the API server."""
_PINS = [STANDIN / "versions" / f"{KUBERNETES}.{suffix}" for suffix in ("mod", "sum")]
_RELEASE = next(line.split()[1] for line in _PINS[0].read_text().splitlines() if "k8s.io/kubernetes v" in line)
IMAGE, REFUSING = f"registry.k8s.io/kube-scheduler:{_RELEASE}", "registry.k8s.io/kube-scheduler:v1.99.0"
"""The second one ends as soon as it is given a file."""
TEXT = (HERE / "kubeadm-scheduler.yaml").read_text().replace("registry.k8s.io/kube-scheduler:v1.33.13", IMAGE)
"""The manifest that kubeadm writes: made with `kubeadm init phase control-plane scheduler` of 1.33.13."""
REFUSES = "this scheduler takes no file"
RELEASE = "/opt/edgegpu/0.0.1"
_SOURCE = HERE.parents[1]
_PROGRAMS = {
    "edgegpu": "edgegpu_agent.cli.app",
    "edgegpu-agent": "edgegpu_agent",
    "edgegpu-plugin": "edgegpu_plugin",
}
_REFUSING = f"""#!/bin/sh
case "$*" in *--config*) echo '{REFUSES}' >&2; exit 1 ;; esac
exec /usr/local/bin/real-scheduler "$@"
"""
_OWN = """\
for folder in opt usr/local; do
    [ ! -d "/run/own/$folder" ] || continue
    mkdir -p "/run/own/$folder" "/run/own/$folder.work"
    mount -t overlay -o "lowerdir=/$folder,upperdir=/run/own/$folder,workdir=/run/own/$folder.work" overlay "/$folder"
done
rm -f /etc/systemd/system/k3s*.service
mkdir -p /etc/systemd/system/multi-user.target.wants /usr/local/sbin
"""
_SERVER_FILES = "/var/lib/rancher/k3s/server"


def scheduler_binary() -> Path:
    """Return kube-scheduler, built from the modules that the stand-in pins; needs Go the first time.

    8 s where the lab's programs were built before (same flags, same cache), else 4 to 6 minutes and 2 GB on two cores.
    """
    pins = b"".join(path.read_bytes() for path in _PINS)
    folder = _lab() / "build"
    target = folder / f"kube-scheduler-{hashlib.sha256(pins).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "kube-scheduler.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _build(target)
    return target


def scheduler_image() -> Path:
    """Return the image with nothing in it but kube-scheduler, to be imported."""
    binary = scheduler_binary()
    return _image(IMAGE, [f"usr/local/bin/kube-scheduler={binary}"], binary.with_suffix(".tar"))


def refusing_image() -> Path:
    """Return the image of a kube-scheduler that ends, with REFUSES as its last words, when it is given a file."""
    binary = scheduler_binary()
    script = binary.with_suffix(".sh")
    script.write_text(_REFUSING)
    busybox = next(found for name in ("/bin/busybox", "/usr/bin/busybox") if (found := Path(name)).exists())
    items = [f"usr/local/bin/real-scheduler={binary}", f"usr/local/bin/kube-scheduler={script}"]
    return _image(REFUSING, [*items, f"bin/busybox={busybox}", "bin/sh->busybox"], binary.with_suffix(".refuses.tar"))


def up_control_plane(name: str, *k3s_args: str) -> Node:
    """Start a server without a scheduler: kubelet reads kubeadm's folder of manifests, which is empty yet."""
    images = scheduler_image(), refusing_image()
    server = up_server(name, "--disable-scheduler", f"--kubelet-arg=pod-manifest-path={MANIFESTS}", *k3s_args)
    for image in images:
        server.exec("k3s", "ctr", "-n", "k8s.io", "images", "import", str(image))
    for file, credentials in (("scheduler.conf", "cred/scheduler"), ("admin.conf", "cred/admin")):
        config = f"{_SERVER_FILES}/{credentials}.kubeconfig"
        flat = server.exec("k3s", "kubectl", "config", "view", "--flatten", "--raw", "--kubeconfig", config).stdout
        server.write(f"/etc/kubernetes/{file}", flat, mode=0o600)
    return server


def lay_release(server: Node) -> None:
    """Give the node an /opt and /usr/local of its own, a systemctl (kubeadmunits), and edgegpu from the source."""
    server.exec("sh", "-euc", _OWN)  # a second time it adds nothing
    units = f"#!/bin/sh\nexec {sys.executable} {HERE / 'kubeadmunits.py'}"
    server.write("/usr/local/sbin/systemctl", f'{units} "$@"\n', mode=0o755)
    server.write("/usr/local/sbin/systemd-run", "#!/bin/sh\n", mode=0o755)
    folder = server.path(RELEASE)
    for name in ("installer", "systemd"):
        shutil.copytree(_SOURCE / name, folder / name, ignore=shutil.ignore_patterns("edgegpu_installer", "*.sh.in"))
    shutil.copytree(_SOURCE / "docs/examples", folder / "examples")
    (folder / "VERSION").write_text(f"{Path(RELEASE).name}\n")
    for name, module in _PROGRAMS.items():
        command = f"EDGEGPU_RELEASE={RELEASE} exec {sys.executable} -m {module}"
        server.write(f"{RELEASE}/bin/{name}", f'#!/bin/sh\n{command} "$@"\n', mode=0o755)


def lay_manifest(server: Node, text: str = TEXT) -> None:
    """Put the scheduler's manifest where kubelet reads it, and wait until the scheduler is ready."""
    server.write(MANIFEST, text, mode=0o600)
    wait_until(lambda: _ready(server), what=f"the scheduler of {server.name} is ready", every_s=0.3)


def _ready(server: Node) -> bool:
    words = "jsonpath={.status.containerStatuses[0].ready}"
    return (
        server.kubectl("get", "pod", "-n", "kube-system", f"kube-scheduler-{server.name}", "-o", words).stdout == "true"
    )


def _image(name: str, items: Sequence[str], target: Path) -> Path:
    if not target.exists():
        own = [*items, "etc/", "tmp/"]
        write_image(
            target, name=name, entrypoint=["/usr/local/bin/kube-scheduler"], items=own, machine=platform.machine()
        )
    return target


def _build(target: Path) -> None:
    go = run(["sh", "-c", "PATH=$PATH:/usr/local/go/bin command -v go"], check=False).stdout.strip()
    if not go:
        raise LabError("kube-scheduler is built from source: Go 1.21 or newer is needed")
    flags = [
        "-mod=readonly",
        f"-modfile={_PINS[0]}",
        "-trimpath",
        "-buildvcs=false",
        "-tags",
        "providerless osusergo netgo",
        "-ldflags",
        "-s -w",
    ]
    partial = target.with_suffix(".new")
    command = [go, "build", *flags, "-o", str(partial), "k8s.io/kubernetes/cmd/kube-scheduler"]
    run(["env", "-C", str(STANDIN), "CGO_ENABLED=0", *command], timeout_s=1500)
    partial.rename(target)


def _lab() -> Path:
    return Path(os.environ.get("EDGEGPU_LAB", "/var/tmp/edgegpu-lab"))  # noqa: S108 - the lab's place, root's own
