"""The installer's work on a real cluster: rights, marks, shares and the lock over several servers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.labkit import wait_until

if TYPE_CHECKING:
    from e2e.k3s import K3s

ROOT = Path(__file__).resolve().parents[2]
ADMIN = "/etc/rancher/k3s/k3s.yaml"


def command(step: str, *args: str) -> tuple[str, ...]:
    return (
        "env",
        f"PYTHONPATH={ROOT / 'tests'}",
        sys.executable,
        "-W",
        "error",
        "-m",
        "e2e.installer_steps",
        step,
        *args,
    )


def do(cluster: K3s, step: str, *args: str) -> Any:  # noqa: ANN401  (JSON)
    done = cluster.server.exec(*command(step, ADMIN, *args), timeout_s=120)
    return json.loads(done.stdout.splitlines()[-1])


def test_it_reads_and_is_refused_as_it_expects(k3s: K3s) -> None:
    told = do(k3s, "ways")
    assert told["version"].startswith("v1.")
    assert told["nodes"] == 2


def test_accounts_have_their_rights_and_no_more_and_leave_nothing(k3s: K3s) -> None:
    told = do(k3s, "accounts", "/run/edgegpu-steps")
    assert told == {"gone": 9, "changed": []}


def test_a_binding_of_our_name_to_another_role_is_put_right(k3s: K3s) -> None:
    assert do(k3s, "other-role")["role"] == "edgegpu-node-other"


def test_what_a_removal_leaves_is_said(k3s: K3s) -> None:
    told = do(k3s, "left")
    assert "Namespace edgegpu-left" in told["left"]
    assert told["later"] == told["present"] == []
    assert "it is being deleted" in told["again"]


def test_marks_come_and_go(k3s: K3s) -> None:
    told = do(k3s, "marks", k3s.server.name)
    assert told["left"] == {"labels": {}, "annotations": {}}
    assert told["facts"]["is_server"]
    assert told["facts"]["labelled"]
    assert told["facts"]["extender"] == "0.1.0"


def test_the_lease_outlives_a_restart_of_its_own_k3s_and_refuses_another(k3s: K3s, tmp_path: Path) -> None:
    end, log = k3s.server.path("/run/edgegpu-steps.end"), tmp_path / "holder.log"
    held = end.with_suffix(".held")
    holder = k3s.server.popen(*command("hold", ADMIN, k3s.server.name, "/run/edgegpu-steps.end"), log=log)
    try:
        wait_until(held.exists, what="it holds the lease")
        k3s.server.restart()
        told = do(k3s, "refused", "another-server")
        assert f"{k3s.server.name} (process " in told["why"]
        k3s.report("lease_refused_s", [told["after_s"]], limit=30)
    finally:
        end.touch()
        status = holder.wait(60)
        end.unlink()
        held.unlink(missing_ok=True)
    assert status == 0, log.read_text()
    answer = json.loads(log.read_text().splitlines()[-1])
    assert answer["away"] > 0
    assert not answer["left"]
