"""The form of a new rollout: what was typed as a request, and what is wrong with it, field by field."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TypeVar
from urllib.parse import urlencode

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.limits.amounts import MemoryMeasure, read_core, read_memory
from edgegpu_cloud.fleet.operations.box_set import MOST_BOXES
from edgegpu_cloud.fleet.selectors import read_selector
from edgegpu_cloud.fleet.specs import LimitsPatch, SharingSettings, check_app, read_app
from edgegpu_cloud.numbers import is_number
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.rollouts.changes import (
    RolloutChange,
    RolloutKind,
    check_change,
    kind_of,
    read_release,
    release_faults,
)
from edgegpu_cloud.rollouts.rollouts import RolloutRequest
from edgegpu_cloud.rollouts.strategy import (
    BOUNDS,
    FailurePolicy,
    Gate,
    OfflinePolicy,
    RolloutStrategy,
    WaveSize,
    read_sizes,
)
from edgegpu_sync.messages.spec import OnDrift

RELEASE = ("version", "url", "sha256", "signature")
"""The fields of the form that say which release the boxes upgrade to."""

NAMES = ("boxes", "first")
"""The fields of the form that have names of boxes."""

USUAL = {
    RolloutKind.SHARING: FailurePolicy.RETURN,
    RolloutKind.LIMITS: FailurePolicy.RETURN,
    RolloutKind.UPGRADE: FailurePolicy.STOP,
}
"""What follows a failed gate where the form does not say it: boxes take no older version of the agent."""

_SECOND, _MINUTE_S, _DAY_S = 1, 60, 86_400
_LONGEST = 9
"""Digits of a number."""

T = TypeVar("T")
_Choice = TypeVar("_Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class NumberField:
    """A number of the strategy in the form: its field, what it is where nothing was typed, the seconds of its unit."""

    name: str
    usual: str
    unit: int = _SECOND


NUMBERS = {
    "canary": NumberField("canary", "1"),
    "success_percent": NumberField("success", "100"),
    "minimum": NumberField("minimum", "1"),
    "soak_s": NumberField("soak", "0", _MINUTE_S),
    "max_unavailable": NumberField("max_unavailable", "0"),
    "timeout_s": NumberField("timeout", "15", _MINUTE_S),
    "retries": NumberField("retries", "0"),
    "retry_after_s": NumberField("retry_after", "1", _MINUTE_S),
    "join_within_s": NumberField("join_within", "7", _DAY_S),
}
"""The numbers of a strategy and of its gate as the form has them, by their own names."""


@dataclass(slots=True)
class RolloutForm:
    """A form as it was filled in. `problems`: what is wrong with it, by field; a rollout has none."""

    given: Mapping[str, str]
    problems: dict[str, CloudError] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Return the kind of change that the form is for."""
        what = self.given.get("what", "")
        return what if what in set(RolloutKind) else RolloutKind.SHARING.value

    @property
    def query(self) -> str:
        """Return the form as a query."""
        return urlencode(self.given)

    def names(self, name: str) -> tuple[str, ...]:
        """Return the names of boxes that were typed into a field, each once."""
        return tuple(dict.fromkeys(self.given.get(name, "").split()))

    def read(self) -> RolloutRequest | None:
        """Return what is asked for; None where something is wrong, which is in `problems` then."""
        change = self._change()
        labels = self._text("labels")
        if labels:
            self.checked("labels", lambda: read_selector(labels))
        if labels and self.names("boxes"):
            self.problems["boxes"] = CloudError(
                phrase("cannot select boxes by names and by labels at once"), remedy=phrase("give one of the two")
            )
        self._check_names()
        strategy = self._strategy(change)
        if change is None or self.problems:
            return None
        return RolloutRequest(
            change=change,
            boxes=self.names("boxes"),
            selector=labels,
            first=self.names("first"),
            strategy=strategy,
        )

    def with_container(self, change: RolloutChange) -> "RolloutForm":
        """Return the form with the container that a change has, if it has one: nobody looks for it again then."""
        found = change.container if isinstance(change, LimitsPatch) else ""
        return RolloutForm({**self.given, "container": found}) if found else self

    def checked(self, name: str, read: Callable[[], T]) -> T | None:
        """Return what a field is read as; None where it is wrong, which is kept."""
        try:
            return read()
        except CloudError as error:
            self.problems.setdefault(name, error)
            return None

    def _check_names(self) -> None:
        """Refuse more names than one request may have: each is looked for."""
        for name in NAMES:
            if (number := len(self.names(name))) > MOST_BOXES:
                self.problems[name] = CloudError(
                    phrase("cannot start a rollout: %(num)s boxes are named", num=number),
                    remedy=phrase("name up to %(most)s boxes, or select them by labels", most=MOST_BOXES),
                )

    def _text(self, name: str) -> str:
        return self.given.get(name, "").strip()

    def _strategy(self, change: RolloutChange | None) -> RolloutStrategy:
        numbers = {name: self._number(name) for name in NUMBERS}
        gate = Gate(**{name: numbers.pop(name) for name in ("success_percent", "minimum", "soak_s")})
        usual = USUAL[kind_of(change)] if change is not None else FailurePolicy.RETURN
        return RolloutStrategy(
            **numbers,
            sizes=self.checked("waves", lambda: read_sizes(self.given.get("waves", "25%"))) or (WaveSize(1),),
            gate=gate,
            on_failure=self._choice(FailurePolicy, "on_failure") or usual,
            offline=self._choice(OfflinePolicy, "offline") or OfflinePolicy.JOIN,
        )

    def _number(self, name: str) -> int:
        """Return a number of the strategy; 0 where it is none, or out of its bounds, which is kept."""
        one, bounds = NUMBERS[name], BOUNDS[name]
        text = self.given.get(one.name, one.usual)
        least, most = -(-bounds.least // one.unit), bounds.most // one.unit
        if _is_number(text) and least <= int(text) <= most:
            return int(text) * one.unit
        self.problems[one.name] = CloudError(
            phrase("cannot start a rollout: the %(number)s is %(text)r", number=bounds.words, text=text),
            remedy=phrase("give %(least)s to %(most)s", least=least, most=most),
        )
        return 0

    def _choice(self, choices: type[_Choice], name: str) -> _Choice | None:
        text = self.given.get(name, "")
        try:
            return choices(text) if text else None
        except ValueError:
            self.problems[name] = CloudError(
                phrase("cannot start a rollout: %(text)r is no value of the form", text=text),
                remedy=phrase("choose one of the form's values"),
            )
            return None

    def _change(self) -> RolloutChange | None:
        what = self.given.get("what")
        if what == RolloutKind.UPGRADE:
            return self._release()
        return self._limits() if what == RolloutKind.LIMITS else self._settings()

    def _release(self) -> RolloutChange | None:
        fields = {name: self._text(name) for name in RELEASE}
        if faults := release_faults(fields):
            self.problems |= faults
            return None
        return read_release(fields)

    def _settings(self) -> SharingSettings:
        unit = self._text("unit_mib")
        if unit and not _is_number(unit):
            self.problems["unit_mib"] = CloudError(
                phrase("cannot start a rollout: the %(number)s is %(text)r", number=phrase("unit"), text=unit),
                remedy=phrase("give a whole number"),
            )
            unit = ""
        wanted = SharingSettings(
            policy=self.given.get("policy") or None,
            exclude=tuple(self.given.get("exclude", "").split()) or None,
            unit_mib=int(unit) if unit else None,
            isolation=self.given.get("isolation") or None,
        )
        alone = {
            "policy": SharingSettings(policy=wanted.policy),
            "exclude": SharingSettings(exclude=wanted.exclude),
            "unit_mib": SharingSettings(unit_mib=wanted.unit_mib),
            "isolation": SharingSettings(isolation=wanted.isolation),
        }
        for name, one in alone.items():
            if one != SharingSettings():
                self.checked(name, partial(check_change, one))
        if wanted == SharingSettings():
            self.checked("policy", lambda: check_change(wanted))
        return wanted

    def _limits(self) -> LimitsPatch:
        """Return limits as they were typed; an empty amount stays as it is on each box."""
        app = self.checked("app", self._app) or ("default", "app")
        container = self._text("container")
        if container:
            self.checked("container", lambda: check_app(*app, container))
        memory, core = self._text("memory"), self._text("core")
        if not memory and not core:
            self.problems["memory"] = CloudError(
                phrase("cannot start a rollout: neither memory nor core is given"),
                remedy=phrase("give the memory, the core, or both: an empty one stays as it is on each box"),
            )
        units = self.checked("memory", lambda: read_memory(memory, MemoryMeasure.UNITS, 0).units) if memory else None
        return LimitsPatch(
            namespace=app[0],
            app=app[1],
            container=container,
            memory_units=units,
            core=self.checked("core", lambda: read_core(core)) if core else None,
            force=bool(self.given.get("force")),
            interrupt=bool(self.given.get("interrupt")),
            live=bool(self.given.get("live")),
            on_drift=self._choice(OnDrift, "on_drift"),
        )

    def _app(self) -> tuple[str, str]:
        namespace, app = read_app(self.given.get("app", ""))
        check_app(namespace, app, app)
        return namespace, app


def _is_number(text: str) -> bool:
    return is_number(text.strip(), digits=_LONGEST)
