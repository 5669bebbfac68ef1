"""The lease over a start of kubelet, on real files; who opens one is a process of its own, as kubelet is."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kits.lease import keeps_waiting

from edgegpu_plugin.kubelet.start_lease import (
    LISTS_TAKEN_S,
    LONGEST_WAIT_S,
    OwnResolvConf,
    ShutdownState,
    StartLease,
    start_file,
)

WAIT_S = 60.0
_READER = "import sys; print(open(sys.argv[1]).read(), end='')"
_HOLDER = """
import sys, time
from pathlib import Path
from edgegpu_plugin.kubelet.start_lease import OwnResolvConf, StartLease
lease = StartLease(OwnResolvConf(Path(sys.argv[1])))
lease.take()
print(lease.document(), flush=True)
time.sleep(600)
"""
_TAKER = """
import sys
from pathlib import Path
from edgegpu_plugin.kubelet.start_lease import ShutdownState, StartLease
lease = StartLease(ShutdownState(Path(sys.argv[1])))
lease.take()
print(lease.document())
"""
_WITHOUT_CAPABILITY = """
import ctypes, os, sys
PR_CAPBSET_DROP, CAP_LEASE = 24, 28
assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_LEASE) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


class Clock:
    """A clock that stands still until a test sets it forward."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def read() -> Iterator[Callable[[Path], "subprocess.Popen[str]"]]:
    """Starts processes that open a file and print it."""
    with ExitStack() as stack:

        def start(path: Path) -> "subprocess.Popen[str]":
            reader = subprocess.Popen([sys.executable, "-c", _READER, path], stdout=subprocess.PIPE, text=True)
            stack.enter_context(reader)
            stack.callback(reader.kill)
            return reader

        yield start


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The machine's own resolv.conf."""
    path = tmp_path / "etc-resolv.conf"
    path.write_text("nameserver 192.0.2.1\n")
    return path


@pytest.fixture
def own(tmp_path: Path, machine: Path) -> Path:
    """A link of kubelet's own to the machine's resolv.conf."""
    path = tmp_path / "resolv.conf"
    path.symlink_to(machine)
    return path


def wait_kept(reader: "subprocess.Popen[str]", path: Path) -> None:
    """Wait until the kernel keeps a process in its open() of a file."""
    deadline = time.monotonic() + WAIT_S
    while not keeps_waiting(path):
        assert time.monotonic() < deadline, "it was not kept waiting"
        os.sched_yield()
    assert reader.poll() is None


def output(reader: "subprocess.Popen[str]") -> str:
    text, _ = reader.communicate(timeout=WAIT_S)
    assert reader.returncode == 0
    return text


def test_kubelet_waits_in_its_open_until_it_has_had_time_for_the_lists(
    tmp_path: Path, clock: Clock, read: Callable[[Path], "subprocess.Popen[str]"]
) -> None:
    lease = StartLease(ShutdownState(tmp_path), clock=clock)
    lease.take()
    state = tmp_path / "graceful_node_shutdown_state"
    kubelet = read(state)
    wait_kept(kubelet, state)
    lease.give_back_late()
    lease.devices_listed()
    clock.now_s += LISTS_TAKEN_S / 2
    lease.give_back_late()
    wait_kept(kubelet, state)
    assert lease.due_s == clock.now_s + LISTS_TAKEN_S / 2
    clock.now_s = lease.due_s
    lease.give_back_late()
    assert output(kubelet) == "{}\n"
    assert lease.document() == {"waits": True, "why": ""}


def test_kubelet_is_let_go_after_a_while_though_it_has_no_devices(
    tmp_path: Path, clock: Clock, read: Callable[[Path], "subprocess.Popen[str]"]
) -> None:
    lease = StartLease(ShutdownState(tmp_path), clock=clock)
    lease.take()
    clock.now_s += 10 * LONGEST_WAIT_S  # it is away: nobody waits yet
    lease.give_back_late()
    state = tmp_path / "graceful_node_shutdown_state"
    kubelet = read(state)
    wait_kept(kubelet, state)
    lease.give_back_late()
    clock.now_s += LONGEST_WAIT_S - 1
    lease.give_back_late()
    wait_kept(kubelet, state)
    clock.now_s += 1
    lease.give_back_late()
    assert output(kubelet) == "{}\n"
    assert lease.document()["waits"] is False
    assert "was let go after 20 s, before it had the devices" in lease.document()["why"]
    lease.take()
    assert not lease.is_wanted, "somebody else who reads it waits once"
    assert output(read(tmp_path / "graceful_node_shutdown_state")) == "{}\n"
    lease.devices_listed()
    assert lease.is_wanted


@pytest.mark.parametrize("has_devices", [True, False])
def test_a_plugin_that_was_stopped_for_too_long_does_not_claim_that_kubelet_waited(
    tmp_path: Path, clock: Clock, read: Callable[[Path], "subprocess.Popen[str]"], *, has_devices: bool
) -> None:
    limit = tmp_path / "lease-break-time"
    limit.write_text("45\n")
    lease = StartLease(ShutdownState(tmp_path), clock=clock, break_time=limit)
    lease.take()
    state = tmp_path / "graceful_node_shutdown_state"
    kubelet = read(state)
    wait_kept(kubelet, state)
    clock.now_s += 45  # the kernel's limit is over before the plugin runs on
    if has_devices:
        lease.devices_listed()
    lease.give_back_late()
    assert output(kubelet) == "{}\n"
    assert lease.document()["waits"] is False
    assert "the kernel let kubelet go after 45 s" in lease.document()["why"]
    assert lease.is_wanted is has_devices, "without devices somebody else may have read it: no wait twice"


def test_a_kubelet_that_reads_another_file_is_named(tmp_path: Path, own: Path, clock: Clock) -> None:
    for file, why in ((ShutdownState(tmp_path), "no shutdownGracePeriod"), (OwnResolvConf(own), "another file")):
        lease = StartLease(file, clock=clock)
        assert lease.document() == {"waits": None, "why": "kubelet has not started since the plugin did"}
        lease.take()
        lease.devices_listed()
        clock.now_s = lease.due_s
        lease.give_back_late()
        assert lease.document()["waits"] is False
        assert why in lease.document()["why"]


def test_the_state_that_kubelet_has_written_stays_as_it_is(tmp_path: Path) -> None:
    state = tmp_path / "graceful_node_shutdown_state"
    state.write_text('{"startTime":"2026-01-01T00:00:00Z"}')
    lease = StartLease(ShutdownState(tmp_path))
    lease.take()
    lease.give_back()
    assert state.read_text() == '{"startTime":"2026-01-01T00:00:00Z"}'


def test_a_root_of_kubelet_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    lease = StartLease(ShutdownState(tmp_path / "kubelet"))
    lease.take()
    assert not (tmp_path / "kubelet").exists()
    assert "No such file or directory" in lease.document()["why"]
    assert lease.is_wanted


def test_a_copy_stands_for_the_link_while_kubelet_is_away(
    own: Path, machine: Path, read: Callable[[Path], "subprocess.Popen[str]"]
) -> None:
    lease = StartLease(OwnResolvConf(own))
    lease.take()
    assert not own.is_symlink()
    kubelet = read(own)
    wait_kept(kubelet, own)
    assert output(read(machine)) == "nameserver 192.0.2.1\n"  # nobody else waits
    lease.give_back()
    assert output(kubelet) == "nameserver 192.0.2.1\n"
    assert own.readlink() == machine
    machine.write_text("nameserver 192.0.2.2\n")
    assert own.read_text() == "nameserver 192.0.2.2\n"
    assert sorted(path.name for path in own.parent.iterdir()) == ["etc-resolv.conf", "resolv.conf"]


def test_a_link_to_a_file_that_comes_later_is_taken(own: Path, machine: Path) -> None:
    """At a boot systemd-resolved may write its file after the plugin's start."""
    machine.unlink()
    lease = StartLease(OwnResolvConf(own))
    lease.take()
    assert own.is_file()
    assert not own.is_symlink()
    lease.give_back()
    assert own.readlink() == machine


def test_the_machines_own_file_gets_no_lease(machine: Path, read: Callable[[Path], "subprocess.Popen[str]"]) -> None:
    lease = StartLease(OwnResolvConf(machine))
    lease.take()
    assert "it is not a link to the machine's resolv.conf" in lease.document()["why"]
    assert output(read(machine)) == "nameserver 192.0.2.1\n"
    lease.give_back()
    assert machine.read_text() == "nameserver 192.0.2.1\n"


def test_a_link_that_was_changed_meanwhile_points_where_it_did_last(own: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.conf"
    other.write_text("nameserver 192.0.2.9\n")
    lease = StartLease(OwnResolvConf(own))
    lease.take()
    lease.give_back()
    own.unlink()
    own.symlink_to(other)
    lease.take()
    assert lease.document()["waits"] is None
    lease.give_back()
    assert own.readlink() == other
    lease.take()
    own.unlink()
    own.symlink_to(other)  # by hand, while the copy stood there
    lease.give_back()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["etc-resolv.conf", "other.conf", "resolv.conf"]
    assert own.readlink() == other


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a capability up for its children")
@pytest.mark.parametrize(("owner", "answer"), [(0, "None"), (65534, "Permission denied")])
def test_the_capability_is_not_needed_for_a_file_of_the_plugins_own_user(
    tmp_path: Path, owner: int, answer: str
) -> None:
    """The unit's bounding set has no CAP_LEASE, and kubelet's files are root's."""
    state = tmp_path / "graceful_node_shutdown_state"
    state.write_text("{}")
    os.chown(state, owner, 0)
    command = [sys.executable, "-c", _WITHOUT_CAPABILITY, sys.executable, "-c", _TAKER, str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert answer in done.stdout


@pytest.fixture
def holder(own: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process with a lease on kubelet's own resolv.conf, as a plugin has it."""
    with subprocess.Popen([sys.executable, "-c", _HOLDER, own], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "'waits': None" in process.stdout.readline()
        yield process
        process.kill()


def test_a_plugin_that_is_killed_lets_kubelet_go_and_the_next_one_puts_the_link_back(
    own: Path, machine: Path, holder: "subprocess.Popen[str]", read: Callable[[Path], "subprocess.Popen[str]"]
) -> None:
    kubelet = read(own)
    wait_kept(kubelet, own)
    holder.kill()
    assert output(kubelet) == "nameserver 192.0.2.1\n"
    assert not own.is_symlink()
    StartLease(OwnResolvConf(own)).give_back()
    assert own.readlink() == machine


def test_the_signal_of_the_kernel_ends_no_plugin(
    own: Path, holder: "subprocess.Popen[str]", read: Callable[[Path], "subprocess.Popen[str]"]
) -> None:
    kubelet = read(own)
    wait_kept(kubelet, own)
    holder.send_signal(signal.SIGSTOP)  # and one that is stopped keeps kubelet, until the kernel ends that
    wait_kept(kubelet, own)
    holder.send_signal(signal.SIGCONT)
    wait_kept(kubelet, own)
    assert holder.poll() is None


@pytest.mark.parametrize("seconds", ["0", "61", "3600"])
def test_a_kernel_that_would_keep_kubelet_for_ever_gets_no_lease(tmp_path: Path, seconds: str) -> None:
    limit = tmp_path / "lease-break-time"
    limit.write_text(f"{seconds}\n")
    lease = StartLease(ShutdownState(tmp_path), break_time=limit)
    lease.take()
    assert f"fs.lease-break-time is {seconds}" in lease.document()["why"]
    limit.write_text("45\n")
    lease.take()
    assert not lease.is_wanted


def test_a_file_that_somebody_has_open_is_tried_again(tmp_path: Path) -> None:
    state = tmp_path / "graceful_node_shutdown_state"
    state.write_text("{}")
    lease = StartLease(ShutdownState(tmp_path))
    with state.open():
        lease.take()
        assert "Resource temporarily unavailable" in lease.document()["why"]
    lease.take()
    assert not lease.is_wanted


def test_a_file_system_without_leases_is_named() -> None:
    """A device can have no lease, as no file of NFS 3 can: the kernel's answer is the same."""
    device = ShutdownState(Path("/dev"))
    device.path = Path("/dev/null")
    lease = StartLease(device)
    lease.take()
    assert "no lease on /dev/null: Invalid argument" in lease.document()["why"]


def test_without_the_setting_nothing_is_touched(tmp_path: Path) -> None:
    lease = StartLease(None)
    lease.take()
    lease.devices_listed()
    lease.give_back_late()
    lease.give_back()
    assert lease.document() == {"waits": False, "why": "kubelet.wait_at_start is false"}
    assert not list(tmp_path.iterdir())


def test_kubelets_own_resolv_conf_comes_before_what_every_kubelet_may_read(tmp_path: Path) -> None:
    assert start_file(kubelet_folder=tmp_path, resolv_conf=None).path == tmp_path / "graceful_node_shutdown_state"
    assert start_file(kubelet_folder=tmp_path, resolv_conf=tmp_path / "r").path == tmp_path / "r"
