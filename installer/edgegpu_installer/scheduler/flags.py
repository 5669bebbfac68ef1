"""What a scheduler's file has to repeat of the scheduler's flags: with --config it passes over those; pure."""

from collections.abc import Mapping

from edgegpu_installer.errors import InstallError

_CLIENT: tuple[tuple[str, str, type[str] | type[float] | type[int]], ...] = (
    ("kube-api-content-type", "contentType", str),
    ("kube-api-qps", "qps", float),
    ("kube-api-burst", "burst", int),
)
_SWITCHES = (("profiling", "enableProfiling"), ("contention-profiling", "enableContentionProfiling"))
_TRUE = frozenset({"true", "t", "1"})


def settings(flags: Mapping[str, str], *, kubeconfig: str) -> dict[str, object]:
    """Return the keys of a KubeSchedulerConfiguration that keep what these flags said until a file silenced them.

    Which ones a file silences: ApplyTo and ApplyDeprecated in Kubernetes' cmd/kube-scheduler/app/options. Those of the
    leader election and all that is no part of a file (addresses, certificates, feature gates, logs) go on counting.

    Args:
        flags: each flag's value, without the dashes.
        kubeconfig: the scheduler's own; what --kubeconfig said is for the caller to know.

    Raises:
        InstallError: a figure is no number.
    """
    client: dict[str, object] = {"kubeconfig": kubeconfig}
    for flag, key, kind in _CLIENT:
        if flag in flags:
            client[key] = _figure(flag, flags[flag], kind)
    switches = {key: flags[flag].lower() in _TRUE for flag, key in _SWITCHES if flag in flags}
    return {"clientConnection": client, **switches}


def _figure(flag: str, value: str, kind: type[str] | type[float] | type[int]) -> object:
    try:
        return kind(value)
    except ValueError as error:
        raise InstallError(
            f"cannot keep the scheduler's --{flag}={value}: it is no number",
            f"put --{flag} right where the scheduler gets its arguments, then install again",
        ) from error
