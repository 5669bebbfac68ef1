"""What the installer says of a kubeconfig that it cannot use: the fault, and what to do about this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from edgegpu_installer.cluster.kubeconfig import read
from edgegpu_installer.errors import InstallError

if TYPE_CHECKING:
    from pathlib import Path

FAULTS = {
    "no current context": ({}, "", "is not among its contexts", "choose one with `kubectl config use-context`"),
    "a program logs in": ({"exec": {"command": "aws"}}, "main", "exec plugin", "token or a client certificate"),
    "no certificate": ({"client-certificate": "gone", "client-key": "gone"}, "main", "gone", "write the file anew"),
}


@pytest.mark.parametrize(("user", "current", "fault", "remedy"), FAULTS.values(), ids=FAULTS)
def test_a_kubeconfig_that_cannot_be_used(
    tmp_path: Path, user: dict[str, object], current: str, fault: str, remedy: str
) -> None:
    file = tmp_path / "kubeconfig"
    value = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        "current-context": current,
    }
    file.write_text(yaml.safe_dump(value))
    with pytest.raises(InstallError) as refused:
        read(file)
    assert fault in refused.value.message
    assert remedy in refused.value.remedy


def test_a_kubeconfig_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InstallError) as refused:
        read(tmp_path / "none")
    assert "run as root on a server whose k3s is up" in refused.value.remedy
