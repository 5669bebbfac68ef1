"""The boxes of `edgegpu_sim.manyboxes` behind a console's store, which has what they say as a controller stores it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box, held_spec
from edgegpu_cloud.fleet.operations.outcomes import settle_items
from edgegpu_cloud.fleet.views import reported_items
from edgegpu_cloud.store.records import EnrolledBox, Latest
from edgegpu_sim.manyboxes.enrolled import devices_of
from edgegpu_sim.manyboxes.profiles import Profile, shop_floor_box
from edgegpu_sim.manyboxes.simbox import Said, SimBox, instance_of, public_of
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.topics import TopicKind, parse

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kits.console import ConsoleSite

    from edgegpu_sync.ids import DeviceId


class ManyBoxes:
    """Boxes of a shop floor: each has enrolled, has said what it has, and is connected unless its profile says no."""

    def __init__(self, site: ConsoleSite, number: int, *, offline: Collection[DeviceId] = ()) -> None:
        """Enrol so many boxes in the console's store, in one transaction.

        Args:
            site: the console.
            number: of boxes.
            offline: boxes that have left, beside those whose profile leaves.
        """
        self.site = site
        self.boxes = {device: SimBox(device, shop_floor_box(int(device))) for device in devices_of(number)}
        self.offline = {device for device, box in self.boxes.items() if box.profile.leaves} | set(offline)
        with site.store.write() as tx:
            for device, box in self.boxes.items():
                add_box(tx, _enrolled(device, box.profile), Author("setup", site.now_s))
            records = tx.boxes.get(list(self.boxes))
            tx.boxes.put(
                [replace(one, online=one.device not in self.offline, seen_at_s=site.now_s) for one in records.values()]
            )
        for box in self.boxes.values():
            box.will()
        self.report({device: [box.birth(), *box.measurements()] for device, box in self.boxes.items()})
        self.report({device: [box.reported()] for device, box in self.boxes.items()})

    def profiles(self, *, connected: bool = False) -> list[Profile]:
        """Return what the boxes are, in the order of their names; the connected ones alone, if asked for."""
        boxes = [box for device, box in self.boxes.items() if not (connected and device in self.offline)]
        return sorted((box.profile for box in boxes), key=lambda one: one.name)

    def apply(self) -> int:
        """Let each connected box apply what is requested of it, and report it; return how many had something to do."""
        with self.site.store.read() as tx:
            records = tx.boxes.get(list(self.boxes))
            specs = {device: (box.spec_rev, held_spec(tx, box).to_json()) for device, box in records.items()}
        said = {
            device: self.boxes[device].desired(b"signature\n" + json.dumps({"rev": rev, "spec": spec}).encode())
            for device, (rev, spec) in specs.items()
            if device not in self.offline
        }
        changed = {device: messages for device, messages in said.items() if messages}
        self.report(changed)
        return len(changed)

    def report(self, said: Mapping[DeviceId, Iterable[Said]]) -> None:
        """Store messages of boxes, as heard now, and how far they have applied what is requested."""
        heard = {device: [self._latest(device, one) for one in messages] for device, messages in said.items()}
        self.site.hear(heard)
        bodies = {device: one.body for device, of in heard.items() for one in of if one.kind is TopicKind.REPORTED}
        with self.site.store.write() as tx:
            records = tx.boxes.get(list(bodies))
            tx.boxes.put_state(
                replace(box, observed_rev=bodies[device]["observed_rev"], applied_rev=bodies[device]["applied_rev"])
                for device, box in records.items()
            )
            settle_items(tx, {device: reported_items(body) for device, body in bodies.items()})

    def _latest(self, device: DeviceId, said: Said) -> Latest:
        topic, payload, _ = said
        body: dict[str, Any] = json.loads(payload.partition(b"\n")[2])
        stamp = Stamp(enrolment=body["enrolment"], epoch=Epoch(**body["epoch"]), n=body["n"])
        return Latest(device=device, kind=parse(topic).kind, stamp=stamp, at_s=self.site.now_s, body=body)


def _enrolled(device: DeviceId, of: Profile) -> EnrolledBox:
    return EnrolledBox(
        device=device,
        enrolment=1,
        public=public_of(device),
        instance=instance_of(device),
        name=of.name,
        labels=dict(of.labels),
        host=f"{of.name}.example.com",
    )
