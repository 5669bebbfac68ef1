"""The cards of a simulated driver, and the text file from which its libraries read them."""

import uuid as uuids
from collections.abc import Sequence
from dataclasses import dataclass, field

_CAPS_PER_INSTANCE = 2
_FIRST_CAP = 3  # 1 and 2 are NVIDIA's "config" and "monitor"


@dataclass(frozen=True, slots=True)
class SimMig:
    """A MIG instance; `caps` are the minor numbers of the cap files of its GPU and its compute instance."""

    uuid: str
    profile: str
    mib: int
    caps: tuple[int, int]
    gi: int
    ci: int = 0


@dataclass(frozen=True, slots=True)
class SimCard:
    """A simulated card; `cc` is its compute capability, `mig_mode` puts it into MIG mode even without instances.

    `exclusive`: its compute mode is EXCLUSIVE_PROCESS, which NVML alone shows.
    """

    name: str
    uuid: str
    mib: int
    pci: str
    minor: int
    mig: tuple[SimMig, ...] = field(default=())
    cc: str = "7.5"
    mig_mode: bool = False
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class SimVersions:
    """The versions that the driver reports, and the memory that it reserves."""

    driver: str = "560.35.03"
    cuda: str = "12.6"
    context_mib: int = 0
    module_mib: int = 0
    reserved_mib: int = 0


def make_card(index: int, name: str, mib: int, *, profiles: Sequence[str] = (), cc: str = "") -> SimCard:
    """Return a card whose UUID, PCI address and minor follow from index and name; equal arguments give equal cards."""
    return SimCard(
        name=name,
        uuid=f"GPU-{uuids.uuid5(uuids.NAMESPACE_OID, f'{index} {name}')}",
        mib=mib,
        pci=f"00000000:{index + 1:02X}:00.0",
        minor=index,
        mig=tuple(_make_mig(index, at, profile) for at, profile in enumerate(profiles)),
        cc=cc or ("8.0" if profiles else "7.5"),
    )


def _make_mig(index: int, at: int, profile: str) -> SimMig:
    """Return the MIG instance `at` of card `index`; its memory is the profile's: 1g.10gb has 10 240 MiB."""
    gib = profile.partition(".")[2].removesuffix("gb")
    if not gib.isdigit():
        raise ValueError(f"cannot read the MIG profile {profile!r}: it looks like 1g.10gb")
    cap = _FIRST_CAP + (index * 7 + at) * _CAPS_PER_INSTANCE
    return SimMig(
        uuid=f"MIG-{uuids.uuid5(uuids.NAMESPACE_OID, f'{index} {at} {profile}')}",
        profile=profile,
        mib=int(gib) * 1024,
        caps=(cap, cap + 1),
        gi=at + 1,
    )


def cards_text(cards: Sequence[SimCard], versions: SimVersions) -> str:
    """Return the text of the cards file; simulation/simdriver/README.md says what the lines mean."""
    lines = [
        f"driver {versions.driver}",
        f"cuda {versions.cuda}",
        f"module_mib {versions.module_mib}",
        f"context_mib {versions.context_mib}",
        f"reserved_mib {versions.reserved_mib}",
    ]
    for card in cards:
        split = (" mig=on" if card.mig_mode else "") + (" exclusive=on" if card.exclusive else "")
        lines.append(
            f"card uuid={card.uuid} mib={card.mib} pci={card.pci} minor={card.minor} cc={card.cc}{split}"
            f' name="{card.name}"'
        )
        lines += [
            f"mig card={card.uuid} uuid={mig.uuid} profile={mig.profile} mib={mig.mib}"
            f" gi={mig.gi} ci={mig.ci} caps={mig.caps[0]},{mig.caps[1]}"
            for mig in card.mig
        ]
    return "\n".join(lines) + "\n"


def mig_minors_text(cards: Sequence[SimCard]) -> str:
    """Return the text of /proc/driver/nvidia-caps/mig-minors: which cap file opens which instance."""
    lines = ["config 1", "monitor 2"]
    for card in cards:
        for mig in card.mig:
            lines.append(f"gpu{card.minor}/gi{mig.gi}/access {mig.caps[0]}")
            lines.append(f"gpu{card.minor}/gi{mig.gi}/ci{mig.ci}/access {mig.caps[1]}")
    return "\n".join(lines) + "\n"
