"""Alerts of a fleet: what begins and ends one, and the webhook that is told, whatever its receiver does."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from kits.cert import Authority
from kits.cloudcli import run
from kits.controller import Bed
from kits.ownnetwork import in_own_network
from kits.webhooks import SECRET, Receiver, receiving
from pydantic import ValidationError

from edgegpu_cloud.alerts.findings import OwnCertificate, own_certificates
from edgegpu_cloud.alerts.rules import AlertKind
from edgegpu_cloud.alerts.service import GIVEN_UP_S, Alerts, AlertTask
from edgegpu_cloud.alerts.webhook import WebhookError, WebhookTarget, post
from edgegpu_cloud.errors import CloudError, NotFoundError
from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.layout import AlertConfig, CloudConfig, CloudLayout, WebhookConfig, dump, load
from edgegpu_cloud.store.alerts.tables import MOST_WAITING, AlertFilter
from edgegpu_cloud.store.records import CertificateRecord
from edgegpu_sync.messages.telemetry import BoxHealth, HealthPart
from edgegpu_sync.messages.uplink import ItemReport, ItemState, Reported
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY_S = 86_400


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    with receiving(tmp_path) as one:
        yield one


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path, boxes=8)
    made.connect_all()
    made.settle(2)
    yield made
    made.store.close()


def config(receiver: Receiver | None = None) -> AlertConfig:
    if receiver is None:
        return AlertConfig()
    return AlertConfig(webhook=WebhookConfig(urls=(receiver.url,), secret=SECRET, allow_local=True, ca=receiver.ca))


def task(bed: Bed, receiver: Receiver | None = None) -> AlertTask:
    return AlertTask(bed.store, config(receiver), controller="controller-1", clock=bed.world.clock)


def alerts(bed: Bed, receiver: Receiver | None = None) -> Alerts:
    return Alerts(bed.store, config(receiver), access=Access("anna"), clock=bed.world.clock)


def look(bed: Bed, of: AlertTask, seconds: float) -> None:
    """Let time go by, and the task look each minute."""
    end_s = bed.world.now_s + seconds
    of.look()
    while bed.world.now_s < end_s:
        bed.settle(60, step_s=20)
        of.look()


def kinds(bed: Bed) -> list[tuple[AlertKind, str, str]]:
    return [(one.alert.kind, one.box, one.alert.about) for one in alerts(bed).list()]


class TestLooks:
    def test_a_box_that_goes_fires_once_and_is_over_when_it_is_back(self, bed: Bed) -> None:
        looks = task(bed)
        look(bed, looks, 60)
        assert kinds(bed) == []
        bed.network.cut_off(bed.devices[0])
        look(bed, looks, 13 * 60)
        assert kinds(bed) == []
        look(bed, looks, 4 * 60)
        assert kinds(bed) == [(AlertKind.OFFLINE, "box-1", "")]
        bed.network.connect(bed.box())
        look(bed, looks, 7 * 60)
        assert kinds(bed) == []
        (over,) = alerts(bed).list(where=AlertFilter(over=True))
        assert over.alert.resolved_at_s is not None

    def test_boxes_that_are_revoked_or_taken_off_do_not_fire(self, bed: Bed) -> None:
        for device in bed.devices[:2]:
            bed.network.cut_off(device)
        bed.fleet.revoke("box-1")
        bed.fleet.forget("box-2")
        looks = task(bed)
        look(bed, looks, 40 * 60)
        assert kinds(bed) == []

    def test_health_refusals_certificates_and_alarms_are_found(self, bed: Bed) -> None:
        box, now_s = bed.box(), bed.world.clock()
        parts = (
            HealthPart(name="cards", state="bad", text="card 1 fell \u202eoff"),
            HealthPart(name="k3s", state="ok"),
        )
        health = {**box._up(), "state": "bad", "parts": parts}  # noqa: SLF001  (the kit's stamp)
        box.say(box.plain(TopicKind.HEALTH), BoxHealth.model_validate(health))
        box.happen("a card fell off the bus", "alarm")
        with bed.store.write() as tx:
            ends = CertificateRecord(
                serial="ab",
                device=bed.devices[1],
                enrolment=1,
                csr_sha256="cd" * 32,
                pem="",
                not_before_s=now_s - 350 * DAY_S,
                not_after_s=now_s + 5 * DAY_S,
            )
            tx.enrolments.add_certificate(ends)
        looks = AlertTask(
            bed.store,
            config(),
            controller="c",
            own=lambda: [
                OwnCertificate("tls/https", now_s + 3 * DAY_S),
                OwnCertificate("ca/boxes", now_s + 400 * DAY_S),
            ],
            clock=bed.world.clock,
        )
        look(bed, looks, 4 * 60)
        assert sorted(kinds(bed)) == [
            (AlertKind.ALARM, "box-1", "card.lost"),
            (AlertKind.BOX_CERTIFICATE, "box-2", ""),
            (AlertKind.OWN_CERTIFICATE, "", "tls/https"),
            (AlertKind.UNHEALTHY, "box-1", "cards"),
        ]
        texts = {one.alert.kind: one.alert.text for one in alerts(bed).list()}
        assert texts[AlertKind.UNHEALTHY] == "cards is bad: card 1 fell ?off"
        (alarm,) = [one for one in bed.fleet.alarms() if one.kind == "card.lost"]
        bed.fleet.alarm_seen(alarm.number)
        look(bed, looks, 60)
        assert AlertKind.ALARM not in {kind for kind, _, _ in kinds(bed)}

    def test_what_is_refused_and_what_somebody_writes_back_is_found(self, bed: Bed) -> None:
        item = {"rev": 1, "hash": "ab" * 8, "retry": 0}
        drifted = {"type": "Drifted", "manager": "argocd", "text": "limits are 2, not 4"}
        reports = {
            "policy": ItemReport.model_validate({**item, "state": ItemState.REJECTED}),
            "unit": ItemReport.model_validate(
                {**item, "state": ItemState.APPLIED, "conditions": [drifted]}, strict=False
            ),
        }
        device = bed.devices[2]
        bed.settle(1)
        with bed.store.read() as tx:
            held = tx.boxes.latest([device], [TopicKind.REPORTED])[device, TopicKind.REPORTED]
        box = bed.box(device)
        body = {**held.body, **box._up(), "items": reports}  # noqa: SLF001  (the kit's stamp)
        box.say(box.plain(TopicKind.REPORTED), Reported.model_validate(body, strict=False))
        bed.settle(1)
        looks = task(bed)
        for _ in range(8):
            looks.look()
            bed.world.now_s += 60
        found = {one.alert.kind: (one.box, one.alert.about, one.alert.text) for one in alerts(bed).list()}
        assert found[AlertKind.DRIFT] == ("box-3", "unit", "argocd has changed unit: limits are 2, not 4")
        assert found[AlertKind.NOT_APPLIED][0] == "box-3"

    def test_this_controllers_certificates_are_read(self, tmp_path: Path) -> None:
        layout = CloudLayout(tmp_path)
        for folder in (layout.tls, layout.ca):
            folder.mkdir()
        authority = Authority("boxes")
        (layout.tls / "https.crt").write_text(authority.pair("a", hosts=["a"]).cert)
        (layout.ca / "boxes.crt").write_text(authority.pem)
        (layout.ca / "servers.crt").write_text("no certificate")
        assert [one.name for one in own_certificates(layout)] == ["ca/boxes", "tls/https"]


class TestMessages:
    def test_one_message_is_signed_and_says_all(self, bed: Bed, receiver: Receiver) -> None:
        looks = task(bed, receiver)
        bed.network.cut_off(bed.devices[0])
        look(bed, looks, 17 * 60)
        looks.send()
        looks.send()
        ((headers, body),) = receiver.got
        mac = hmac.new(SECRET.encode(), f"{headers['x-edgegpu-timestamp']}.{body}".encode(), hashlib.sha256)
        assert headers["x-edgegpu-signature"] == f"v1={mac.hexdigest()}"
        told = json.loads(body)
        assert (told["v"], told["event"], told["controller"], told["count"]) == (1, "firing", "controller-1", 1)
        assert told["id"] == headers["x-edgegpu-delivery"]
        (one,) = told["alerts"]
        assert (one["kind"], one["box"]) == ("offline", {"device": bed.devices[0], "name": "box-1"})
        assert one["number"] == alerts(bed).list()[0].alert.number

    def test_a_sites_link_is_one_message(self, bed: Bed, receiver: Receiver) -> None:
        looks = task(bed, receiver)
        for device in bed.devices:
            bed.network.cut_off(device)
        look(bed, looks, 18 * 60)
        looks.send()
        assert [one["count"] for one in receiver.bodies] == [8]

    def test_what_is_not_taken_comes_again_under_the_same_id(self, bed: Bed, receiver: Receiver) -> None:
        looks = task(bed, receiver)
        receiver.status = 503
        alerts(bed, receiver).test()
        looks.send()
        looks.send()
        assert len(receiver.got) == 1, "it waits before the next try"
        assert alerts(bed).waiting() == (1, "127.0.0.1 answers 503")
        receiver.status = 200
        bed.world.now_s += 60
        task(bed, receiver).send()  # another process goes on with it
        assert len({one["id"] for one in receiver.bodies}) == 1
        assert [one["event"] for one in receiver.bodies] == ["test", "test"]
        assert alerts(bed).waiting() == (0, "")

    def test_who_never_takes_it_is_given_up_after_a_day(self, bed: Bed, receiver: Receiver) -> None:
        looks = task(bed, receiver)
        receiver.status = 500
        alerts(bed, receiver).test()
        began_s = bed.world.now_s
        while alerts(bed).waiting()[0]:
            assert bed.world.now_s < began_s + GIVEN_UP_S + 3_600
            looks.send()
            bed.world.now_s += 900
        assert 30 < len(receiver.got) < 120, "the pauses grow"

    def test_redirects_are_not_followed(self, bed: Bed, receiver: Receiver) -> None:
        receiver.status = 307
        alerts(bed, receiver).test()
        task(bed, receiver).send()
        assert "redirects are not followed" in alerts(bed).waiting()[1]
        assert len(receiver.got) == 1

    def test_the_queue_is_bounded(self, bed: Bed, receiver: Receiver) -> None:
        with bed.store.write() as tx:
            dropped = [
                tx.alerts.add_delivery(id_=str(number), url=receiver.url, body="{}", now_s=1.0)
                for number in range(MOST_WAITING + 3)
            ]
        assert sum(dropped) == 3
        assert alerts(bed).waiting()[0] == MOST_WAITING

    def test_a_silenced_alert_is_told_to_nobody_and_that_is_audited(self, bed: Bed, receiver: Receiver) -> None:
        looks = task(bed, receiver)
        bed.network.cut_off(bed.devices[0])
        look(bed, looks, 17 * 60)
        looks.send()
        (one,) = alerts(bed).list()
        alerts(bed).silence(one.alert.number, for_s=3_600)
        bed.network.connect(bed.box())
        look(bed, looks, 7 * 60)
        looks.send()
        assert [body["event"] for body in receiver.bodies] == ["firing"]
        with bed.store.read() as tx:
            assert tx.notes.audits(limit=1)[0].what == "alert.silenced"
        with pytest.raises(NotFoundError, match="none fires"):
            alerts(bed).silence(one.alert.number, for_s=60)


METADATA = (
    "169.254.169.254",
    "168.63.129.16",
    "100.100.100.200",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "[::ffff:169.254.169.254]",
    "[::a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::1]",
    "2852039166",  # 169.254.169.254 as one number, which resolvers take
    "0251.0376.0251.0376",
)

_POSTS = """
import sys
from pathlib import Path
from kits.webhooks import SECRET, receiving
from edgegpu_cloud.alerts.webhook import WebhookError, WebhookTarget, post
KNOWN = (
    "gives out its machines' credentials",
    "is on this machine or its own link",
    "is no address of another machine",
)
folder, local, *hosts = sys.argv[1:]
with receiving(Path(folder), "10.9.8.7") as receiver:
    port = receiver.url.rpartition(":")[2].partition("/")[0]
    for host in hosts:
        before, end = len(receiver.got), "taken"
        target = WebhookTarget(url=f"https://{host}:{port}/", secret=SECRET, local=local == "True", ca=receiver.ca)
        try:
            post(target, "id", "{}", now_s=1.0, timeout_s=5)
        except WebhookError as error:
            end = next((text for text in KNOWN if text in str(error)), "not reached")
        assert (len(receiver.got) > before) == (end == "taken")
        print(end)
"""


class TestPost:
    def target(self, receiver: Receiver, **other: Any) -> WebhookTarget:  # noqa: ANN401  (its fields)
        return WebhookTarget(**{"url": receiver.url, "secret": SECRET, "local": True, "ca": receiver.ca, **other})

    def test_this_machine_and_its_link_are_refused_unless_allowed(self, receiver: Receiver) -> None:
        for url in (
            receiver.url,
            "https://localhost:9/x",
            "https://169.254.1.1/latest",
            "https://[::1]/",
        ):
            with pytest.raises(WebhookError, match="on this machine or its own link"):
                post(self.target(receiver, url=url, local=False), "id", "{}", now_s=1.0, timeout_s=2)
        assert receiver.got == []

    def test_where_clouds_give_out_credentials_nothing_is_sent_though_local_is_allowed(self, tmp_path: Path) -> None:
        """In a network of its own: one that is not refused has no way there."""
        assert set(self.ends(tmp_path, METADATA, local=True)) == {"gives out its machines' credentials"}
        assert set(self.ends(tmp_path, METADATA, local=False)) == {"gives out its machines' credentials"}

    def ends(self, folder: Path, hosts: tuple[str, ...], *, local: bool) -> list[str]:
        """Send a message to each of these hosts, from a machine with a receiver on 10.9.8.7, and return how it ends."""
        script = folder / "posts.py"
        script.write_text(_POSTS)
        printed = in_own_network(script, folder, local, *hosts, addresses=["10.9.8.7/24", "fd00:1::7/64"])
        return printed.splitlines()

    def test_the_machines_other_addresses_are_refused_unless_allowed(self, tmp_path: Path) -> None:
        """In a network of its own, whose machine has an address in a LAN, and a receiver there."""
        own = ("10.9.8.7", "[fd00:1::7]", "[::ffff:10.9.8.7]", "[64:ff9b::a09:807]", "[2002:a09:807::1]", "127.1.2.3")
        never = ("0", "[::]", "224.0.0.1", "255.255.255.255")
        assert set(self.ends(tmp_path, own, local=False)) == {"is on this machine or its own link"}
        assert self.ends(tmp_path, ("10.9.8.7",), local=True) == ["taken"]
        for local in (False, True):
            assert set(self.ends(tmp_path, never, local=local)) == {"is no address of another machine"}
        assert self.ends(tmp_path, ("192.0.2.1", "[64:ff9b::c000:201]"), local=False) == ["not reached"] * 2

    def test_a_certificate_of_nobody_known_is_refused(self, receiver: Receiver) -> None:
        with pytest.raises(WebhookError, match="its certificate"):
            post(self.target(receiver, ca=None), "id", "{}", now_s=1.0)
        assert receiver.got == []

    def test_an_answer_without_end_is_cut(self, receiver: Receiver) -> None:
        receiver.drips, receiver.status = True, 200
        began_s = time.monotonic()
        post(self.target(receiver), "id", "{}", now_s=1.0, timeout_s=1)
        assert time.monotonic() - began_s < 30, "a byte every 0.1 s, a million of them"


def test_the_command_line_lists_silences_and_tests(bed: Bed, receiver: Receiver, tmp_path: Path) -> None:
    file = tmp_path / "controller.yaml"
    file.write_text(dump(CloudConfig(version=1, alerts=config(receiver))))
    assert load(file).alerts == config(receiver)
    assert run("alerts", "list", folder=tmp_path).out == "nothing fires\n"
    bed.network.cut_off(bed.devices[0])
    look(bed, task(bed), 17 * 60)
    (row,) = run("alerts", "list", "--json", folder=tmp_path).json
    assert (row["alert"]["kind"], row["box"]) == ("offline", "box-1")
    number = str(row["alert"]["number"])
    assert run("alerts", "silence", number, "--for", "2h", folder=tmp_path).code == 0
    assert "silenced until" in run("alerts", "list", "box-1", folder=tmp_path).out
    assert run("alerts", "test", "--json", folder=tmp_path).json["waiting"] == 1
    assert SECRET not in run("alerts", "list", folder=tmp_path).err


LONG_LABEL = "x" * 64
UNUSABLE = {
    "https://hooks..example.com/T0K3N": "'hooks..example.com' is not a host name or an address",
    f"https://{LONG_LABEL}.example.com/T0K3N": f"'{LONG_LABEL}.example.com' is not a host name or an address",
    "https://?T0K3N": "'' is not a host name or an address",
    "https://1234/T0K3N": "'1234' is not a host name or an address",
    "https://hooks.example.com:99999/T0K3N": "the port of hooks.example.com is not a number from 1 to 65535",
    "https://hooks.example.com:0/T0K3N": "the port of hooks.example.com is not a number from 1 to 65535",
    "https://hooks.example.com:T0K3N/x": "the port of hooks.example.com is not a number from 1 to 65535",
    "https://[::1/T0K3N": "this is not a URL: [ and ] stand around an IPv6 address",
}


@pytest.mark.parametrize("url", UNUSABLE)
def test_an_address_that_no_message_can_be_sent_to_is_refused_without_its_path(url: str, tmp_path: Path) -> None:
    file = tmp_path / "controller.yaml"
    file.write_text(json.dumps({"version": 1, "alerts": {"webhook": {"urls": [url], "secret": SECRET}}}))
    with pytest.raises(CloudError) as caught:
        load(file)
    assert caught.value.text == f"cannot use {file}: line 1: alerts.webhook.urls.0: {UNUSABLE[url]}"


@pytest.mark.parametrize("host", ["hooks..example.com", f"{LONG_LABEL}.example.com", "h:99999", "[::1"])
def test_a_message_to_an_address_that_cannot_be_used_has_failed_as_others_do(bed: Bed, host: str) -> None:
    webhook = WebhookConfig.model_construct(urls=(f"https://{host}/T0K3N",), secret=SECRET)
    settings = AlertConfig.model_construct(webhook=webhook)
    alerts = Alerts(bed.store, settings, access=Access("anna"), clock=bed.world.clock)
    alerts.test()
    AlertTask(bed.store, settings, controller="controller-1", clock=bed.world.clock).send()
    waiting, error = alerts.waiting()
    assert waiting == 1
    assert "correct alerts.webhook.urls" in error
    assert "T0K3N" not in error


RIGHT = ["hooks.example.com", "hooks.example.com.", "a_b.internal:8443", "[::1]:8443", "10.0.0.1"]


@pytest.mark.parametrize("host", RIGHT)
def test_an_address_of_a_receiver_is_taken_as_it_is(host: str) -> None:
    url = f"https://user:word@{host}/x?y=z"
    assert WebhookConfig(urls=(url,), secret=SECRET).urls == (url,)


@pytest.mark.parametrize(
    "wrong",
    [
        {"urls": ["http://hook.example.com/"], "secret": SECRET},
        {"urls": ["https://hook.example.com/"]},
        {"urls": ["https://hook.example.com/"], "secret": "short"},
    ],
)
def test_a_webhook_needs_https_and_a_secret(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AlertConfig.model_validate({"webhook": wrong})
