"""Memory of held containers that the limiter does not see: what the driver counts of them beyond their own count.

A driver takes memory of which no call says how much: code that it loads when a kernel is first launched, what private
export tables bring, contexts that are larger than the self-test saw, what it rounds up. The plugin writes the
difference into the container's limits, and the limiter counts it as used.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgegpu_plugin.containers.held.bypass import SLACK, ContainerKey, CountedContainer
from edgegpu_plugin.containers.usage_file import OWN_FORM, forget_most, form_of, load_usage, uuid_digits

_LOG = logging.getLogger(__name__)

STEPS = 128
"""What is written is a multiple of so small a part of the limit: the file does not change with each look."""


@dataclass(eq=False, slots=True)
class UncountedMemory:
    """What was found at the last look; `look` is called on one thread."""

    bytes: Mapping[ContainerKey, Mapping[str, int]] = field(default_factory=dict, init=False)
    """The bytes by container and card; none of 0."""
    _after: Mapping[Path, Mapping[str, int]] = field(default_factory=dict, init=False)
    """What each usage file counted right after the last look, by the card's digits."""

    def look(
        self,
        uses: Mapping[tuple[ContainerKey, str], int],
        held: Mapping[ContainerKey, CountedContainer],
        *,
        unsaid: Callable[[ContainerKey, str], bool] = lambda _key, _card: False,
    ) -> set[ContainerKey]:
        """Compare what the driver counts of containers with what they count; return those whose answer changed.

        The driver's count is some moment's since the last look. So it is compared with the most that was counted at
        once since then: a program that allocates and frees all the time is never charged for what it has freed. By as
        much as `bypass.SLACK` the driver's count may be larger. A container that counts in the form of another version
        is left alone.

        Args:
            uses: the bytes that the driver has counted just now, by container and card.
            held: the containers that the limiter holds.
            unsaid: whether the driver does not say now what a container has of a card: then what was found stays.
        """
        keys = {key for key, _ in uses if all(form_of(path) == OWN_FORM for path in held[key].usage)}
        paths = {path for key in keys for path in held[key].usage}
        seen = {path: self._most(path) for path in paths}
        self._after = {path: _counted(path) for path in paths}
        found: dict[ContainerKey, dict[str, int]] = {}
        for key, cards in self.bytes.items():
            if key in held and (same := {card: bytes_ for card, bytes_ in cards.items() if unsaid(key, card)}):
                found[key] = same
        for (key, card), used in uses.items():
            if key not in keys:
                continue
            limit = held[key].limits.get(card, 0)
            most = max((seen[path].get(uuid_digits(card), 0) for path in held[key].usage), default=0)
            most = min(most, limit)  # no honest program has counted more; a hostile one writes what it likes
            if (missing := used - most - int(limit * (SLACK - 1))) > 0:
                step = max(1, limit // STEPS)
                found.setdefault(key, {})[card] = -(-missing // step) * step
        changed = {key for key in found.keys() | self.bytes.keys() if found.get(key) != self.bytes.get(key)}
        self.bytes = found
        return changed

    def _most(self, path: Path) -> dict[str, int]:
        """Return the most that was counted at once since the last look, by the card's digits, and forget it."""
        try:
            counts = load_usage(path)
            forget_most(path)
        except OSError as error:
            _LOG.debug("cannot look at %s: %s", path, error)
            return {}
        if counts is None:
            return {}
        return _largest([counts.bytes, counts.most, self._after.get(path, {})])


def _counted(path: Path) -> Mapping[str, int]:
    try:
        counts = load_usage(path)
    except OSError:
        return {}
    return {} if counts is None else counts.bytes


def _largest(some: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in some:
        for card, bytes_ in one.items():
            found[card] = max(found.get(card, 0), bytes_)
    return found
