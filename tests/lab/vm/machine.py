"""A Debian box as a virtual machine: a kernel of its own, cgroup v2, a clock, a disk; alone on a LAN with this machine.

The processor runs it, or qemu emulates one (accelerator.py): then it takes minutes until k3s is Ready. So a machine
can be saved while it runs, and each test goes on from there. There is one machine for each `$EDGEGPU_LAB`.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from lab.labrun import Completed, LabError, Process, patient, run, wait_until
from lab.vm import monitor
from lab.vm.accelerator import accelerator
from lab.vm.image import ADDRESS, GATEWAY, HARDWARE_ADDRESS, NAME, STATE, Image, fresh_folder, image_named, key_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.vm.accelerator import Accelerator

FOLDER = STATE / "machine"
NAMESPACE = f"edgegpu-vm-{crc32(str(STATE).encode()) & 0xFFFFF:05x}"
TAP = "vm0"
MEMORY, PROCESSORS = "3G", "2"
CONSOLE, MONITOR, PID, SSH = FOLDER / "console", FOLDER / "monitor", FOLDER / "pid", FOLDER / "ssh"
BOOT_S = 240.0
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_READY = """
uptime() { cut -d. -f1 /proc/uptime; }
since=$(date +%s) end=$(($(uptime) + $2))
while [ "$(uptime)" -lt "$end" ]; do
    renewed=$(k3s kubectl get lease -n kube-node-lease "$1" -o 'jsonpath={.spec.renewTime}' 2> /dev/null) &&
        [ -n "$renewed" ] && [ "$(date -d "$renewed" +%s)" -gt "$since" ] &&
        [ "$(k3s kubectl get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" = True ] &&
        exit 0
    sleep 4
done
exit 1
"""
"""Only a lease that was renewed after the call counts: a kubelet that is away leaves the old Ready in place."""


def qemu(accelerator: Accelerator) -> tuple[str, ...]:
    """Return the command of the machine. What was saved while it ran goes on in a machine of the same words alone."""
    return (
        *("qemu-system-x86_64", "-name", NAME, "-machine", "q35", *accelerator.words),
        *("-m", MEMORY, "-smp", PROCESSORS, "-nodefaults", "-display", "none"),
        *("-kernel", f"{FOLDER}/kernel", "-initrd", f"{FOLDER}/initrd"),
        *("-append", "root=/dev/vda rw console=ttyS0 quiet net.ifnames=0"),
        *("-drive", f"file={FOLDER}/disk,if=virtio,format=qcow2,cache=writeback", "-device", "virtio-rng-pci"),
        *("-netdev", f"tap,id=lan,ifname={TAP},script=no,downscript=no"),
        *("-device", f"virtio-net-pci,id=card,netdev=lan,mac={HARDWARE_ADDRESS}"),
        *("-chardev", f"file,id=console,path={CONSOLE},append=on", "-serial", "chardev:console"),
        *("-qmp", f"unix:{MONITOR},server=on,wait=off", "-pidfile", str(PID), "-rtc", "base=utc"),
    )


@dataclass(frozen=True, slots=True)
class Vm:
    """The virtual machine; it has the methods of `lab.boxkit.Box`."""

    name: str = NAME

    @property
    def on_lan(self) -> tuple[str, ...]:
        """What to put before a command of this machine, so that it runs on the LAN as 10.89.0.1."""
        _make_lan()
        return ("ip", "netns", "exec", NAMESPACE)

    @property
    def is_on(self) -> bool:
        """Whether qemu runs."""
        try:
            pid = int(PID.read_text())
            return str(MONITOR).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return False

    def up(self, *, image: str = "base") -> None:
        """Power on, the first time on a copy of an image: the machine boots, or goes on where the image was saved."""
        if self.is_on:
            raise LabError(f"{self.name} is on")
        source = image_named(image)
        fresh = not (FOLDER / "disk").exists()
        if fresh:
            _copy(source)
        goes_on = fresh and source.goes_on
        self._start(["-incoming", f"exec:zstd -q -dc {source.memory}"] if goes_on else [])
        if goes_on:
            monitor.wait_incoming(MONITOR, timeout_s=patient(120.0))
            self._wait_boot()
            self.set_clock("host")
        else:
            self._wait_boot()

    def _start(self, more: list[str]) -> None:
        run([*self.on_lan, *qemu(accelerator()), "-daemonize", *more], timeout_s=60)

    def _wait_boot(self, before: str = "") -> None:
        """Wait until a boot, another one than that of this id, is finished."""

        def finished() -> bool:
            if not self.is_on:
                raise LabError(f"{self.name} is off: {self.console()[-1000:]}")
            self._hang_up()
            if self.exec("cat", _BOOT_ID, timeout_s=30).stdout.strip() == before:
                return False
            self._connect()
            done = self.exec("systemctl", "is-system-running", "--wait", check=False, timeout_s=BOOT_S)
            return done.stdout.strip() in {"running", "degraded"}

        try:
            wait_until(finished, what=f"{self.name} has booted", timeout_s=BOOT_S, every_s=1.0)
        except LabError as error:
            raise LabError(f"{error}\n{self.console()[-2000:]}") from error

    def up_k3s(self) -> None:
        """Power on, and wait until the node is Ready: k3s is on the disk."""
        self.up()
        self.ready()

    def ready(self, *, timeout_s: int = 120) -> None:
        """Wait for a Ready of the node that is younger than this call."""
        limit_s = patient(timeout_s)
        done = self.exec("sh", "-c", _READY, "sh", self.name, f"{limit_s:.0f}", check=False, timeout_s=timeout_s + 60.0)
        if done.returncode:
            raise LabError(f"{self.name} is not Ready after {limit_s:g} s: {done.stderr[-500:]}")

    def _ssh(self, *options: str) -> list[str]:
        host = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes")
        alive = ("-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=20", "-o", "ServerAliveCountMax=30")
        shared = ("-o", f"ControlPath={SSH}")
        who = ("-i", str(key_file()), "-o", "IdentitiesOnly=yes")
        return [*self.on_lan, "ssh", "-q", "-F", "none", *who, *host, *alive, *shared, *options, f"root@{ADDRESS}"]

    def _connect(self) -> None:
        """Make the connection over which all commands go: an emulated processor is slow at making one."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                self._ssh("-M", "-N", "-f"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
                timeout=patient(60.0),
            )

    def _hang_up(self) -> None:
        run(self._ssh("-O", "exit"), check=False, timeout_s=20)
        SSH.unlink(missing_ok=True)

    def exec(self, *cmd: str, input: str = "", check: bool = True, timeout_s: float = 60.0) -> Completed:  # noqa: A002
        """Run cmd as root in the machine to its end; LabError when it fails (with check) or takes too long."""
        return run([*self._ssh(), shlex.join(cmd)], input=input, check=check, timeout_s=timeout_s)

    def popen(self, *cmd: str, env: Mapping[str, str] | None = None, log: Path | None = None) -> Process:
        """Start cmd in the machine and let it run, with further variables; its Process has no `pid`."""
        words = [f"{name}={value}" for name, value in (env or {}).items()]
        return Process([*self._ssh(), shlex.join(["env", *words, *cmd])], env={}, log=log)

    def kubectl(self, *args: str, input: str = "", check: bool = True, timeout_s: float = 60.0) -> Completed:  # noqa: A002
        """Run `k3s kubectl` in the machine."""
        return self.exec("k3s", "kubectl", *args, input=input, check=check, timeout_s=timeout_s)

    def push(self, *sources: Path, to: str) -> None:
        """Copy files and folders of this machine into the virtual machine's folder, and sync them to its disk."""
        inside = shlex.join(["sh", "-c", 'mkdir -p "$1" && tar -C "$1" --no-same-owner -x && sync', "sh", to])
        names = [word for source in sources for word in ("-C", str(source.parent), source.name)]
        line = f"{shlex.join(['tar', '-c', *names])} | {shlex.join([*self._ssh(), inside])}"
        run(["bash", "-o", "pipefail", "-c", line], timeout_s=300)

    def forward(self, inside: str, socket: Path) -> None:
        """Let connections to a socket of this machine reach one of the virtual machine, until it hangs up."""
        socket.unlink(missing_ok=True)
        run(self._ssh("-O", "forward", "-L", f"{socket}:{inside}"), check=False, timeout_s=20)

    def reboot(self) -> None:
        """Do an orderly `systemctl reboot`; wait until the next boot is finished (for k3s: ready)."""
        before = self.exec("cat", _BOOT_ID).stdout.strip()
        self.exec("systemctl", "reboot", check=False)
        self._wait_boot(before)

    def cut(self) -> None:
        """Cut the power: what the kernel has not given to the disk is lost. The machine stays off."""
        with contextlib.suppress(OSError, ValueError):
            if self.is_on:
                os.kill(int(PID.read_text()), signal.SIGKILL)
        wait_until(lambda: not self.is_on, what=f"{self.name} is off", timeout_s=20)
        PID.unlink(missing_ok=True)
        MONITOR.unlink(missing_ok=True)
        if FOLDER.exists():
            self._hang_up()

    def off(self) -> None:
        """Power off in an orderly way."""
        self.exec("systemctl", "poweroff", check=False)
        wait_until(lambda: not self.is_on, what=f"{self.name} is off")
        self._hang_up()

    def save(self, image: str) -> None:
        """Keep the machine as an image for `up`; one that runs goes on from this moment there, and ends here."""
        target = image_named(image)
        with fresh_folder(target.folder) as folder:
            if self.is_on:
                self.exec("sync")
                self._hang_up()
                monitor.save_memory(MONITOR, folder / "memory", timeout_s=patient(180.0))
                monitor.command(MONITOR, "quit")
                wait_until(lambda: not self.is_on, what=f"{self.name} is off", timeout_s=60)
            for name in ("disk", "kernel", "initrd"):
                shutil.move(FOLDER / name, folder / name)
        self.down()

    def network(self, *, plugged: bool) -> None:
        """Pull the network cable, or plug it in."""
        monitor.command(MONITOR, "set_link", name="card", up=plugged)

    def set_clock(self, when: str) -> None:
        """Set the clock: `host`, or relative to the machine's own as `date -d` takes it, such as "-2 years"."""
        script = 'case $1 in *Z) t=$1 ;; *) t="$(date -u +%FT%TZ) $1" ;; esac; date -u -s "$t"'
        host = run(["date", "-u", "+%FT%TZ"]).stdout.strip()
        self.exec("sh", "-c", script, "sh", host if when == "host" else when)

    def console(self) -> str:
        """Return what the kernel and systemd have written to the serial console."""
        return CONSOLE.read_text(errors="replace") if CONSOLE.exists() else ""

    def down(self) -> None:
        """Remove the machine: qemu, its disk, the LAN."""
        self.cut()
        shutil.rmtree(FOLDER, ignore_errors=True)
        if Path(f"/run/netns/{NAMESPACE}").exists():
            run(["ip", "netns", "delete", NAMESPACE], check=False)


def _copy(image: Image) -> None:
    if not image.disk.exists():
        raise LabError(f"there is no image {image.folder.name}")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for name in ("kernel", "initrd"):
        shutil.copy(image.folder / name, FOLDER / name)
    backing = image.disk.resolve()
    with backing.open("rb") as file:
        kind = "qcow2" if file.read(4) == b"QFI\xfb" else "raw"
    new = FOLDER / "disk.new"
    run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", kind, "-b", backing, new], timeout_s=60)
    new.rename(FOLDER / "disk")


def _make_lan() -> None:
    """Make the LAN: a network namespace with this machine's end of the cable; behind it there is nothing."""
    if Path(f"/run/netns/{NAMESPACE}").exists():
        return
    run(["ip", "netns", "add", NAMESPACE])
    inside = ("ip", "-n", NAMESPACE)
    run([*inside, "link", "set", "lo", "up"])
    run([*inside, "tuntap", "add", TAP, "mode", "tap"])
    run([*inside, "address", "add", f"{GATEWAY}/24", "dev", TAP])
    run([*inside, "link", "set", TAP, "up"])
    run([*inside, "route", "add", "unreachable", "default"])
