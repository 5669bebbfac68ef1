"""What a box reports of its cluster, put into the store: without it nobody sets limits on the box."""

from edgegpu_cloud.fleet.summaries import refresh
from edgegpu_cloud.store.records import Latest
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.topics import TopicKind

CLUSTER = "3c8f2c55-0d0e-4a57-9a0e-1f8d2f7c9b11"
NOW_S = 1_790_000_000.0


def tell_cluster(store: ControllerStore, device: DeviceId, *, holder: bool = False, cluster: str = CLUSTER) -> None:
    """Store a box's report of its cluster, and whether the box keeps the cluster's limits."""
    stamp = Stamp(enrolment=1, epoch=Epoch(1, "0" * 16), n=1)
    body = {"cluster": cluster, "items": {}, "holder": holder}
    report = Latest(device=device, kind=TopicKind.REPORTED, stamp=stamp, at_s=NOW_S, body=body)
    with store.write() as tx:
        tx.boxes.add_latest([report])
        refresh(tx, tx.boxes.get([device]).values(), heard={device: {report.kind: report}})
