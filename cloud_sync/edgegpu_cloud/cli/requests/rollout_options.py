"""The options that every `rollouts start` takes: which boxes, how large the waves, what their gates ask for."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Annotated, Any

import typer

from edgegpu_base.cli.durations import seconds
from edgegpu_cloud.cli.arguments import ExpectOption, SelectorOption, complete_boxes, expected_of
from edgegpu_cloud.cli.common import YesOption
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.operations.box_set import BoxSet
from edgegpu_cloud.rollouts.changes import RolloutChange
from edgegpu_cloud.rollouts.rollouts import RolloutRequest
from edgegpu_cloud.rollouts.strategy import FailurePolicy, Gate, OfflinePolicy, RolloutStrategy, WaveSize, read_sizes
from edgegpu_sync.rules.ops import UpgradeArgs

OPTIONS_HELP = """\
Boxes: -l SELECTOR, or --box BOX several times, or --all. --first BOX: it comes first, in the canary.

\b
Waves: --canary 1 first, then --waves 25%: boxes, or shares of all; several with commas, the last repeats (1,10%,50%).
Gate after each wave: --success 100 percent of the boxes that ended have applied it, at least --minimum 1 box; then
--soak TIME passes, in which a box that loses the change counts as failed.
--on-failure return (changed boxes get back what they had), stop (they keep the change) or pause (a person decides).
Offline boxes: --offline join (when they are back, within --join-within 7d) or skip.
\b
--preview prints a token: --expect TOKEN starts the rollout for the boxes that were shown, and refuses it with the names
of those that have joined or left since. Without --expect and --yes the waves are shown and you are asked; the answer is
for the boxes shown. Where nobody can be asked, in a script or with --json, one of the two is needed.
"""

BoxesOption = Annotated[
    list[str] | None, typer.Option("--box", metavar="BOX", help="A box; several times.", autocompletion=complete_boxes)
]
AllOption = Annotated[bool, typer.Option("--all", help="All boxes.")]
FirstOption = Annotated[
    list[str] | None,
    typer.Option("--first", metavar="BOX", help="It comes first; several times.", autocompletion=complete_boxes),
]
CanaryOption = Annotated[int, typer.Option("--canary", metavar="NUMBER", min=0, help="Boxes in the first wave.")]
WavesOption = Annotated[str, typer.Option("--waves", metavar="SIZES", help="Sizes of the waves: 5, 25%, 1,10%,50%.")]
SuccessOption = Annotated[
    int, typer.Option("--success", metavar="PERCENT", min=1, max=100, help="Share that has to succeed.")
]
MinimumOption = Annotated[
    int, typer.Option("--minimum", metavar="NUMBER", min=0, help="Boxes of a wave that have to succeed at least.")
]
SoakOption = Annotated[str, typer.Option("--soak", metavar="TIME", help="How long a wave is watched: 10m, 1d.")]
UnavailableOption = Annotated[
    int,
    typer.Option("--max-unavailable", metavar="NUMBER", min=0, help="Boxes changed at one time.  [default: a wave]"),
]
BoxTimeOption = Annotated[str, typer.Option("--box-timeout", metavar="TIME", help="How long one box may take.")]
RetriesOption = Annotated[int, typer.Option("--retries", metavar="NUMBER", min=0, help="More tries of a box.")]
RetryAfterOption = Annotated[str, typer.Option("--retry-after", metavar="TIME", help="Time between two tries.")]
OfflineOption = Annotated[
    OfflinePolicy, typer.Option("--offline", metavar="join|skip", help="What becomes of an offline box.")
]
JoinOption = Annotated[str, typer.Option("--join-within", metavar="TIME", help="How long an offline box may join.")]
FailureOption = Annotated[
    FailurePolicy | None,
    typer.Option(
        "--on-failure", metavar="return|stop|pause", help="What a failed gate does.  [default: return; upgrade: stop]"
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the options ask for. `expect`: the boxes that a preview has shown; `yes`: nobody is asked any more."""

    boxes: Sequence[str]
    selector: str
    first: Sequence[str]
    strategy: RolloutStrategy
    on_failure: FailurePolicy | None
    expect: BoxSet | None
    yes: bool

    def request(self, change: RolloutChange) -> RolloutRequest:
        """Return the request for a change."""
        usual = FailurePolicy.STOP if isinstance(change, UpgradeArgs) else FailurePolicy.RETURN
        whole = replace(self.strategy, on_failure=self.on_failure or usual)
        return RolloutRequest(change=change, boxes=self.boxes, selector=self.selector, first=self.first, strategy=whole)


def asked(  # noqa: PLR0913  (one for each option)
    *,
    selector: SelectorOption = "",
    box: BoxesOption = None,
    every: AllOption = False,
    first: FirstOption = None,
    canary: CanaryOption = 1,
    waves: WavesOption = "25%",
    success: SuccessOption = 100,
    minimum: MinimumOption = 1,
    soak: SoakOption = "",
    max_unavailable: UnavailableOption = 0,
    box_timeout: BoxTimeOption = "15m",
    retries: RetriesOption = 0,
    retry_after: RetryAfterOption = "1m",
    offline: OfflineOption = OfflinePolicy.JOIN,
    join_within: JoinOption = "7d",
    on_failure: FailureOption = None,
    expect: ExpectOption = "",
    yes: YesOption = False,
) -> Asked:
    """Return what the options ask for; what is changed is added later.

    Raises:
        typer.BadParameter: no boxes, or an option that is not valid.
    """
    if (bool(selector) + bool(box) + every) != 1:
        raise typer.BadParameter("give -l SELECTOR, or --box BOX, or --all", param_hint="boxes")
    gate = Gate(success_percent=success, minimum=minimum, soak_s=_soak_s(soak))
    strategy = RolloutStrategy(
        canary=canary,
        sizes=_sizes(waves),
        gate=gate,
        max_unavailable=max_unavailable,
        timeout_s=seconds(box_timeout, option="--box-timeout"),
        retries=retries,
        retry_after_s=seconds(retry_after, option="--retry-after"),
        offline=offline,
        join_within_s=seconds(join_within, option="--join-within"),
    )
    return Asked(
        boxes=tuple(box or ()),
        selector=selector,
        first=tuple(first or ()),
        strategy=strategy,
        on_failure=on_failure,
        expect=expected_of(expect),
        yes=yes,
    )


def _sizes(text: str) -> tuple[WaveSize, ...]:
    try:
        return read_sizes(text)
    except CloudError as error:
        raise typer.BadParameter(f"{error.text}; {error.remedy}", param_hint="--waves") from error


def _soak_s(text: str) -> int:
    return seconds(text, option="--soak") if text not in {"", "0"} else 0


def with_rollout_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the options of `asked`, which it gets as `request`."""
    signature, more = inspect.signature(command), inspect.signature(asked)
    names = set(more.parameters)

    @wraps(command)
    def run(*args: Any, **options: Any) -> None:  # noqa: ANN401  (the command's own)
        mine = {name: options.pop(name) for name in list(options) if name in names}
        command(*args, request=asked(**mine), **options)

    own = [one for name, one in signature.parameters.items() if name != "request"]
    run.__annotations__ = {**command.__annotations__, **asked.__annotations__}
    vars(run)["__signature__"] = signature.replace(parameters=[*own, *more.parameters.values()])
    return run
