"""Why a container that has the limiter's files is not held to all of its limits, and what else is noted of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgegpu_core.choices.driver_capabilities import capability_notes
from edgegpu_core.choices.modes import Capability
from edgegpu_core.deviceid import card_of
from edgegpu_core.ledger import CheckpointEntry
from edgegpu_core.podview import PodView
from edgegpu_plugin.config.schema import IsolationSection
from edgegpu_plugin.containers.held.bypass import BypassDetector, ContainerKey
from edgegpu_plugin.containers.held.container_state import ContainerIsolation
from edgegpu_plugin.containers.held.preload_lists import PreloadLists
from edgegpu_plugin.containers.held.reasons import HIDDEN_LIST, PRELOAD_ONLY, why_opened
from edgegpu_plugin.containers.held.records import has_list, is_limited, is_preloaded, opened_by
from edgegpu_plugin.containers.held.unwritable_usage import UnwritableUsage
from edgegpu_plugin.containers.held.usage_sizes import UsageSizes
from edgegpu_plugin.containers.image.image_check import ImageCheck
from edgegpu_plugin.containers.image.loaders import shown
from edgegpu_plugin.records.node_state import PodNote
from edgegpu_plugin.records.selftest_results import SelftestResults


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerReasons:
    """What is known against containers, by each part that looks at them."""

    settings: IsolationSection
    bypass: BypassDetector
    sizes: UsageSizes
    unwritable: UnwritableUsage
    images: ImageCheck
    preload: PreloadLists
    selftest: SelftestResults | None

    def why_loose(
        self, key: ContainerKey, entries: list[CheckpointEntry], now: ContainerIsolation, folders: Sequence[Path]
    ) -> str:
        """Return why a container is not held to all of its limits; empty where it is.

        Args:
            key: the container.
            entries: kubelet's records of it.
            now: its state by its files.
            folders: its folders.
        """
        preload = PRELOAD_ONLY if any(is_preloaded(entry) for entry in entries) else ""
        past, by_image = self._drivers(key, entries, folders)
        found = (past, self.unwritable.reason(key), self.sizes.reason(key), by_image)
        reasons = (*found, preload, why_opened(opened_by(entries)), self._untested(entries, now))
        return "; ".join(why for why in reasons if why)

    def notes(
        self, pod: PodView | None, key: ContainerKey, entries: list[CheckpointEntry], *, by_runtime: bool
    ) -> Iterator[PodNote]:
        """Yield what a container asks of the driver and does not get, and what its image has that is hidden in it.

        NVIDIA's runtime gives what a pod asks.
        """
        is_held = any(is_limited(entry) for entry in entries)
        if pod is None or any(is_preloaded(entry) for entry in entries) or (by_runtime and not is_held):
            return
        findings = self.images.findings(key)
        asked = findings.driver_capabilities or dict(pod.driver_capabilities).get(key[1], "")
        given = opened_by(entries) if is_held else frozenset(Capability)
        for text in capability_notes(asked, given=given, choice=pod.choice, node=self.settings.capabilities):
            yield PodNote(pod, key[1], "GPUCapabilities", text)
        if findings.is_hidden:
            yield PodNote(pod, key[1], "GPUPreload", HIDDEN_LIST)

    def events(
        self, pod: PodView | None, key: ContainerKey, entries: list[CheckpointEntry], *, by_runtime: bool
    ) -> Iterator[PodNote]:
        """Yield what the people of a pod are told by an event: the notes, and that its programs get no memory."""
        yield from self.notes(pod, key, entries, by_runtime=by_runtime)
        if pod is not None and (why := self.unwritable.reason(key)):
            yield PodNote(pod, key[1], "GPUUsageFile", why)

    def _drivers(self, key: ContainerKey, entries: list[CheckpointEntry], folders: Sequence[Path]) -> tuple[str, str]:
        """Return why a container's processes are past the limiter, and why those of its image may be, with remedies."""
        image, past, used = self.images.findings(key), self.bypass.reason(key), self.bypass.own_driver(key)
        has_one = any(has_list(entry) for entry in entries)
        by_image = image.reason
        if image.own_driver:
            remedy = self.preload.remedy(folders, can_preload=image.can_preload, has_list=has_one)
            by_image = f"{by_image}: {remedy}"
        elif used:
            remedy = self.preload.remedy(folders, can_preload=True, has_list=has_one)
            past = f"{past}, by a driver of its image's own, {shown(used)}: {remedy}"
        return past, by_image

    def _untested(self, entries: list[CheckpointEntry], now: ContainerIsolation) -> str:
        """Return why the self-test does not vouch for a container's limits; empty where it does, or need not."""
        if self.selftest is None or now.state == "off":
            return ""
        cards = sorted({card_of(one) for entry in entries for one in entry.device_ids})
        if now.state == "enforced" or self.selftest.stops_programs(cards):
            return self.selftest.why_degraded(cards)
        return ""
