"""The bodies of changes of app limits that name a part of them, and of their previews. Times are seconds since 1970."""

from typing import Annotated, Literal

from pydantic import Field, StrictBool

from edgegpu_cloud.console.api.models.fleet import MOST_CORE, MOST_UNITS, ApiModel, KubeName

NamedUnits = Annotated[
    int | None,
    Field(ge=0, le=MOST_UNITS, description="Left out: as it is on each box, where that is known."),
]
NamedCore = Annotated[
    int | None,
    Field(
        ge=0,
        le=MOST_CORE,
        description="Left out: as it is on each box, where that is known; 0 with no memory.",
    ),
]


class ApiAmounts(ApiModel):
    """The amounts of a container; null where one is not known."""

    memory_units: int | None
    core: int | None


class ApiLimitsStep(ApiModel):
    """From which amounts to which a change leads, and on how many boxes."""

    before: ApiAmounts
    after: ApiAmounts | None = Field(
        description="null where the boxes refuse it: an amount is not named, and what they have of it is not known."
    )
    boxes: int


class ApiLimitsSteps(ApiModel):
    """What a change of limits makes of what its boxes have, over all of them."""

    steps: list[ApiLimitsStep] = Field(description="The most frequent first.")
    not_asked: int = Field(
        description="Boxes that are not asked: another box of their cluster is, or they have reported no cluster, or "
        "they were revoked."
    )
    not_judged: int = Field(description="Boxes beyond those that were looked at.")


class ApiLimitsPatch(ApiModel):
    """Limits of one container of an app: what is left out stays as it is; no memory takes the core away too."""

    memory_units: NamedUnits = None
    core: NamedCore = None
    force: StrictBool = Field(default=False, description="Apply what does not fit: the pod then waits Pending.")
    interrupt: StrictBool = Field(default=False, description="The app may be stopped for it.")
    live: StrictBool = Field(default=False, description="Without a new pod where its pods are held and hold enough.")
    on_drift: Literal["report", "enforce"] | None = None
    seen_rev: Annotated[int, Field(ge=0, le=2**53)] | None = Field(
        default=None, description="The revision that you have seen, as with PUT."
    )


class ApiLimitsPreviewRequest(ApiModel):
    """Limits whose effect is asked for."""

    namespace: KubeName
    app: KubeName
    container: KubeName
    memory_units: NamedUnits = None
    core: NamedCore = None
    live: bool = False


class ApiCardNumbers(ApiModel):
    """What a card has free, as a preview counts."""

    node: str
    card: str
    free_units: int
    free_core: int
    held_by_app_units: int


class ApiLimitsPreview(ApiModel):
    """Whether limits fit, by the boxes' last reports; `as_of_s`: the oldest of them. The box has the last word."""

    before: ApiAmounts = Field(description="What the container has now.")
    after: ApiAmounts = Field(description="The limits that are judged: what was not named is as it is there.")
    answer: str = Field(description="fits, fits_after_stop or never_fits; fits, where the pods stay.")
    text: str
    pods: str = Field(description="new: they are made anew. held: they stay, with other memory at once. none: as is.")
    live: bool = Field(description="Whether the limits take no new pod if `live` is asked.")
    not_live: str = Field(description="Why they do, where `live` was asked; else empty.")
    replicas: int
    cards: list[ApiCardNumbers]
    notes: list[str]
    as_of_s: float
    pods_as_of_s: float | None = Field(description="Since when the pods of all its boxes are known to be so.")
