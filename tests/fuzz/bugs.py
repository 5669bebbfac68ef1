"""Boxes with a fault, made on purpose: a run that finds nothing wrong with these would find nothing wrong with any."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from edgegpu_agent.identity.identity_files import load_identity
from edgegpu_agent.journal.journal import BoxJournal
from edgegpu_sync.keys import public_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.site import Site

    from edgegpu_agent.journal.contents import JournalContents
    from edgegpu_sync.signing import Signer


def trusts_a_stranger(here: Site, stranger: Signer) -> None:
    """Let the box obey a key that its controller has never named: what that key has signed is accepted."""

    def with_key(held: JournalContents) -> JournalContents:
        keys = (*held.ring.keys, (stranger.kid, public_text(stranger.key)))
        return replace(held, ring=replace(held.ring, keys=keys))

    _edit(here, with_key)


def _edit(here: Site, change: Callable[[JournalContents], JournalContents]) -> None:
    """Change what the first box's journal holds, while its agent is away."""
    box = here.boxes[0]
    box.agent.held = True
    box.agent.kill(away_s=0)
    state = box.folder / "var/lib/edgegpu"
    identity = load_identity(state / "identity")
    assert identity is not None
    journal = BoxJournal(state / f"agent/{identity.id}.db", wall_s=time.time)
    try:
        journal.save(change(journal.load(enrolment=identity.device.enrolment, root=identity.device.root)))
    finally:
        journal.close()
    box.agent.held = False


BUGS: dict[str, Callable[[Site, Signer], None]] = {"trusts-a-stranger": trusts_a_stranger}
