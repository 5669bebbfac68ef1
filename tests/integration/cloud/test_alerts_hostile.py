"""Whatever a box calls itself, its apps and its alarms: a webhook gets plain lines of a length, and all alerts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from kits.console import ConsoleSite
from kits.details import box, card, reported, saying
from kits.stores import open_store
from kits.webhooks import SECRET, receiving

from edgegpu_cloud.alerts.service import AlertTask
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.layout import AlertConfig, WebhookConfig
from edgegpu_cloud.store.records import EnrolledBox
from edgegpu_sync.ids import device_id
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOSTILE = {
    "script": "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&",
    "markup of chats": "<!channel> @everyone [pay here](https://evil.example) `rm -rf /` *bold*",
    "a template": "{{7*7}} ${jndi:ldap://evil.example/a} %(x)s %n {0.__class__}",
    "control characters": "bell\x07 esc\x1b[31mred\x1b]0;title\x07 back\x08\x7f c1\x85\x9b31m",
    "lines": 'first\r\nX-Evil: 1\r\n\r\n{"event": "resolved"}\u2028second\u2029third\x0b\x0c',
    "directions": "\u202egnp.exe\u202c \u2066isolated\u2069 \u200fright\u200e left\u061c \u2067x\u2068y",
    "nothing to see": "zero\u200bwidth\u2060join\ufeffmark\u00adsoft \U000e0041tag",
    "long": "long " + "x" * 20_000,
    "wide": "\U0001f4a3" * 3_000,
    "json": '"}], "event": "resolved", "alerts": [{"text": "',
}
MOST_NAME, MOST_TEXT, MOST_BODY = 253, 500, 64 * 1024


def strings(value: Any) -> Iterator[str]:  # noqa: ANN401  (whatever JSON has)
    """Yield every text of a message, keys too."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)
    elif isinstance(value, str):
        yield value


def hostile_box(site: ConsoleSite, text: str) -> None:
    """Add a box with a text in all places from which alerts are made: names, apps, labels, health, alarms."""
    device = device_id(f"{1:016d}")
    enrolled = EnrolledBox(
        device=device,
        enrolment=1,
        public="A" * 43,
        instance="ab" * 32,
        name=text,
        labels={"note": text},
        host=text,
    )
    with site.store.write() as tx:
        add_box(tx, enrolled, Author("setup", site.now_s))
    drifted = {"type": "Drifted", "manager": text, "text": text}
    items: dict[str, Any] = {
        f"app_limits__default__{text}__main": {"state": "Applied", "rev": 1, "conditions": [drifted]}
    }
    healthy = box("hall-1", (card("0"),))
    parts = [{"name": text, "state": "bad", "text": text}]
    site.report(device, saying(healthy, TopicKind.HEALTH, state="bad", parts=parts))
    site.connect(device)
    said = reported(healthy, cluster="c" * 8, rev=1, **items)
    with site.store.write() as tx:  # most of it is refused before the store: here a controller has let it in
        tx.boxes.add_latest([replace(said.latest[TopicKind.REPORTED], device=device, at_s=site.now_s)])
        tx.notes.alarm(text, device=device, text=text, now_s=site.now_s)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_message_has_plain_lines_of_a_length_whatever_a_box_says(tmp_path: Path, text: str) -> None:
    store = open_store(tmp_path / "controller.db")
    site = ConsoleSite(store)
    hostile_box(site, text)
    with receiving(tmp_path) as receiver:
        webhook = WebhookConfig(urls=(receiver.url,), secret=SECRET, allow_local=True, ca=receiver.ca)
        task = AlertTask(store, AlertConfig(webhook=webhook), controller="controller-1", clock=site.clock)
        for _ in range(4):
            task.look()
            site.now_s += 3_600
        task.send()
    store.close()
    assert receiver.got
    kinds = set()
    for headers, body in receiver.got:
        assert not [name for name in headers if "evil" in name]
        assert body.isascii()
        assert len(body) <= MOST_BODY
        told = json.loads(body)
        assert (told["event"], told["controller"]) == ("firing", "controller-1")
        assert told["count"] == len(told["alerts"])
        assert [one for one in strings(told) if not one.isprintable()] == []
        for alert in told["alerts"]:
            kinds.add(alert["kind"])
            names = [alert["about"], alert["box"]["name"]]
            assert max(map(len, names)) <= MOST_NAME
            assert len(alert["text"]) <= MOST_TEXT
            assert alert["box"]["name"], "a box is named by what is left of its name"
    assert {"alarm", "unhealthy", "drift"} <= kinds
