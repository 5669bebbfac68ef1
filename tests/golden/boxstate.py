"""What the box's own processes write and read: configurations, the agent's journal, inventory, annotations."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from golden import doors
from golden.shapes import named, shape, written

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW_S = 1_790_000_000.0
ID, OTHER_ID = "01j9zq4v7m2c8x5n", "command-1"
LIMITS = {"results": 8, "refusals": 16, "events_bytes": 8_192, "metrics_bytes": 8_192}
AGENT_YAML = """\
version: 1
cloud:
  url: https://cloud.example:8443
  ca_sha256: abababababababababababababababababababababababababababababababab
  proxy: http://proxy:3128
metrics:
  period_s: 30
uploads:
  max_mib: 32
limits:
  kubeconfig: /etc/edgegpu/limits-kubeconfig
  namespaces: [baetyl-edge]
"""


def files(folder: Path) -> dict[str, str]:
    return {
        **configurations(folder),
        "journal.sql": journal_dump(folder / "journal.db"),
        "notes.json": written(notes(folder)),
        "inventory.json": inventory(folder),
        "cdi.json": written(cdi()),
        "annotations.json": written(marks()),
        "status.json": written(status(folder)),
        **agent_words(folder),
    }


# --- configurations


def configurations(folder: Path) -> dict[str, str]:
    """Return each configuration's keys with their defaults, and the file that a command writes."""
    agent = folder / "agent.yaml"
    agent.write_text(AGENT_YAML)
    least = folder / "least.yaml"
    least.write_text(doors.write_agent_yaml("https://cloud.example", "ab" * 32))
    plugin = folder / "plugin.yaml"
    plugin.write_text("version: 1\nnode_name: box-1\n")
    return {
        "plugin-defaults.json": written(doors.load_plugin_yaml(plugin).model_dump(mode="json")),
        "plugin-schema.json": written(bones(doors.PluginConfig)),
        "agent-given.json": written(doors.load_agent_yaml(agent).model_dump(mode="json")),
        "agent-defaults.json": written(doors.load_agent_yaml(least).model_dump(mode="json")),
        "agent-schema.json": written(bones(doors.AgentConfig)),
        "agent-written.yaml": named(least.read_text()),
    }


def bones(model: Any) -> Any:  # noqa: ANN401  (a model's schema)
    """Return what a file may hold: keys, types, choices and bounds, without names of models and sentences."""
    schema = model.model_json_schema()
    return _bones(schema, schema.get("$defs", {}))


def _bones(part: Any, defs: Mapping[str, Any]) -> Any:  # noqa: ANN401  (a model's schema)
    match part:
        case {"$ref": ref, **rest}:
            kept = {key: one for key, one in rest.items() if key not in {"description", "title"}}
            return {**_bones(defs[ref.rpartition("/")[2]], defs), **_bones(kept, defs)}
        case {"properties": properties, **rest}:
            kept = {key: one for key, one in rest.items() if key in {"required", "additionalProperties"}}
            return {"properties": {name: _bones(one, defs) for name, one in properties.items()}, **kept}
        case dict():
            return {key: _bones(one, defs) for key, one in part.items() if key not in {"description", "title", "$defs"}}
        case list():
            return [_bones(one, defs) for one in part]
        case _:
            return part


# --- the agent's journal


def given(name: str) -> Any:  # noqa: ANN401  (JSON)
    """Return the body of an example message."""
    messages = json.loads((Path(__file__).parent / "given/messages.json").read_text())
    return next(one["body"] for one in messages if one["name"] == name)


def items() -> Any:  # noqa: ANN401  (the door's)
    return doors.asked(given("desired")["spec"], 12)


def held(fresh: Any) -> Any:  # noqa: ANN401  (the doors')
    """Return a journal's content with something of everything."""
    spec, asked = given("desired")["spec"], items()
    report = given("reported")["items"]["app_limits/default/asr/main"]
    numbers = doors.Numbers.model_validate_json(json.dumps(report["numbers"]))
    desired_state = fresh.desired_state.observe(doors.SeenRevision(12, doors.digest(spec)), asked)
    desired_state = desired_state.begin(asked[0]).settle(
        asked[0].name, asked[0].key, doors.Settlement.applied("it stands")
    )
    refused = doors.Settlement.rejected("NO_ROOM", "none", numbers)
    desired_state = desired_state.begin(asked[5]).settle(asked[5].name, asked[5].key, refused)
    desired_state = desired_state.noticed(
        asked[5].name, (doors.Condition(type="Drifted", manager="baetyl", text="twice"),)
    )
    desired_state = desired_state.begin(asked[2])
    guard = replace(fresh.replay_guard.born(nonce="ab" * 8, now_s=4.5), floor=7, seen=5, forgotten=2)
    first, other = doors.command_id(ID), doors.command_id(OTHER_ID)
    stamp = example_stamp()
    outbox = fresh.outbox.reserve(first).ended(first).add_event(doors.KeptMessage(stamp, 5, alarm=True))
    outbox = outbox.add_metrics(doors.KeptMessage(replace(stamp, n=8), 4)).reserve(other)
    return replace(
        fresh,
        replay_guard=guard,
        desired_state=desired_state,
        spec=spec,
        settling=asked[2],
        ring=replace(fresh.ring, version=2, digest="ab" * 32, keys=(("kid", "public"),)),
        records={first: record(first, doors.CommandState.SUCCEEDED), other: record(other, doors.CommandState.RUNNING)},
        outbox=replace(outbox, dropped_events=3),
        server_time=17,
        heard=doors.LastContact("boot", 3.5),
        refused={"Forged": 2},
    )


def record(id_: Any, state: Any) -> Any:  # noqa: ANN401  (the doors')
    return doors.CommandRecord(
        id=id_,
        op=doors.op_name("k3s.restart"),
        seq=5 if id_ == ID else 6,
        args={"a": [1]},
        until_s=9.0,
        left_s=8.0,
        boot="boot",
        state=state,
        token="a token",  # noqa: S106  (a command's)
        attempts=1,
        code="TIMED_OUT",
        text="words",
    )


def example_stamp() -> Any:  # noqa: ANN401  (the door's)
    return doors.Stamp(enrolment=3, epoch=doors.Epoch(42, "9f2c4d1a7b3e5f60"), n=7)


def journal(path: Path) -> Any:  # noqa: ANN401  (the door's)
    room = doors.JournalPages(pages=900, log_pages=300)
    return doors.BoxJournal(path, limits=doors.OutboxLimits(**LIMITS), room=room, wall_s=lambda: NOW_S)


def journal_dump(path: Path) -> str:
    opened = journal(path)
    whole = held(opened.load(enrolment=3, root="root"))
    stamp = example_stamp()
    bodies = {doors.command_id(ID): b"result", stamp: b"event", replace(stamp, n=8): b"metr"}
    told = tuple(
        doors.HistoryEntry(kind=kind, about="about", state="STATE", text="text", by="anna")
        for kind in ("command", "item", "desired", "keys", "link", "journal")
    )
    opened.save(whole, bodies=bodies, notes={"sharing": {"tx": "1"}}, told=told)
    opened.close()
    with sqlite3.connect(path) as link:
        pragmas = [
            f"PRAGMA {name} = {link.execute(f'PRAGMA {name}').fetchone()[0]};"
            for name in ("application_id", "user_version")
        ]
        lines = [line for line in link.iterdump() if not line.startswith(("BEGIN", "COMMIT"))]
    link.close()
    return "\n".join([*pragmas, *lines]) + "\n"


def journal_from(dump: str, path: Path) -> tuple[Any, Any]:
    """Return what today's code reads in a journal of the recorded kind, and what it should."""
    with sqlite3.connect(path) as link:
        link.executescript(dump)
    link.close()
    opened = journal(path)
    found = opened.load(enrolment=3, root="root")
    opened.close()
    fresh = journal(path.with_name("fresh.db"))
    wanted = held(fresh.load(enrolment=3, root="root"))
    fresh.close()
    return found, wanted


class Kept:
    """Notes of an item, in memory."""

    def __init__(self, value: Any = None) -> None:  # noqa: ANN401  (JSON)
        self.value = value

    def read(self) -> Any:  # noqa: ANN401  (JSON)
        return self.value

    def write(self, value: Any) -> None:  # noqa: ANN401  (JSON)
        self.value = value


def limits_note() -> Any:  # noqa: ANN401  (the door's)
    amounts = doors.ContainerShares({"baidu.com/vcuda-memory": "4"}, {"baidu.com/vcuda-memory": None})
    return doors.LimitsNote(uid="u", before=amounts, asked=amounts, forced=True, why="why", fights=2)


def notes(folder: Path) -> dict[str, Any]:
    """Return what is noted before a change is begun, and the tokens of commands: a new version goes on with them."""
    kept = Kept()
    limits_note().write(kept)
    limits = kept.value
    limits_note().restoring("it does not come up").write(kept)
    (folder / "opt/edgegpu").mkdir(parents=True)
    (folder / "opt/edgegpu/current").symlink_to("1.0")
    return {
        "app limits": limits,
        "app limits, going back": kept.value["step"],
        "sharing": sorted(doors.SETTLING_NOTE),
        "items begun": [json.loads(doors.asked_text(one)) for one in items() if one.item is not None],
        "aside annotation": doors.LIMITS_ASIDE,
        "token of agent.upgrade": json.loads(doors.upgrade_token(folder)),
        "token of a restart": json.loads(doors.restart_token("k3s", boot="boot", invocation="aa")),
    }


# --- the plugin's files and annotations


def example_cards() -> tuple[Any, Any]:
    plain = doors.Card(uuid="GPU-1", index=0, name="T4", memory_mib=15360, pci="00000000:01:00.0", minor=0)
    mig = doors.Card(
        uuid="MIG-1",
        index=1,
        name="A100",
        memory_mib=5120,
        pci="00000000:02:00.0",
        minor=3,
        mig=0,
        parent="GPU-2",
        caps=(12, 13),
    )
    return plain, mig


def inventory(folder: Path) -> str:
    store = doors.InventoryStore(folder)
    plain, mig = example_cards()
    store.save(doors.SavedInventory((plain, mig), (plain,), 256))
    return (folder / "inventory.json").read_text()


def cdi() -> Any:  # noqa: ANN401  (JSON)
    root = Path("/")
    driver = doors.DriverFiles(
        root=root,
        version="570.1",
        libraries=(doors.Library(root / "usr/lib64/libcuda.so.570.1", ("libcuda.so.570.1", "libcuda.so.1")),),
        tools=(root / "usr/bin/nvidia-smi",),
        read_only=(root / "lib/firmware/nvidia/570.1",),
        sockets=(root / "run/nvidia-persistenced/socket",),
        shared=(root / "var/lib/nvidia-sim",),
        control_nodes=("nvidiactl", "nvidia-uvm"),
    )
    spec = doors.build_spec(example_cards(), driver, machine="x86_64")
    for edits in (spec, *spec["devices"]):
        for node in edits["containerEdits"]["deviceNodes"]:
            for number in ("type", "major", "minor"):
                node.pop(number, None)  # this machine may have cards: the golden file is of one without their nodes
    return {"names": [doors.cdi_name(card.uuid) for card in example_cards()], "spec": spec}


def node_report() -> Any:  # noqa: ANN401  (the door's)
    return doors.NodeReport(
        boot="4a3c9f1e",
        generation=12,
        time="2026-01-01T00:00:00Z",
        policy=doors.Policy.BEST_FIT,
        unit_mib=256,
        core_required=True,
        slots=(doors.CardCapacity("GPU-1", "0", 29), doors.CardCapacity("GPU-2", "1", 29, healthy=False)),
        held={"uid-a": (doors.Share("GPU-1", 20, 30),)},
        waiting=frozenset({"uid-b"}),
    )


def marks() -> dict[str, Any]:
    cards = {"main": ("GPU-1",), "side": ("GPU-1", "GPU-2")}
    return {
        "node": {doors.REPORT_ANNOTATION: doors.write_report(node_report())},
        "node label that counts": doors.REPORT_LABEL,
        "node label of the installer": doors.GPU_LABEL,
        "node annotation of the installer": doors.EXTENDER_ANNOTATION,
        "pod": {doors.CARDS_ANNOTATION: doors.write_cards("uid-a", "box-1", cards)},
        "pod's policy": doors.POLICY_ANNOTATION,
        "devices": [doors.memory_ids("GPU-1", 2), doors.core_ids("GPU-1")[:2]],
    }


def status(folder: Path) -> Any:  # noqa: ANN401  (JSON)
    """Return the shape of what the plugin answers for /v1/status: a server's head, and a row of each kind."""
    run = folder / "run"
    document = doors.plugin_document(folder, run)
    rows = {
        "cards": doors.cards_part(snapshot(), {}),
        "other_cards": doors.other_cards_part(snapshot()),
        "pods": doors.pods_part(snapshot(), (), (), ()),
    }
    return shape({"document": document, "rows": json.loads(json.dumps(rows))})


def snapshot() -> Any:  # noqa: ANN401  (the door's)
    """Return a node on which a pod holds a share, one waits, one is gone, and a card that is gone is held."""
    slots = (doors.CardCapacity("GPU-0", "0", 29),)
    gone = replace(example_cards()[0], uuid="GPU-9", index=9)
    book = doors.Book((*slots, doors.CardCapacity("GPU-9", "9", 29)))
    pods = [doors.pod_of(uid, doors.container_of("main", 4, 10)) for uid in ("has", "waits", "lost")]
    book.share("has", "GPU-0", 4, 10)
    book.share("lost", "GPU-9", 4, 10)
    book.share("ended", "GPU-0", 4, 10)
    view = doors.view_of(slots, *pods, ledger=book.ledger)
    cards = {"GPU-0": replace(example_cards()[0], uuid="GPU-0"), "GPU-9": gone}
    return doors.Snapshot(view, dict(view.pods), checkpoint_read=True, cards=cards, gone=frozenset({"GPU-9"}))


# --- small files of the agent


def agent_words(folder: Path) -> dict[str, str]:
    floor = folder / "clock.json"
    doors.ClockFloor(floor, clock=lambda: NOW_S, boot_s=lambda: 1.0).raise_to(int(NOW_S))
    standing = doors.IdentityStatus(stand=doors.EnrolmentState.ENROLLED)
    doors.tell_standing(folder / "standing.json", standing)
    join = doors.pack(server="https://10.0.0.1:6443", ca_pem=doors.NO_CERTIFICATE, token="t")  # noqa: S106
    kubeconfig = doors.render_kubeconfig(server="https://127.0.0.1:6443", ca_pem="PEM", token="t")  # noqa: S106
    return {
        "clock.json": floor.read_text() + "\n",
        "standing.json": written(json.loads((folder / "standing.json").read_text())),
        "join-token.txt": join + "\n",
        "kubeconfig.yaml": str(yaml.safe_dump(yaml.safe_load(kubeconfig), sort_keys=False)),
    }
