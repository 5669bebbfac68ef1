"""A rollout is paused and aborted by one press at the top of its page, and taken back after its end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kits.console import OTTO, ConsoleSite
from kits.rolloutbed import RolloutBed

from edgegpu_cloud.store.rollouts.records import RolloutState

if TYPE_CHECKING:
    from pathlib import Path

CSRF = {"csrf": OTTO.csrf}


def test_it_is_stopped_by_one_press_at_the_top_and_goes_on_with_the_number_typed(tmp_path: Path) -> None:
    bed = RolloutBed(tmp_path / "bed", boxes=3)
    bed.start()
    client = ConsoleSite(bed.store, now_s=bed.world.clock()).client("otto")
    page = client.get("/rollouts/1").text
    top, _, rest = page.partition("Waves")
    assert re.findall(r'action="/rollouts/1/(\w+)"', top) == ["pause", "abort"]
    assert 'name="typed"' not in top
    assert "/pause" not in client.get("/rollouts/1").text.partition("Waves")[2]
    assert 'action="/rollouts/1/return"' in rest
    assert "/rollouts/1/pause" not in ConsoleSite(bed.store).client("vera").get("/rollouts/1").text
    assert client.post("/rollouts/1/pause", data=CSRF).status_code == 303
    assert client.post("/rollouts/1/resume", data=CSRF).status_code == 400, "it changes boxes: their number is typed"
    assert client.post("/rollouts/1/resume", data={**CSRF, "typed": "3"}).status_code == 303
    assert client.post("/rollouts/1/return", data=CSRF).status_code == 400
    assert client.post("/rollouts/1/abort", data=CSRF).status_code == 303
    assert bed.rollouts.show(1).state is RolloutState.ABORTING
    bed.store.close()


def test_one_that_is_done_is_taken_back(tmp_path: Path) -> None:
    bed = RolloutBed(tmp_path / "bed", boxes=3)
    bed.connect_all()
    had, documents = bed.settings(), bed.documents()
    bed.to_the_end(bed.start())
    assert bed.rollouts.show(1).state is RolloutState.DONE
    assert bed.settings() != had
    client = ConsoleSite(bed.store, now_s=bed.world.clock()).client("otto")
    page = client.get("/rollouts/1").text
    assert linked_forms(page) == ["Undo: give boxes back what they had…"]
    assert 'action="/rollouts/1/return"' in page.partition("Waves")[2]
    assert client.post("/rollouts/1/return", data=CSRF).status_code == 400
    assert client.post("/rollouts/1/return", data={**CSRF, "typed": "3"}).status_code == 303
    assert bed.rollouts.show(1).reason == "taken back by otto"
    bed.to_the_end(1)
    assert bed.rollouts.show(1).state is RolloutState.RETURNED
    assert (bed.settings(), bed.documents()) == (had, documents)
    assert "Undo: give" not in client.get("/rollouts/1").text
    bed.store.close()


def test_what_takes_the_number_of_boxes_is_a_press_away_from_the_top_however_many_boxes_are_listed(
    tmp_path: Path,
) -> None:
    bed = RolloutBed(tmp_path / "bed", boxes=3)
    bed.start()
    site = ConsoleSite(bed.store, now_s=bed.world.clock())
    client, give_back = site.client("otto"), "Abort, and give boxes back what they had…"
    assert linked_forms(client.get("/rollouts/1").text) == [give_back]
    client.post("/rollouts/1/pause", data=CSRF)
    assert linked_forms(client.get("/rollouts/1").text) == ["Resume…", give_back]
    assert linked_forms(site.client("vera").get("/rollouts/1").text) == []
    bed.store.close()


def linked_forms(page: str) -> list[str]:
    """Return the texts of the links at the top of a rollout's page that lead to the forms behind its lists."""
    return re.findall(r'href="#change">([^<]+)<', page.partition("Waves")[0])
