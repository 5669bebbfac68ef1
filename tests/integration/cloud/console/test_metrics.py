"""`/metrics`: the fleet's numbers, the durations by route, who may read them, and what they cost."""

import pytest
from kits.console import ConsoleSite
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from edgegpu_cloud.console.visitor import Visitor
from edgegpu_cloud.fleet.numbers import FRESH_S
from edgegpu_cloud.store.notes import Refusal
from edgegpu_cloud.store.people.records import Role


def client(site: ConsoleSite, token: str = "") -> TestClient:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return TestClient(site.app, base_url="https://console", headers=headers, follow_redirects=False)


def values(text: str) -> dict[str, float]:
    """Return the value of each sample, by its name and labels."""
    return {
        f"{one.name}{{{','.join(f'{key}={value}' for key, value in sorted(one.labels.items()))}}}": one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def test_the_fleet_is_counted(site: ConsoleSite) -> None:
    site.connect(site.add(1, "hall-1", site="hall"))
    site.add(2, "hall-2", site="hall")
    assert site.api("otto").post("/boxes/hall-1/commands", json={"op": "doctor.run"}).status_code == 202
    with site.store.write() as tx:
        tx.notes.ingested(3, 7)
        tx.notes.ingested(4, 5)
        tx.notes.refused(Refusal.THROTTLED, 31)
    answer = client(site, "egt_vera").get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = values(answer.text)
    states = ("edgegpu_boxes{state=online}", "edgegpu_boxes{state=offline}", "edgegpu_boxes{state=ignored}")
    assert [found[one] for one in states] == [1, 1, 0]
    assert found["edgegpu_commands{state=WAITING}"] == 1
    assert (found["edgegpu_messages_ingested_total{}"], found["edgegpu_alerts_firing{}"]) == (12, 0)
    refused = "edgegpu_enrolments_refused_total{how=%s}"
    assert [found[refused % how] for how in ("alarmed", "throttled")] == [0, 31]
    assert "process_resident_memory_bytes{}" in found
    assert "hall" not in answer.text


def test_requests_are_counted_by_the_template_of_their_route(site: ConsoleSite) -> None:
    site.add(1, "hall-1", site="hall")
    for path in ("/boxes/hall-1", "/boxes/none-1", "/boxes/none-2", "/no/such"):
        site.api().get(path)
    client(site).request("PURGE", "/wp-admin")
    found = values(client(site, "egt_vera").get("/metrics").text)
    name = "edgegpu_http_request_duration_seconds_count"
    counted = {one.removeprefix(name): value for one, value in found.items() if one.startswith(name)}
    assert counted["{method=GET,route=/api/v1/boxes/{box},status=2xx}"] == 1
    assert counted["{method=GET,route=/api/v1/boxes/{box},status=4xx}"] == 2
    assert "none" not in "".join(counted)
    assert "wp-admin" not in "".join(counted)


@pytest.mark.parametrize(
    ("token", "status"), [("", 401), ("egt_nobody", 401), ("egt_hal", 403), ("egt_vera", 200), ("egt_anna", 200)]
)
def test_who_sees_all_boxes_reads_them(site: ConsoleSite, token: str, status: int) -> None:
    site.api_tokens["egt_hal"] = Visitor(name="hal", role=Role.ADMIN, csrf="", scope="site=hall")
    assert client(site, token).get("/metrics").status_code == status


def test_a_named_address_reads_them_without_a_token(site: ConsoleSite) -> None:
    site.metrics_from = ("10.1.0.0/16", "192.0.2.7/32")
    site.use(site.signed_in)
    for address, status in (("10.1.2.3", 200), ("192.0.2.7", 200), ("10.2.0.1", 401), ("testclient", 401)):
        asked = TestClient(site.app, base_url="https://console", client=(address, 50_000), follow_redirects=False)
        assert asked.get("/metrics").status_code == status, address


def test_the_database_is_asked_once_in_a_while(site: ConsoleSite) -> None:
    asked = client(site, "egt_vera")
    assert values(asked.get("/metrics").text)["edgegpu_boxes{state=offline}"] == 0
    site.add(1, "hall-1", site="hall")
    assert values(asked.get("/metrics").text)["edgegpu_boxes{state=offline}"] == 0
    site.now_s += FRESH_S
    assert values(asked.get("/metrics").text)["edgegpu_boxes{state=offline}"] == 1
