"""What the command line says of a rollout's fit: of how many boxes it is, and by how old reports."""

import pytest

from edgegpu_cloud.cli.requests.rollout_fit import print_fits
from edgegpu_cloud.fleet.limits.preview_bars import CardPlace
from edgegpu_cloud.fleet.preview.limits import Preview
from edgegpu_cloud.rollouts.fit import PlannedFit
from edgegpu_cloud.rollouts.targets import PlannedBox
from edgegpu_core.limits.verdict import FitResult
from edgegpu_sync.ids import device_id

NOW_S = 1_790_000_000.0


def planned(
    number: int, answer: FitResult | None, *, ago_s: float = 10.0, pods_ago_s: float | None = None
) -> PlannedBox:
    preview = None
    if answer is not None:
        preview = Preview(
            answer=answer,
            text="",
            need_units=12,
            need_core=10,
            replicas=1,
            cards=(),
            notes=(),
            as_of_s=NOW_S - ago_s,
            pods_as_of_s=NOW_S - pods_ago_s if pods_ago_s is not None else None,
        )
    fit = PlannedFit(preview=preview, places=[CardPlace(f"box-{number}", "0")], text="" if preview else "silent")
    return PlannedBox(device=device_id(f"{number:016d}"), name=f"box-{number}", present=True, fit=fit)


def test_a_part_of_a_larger_plan_is_said_to_be_one_and_a_box_that_has_moved_counts_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    boxes = [planned(1, FitResult.FITS), planned(2, FitResult.NEVER), planned(1, FitResult.FITS)]
    print_fits(boxes, of=300, now_s=NOW_S)
    told = capsys.readouterr().out
    assert "by the last reports of the first 2 of 300 boxes the limits fit on 1 box, do not fit on 1 box" in told
    print_fits(boxes, of=2, now_s=NOW_S)
    assert "by the last reports the limits fit on 1 box" in capsys.readouterr().out


def test_old_reports_are_counted_and_show_their_age(capsys: pytest.CaptureFixture[str]) -> None:
    boxes = [planned(1, FitResult.FITS, ago_s=7_200), planned(2, FitResult.AFTER_STOP, ago_s=86_400)]
    print_fits([*boxes, planned(3, FitResult.FITS), planned(4, None)], of=4, now_s=NOW_S)
    told = capsys.readouterr().out
    assert "2 of them by reports older than 15 minutes" in told
    assert "fits (reported 2 h ago)" in told
    assert "then fits on card 0 of box-2 (reported 1 d ago)" in told
    assert "box-3" not in told
    assert "not known: silent" in told


def test_cards_and_pods_show_their_own_ages_where_these_differ(capsys: pytest.CaptureFixture[str]) -> None:
    newer = planned(1, FitResult.FITS, ago_s=7_200, pods_ago_s=60)
    alike = planned(2, FitResult.FITS, ago_s=7_200, pods_ago_s=7_200)
    print_fits([newer, alike], of=2, now_s=NOW_S)
    printed = capsys.readouterr().out
    assert "fits (reported 2 h ago, its pods 1 min ago)" in printed
    assert "fits (reported 2 h ago)" in printed
