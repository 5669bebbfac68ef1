"""Webhooks made in the console and by the API: shown once, tested, disabled, deleted, by admins of all boxes alone."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import pytest
from kits.webhooks import receiving

from edgegpu_cloud.alerts.service import AlertTask
from edgegpu_cloud.alerts.webhook import signature
from edgegpu_cloud.console.visitor import Visitor
from edgegpu_cloud.layout import MOST_RECEIVERS, AlertConfig, WebhookConfig
from edgegpu_cloud.store.people.records import Role

if TYPE_CHECKING:
    from pathlib import Path

    from kits.console import ConsoleSite
    from starlette.testclient import TestClient

URL = "https://hooks.example.com/PRIVATE?key=PRIVATE"
FORM = {"csrf": "csrf-of-anna"}


def words(text: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text[text.index("<main") :])).split())


def post(client: TestClient, path: str, **form: str) -> str:
    answer = client.post(path, data={**FORM, **form}, follow_redirects=True)
    assert answer.status_code == 200, answer.text
    return str(answer.text)


def made(site: ConsoleSite, url: str = URL) -> tuple[str, str]:
    """Return the id and the secret of a new webhook."""
    body = site.api().post("/alerts/webhooks", json={"url": url}).json()
    return body["id"], body["secret"]


def test_a_webhook_is_made_and_its_secret_and_address_are_shown_once(site: ConsoleSite) -> None:
    with site.client() as client:
        assert "Nobody is told of alerts." in words(client.get("/alerts/webhooks").text)
        page = post(client, "/alerts/webhooks", url=f" {URL} ")
        (secret,) = re.findall(r"<pre><code>([0-9a-f]{64})</code></pre>", page)
        assert "hooks.example.com" in page
        for path in ("/alerts/webhooks", "/alerts", "/audit"):
            text = client.get(path).text
            assert "hooks.example.com" in text
            assert secret not in text
            assert "PRIVATE" not in text
    api = site.api().get("/alerts/webhooks")
    assert (secret in api.text, "PRIVATE" in api.text) == (False, False)
    assert site.api().get("/alerts/webhook").json()["receivers"] == ["hooks.example.com"]


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.com/PRIVATE",
        "",
        "https://",
        "https://hooks.example.com:99999/",
        "<script>alert(1)</script>",
    ],
)
def test_an_address_that_can_be_none_is_refused_with_what_to_do(site: ConsoleSite, url: str) -> None:
    with site.client() as client:
        answer = client.post("/alerts/webhooks", data={**FORM, "url": url})
    assert answer.status_code == 400
    assert "this is no HTTPS address of a receiver" in words(answer.text)
    assert "give an address as https://hooks.example.com/PATH" in words(answer.text)
    assert "<script>alert" not in answer.text
    refused = site.api().post("/alerts/webhooks", json={"url": url})
    assert (refused.status_code, refused.json()["code"]) == (422, "REFUSED")


def test_the_same_address_and_one_too_many_are_refused(site: ConsoleSite) -> None:
    made(site)
    api = site.api()
    again = api.post("/alerts/webhooks", json={"url": URL})
    assert (again.status_code, again.json()["code"]) == (409, "CONFLICT")
    for number in range(1, MOST_RECEIVERS):
        made(site, f"https://hooks.example.com/{number}")
    more = api.post("/alerts/webhooks", json={"url": "https://hooks.example.com/more"})
    assert (more.status_code, "there are 8" in more.json()["detail"]) == (422, True)


def test_one_is_tested_disabled_enabled_and_deleted_after_a_confirmation(site: ConsoleSite) -> None:
    id_, _ = made(site)
    with site.client() as client:
        assert "1 waits" in words(post(client, f"/alerts/webhooks/{id_}/test"))
        page = words(post(client, f"/alerts/webhooks/{id_}/disable", disabled="yes"))
        assert "Disabled" in page
        assert "1 waits" not in page
        assert site.api().get("/alerts/webhook").json()["receivers"] == []
        refused = client.post(f"/alerts/webhooks/{id_}/test", data=FORM)
        assert refused.status_code == 400
        assert "this webhook is disabled" in words(refused.text)
        assert "Active" in words(post(client, f"/alerts/webhooks/{id_}/disable"))
        asked = words(post(client, f"/alerts/webhooks/{id_}/delete"))
        assert "Delete the webhook to hooks.example.com?" in asked
        assert len(site.api().get("/alerts/webhooks").json()) == 1
        assert "Nobody is told of alerts." in words(post(client, f"/alerts/webhooks/{id_}/delete", confirmed="yes"))
        assert client.get(f"/alerts/webhooks/{id_}/delete").status_code == 404
    assert site.api().delete(f"/alerts/webhooks/{id_}").status_code == 404


def test_an_admin_of_some_boxes_and_an_operator_see_none(site: ConsoleSite) -> None:
    id_, _ = made(site)
    for name, role, scope in (("part", Role.ADMIN, "site=hall"), ("op", Role.OPERATOR, "")):
        site.signed_in.table[name] = Visitor(name=name, role=role, csrf=f"csrf-of-{name}", scope=scope)
        client = site.client(name)
        assert client.get("/alerts/webhooks").status_code == 403
        assert client.post(f"/alerts/webhooks/{id_}/delete", data={"csrf": f"csrf-of-{name}"}).status_code == 403
        assert "hooks.example.com" not in client.get("/alerts").text


def test_messages_to_it_are_signed_by_its_own_secret(site: ConsoleSite, tmp_path: Path) -> None:
    with receiving(tmp_path) as receiver:
        id_, secret = made(site, receiver.url)
        site.api().post(f"/alerts/webhooks/{id_}/test")
        config = AlertConfig(webhook=WebhookConfig(allow_local=True, ca=receiver.ca))
        AlertTask(site.store, config, controller="c", clock=lambda: site.now_s).send()
        ((headers, body),) = receiver.got
    assert headers["x-edgegpu-signature"] == signature(secret, body, at_s=int(headers["x-edgegpu-timestamp"]))
    assert site.api().get("/alerts/webhooks").json()[0]["waiting"] == 0


def test_an_address_that_the_file_has_too_gets_each_message_once(site: ConsoleSite) -> None:
    made(site)
    hook = WebhookConfig(urls=(URL,), secret="a secret of sixteen")  # noqa: S106
    site.alert_config = AlertConfig(webhook=hook)
    assert site.api().post("/alerts/webhook/test").json()["waiting"] == 1
