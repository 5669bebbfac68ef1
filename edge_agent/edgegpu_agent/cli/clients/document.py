"""The plugin's status document as dataclasses, read by hand so that a command starts quickly."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Row = TypeVar("Row", bound="DataclassInstance")

VERSION = 1
"""The version of the document that this module reads; it ignores unknown keys."""


class DocumentError(ValueError):
    """A document that does not have the plugin's form; the text names the place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRow:
    """One card that is offered."""

    index: str
    uuid: str
    name: str = ""
    units: int
    units_free: int
    core_free: int
    healthy: bool = True
    problem: str = ""
    """Why it is out of order; empty where it is in order, or of a plugin before this field."""
    watched: bool = True
    """Whether the driver reports its errors."""

    @property
    def gpu(self) -> str:
        """The number of the GPU, which that of a MIG device begins with."""
        return self.index.partition(":")[0]


@dataclass(frozen=True, slots=True)
class OtherCard:
    """A card that is not offered though a pod holds a share of it: it is gone from the machine, or excluded."""

    index: str
    uuid: str
    name: str = ""
    gone: bool = False


@dataclass(frozen=True, slots=True)
class CardRef:
    """A card that a container has; `units`: what it holds there, None where that is not known."""

    index: str
    uuid: str
    units: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UseRow:
    """The memory that processes use of one card, `used_mib` None where the driver does not report it.

    Without `uid`: of no pod; without `container`: of a pod whose container is not known.
    """

    card: str
    uid: str = ""
    container: str = ""
    processes: int
    used_mib: int | None


@dataclass(frozen=True, slots=True)
class MeasuredUse:
    """The memory use as it was measured at `at`, seconds since 1970; None: not measured yet."""

    at: int | None = None
    rows: tuple[UseRow, ...] = ()

    def of(self, uid: str, container: str, card: str) -> UseRow | None:
        """Return what a container uses of a card; None where that was not measured."""
        return next((one for one in self.rows if (one.uid, one.container, one.card) == (uid, container, card)), None)


@dataclass(frozen=True, slots=True)
class CardLimit:
    """The memory limit that a container is held to on a card, and what its processes have counted there.

    `limit_units` below `held_units`, what it holds, is a live limit; both are 0 where the plugin is older.
    `core_percent` is the share of the card's time that it is held to; 0 where it is held to none. `refusals`: how often
    its programs were told that there is no memory, since its start.
    """

    card: str
    limit_mib: int
    counted_mib: int
    limit_units: int = 0
    held_units: int = 0
    core_percent: int = 0
    refusals: int = 0

    @property
    def is_live(self) -> bool:
        """Whether the container is held to less than it holds."""
        return self.limit_units < self.held_units


@dataclass(frozen=True, slots=True)
class IsolationRow:
    """What holds a container to its memory: `state` is enforced, degraded or off; `reason` says why it is degraded.

    `limiter` is the version of the limiter that it started with; empty until a program of it has used a card.
    `private_tables` are the UUIDs of the driver's private tables that its programs have asked for. `notes` are what its
    people should know, whatever holds it.
    """

    state: str
    reason: str = ""
    cards: tuple[CardLimit, ...] = ()
    limiter: str = ""
    private_tables: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRow:
    """One GPU container of a pod.

    `state` is allocated, waiting, refused, lost, cardless, unrecorded, unknown, held or pending.
    """

    namespace: str
    pod: str
    uid: str
    container: str
    units: int
    core: int
    cards: tuple[CardRef, ...]
    phase: str
    state: str
    reason: str
    isolation: IsolationRow | None = None
    """None where it is not known: the container has no devices yet, or the plugin is older."""

    @property
    def full_name(self) -> str:
        """Namespace and name; the uid where the pod's object is gone."""
        return f"{self.namespace}/{self.pod}" if self.pod else f"uid {self.uid}"


@dataclass(frozen=True, slots=True)
class NodeRow:
    """Another node, as the extender sees it."""

    name: str
    cards: int
    units: int
    units_free: int


@dataclass(frozen=True, slots=True)
class ExtenderRow:
    """The extender in the plugin's process."""

    listen: str = ""
    healthy: bool = False
    insecure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SelftestCard:
    """What the self-test found on a card; `verdict` is empty where it has not been tried."""

    index: str
    card: str
    verdict: str = ""
    reason: str = ""
    remedy: str = ""
    at_s: int | None = None
    context_mib: int | None = None
    """What counts for a CUDA context there."""
    native_us: int | None = None
    held_us: int | None = None
    native_work_us: int | None = None
    """How long a row of kernels took there without the limiter; `held_work_us`: held to `core_percent`."""
    held_work_us: int | None = None
    core_percent: int | None = None
    granted: Mapping[str, int] = field(default_factory=dict)
    not_tried: Mapping[str, str] = field(default_factory=dict)
    """What does not work there without the limiter either, and why."""
    cuda_version: int | None = None
    """The driver's, as cuDriverGetVersion gives it: 12060 for CUDA 12.6."""
    newer_driver: str = ""
    """That the driver is newer than the limiter's list of functions; empty where it is not."""
    by_name: str = ""
    """For which functions the limiter goes by name, since the driver's pointers are not its symbols."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelftestPart:
    """The node's self-test; `ended` counts the runs that were asked for, `error` is why the last of them was none."""

    running: bool = False
    ended: int = 0
    error: str = ""
    cards: tuple[SelftestCard, ...] = ()


@dataclass(frozen=True, slots=True)
class StartWait:
    """Whether kubelet waited for the devices at its last start (None: not known), and why not."""

    waits: bool | None
    why: str


@dataclass(frozen=True, slots=True)
class SilentSource:
    """A source that does not answer: what came of it is as it was at `heard_at` (seconds since 1970; None: never)."""

    name: str
    why: str
    heard_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusDocument:
    """The status of the plugin and its node; `raw` is the document as received."""

    version: str
    node: str
    role: str
    policy: str
    unit_mib: int
    unit_wanted_mib: int | None
    """The configured size of a unit, where it does not apply yet because pods hold shares."""
    injection_mode: str
    injection_why: str
    isolation: str
    """What the node was told to hold containers by; empty where the plugin does not say."""
    isolation_problem: str
    """Why that does not hold; empty where it does."""
    selftest: SelftestPart
    driver_version: str
    driver_problem: str
    registered: bool
    registered_ms: float | None
    waiting_for: str
    start_wait: StartWait | None
    """Whether a starting kubelet waits for the devices; None where the plugin is older."""
    api_synced: bool
    api_problem: str
    extender: ExtenderRow | None
    cards: tuple[CardRow, ...]
    other_cards: tuple[OtherCard, ...]
    pods: tuple[PodRow, ...]
    pending: tuple[PodRow, ...]
    """The containers of pods that have no node yet; only the extender knows them."""
    pending_more: int
    """The number of further such pods."""
    nodes: tuple[NodeRow, ...]
    use: MeasuredUse
    silent: tuple[SilentSource, ...] = ()
    """The sources that do not answer; an older plugin does not name them."""
    raw: Mapping[str, Any]

    @property
    def has_cards(self) -> bool:
        """Whether this role offers cards at all."""
        return self.role != "extender-only"


class _Part:
    """An object inside the document, with its place for error messages."""

    def __init__(self, value: object, place: str) -> None:
        if not isinstance(value, dict):
            raise DocumentError(f"{place or 'the document'} is no object")
        self._value: dict[str, Any] = value
        self._place = place

    def _name(self, key: str) -> str:
        return f"{self._place}.{key}" if self._place else key

    def get(self, key: str, kind: type | tuple[type, ...], default: object = None) -> Any:  # noqa: ANN401  (JSON)
        """Return a value of a type; without a default it must be present. A bool is no number."""
        value = self._value.get(key, default)
        if value is None:
            raise DocumentError(f"{self._name(key)} is missing")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise DocumentError(f"{self._name(key)} is {value!r}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        return str(self.get(key, str, default))

    def count(self, key: str, default: int | None = None) -> int:
        return int(self.get(key, int, default))

    def flag(self, key: str, *, default: bool | None = None) -> bool:
        return bool(self.get(key, bool, default))

    def part(self, key: str) -> "_Part":
        """Return an object; an empty one where there is none."""
        return _Part(self._value.get(key) or {}, self._name(key))

    def names(self) -> list[str]:
        return list(self._value)

    def has(self, key: str) -> bool:
        return self._value.get(key) is not None

    def parts(self, key: str) -> list["_Part"]:
        """Return the objects of a list; none where there is no list."""
        return [_Part(one, f"{self._name(key)}[{i}]") for i, one in enumerate(self.get(key, list, []))]

    def row(self, kind: type[Row]) -> Row:
        """Return a dataclass of texts, numbers and flags under the same names; a default stands for a missing one."""
        types = get_type_hints(kind)
        found = {
            one.name: self.get(one.name, types[one.name], None if one.default is MISSING else one.default)
            for one in fields(kind)
        }
        return kind(**found)

    def rows(self, key: str, kind: type[Row]) -> tuple[Row, ...]:
        """Return the objects of a list as dataclasses; see `row`."""
        return tuple(part.row(kind) for part in self.parts(key))


def read_document(value: object) -> StatusDocument:
    """Read a status document.

    Raises:
        DocumentError: the document is of another version, or a required value is missing or of another type.
    """
    top = _Part(value, "")
    if top.count("v") != VERSION:
        raise DocumentError(f"it is of version {top.count('v')}, and this edgegpu reads version {VERSION}")
    injection, driver, kubelet, api = (top.part(key) for key in ("injection", "driver", "kubelet", "api"))
    return StatusDocument(
        version=top.text("version", ""),
        node=top.text("node"),
        role=top.text("role"),
        policy=top.text("policy", ""),
        unit_mib=top.count("unit_mib", 256),
        unit_wanted_mib=top.count("unit_wanted_mib") if top.has("unit_wanted_mib") else None,
        injection_mode=injection.text("mode", ""),
        injection_why=injection.text("why", ""),
        isolation=top.text("isolation", ""),
        isolation_problem=top.text("isolation_problem", ""),
        selftest=_selftest(top.part("selftest")),
        driver_version=driver.text("version", ""),
        driver_problem=driver.text("problem", ""),
        registered=kubelet.flag("registered", default=False),
        registered_ms=float(kubelet.get("registered_ms", (int, float))) if kubelet.has("registered_ms") else None,
        waiting_for=kubelet.text("waiting_for", ""),
        start_wait=_start_wait(kubelet.part("start_wait")) if kubelet.has("start_wait") else None,
        api_synced=api.flag("synced", default=False),
        api_problem=api.text("problem", ""),
        extender=top.part("extender").row(ExtenderRow) if top.has("extender") else None,
        cards=top.rows("cards", CardRow),
        other_cards=top.rows("other_cards", OtherCard),
        pods=tuple(_pod(part) for part in top.parts("pods")),
        pending=tuple(_pod(part) for part in top.parts("pending")),
        pending_more=top.count("pending_more", 0),
        nodes=top.rows("nodes", NodeRow),
        use=_use(top.part("memory_use")),
        silent=tuple(_silent(kubelet, api, top)),
        raw=value if isinstance(value, dict) else {},
    )


def _start_wait(part: _Part) -> StartWait:
    return StartWait(part.flag("waits") if part.has("waits") else None, part.text("why", ""))


API, KUBELET, PENDING = "API server", "kubelet", "watch of Pending pods"


def _silent(kubelet: _Part, api: _Part, top: _Part) -> Iterator[SilentSource]:
    if why := kubelet.text("silent", ""):
        yield SilentSource(KUBELET, why)
    for name, part in ((API, api.part("silent")), (PENDING, top.part("pending_silent"))):
        if part.has("why"):
            yield SilentSource(name, part.text("why"), part.count("heard_at") if part.has("heard_at") else None)


def _pod(part: _Part) -> PodRow:
    return PodRow(
        namespace=part.text("namespace"),
        pod=part.text("pod"),
        uid=part.text("uid"),
        container=part.text("container"),
        units=part.count("memory_units"),
        core=part.count("core"),
        cards=tuple(_card_ref(card) for card in part.parts("cards")),
        phase=part.text("phase", ""),
        state=part.text("state"),
        reason=part.text("reason", ""),
        isolation=_isolation(part.part("isolation")) if part.has("isolation") else None,
    )


def _selftest(part: _Part) -> SelftestPart:
    return SelftestPart(
        running=part.flag("running", default=False),
        ended=part.count("ended", 0),
        error=part.text("error", ""),
        cards=tuple(_selftest_card(row) for row in part.parts("cards")),
    )


def _selftest_card(row: _Part) -> SelftestCard:
    def number(key: str) -> int | None:
        return row.count(key) if row.has(key) else None

    granted, not_tried = row.part("granted"), row.part("not_tried")
    return SelftestCard(
        index=row.text("index"),
        card=row.text("card"),
        verdict=row.text("verdict", ""),
        reason=row.text("reason", ""),
        remedy=row.text("remedy", ""),
        at_s=number("at_s"),
        context_mib=number("context_mib"),
        native_us=number("native_us"),
        held_us=number("held_us"),
        native_work_us=number("native_work_us"),
        held_work_us=number("held_work_us"),
        core_percent=number("core_percent"),
        granted={name: granted.count(name) for name in granted.names()},
        not_tried={name: not_tried.text(name) for name in not_tried.names()},
        cuda_version=number("cuda_version"),
        newer_driver=row.text("newer_driver", ""),
        by_name=row.text("by_name", ""),
    )


def _isolation(part: _Part) -> IsolationRow:
    return IsolationRow(
        part.text("state"),
        part.text("reason", ""),
        part.rows("cards", CardLimit),
        part.text("limiter", ""),
        tuple(str(one) for one in part.get("private_tables", list, [])),
        tuple(str(one) for one in part.get("notes", list, [])),
    )


def _card_ref(part: _Part) -> CardRef:
    return CardRef(part.text("index"), part.text("uuid"), part.count("units") if part.has("units") else None)


def _use(part: _Part) -> MeasuredUse:
    rows = (
        UseRow(
            card=row.text("card"),
            uid=row.text("uid", ""),
            container=row.text("container", ""),
            processes=row.count("processes"),
            used_mib=row.count("memory_mib") if row.has("memory_mib") else None,
        )
        for row in part.parts("containers")
    )
    return MeasuredUse(part.count("at") if part.has("at") else None, tuple(rows))
