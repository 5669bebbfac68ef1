"""What the broker has kept of the lies comes again when the box subscribes again: all of it is refused once more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz.account import undone

from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from fuzz.flood import Flood

_OVERWRITTEN = (str(TopicKind.DESIRED), str(TopicKind.KEYS))
"""The controller may have said these again since: each is one more, or not."""


def again(flood: Flood) -> list[str]:
    """Start the agent anew, with all that is retained before it; say what is wrong."""
    before = len(flood.asked)
    certain = [topic for topic in flood.retained if not topic.endswith(_OVERWRITTEN)]

    try:
        flood.ask("doctor.run")  # what it writes down takes the counters with it
        flood.wait(flood.ended, "a command after the flood has ended")
        due = flood.counted() + len(certain)
        flood.anew()
        flood.wait(lambda: flood.counted() >= due, f"{len(certain)} retained lies are refused once more")
        flood.ask("doctor.run")
        flood.wait(flood.ended, "a command after the start has ended")
    except TimeoutError as error:
        return [str(error)]
    over = flood.counted() - due
    found = [f"{over} messages too many were refused after the start"] if over > len(_OVERWRITTEN) else []
    flood.asked, late = flood.asked[:before], flood.asked[before:]  # what the flood is reckoned by came before
    return [*found, *undone(late)]
