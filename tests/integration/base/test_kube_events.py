from collections.abc import Iterator

import pytest
from integration.kube_stub import Fault, Json, KubeStub

from edgegpu_base.kube import EventRecorder, KubeClient, KubeObjects, PodRef

POD = PodRef(namespace="default", name="p", uid="uid-p")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def stub() -> Iterator[KubeStub]:
    with KubeStub() as running:
        yield running


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recorder(stub: KubeStub, clock: Clock) -> Iterator[EventRecorder]:
    client = KubeClient(stub.access)
    yield EventRecorder(KubeObjects(client), host="box-1", clock=clock, wall_s=clock)
    client.close()


def events(stub: KubeStub) -> list[Json]:
    return list(stub.store.objects["events"].values())


def test_an_event_names_its_pod_and_source(stub: KubeStub, recorder: EventRecorder) -> None:
    recorder.record(POD, reason="CardRefused", message="card 0 has 3 free")
    (event,) = events(stub)
    assert event["involvedObject"]["uid"] == "uid-p"
    assert event["source"] == {"component": "edgegpu", "host": "box-1"}
    assert (event["type"], event["count"], event["firstTimestamp"]) == ("Warning", 1, "1970-01-01T00:16:40Z")


def test_what_is_said_again_is_counted_once_a_minute(stub: KubeStub, recorder: EventRecorder, clock: Clock) -> None:
    for _ in range(10):
        recorder.record(POD, reason="R", message="m")
        clock.now += 10
    assert [event["count"] for event in events(stub)] == [7]
    assert stub.count("PATCH") == 1


def test_an_event_that_expired_is_said_anew(stub: KubeStub, recorder: EventRecorder, clock: Clock) -> None:
    recorder.record(POD, reason="R", message="m")
    stub.store.objects["events"].clear()
    clock.now += 3600
    recorder.record(POD, reason="R", message="m")
    assert [event["count"] for event in events(stub)] == [1]


def test_a_burst_is_cut_off_and_ends(stub: KubeStub, recorder: EventRecorder, clock: Clock) -> None:
    for index in range(100):
        recorder.record(POD, reason="R", message=f"m{index}")
        clock.now += 0.001
    assert len(events(stub)) == 30
    clock.now += 20
    recorder.record(POD, reason="R", message="later")
    assert len(events(stub)) == 31


def test_a_lost_event_harms_nobody(stub: KubeStub, recorder: EventRecorder, caplog: pytest.LogCaptureFixture) -> None:
    stub.faults.append(Fault("POST", 500))
    recorder.record(POD, reason="R", message="m")
    assert "event R of pod default/p is lost" in caplog.text
    recorder.record(POD, reason="R", message="m")
    assert len(events(stub)) == 1
