"""docs/asyncapi.yaml: made of the models, well-formed, and what the broker allows is what it names, and no more."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from edgegpu_cloud.broker.config import BrokerPaths, Listeners, render
from edgegpu_sync.rules.ops import OPS
from edgegpu_sync.topics import TopicKind

ROOT = Path(__file__).resolve().parents[2]
# Each process of a run reads it; in Python's own loader that takes two seconds.
DOCUMENT: dict[str, Any] = yaml.load((ROOT / "docs/asyncapi.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
MESSAGES: dict[str, Any] = DOCUMENT["components"]["messages"]

_NAMED = {"type": "object", "minProperties": 1, "propertyNames": {"pattern": "^[A-Za-z0-9._-]+$"}}
_REF = {
    "type": "object",
    "required": ["$ref"],
    "properties": {"$ref": {"pattern": "^#/"}},
    "additionalProperties": False,
}


def _closed(required: str, optional: str = "", **properties: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the schema of an object of AsyncAPI: these fields, extensions, and nothing else."""
    names = [*required.split(), *optional.split()]
    return {
        "type": "object",
        "required": required.split(),
        "properties": {name: properties.get(name, True) for name in names},
        "patternProperties": {"^x-": True},
        "additionalProperties": False,
    }


_CHANNEL = _closed(
    "address messages parameters",
    "title summary description servers tags externalDocs bindings",
    messages={**_NAMED, "additionalProperties": _REF},
    parameters={**_NAMED, "additionalProperties": _closed("description", "enum default examples location")},
)
_OPERATION = _closed(
    "action channel",
    "title summary description security tags externalDocs bindings traits messages reply",
    action={"enum": ["send", "receive"]},
    channel=_REF,
    bindings=_closed(
        "mqtt", mqtt=_closed("bindingVersion", "qos retain messageExpiryInterval", qos={"enum": [0, 1, 2]})
    ),
)
_MESSAGE = _closed(
    "payload",
    "headers correlationId contentType name title summary description tags externalDocs bindings examples traits",
    examples={"type": "array", "items": _closed("payload", "headers name summary")},
)
_SERVER_MQTT = "clientId cleanSession lastWill keepAlive sessionExpiryInterval maximumPacketSize"
_SERVER = _closed(
    "host protocol",
    "protocolVersion pathname description title summary variables security tags externalDocs bindings",
    variables={**_NAMED, "additionalProperties": _closed("", "enum default description examples")},
    security={"type": "array", "items": _REF},
    bindings=_closed("mqtt", mqtt=_closed("bindingVersion", _SERVER_MQTT)),
)
META = _closed(
    "asyncapi info",
    "id servers defaultContentType channels operations components",
    asyncapi={"const": "3.0.0"},
    info=_closed("title version", "description termsOfService contact license tags externalDocs"),
    servers={**_NAMED, "additionalProperties": _SERVER},
    channels={**_NAMED, "additionalProperties": _CHANNEL},
    operations={**_NAMED, "additionalProperties": _OPERATION},
    components=_closed(
        "schemas messages securitySchemes",
        schemas=_NAMED,
        messages={**_NAMED, "additionalProperties": _MESSAGE},
        securitySchemes={**_NAMED, "additionalProperties": _closed("type", "description", type={"const": "X509"})},
    ),
)
"""AsyncAPI 3.0.0, as far as this document uses it."""


def nodes(value: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    match value:
        case dict():
            yield value
            for inner in value.values():
                yield from nodes(inner)
        case list():
            for inner in value:
                yield from nodes(inner)


def resolved(reference: str) -> Any:  # noqa: ANN401
    found: Any = DOCUMENT
    for part in reference.removeprefix("#/").split("/"):
        found = found[part.replace("~1", "/").replace("~0", "~")]
    return found


def payload(name: str) -> Draft202012Validator:
    """Return what validates bodies of a message, with all that it refers to."""
    return Draft202012Validator({"components": DOCUMENT["components"], **MESSAGES[name]["payload"]})


def test_it_is_what_the_models_say() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/asyncapi.py", "--check"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_it_is_asyncapi() -> None:
    Draft202012Validator.check_schema(META)
    assert [error.message for error in Draft202012Validator(META).iter_errors(DOCUMENT)] == []


@pytest.mark.parametrize("path", ["info", "channels/beat", "operations/box-sends-beat", "components/messages/LastWill"])
def test_an_unknown_field_would_be_seen(path: str) -> None:
    whole = yaml.safe_load(yaml.safe_dump(DOCUMENT))
    place = whole
    for part in path.split("/"):
        place = place[part]
    place["adress"] = "x"
    assert list(Draft202012Validator(META).iter_errors(whole))


def test_every_reference_leads_somewhere() -> None:
    references = [node["$ref"] for node in nodes(DOCUMENT) if "$ref" in node]
    assert len(references) > 100
    assert all(resolved(reference) is not None for reference in references)


def test_each_schema_is_one_and_is_used() -> None:
    used = {node["$ref"].rpartition("/")[2] for node in nodes(DOCUMENT) if "$ref" in node}
    for name, schema in DOCUMENT["components"]["schemas"].items():
        Draft202012Validator.check_schema(schema)
        assert name in used or name == "KeySet", f"{name} stands in no message"  # the text of `Link.set`


@pytest.mark.parametrize("name", [name for name in MESSAGES if name != "Beat"])
def test_examples_fit_their_schema_and_what_is_bent_does_not(name: str) -> None:
    validator = payload(name)
    assert MESSAGES[name]["examples"]
    for example in MESSAGES[name]["examples"]:
        body = example["payload"]
        assert [error.message for error in validator.iter_errors(body)] == []
        assert not validator.is_valid(body | {"v": 2})
        for field in set(body) & {"enrolment", "epoch", "chain"}:
            assert not validator.is_valid({key: value for key, value in body.items() if key != field})


def test_there_is_a_channel_for_each_kind_and_each_op_has_its_arguments() -> None:
    names = {kind.value.replace("/", "-") for kind in TopicKind}
    assert set(DOCUMENT["channels"]) == {*names, "beat"}
    assert set(MESSAGES["Command"]["x-args"]) == set(OPS)
    for channel in DOCUMENT["channels"].values():
        assert set(re.findall(r"\{(\w+)\}", channel["address"])) == set(channel["parameters"])


# --- the broker's rights: `pattern read|write TOPIC`


def rules(name: str) -> list[tuple[str, str]]:
    """Return the rights of one listener's clients, older boxes too, but for topics of the broker and its guard."""
    here = Path("/etc/mosquitto/edgegpu")
    places = BrokerPaths(folder=here, data=here, boxes_ca=here, controllers_ca=here, crl=here, cert=here, key=here)
    text = render(Listeners(), places, older_boxes=True)[name]
    found = re.findall(r"^pattern (read|write) (\S+)$", text, re.MULTILINE)
    return [(right, topic) for right, topic in found if not topic.startswith(("$SYS/", "$CONTROL/"))]


def matches(topic: str, address: str) -> bool:
    """Whether a topic of the address falls under a right; names of clients and what a box is are one level each."""
    given, wanted = topic.split("/"), re.sub(r"\{\w+\}", "+", address).split("/")
    for place, level in enumerate(given):
        if level == "#":
            return len(wanted) > place
        if place >= len(wanted) or (level not in {"+", "%u", "%c"} and level != wanted[place]):
            return False
    return len(given) == len(wanted)


def spoken(side: str) -> list[tuple[str, str]]:
    """Return what a side does by the document, in the words of rights: what is sent is written."""
    return [
        ("write" if one["action"] == "send" else "read", resolved(one["channel"]["$ref"])["address"])
        for one in DOCUMENT["operations"].values()
        if one["tags"] == [{"name": side}]
    ]


@pytest.mark.parametrize(("side", "acl"), [("box", "boxes.acl"), ("controller", "controllers.acl")])
def test_what_a_side_does_it_may_and_what_it_may_it_does(side: str, acl: str) -> None:
    allowed, done = rules(acl), spoken(side)
    assert len(done) == len(TopicKind) + 1
    for right, address in done:
        assert any(right == one and matches(topic, address) for one, topic in allowed), (
            f"{side} may not {right} {address}"
        )
    for right, topic in allowed:
        assert any(right == one and matches(topic, address) for one, address in done), f"{topic} is for no channel"
    for right, address in done:
        other = "read" if right == "write" else "write"
        assert not any(other == one and matches(topic, address) for one, topic in allowed), (
            f"{side} may {other} {address}"
        )


def test_what_is_retained_is_said_to_be() -> None:
    for name, one in DOCUMENT["operations"].items():
        binding = one["bindings"]["mqtt"]
        assert binding["qos"] == 1
        if one["action"] == "send" and not name.endswith("beat"):
            channel = one["channel"]["$ref"].rpartition("/")[2]
            assert binding["retain"] == TopicKind(channel.replace("-", "/", 1)).retained
