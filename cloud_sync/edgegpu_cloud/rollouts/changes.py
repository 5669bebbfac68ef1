"""What a rollout changes: app limits, settings of sharing, or the agent's version; each as it is stored; pure."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from typing import Any, assert_never

from pydantic import TypeAdapter, ValidationError

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.present.amounts import checked_patch
from edgegpu_cloud.fleet.specs import LimitsPatch, SharingSettings, with_limits, with_settings
from edgegpu_cloud.phrases import listed, phrase, phrase_n
from edgegpu_sync.faults import at_field, fault, first_fault
from edgegpu_sync.messages.spec import Spec
from edgegpu_sync.messages.uplink import ItemState
from edgegpu_sync.rules.ops import UpgradeArgs

Json = dict[str, Any]

UPGRADE_OP = "agent.upgrade"
_NO_CLUSTER = "00000000"
_SETTINGS = {"isolation": "isolation", "policy": "policy", "exclude": "exclusions", "unit_mib": "unit_size"}
"""The settings of sharing with the names of their items."""


class RolloutKind(StrEnum):
    """What a rollout can change."""

    LIMITS = "limits"
    SHARING = "sharing"
    UPGRADE = "upgrade"


RolloutChange = LimitsPatch | SharingSettings | UpgradeArgs
_READERS: dict[RolloutKind, TypeAdapter[RolloutChange]] = {
    RolloutKind.LIMITS: TypeAdapter(LimitsPatch),
    RolloutKind.SHARING: TypeAdapter(SharingSettings),
    RolloutKind.UPGRADE: TypeAdapter(UpgradeArgs),
}


def read_release(fields: Mapping[str, str]) -> UpgradeArgs:
    """Read a release of the agent: `version`, `url`, `sha256` and `signature`.

    Raises:
        CloudError: one of them is not valid.
    """
    try:
        return UpgradeArgs.model_validate(fields)
    except ValidationError as error:
        raise _refused_release(first_fault(error)) from error


def release_faults(fields: Mapping[str, str]) -> dict[str, CloudError]:
    """Return what is wrong with a release, by its field: the first of it; nothing where it can be read."""
    try:
        UpgradeArgs.model_validate(fields)
    except ValidationError as error:
        faults: dict[str, CloudError] = {}
        for one in error.errors(include_url=False, include_input=False):
            field = str(next(iter(one["loc"]), "version"))
            faults.setdefault(field, _refused_release(at_field(field, fault(one))))
        return faults
    return {}


def _refused_release(wrong: str) -> CloudError:
    return CloudError(
        phrase("cannot roll out this release: %(fault)s", fault=wrong),
        remedy=phrase("give version, URL, SHA-256 and signature as the release has them"),
    )


def kind_of(change: RolloutChange) -> RolloutKind:
    """Return the kind of a change."""
    match change:
        case LimitsPatch():
            return RolloutKind.LIMITS
        case SharingSettings():
            return RolloutKind.SHARING
        case UpgradeArgs():
            return RolloutKind.UPGRADE
        case _:
            assert_never(change)


def change_json(change: RolloutChange) -> Json:
    """Return a change as it is stored."""
    return change.model_dump(mode="json") if isinstance(change, UpgradeArgs) else asdict(change)


def read_change(kind: str, value: Json) -> RolloutChange:
    """Read a stored change.

    Raises:
        CloudError: it is none.
    """
    reader = next((one for of, one in _READERS.items() if of.value == kind), None)
    if reader is None:
        raise CloudError(
            phrase("cannot read what a rollout changes: there is no kind %(kind)r", kind=kind),
            remedy=phrase("restore the store"),
        )
    try:
        return reader.validate_json(json.dumps(value))
    except ValidationError as error:
        raise CloudError(
            phrase("cannot read what a rollout changes: %(fault)s", fault=first_fault(error)),
            remedy=phrase("restore the store"),
        ) from error


def check_change(change: RolloutChange) -> None:
    """Refuse a change that no box accepts.

    Raises:
        CloudError: a name or a value is not valid, or nothing is asked for.
    """
    match change:
        case LimitsPatch():
            with_limits(Spec(), checked_patch(change), cluster=_NO_CLUSTER)
        case SharingSettings():
            with_settings(Spec(), change)
        case UpgradeArgs():
            pass
        case _:
            assert_never(change)


def item_names(change: RolloutChange) -> list[str]:
    """Return the names of the items that a change sets; none for an upgrade, which is a command."""
    match change:
        case LimitsPatch():
            return [f"app_limits/{change.namespace}/{change.app}/{change.container}"]
        case SharingSettings():
            return [item for name, item in _SETTINGS.items() if getattr(change, name) is not None]
        case UpgradeArgs():
            return []
        case _:
            assert_never(change)


def good_states(change: RolloutChange) -> frozenset[ItemState]:
    """Return the states of an item that count as success; a pod of forced limits may wait."""
    forced = isinstance(change, LimitsPatch) and change.force
    return frozenset({ItemState.APPLIED, ItemState.PENDING} if forced else {ItemState.APPLIED})


def subject_of(change: RolloutChange) -> str:
    """Return a text that is the same for two changes of the same thing on a box."""
    return kind_of(change).value if not isinstance(change, LimitsPatch) else item_names(change)[0]


def _settings_words(change: SharingSettings) -> str:
    found: list[str] = []
    if change.isolation is not None:
        found.append(phrase("isolation %(mode)s", mode=change.isolation))
    if change.policy is not None:
        found.append(phrase("policy %(policy)s", policy=change.policy))
    if change.exclude is not None:
        found.append(phrase("excluded %(cards)s", cards=" ".join(change.exclude)))
    if change.unit_mib is not None:
        found.append(phrase("unit %(mib)s MiB", mib=change.unit_mib))
    return listed(found)


def _permissions(change: LimitsPatch) -> list[str]:
    """Return in words what a person has allowed for new limits."""
    allowed = {
        phrase("at once where possible"): change.live,
        phrase("the app may be stopped"): change.interrupt,
        phrase("though they do not fit"): change.force,
    }
    return [words for words, is_so in allowed.items() if is_so]


def _amounts_words(container: str, change: LimitsPatch) -> str:
    """Return new limits in words; an amount that is not named stays as it is on each box."""
    memory, core = change.memory_units, change.core
    if memory == 0 and not core:
        return phrase("limits %(container)s: none", container=container)
    if memory is None and core is None:
        return phrase("limits %(container)s: memory and core as they are", container=container)
    units = phrase_n("%(num)d unit", "%(num)d units", memory or 0)
    if memory is None:
        return phrase("limits %(container)s: core %(core)s, memory as it is", container=container, core=core)
    if core is None:
        return phrase("limits %(container)s: %(units)s, core as it is", container=container, units=units)
    return phrase("limits %(container)s: %(units)s, core %(core)s", container=container, units=units, core=core)


def words_of(change: RolloutChange) -> str:
    """Return a change in words, as `limits default/asr main: 10 units, core 1`."""
    match change:
        case LimitsPatch():
            whole = f"{change.namespace}/{change.app} {change.container}"
            return listed([_amounts_words(whole, change), *_permissions(change)])
        case SharingSettings():
            return phrase("sharing %(settings)s", settings=_settings_words(change))
        case UpgradeArgs():
            return phrase("agent %(version)s", version=change.version)
        case _:
            assert_never(change)
