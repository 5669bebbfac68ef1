"""The writer of docs/asyncapi.yaml from the models, topics and ops of `edgegpu_sync`; --check tests the file."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from edgegpu_sync.keys import KeySet
from edgegpu_sync.link.link import FOUR_WEEKS_S
from edgegpu_sync.link.pahoclient import PACKET_MAX_BYTES
from edgegpu_sync.messages.downlink import Command, Desired, Keys, Receipt
from edgegpu_sync.messages.evidence import EvidenceReport
from edgegpu_sync.messages.spec import Spec
from edgegpu_sync.messages.telemetry import Alloc, BoxHealth, Event, Inventory, Metrics
from edgegpu_sync.messages.uplink import Birth, CommandNotTaken, CommandResult, Goodbye, LastWill, Reported
from edgegpu_sync.rules.ops import OPS, EvidenceArgs, LogsArgs, NoArgs, SharingArgs, UpgradeArgs
from edgegpu_sync.topics import PREFIX, TopicKind
from edgegpu_sync.wire import BODY_MAX_BYTES, RESULT_MAX_BYTES

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs/mqtt-api.md"
TARGET = ROOT / "docs/asyncapi.yaml"
HEAD = "# Made by tools/asyncapi.py from the models in cloud_sync/edgegpu_sync: change those, then run it again.\n"

Json = dict[str, Any]
KEEPALIVE_S = 30

_MODELS: dict[TopicKind, tuple[type, ...]] = {
    TopicKind.DESIRED: (Desired,),
    TopicKind.COMMAND: (Command,),
    TopicKind.RECEIPT: (Receipt,),
    TopicKind.KEYS: (Keys,),
    TopicKind.STATUS: (Birth, LastWill, Goodbye),
    TopicKind.REPORTED: (Reported,),
    TopicKind.RESULT: (CommandResult, CommandNotTaken),
    TopicKind.RESULT_BY_ID: (CommandResult, CommandNotTaken),
    TopicKind.INVENTORY: (Inventory,),
    TopicKind.ALLOC: (Alloc,),
    TopicKind.HEALTH: (BoxHealth,),
    TopicKind.EVENT: (Event,),
    TopicKind.METRICS: (Metrics,),
}
_ARGS = (NoArgs, SharingArgs, LogsArgs, EvidenceArgs, UpgradeArgs)
_INNER: tuple[type, ...] = (Spec, KeySet, EvidenceReport, *_ARGS)
"""Models that are JSON inside of a message and are parsed by rules of their own."""

_TAILS = {TopicKind.COMMAND: "/{op}/{id}", TopicKind.RESULT_BY_ID: "/{id}"}
_PARAMETERS: dict[str, Json] = {
    "device": {
        "description": "16 of a-z0-9, minted by the controller; client-id and name in the certificate.",
        "examples": ["k3f9x2m7q1w8e5r4"],
    },
    "op": {
        "description": "One to three words of a-z0-9 with dots between. Others than these are REJECTED, UNKNOWN_OP.",
        "examples": [str(op) for op in OPS],
    },
    "id": {
        "description": "8 to 40 of a-z0-9-, not beginning with -: the command's id, kept when it is signed again.",
        "examples": ["01j9zq4v7m2c8x5n"],
    },
    "client": {"description": "The client-id of a box, or of a controller.", "examples": ["k3f9x2m7q1w8e5r4"]},
}
_ABOUT = """\
Desired state is the truth, and the only writer of what a box should be. Commands are verbs: done once at most, each
ends in exactly one state. The rules (order, replay, keys, what is refused) are in mqtt-api.md; this file has the topics
and the bodies. Both sides are in it: the operations of a box and those of a controller, told apart by their tags.
"""
_SIGNED = """\
The payload is a signature line and the body: `s1 {key id, 16 hex digits} {Ed25519 signature, 86 characters of
base64url}`, a line feed, then the JSON that the schema describes. The signature is over "edgegpu message 1\\n", the
topic, "\\n" and the exact bytes of the body.
"""
_BARE = """\
The payload is the line `s0` and the body: the root key's signatures are inside, over the text of each `set`.
"""
CONTENT_TYPE = "application/vnd.edgegpu.signed+json"


def titles() -> dict[TopicKind, str]:
    """Return the purpose of each kind of topic, from the table in docs/mqtt-api.md."""
    rows = re.findall(r"^\| `edgegpu/v1/\{device\}/(\w+/\w+)\S*` \|.*\| (.+) \|$", _markdown(), re.MULTILINE)
    return {TopicKind(name): re.sub(r"\[(.*?)\]\(.*?\)", r"\1", what) for name, what in rows}


def _markdown() -> str:
    return DOCUMENT.read_text(encoding="utf-8")


def ref(*path: str) -> Json:
    """Return a reference to a part of the document."""
    return {"$ref": "#/" + "/".join(one.replace("~", "~0").replace("/", "~1") for one in path)}


def schemas() -> Json:
    """Return the schema of each model and of the models within them, all on one level.

    Raises:
        ValueError: two models have the same name.
    """
    found: Json = {}
    for model in [*(model for models in _MODELS.values() for model in models), *_INNER]:
        schema = TypeAdapter(model).json_schema(ref_template="#/components/schemas/{model}")
        inner = schema.pop("$defs", {})
        for name, one in {**inner, model.__name__: schema}.items():
            if found.setdefault(name, one) != one:
                raise ValueError(f"cannot name two schemas {name}: rename one of the models")
    return dict(sorted(found.items()))


def examples() -> dict[str, list[Json]]:
    """Return the examples of docs/mqtt-api.md by the name of their model."""
    found: dict[str, list[Json]] = {}
    for name, text in re.findall(r"```json (\S+)\n(.*?)```", _markdown(), re.DOTALL):
        body = json.loads(text)
        model = _model(TopicKind(name), body)
        examples = found.setdefault(model.__name__, [])
        examples.append({"name": f"{model.__name__}{len(examples) + 1}", "payload": body})
    return found


def _model(kind: TopicKind, body: Json) -> type:
    match kind:
        case TopicKind.STATUS:
            return {"birth": Birth, "will": LastWill, "bye": Goodbye}[body["state"]]
        case TopicKind.RESULT | TopicKind.RESULT_BY_ID:
            return CommandNotTaken if body["state"] == "NOT_TAKEN" else CommandResult
        case _:
            return _MODELS[kind][0]


def payload(model: type) -> Json:
    """Return the schema of a body, with the schemas of its inner JSON inserted."""
    whole = ref("components", "schemas", model.__name__)
    if model is Desired:
        inner = {"spec": ref("components", "schemas", "Spec")}
    elif model is Command:
        inner = {"args": {"anyOf": [ref("components", "schemas", one.__name__) for one in _ARGS]}}
    else:
        return whole
    return {"allOf": [whole, {"properties": inner}]}


def messages() -> Json:
    """Return the description of each message by name."""
    shown = examples()
    made: Json = {}
    for kind, model in [(kind, model) for kind, models in _MODELS.items() for model in models]:
        made[model.__name__] = {
            "name": model.__name__,
            "title": (model.__doc__ or "").splitlines()[0].rstrip("."),
            "contentType": CONTENT_TYPE,
            "description": _flat(_BARE if kind is TopicKind.KEYS else _SIGNED),
            "payload": payload(model),
            "examples": shown[model.__name__],
            "x-body-max-bytes": RESULT_MAX_BYTES if kind is TopicKind.RESULT else BODY_MAX_BYTES,
        }
    made["Command"]["x-args"] = {str(op): ref("components", "schemas", one.args.__name__) for op, one in OPS.items()}
    made["Command"]["x-after-a-crash"] = {str(op): str(one.settling) for op, one in OPS.items()}
    made["CommandResult"]["x-data"] = {"evidence.check": ref("components", "schemas", EvidenceReport.__name__)}
    made["Beat"] = {
        "name": "Beat",
        "title": "A heartbeat: an empty payload, whose PUBACK proves that the link lives",
        "contentType": "application/octet-stream",
        "payload": {"type": "string", "maxLength": 0},
    }
    return made


def _flat(text: str) -> str:
    return " ".join(text.split())


def channels() -> Json:
    """Return the description of each topic."""
    made, what = dict[str, Any](), titles()
    for kind, models in _MODELS.items():
        address = f"{PREFIX}/{{device}}/{kind}{_TAILS.get(kind, '')}"
        made[kind.value.replace("/", "-")] = {
            "address": address,
            "title": what[kind],
            "messages": {model.__name__: ref("components", "messages", model.__name__) for model in models},
            "parameters": {name: _PARAMETERS[name] for name in re.findall(r"\{(\w+)\}", address)},
        }
    made["beat"] = {
        "address": f"{PREFIX}/{{client}}/beat",
        "title": "A client's heartbeat, which nobody may read",
        "messages": {"Beat": ref("components", "messages", "Beat")},
        "parameters": {"client": _PARAMETERS["client"]},
    }
    return made


def operations() -> Json:
    """Return the messages that each side sends and receives, with QoS and whether they are retained."""
    made, what = dict[str, Any](), titles()
    for kind in _MODELS:
        for side in ("box", "controller"):
            sends = kind.down == (side == "controller")
            name = f"{side}-{'sends' if sends else 'receives'}-{kind.value.replace('/', '-')}"
            made[name] = _operation(
                side, kind.value.replace("/", "-"), sends=sends, title=what[kind], kept=kind.retained
            )
    for side in ("box", "controller"):
        made[f"{side}-sends-beat"] = _operation(
            side, "beat", sends=True, title="to prove that the link lives", kept=False
        )
    return made


def _operation(side: str, channel: str, *, sends: bool, title: str, kept: bool) -> Json:
    return {
        "action": "send" if sends else "receive",
        "channel": ref("channels", channel),
        "title": title,
        "tags": [{"name": side}],
        "bindings": {"mqtt": {"qos": 1, **({"retain": kept} if sends else {}), "bindingVersion": "0.2.0"}},
    }


def server(*, who: str, port: int, scheme: str, description: str, will: bool) -> Json:
    """Return the description of one of the broker's listeners."""
    mqtt: Json = {"cleanSession": False, "keepAlive": KEEPALIVE_S, "maximumPacketSize": PACKET_MAX_BYTES}
    if will:
        topic = f"{PREFIX}/{{device}}/{TopicKind.STATUS}"
        mqtt |= {"clientId": "{device}", "sessionExpiryInterval": FOUR_WEEKS_S}
        mqtt |= {"lastWill": {"topic": topic, "qos": 1, "message": "a signed Will", "retain": True}}
    return {
        "host": f"{{host}}:{port}",
        "protocol": "secure-mqtt",
        "protocolVersion": "5.0",
        "title": f"Where {who} connect",
        "description": description,
        "variables": {
            "host": {"description": "The broker's name, as in its certificate.", "default": "broker.example"}
        },
        "security": [ref("components", "securitySchemes", scheme)],
        "bindings": {"mqtt": {**mqtt, "bindingVersion": "0.2.0"}},
    }


def document() -> Json:
    """Return the whole AsyncAPI document."""
    fallback = "MQTT 5; where a broker does not speak it the link falls back to 3.1.1, and no rule depends on 5."
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "edgegpu: boxes and their controller",
            "version": "1.0.0",
            "description": _flat(_ABOUT),
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
            "externalDocs": {"description": "The contract: every rule", "url": "mqtt-api.md"},
        },
        "defaultContentType": CONTENT_TYPE,
        "servers": {
            "boxes": server(who="boxes", port=8883, scheme="box", description=fallback, will=True),
            "controllers": server(who="controllers", port=8884, scheme="controller", description=fallback, will=False),
        },
        "channels": channels(),
        "operations": operations(),
        "components": {
            "messages": messages(),
            "schemas": schemas(),
            "securitySchemes": {
                "box": {
                    "type": "X509",
                    "description": "A certificate of the boxes' authority; its common name is the device.",
                },
                "controller": {"type": "X509", "description": "A certificate of the controllers' own authority."},
            },
        },
    }


def text() -> str:
    """Return the file's text, which is the same each time."""
    whole = json.loads(json.dumps(document()))  # copies equal values, so that YAML has no anchors
    return HEAD + yaml.safe_dump(whole, sort_keys=False, allow_unicode=True, width=120)


def main() -> int:
    """Write the file; with --check only return 1 when it is not current."""
    if sys.argv[1:] != ["--check"]:
        TARGET.write_text(text(), encoding="utf-8")
        return 0
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text():
        return 0
    sys.stderr.write("docs/asyncapi.yaml is not what the models say: run .venv/bin/python tools/asyncapi.py\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
