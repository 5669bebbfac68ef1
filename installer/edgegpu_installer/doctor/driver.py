"""Checks of the NVIDIA driver and of the cards that it shows."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from edgegpu_base.driver_libraries import FIRST_DRIVER, MISSING_REMEDY, missing_text
from edgegpu_installer.doctor.probe import BoxProbe, SkippedCheck
from edgegpu_installer.doctor.verdict import CheckProblem, CheckResult, broken, result_of, skipped, warning
from edgegpu_installer.machine.cards import card_drivers, missing_below, module_trouble
from edgegpu_installer.machine.programs import NOT_FOUND, ProgramResult

_SMI_S = 30.0
"""Without the persistence daemon the driver wakes each card for every caller, up to seconds a card."""

_KERNEL = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+\.\d+(?:\.\d+)?)")
_SUFFIX = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)?)$")
_LIBRARY = "libnvidia-ml.so.1"
_NO_CARDS = "this machine has no cards to share (role extender-only)"
_LOOK = "sudo dmesg | grep -iE 'nvrm|nvidia'"
_NO_NOUVEAU = "echo blacklist nouveau | sudo tee /etc/modprobe.d/nouveau.conf"
_NOT_LOADED = 9
"""nvidia-smi's status without the kernel module (NVML_ERROR_DRIVER_NOT_LOADED); branches 390 to 550 all end with it."""


def check_versions(probe: BoxProbe) -> CheckResult:
    """Compare the versions of the kernel module, the library and nvidia-smi."""
    if not probe.settings.has_plugin:
        return skipped(_NO_CARDS)
    module, library = _module(probe), _library(probe)
    smi = _smi(probe, "driver_version")
    told = smi.out.splitlines()[0].strip() if smi.well and smi.out.strip() else ""
    details = [f"{name} {version or 'not seen'}" for name, version in _named(module, library, told)]
    problems = list(_version_troubles(probe, module=module, library=library, smi=smi, told=told))
    return result_of(problems, ok=f"{told or module} everywhere", details=details)


def check_cards(probe: BoxProbe) -> CheckResult:
    """Compare the cards on the bus, those that the driver shows, those excluded and those offered."""
    settings = probe.settings
    if not settings.has_plugin:
        return skipped(_NO_CARDS)
    smi = _smi(probe, "index", "uuid", "pci.bus_id", "mig.mode.current")
    lost = list(_lost_troubles(probe))
    if not smi.well and lost:
        return result_of(lost)
    seen = [_seen(line) for line in smi.out.splitlines() if line.count(",") >= _COMMAS]
    if not smi.well and not seen:  # with one card that does not initialise it lists the others, and fails
        return skipped(f"not looked at: nvidia-smi gives no list: {smi.words} (see the check `driver`)")
    try:
        offered = [_offered(card) for card in probe.status.get("cards") or ()]
    except SkippedCheck as unseen:  # report what is known without the plugin
        return _without_plugin(seen, unseen)
    problems = [*lost, *_bus_troubles(probe, seen), *_exclusions(settings.exclude, seen, offered)]
    problems += _offer_troubles(seen, offered, settings.exclude)
    excluded = [card for card in seen if _is_excluded(card, settings.exclude)]
    text = f"{len(seen)} seen, {len(excluded)} excluded, {len(offered)} offered"
    return result_of(problems, ok=text, details=[f"card {card.index} {card.uuid} {card.bus}" for card in seen])


@dataclass(frozen=True, slots=True)
class _Seen:
    """A card as nvidia-smi lists it."""

    index: str
    uuid: str
    bus: str
    mig: bool


@dataclass(frozen=True, slots=True)
class _Offered:
    """A card or MIG device as the plugin offers it."""

    index: str
    uuid: str
    healthy: bool
    problem: str = ""
    watched: bool = True


_COMMAS = 3


def _named(module: str, library: str, smi: str) -> tuple[tuple[str, str], ...]:
    return ("kernel module", module), ("library", library), ("nvidia-smi", smi)


def _version_troubles(
    probe: BoxProbe, *, module: str, library: str, smi: ProgramResult, told: str
) -> Iterator[CheckProblem]:
    if not module and not library and not told:
        yield _no_driver(probe)
        return
    unloaded = not module and not told
    if smi.status is None:
        yield broken(f"nvidia-smi does not answer within {_SMI_S:g} s: the driver or a card hangs", _LOOK)
    elif smi.status == NOT_FOUND:
        yield warning(
            "nvidia-smi is not installed",
            "sudo apt-get install nvidia-smi  # or nvidia-utils-VERSION",
        )
    elif not smi.well and not (unloaded and smi.status == _NOT_LOADED):
        yield broken(f"nvidia-smi fails: {smi.words}", "sudo reboot" if "mismatch" in smi.words else _LOOK)
    versions = {version for version in (module, library, told) if version}
    if len(versions) > 1:
        parts = ", ".join(f"{name} {version}" for name, version in _named(module, library, told) if version)
        yield broken(f"the driver is of several versions: {parts}", "sudo reboot")
    if not library:
        root = probe.settings.driver_root
        yield broken(f"cannot find {_LIBRARY} below {root}", "install the driver's libraries, or set driver.root")
    if unloaded:
        yield _no_module(probe, library)
    branch = (told or module or library).partition(".")[0]
    if branch.isdigit() and int(branch) < FIRST_DRIVER:
        yield broken(
            f"the driver {told or module or library} is older than {FIRST_DRIVER}, the oldest that edgegpu supports: "
            "it is not tried there, and before 396 programs that it holds get no card memory",
            f"install a driver of branch {FIRST_DRIVER} or newer",
        )
    if missing := missing_below(probe.at(probe.settings.driver_root)):
        yield warning(missing_text(missing), MISSING_REMEDY)


def _no_module(probe: BoxProbe, library: str) -> CheckProblem:
    """Return why the module of an installed driver is not loaded, as far as it can be seen."""
    driver = f"the NVIDIA driver ({library}) is installed, its kernel module is not loaded"
    trouble = module_trouble(probe.layout)
    if trouble is not None:
        return broken(f"{driver}, and {trouble.why}", trouble.remedy)
    return broken(driver, f"sudo modprobe nvidia; {_LOOK}")


def _has_nouveau(probe: BoxProbe) -> bool:
    return re.search(r"^nouveau ", probe.text("/proc/modules") or "", re.MULTILINE) is not None


def _no_driver(probe: BoxProbe) -> CheckProblem:
    if _has_nouveau(probe):
        return broken(
            "the NVIDIA driver is not installed, and nouveau holds the cards",
            f"{_NO_NOUVEAU}  # then NVIDIA's driver, reboot",
        )
    return broken("the NVIDIA driver is not installed", "install NVIDIA's driver, and start the machine anew")


def _module(probe: BoxProbe) -> str:
    found = _KERNEL.search(probe.text("/proc/driver/nvidia/version") or "")
    return found[1] if found else ""


def _library(probe: BoxProbe) -> str:
    """Return the driver library's version: the name of the file that its link leads to has it."""
    settings = probe.settings
    for folder in settings.library_folders:
        path = probe.at(settings.driver_root / folder / _LIBRARY)
        if path.exists():
            found = _SUFFIX.search(path.resolve().name)
            return found[1] if found else "unknown"
    return ""


def _smi(probe: BoxProbe, *fields: str) -> ProgramResult:
    """Run nvidia-smi; when the driver's root is not `/`, the nvidia-smi and the libraries below that root."""
    settings = probe.settings
    program, libraries = "nvidia-smi", ""
    own = probe.at(settings.driver_root / "usr/bin/nvidia-smi")
    if str(settings.driver_root) != "/" and own.exists():
        program = str(own)
        libraries = ":".join(str(probe.at(settings.driver_root / folder)) for folder in settings.library_folders)
    query = f"--query-gpu={','.join(fields)}"
    return probe.run(program, query, "--format=csv,noheader", timeout_s=_SMI_S, libraries=libraries)


def _seen(line: str) -> _Seen:
    index, uuid, bus, mig = (part.strip() for part in line.split(",")[: _COMMAS + 1])
    return _Seen(index, uuid, bus.lower(), mig == "Enabled")


def _offered(card: Mapping[str, Any]) -> _Offered:
    return _Offered(
        str(card.get("index", "")),
        str(card.get("uuid", "")),
        bool(card.get("healthy", True)),
        str(card.get("problem") or ""),
        bool(card.get("watched", True)),
    )


def _without_plugin(seen: list[_Seen], unseen: SkippedCheck) -> CheckResult:
    if not seen:
        return result_of([broken("the driver shows no card", _LOOK)])
    return skipped(f"{len(seen)} seen; what is offered is not known: {unseen.shut.text} (see the check `plugin`)")


def _lost_troubles(probe: BoxProbe) -> Iterator[CheckProblem]:
    """Yield the pods whose card is gone, as the plugin reports."""
    for row in probe.known_status.get("pods") or ():
        if row.get("state") == "lost":
            pod, namespace = row.get("pod"), row.get("namespace")
            yield broken(
                f"pod {namespace}/{pod}: {row.get('reason')}",
                f"sudo k3s kubectl delete pod -n {namespace} {pod}  # for another card; one that fell off the bus "
                "comes back by `sudo reboot`",
            )


def _bus_troubles(probe: BoxProbe, seen: list[_Seen]) -> Iterator[CheckProblem]:
    """Yield NVIDIA cards on the PCI bus that the driver does not show; the driver's bus ids have a longer domain."""
    shown = {card.bus[-len("0000:00:00.0") :] for card in seen}
    drivers = card_drivers(probe.layout)
    for name in probe.names("/sys/bus/pci/devices"):
        folder = f"/sys/bus/pci/devices/{name}"
        vendor, kind = (probe.text(f"{folder}/{file}") or "" for file in ("vendor", "class"))
        if vendor.strip() == "0x10de" and kind.startswith("0x03") and name not in shown:
            other = drivers.get(name, "")
            if other not in {"", "nvidia"}:
                why, remedy = f"{other} holds it", f"look for {other} in /etc/modprobe.d and /proc/cmdline; sudo reboot"
            else:
                why, remedy = "it may not have been initialised", f"{_LOOK}  # RmInitAdapter failed: sudo reboot"
            yield warning(f"the card at {name} is on the bus, and the driver does not show it: {why}", remedy)


def _names(card: _Seen | _Offered) -> set[str]:
    return {card.index, card.uuid}


def _is_excluded(card: _Seen | _Offered, exclude: tuple[str, ...]) -> bool:
    return bool(_names(card) & set(exclude))


def _exclusions(exclude: tuple[str, ...], seen: list[_Seen], offered: list[_Offered]) -> Iterator[CheckProblem]:
    cards: list[_Seen | _Offered] = [*seen, *offered]
    known = {name for card in cards for name in _names(card)}
    migs = {card.index for card in seen if card.mig}
    for name in exclude:
        if name not in known and name.partition(":")[0] not in migs and not name.startswith("MIG-"):
            yield warning(
                f"placement.exclude names {name}, which is no card of this machine",
                "sudoedit /etc/edgegpu/plugin.yaml && edgegpu config check && sudo systemctl restart edgegpu-plugin",
            )


def _offer_troubles(seen: list[_Seen], offered: list[_Offered], exclude: tuple[str, ...]) -> Iterator[CheckProblem]:
    out_of_order = [card for card in offered if not card.healthy]
    for card in out_of_order:
        why = f": {card.problem}" if card.problem else ""
        remedy = f"sudo edgegpu card release {card.index}  # then its reset, or sudo reboot"
        yield warning(
            f"card {card.index} is out of order ({card.uuid}){why}",
            remedy if "until a reset" in why else f"{_LOOK}  # one that fell off the bus: sudo reboot",
        )
    for card in offered:
        if not card.watched:
            yield warning(
                f"card {card.index}: its health is not watched, for the driver reports no errors (XID)",
                f"install the whole driver, library and module of one version; {_LOOK} has them",
            )
    if len(out_of_order) == len(offered):
        yield broken("no card is offered", "sudo journalctl -u edgegpu-plugin -e")
    known = {card.uuid for card in offered}
    for card_seen in seen:
        instances = [card for card in offered if card.index.startswith(f"{card_seen.index}:")]
        if card_seen.mig and not instances and not _is_excluded(card_seen, exclude):
            yield warning(
                f"card {card_seen.index} is in MIG mode and has no instances, so nothing of it is offered",
                f"sudo nvidia-smi mig -i {card_seen.index} -cgi PROFILE -C  # -lgip lists profiles; or without MIG: "
                f"sudo nvidia-smi -i {card_seen.index} -mig 0",
            )
    for missing in seen:
        if not missing.mig and missing.uuid not in known and not _is_excluded(missing, exclude):
            yield warning(
                f"card {missing.index} ({missing.uuid}) is seen and not offered",
                "sudo systemctl restart edgegpu-plugin",
            )
