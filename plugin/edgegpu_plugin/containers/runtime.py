"""Reader of containerd's configuration, by which the injection mode is chosen."""

from collections.abc import Sequence
from pathlib import Path

from edgegpu_base import containerd
from edgegpu_base.containerd import ContainerdConfigError, read_config
from edgegpu_core import injection
from edgegpu_core.injection import ContainerdSupport, Injection, InjectionChoice, NodeVersions
from edgegpu_plugin.errors import PluginError

CONTAINERD_CONFIGS = tuple(map(Path, containerd.CONTAINERD_CONFIGS))


def choose(
    wanted: Injection, *, cdi_folder: Path, versions: NodeVersions, configs: Sequence[Path] = CONTAINERD_CONFIGS
) -> InjectionChoice:
    """Choose how cards come into containers, by containerd's version and its configuration.

    Args:
        wanted: the configuration's `driver.injection`.
        cdi_folder: the folder of our spec.
        versions: kubelet's and containerd's, as far as they are known.
        configs: paths of containerd's configuration; the first that exists counts.

    Raises:
        PluginError: the choice depends on containerd's configuration, which cannot be read.
    """
    support = None if wanted is not Injection.AUTO or versions.has_other_runtime else read_containerd(configs)
    return injection.choose(wanted, versions=versions, containerd=support, cdi_folder=str(cdi_folder))


def read_containerd(configs: Sequence[Path]) -> ContainerdSupport | None:
    """Read the first configuration of containerd that exists; None when there is none.

    Raises:
        PluginError: the configuration cannot be read.
    """
    path = next((path for path in configs if path.is_file()), None)
    if path is None:
        return None
    try:
        return ContainerdSupport.of(str(path), read_config(path))
    except ContainerdConfigError as error:
        raise PluginError(f"{error}; set driver.injection to cdi, devices or runtime") from error
