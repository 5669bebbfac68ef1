"""The bodies of the API: what it takes and what it answers. Times are seconds since 1970."""

from collections.abc import Mapping
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from edgegpu_cloud.enrolment.manager import LONGEST_S, MOST_USES, SHORTEST_S
from edgegpu_cloud.fleet.audit.results import ResultState
from edgegpu_cloud.fleet.changes import LONGEST_WAIT_S
from edgegpu_cloud.fleet.limits.outcomes import OutcomeState
from edgegpu_cloud.fleet.specs import SharingSettings

T = TypeVar("T")
Text = Annotated[str, Field(max_length=1_000)]
KubeName = Annotated[str, Field(min_length=1, max_length=253)]
MOST_UNITS, MOST_CORE = 1_000_000, 10_000


class ApiModel(BaseModel):
    """The base of all bodies."""

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True)


class ApiPage(ApiModel, Generic[T]):
    """A part of a list."""

    items: list[T]
    next: str | None = Field(description="The path of the next part; null where there is none.")


class ApiBoxSummary(ApiModel):
    """A box in a list."""

    device: str = Field(description="Its id, which never changes.")
    name: str
    host: str
    labels: dict[str, str]
    state: Literal["ENROLLED", "REVOKED", "SET_ASIDE", "BLOCKED"]
    connected: bool
    health: str = Field(description="ok, warn, bad or unknown.")
    restored: bool = Field(description="It knows more than this store, and waits until a person confirms.")
    seen_at_s: float
    cards: int | None = Field(description="null before it has reported its cards.")
    units: int
    free_units: int
    sharing: bool = Field(description="Whether GPU sharing is installed.")
    problems: int = Field(description="Requests that it refused or failed at.")
    waiting: int = Field(description="Requests that it has not done yet.")
    cluster: str
    agent: str = Field(description="The version of its agent.")


class ApiItemReport(ApiModel):
    """What became of one request to a box."""

    state: str
    code: str = ""
    text: str = ""


class ApiBox(ApiModel):
    """A box. `revision` is that of its desired document, `applied_revision` the last one that it has applied whole."""

    device: str
    name: str
    host: str
    labels: dict[str, str]
    state: str
    connected: bool
    health: str
    restored: bool
    seen_at_s: float
    enrolled_at_s: float
    revision: int
    applied_revision: int
    open_commands: int
    waiting: int
    problems: int
    cluster: str
    claim: str = Field(description="A cluster that it reports, and that does not count; else empty.")
    versions: dict[str, str]
    capabilities: list[str]
    items: dict[str, ApiItemReport]


class ApiClusterDecision(ApiModel):
    """Whether the cluster counts that a box reports."""

    accept: StrictBool


class ApiBoxChange(ApiModel):
    """A change of a box's name or labels; what is left out stays."""

    name: Annotated[str, Field(max_length=63)] | None = None
    labels: Annotated[dict[str, str | None], Field(max_length=64)] | None = Field(
        default=None, description="The labels to set; null takes one away."
    )


class ApiUsedMemory(ApiModel):
    """The memory that processes use of a card."""

    processes: int
    memory_mib: int | None = Field(description="null where the driver does not report it.")


class ApiOtherUse(ApiModel):
    """The use of a card by what holds no share of it."""

    owner: str = Field(description="NAMESPACE/POD, or a pod's UID; empty: processes of no pod.")
    used: ApiUsedMemory


class ApiPiece(ApiModel):
    """A container's share of a card, and its place on the card's bars of units and of core."""

    namespace: str
    pod: str
    container: str
    app: str
    phase: str
    enforced: str = Field(description="The least that holds the pod's containers: enforced, degraded or off.")
    enforced_reason: str = Field(description="Why it is degraded; else empty.")
    live_units: int | None = Field(description="The units that it is held to now, where they are fewer; else null.")
    refusals: int = Field(description="At least so often its programs were told that there is no memory; 1, 2, 5, 10 …")
    limiter: str = Field(description="The version of the limiter that it started with; empty where that is not known.")
    first_unit: int
    units: int
    first_core: int
    core: int
    whole: bool
    given_mib: int = Field(description="The memory of its units; 0 where that is not known.")
    used: ApiUsedMemory | None = Field(description="null where it was not measured.")
    uses_too_much: bool = Field(description="It uses more than it was given.")


class ApiCard(ApiModel):
    """A card of a box."""

    uuid: str
    label: str
    name: str
    memory_mib: int
    unit_mib: int
    state: str = Field(description="shared, unhealthy, excluded, unshared or gone.")
    text: str
    units: int
    free_units: int
    free_core: int
    pieces: list[ApiPiece]
    others: list[ApiOtherUse]
    use_at_s: float | None = Field(description="When the memory use was measured; null: it was not.")


class ApiCards(ApiModel):
    """The cards of a box by its last reports; `as_of_s`: since when cards and pods are known to be so."""

    sharing: bool
    policy: str
    driver: str
    as_of_s: float
    cards_at_s: float | None = Field(description="When it reported its cards; null: never.")
    pods_at_s: float | None = Field(description="When it last reported of its pods, at a change; null: never.")
    cards: list[ApiCard]


class ApiPod(ApiModel):
    """A container of a pod that holds a share of a card."""

    namespace: str
    pod: str
    container: str
    app: str
    card: str = Field(description="The card's UUID.")
    units: int
    core: int
    given_mib: int = Field(description="The memory of its units; 0 where that is not known.")
    used: ApiUsedMemory | None = Field(description="null where it was not measured.")
    uses_too_much: bool = Field(description="It uses more than it was given.")
    use_at_s: float | None = Field(description="When that was measured; null: it was not.")


class ApiLimits(ApiModel):
    """The requested limits of one container of an app, and what its box has reported of them.

    `report` is null until the box has reported of this request.
    """

    namespace: str
    app: str
    container: str
    memory_units: int
    core: int
    force: bool
    interrupt: bool
    live: bool
    on_drift: str
    report: ApiItemReport | None
    requested_at_s: float | None = Field(description="null where it is older than what is kept.")
    requested_by: str
    settled_at_s: float | None = Field(description="When the box had applied or refused it; null before, or not known.")


class ApiPastLimits(ApiModel):
    """Limits of one container of an app as they were requested once."""

    cluster: str
    namespace: str
    app: str
    container: str
    memory_units: int
    core: int
    force: bool
    interrupt: bool
    live: bool
    on_drift: str
    rev: int = Field(description="The revision of the document in which they were set.")
    retry: int = Field(description="How often they were asked for again.")


class ApiRequestOutcome(ApiModel):
    """What came of one request."""

    state: OutcomeState
    at_s: float | None = Field(description="When it was settled, or replaced by another request; null where not known.")
    code: str
    text: str


class ApiLimitsHistoryEntry(ApiModel):
    """One change of requested limits."""

    rev: int = Field(description="The revision of the box's desired document that it made.")
    requested_at_s: float
    requested_by: str
    before: ApiPastLimits | None = Field(description="null where none were requested.")
    after: ApiPastLimits | None = Field(description="null where the request was taken back.")
    again: bool = Field(description="The same limits were asked for once more.")
    outcome: ApiRequestOutcome | None = Field(description="null where the request was taken back.")


class ApiLimitsRequest(ApiModel):
    """Limits of one container of an app; both amounts 0 take them away."""

    memory_units: Annotated[int, Field(ge=0, le=MOST_UNITS)]
    core: Annotated[int, Field(ge=0, le=MOST_CORE)]
    force: StrictBool = Field(default=False, description="Apply what does not fit: the pod then waits Pending.")
    interrupt: StrictBool = Field(default=False, description="The app may be stopped for it.")
    live: StrictBool = Field(default=False, description="Without a new pod where its pods are held and hold enough.")
    on_drift: Literal["report", "enforce"] | None = None
    seen_rev: Annotated[int, Field(ge=0, le=2**53)] | None = Field(
        default=None,
        description="The revision that you have seen: 409 where these limits were changed since. A change of something "
        "else in the document is none.",
    )


class ApiRevision(ApiModel):
    """The revision of a box's desired document after a change."""

    revision: int


class ApiReplacedLimits(ApiModel):
    """Limits that another person had set, and that a change has replaced."""

    requested_by: str
    requested_at_s: float
    limits: ApiPastLimits


class ApiLimitsRevision(ApiRevision):
    """The revision of a box's desired document after a change of limits."""

    replaced: ApiReplacedLimits | None = Field(description="null where nobody else had set other limits before.")


class ApiDesired(ApiModel):
    """A box's desired document."""

    revision: int
    spec: dict[str, Any]


class ApiSharingRequest(ApiModel):
    """How a box shares its cards; what is left out stays."""

    isolation: Annotated[str, Field(max_length=20)] | None = None
    policy: Annotated[str, Field(max_length=20)] | None = None
    exclude: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=64)] | None = Field(
        default=None, description="Numbers, MIG devices or UUIDs of cards; `none` alone: no card is excluded."
    )
    unit_mib: Annotated[int, Field(ge=1, le=1_048_576)] | None = None


def sharing_settings(body: ApiSharingRequest) -> SharingSettings:
    """Return settings of sharing as the fleet takes them."""
    return SharingSettings(
        isolation=body.isolation,
        policy=body.policy,
        exclude=None if body.exclude is None else tuple(body.exclude),
        unit_mib=body.unit_mib,
    )


class ApiCommandRequest(ApiModel):
    """A command for a box. `sharing.install` and `sharing.uninstall` set the desired document too."""

    op: Annotated[str, Field(min_length=1, max_length=80)]
    args: Annotated[dict[str, Any], Field(max_length=50)] = Field(default_factory=dict)
    wait_s: Annotated[int, Field(ge=1, le=LONGEST_WAIT_S)] = Field(
        default=3_600, description="How long it may wait for its box."
    )


class ApiCommandState(ApiModel):
    """A line of a command's history."""

    at_s: float
    state: str
    code: str
    text: str


class ApiCommand(ApiModel):
    """A command, its state and its result; `state` is null before its box's first answer."""

    id: str
    device: str
    box: str
    op: str
    args: dict[str, Any]
    by: str
    at_s: float
    due_at_s: float
    state: str | None
    code: str
    text: str
    data: dict[str, Any] | None
    attempts: int
    seq: int | None
    tries: int
    ended: bool
    ended_at_s: float | None
    cancelled: bool
    overdue: bool
    history: list[ApiCommandState]


class ApiAlarm(ApiModel):
    """Something that a person has to look at."""

    number: int
    kind: str
    device: str
    text: str
    at_s: float
    times: int
    seen_by: str


class ApiAuditResult(ApiModel):
    """What came of a change, by what is stored now; `text` says why, or on how many boxes."""

    state: ResultState
    text: str
    at_s: float | None = Field(description="When that was stored; null where it is not known.")


class ApiAuditEntry(ApiModel):
    """A change by a person: who, when, what, of which box, before and after, and what came of it."""

    number: int
    at_s: float
    by: str
    what: str
    device: str
    box: str = Field(description="The box's name now; empty where there is none.")
    before: dict[str, Any] | None = Field(
        description="The changed values before: empty where there were none, null where an old entry has not kept them."
    )
    after: dict[str, Any] | None = Field(description="The same values after the change.")
    detail: dict[str, Any] = Field(description="What else says which thing was changed, as the id of a command.")
    result: ApiAuditResult


class ApiTokenRequest(ApiModel):
    """A token to make."""

    name: Annotated[str, Field(max_length=63)] = Field(
        default="", description="The box's name; for several boxes how their names begin."
    )
    labels: Annotated[Mapping[str, str], Field(max_length=64)] = Field(default_factory=dict)
    lasts_s: Annotated[int, Field(ge=SHORTEST_S, le=LONGEST_S)] | None = Field(
        default=None, description="Seconds. null, here and in `uses` and `approval`: as the controller's configuration."
    )
    uses: Annotated[int, Field(ge=1, le=MOST_USES)] | None = None
    approval: StrictBool | None = None
    only_for: Annotated[str, Field(max_length=253)] = Field(
        default="", description="Name or id of the box that is enrolled anew, and no other."
    )


class ApiEnrolmentToken(ApiModel):
    """A token, without its text."""

    id: str
    name: str
    uses: int
    used: int
    approval: bool
    at_s: float
    expires_at_s: float
    labels: dict[str, str] = Field(description="Of the boxes that come with it.")
    only_for: str
    by: str


class ApiNewToken(ApiEnrolmentToken):
    """A token that was just made: this answer alone has its text, and the lines that hold it."""

    token: str
    line: str = Field(description="To be pasted on the box as root.")
    line_sudo: str
    url: str = Field(description="Where boxes enrol.")
    ca_sha256: str = Field(description="The SHA-256 of the authority of that address: a box pins it.")
    pin: str = Field(description="The SHA-256 of its public key, as curl takes it.")


class ApiAttempt(ApiModel):
    """An attempt of a box to enrol."""

    id: str
    state: Literal["WAITING", "APPROVED", "REFUSED", "DONE"]
    name: str = Field(description="What the box shall be called.")
    given_name: str = Field(description="The name that its token gives; empty: it is called as its host.")
    host: str
    address: str
    instance: str
    versions: dict[str, str]
    device: str | None
    at_s: float
    token_by: str


class ApiVisitorView(ApiModel):
    """Who sends a request."""

    name: str
    role: str
    scope: str = Field(description="The selector of the boxes that exist for them; empty: all.")


class ApiConfirmation(ApiModel):
    """The name of a box, typed to confirm."""

    confirm: Annotated[str, Field(max_length=253)] = Field(description="The box's name.")
