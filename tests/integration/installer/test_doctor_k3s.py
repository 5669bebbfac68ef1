"""The doctor's checks of k3s, of its scheduler's file, and of what the installer left behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kits.doctor import BOOT_ID, BOOTED_S, DROP_IN, SCHEDULER, Box

from edgegpu_installer.changes import TransactionKind
from edgegpu_installer.doctor.verdict import CheckLevel
from edgegpu_installer.machine.config_block import with_block
from edgegpu_installer.scheduler import kubeadm
from edgegpu_installer.scheduler.manifest import MANIFEST, SCHEDULER_FILE
from edgegpu_installer.transaction.journal import TransactionJournal, TransactionRecord
from edgegpu_installer.transaction.states import TransactionState

if TYPE_CHECKING:
    pass

ROOT = Path(__file__).resolve().parents[3]
CONFIG = "/etc/rancher/k3s/config.yaml"


def test_a_k3s_in_a_crash_loop(box: Box) -> None:
    box.k3s(ActiveState="activating", SubState="auto-restart", Result="exit-code", NRestarts="41")
    box.program("journalctl", 'echo "level=info msg=x"; echo "E1121 12:00:00 scheduler.go: strict decoding error"')
    box.expect("k3s", CheckLevel.BROKEN, "auto-restart, exit-code), started again 41 times", "journalctl -u k3s")
    assert box.see("k3s").details == ("E1121 12:00:00 scheduler.go: strict decoding error",)


def test_a_k3s_that_was_started_again_and_stayed_up(box: Box) -> None:
    box.k3s(NRestarts="2")
    assert box.see("k3s").level is CheckLevel.OK  # days ago
    box.k3s(NRestarts="2", ExecMainStartTimestampMonotonic=box.since_boot_us(ago_s=7200))
    box.expect("k3s", CheckLevel.WARNING, "started again by systemd 2 times, last 120 minutes ago", "journalctl -u k3s")
    box.k3s(NRestarts="2", ExecMainStartTimestampMonotonic=box.since_boot_us(ago_s=120))
    box.expect("k3s", CheckLevel.BROKEN, "2 times, last 2 minutes ago", "journalctl -u k3s")


def test_an_old_k3s(box: Box) -> None:
    box.k3s_program("v1.19.16+k3s1")
    box.expect("k3s", CheckLevel.BROKEN, "too old", "upgrade k3s to 1.25")
    box.k3s_program("v1.20.15+k3s1")
    assert box.see("k3s").level is CheckLevel.OK


def test_a_k3s_that_has_our_lines_in_its_own_configuration(box: Box) -> None:
    box.k3s_program("v1.20.15+k3s1")
    box.write(SCHEDULER, box.at(SCHEDULER).read_text().replace("k8s.io/v1", "k8s.io/v1beta1"), 0o600)
    box.expect("scheduler", CheckLevel.BROKEN, "reads no file of edgegpu's", "edgegpu install")  # of a drop-in
    box.at(DROP_IN).unlink()
    box.write(CONFIG, with_block("token: x\n", SCHEDULER, path=CONFIG))
    assert box.see("scheduler").level is CheckLevel.OK
    assert box.see("scheduler").details == (f"{SCHEDULER}, named by {CONFIG}",)
    os.utime(box.at(CONFIG), (BOOTED_S + 100, BOOTED_S + 100))
    box.expect("scheduler", CheckLevel.WARNING, f"{CONFIG} changed after k3s had read it", "systemctl restart")
    os.utime(box.at(CONFIG), (BOOTED_S, BOOTED_S))
    box.k3s_program("v1.21.14+k3s1")
    box.expect(
        "scheduler", CheckLevel.WARNING, f"{CONFIG} names edgegpu's file, as k3s before 1.21.1", "edgegpu install"
    )


def test_a_configuration_that_k3s_cannot_read(box: Box) -> None:
    box.write(CONFIG, "disable: [")
    box.expect("k3s", CheckLevel.BROKEN, f"{CONFIG} is no YAML", "sudoedit")


def test_an_api_server_that_is_not_ready(box: Box) -> None:
    box.k3s_program(ready="echo etcd failed >&2; exit 1")
    box.expect("k3s", CheckLevel.BROKEN, "not ready", "journalctl -u k3s")


def test_an_agent_node_and_a_machine_without_k3s(box: Box) -> None:
    for name in ("units/k3s", "etc/systemd/system/k3s.service"):
        box.at(name).unlink()
    box.expect("k3s", CheckLevel.BROKEN, "no k3s on this machine any more", "sudo edgegpu uninstall")
    assert box.see("recover").level is CheckLevel.SKIPPED
    box.k3s("agent", name="k3s-agent")
    assert box.see("k3s").text == "agent node, v1.33.13+k3s1, runs"
    assert box.see("scheduler").level is CheckLevel.SKIPPED


def test_a_configuration_that_the_unit_names_counts_after_the_drop_in(box: Box) -> None:
    box.k3s("server", "--kube-scheduler-arg", "v=2")
    assert box.see("scheduler").level is CheckLevel.OK
    box.k3s("server", "--kube-scheduler-arg", "--config=/etc/site.yaml")
    text = "the unit of k3s names /etc/site.yaml by --kube-scheduler-arg"
    box.expect("scheduler", CheckLevel.BROKEN, text, "systemctl edit --full k3s")


def test_a_later_drop_in_overrides_ours(box: Box) -> None:
    later = "/etc/rancher/k3s/config.yaml.d/99-site.yaml"
    box.write(later, "kube-scheduler-arg: [v=2]\n")
    box.expect(
        "scheduler", CheckLevel.BROKEN, f"{later} says kube-scheduler-arg: without +", f"sed -i .* {later}".split()[0]
    )
    box.write(later, "kube-scheduler-arg+: [v=2]\n")
    assert box.see("scheduler").level is CheckLevel.OK


def test_no_drop_in_and_another_file(box: Box) -> None:
    box.at(DROP_IN).unlink()
    box.expect("scheduler", CheckLevel.BROKEN, "reads no file of edgegpu's", "edgegpu install")
    box.write(CONFIG, "kube-scheduler-arg: [config=/etc/site.yaml]\n")
    box.expect(
        "scheduler", CheckLevel.BROKEN, "the scheduler reads /etc/site.yaml and not edgegpu's file", "edgegpu install"
    )


def test_a_scheduler_file_with_which_k3s_will_not_start(box: Box) -> None:
    box.write(SCHEDULER, box.at(SCHEDULER).read_text().replace("weight: 1", "weight: 0"), 0o600)
    box.expect("scheduler", CheckLevel.BROKEN, "weight", "edgegpu install  # before anything is restarted")
    os.utime(box.at(SCHEDULER), (BOOTED_S + 100, BOOTED_S + 100))
    assert not [one for one in box.see("scheduler").problems if "systemctl restart" in one.remedy]
    box.at(SCHEDULER).unlink()
    box.expect(
        "scheduler", CheckLevel.BROKEN, "is missing: the scheduler will not start again", "edgegpu install  # before"
    )


def test_a_scheduler_file_that_others_can_read(box: Box) -> None:
    box.at(SCHEDULER).chmod(0o644)
    box.expect("scheduler", CheckLevel.WARNING, "can be read by others", "chmod 600")


def test_a_scheduler_file_that_k3s_has_not_read_yet(box: Box) -> None:
    os.utime(box.at(SCHEDULER), (BOOTED_S + 100, BOOTED_S + 100))
    box.expect("scheduler", CheckLevel.WARNING, "changed after k3s had read it", "systemctl restart --no-block k3s")


def test_the_way_by_hand_is_as_good(box: Box) -> None:
    box.at(SCHEDULER).rename(box.at("/etc/edgegpu/scheduler.yaml"))
    box.write(DROP_IN, "kube-scheduler-arg+: [config=/etc/edgegpu/scheduler.yaml]\n")
    assert box.see("scheduler").text == "reads /etc/edgegpu/scheduler.yaml"
    assert box.see("extender").level is CheckLevel.OK


def test_a_control_plane_of_kubeadms(box: Box) -> None:
    for name in ("units/k3s", "etc/systemd/system/k3s.service"):
        box.at(name).unlink()
    plain = (ROOT / "tests/lab/kubeadm-scheduler.yaml").read_text(encoding="utf-8")
    box.write(MANIFEST, plain)
    box.at(SCHEDULER_FILE).parent.mkdir(parents=True)
    box.at(SCHEDULER).rename(box.at(SCHEDULER_FILE))
    box.expect("scheduler", CheckLevel.BROKEN, "the scheduler reads no file", f"changes {MANIFEST}")
    box.write(MANIFEST, kubeadm.with_file(plain, box.at(SCHEDULER_FILE).read_bytes()))
    assert box.see("scheduler").text == f"reads {SCHEDULER_FILE}"
    assert box.see("extender").level is CheckLevel.OK
    assert box.see("k3s").text == "there is no k3s on this machine: kubeadm control plane"
    box.write(MANIFEST, "kind: Pod\n")
    assert box.see("scheduler").level is CheckLevel.BROKEN


def test_what_undoes_a_change_is_missing(box: Box) -> None:
    program = box.at("/usr/local/lib/edgegpu/edgegpu-recover")
    program.chmod(0o644)
    box.expect("recover", CheckLevel.BROKEN, "cannot be run", "chmod 755")
    program.unlink()
    box.expect("recover", CheckLevel.BROKEN, "edgegpu-recover is missing", "edgegpu install")
    box.at("/etc/systemd/system/edgegpu-recover.service").unlink()
    box.expect("recover", CheckLevel.BROKEN, "edgegpu-recover.service is missing", "edgegpu install")


def test_k3s_does_not_ask_whether_a_change_failed(box: Box) -> None:
    text = box.at("units/k3s").read_text().replace("ExecStartPre={ path=/usr/local/lib/edgegpu/edgegpu-recover", "X=")
    box.write("units/k3s", text)
    box.expect("recover", CheckLevel.WARNING, "systemd has not read", "edgegpu install")
    drop_in = "/etc/systemd/system/k3s.service.d/50-edgegpu.conf"
    box.write(drop_in, "[Service]\n")
    box.expect("recover", CheckLevel.BROKEN, "does not run", "edgegpu install")
    box.at(drop_in).unlink()
    box.expect("recover", CheckLevel.BROKEN, "k3s starts without asking", "edgegpu install")


def put(
    box: Box, state: TransactionState, *, op: TransactionKind = TransactionKind.INSTALL, why: str = "", author: str = ""
) -> None:
    """Write the journal as a transaction leaves it."""
    folder = box.at("/var/lib/edgegpu/tx")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state").unlink(missing_ok=True)
    record = TransactionRecord(
        id="t1", op=op, state=state, boot_id=BOOT_ID.strip(), deadline_boot_s=1 << 40, author=author, why=why
    )
    TransactionJournal(folder).write(record)


def test_the_last_transaction(box: Box) -> None:
    put(box, TransactionState.COMMITTED)
    assert box.see("transaction").text == "install t1 is committed"
    put(box, TransactionState.ROLLED_BACK, why="k3s was not ready in time")
    box.expect(
        "transaction", CheckLevel.WARNING, "install t1 was rolled back: k3s was not ready in time", "edgegpu install"
    )
    put(box, TransactionState.ROLLED_BACK, op=TransactionKind.GUARD, why="k3s did not come up, 3 times")
    box.expect("transaction", CheckLevel.BROKEN, "taken out of k3s: k3s did not come up, 3 times", "edgegpu install")


@pytest.mark.parametrize("state", [TransactionState.SWAPPED, TransactionState.VERIFYING, TransactionState.INCONSISTENT])
def test_a_transaction_without_an_author(box: Box, state: TransactionState) -> None:
    put(box, state)
    box.expect("transaction", CheckLevel.BROKEN, f"install t1 is left at {state}", "edgegpu transaction resume")


def test_a_transaction_under_way(box: Box) -> None:
    me = Path(f"/proc/{os.getpid()}/stat").read_text()
    box.write(f"/proc/{os.getpid()}/stat", me)
    put(box, TransactionState.VERIFYING, author=f"{os.getpid()}:{me.rpartition(')')[2].split()[19]}")
    assert box.see("transaction").text == "install t1 is under way now: VERIFYING"


def test_a_journal_that_makes_no_sense(box: Box) -> None:
    box.write("/var/lib/edgegpu/tx/state", "op=dance\n")
    box.expect("transaction", CheckLevel.BROKEN, "cannot understand", "edgegpu-recover show")


def test_files_that_somebody_edited(box: Box) -> None:
    box.write(CONFIG, with_block("token: x\n", SCHEDULER, path=CONFIG))
    paths = (SCHEDULER, "/etc/edgegpu/plugin.yaml", CONFIG)  # the last two are there to be edited
    box.record_baseline(paths)
    assert box.see("files").level is CheckLevel.OK
    for path in paths:
        box.at(path).write_text(box.at(path).read_text() + "# mine\n")
    box.expect("files", CheckLevel.WARNING, f"{SCHEDULER} was edited", "edgegpu install")
    assert len(box.see("files").problems) == 1
    box.at(SCHEDULER).unlink()
    box.expect("files", CheckLevel.WARNING, f"{SCHEDULER} is gone", "edgegpu install")


def test_a_k3s_that_was_installed_again(box: Box) -> None:
    box.api.refuses = 401
    box.expect("kubeconfig", CheckLevel.BROKEN, "refuses the account", "sudo edgegpu install")
