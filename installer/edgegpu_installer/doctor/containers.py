"""Checks of the way of a card into a container: containerd's configuration, the CDI spec, device links."""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from edgegpu_installer.doctor.sight import Containerd, Sight, Unseen
from edgegpu_installer.doctor.verdict import Trouble, Verdict, broken, judge, skipped, warning

_NO_CARDS = "this machine has no cards to share (role extender-only)"
_RESTART_PLUGIN = "sudo systemctl restart edgegpu-plugin"
_RUNTIME_CLASS = "/apis/node.k8s.io/v1/runtimeclasses/nvidia"
_NOT_FOUND = 404


def look_runtime(sight: Sight) -> Verdict:
    """Look at containerd's configuration: CDI where cards go that way, else the nvidia runtime and its class."""
    if not sight.settings.has_plugin:
        return skipped(_NO_CARDS)
    containerd = sight.containerd
    try:
        injection: Mapping[str, Any] = sight.status.get("injection") or {}
    except Unseen:
        injection = {}
    mode = str(injection.get("mode") or "cdi")
    details = [f"injection {mode}: {injection.get('why', 'the plugin was not asked')}"]
    if containerd is None:
        return judge(
            [
                warning(
                    "no configuration of containerd was found",
                    "set driver.containerd_config in /etc/edgegpu/plugin.yaml",
                )
            ],
            well="",
            details=details,
        )
    details += [f"{containerd.path}, cgroups by {'systemd' if containerd.systemd_cgroups else 'cgroupfs'}"]
    troubles = list(_cdi_troubles(sight, containerd) if mode == "cdi" else _runtime_troubles(sight, containerd))
    if containerd.default_runtime == "nvidia" and mode == "cdi":
        troubles.append(
            warning(
                "containerd's default runtime is nvidia: an image with NVIDIA_VISIBLE_DEVICES=all brings every card to "
                "a pod that asked for none",
                "remove default-runtime from /etc/rancher/k3s/config.yaml and config.yaml.d, then restart k3s",
            )
        )
    return judge(troubles, well="CDI is on" if mode == "cdi" else "the nvidia runtime is there", details=details)


def _cdi_troubles(sight: Sight, containerd: Containerd) -> Iterator[Trouble]:
    folder = str(sight.settings.cdi_file.parent)
    if not containerd.cdi:
        yield broken(f"{containerd.path} has CDI off", "upgrade k3s to 1.29 or later, or set driver.injection: runtime")
    elif _plain(folder) not in {_plain(known) for known in containerd.cdi_folders}:
        known = ", ".join(containerd.cdi_folders)
        yield broken(f"containerd reads CDI specs from {known} and not from {folder}", "set driver.cdi_folder")


def _runtime_troubles(sight: Sight, containerd: Containerd) -> Iterator[Trouble]:
    if not containerd.nvidia_runtime:
        yield broken(
            "containerd knows no nvidia runtime, and cards come by it here",
            "sudo apt-get install nvidia-container-toolkit && sudo systemctl restart --no-block k3s",
        )
    if containerd.default_runtime == "nvidia":
        return
    try:
        missing = sight.object(_RUNTIME_CLASS).status == _NOT_FOUND
    except Unseen:
        return
    if missing:
        yield broken(
            "there is no RuntimeClass nvidia, which pods name to get a card here",
            "printf 'apiVersion: node.k8s.io/v1\\nkind: RuntimeClass\\nmetadata: {name: nvidia}\\nhandler: nvidia\\n' "
            "| sudo k3s kubectl apply -f -",
        )


def look_cdi(sight: Sight) -> Verdict:
    """Look at the CDI spec: is it there, are its files, has it the cards that are offered."""
    if not sight.settings.has_plugin:
        return skipped(_NO_CARDS)
    path = sight.settings.cdi_file
    text = sight.text(path)
    try:
        status = sight.status
    except Unseen:
        status = {}
    if text is None:
        if (status.get("injection") or {}).get("mode") == "runtime":
            return skipped("cards come by the nvidia runtime here")
        return judge(
            [
                broken(
                    f"there is no CDI spec {path}",
                    f"{_RESTART_PLUGIN}  # writes it; see the check `driver`",
                )
            ],
            well="",
        )
    try:
        spec = json.loads(text)
        missing = [name for name in _host_paths(spec) if not os.path.lexists(sight.at(name))]
        devices = {str(device["name"]) for device in spec["devices"]}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return judge([broken(f"{path} is no CDI spec: {error}", f"sudo rm {path}; {_RESTART_PLUGIN}")], well="")
    troubles = [
        broken(f"the CDI spec names {name}, which is not there: containers do not start", _RESTART_PLUGIN)
        for name in missing
    ]
    troubles += [
        broken(f"the CDI spec lacks card {card.get('index')} ({card.get('uuid')})", _RESTART_PLUGIN)
        for card in status.get("cards") or ()
        if str(card.get("uuid", "")).replace("/", "_") not in devices
    ]
    troubles += _doubles(sight, str(spec.get("kind", "")))
    return judge(troubles, well=f"{len(devices)} cards, all files are there", details=[str(path)])


def _doubles(sight: Sight, kind: str) -> Iterator[Trouble]:
    """Find other specs of our kind: where two name a device, containerd takes neither."""
    own = sight.settings.cdi_file
    for folder in ("/etc/cdi", str(own.parent)):
        for name in sight.names(folder):
            if (
                name != own.name
                and name.endswith((".json", ".yaml"))
                and kind in (sight.text(f"{folder}/{name}") or "")
            ):
                yield broken(
                    f"{folder}/{name} names devices of {kind} too, and containerd takes neither",
                    f"sudo rm {folder}/{name}",
                )


def _host_paths(spec: Mapping[str, Any]) -> list[str]:
    """Return the paths of this machine that a spec names, each once."""
    edits = [spec.get("containerEdits") or {}, *(device.get("containerEdits") or {} for device in spec["devices"])]
    nodes = [node.get("hostPath") or node["path"] for edit in edits for node in edit.get("deviceNodes") or ()]
    mounts = [mount["hostPath"] for edit in edits for mount in edit.get("mounts") or ()]
    return list(dict.fromkeys(map(str, [*nodes, *mounts])))


def look_cgroups(sight: Sight) -> Verdict:
    """Look for the links in /dev/char by which systemd finds the cards' devices at a daemon-reload."""
    if not sight.settings.has_plugin:
        return skipped(_NO_CARDS)
    folder = sight.settings.driver_root / "dev"
    nodes = [*sight.devices(folder, "nvidia*"), *sight.devices(folder, "nvidia-caps/*")]
    if not nodes:
        return skipped(f"there are no device nodes of cards below {folder} (see the check `driver`)")
    missing = []
    for node in nodes:
        number = node.stat().st_rdev
        link = f"{os.major(number)}:{os.minor(number)}"
        if not os.path.lexists(sight.at(f"/dev/char/{link}")):
            missing.append(f"/dev/char/{link} for {folder / node.relative_to(sight.at(folder))}")
    driver = "systemd" if (found := sight.containerd) is not None and found.systemd_cgroups else "cgroupfs"
    troubles = []
    if missing:
        level = broken if driver == "systemd" else warning
        text = f"{len(missing)} links in /dev/char are missing: a daemon-reload takes cards from running containers"
        troubles.append(level(text, f"{_RESTART_PLUGIN}  # makes them; until then no daemon-reload"))
    return judge(troubles, well=f"cgroups by {driver}, {len(nodes)} device nodes have their links", details=missing)


def _plain(folder: str) -> str:
    """/var/run has been a link to /run for long."""
    whole = folder.rstrip("/")
    return whole.removeprefix("/var") if whole == "/var/run" or whole.startswith("/var/run/") else whole
