"""The lab's versions: each row of versions.txt has its pins, and each day takes another one than the newest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lab.labversion import HERE, LabVersion, UnknownVersionError, choose, of_day, read_table

TABLE = read_table((HERE / "versions.txt").read_text())
NEWEST = TABLE[0]


def pins(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^(?:require)?\s*(\S+) (v\S+)$", path.read_text(), re.MULTILINE))


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_a_version_pins_all_parts_of_its_kubernetes(row: LabVersion) -> None:
    path = HERE / f"standin/versions/{row.kubernetes}.mod"
    release = pins(path)["k8s.io/kubernetes"]
    assert release.startswith(f"v{row.kubernetes}.")
    replaced = re.findall(r"^replace (k8s\.io/\S+) => \1 v0\.(\S+)$", path.read_text(), re.MULTILINE)
    parts = {name: version for name, version in replaced if name != "k8s.io/kube-openapi"}
    assert len(parts) > 30
    assert set(parts.values()) == {release.removeprefix("v1.")}
    assert f"k8s.io/kubernetes {release} h1:" in path.with_suffix(".sum").read_text()


@pytest.mark.parametrize("version", sorted({row.containerd for row in TABLE}))
def test_a_version_pins_its_containerd(version: str) -> None:
    path = HERE / f"containerd/versions/{version}.mod"
    release = pins(path)["github.com/containerd/containerd/v2"]
    assert release.startswith(f"v{version}.")
    assert f"github.com/containerd/containerd/v2 {release} h1:" in path.with_suffix(".sum").read_text()


def test_the_newest_is_the_default_and_brings_its_own_containerd() -> None:
    assert choose(TABLE, {}) == choose(TABLE, {"EDGEGPU_LAB_KUBERNETES": ""}) == NEWEST
    assert max(TABLE, key=lambda row: int(row.kubernetes.partition(".")[2])) == NEWEST
    assert choose(TABLE, {"EDGEGPU_LAB_KUBERNETES": TABLE[-1].kubernetes}) == TABLE[-1]


def test_a_containerd_can_be_named_for_any_kubernetes() -> None:
    names = {"EDGEGPU_LAB_KUBERNETES": TABLE[-1].kubernetes, "EDGEGPU_LAB_CONTAINERD": NEWEST.containerd}
    assert choose(TABLE, names) == LabVersion(TABLE[-1].kubernetes, NEWEST.containerd)


@pytest.mark.parametrize("variable", ["EDGEGPU_LAB_KUBERNETES", "EDGEGPU_LAB_CONTAINERD"])
def test_an_unknown_version_is_refused_with_those_that_there_are(variable: str) -> None:
    with pytest.raises(UnknownVersionError, match=r"has no .* 1\.2: there are \d"):
        choose(TABLE, {variable: "1.2"})


def test_each_day_another_one_than_the_newest_until_all_had_their_turn() -> None:
    assert {of_day(TABLE, day) for day in range(700, 700 + len(TABLE) - 1)} == set(TABLE[1:])
    assert of_day(TABLE, 700) != of_day(TABLE, 701)
