"""What install.sh refuses, in one line with the remedy, with nothing left on the box; a script that arrived in part."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from kits.cli import edgegpu
from kits.install import BASENAME, ROOT, VERSION, Host, Sandbox, proxy, unpinned
from kits.lockers import locked_by_another_user, open_folder

REFUSALS: dict[str, tuple[dict[str, str], str]] = {
    "not root": ({"id": "echo 1000"}, "this needs root; run it again as root"),
    "another system": ({"uname": "echo FreeBSD"}, "this is FreeBSD; edgegpu runs on Linux"),
    "another machine": (
        {"uname": "case $1 in -m) echo aarch64 ;; *) echo Linux ;; esac"},
        "this box is aarch64; edgegpu is for x86_64",
    ),
    "no disk": (
        {"df": 'echo "Filesystem 1024-blocks Used Available"; echo "/dev/sda1 99 98 1 99% /"'},
        "has 0 MiB free; make room there",
    ),
}


def refused(box: Sandbox, done: subprocess.CompletedProcess[str], words: str, *, status: int = 1) -> None:
    """Assert that it ended in one line that holds these words, and left nothing."""
    assert done.returncode == status, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("install.sh: ")
    assert words in last
    assert not (box.root / "opt").exists()
    assert not (box.record / "words").exists()


@pytest.mark.parametrize("name", REFUSALS)
def test_a_box_that_will_not_do(script: str, box: Sandbox, name: str) -> None:
    programs, words = REFUSALS[name]
    for program, text in programs.items():
        box.program(program, text)
    refused(box, box.run(script, "--url", "https://127.0.0.1:1"), words)
    assert not box.calls("curl")


def test_a_box_without_systemd(script: str, box: Sandbox) -> None:
    (box.root / "run/systemd/system").rmdir()
    refused(box, box.run(script, "--url", "https://127.0.0.1:1"), "systemd is not running here")


@pytest.mark.parametrize(("missing", "words"), [("sha256sum", "install it"), ("curl", "apt-get install curl")])
def test_a_box_that_lacks_a_program(script: str, box: Sandbox, missing: str, words: str) -> None:
    box.without(missing)
    refused(box, box.run(script, "--url", "https://127.0.0.1:1"), words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--url",), "--url needs a value"),
        (("--ca-sha256", "12"), "--sha256 and --ca-sha256 need 64 digits of 0-9a-f, and not '12'"),
        (("--token", "a", "--token-file", "b"), "--token and --token-file exclude each other"),
        (("--polcy", "spread"), "there is no option --polcy"),
        (("--polcy=spread",), "there is no option --polcy"),
        (("--policy", "sprad"), "--policy is one of first-fit best-fit spread, and not 'sprad'"),
        (("--policy=sprad",), "--policy is one of first-fit best-fit spread"),
        (("--role", "sever"), "--role is one of server agent extender-only"),
        (("--isolation", "hard"), "--isolation is one of none limiter mps"),
        (("--wait-at-start", "yes"), "--wait-at-start is one of on off"),
        (("--unit-mib", "1GiB"), "--unit-mib needs a number, and not '1GiB'"),
        (("--policy",), "--policy needs a value"),
        (("--node",), "--node needs a value"),
        (("--node", "--yes"), "--node needs a value"),
        (("box-1",), "cannot tell what 'box-1' is for"),
        (("--yes", "box-1"), "cannot tell what 'box-1' is for"),
    ],
)
def test_a_command_line_without_sense(script: str, box: Sandbox, words: tuple[str, ...], said: str) -> None:
    """Whatever `edgegpu install` would refuse as well is refused before anything is fetched."""
    refused(box, box.run(script, "--url", "https://127.0.0.1:1", *words), said, status=2)
    assert not box.calls("curl")


def test_every_option_of_edgegpu_install_is_known_to_install_sh(script: str, box: Sandbox) -> None:
    box.program("id", "echo 1000")
    help_ = edgegpu("install", "--help", env={"COLUMNS": "200"}).out.partition("Options:")[2]
    options = re.findall(r"^ +(?:(-[a-z]), )?(--[a-z0-9-]+)(?: ([A-Za-z|]+))?", help_, re.MULTILINE)
    assert len(options) > 20
    values = {
        "--role": "agent",
        "--policy": "spread",
        "--isolation": "none",
        "--wait-at-start": "on",
        "--ca-sha256": "0" * 64,
        "--output": "yaml",
    }
    for short, name, metavar in [*options, ("", "--transaction-id", "ID")]:
        for word in filter(None, (short, name)):
            if name != "--help":
                value = [values.get(name, "30")] if metavar else []
                done = box.run(script, "--url", "https://127.0.0.1:1", word, *value)
                assert (done.returncode, "this needs root" in done.stderr) == (1, True), (word, done.stderr)


def test_without_root_nothing_else_is_asked_first(script: str, box: Sandbox) -> None:
    box.program("id", "echo 1000")
    for words in (("--token-file", "/root/token"), ("--offline", "/root/x"), ()):
        refused(box, box.run(script, *words), "this needs root; run it again as root (sudo sh)")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "cannot find the host: give --url https://HOST, or set EDGEGPU_URL"),
        (("--url", "http://x"), "the address has to begin with https://"),
        (("--token-file", "/nonexistent"), "cannot read a token from /nonexistent"),
        (("--offline", "/x/edgegpu.tar.xz"), "its name has to be edgegpu-VERSION-linux-amd64.tar.xz"),
        (("--offline", f"/x/{BASENAME}.tar.xz"), "name the bundle by its path"),
        (("--offline", "/dev/../edgegpu-9.9-linux-amd64.tar.xz"), "name the bundle by its path"),
    ],
)
def test_what_it_cannot_use(script: str, box: Sandbox, words: tuple[str, ...], said: str) -> None:
    refused(box, box.run(script, *words), said)


def test_a_bundle_of_another_version(script: str, served: Path, box: Sandbox) -> None:
    bundle = shutil.copy(served / f"{BASENAME}.tar.xz", box.base / "edgegpu-9.9-linux-amd64.tar.xz")
    refused(box, box.run(script, "--offline", bundle), f"this install.sh is for {VERSION}; take the one of 9.9")


def test_a_renamed_bundle(script: str, served: Path, box: Sandbox) -> None:
    bundle = shutil.copy(served / f"{BASENAME}.tar.xz", box.base / "edgegpu-9.9-linux-amd64.tar.xz")
    template = unpinned(script)
    refused(box, box.run(template, "--offline", bundle), "this install.sh has no checksum in it; give --sha256")
    (box.base / "SHA256SUMS").write_text(
        (served / "SHA256SUMS").read_text().replace(f"{BASENAME}.tar.xz", "edgegpu-9.9-linux-amd64.tar.xz")
    )
    refused(box, box.run(template, "--offline", bundle), "it does not hold edgegpu 9.9, though its name says so")


def test_a_template(box: Sandbox) -> None:
    template = ROOT / "installer/install.sh"
    refused(box, box.run(template.read_text()), "this install.sh is a template")
    done = subprocess.run(["sh", template], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "this install.sh is a template and has no checksum in it" in done.stderr


@pytest.mark.parametrize("fetcher", ["curl", "wget"])
def test_a_certificate_that_nobody_vouches_for(script: str, host: Host, box: Sandbox, fetcher: str) -> None:
    if fetcher == "wget":
        box.without("curl")
        box.program("wget", f'exec {shutil.which("wget") or pytest.skip("wget is not installed")} "$@"')
    done = box.run(script, "--url", host.url)
    refused(box, done, "give --ca-sha256 if the host has a CA of its own; check this box's clock: ")
    assert "cannot trust https://127.0.0.1" in done.stderr
    assert not box.calls("sleep")


def test_another_ca_than_the_pinned(script: str, host: Host, box: Sandbox) -> None:
    done = box.run(script, "--url", host.url, "--ca-sha256", "0" * 64)
    refused(box, done, f"its ca.crt has sha256 {host.cert.ca_sha256} and not that of --ca-sha256")


def test_a_bundle_that_was_changed(script: str, host: Host, files: Path, box: Sandbox) -> None:
    bundle = files / f"{BASENAME}.tar.xz"
    bundle.write_bytes(bundle.read_bytes()[:-1] + b"?")
    refused(box, box.run(script, *host.trusted), "nothing was unpacked; fetch install.sh and the bundle anew")
    assert not box.calls("tar")


@pytest.mark.parametrize("fetcher", ["curl", "wget"])
def test_a_host_without_the_bundle(script: str, host: Host, files: Path, box: Sandbox, fetcher: str) -> None:
    if fetcher == "wget":
        box.without("curl")
        box.program("wget", f'exec {shutil.which("wget") or pytest.skip("wget is not installed")} "$@"')
    (files / f"{BASENAME}.tar.xz").unlink()
    refused(box, box.run(script, *host.trusted), "the host has no such file (404)")
    assert not box.calls("sleep")


def test_a_host_that_never_sends_all(script: str, host: Host, box: Sandbox) -> None:
    host.faults.busy = 99
    said = "check that this box reaches that host; by a proxy: --proxy, without a network: --offline"
    refused(box, box.run(script, *host.trusted), said)
    assert len(box.calls("sleep")) == 4


def test_no_host_there(script: str, box: Sandbox) -> None:
    refused(box, box.run(script, "--url", "https://127.0.0.1:1"), "cannot fetch https://127.0.0.1:1/edgegpu-")


def test_a_proxy_that_refuses(script: str, host: Host, box: Sandbox) -> None:
    with proxy(refuses=True) as (address, _):
        refused(box, box.run(script, *host.trusted, "--proxy", address), "the proxy refuses")


def test_a_disk_that_fills_up(script: str, host: Host, box: Sandbox) -> None:
    box.program("tar", "exit 2")
    refused(box, box.run(script, *host.trusted), "if the disk is full, make room in")


def test_what_cannot_be_started(script: str, host: Host, box: Sandbox) -> None:
    box.program("readlink", "exit 1")
    box.program("tar", f'{shutil.which("tar")} "$@" && chmod -x */opt/edgegpu/.*/out/*/bin/edgegpu')
    refused(box, box.run(script, *host.trusted, PATH=f"{box.path}:/bin"), "is mounted noexec: mount -o remount,exec")


def test_a_second_installer_at_the_same_time(script: str, host: Host, box: Sandbox) -> None:
    opt, lock = box.root / "opt/edgegpu", box.root / "run/edgegpu-unpack.lock"
    opt.mkdir(parents=True)
    with subprocess.Popen(
        ["flock", lock, "sh", "-c", "echo locked; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        done = box.run(script, *host.trusted)
        assert lock.exists()
        other.stdin.close()
    assert (done.returncode, list(opt.iterdir())) == (1, [])
    assert "another install.sh or an upgrade is at work on this box" in done.stderr


def test_a_user_without_root_keeps_no_installer_out(script: str, host: Host) -> None:
    """The user holds the lock of each file and folder that they can open, at the first run and at the second."""
    with open_folder() as folder:
        box = Sandbox(folder / "box")
        (box.root / "opt/edgegpu").mkdir(parents=True)
        for _ in range(2):
            with locked_by_another_user(folder) as paths:
                assert "box/root/opt/edgegpu" in paths
                done = box.run(script, *host.trusted)
            assert (done.returncode, done.stderr.count("another install.sh")) == (0, 0), done.stderr
            assert not (box.root / "run/edgegpu-unpack.lock").exists()


def test_the_lock_of_an_installer_can_be_opened_by_root_alone(script: str, host: Host) -> None:
    with open_folder() as folder:
        box = Sandbox(folder / "box")
        lock = box.root / "run/edgegpu-unpack.lock"
        box.program("xz", f'stat -c %a "{lock}" > "{box.record}/mode"; exec {shutil.which("xz")} "$@"')
        box.program("stat", f'exec {shutil.which("stat")} "$@"')
        assert box.run(script, *host.trusted).returncode == 0
        assert (box.record / "mode").read_text() == "600\n"


def test_a_signal(script: str, host: Host, box: Sandbox) -> None:
    """TERM arrives while the bundle is being unpacked."""
    box.program("tar", "kill -TERM $PPID; exit 1")
    before = box.tree()
    assert box.run(script, *host.trusted).returncode in {1, 128 + signal.SIGTERM}
    assert box.tree() == before


def test_a_script_that_arrived_in_part_does_nothing(script: str, box: Sandbox) -> None:
    """Cut anywhere but at its very end, it starts no program and changes no file."""
    before = box.tree()
    last = len(script.rstrip("\n"))
    for end in [*range(0, last, 211), *range(last - 120, last)]:
        box.run(script[:end], "--url", "https://127.0.0.1:1", "--offline", "x")
        assert not box.calls(), script[:end][-80:]
    assert box.tree() == before
