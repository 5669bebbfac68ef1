"""The preview of a rollout of limits on the command line, here and through the API: on which boxes they fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kits.clipair import made_pair
from kits.details import box, card, pod, reported
from kits.todaysstores import TodaysStores

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

START = ("rollouts", "start", "limits", "asr", "--container", "main", "--memory", "12", "--core", "10", "--all")
OWN = pod("asr-0", ("main", "0", 4, 10))
PODS: dict[str, dict[str, Any] | None] = {
    "fits": {"u1": OWN},
    "full": {"u1": OWN, "u2": pod("big-0", ("main", "0", 20, 10))},
    "stop": {"u1": OWN, "u2": pod("big-0", ("main", "0", 14, 10))},
    "used": None,
}


def test_the_preview_counts_the_boxes_and_names_those_where_the_limits_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, todays_stores: TodaysStores
) -> None:
    with made_pair(tmp_path, monkeypatch, todays_stores) as pair:
        for number, (name, pods) in enumerate(PODS.items()):
            device = pair.site.add(number, name)
            if pods is not None:
                pair.site.report(device, reported(box(name, (card("0"),), pods), cluster=f"{number:08d}"))
        shown = [asked(*START, "--preview") for asked in (pair.here, pair.there)]
        documents = [asked(*START, "--preview", "--json").json for asked in (pair.here, pair.there)]
        told, remote = (one.out.partition("to start it")[0] for one in shown)
        assert told == remote, shown[1].err
        assert (
            "by the last reports the limits fit on 1 box, need a stop of the app on 1 box, do not fit on 1 box, "
            "are not known on 1 box" in told
        )
        assert "does not fit: 3 units missing on card 0 of full" in told
        assert "needs a stop of this app, then fits on card 0 of stop" in told
        assert "not known: cannot preview: used has not told yet what cards it has" in told
        whole = pair.there(*START[:6], "--memory", "1", "--core", "100", "--all", "--preview").out
        assert "card 0 of full is in use" in whole
        assert documents[0] == documents[1]
        sharing = pair.here("rollouts", "start", "sharing", "--policy", "spread", "--all", "--preview").out
        assert "by the last reports" not in sharing
