"""The doctor's frame: levels and exit status, checks that fail themselves, programs that hang."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING

import pytest

from edgegpu_installer.doctor.checks import Check, CheckRun, exit_status, run_checks, worst
from edgegpu_installer.doctor.probe import BoxProbe, DoctorClients, PluginSettings, ProbeError
from edgegpu_installer.doctor.verdict import CheckLevel, CheckResult, broken, info, note, result_of, skipped, warning
from edgegpu_installer.machine.programs import NOT_FOUND, run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from edgegpu_core.injection import ContainerdSupport
    from edgegpu_installer.doctor.probe import Api, CloudProbe

PATH = "/usr/bin:/bin"
FINE = result_of([], ok="fine")


class ShutDoors(DoctorClients):
    """A box that answers nothing."""

    def __init__(self) -> None:
        self.asked = 0

    def settings(self) -> PluginSettings:
        raise NotImplementedError

    def status(self) -> Mapping[str, object]:
        self.asked += 1
        raise ProbeError("cannot reach edgegpu-plugin: no socket", remedy="start it")

    def containerd(self, usual: str) -> ContainerdSupport | None:
        raise NotImplementedError(usual)

    def api(self) -> Api:
        raise NotImplementedError

    def cloud(self) -> CloudProbe | None:
        raise NotImplementedError

    def reach_cloud(self) -> None:
        raise NotImplementedError


def check(look: Callable[[BoxProbe], CheckResult], name: str = "x", *, needs_install: bool = False) -> Check:
    return Check(name, "group", "about", look, needs_install=needs_install)


def sight(root: Path, doors: DoctorClients | None = None) -> BoxProbe:
    return BoxProbe(root=root, clients=doors or ShutDoors(), path=PATH, now=lambda: dt.datetime.now(dt.UTC))


def see(
    root: Path, look: Callable[[BoxProbe], CheckResult], name: str = "x", *, needs_install: bool = False
) -> CheckResult:
    (result,) = run_checks([check(look, name, needs_install=needs_install)], sight(root))
    return result.verdict


@pytest.mark.parametrize(
    ("verdicts", "status", "level"),
    [
        ([], 0, CheckLevel.OK),
        ([FINE, info("x"), skipped("y"), result_of([note("z", "m")], ok="w")], 0, CheckLevel.OK),
        ([FINE, result_of([warning("a", "b")], ok="")], 1, CheckLevel.WARNING),
        ([result_of([warning("a", "b"), broken("c", "d")], ok=""), FINE], 2, CheckLevel.BROKEN),
    ],
)
def test_the_worst_is_the_exit_status(verdicts: list[CheckResult], status: int, level: CheckLevel) -> None:
    results = [CheckRun(check=check(lambda _: FINE), verdict=one, duration_s=0) for one in verdicts]
    assert exit_status(results) == status
    assert worst(results).rank == level.rank


def test_the_worst_trouble_gives_the_line() -> None:
    verdict = result_of([note("n", ""), warning("second", ""), broken("first", "mend")], ok="")
    assert (verdict.text, verdict.level) == ("first (and 1 more)", CheckLevel.BROKEN)
    assert [one.text for one in verdict.problems] == ["first", "second", "n"]


def test_a_check_that_fails_itself_is_a_finding_and_the_next_one_is_heard(tmp_path: Path) -> None:
    def bad(_sight: BoxProbe) -> CheckResult:
        raise KeyError("nothing")

    first, second = run_checks([check(bad, "bad"), check(lambda _: FINE)], sight(tmp_path))
    assert first.verdict.level is CheckLevel.BROKEN
    assert first.verdict.text == "this check itself failed: KeyError: 'nothing'"
    assert "edgegpu doctor --check bad" in first.verdict.problems[0].remedy
    assert second.verdict is FINE


def test_what_may_not_be_read_needs_root(tmp_path: Path) -> None:
    def look(_sight: BoxProbe) -> CheckResult:
        raise PermissionError(13, "Permission denied", "/etc/edgegpu/kubeconfig")

    verdict = see(tmp_path, look)
    assert verdict.problems[0].remedy == "sudo edgegpu doctor"
    assert "/etc/edgegpu/kubeconfig" in verdict.text


def test_what_is_wrong_is_told_once_by_the_check_that_it_belongs_to(tmp_path: Path) -> None:
    doors = ShutDoors()

    def look(seen: BoxProbe) -> CheckResult:
        return info(str(seen.status))

    checks = [check(look, "plugin"), check(look, "resources")]
    plugin, resources = (result.verdict for result in run_checks(checks, sight(tmp_path, doors)))
    assert (plugin.level, plugin.text) == (CheckLevel.BROKEN, "cannot reach edgegpu-plugin: no socket")
    assert resources.level is CheckLevel.SKIPPED
    assert resources.text.endswith("(see the check `plugin`)")
    assert doors.asked == 1


def test_without_an_install_there_is_nothing_to_say_of_one(tmp_path: Path) -> None:
    assert see(tmp_path, lambda _: FINE, needs_install=True).level is CheckLevel.SKIPPED
    (tmp_path / "etc/edgegpu").mkdir(parents=True)
    (tmp_path / "etc/edgegpu/plugin.yaml").touch()
    assert see(tmp_path, lambda _: FINE, needs_install=True) is FINE


def test_each_check_is_announced_and_timed(tmp_path: Path) -> None:
    begun: list[str] = []
    ticks = iter([1.0, 3.5])
    one = check(lambda _: FINE, "one")
    (result,) = run_checks([one], sight(tmp_path), before=lambda it: begun.append(it.name), clock=lambda: next(ticks))
    assert begun == ["one"]
    assert result.duration_s == 2.5


def test_a_program_and_its_words() -> None:
    ran = run(["sh", "-c", "echo out; echo err >&2; exit 3"], path=PATH, timeout_s=10)
    assert (ran.status, ran.out, ran.err, ran.words, ran.well) == (3, "out\n", "err\n", "err", False)
    ran = run(["sh", "-c", "echo $LD_LIBRARY_PATH"], path=PATH, timeout_s=10, environment={"LD_LIBRARY_PATH": "/a:/b"})
    assert (ran.out, ran.well) == ("/a:/b\n", True)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    ran = run(["no-such-program"], path=str(tmp_path), timeout_s=1)
    assert (ran.status, ran.words) == (NOT_FOUND, "no-such-program: not found")


def test_a_program_that_hangs_is_left_at_its_deadline() -> None:
    began = time.monotonic()
    ran = run(["sh", "-c", "echo half; exec sleep 60"], path=PATH, timeout_s=0.5)
    assert (ran.status, ran.out) == (None, "half\n")
    assert time.monotonic() - began < 30


def test_a_child_that_keeps_the_output_open_delays_nobody() -> None:
    began = time.monotonic()
    ran = run(["sh", "-c", "sleep 60 & echo done"], path=PATH, timeout_s=30)
    assert ran.out == "done\n"
    assert time.monotonic() - began < 20
