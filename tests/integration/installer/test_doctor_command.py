"""`edgegpu doctor` as a command: words, JSON, exit status; and docs/doctor.md says the same as the list of checks."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kits.cli import Done, edgegpu, edgegpu_process
from kits.doctor import Box

from edgegpu_installer.doctor.checks import CHECKS

if TYPE_CHECKING:
    pass

DOCUMENT = Path(__file__).resolve().parents[3] / "docs/doctor.md"
SAMPLE = """\
edgegpu
  x  extender        the extender is not healthy: 503 not in step
        Fix: edgegpu status; sudo journalctl -u edgegpu-plugin -e
        https://127.0.0.1:{port}

install
  ok leftovers       none

1 broken, 1 ok
"""


@pytest.fixture
def box(box: Box) -> Box:
    box.api.now = dt.datetime.now(dt.UTC)
    return box


def doctor(box: Box, *arguments: str) -> Done:
    return edgegpu("doctor", "--root", box.root, *arguments, env={"PATH": f"{box.at('programs')}:/usr/bin:/bin"})


def test_words_for_people(box: Box) -> None:
    box.health.well, box.health.words = False, "not in step"
    done = doctor(box, "--check", "extender", "--check", "leftovers")
    assert (done.out, done.err, done.code) == (SAMPLE.format(port=box.port), "", 2)


def test_several_troubles_have_a_line_each(box: Box) -> None:
    box.write("/usr/local/vgpu/libvgpu.so", "")
    box.write("/etc/gpu-manager/vdriver", "")
    done = doctor(box, "--check", "leftovers")
    assert done.code == 1
    assert "(and 1 more)" in done.out
    assert "     ! /etc/gpu-manager is gpu-manager's\n        Fix: uninstall gpu-manager first; only then" in done.out


def test_all_of_a_healthy_box(box: Box) -> None:
    done = doctor(box, *[word for check in CHECKS if check.name != "disk" for word in ("--check", check.name)])
    assert done.code == 0, done.out
    assert [line for line in done.out.splitlines() if line and not line.startswith(" ")][:2] == ["machine", "cluster"]


def test_json(box: Box) -> None:
    box.at("dev/char/1:3").unlink()
    done = doctor(box, "--json", "--check", "cgroups", "--check", "cdi")
    value = json.loads(done.out)
    assert (value["v"], value["level"], done.code) == (1, "warning", 1)
    cdi, cgroups = value["checks"]
    assert (cdi["name"], cdi["level"], cdi["troubles"]) == ("cdi", "ok", [])
    assert cgroups["troubles"][0]["level"] == "warning"
    assert "edgegpu-plugin" in cgroups["troubles"][0]["remedy"]
    assert cgroups["details"] == ["/dev/char/1:3 for /dev/nvidia0", "/dev/char/1:3 for /dev/nvidiactl"]


def test_the_list_looks_at_nothing() -> None:
    done = edgegpu("doctor", "--list")
    assert [line.split()[0] for line in done.out.splitlines()] == [check.name for check in CHECKS]
    assert json.loads(edgegpu("doctor", "--list", "--json").out)[0]["name"] == CHECKS[0].name


def test_a_check_that_there_is_not() -> None:
    done = edgegpu("doctor", "--check", "horoscope")
    assert (done.out, done.code) == ("", 3)
    assert "cannot look at horoscope: no such check" in done.err


def test_a_wrong_option_does_not_end_as_a_broken_box_does() -> None:
    done = edgegpu("doctor", "--chek", "plugin")
    assert (done.out, done.code) == ("", 3)
    assert "No such option: --chek" in done.err
    assert edgegpu("doctor", "--help").code == 0
    assert edgegpu("status", "--chek").code == 2


def test_an_empty_machine_ends_without_a_traceback(tmp_path: Path) -> None:
    done = edgegpu_process("doctor", "--root", tmp_path)
    assert done.code == 2
    assert "Traceback" not in done.out + done.err
    assert "itself failed" not in done.out
    assert "edgegpu is not installed" in done.out


def test_the_document_has_every_check_and_no_other() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert re.findall(r"^### (\S+)$", text, re.MULTILINE) == [check.name for check in CHECKS]
    groups = list(dict.fromkeys(check.group for check in CHECKS))
    assert re.findall(r"^## (\S+)$", text, re.MULTILINE) == groups
    for check in CHECKS:
        part = re.search(rf"^### {check.name}$(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
        assert part is not None
        assert check.about in " ".join(part[1].split()), check.name
        assert "| red or yellow |" in part[1] or "nothing to mend" in part[1], check.name
