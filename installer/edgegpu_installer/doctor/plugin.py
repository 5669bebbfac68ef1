"""Checks of the plugin: its service, its configuration, and what it has registered with kubelet."""

from collections.abc import Iterator, Mapping
from typing import Any

from edgegpu_installer.doctor.sight import Sight, Unseen
from edgegpu_installer.doctor.units import Unit, last_words, unit
from edgegpu_installer.doctor.verdict import Trouble, Verdict, broken, info, judge, skipped, warning

SERVICE = "edgegpu-plugin"
_LOG = f"sudo journalctl -u {SERVICE} -e"
_START = f"sudo systemctl restart {SERVICE}"
_OURS = "edgegpu"
_FOREIGN_SOCKETS = ("nvidia", "gpu", "vcuda", "vcore", "vmemory", "hami", "cuda")
_FOREIGN_RESOURCES = ("nvidia.com/", "aliyun.com/gpu", "tencent.com/vcuda", "volcano.sh/vgpu", "hami.io/")
_FOREIGN_CAPACITY = "gpu"


def look_plugin(sight: Sight) -> Verdict:
    """Look at the service, its configuration and what it says of itself."""
    service = unit(sight, SERVICE)
    if not service.there:
        return judge(
            [broken("edgegpu is not installed: there is no edgegpu-plugin.service", "sudo edgegpu install")], well=""
        )
    troubles: list[Trouble] = []
    details: list[str] = []
    if sight.settings.problem:
        troubles.append(broken(sight.settings.problem, "edgegpu config check; then " + _START))
    troubles += _service_troubles(service)
    try:
        status = sight.status
    except Unseen as unseen:
        troubles.append(broken(unseen.shut.text, unseen.shut.remedy or _LOG))
        details += last_words(sight, SERVICE)
    else:
        details.append(f"edgegpu-plugin {status.get('version', '')}, role {status.get('role', '')}")
        troubles += _status_troubles(status)
    return judge(troubles, well=f"runs as {'server' if sight.settings.has_extender else 'agent'}", details=details)


def _service_troubles(service: Unit) -> Iterator[Trouble]:
    if not service.runs:
        yield broken(f"{SERVICE} is {service.active} ({service.sub}, {service.result})", f"{_START}; {_LOG}")
    if service.enabled not in {"enabled", "enabled-runtime"}:
        yield broken(f"{SERVICE} does not start with the machine", f"sudo systemctl enable {SERVICE}")
    if service.stale:
        yield warning(f"{SERVICE}'s unit file changed after systemd read it", "sudo edgegpu install")
    if service.runs and service.restarts:
        yield warning(f"{SERVICE} was started again {service.restarts} times since it was last started by hand", _LOG)


def _status_troubles(status: Mapping[str, Any]) -> Iterator[Trouble]:
    problem = (status.get("driver") or {}).get("problem")
    if problem:
        yield broken(f"the plugin: {problem}", "see the check `driver`")
    api = status.get("api") or {}
    if api.get("problem") or api.get("synced") is False:
        text = api.get("problem") or "not in step with the API server yet"
        yield warning(f"the plugin and the API server: {text}", "see the check `kubeconfig`")
    refused = [row for row in status.get("pods") or () if row.get("state") == "refused"]
    for row in refused:
        yield warning(f"pod {row.get('namespace')}/{row.get('pod')} is refused: {row.get('reason')}", "edgegpu pods")


def look_resources(sight: Sight) -> Verdict:
    """Compare what the plugin registered with what kubelet offers in the Node object."""
    settings = sight.settings
    if not settings.has_plugin:
        return skipped("this machine offers no cards (role extender-only)")
    status = sight.status
    troubles = list(_registration(status))
    names = (settings.memory_resource, settings.core_resource)
    healthy = [card for card in status.get("cards") or () if card.get("healthy", True)]
    wanted = (sum(int(card.get("units", 0)) for card in healthy), 100 * len(healthy))
    try:
        allocatable = (sight.node.get("status") or {}).get("allocatable") or {}
    except Unseen as unseen:
        if troubles:
            return judge(troubles, well="")
        return skipped(f"registered; the Node object was not seen: {unseen.shut.text} (see the check `kubeconfig`)")
    details = [f"{name} {allocatable.get(name, 'not there')}" for name in names]
    for name, number in zip(names, wanted, strict=True):
        troubles += _offer(name, str(allocatable.get(name, "")), number)
    return judge(troubles, well=", ".join(details), details=details)


def _registration(status: Mapping[str, Any]) -> Iterator[Trouble]:
    kubelet = status.get("kubelet") or {}
    if not kubelet.get("registered"):
        yield broken(
            f"the plugin is not registered with kubelet: waiting for {kubelet.get('waiting_for') or 'kubelet'}",
            "sudo systemctl status k3s k3s-agent; is kubelet.folder in /etc/edgegpu/plugin.yaml kubelet's --root-dir?",
        )
    if kubelet.get("checkpoint"):
        yield broken(f"kubelet's book cannot be read: {kubelet['checkpoint']}", "sudo systemctl restart k3s")


def _offer(name: str, offered: str, wanted: int) -> Iterator[Trouble]:
    if offered in {"", "0"} and wanted:
        yield broken(
            f"the node offers no {name}, the plugin {wanted}", "wait 15 s after a start of k3s; then " + _START
        )
    elif offered not in {"", str(wanted)}:
        yield warning(f"the node offers {offered} {name}, the plugin {wanted}", "wait 15 s; then " + _START)


def look_double(sight: Sight) -> Verdict:
    """Look for other device plugins: their sockets with kubelet, and their resources in the Node object."""
    folder = sight.settings.kubelet_folder / "device-plugins"
    others = [name for name in sight.names(folder) if name.endswith(".sock") and name != "kubelet.sock"]
    foreign = [name for name in others if any(word in name.lower() for word in _FOREIGN_SOCKETS)]
    troubles = [
        warning(
            f"another GPU device plugin has a socket: {folder / name}", "kubectl get daemonsets -A; remove that plugin"
        )
        for name in foreign
    ]
    details = [f"other plugins: {', '.join(sorted(set(others) - set(foreign)))}"] if set(others) - set(foreign) else []
    try:
        capacity = (sight.node.get("status") or {}).get("capacity") or {}
    except Unseen as unseen:
        details.append(f"the node's capacity was not seen: {unseen.shut.text}")
        capacity = {}
    own = {sight.settings.memory_resource, sight.settings.core_resource}
    for name, amount in capacity.items():
        if name not in own and is_foreign(name) and str(amount) != "0":
            troubles.append(
                broken(
                    f"another plugin offers {name} ({amount}): the same cards are handed out twice",
                    "kubectl get daemonsets -A | grep -iE 'nvidia|hami|gpu'; remove that plugin, then restart k3s",
                )
            )
    return judge(troubles, well="no other GPU plugin", details=details)


def is_foreign(resource: str) -> bool:
    """Say whether a resource's name is one that other GPU plugins use."""
    return resource.startswith(_FOREIGN_RESOURCES) or _FOREIGN_CAPACITY in resource.rpartition("/")[2].lower()


def look_limiter(sight: Sight) -> Verdict:
    """Say what containers are held to."""
    if not sight.settings.has_plugin:
        return skipped("this machine has no cards to share (role extender-only)")
    preload = (sight.text("/etc/ld.so.preload") or "").split()
    strange = [path for path in preload if any(word in path for word in ("vgpu", "cuda", "hami", "nvshare"))]
    if strange:
        return judge(
            [warning(f"/etc/ld.so.preload of this machine loads {', '.join(strange)}", "sudoedit /etc/ld.so.preload")],
            well="",
        )
    return info("the limiter is not part of this version: shares are placed, not enforced (isolation none)")
