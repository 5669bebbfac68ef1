"""App limits where a box has no account for them: with sharing they come, so without it that is what is missing."""

from pathlib import Path

from kits.acts import FileNotes
from kits.sync import limits

from edgegpu_agent.session.capabilities import NoAccount
from edgegpu_installer.layout import PLUGIN_UNIT, Layout
from edgegpu_sync.messages.spec import Spec, asked
from edgegpu_sync.messages.uplink import ItemState
from edgegpu_sync.rules.settle import NO_SHARING


def test_without_sharing_they_wait_for_it_and_with_it_the_remedy_is_named(tmp_path: Path) -> None:
    layout, notes = Layout(tmp_path), FileNotes(tmp_path / "note")
    (one,) = asked(Spec(app_limits=(limits(),)).to_json(), 1)
    assert NoAccount(layout).settle(one, notes) == NO_SHARING
    layout.units.mkdir(parents=True)
    (layout.units / PLUGIN_UNIT).touch()
    settlement = NoAccount(layout).settle(one, notes)
    assert settlement.state is ItemState.UNSUPPORTED
    assert "`edgegpu install`" in settlement.text
