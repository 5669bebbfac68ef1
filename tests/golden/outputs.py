"""What `--json` prints: keys and types of each command's document, walked in real answers."""

from __future__ import annotations

import json
import os
import re
import time
from typing import TYPE_CHECKING, Any
from unittest import mock

from golden import doors
from golden.installed import version_folder
from golden.shapes import merged, shape, written
from kits.backups import passphrase_words

if TYPE_CHECKING:
    from pathlib import Path

BOX, OTHER = "box-1", "box-2"


def files(folder: Path) -> dict[str, str]:
    for name in ("fleet", "office", "box"):
        (folder / name).mkdir()
    cloud = fleet(folder / "fleet")
    for name, found in office(folder / "office").items():
        cloud[name] = merged([cloud[name], found]) if name in cloud else found
    return {
        "edgegpu-cloud.json": written(dict(sorted(cloud.items()))),
        "edgegpu.json": written(dict(sorted(edgegpu(folder / "box").items()))),
        "words.json": written(words()),
    }


class Shapes(dict[str, Any]):
    """Shapes by the words of the command, several answers in one."""

    def take(self, name: str, text: str) -> Any:  # noqa: ANN401  (JSON)
        value = json.loads(text)
        found = shape(value)
        self[name] = merged([self[name], found]) if name in self else found
        return value


# --- the controller's command line, on a fleet of boxes that live in simulated time


def fleet(folder: Path) -> Shapes:
    cloud, made = folder / "cloud", Shapes()

    def ask(name: str, *words: str, codes: tuple[int, ...] = (0,)) -> Any:  # noqa: ANN401  (JSON)
        done = doors.edgegpu_cloud(*name.split(), *words, "--json", folder=cloud)
        assert done.code in codes, (name, done.err, done.out)
        return made.take(name, done.out)

    ask("init", "--name", "cloud.example")
    (cloud / "controller.db").unlink()
    bed = doors.ControllerBed(cloud, boxes=2)
    try:
        live(bed)
        ask("boxes")
        ask("boxes", "-l", "site=none")
        ask("label", BOX, "site=pole")
        ask("limits set", BOX, "asr", "--memory", "4", "--core", "1", "--preview")
        ask("limits set", BOX, "asr", "--memory", "4", "--core", "1")
        ask("limits set", "-l", "site=pole", "ocr", "--memory", "61", "--core", "1", "--preview", codes=(0, 1))
        ask("sharing set", BOX, "--policy", "spread", "--exclude", "0", "--unit-mib", "512", "--preview", codes=(0, 1))
        ask("sharing set", BOX, "--policy", "spread")
        ask("install", BOX)
        ask("uninstall", BOX, "--yes")
        ask("uninstall -l", "site=pole", "--yes")
        restart = ask("command", BOX, "k3s.restart", "--yes")
        waiting = ask("command", OTHER, "doctor.run", "--wait", "--timeout", "1", codes=(3,))
        bed.settle(8)
        ask("box", BOX)
        ask("evidence", BOX)
        ask("alerts list")
        ask("boxes")
        ask("limits show", BOX)
        ask("limits show", BOX, "--preview")
        ask("limits history", BOX, "asr")
        ask("sharing show", BOX)
        ask("commands", BOX)
        ask("watch", restart["id"])
        ask("cancel", waiting["id"], codes=(0, 1))
        ask("limits forget", BOX, "asr")
        ask("sharing forget", BOX, "policy")
        ask("rename", BOX, "hall")
        ask("alarms")
        ask("broker")
        ask("backup", str(folder / "backup.tar"), *passphrase_words(folder))
        ask("boxes", "--folder", str(folder / "none"), codes=(1,))
    finally:
        bed.store.close()
    return made


def live(bed: Any) -> None:  # noqa: ANN401  (the door's)
    """Let the boxes be on the link now, and tell what a box tells."""
    bed.world.now_s = time.time()
    bed.restart()
    bed.connect_all()
    bed.settle(2)
    for device in bed.devices:
        box = bed.box(device)
        for kind, message in doors.example_messages():
            body = message.model_copy(update={**box._up(), **doors.WHOLE.get(kind, {})})  # noqa: SLF001  (the kit's stamp)
            box.say(box.plain(kind), body)
    bed.box().happen("a card fell off the bus", "alarm")
    bed.box().answers = {"k3s.restart": {"unit": "k3s"}}
    bed.box().verdict = doors.verdict_with_numbers
    bed.settle(3)


# --- the controller's command line, where boxes enrol


def office(folder: Path) -> Shapes:
    made = Shapes()
    here = doors.office(folder / "cloud", clock=doors.Clock(time.time()))

    def ask(name: str, *words: str) -> Any:  # noqa: ANN401  (JSON)
        done = doors.edgegpu_cloud(*name.split(), *words, "--json", folder=folder / "cloud")
        assert done.code == 0, (name, done.err, done.out)
        return made.take(name, done.out)

    try:
        for host in ("box-1", "box-2"):
            doors.EnrollingBox(here.token(approval=True), host=host).enrol(here.desk)
        ask("enrol", "--name", "box-9")
        ask("tokens")
        first, second = (one["id"] for one in ask("pending"))
        ask("approve", first)
        ask("refuse", second)
        doors.EnrollingBox(here.token(name="box-3"), host="box-3").enrolled(here.desk)
        ask("keys show")
        ask("keys rotate")
        ask("keys make-root", str(folder / "root.key"))
        ask("revoke", "box-3", "--yes")
        ask("alarms")
        ask("boxes forget", "box-3", "--yes")
    finally:
        here.store.close()
    return made


# --- the box's command line


def edgegpu(folder: Path) -> Shapes:
    made = Shapes()

    def ask(name: str, *words: Any, codes: tuple[int, ...] = (0,)) -> None:  # noqa: ANN401  (paths too)
        done = doors.edgegpu(*name.split(), *words, "--json")
        assert done.code in codes, (name, done.err, done.out)
        made.take(name, done.out)

    with doors.plugin_socket(folder, whole_status()) as socket:
        for name in ("status", "pods", "version"):
            ask(name, "--socket", socket, codes=(0, 1))
    ask("status", "--socket", folder / "none", codes=(1,))
    ask("config check", doors.EXAMPLES / "plugin.yaml")
    broken = folder / "broken.yaml"
    broken.write_text("version: 7\n")
    ask("config check", broken, codes=(1,))
    ask("doctor", "--root", folder, "--check", "clock", "--check", "disk", codes=(0, 1, 2))
    made["doctor --list"] = shape(json.loads(doors.edgegpu("doctor", "--list", "--json").out))
    made["doctor's checks"] = [one["name"] for one in json.loads(doors.edgegpu("doctor", "--list", "--json").out)]
    (folder / "etc/edgegpu").mkdir(parents=True)
    ask("agent status", "--root", folder)
    (folder / "etc/edgegpu/agent.yaml").write_text(doors.write_agent_yaml("https://cloud.example", "ab" * 32))
    for target, answer in agent_answers().items():
        with doors.raw_server(folder / f"{target}.sock", doors.http(answer)) as socket:
            ask(
                target.replace("-", " "),
                "--socket",
                socket,
                *(["--root", folder] if "agent" in target else []),
                codes=(0, 1),
            )
    with mock.patch.dict(os.environ, EDGEGPU_RELEASE=str(version_folder(folder))):
        made["install --dry-run"] = shape(doors.install_document(folder / "machine"))
        made["uninstall --dry-run"] = shape(doors.uninstall_document(folder / "other"))
    return made


def whole_status() -> dict[str, Any]:
    """Return the kit's document with a row of each kind that the plugin has."""
    known: dict[str, Any] = doors.status_document()
    gone = {"index": "9", "uuid": "GPU-9", "name": "Tesla P4", "gone": True}
    node = {"name": "box-2", "cards": 1, "units": 29, "units_free": 9}
    return known | {"other_cards": [gone], "nodes": [node], "unit_wanted_mib": 512}


def agent_answers() -> dict[str, str]:
    """Return what the agent answers on its socket, with something of everything."""
    item = {"app_limits/default/asr/main": doors.an_item_report()}
    open_command = doors.OpenCommand(id="01j9zq4v7m2c8x5n", op="k3s.restart", seq=5, state="RUNNING")
    status = doors.StatusAnswer(
        device="k3f9x2m7q1w8e5r4",
        enrolment=3,
        epoch=42,
        age_s=60,
        connected=True,
        controller_unseen_s=1,
        key_set=4,
        observed_rev=12,
        applied_rev=11,
        items=item,
        commands=(open_command,),
        capabilities=("k3s.restart",),
        refused={"Forged": 1},
        identity=doors.IdentityStatus(stand=doors.EnrolmentState.ENROLLED).document(),
    )
    line = doors.JournalLine(n=1, at=1_790_000_000, kind="command", about="01j9zq4v7m2c8x5n", state="RUNNING")
    answers = {"agent-status": status, "journal": doors.JournalAnswer(lines=(line,))}
    return {name: answer.model_dump_json() for name, answer in answers.items()}


# --- words that others look for


def words() -> dict[str, list[str]]:
    """Return names that stand in the cluster, in alarms and in the audit: read from the sources, wherever they lie."""
    paths = sorted(path for top in doors.PRODUCT for path in top.rglob("*.py"))
    text = "\n".join(path.read_text() for path in paths)
    kinds = (
        r'"((?:alarm|box|broker|clock|command|enrol|https|keys|renew|serve|token)\.[A-Za-z_]+|[A-Z]+_(?:AHEAD|ASIDE))"'
    )
    of_files = re.compile(r"\.(?:crt|key|pub|db|yaml|json|acl|crl|sock|state)$")
    return {
        "reasons of Events": sorted(set(re.findall(r'"(GPU[A-Z]\w+)"', text))),
        "labels and annotations": sorted(set(re.findall(r"\bedgegpu\.io/[a-z-]+", text))),
        "kinds of alarms, deeds in the audit": sorted(
            one for one in set(re.findall(kinds, text)) if not of_files.search(one)
        ),
    }
