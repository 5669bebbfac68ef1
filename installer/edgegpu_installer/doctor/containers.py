"""Checks of how a card comes into a container: containerd's configuration, the CDI spec, device links."""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from edgegpu_core import injection
from edgegpu_core.injection import ContainerdSupport, NodeVersions
from edgegpu_installer.doctor.probe import BoxProbe, SkippedCheck
from edgegpu_installer.doctor.units import restart_k3s
from edgegpu_installer.doctor.verdict import CheckProblem, CheckResult, broken, result_of, skipped, warning
from edgegpu_installer.machine.node import PodContainer

_NO_CARDS = "this machine has no cards to share (role extender-only)"
_RESTART_PLUGIN = "sudo systemctl restart edgegpu-plugin"
_AUTO = f"take driver.injection out of /etc/edgegpu/plugin.yaml; {_RESTART_PLUGIN}"
_RUNTIME_CLASS = "/apis/node.k8s.io/v1/runtimeclasses/nvidia"
_NOT_FOUND = 404
_NO_HOOK = "the CDI spec has no hook for loader caches: Triton, and others that ask ldconfig, do not find the driver"
_HOOK_REMEDY = f"{_RESTART_PLUGIN}; sudo journalctl -u edgegpu-plugin -n 50  # says what lacks"
_CONFIG = "/etc/containerd/config.toml"
_WELL = {
    "cdi": "CDI is on",
    "runtime": "the nvidia runtime is there",
    "devices": "kubelet's own answer brings device nodes and files",
}


def check_runtime(probe: BoxProbe) -> CheckResult:
    """Check what containerd says, running or by its files: CDI where cards come by it, else the nvidia runtime."""
    if not probe.settings.has_plugin:
        return skipped(_NO_CARDS)
    containerd = probe.containerd
    said: Mapping[str, Any] = probe.known_status.get("injection") or {}
    mode = str(said.get("mode") or "cdi")
    details = [f"injection {mode}: {said.get('why', 'the plugin was not asked')}"]
    versions = _versions(probe)
    if versions.has_other_runtime:
        return result_of([_other_runtime(versions, said.get("mode")), *_cardless(probe)], details=details)
    if containerd is None:
        remedy = "set driver.containerd_config in /etc/edgegpu/plugin.yaml"
        return result_of([warning("no configuration of containerd was found", remedy)], details=details)
    details += [f"{containerd.witness}, cgroups by {'systemd' if containerd.systemd_cgroups else 'cgroupfs'}"]
    details += [f"kubelet {versions.kubelet or 'of an unknown version'}, {versions.runtime or 'an unknown runtime'}"]
    problems = [*_cardless(probe), *_unrecorded(probe)]
    match mode:
        case "cdi":
            problems += _cdi_troubles(probe, containerd, versions)
        case "runtime":
            problems += _runtime_troubles(probe, containerd)
    if containerd.default_runtime == "nvidia" and mode != "runtime":
        problems.append(
            warning(
                "containerd's default runtime is nvidia: an image with NVIDIA_VISIBLE_DEVICES=all brings every card to "
                "a pod that asked for none",
                "remove default-runtime from /etc/rancher/k3s/config.yaml and config.yaml.d, then restart k3s",
            )
        )
    return result_of(problems, ok=_WELL.get(mode, mode), details=details)


def _other_runtime(versions: NodeVersions, mode: object) -> CheckProblem:
    problem = injection.cdi_problem(None, versions=versions)
    if problem and mode == "cdi":
        return _without_cards(problem)
    text = f"the container runtime is {versions.runtime}, and edgegpu is tested with containerd alone"
    specs = "" if problem else "see that it reads CDI specs from /var/run/cdi; "
    return warning(text, f"{specs}a pod's `nvidia-smi -L` shows its card")


def _without_cards(problem: str) -> CheckProblem:
    return broken(f"{problem}: containers start without their cards", f"{_AUTO}; then delete the pods")


def _cdi_troubles(probe: BoxProbe, containerd: ContainerdSupport, versions: NodeVersions) -> Iterator[CheckProblem]:
    """Yield what keeps CDI from working, by the rule that the plugin and the installer use too."""
    folder = str(probe.settings.cdi_file.parent)
    problem = injection.cdi_problem(containerd, versions=versions, cdi_folder=folder)
    if not injection.passes_cdi(versions.kubelet):
        yield _without_cards(problem)
    elif not containerd.has_cdi(versions):
        yield broken(problem, f"{_cdi_remedy(probe, containerd)}; or {_AUTO}")
    elif problem:
        yield broken(problem, f"set driver.cdi_folder in /etc/edgegpu/plugin.yaml to one of them; {_RESTART_PLUGIN}")


def _cdi_remedy(probe: BoxProbe, containerd: ContainerdSupport) -> str:
    template = f"the template of {containerd.path or _CONFIG} (*.toml.tmpl beside it) and what it imports"
    if containerd.asked and containerd.cdi_folders:  # it does not say whether a file turns CDI off, or none turns it on
        return f"set enable_cdi = true in {template}; {restart_k3s(probe)}"
    if containerd.enable_cdi is False and not containerd.asked:
        return f"take enable_cdi = false out of {template}; {restart_k3s(probe)}"
    return "upgrade k3s to 1.29 or later"


def _versions(probe: BoxProbe) -> NodeVersions:
    """Return the versions in the Node object, else k3s's program's for kubelet; empty where they are not known."""
    try:
        versions = NodeVersions.of(probe.node)
    except SkippedCheck:
        versions = NodeVersions()
    return versions.or_kubelet(probe.k3s.version if probe.k3s is not None else "")


def _cardless(probe: BoxProbe) -> Iterator[CheckProblem]:
    """Yield the containers that run without the card which kubelet gave them, as the plugin reports."""
    for row in probe.known_status.get("pods") or ():
        if row.get("state") == "cardless":
            name = f"{row.get('namespace')}/{row.get('pod')}"
            yield broken(
                f"pod {name}, container {row.get('container')}: {row.get('reason')}",
                f"put that right, then sudo k3s kubectl delete pod -n {row.get('namespace')} {row.get('pod')}",
            )


def _unrecorded(probe: BoxProbe) -> Iterator[CheckProblem]:
    """Yield the containers that run, and of whose devices kubelet has no record, as the plugin reports."""
    for row in probe.known_status.get("pods") or ():
        if row.get("state") == "unrecorded":
            name = f"{row.get('namespace')}/{row.get('pod')}"
            yield warning(
                f"pod {name}: {row.get('reason')}",
                f"sudo k3s kubectl delete pod -n {row.get('namespace')} {row.get('pod')}, when it may stop",
            )


def _runtime_troubles(probe: BoxProbe, containerd: ContainerdSupport) -> Iterator[CheckProblem]:
    if not containerd.nvidia_runtime:
        yield broken(
            "containerd knows no nvidia runtime, and cards come by it here",
            f"sudo apt-get install nvidia-container-toolkit && {restart_k3s(probe)}",
        )
    if containerd.default_runtime == "nvidia":
        return
    try:
        missing = probe.object(_RUNTIME_CLASS).status == _NOT_FOUND
    except SkippedCheck:
        return
    if missing:
        yield broken(
            "there is no RuntimeClass nvidia, which pods name to get a card here",
            "printf 'apiVersion: node.k8s.io/v1\\nkind: RuntimeClass\\nmetadata: {name: nvidia}\\nhandler: nvidia\\n' "
            "| sudo k3s kubectl apply -f -",
        )


def check_visible(probe: BoxProbe) -> CheckResult:
    """Find containers of the nvidia runtime that see cards which they were not given."""
    settings, node = probe.settings, probe.facts.node
    if not settings.has_plugin:
        return skipped(_NO_CARDS)
    if node is None or node.why:
        return skipped(f"the node's pods were not seen: {node.why if node else 'there is no k3s'}")
    try:
        containerd = probe.containerd
    except SkippedCheck:
        containerd = None
    by_default = containerd is not None and containerd.default_runtime == "nvidia"
    own = {settings.memory_resource, settings.core_resource}
    problems = [
        warning(
            f"pod {pod.namespace}/{pod.name}, container {container.name}: {why}",
            "let it ask for a share, or set NVIDIA_VISIBLE_DEVICES: void; examples/deny-all-cards.yaml denies that",
        )
        for pod in node.pods
        if not pod.over
        for container in pod.containers
        if "nvidia" in pod.runtime_class or (by_default and container.visible)
        if (why := _sees_more(container, shares=bool(own & container.requests)))
    ]
    return result_of(problems, ok="no container sees cards by the nvidia runtime that it was not given")


def _sees_more(container: PodContainer, *, shares: bool) -> str:
    """Return why a container of the nvidia runtime sees more cards than it was given; empty if it does not."""
    if container.visible in {"void", "none"}:
        return ""
    if container.visible:
        given = "past its share" if shares else "without a share"
        return f"it sees the cards NVIDIA_VISIBLE_DEVICES={container.visible} {given}"
    if not shares:
        return "it has no share, and sees every card if its image says NVIDIA_VISIBLE_DEVICES=all"
    return ""


def check_cdi(probe: BoxProbe) -> CheckResult:
    """Check that the CDI spec exists, that its files exist, and that it has the cards which are offered."""
    if not probe.settings.has_plugin:
        return skipped(_NO_CARDS)
    path = probe.settings.cdi_file
    text, status = probe.text(path), probe.known_status
    if text is None:
        if (status.get("injection") or {}).get("mode") == "runtime":
            return skipped("cards come by the nvidia runtime here")
        remedy = f"{_RESTART_PLUGIN}  # writes it; see the check `driver`"
        return result_of([broken(f"there is no CDI spec {path}", remedy)])
    try:
        spec = json.loads(text)
        missing = [name for name in _host_paths(spec) if not os.path.lexists(probe.at(name))]
        devices = {str(device["name"]) for device in spec["devices"]}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return result_of([broken(f"{path} is no CDI spec: {error}", f"sudo rm {path}; {_RESTART_PLUGIN}")])
    problems = [
        broken(f"the CDI spec names {name}, which is not there: containers do not start", _RESTART_PLUGIN)
        for name in missing
    ]
    problems += [
        broken(f"the CDI spec lacks card {card.get('index')} ({card.get('uuid')})", _RESTART_PLUGIN)
        for card in status.get("cards") or ()
        if str(card.get("uuid", "")).replace("/", "_") not in devices
    ]
    problems += _doubles(probe, str(spec.get("kind", "")))
    if not _hooks(spec):
        problems.append(warning(_NO_HOOK, _HOOK_REMEDY))
    return result_of(problems, ok=f"{len(devices)} cards, all files are there", details=[str(path)])


def _doubles(probe: BoxProbe, kind: str) -> Iterator[CheckProblem]:
    """Yield other CDI specs of our kind: when two specs name a device, containerd takes neither."""
    own = probe.settings.cdi_file
    for folder in ("/etc/cdi", str(own.parent)):
        for name in probe.names(folder):
            if (
                name != own.name
                and name.endswith((".json", ".yaml"))
                and kind in (probe.text(f"{folder}/{name}") or "")
            ):
                yield broken(
                    f"{folder}/{name} names devices of {kind} too, and containerd takes neither",
                    f"sudo rm {folder}/{name}",
                )


def _host_paths(spec: Mapping[str, Any]) -> list[str]:
    """Return the host paths that a CDI spec names, each once."""
    edits = [spec.get("containerEdits") or {}, *(device.get("containerEdits") or {} for device in spec["devices"])]
    nodes = [node.get("hostPath") or node["path"] for edit in edits for node in edit.get("deviceNodes") or ()]
    mounts = [mount["hostPath"] for edit in edits for mount in edit.get("mounts") or ()]
    return list(dict.fromkeys(map(str, [*nodes, *mounts, *(hook["path"] for hook in _hooks(spec))])))


def _hooks(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the hooks of all containers that a CDI spec brings a card into."""
    return list((spec.get("containerEdits") or {}).get("hooks") or ())


def check_cgroups(probe: BoxProbe) -> CheckResult:
    """Check the links in /dev/char by which systemd before 240 finds the cards' devices at a daemon-reload.

    runc before 1.1.7 tells systemd of no device without such a link (runc's issue 3671 and pull request 3845).
    """
    if not probe.settings.has_plugin:
        return skipped(_NO_CARDS)
    folder = probe.settings.driver_root / "dev"
    nodes = [*probe.devices(folder, "nvidia*"), *probe.devices(folder, "nvidia-caps/*")]
    if not nodes:
        return skipped(f"there are no device nodes of cards below {folder} (see the check `driver`)")
    missing = []
    for node in nodes:
        number = node.stat().st_rdev
        link = f"{os.major(number)}:{os.minor(number)}"
        if not os.path.lexists(probe.at(f"/dev/char/{link}")):
            missing.append(f"/dev/char/{link} for {folder / node.relative_to(probe.at(folder))}")
    driver = "systemd" if (found := probe.containerd) is not None and found.systemd_cgroups else "cgroupfs"
    problems = []
    if missing:
        links = f"{len(missing)} links in /dev/char are missing"
        harm = "with runc before 1.1.7 or systemd before 240, a daemon-reload takes cards from running containers"
        problems.append(warning(f"{links}: {harm}", f"{_RESTART_PLUGIN}  # makes them; until then no daemon-reload"))
    return result_of(problems, ok=f"cgroups by {driver}, {len(nodes)} device nodes have their links", details=missing)
