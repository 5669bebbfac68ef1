"""A thousand boxes that come at once: all are heard, asked, and answered, in few transactions."""

import time
from collections.abc import Callable
from pathlib import Path

from kits.controller import Bed, Killer
from kits.modelbox import ModelBox, box_key, instance_of

from edgegpu_cloud.store.records import BoxRecord
from edgegpu_sync.ids import device_id
from edgegpu_sync.keys import public_text
from edgegpu_sync.rules.sequence import CommandSequence
from edgegpu_sync.topics import TopicKind

MANY = 1_000


def test_a_thousand_births(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    bed = Bed(tmp_path, boxes=0)
    bed.devices = [device_id(f"{number:016d}") for number in range(MANY)]
    with bed.store.write() as tx:
        for device in bed.devices:
            sequence = CommandSequence(enrolment=1, instance=instance_of(device))
            tx.boxes.add(BoxRecord(device=device, name=device, public=public_text(box_key(device)), sequence=sequence))
    bed.network.boxes = {device: ModelBox(bed.world, device) for device in bed.devices}
    bed.controller.step()
    commits = Killer(lambda _: False)
    bed.watcher = commits
    bed.connect_all()
    bed.network.carry()
    bed.network.seen_down.clear()

    begun_s = time.perf_counter()
    while len({topic for topic, _ in bed.network.seen_down if topic.endswith(TopicKind.RECEIPT)}) < MANY:
        bed.controller.step()
    births_per_s = MANY / (time.perf_counter() - begun_s)

    record_property("births_per_s", round(births_per_s))
    assert commits.moments < 40  # a loss of the batches is a thousand
    assert all(view.online for view in bed.fleet.boxes())
