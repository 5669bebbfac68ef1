"""Rollouts by the API: planned, started, paged, paused, resumed, aborted; refused where boxes or numbers are wrong."""

import json
from collections.abc import Sequence

import pytest
from kits.console import ConsoleSite, all_items
from kits.details import box, card, reported

from edgegpu_cloud.console.visitor import Visitor
from edgegpu_cloud.store.people.records import Role

SPREAD = {"kind": "sharing", "policy": "spread"}
LIMITS = {"kind": "limits", "namespace": "default", "app": "asr", "container": "main", "memory_units": 4, "core": 1}
TWO_WAVES = {"canary": 1, "sizes": [{"number": 2}]}


@pytest.fixture
def names(site: ConsoleSite) -> Sequence[str]:
    found = [f"box-{number}" for number in range(5)]
    for number, name in enumerate(found):
        site.connect(site.add(number, name, site="hall" if number < 3 else "yard"))
    return found


def test_a_rollout_is_planned_started_and_shown(site: ConsoleSite, names: Sequence[str]) -> None:
    client, wanted = site.api("otto"), {"change": SPREAD, "labels": "site=hall", "strategy": TWO_WAVES}
    plan = client.post("/rollouts/preview", json={**wanted, "first": ["box-2"]}).json()
    assert [[box["name"] for box in wave["boxes"]] for wave in plan["waves"]] == [["box-2"], ["box-0", "box-1"]]
    assert client.get("/rollouts").json()["items"] == []
    made = client.post("/rollouts", json={**wanted, "expect_boxes": 3})
    assert made.status_code == 201
    shown = client.get(f"/rollouts/{made.json()['number']}").json()
    assert (shown["words"], shown["state"], shown["boxes"], shown["by"]) == (
        "sharing policy spread",
        "RUNNING",
        3,
        "otto",
    )
    assert shown["states"] == {"QUEUED": 3}
    assert shown["strategy"]["sizes"] == [{"number": 2, "percent": False}]
    assert len(names) == 5


def test_a_plan_is_read_in_parts(site: ConsoleSite, names: Sequence[str]) -> None:
    client, wanted = site.api("otto"), {"change": SPREAD, "all": True, "strategy": TWO_WAVES}
    found: list[list[str]] = [[], [], []]
    address: str | None = "/rollouts/preview?limit=2"
    while address:
        plan = client.post(address.removeprefix("/api/v1"), json=wanted).json()
        assert [wave["size"] for wave in plan["waves"]] == [1, 2, 2]
        assert sum(len(wave["boxes"]) for wave in plan["waves"]) <= 2
        for wave, part in zip(found, plan["waves"], strict=True):
            wave += [box["name"] for box in part["boxes"]]
        address = plan["next"]
    assert found == [names[:1], names[1:3], names[3:]]


def test_lists_of_rollouts_and_of_their_boxes_are_paged(site: ConsoleSite, names: Sequence[str]) -> None:
    client = site.api("otto")
    for name in names[:3]:
        assert client.post("/rollouts", json={"change": SPREAD, "boxes": [name]}).status_code == 201
    assert [one["number"] for one in all_items(client, "/rollouts?limit=2")] == [3, 2, 1]
    whole = client.post("/rollouts", json={"change": {"kind": "sharing", "unit_mib": 512}, "boxes": names[3:]}).json()
    assert [
        one["name"] for one in all_items(client, f"/rollouts/{whole['number']}/boxes?limit=1&state=QUEUED")
    ] == names[3:]
    assert all_items(client, f"/rollouts/{whole['number']}/boxes?state=FAILED") == []


def test_a_rollout_is_paused_resumed_and_aborted_once(site: ConsoleSite, names: Sequence[str]) -> None:
    client = site.api("otto")
    number = client.post("/rollouts", json={"change": SPREAD, "boxes": names}).json()["number"]
    states = [client.post(f"/rollouts/{number}/{verb}").json()["state"] for verb in ("pause", "resume")]
    assert states == ["PAUSED", "RUNNING"]
    assert client.post(f"/rollouts/{number}/resume").json()["code"] == "CONFLICT"
    assert client.post(f"/rollouts/{number}/abort", json={"returns": True}).json()["state"] == "ABORTING"
    assert [one["what"] for one in site.api("anna").get("/audit?what=rollout").json()["items"]] == [
        "rollout.aborted",
        "rollout.resumed",
        "rollout.paused",
        "rollout.started",
    ]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"change": SPREAD}, 400, "BAD_REQUEST"),
        ({"change": SPREAD, "all": True, "labels": "site=hall"}, 400, "BAD_REQUEST"),
        ({"change": SPREAD, "all": True, "expect_boxes": 4}, 409, "CONFLICT"),
        ({"change": SPREAD, "boxes": ["nobody"]}, 404, "NOT_FOUND"),
        ({"change": SPREAD, "labels": "=="}, 422, "REFUSED"),
        ({"change": {"kind": "sharing"}, "all": True}, 422, "REFUSED"),
        ({"change": {**LIMITS, "app": "no app!"}, "all": True}, 422, "REFUSED"),
        ({"change": {"kind": "none"}, "all": True}, 422, "INVALID"),
        (
            {"change": {"kind": "upgrade", "version": "1", "url": "x", "sha256": "y", "signature": ""}, "all": True},
            422,
            "REFUSED",
        ),
        ({"change": SPREAD, "all": True, "strategy": {"canary": -1}}, 422, "INVALID"),
        ({"change": SPREAD, "all": True, "strategy": {"sizes": [{"number": 101, "percent": True}]}}, 422, "REFUSED"),
    ],
)
def test_what_cannot_be_rolled_out_starts_nothing(
    site: ConsoleSite, names: Sequence[str], body: dict[str, object], status: int, code: str
) -> None:
    client = site.api("otto")
    refused = client.post("/rollouts", json=body)
    assert (refused.status_code, refused.json()["code"]) == (status, code), refused.text
    assert client.get("/rollouts").json()["items"] == []
    assert names


def test_a_rollout_with_boxes_out_of_scope_does_not_exist(site: ConsoleSite, names: Sequence[str]) -> None:
    number = site.api("otto").post("/rollouts", json={"change": SPREAD, "boxes": names}).json()["number"]
    site.api_tokens["egt_yann"] = Visitor(name="yann", role=Role.ADMIN, csrf="", scope="site=yard")
    client = site.api("yann")
    for method, path in (("GET", ""), ("GET", "/boxes"), ("POST", "/pause")):
        assert client.request(method, f"/rollouts/{number}{path}").status_code == 404
    assert client.get("/rollouts").json()["items"] == []
    assert client.post("/rollouts", json={"change": LIMITS, "all": True}).json()["boxes"] == 2


def test_a_box_of_a_rollout_names_those_boxes_of_its_cluster_that_are_in_scope(site: ConsoleSite) -> None:
    devices = {}
    for number, (name, where) in enumerate((("h-1", "hall"), ("h-2", "hall"), ("y-1", "yard"))):
        devices[name] = site.add(number, name, site=where)
        site.report(devices[name], reported(box(name, (card("0"),), {}), holder=name == "h-1"))
        site.connect(devices[name])
    site.api_tokens["egt_hana"] = Visitor(name="hana", role=Role.OPERATOR, csrf="", scope="site=hall")
    number = site.api("hana").post("/rollouts", json={"change": LIMITS, "boxes": ["h-1"]}).json()["number"]
    of = {
        who: sorted(site.api(who).get(f"/rollouts/{number}/boxes").json()["items"][0]["others"])
        for who in ("hana", "anna")
    }
    assert of == {"hana": [devices["h-2"]], "anna": [devices["h-2"], devices["y-1"]]}


@pytest.mark.parametrize("value", [0.0, 1, "yes"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/rollouts", {"change": {**LIMITS, "force": "VALUE"}, "all": True}),
        ("/rollouts", {"change": SPREAD, "all": "VALUE"}),
        ("/rollouts", {"change": SPREAD, "all": True, "strategy": {"sizes": [{"number": 2, "percent": "VALUE"}]}}),
        ("/enrolment/tokens", {"uses": 1, "approval": "VALUE"}),
    ],
    ids=["force", "all", "percent", "approval"],
)
def test_what_is_no_boolean_is_not_taken_for_one(
    site: ConsoleSite, names: Sequence[str], path: str, body: dict[str, object], value: object
) -> None:
    sent = json.loads(json.dumps(body).replace('"VALUE"', json.dumps(value)))
    refused = site.api("anna").post(path, json=sent)
    assert (refused.status_code, refused.json()["code"]) == (422, "INVALID"), refused.text
    assert names
