"""Which way cards go into containers."""

from pathlib import Path

import pytest

from edgegpu_plugin.config import Injection
from edgegpu_plugin.errors import PluginError
from edgegpu_plugin.runtime import Choice, choose

CDI_FOLDER = Path("/var/run/cdi")
V3 = "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\n"
V2 = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n'
NVIDIA = """
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes."nvidia"]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes."nvidia".options]
  BinaryName = "/usr/bin/nvidia-container-runtime"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def auto(config: Path, *, kubelet: str | None = "v1.33.13+k3s1", cdi_folder: Path = CDI_FOLDER) -> Choice:
    return choose(Injection.AUTO, cdi_folder=cdi_folder, kubelet=kubelet, configs=[config.with_name("none"), config])


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (V3, Injection.CDI),
        (V3 + "enable_cdi = true\n", Injection.CDI),
        (V2 + "enable_cdi = true\n", Injection.CDI),
        (V2 + "enable_cdi = true\n" + NVIDIA, Injection.CDI),
        (V2 + NVIDIA, Injection.RUNTIME),
        (V2 + "enable_cdi = false\n" + NVIDIA, Injection.RUNTIME),
    ],
)
def test_cdi_where_containerd_has_it(config: Path, text: str, mode: Injection) -> None:
    config.write_text(text)
    choice = auto(config)
    assert choice.mode is mode
    assert str(config) in choice.why


@pytest.mark.parametrize(
    "text", [V2, V3 + "enable_cdi = false\n", "", "version = 1\n[plugins.cri]\nenable_cdi = true\n"]
)
def test_neither_way_is_told_with_the_remedy(config: Path, text: str) -> None:
    config.write_text(text)
    with pytest.raises(PluginError, match=r"has CDI off, and containerd has no nvidia runtime: upgrade k3s to 1\.29"):
        auto(config)


@pytest.mark.parametrize(
    ("kubelet", "mode"),
    [("v1.28.15+k3s1", Injection.RUNTIME), ("v1.29.0", Injection.CDI), (None, Injection.CDI), ("odd", Injection.CDI)],
)
def test_an_old_kubelet_passes_no_cdi_names_on(config: Path, kubelet: str | None, mode: Injection) -> None:
    config.write_text(V2 + "enable_cdi = true\n" + NVIDIA)
    assert auto(config, kubelet=kubelet).mode is mode


def test_no_configuration_means_cdi_and_says_so(config: Path) -> None:
    choice = auto(config)
    assert choice.mode is Injection.CDI
    assert "no configuration of containerd was found" in choice.why


def test_a_spec_folder_that_containerd_does_not_read(config: Path) -> None:
    config.write_text(V3 + 'cdi_spec_dirs = ["/etc/cdi", "/run/cdi/"]\n')
    assert auto(config).mode is Injection.CDI
    with pytest.raises(PluginError, match=r"reads CDI specs from /etc/cdi, /run/cdi/ and not from /srv/cdi"):
        auto(config, cdi_folder=Path("/srv/cdi"))


def test_what_is_imported_counts(config: Path) -> None:
    (config.parent / "conf.d").mkdir()
    (config.parent / "conf.d/10.toml").write_text(V3 + "enable_cdi = false\n")
    config.write_text(f'imports = ["{config.parent}/conf.d/*.toml"]\n' + V3)
    with pytest.raises(PluginError, match="has CDI off"):
        auto(config)


@pytest.mark.parametrize("wanted", [Injection.CDI, Injection.RUNTIME])
def test_what_is_asked_for_is_obeyed(config: Path, wanted: Injection) -> None:
    config.write_text("not [toml")
    choice = choose(wanted, cdi_folder=CDI_FOLDER, kubelet=None, configs=[config])
    assert choice == Choice(wanted, "driver.injection says so")


def test_a_broken_configuration_is_told(config: Path) -> None:
    config.write_text("not [toml")
    with pytest.raises(PluginError, match=r"cannot read containerd's configuration .*config.toml: .*line 1"):
        auto(config)
