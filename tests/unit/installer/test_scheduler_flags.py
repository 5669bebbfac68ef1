"""The flags that a scheduler passes over once it has a file are in that file."""

from pathlib import Path

import pytest
import yaml
from kits.scheduler import materials

from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import Layout
from edgegpu_installer.scheduler.file import flag_settings, render, validate

SILENCED = {
    "kube-api-content-type": "application/json",
    "kube-api-qps": "80",
    "kube-api-burst": "90",
    "profiling": "false",
    "contention-profiling": "True",
}


def test_what_a_file_silences_is_repeated_and_nothing_else() -> None:
    others = {"leader-elect": "false", "v": "4", "secure-port": "1", "kubeconfig": "/other", "config": "/c"}
    assert flag_settings(others, kubeconfig="/k") == {"clientConnection": {"kubeconfig": "/k"}}
    assert flag_settings(SILENCED | others, kubeconfig="/k") == {
        "clientConnection": {"kubeconfig": "/k", "contentType": "application/json", "qps": 80.0, "burst": 90},
        "enableProfiling": False,
        "enableContentionProfiling": True,
    }


def test_the_file_says_so_and_is_one_that_a_scheduler_takes(tmp_path: Path) -> None:
    given = materials(tmp_path)
    text = render(given.extender, kubeconfig=given.kubeconfig, flags=SILENCED)
    document = yaml.safe_load(text)
    assert document["clientConnection"] == {
        "kubeconfig": given.kubeconfig,
        "contentType": "application/json",
        "qps": 80.0,
        "burst": 90,
    }
    assert (document["enableProfiling"], document["enableContentionProfiling"]) == (False, True)
    assert validate(text, read_file=Layout().read) == []


def test_a_figure_that_is_none_is_refused() -> None:
    with pytest.raises(InstallError, match="--kube-api-burst=many"):
        flag_settings({"kube-api-burst": "many"}, kubeconfig="/k")
