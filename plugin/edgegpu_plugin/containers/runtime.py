"""What containerd can do, by which the injection mode is chosen: the running one is asked, then its files are read."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from edgegpu_base import containerd
from edgegpu_base.containerd import ContainerdConfigError, read_config, socket_of
from edgegpu_core import injection
from edgegpu_core.injection import ContainerdSupport, Injection, InjectionChoice, NodeVersions
from edgegpu_plugin.errors import PluginError
from edgegpu_plugin.pb.container_runtime import ContainerRuntimeCaller, RuntimeCallError

_LOG = logging.getLogger(__name__)

CONTAINERD_CONFIGS = tuple(map(Path, containerd.CONTAINERD_CONFIGS))

_ANSWER_S = 1.0
_MOST_BYTES = 4 << 20


def choose(
    wanted: Injection,
    *,
    cdi_folder: Path,
    versions: NodeVersions,
    configs: Sequence[Path] = CONTAINERD_CONFIGS,
    root: Path = Path("/"),
) -> InjectionChoice:
    """Choose how cards come into containers, by what containerd says, else by its version and its configuration.

    Args:
        wanted: the configuration's `driver.injection`.
        cdi_folder: the folder of our spec.
        versions: kubelet's and containerd's, as far as they are known.
        configs: paths of containerd's configuration; the first that exists counts.
        root: the root of the sockets' paths.

    Raises:
        PluginError: the choice depends on containerd's configuration, which cannot be read.
    """
    is_asked = wanted is Injection.AUTO and not versions.has_other_runtime
    support = read_containerd(configs, root=root) if is_asked else None
    return injection.choose(wanted, versions=versions, containerd=support, cdi_folder=str(cdi_folder))


def read_containerd(configs: Sequence[Path], *, root: Path = Path("/")) -> ContainerdSupport | None:
    """Return what containerd says: the running one, else the first configuration that exists; None without either.

    The running one is the first witness: how a file of an older version, drop-ins and defaults come together differs
    from version to version. containerd 2.1 leaves a version 2 file's runtimes out beside a drop-in of version 3.

    Args:
        configs: paths of the configuration; the first that exists counts, and says where its containerd listens.
        root: the root of the sockets' paths.

    Raises:
        PluginError: containerd does not answer, and its configuration cannot be read.
    """
    path = next((path for path in configs if path.is_file()), None)
    answer = _ask(path, root)
    if answer is not None or path is None:
        return answer
    try:
        return ContainerdSupport.of(str(path), read_config(path))
    except ContainerdConfigError as error:
        raise PluginError(f"{error}; set driver.injection to cdi, devices or runtime") from error


def _ask(config: Path | None, root: Path) -> ContainerdSupport | None:
    """Return what the running containerd of a configuration says; None where it is silent."""
    name = socket_of(config)
    socket = root / name.lstrip("/")
    if not socket.exists():
        return None
    caller = ContainerRuntimeCaller(str(socket), most_bytes=_MOST_BYTES)
    try:
        answer = json.loads(caller.information(timeout_s=_ANSWER_S).get("config") or "null")
    except (RuntimeCallError, ValueError, RecursionError) as error:
        _LOG.info("containerd says nothing of its configuration on %s, and its files are read: %s", name, error)
        return None
    finally:
        caller.close()
    if not isinstance(answer, dict):
        return None
    return ContainerdSupport.of_answer(answer, path="" if config is None else str(config), socket=name)
