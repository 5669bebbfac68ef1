"""The bodies of rollouts: what is changed, how, and where each box stands. Times are seconds since 1970."""

from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool

from edgegpu_cloud.console.api.models.fleet import (
    ApiModel,
    ApiSharingRequest,
    KubeName,
)
from edgegpu_cloud.console.api.models.limits import ApiLimitsPreview, ApiLimitsSteps, NamedCore, NamedUnits
from edgegpu_cloud.fleet.operations.box_set import LONGEST_SET, MOST_BOXES
from edgegpu_cloud.fleet.specs import LimitsPatch
from edgegpu_cloud.rollouts.strategy import FailurePolicy, OfflinePolicy
from edgegpu_cloud.store.rollouts.records import RolloutBoxState, RolloutState
from edgegpu_sync.messages.spec import OnDrift

_DAY_S = 86_400
BoxName = Annotated[str, Field(min_length=1, max_length=253)]


class ApiLimitsChange(ApiModel):
    """The limits of one container of an app; what is left out stays as it is on each box, both 0 take them away."""

    kind: Literal["limits"]
    namespace: KubeName
    app: KubeName
    container: Annotated[
        str,
        Field(
            max_length=253,
            description="Empty: the one that is meant on all of the boxes, by their reports; refused if several are.",
        ),
    ] = ""
    memory_units: NamedUnits = None
    core: NamedCore = None
    force: StrictBool = Field(default=False, description="Apply what does not fit: the pod then waits Pending.")
    interrupt: StrictBool = Field(default=False, description="The app may be stopped for it.")
    live: StrictBool = Field(default=False, description="Without a new pod where its pods are held and hold enough.")
    on_drift: Literal["report", "enforce"] | None = None


def limits_of(body: ApiLimitsChange) -> LimitsPatch:
    """Return the limits that a change asks for."""
    drift = None if body.on_drift is None else OnDrift(body.on_drift)
    return LimitsPatch(**body.model_dump(exclude={"kind", "on_drift"}), on_drift=drift)


class ApiSharingChange(ApiSharingRequest):
    """How boxes share their cards; what is left out stays as it is on each box."""

    kind: Literal["sharing"]


class ApiUpgradeChange(ApiModel):
    """A version of the agent, as the release key has signed it."""

    kind: Literal["upgrade"]
    version: Annotated[str, Field(max_length=64)]
    url: Annotated[str, Field(max_length=2_000, description="Where boxes fetch it: https://...")]
    sha256: Annotated[str, Field(max_length=64)]
    signature: Annotated[str, Field(max_length=86)]


ApiRolloutChange = Annotated[ApiLimitsChange | ApiSharingChange | ApiUpgradeChange, Field(discriminator="kind")]


class ApiWaveSize(ApiModel):
    """The size of a wave: a number of boxes, or a share of all boxes in percent."""

    number: Annotated[int, Field(ge=1, le=999_999)]
    percent: StrictBool = False


class ApiGate(ApiModel):
    """What a wave has to reach before the next begins."""

    success_percent: Annotated[int, Field(ge=1, le=100)] = 100
    minimum: Annotated[int, Field(ge=0, le=100_000, description="Boxes that have to apply it at least.")] = 1
    soak_s: Annotated[int, Field(ge=0, le=30 * _DAY_S, description="How long the wave is watched then.")] = 0


class ApiRolloutStrategy(ApiModel):
    """How a rollout goes on."""

    canary: Annotated[int, Field(ge=0, le=10_000, description="Boxes of the first wave; 0: no canary.")] = 1
    sizes: Annotated[tuple[ApiWaveSize, ...], Field(min_length=1, max_length=1_000)] = Field(
        default=(ApiWaveSize(number=25, percent=True),), description="Of the waves after it; the last one repeats."
    )
    gate: ApiGate = ApiGate()
    max_unavailable: Annotated[int, Field(ge=0, le=100_000, description="Changed at one time; 0: a wave.")] = 0
    timeout_s: Annotated[int, Field(ge=1, le=7 * _DAY_S, description="Of one box.")] = 900
    retries: Annotated[int, Field(ge=0, le=20)] = 0
    retry_after_s: Annotated[int, Field(ge=1, le=_DAY_S)] = 60
    offline: OfflinePolicy = OfflinePolicy.JOIN
    join_within_s: Annotated[int, Field(ge=1, le=90 * _DAY_S)] = 7 * _DAY_S
    on_failure: FailurePolicy = Field(
        default=FailurePolicy.RETURN, description="What a failed gate does; an upgrade cannot be returned."
    )


class ApiRolloutRequest(ApiModel):
    """A change of many boxes in waves. The boxes: either `boxes`, or `labels`, or `all`."""

    change: ApiRolloutChange
    boxes: Annotated[tuple[BoxName, ...], Field(max_length=MOST_BOXES, description="Names or ids.")] = ()
    labels: Annotated[str, Field(max_length=500, description="A selector over labels: site=hall,rack!=3.")] = ""
    all: StrictBool = Field(default=False, description="Every box that you see.")
    first: Annotated[tuple[BoxName, ...], Field(max_length=MOST_BOXES, description="These come first.")] = ()
    strategy: ApiRolloutStrategy = ApiRolloutStrategy()


class ApiRolloutStart(ApiRolloutRequest):
    """A rollout to start."""

    expect_boxes: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="Refuse (409) where it would concern another number of boxes."
    )
    expect: Annotated[str, Field(max_length=LONGEST_SET)] | None = Field(
        default=None,
        description="`seen` of a preview: refuse (409) where it would concern other boxes, and skip a box whose limits "
        "of this container somebody else has set since. Without it: since the start.",
    )


class ApiRolloutAbort(ApiModel):
    """How a rollout is aborted."""

    returns: StrictBool = Field(default=False, description="Boxes that it has changed get back what they had.")


class ApiCardPlace(ApiModel):
    """A card by its node and its number there."""

    node: str
    card: str


class ApiCardShortage(ApiCardPlace):
    """What a card lacks for the limits, with the app's own pods gone; of one out of order nothing is missing."""

    uuid: str
    free_units: int
    free_core: int
    missing_units: int
    missing_core: int
    in_use: bool = Field(description="A whole card is asked for, and this one is not empty.")
    healthy: bool


class ApiPlannedFit(ApiModel):
    """What a box would make of the limits of a rollout, in its whole cluster, by the last reports."""

    preview: ApiLimitsPreview | None = Field(description="Null where that is not known: `text` says why.")
    places: list[ApiCardPlace] = Field(description="The cards that the app's pods would be on.")
    missing: list[ApiCardShortage] = Field(description="What each card lacks where the limits do not fit.")
    text: str
    remedy: str


class ApiPlannedBox(ApiModel):
    """A box of a planned wave."""

    device: str
    name: str
    present: bool = Field(description="Whether it is online.")
    others: list[str] = Field(description="The ids of the other boxes of its cluster that you see.")
    position: int = Field(description="Its place in the order of the rollout, from 0.")
    fit: ApiPlannedFit | None = Field(description="Of a rollout of limits; null for other changes.")


class ApiPlannedWave(ApiModel):
    """A wave as it would be."""

    name: str
    size: int = Field(description="How many boxes it has.")
    boxes: list[ApiPlannedBox] = Field(description="Those of them that are in this part of the plan.")


class ApiRolloutPlan(ApiModel):
    """What a rollout would do: all its waves, and a part of its boxes."""

    words: str = Field(description="The change, for people.")
    boxes: int = Field(description="How many boxes it concerns.")
    waves: list[ApiPlannedWave]
    notes: list[str]
    seen: str = Field(description="All its boxes as they were seen now, for `expect` when it is started.")
    steps: ApiLimitsSteps | None = Field(
        description="In the first part, of limits: from which to which they lead on all its boxes."
    )
    next: str | None = Field(description="Where the same request is answered with the next part of the boxes.")


class ApiWave(ApiModel):
    """A wave: how many boxes it has, and how many of them are in which state."""

    number: int
    name: str
    boxes: int
    states: dict[RolloutBoxState, int]


class ApiRollout(ApiModel):
    """A rollout, and where it stands."""

    number: int
    kind: Literal["limits", "sharing", "upgrade"]
    words: str = Field(description="The change, for people.")
    change: dict[str, Any]
    strategy: ApiRolloutStrategy
    by: str
    at_s: float
    state: RolloutState
    reason: str
    held: bool = Field(description="It is paused by a gate, not by a person.")
    returns: bool
    wave: int = Field(description="Which wave is being changed, from 0; the number of waves when all are done.")
    waves: list[ApiWave]
    boxes: int
    states: dict[RolloutBoxState, int]
    soaks_until_s: float | None
    ended_at_s: float | None


class ApiRolloutBox(ApiModel):
    """A box of a rollout, and where it stands."""

    rollout: int
    device: str
    name: str
    position: int
    wave: int
    state: RolloutBoxState
    attempts: int
    message: str
    next_try_at_s: float | None
    since_s: float
    changed: bool
    rev: int
    command: str | None
    before: dict[str, Any] | None = Field(description="What the box had before.")
    wrote: dict[str, Any] | None = Field(description="What the rollout has requested of it.")
    others: list[str] = Field(description="The ids of the other boxes of its cluster that you see.")
    checked_s: float
