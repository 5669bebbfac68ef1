"""Idempotency-Key at each POST that makes something: once made, answered again, refused under another request."""

import pytest
from kits.console import ConsoleSite

KEY = "9d1e1a52-7b0e-4c3f-8a9e-000000000001"
ALL = {"all": True}
SPREAD = {**ALL, "change": {"kind": "sharing", "policy": "spread"}}
MAKING: tuple[tuple[str, dict[str, object], dict[str, object]], ...] = (
    ("/boxes/hall-1/commands", {"op": "doctor.run"}, {"op": "inventory.refresh"}),
    ("/enrolment/tokens", {"name": "hall-9"}, {"name": "hall-8"}),
    ("/operations", {**ALL, "change": {"kind": "install"}}, {**ALL, "change": {"kind": "uninstall"}}),
    ("/boxes/hall-1/evidence/check", {}, {}),
    ("/rollouts", SPREAD, {**SPREAD, "change": {"kind": "sharing", "unit_mib": 512}}),
)
"""Each POST that makes something, a body, and another one."""


@pytest.fixture(autouse=True)
def hall(site: ConsoleSite) -> None:
    site.connect(site.add(1, "hall-1", site="hall"))


@pytest.mark.parametrize(("path", "body", "other"), [one for one in MAKING if one[1]], ids=lambda one: str(one)[:30])
def test_the_same_request_is_done_once(
    site: ConsoleSite, path: str, body: dict[str, object], other: dict[str, object]
) -> None:
    client, headers = site.api("otto"), {"idempotency-key": KEY}
    first, again, quoted = (
        client.post(path, json=body, headers={"idempotency-key": key}) for key in (KEY, KEY, f'"{KEY}"')
    )
    assert first.status_code in {201, 202}, first.text
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert quoted.content == first.content
    assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
    reused = client.post(path, json=other, headers=headers)
    assert (reused.status_code, reused.json()["code"]) == (422, "KEY_REUSED")
    assert client.post(path, json=body, headers={"idempotency-key": "short"}).json()["code"] == "INVALID"
    assert site.api("vera").post(path, json=body, headers=headers).status_code == 403


def test_each_post_that_makes_something_takes_a_key(site: ConsoleSite) -> None:
    paths = site.api().get("/openapi.json").json()["paths"]
    taking = {
        path
        for path, methods in paths.items()
        for one in methods.get("post", {}).get("parameters", ())
        if one["name"] == "idempotency-key"
    }
    assert taking == {path.replace("hall-1", "{box}") for path, _, _ in MAKING}


def test_a_request_that_was_refused_may_be_sent_again_under_its_key(site: ConsoleSite) -> None:
    client, headers = site.api("otto"), {"idempotency-key": KEY}
    refused = client.post("/boxes/hall-2/commands", json={"op": "doctor.run"}, headers=headers)
    assert refused.json()["code"] == "NOT_FOUND"
    site.add(2, "hall-2", site="hall")
    assert client.post("/boxes/hall-2/commands", json={"op": "doctor.run"}, headers=headers).status_code == 202
