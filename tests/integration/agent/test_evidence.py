"""What nvidia-smi prints in containers: by a container runtime on a real socket, whatever a container answers."""

from __future__ import annotations

import json
import shlex
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from kits.cli import CARD_0, CARD_1, document, edgegpu, plugin, pod
from kits.runtime import container_runtime, nvidia_smi

from edgegpu_agent.actions.evidence import CheckEvidence
from edgegpu_agent.actions.programs import ActionTimer
from edgegpu_agent.cli.clients.document import CardRef, PodRow
from edgegpu_agent.cli.clients.evidence import check_evidence, find_runtime
from edgegpu_agent.cli.common import CliError
from edgegpu_plugin.pb import CallRefusedError
from edgegpu_plugin.pb.container_runtime import ExecutedProgram
from edgegpu_sync.ids import CommandId
from edgegpu_sync.messages.evidence import EvidenceReport, SeenCards
from edgegpu_sync.rules.ops import EvidenceArgs
from edgegpu_sync.states import CommandState

if TYPE_CHECKING:
    from pathlib import Path

    from kits.runtime import Behaviour

MISSING = 'failed to exec in container: OCI runtime exec failed: exec: "nvidia-smi": executable file not found in $PATH'


def _refused(text: str) -> Behaviour:
    def refuse() -> ExecutedProgram:
        raise CallRefusedError(text)

    return refuse


def _row(name: str, *cards: str) -> PodRow:
    found = tuple(CardRef("0", uuid) for uuid in cards)
    return PodRow(
        namespace="edge",
        pod=name,
        uid=f"uid-{name}",
        container="main",
        units=4,
        core=1,
        cards=found,
        phase="Running",
        state="allocated",
        reason="",
    )


def _key(name: str) -> tuple[str, str]:
    return f"uid-{name}", "main"


@pytest.fixture
def socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cri.sock"
    monkeypatch.setenv("CONTAINER_RUNTIME_ENDPOINT", f"unix://{path}")
    return path


def test_the_command_compares_what_each_container_sees_with_its_cards(socket: Path, tmp_path: Path) -> None:
    answer = document(pods=[pod("face", 20, CARD_0), pod("plate", 20, CARD_1), pod("asr", 4)])
    seen = {_key("face"): lambda: nvidia_smi(CARD_0), _key("plate"): lambda: nvidia_smi(CARD_0, CARD_1)}
    with plugin(tmp_path, answer) as status, container_runtime(socket, seen) as commands:
        done = edgegpu("pods", "--evidence", "--socket", status)
        told = json.loads(edgegpu("pods", "--evidence", "--json", "--uid", "uid-face", "--socket", status).out)
    assert done.code == 1, "a container sees more than its card"
    assert "baetyl-edge/face  main: sees exactly its card" in done.out
    assert f"  GPU 0: NVIDIA Tesla P4 (UUID: {CARD_0})" in done.out
    assert "baetyl-edge/plate  main: sees 2 cards, holds 1 card" in done.out
    assert "asr" not in done.out, "it holds no card"
    assert [one["evidence"]["verdict"] for one in told["pods"]] == ["own"]
    assert {tuple(words) for words in commands} == {("nvidia-smi", "-L")}


def test_where_no_runtime_answers_the_command_says_what_to_do(socket: Path, tmp_path: Path) -> None:
    with plugin(tmp_path, document()) as status:
        done = edgegpu("pods", "--evidence", "--socket", status)
    assert done.code == 1
    assert f"cannot ask the container runtime at {socket}" in done.err
    assert "k3s" in done.err


def test_a_container_may_answer_anything(socket: Path) -> None:
    behaviours: dict[str, Behaviour] = {
        "liar": lambda: ExecutedProgram(f"\x1b[2J\nGPU 0: \u202egnp\x9b (UUID: {CARD_1})\n".encode()),
        "flood": lambda: ExecutedProgram(b"x" * 200_000),
        "long": lambda: ExecutedProgram(b"x" * 20_000 + f"\nGPU 0: P4 (UUID: {CARD_0})".encode()),
        "bytes": lambda: ExecutedProgram(bytes(range(256))),
        "none": nvidia_smi,
        "broken": lambda: ExecutedProgram(b"", b"Failed to initialize NVML: Driver/library mismatch\n", 18),
        "bare": _refused(MISSING),
        "odd": _refused("cannot\n\x1b[31mexec"),
    }
    rows = [_row(name, CARD_0) for name in behaviours]
    with container_runtime(socket, {_key(name): one for name, one in behaviours.items()}):
        found = {one.pod: one for one in check_evidence([*rows, _row("gone", CARD_0)], socket)}
    assert found["liar"].verdict is SeenCards.OTHER
    assert found["liar"].lines == f"?[2J\nGPU 0: ?gnp? (UUID: {CARD_1})"
    assert (found["flood"].verdict, found["flood"].text) == (SeenCards.UNKNOWN, "it printed too much")
    assert found["long"].verdict is SeenCards.OWN, "cards are counted past what is kept"
    assert len(found["long"].lines) == 4_096
    assert found["bytes"].verdict is SeenCards.NONE
    assert found["none"].verdict is SeenCards.NONE
    assert "18: Failed to initialize NVML: Driver/library mismatch" in found["broken"].text
    assert found["bare"].text == "there is no nvidia-smi in the container"
    assert "?[31mexec" in found["odd"].text
    assert found["gone"].text == "its container does not run"
    assert all(line.isprintable() for one in found.values() for line in (*one.lines.splitlines(), one.text))


def test_a_program_that_hangs_costs_its_own_container_alone(socket: Path) -> None:
    hold = threading.Event()

    def hang() -> ExecutedProgram:
        hold.wait(30)
        return nvidia_smi()

    rows = [_row("hangs", CARD_0), _row("well", CARD_0)]
    with container_runtime(socket, {_key("hangs"): hang, _key("well"): lambda: nvidia_smi(CARD_0)}):
        found = check_evidence(rows, socket, program_s=1)
        hold.set()
    assert [one.verdict for one in found] == [SeenCards.UNKNOWN, SeenCards.OWN]
    assert found[0].text == "it did not end within 1 s"


def test_an_old_runtime_is_asked_by_the_old_name_of_the_interface(socket: Path) -> None:
    with container_runtime(socket, {_key("face"): lambda: nvidia_smi(CARD_0)}, version="v1alpha2"):
        (found,) = check_evidence([_row("face", CARD_0)], socket)
    assert found.verdict is SeenCards.OWN


def test_the_runtimes_socket_is_found_as_crictl_finds_it(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="no container runtime has a socket here"):
        find_runtime({}, root=tmp_path)
    usual = tmp_path / "run/containerd/containerd.sock"
    usual.parent.mkdir(parents=True)
    usual.touch()
    assert find_runtime({}, root=tmp_path) == usual
    settings = tmp_path / "var/lib/rancher/k3s/agent/etc/crictl.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text("runtime-endpoint: unix:///run/k3s/cri-dockerd/cri-dockerd.sock\n")
    assert find_runtime({}, root=tmp_path) == usual, "what is named there is not there"
    named = tmp_path / "run/k3s/cri-dockerd/cri-dockerd.sock"
    named.parent.mkdir(parents=True)
    named.touch()
    assert find_runtime({}, root=tmp_path) == named


def _action(status: Path, socket: Path) -> CheckEvidence:
    python = f'exec {shlex.quote(sys.executable)} -m edgegpu_agent.cli.app "$@" --socket {shlex.quote(str(status))}'
    timer = ActionTimer(threading.Event())
    env = {"CONTAINER_RUNTIME_ENDPOINT": f"unix://{socket}", "PATH": "/usr/bin:/bin"}
    return CheckEvidence(("/bin/sh", "-c", python, "edgegpu"), timer, env)


def test_the_command_of_a_controller_brings_the_evidence_of_the_pods_that_it_names(
    socket: Path, tmp_path: Path
) -> None:
    answer = document(pods=[pod("face", 20, CARD_0), pod("plate", 20, CARD_1)])
    seen = {_key("face"): lambda: nvidia_smi(CARD_0), _key("plate"): lambda: nvidia_smi(CARD_0)}
    with plugin(tmp_path, answer) as status, container_runtime(socket, seen):
        action = _action(status, socket)
        both = action.act(CommandId("cmd-00000001"), EvidenceArgs(), "")
        one = action.act(CommandId("cmd-00000002"), EvidenceArgs(pods=("uid-plate",)), "")
    assert both.state is CommandState.SUCCEEDED, both.text
    report = EvidenceReport.model_validate(both.data, strict=False)
    assert [(found.pod, found.verdict) for found in report.containers] == [
        ("face", SeenCards.OWN),
        ("plate", SeenCards.OTHER),
    ]
    assert [found.pod for found in EvidenceReport.model_validate(one.data, strict=False).containers] == ["plate"]


def test_where_the_plugin_or_the_runtime_is_away_the_command_fails_with_the_remedy(
    socket: Path, tmp_path: Path
) -> None:
    away = _action(tmp_path / "nowhere.sock", socket).act(CommandId("cmd-00000001"), EvidenceArgs(), "")
    assert away.state is CommandState.FAILED
    assert "systemctl status edgegpu-plugin" in away.text
    with plugin(tmp_path, document()) as status:
        silent = _action(status, socket).act(CommandId("cmd-00000002"), EvidenceArgs(), "")
    assert silent.state is CommandState.FAILED
    assert "cannot ask the container runtime" in silent.text
