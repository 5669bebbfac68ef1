"""Operations, alerts and evidence by the API: started, listed, cancelled, silenced, checked; within the scope."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from kits.console import NOW_S, ConsoleSite, all_items
from kits.details import box, card, pod, reported, saying

from edgegpu_cloud.console.visitor import Visitor
from edgegpu_cloud.fleet.operations.runner import OperationRunner
from edgegpu_cloud.store.people.records import Role
from edgegpu_sync.topics import TopicKind

DOCTOR = {"kind": "command", "op": "doctor.run"}


@pytest.fixture(autouse=True)
def boxes(site: ConsoleSite) -> Sequence[str]:
    return [site.add(number, f"box-{number}", site="hall" if number < 3 else "yard") for number in range(5)]


def test_an_operation_is_started_followed_and_listed(site: ConsoleSite) -> None:
    client = site.api("otto")
    made = client.post("/operations", json={"change": DOCTOR, "labels": "site=hall"})
    assert (made.status_code, made.json()["boxes"], made.json()["outcomes"]) == (202, 3, {"QUEUED": 3})
    runner = OperationRunner(site.store, clock=site.clock)
    while runner.step():
        pass
    path = f"/operations/{made.json()['id']}"
    shown = client.get(path).json()
    assert (shown["state"], shown["outcomes"], shown["settled"]) == ("DONE", {"STORED": 3}, False)
    found = all_items(client, f"{path}/boxes?limit=2&outcome=STORED")
    assert sorted(one["name"] for one in found) == ["box-0", "box-1", "box-2"]
    assert all(client.get(f"/commands/{one['command']}").json()["op"] == "doctor.run" for one in found)
    assert all_items(client, f"{path}/boxes?outcome=REFUSED") == []
    assert client.post(f"{path}/cancel").json()["code"] == "CONFLICT"


def test_a_change_of_many_boxes_is_stored_five_hundred_at_a_time(site: ConsoleSite) -> None:
    for number in range(10, 507):
        site.add(number, f"many-{number}")
    client = site.api("otto")
    made = client.post("/operations", json={"change": DOCTOR, "all": True}).json()
    assert made["boxes"] == 502
    assert OperationRunner(site.store, clock=site.clock).step()
    assert client.get(f"/operations/{made['id']}").json()["outcomes"] == {"STORED": 500, "QUEUED": 2}


def test_operations_are_paged_and_one_that_waits_is_cancelled(site: ConsoleSite) -> None:
    client, ids = site.api("otto"), []
    for _ in range(3):
        ids.append(client.post("/operations", json={"change": {"kind": "install"}, "all": True}).json()["id"])
        site.now_s += 1
    assert [one["id"] for one in all_items(client, "/operations?limit=2")] == ids[::-1]
    cancelled = client.post(f"/operations/{ids[0]}/cancel").json()
    assert (cancelled["state"], cancelled["outcomes"]) == ("CANCELLED", {"CANCELLED": 5})


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"change": DOCTOR}, 400),
        ({"change": DOCTOR, "all": True, "labels": "site=hall"}, 400),
        ({"change": DOCTOR, "labels": "site=nowhere"}, 404),
        ({"change": DOCTOR, "devices": ["f" * 16]}, 404),
        ({"change": DOCTOR, "devices": ["f" * 16], "askable": True}, 400),
        ({"change": {"kind": "command", "op": "no.such"}, "all": True}, 422),
        ({"change": {"kind": "sharing"}, "all": True}, 422),
    ],
)
def test_what_cannot_be_done_stores_nothing(site: ConsoleSite, body: dict[str, object], status: int) -> None:
    client = site.api("otto")
    assert client.post("/operations", json=body).status_code == status
    assert all_items(client, "/operations") == []


def test_boxes_that_cannot_be_asked_are_left_out_where_that_is_asked_for(site: ConsoleSite) -> None:
    site.api("anna").post("/boxes/box-0/revoke", json={"confirm": "box-0"})
    client, hall = site.api("otto"), {"change": DOCTOR, "labels": "site=hall"}
    assert client.post("/operations", json={**hall, "askable": True}).json()["boxes"] == 2
    assert client.post("/operations", json={"change": DOCTOR, "all": True, "askable": True}).json()["boxes"] == 4
    assert client.post("/operations", json=hall).json()["boxes"] == 3


def test_operations_and_alerts_out_of_scope_do_not_exist(site: ConsoleSite, boxes: Sequence[str]) -> None:
    made = site.api("otto").post("/operations", json={"change": DOCTOR, "devices": boxes}).json()
    alarm(site, boxes[0])
    site.api_tokens["egt_yann"] = Visitor(name="yann", role=Role.ADMIN, csrf="", scope="site=yard")
    client = site.api("yann")
    assert client.get(f"/operations/{made['id']}").status_code == 404
    assert all_items(client, "/operations") == all_items(client, "/alerts") == []
    assert client.get("/boxes/box-0/evidence").status_code == 404
    assert client.post("/operations", json={"change": DOCTOR, "all": True}).json()["boxes"] == 2


def alarm(site: ConsoleSite, device: str, *, number: int = 0) -> None:
    values = {"kind": "drift", "device": device, "about": f"limits/{number}", "text": "written back"}
    times = {"since_s": NOW_S, "firing_at_s": NOW_S, "clear_since_s": None, "resolved_at_s": None}
    silence = {"silenced_until_s": 0.0, "silenced_by": ""}
    with site.store.write() as tx:
        tx.alerts.add([{**values, **times, **silence, "open_key": f"drift/{device}/{number}"}])


def test_alerts_are_paged_and_silenced(site: ConsoleSite, boxes: Sequence[str]) -> None:
    client = site.api("otto")
    for number in range(3):
        alarm(site, boxes[0], number=number)
    found = all_items(client, "/alerts?limit=2&box=box-0&kind=drift")
    assert [one["about"] for one in found] == ["limits/2", "limits/1", "limits/0"]
    assert {one["box"] for one in found} == {"box-0"}
    assert all_items(client, "/alerts?box=box-1") == all_items(client, "/alerts?state=over") == []
    assert client.post(f"/alerts/{found[0]['number']}/silence", json={"for_s": 60}).status_code == 204
    assert all_items(client, "/alerts?state=all")[0]["silenced_by"] == "otto"
    assert client.post("/alerts/999/silence", json={"for_s": 60}).status_code == 404


def test_evidence_says_why_a_box_cannot_be_asked(site: ConsoleSite, boxes: Sequence[str]) -> None:
    pods = {"u1": pod("asr-5d98c8c9f7-zfpmp", ("main", "0", 10, 1))}
    site.report(boxes[0], box("box-0", (card("0"),), pods))  # type: ignore[arg-type]
    client = site.api("otto")
    shown = client.get("/boxes/box-0/evidence").json()
    assert [(one["pod"], one["cards"], one["checked"]) for one in shown["containers"]] == [
        ("asr-5d98c8c9f7-zfpmp", ["0"], None)
    ]
    assert shown["cannot"] == "the box is offline"
    refused = client.post("/boxes/box-0/evidence/check").json()
    assert (refused["code"], "offline" in refused["detail"]) == ("REFUSED", True)


ASR = {"kind": "limits", "namespace": "default", "app": "asr", "memory_units": 4, "core": 1}


def test_settings_of_sharing_are_previewed_page_by_page(site: ConsoleSite, boxes: Sequence[str]) -> None:
    for number, device in enumerate(boxes[:3]):
        site.report(device, box(f"box-{number}", (card("0"),), {}, policy="spread"))  # type: ignore[arg-type]
    client = site.api("vera")
    change = {"kind": "sharing", "policy": "spread", "unit_mib": 512}
    found = [client.post("/operations/preview?limit=2", json={"change": change, "devices": boxes[:4]}).json()]
    while path := found[-1]["next"]:
        wanted = {"change": change, "devices": boxes[:4]}
        found.append(client.post(path.removeprefix("/api/v1"), json=wanted).json())
    items = [one for page in found for one in page["items"]]
    assert [len(page["items"]) for page in found] == [2, 2]
    assert [one["name"] for one in items] == [f"box-{number}" for number in range(4)]
    known = {name: one["answer"] for name, one in items[0]["settings"].items()}
    assert known == {"policy": "as_it_is", "unit_size": "changed"}
    assert (items[3]["settings"], "has not told yet" in items[3]["text"]) == (None, True)
    assert {one["preview"] for one in items} == {None}
    for wrong in ({"policy": "random"}, {}):
        refused = client.post("/operations/preview", json={"change": {"kind": "sharing", **wrong}, "all": True})
        assert refused.status_code == 422
    once = {"change": change, "all": True, "one_of_each_cluster": True}
    assert client.post("/operations/preview", json=once).status_code == 422


def test_limits_are_previewed_page_by_page_for_one_box_of_each_cluster(site: ConsoleSite, boxes: Sequence[str]) -> None:
    pods = {"u1": pod("asr-5d98c8c9f7-zfpmp", ("main", "0", 2, 1))}
    for number, device in enumerate(boxes):
        said = box(f"box-{number}", (card("0"),), pods if number == 1 else {})
        told = reported(said, cluster=f"{number // 2:036d}", holder=number % 2 == 0)
        site.report(device, told)  # type: ignore[arg-type]
        site.connect(device)  # type: ignore[arg-type]
    client, wanted = site.api("vera"), {"change": ASR, "all": True, "one_of_each_cluster": True}
    found = [client.post("/operations/preview?limit=2", json=wanted).json()]
    while path := found[-1]["next"]:
        found.append(client.post(path.removeprefix("/api/v1"), json=wanted).json())
    assert [one["container"] for one in found] == ["main", "main"]
    assert [one["name"] for page in found for one in page["items"]] == ["box-0", "box-2", "box-4"]
    assert {one["preview"]["answer"] for page in found for one in page["items"]} == {"fits"}
    named = client.post("/operations/preview", json={"change": ASR, "devices": boxes}).json()
    assert [one["name"] for one in named["items"]] == [f"box-{number}" for number in range(5)]
    started = site.api("otto").post("/operations", json=wanted).json()
    assert (started["boxes"], started["args"]["container"]) == (3, "main")
    assert started["filter"] == {"one_of_each_cluster": True}
    shown = site.api("otto").get(f"/operations/{started['id']}/boxes").json()["items"]
    assert [one["name"] for one in shown] == ["box-0", "box-2", "box-4"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/preview", {"change": ASR}, 400),
        ("/preview", {"change": ASR, "devices": ["f" * 16]}, 404),
        ("/preview", {"change": ASR, "devices": ["f" * 16], "one_of_each_cluster": True}, 400),
        ("/preview", {"change": ASR, "labels": "(("}, 422),
        ("/preview", {"change": {"kind": "install"}, "all": True}, 422),
        ("/preview", {"change": {**ASR, "app": "a\0b"}, "all": True}, 422),
        ("/preview", {"change": {**ASR, "app": "-" * 253}, "all": True}, 422),
        ("/preview", {"change": {**ASR, "container": "\0"}, "all": True}, 422),
        ("/preview", {"change": {**ASR, "memory_units": 10**30}, "all": True}, 422),
        ("/preview?cursor=%00", {"change": ASR, "all": True}, 200),
        ("/preview?limit=201", {"change": ASR, "all": True}, 422),
        ("", {"change": {"kind": "install"}, "all": True, "one_of_each_cluster": True}, 422),
        ("", {"change": ASR, "labels": "site=nowhere", "one_of_each_cluster": True}, 404),
    ],
)
def test_wrong_requests_for_limits_of_many_boxes_are_told(
    site: ConsoleSite, path: str, body: dict[str, object], status: int
) -> None:
    assert site.api("otto").post(f"/operations{path}", json=body).status_code == status
    assert all_items(site.api(), "/operations") == []


def test_what_commands_have_brought_back_is_there_where_it_is_asked_for(site: ConsoleSite) -> None:
    client = site.api("otto")
    made = client.post("/operations", json={"change": DOCTOR, "labels": "site=hall"}).json()
    OperationRunner(site.store, clock=site.clock).step()
    path = f"/operations/{made['id']}/boxes"
    one = client.get(path).json()["items"][0]
    with site.store.write() as tx:
        command = tx.commands.get([one["command"]])[one["command"]]
        tx.commands.put([replace(command, data={"level": "ok"})])
    assert [row["data"] for row in client.get(f"{path}?data=true").json()["items"]] == [{"level": "ok"}, None, None]
    assert [row["data"] for row in client.get(path).json()["items"]] == [None] * 3
    site.api_tokens["egt_yann"] = Visitor(name="yann", role=Role.ADMIN, csrf="", scope="site=yard")
    assert site.api("yann").get(f"{path}?data=true").status_code == 404


@pytest.mark.parametrize("args", ['{"x": NaN}', '{"x": 1e999}', '{"x": "\\ud800"}', '{"x": {"\\ud800": 1}}'])
def test_arguments_that_cannot_be_sent_are_refused(site: ConsoleSite, boxes: Sequence[str], args: str) -> None:
    odd = saying(box("box-0"), TopicKind.STATUS, state="birth", capabilities=["model.load"])
    site.report(boxes[0], odd)  # type: ignore[arg-type]
    body, headers = f'{{"op": "model.load", "args": {args}}}', {"content-type": "application/json"}
    answer = site.api("otto").post("/boxes/box-0/commands", content=body, headers=headers)
    assert (answer.status_code, "no JSON that can be sent" in answer.json()["detail"]) == (422, True)
    assert all_items(site.api(), "/commands") == []
