"""Our lines in the user's configuration file through a transaction: committed, rolled back, taken out by the guard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from integration.transactionkit import SCHEDULER, Bed

from edgegpu_installer.changes import FileChange, Plan, TransactionKind
from edgegpu_installer.errors import InstallError
from edgegpu_installer.machine.config_block import with_block
from edgegpu_installer.plan import shared_config
from edgegpu_installer.transaction import baseline
from edgegpu_installer.transaction.states import TransactionState

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = "/etc/rancher/k3s/config.yaml"
SITES = "debug: true\n"
"""What somebody adds to the file later."""


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path / "root")


def user_has(bed: Bed, text: str | None) -> bytes | None:
    path = bed.layout.at(CONFIG)
    if text is None:
        path.unlink(missing_ok=True)
        return None
    path.write_bytes(text.encode())
    path.chmod(0o640)
    return text.encode()


def now(bed: Bed) -> bytes | None:
    path = bed.layout.at(CONFIG)
    return path.read_bytes() if path.exists() else None


def install(bed: Bed) -> Plan:
    text = (now(bed) or b"").decode()
    return Plan(
        TransactionKind.INSTALL,
        files=(
            FileChange(SCHEDULER, content=b"good\n", mode=0o600, k3s_reads=True),
            FileChange(CONFIG, with_block(text, SCHEDULER, path=CONFIG).encode(), mode=0o640, k3s_reads=True),
        ),
        restart="k3s",
    )


def uninstall(bed: Bed) -> Plan:
    return Plan(
        TransactionKind.UNINSTALL, shared_config.restore(baseline.restore_plan(bed.layout), bed.layout), restart="k3s"
    )


def edit(bed: Bed) -> None:
    with bed.layout.at(CONFIG).open("a") as file:
        file.write(SITES)


def crash_loop(bed: Bed) -> None:
    for restarts in range(4):
        bed.set_unit("k3s.service", "activating", start=f"loop{restarts}", restarts=restarts)
        bed.recover("check", "k3s.service")


TEXTS = [
    None,
    "",
    "token: x\n",
    "token: x # '$HOME' `id` \\n %s",
    "token: x\r\nnote: ü",
    "kube-scheduler-arg:\n  - v=2\n\n\n# end\n",
    "kube-scheduler-arg:\r\n- v=2",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_guard_takes_our_lines_out_to_the_byte(bed: Bed, text: str | None) -> None:
    old = user_has(bed, text)
    assert bed.run(install(bed)).state is TransactionState.COMMITTED
    assert b"BEGIN edgegpu" in (now(bed) or b"")
    crash_loop(bed)
    assert now(bed) == old
    assert not bed.layout.at(SCHEDULER).exists()
    assert text in {None, ""} or bed.layout.at(CONFIG).stat().st_mode & 0o777 == 0o640


def test_the_guard_leaves_what_is_not_ours(bed: Bed) -> None:
    user_has(bed, "token: x\n")
    bed.run(install(bed))
    edit(bed)
    crash_loop(bed)
    assert now(bed) == b"token: x\n" + SITES.encode()
    edit(bed)  # nothing of ours is there any more: whatever becomes of k3s is not ours to mend
    crash_loop(bed)
    assert now(bed) == b"token: x\n" + SITES.encode() * 2


@pytest.mark.parametrize("text", [None, "token: x", "kube-scheduler-arg:\n- v=2\r\n"])
def test_an_uninstall_brings_the_bytes_back(bed: Bed, text: str | None) -> None:
    before = user_has(bed, text)
    bed.run(install(bed))
    assert bed.run(uninstall(bed)).state is TransactionState.COMMITTED
    assert now(bed) == before


def test_an_uninstall_keeps_what_was_edited_since_and_restarts_k3s_once(bed: Bed) -> None:
    user_has(bed, "token: x\n")
    bed.run(install(bed))
    edit(bed)
    restarts = len(bed.calls("restart --no-block -- k3s"))
    assert bed.run(uninstall(bed)).state is TransactionState.COMMITTED
    assert now(bed) == b"token: x\n" + SITES.encode()
    assert len(bed.calls("restart --no-block -- k3s")) == restarts + 1


def test_a_second_run_changes_nothing(bed: Bed) -> None:
    user_has(bed, "token: x\n")
    assert bed.run(install(bed)).changed
    edit(bed)
    assert not bed.run(install(bed)).changed


@pytest.mark.parametrize("text", [None, "token: x\n"])
def test_a_rollback_takes_our_lines_out_of_a_file_that_somebody_edited_meanwhile(bed: Bed, text: str | None) -> None:
    user_has(bed, text)

    def verify(_: object) -> None:
        edit(bed)
        raise InstallError("no extender")

    outcome = bed.run(install(bed), verify=verify)
    assert outcome.state is TransactionState.ROLLED_BACK
    assert f"left as others changed them meanwhile: {CONFIG}" in outcome.why
    assert now(bed) == ((text or "") + SITES).encode(), "lines that name a file which is gone would keep k3s down"
    assert not bed.layout.at(SCHEDULER).exists()


def test_a_power_cut_brings_the_bytes_back(bed: Bed) -> None:
    before = user_has(bed, "token: x")
    bed.die_at("before-RESTARTING", install(bed))
    assert now(bed) != before
    bed.reboot()
    assert now(bed) == before
