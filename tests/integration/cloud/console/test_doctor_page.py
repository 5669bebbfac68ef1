"""The doctor is asked where its findings stand: its button, that it is under way, and what it has found."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from kits.console import OTTO
from kits.details import box, card

from edgegpu_sync.states import CommandState

if TYPE_CHECKING:
    from kits.console import ConsoleSite

    from edgegpu_sync.ids import DeviceId

ASKED = "The doctor was asked: its findings will stand here"
FINDING = {"name": "extender", "level": "broken", "text": "does not serve", "remedy": "sudo edgegpu install"}


def health(site: ConsoleSite, device: DeviceId, person: str = "otto") -> tuple[str, str]:
    """Return the part of a box's page with its findings, and all other parts."""
    page = html.unescape(site.client(person).get(f"/boxes/{device}").text)
    before, found, rest = page.partition('<section class="panel" id="health"')
    part, end, after = rest.partition("</section>")
    assert found
    assert end
    return part, before + after


def end(site: ConsoleSite, device: DeviceId) -> None:
    """Let the box answer the doctor's command."""
    with site.store.write() as tx:
        (asked,) = tx.commands.open(device)
        tracked = replace(asked.tracked, state=CommandState.SUCCEEDED)
        data = {"level": "broken", "troubled": [FINDING]}
        tx.commands.put([replace(asked, tracked=tracked, data=data, attempts=1, ended_at_s=site.now_s)])


def test_it_is_asked_where_its_findings_stand(site: ConsoleSite) -> None:
    device = site.add(1, "hall-1")
    site.report(device, box("hall-1", (card("0"),)))
    site.connect(device)
    there, elsewhere = health(site, device)
    assert re.findall(r'<button name="op" value="([\w.]+)"', there) == ["doctor.run"]
    assert 'value="doctor.run"' not in elsewhere
    assert ASKED not in there
    answer = site.client("otto").post(f"/boxes/{device}/commands", data={"csrf": OTTO.csrf, "op": "doctor.run"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/boxes/{device}#health")
    assert ASKED in health(site, device)[0]
    there, _ = health(site, device, "vera")
    assert (ASKED in there, "<button" in there) == (True, False), "a viewer sees that it is under way"
    end(site, device)
    there, _ = health(site, device)
    assert ("does not serve" in there, ASKED in there) == (True, False)
