"""On a kernel of its own: every hardening directive of the units holds, and all of it comes back after a reboot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from box.bed import APPS, ROOT, SIMULATED, WITH_K3S
from lab.labrun import wait_until
from vm.hardeningprobe import CODE, GETPID_32, MARKER
from vm.services import NAMESPACE, card_of, run_service
from vm.vmbed import VmBed

UNITS = sorted((ROOT / "systemd").glob("edgegpu-*.service"))
PROBE, OUT = "/srv/hardeningprobe.py", "/run/hardening"
OPEN = "open"
WARNED = 1
"""The exit status of the doctor that found something broken."""
LIVES = (
    *("Type", "NotifyAccess", "ExecStart", "ExecStartPre", "EnvironmentFile", "BindPaths", "KillMode"),
    *("Restart", "RestartSec", "RuntimeDirectory", "RuntimeDirectoryPreserve", "RuntimeMaxSec"),
    *("StateDirectory", "StateDirectoryMode", "TimeoutStartSec", "TimeoutStopSec", "WatchdogSec"),
)
"""Directives about a unit's life; every other one of its section Service limits it, and has to be tried."""

CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"),
    *("LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER"),
    *("SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE"),
    *("SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD"),
)
"""In the order of their numbers in linux/capability.h."""

Outcomes = dict[str, str]
Check = Callable[[Outcomes, str], bool]


def refused(*attempts: str, error: str = "") -> Check:
    """Return a check that the kernel refused all of these attempts, with this error where one is named."""
    return lambda outcomes, _: all((outcomes[name] == error) if error else outcomes[name] != OPEN for name in attempts)


def protect_system(outcomes: Outcomes, value: str) -> bool:
    """Check that programs cannot be changed, and with `full` no configuration either."""
    return outcomes["write /usr"] == "EROFS" and (outcomes["write /etc"] == "EROFS") == (value == "full")


def protect_home(outcomes: Outcomes, value: str) -> bool:
    """Check that what lies at home is out of sight, or can be looked at alone."""
    seen = outcomes["see /root"] == OPEN
    return outcomes["write /root"] != OPEN and seen == (value == "read-only")


def families(outcomes: Outcomes, value: str) -> bool:
    """Check that no other sockets can be opened, and those can."""
    return all(
        outcomes[f"open {name} socket"] == (OPEN if family in value.split() else "EAFNOSUPPORT")
        for name, family in {"packet": "AF_PACKET", "network": "AF_INET", "netlink": "AF_NETLINK"}.items()
    )


def capabilities(outcomes: Outcomes, value: str) -> bool:
    """Check that exactly these are left."""
    mask = sum(1 << CAPABILITIES.index(name.removeprefix("CAP_")) for name in value.split())
    return int(outcomes["capabilities"]) == mask


def size(outcomes: Outcomes, value: str) -> bool:
    """Check the kernel's limit of memory."""
    return int(outcomes["memory"]) == int(value[:-1]) << {"M": 20, "G": 30}[value[-1]]


CHECKS: dict[str, Check] = {
    "ProtectSystem": protect_system,
    "ReadWritePaths": lambda outcomes, value: outcomes[f"write {value}"] == OPEN,
    "ProtectHome": protect_home,
    "PrivateTmp": refused("see /tmp", error="ENOENT"),
    "ProtectControlGroups": refused("make cgroup", error="EROFS"),
    "ProtectKernelTunables": refused("set sysctl", error="EROFS"),
    "ProtectKernelLogs": refused("read kernel log"),
    "ProtectKernelModules": refused("read modules"),
    "ProtectHostname": refused("set host name", error="EPERM"),
    "NoNewPrivileges": refused("gain privileges"),
    "RestrictNamespaces": refused("make namespace", error="EPERM"),
    "RestrictRealtime": refused("run in real time", error="EPERM"),
    "RestrictSUIDSGID": refused("set suid", error="EPERM"),
    "RestrictAddressFamilies": families,
    "LockPersonality": refused("change personality", error="EPERM"),
    "SystemCallArchitectures": refused("call the kernel as 32-bit"),
    "SystemCallFilter": refused("call outside the filter", error="EPERM"),
    "SystemCallErrorNumber": lambda outcomes, value: outcomes["call outside the filter"] == value,
    "MemoryDenyWriteExecute": refused("map writable code", error="EPERM"),
    "PrivateNetwork": refused("see other interfaces"),
    "CapabilityBoundingSet": capabilities,
    "MemoryMax": size,
    "TasksMax": lambda outcomes, value: outcomes["tasks"] == value,
    "OOMScoreAdjust": lambda outcomes, value: outcomes["oom"] == value,
    "Nice": lambda outcomes, value: outcomes["nice"] == value,
    "UMask": lambda outcomes, value: outcomes["umask"] == value,
}
BY_SYSTEMD_ALONE = {"IPAddressDeny": ("IPAddressDeny", "::/0 0.0.0.0/0")}
"""What no program in the unit can try, for its other directives leave it no socket: how systemd shows it."""


def directives(unit: Path) -> dict[str, str]:
    """Return what a unit's file says in its section Service, less its life; what stands twice adds up."""
    found: dict[str, str] = {}
    section = unit.read_text().replace("\\\n", " ").partition("[Service]\n")[2].partition("\n[")[0]
    for line in section.splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith(("#", " ")) and name not in LIVES:
            found[name] = f"{found[name]} {value}" if name in found else value
    return found


@pytest.fixture(scope="module")
def probed(bed: VmBed, tmp_path_factory: pytest.TempPathFactory) -> VmBed:
    """Lay the probe and what it looks for into the machine; the units' directives need neither edgegpu nor k3s."""
    bed.machine.down()
    bed.machine.up(image=WITH_K3S)
    folder = tmp_path_factory.mktemp("probe")
    (folder / Path(CODE).name).write_bytes(GETPID_32)
    bed.machine.push(Path(__file__).with_name(Path(PROBE).name), folder / Path(CODE).name, to="/srv")
    bed.machine.exec("mkdir", "-p", OUT)
    for place in ("/tmp", "/root", "/home"):  # noqa: S108  (of the virtual machine)
        bed.machine.exec("touch", f"{place}/{MARKER}")
    return bed


def outcomes_in(bed: VmBed, name: str, section: str) -> Outcomes:
    """Run the probe as a unit with these directives, and return what came."""
    unit = f"probe-{name}.service"
    text = f"[Service]\nType=oneshot\nExecStart=/usr/bin/python3 {PROBE} {OUT}/{name}\n{section}\n"
    bed.machine.exec("tee", f"/run/systemd/system/{unit}", input=text)
    bed.machine.exec("systemctl", "daemon-reload")
    bed.machine.exec("systemctl", "start", unit, timeout_s=120)
    outcomes: Outcomes = json.loads(bed.machine.exec("cat", f"{OUT}/{name}").stdout)
    return outcomes


def test_a_unit_without_directives_may_do_all_that_the_probe_tries(probed: VmBed) -> None:
    outcomes = outcomes_in(probed, "free", "")
    held = {name: outcome for name, outcome in outcomes.items() if " " in name and outcome != OPEN}
    assert held == {}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_every_directive_of_the_unit_holds(probed: VmBed, unit: Path) -> None:
    said = directives(unit)
    assert set(said) <= set(CHECKS) | set(BY_SYSTEMD_ALONE), "a directive that nothing tries"
    section = "\n".join(f"{name}={value}" for name, value in said.items())
    outcomes = outcomes_in(probed, unit.stem, section)
    loose = {name: value for name, value in said.items() if name in CHECKS and not CHECKS[name](outcomes, value)}
    assert loose == {}, outcomes
    for name, (shown, value) in BY_SYSTEMD_ALONE.items():
        if name in said:
            text = probed.machine.exec("systemctl", "show", "-p", shown, "--value", f"probe-{unit.stem}").stdout
            assert sorted(text.split()) == sorted(value.split())


@pytest.mark.parametrize("name", ["edgegpu-plugin", "edgegpu-agent"])
def test_the_service_itself_runs_as_its_unit_says(gpu_vm: VmBed, name: str) -> None:
    said = directives(ROOT / f"systemd/{name}.service")
    script = 'p=$(systemctl show -p MainPID --value "$1"); cat /proc/$p/status; cat /proc/$p/oom_score_adj'
    *lines, oom = gpu_vm.machine.exec("sh", "-c", script, "sh", name).stdout.splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert capabilities({"capabilities": str(int(status["CapBnd"], 16))}, said["CapabilityBoundingSet"])
    assert status["Seccomp"] == "2"
    assert oom == said["OOMScoreAdjust"]
    group = f"/sys/fs/cgroup/system.slice/{name}.service"
    assert size({"memory": gpu_vm.machine.exec("cat", f"{group}/memory.max").stdout}, said["MemoryMax"])
    assert gpu_vm.machine.exec("cat", f"{group}/pids.max").stdout.strip() == said["TasksMax"]


CONSOLES = 7
"""The kernel's memory of text consoles: devices that can be opened, and that no container may open by itself."""


def test_the_kernel_lets_a_container_to_its_own_card_alone_also_after_a_reload_without_links(gpu_vm: VmBed) -> None:
    bed = gpu_vm
    bed.stop_apps()
    real_device_numbers(bed)
    run_service(bed, "own", 4)
    assert opened(bed, "own", 0) == OPEN
    assert opened(bed, "own", 1) == "Operation not permitted"

    bed.machine.exec("systemctl", "daemon-reload")
    assert (opened(bed, "own", 0), opened(bed, "own", 1)) == (OPEN, "Operation not permitted")

    bed.machine.exec("sh", "-c", f"rm /dev/char/{CONSOLES}:0; systemctl daemon-reload")
    assert (opened(bed, "own", 0), opened(bed, "own", 1)) == (OPEN, "Operation not permitted")
    doctor = bed.edgegpu("doctor", "--check", "cgroups", check=False)
    assert doctor.returncode == WARNED
    assert f"/dev/char/{CONSOLES}:0" in doctor.stdout

    bed.machine.exec("systemctl", "restart", "edgegpu-plugin")
    bed.offered()
    bed.machine.exec("systemctl", "daemon-reload")
    assert opened(bed, "own", 0) == OPEN


def real_device_numbers(bed: VmBed) -> None:
    """Give the cards' nodes numbers of their own: simulated cards have those of /dev/null, which everybody may open."""
    bed.machine.exec("systemctl", "stop", "edgegpu-plugin")
    for card in (0, 1):
        script = 'rm "$1"; mknod -m 0666 "$1" c "$2" "$3"'
        bed.machine.exec("sh", "-c", script, "sh", f"{SIMULATED}/dev/nvidia{card}", str(CONSOLES), str(card))
    bed.machine.exec("systemctl", "start", "edgegpu-plugin")
    bed.offered()


def opened(bed: VmBed, app: str, card: int) -> str:
    """Have a container make a node of a card for itself and open it; returns what comes."""
    pod = bed.cluster.the_pod(NAMESPACE, app)["metadata"]["name"]
    script = f"rm -f /tmp/node; mknod /tmp/node c {CONSOLES} {card}; (: < /tmp/node) 2>&1 && echo {OPEN}"
    done = bed.machine.kubectl("exec", "-n", NAMESPACE, pod, "--", "sh", "-c", script, check=False)
    return done.stdout.strip().rpartition(": ")[2]


def test_after_a_reboot_the_same_services_run_on_cards(gpu_vm: VmBed) -> None:
    bed = gpu_vm
    before = bed.apps_run()
    bed.machine.reboot()
    bed.machine.ready()
    bed.offered()
    after = bed.apps_run()
    assert after.keys() == before.keys()
    assert len({card_of(bed, app) for app in APPS}) == len(APPS)
    assert bed.starved() == []
    wait_until(
        lambda: bed.machine.exec("systemctl", "is-system-running", check=False).stdout.strip() == "running",
        what="systemd has nothing to complain of",
    )
