"""What a controller keeps: its folder, configuration, the broker's files, its tables; and what it says over HTTPS."""

from __future__ import annotations

import asyncio
import json
import pwd
import sqlite3
from typing import TYPE_CHECKING, Any, cast

from golden import doors
from golden.boxstate import bones
from golden.shapes import named, written
from kits.backups import opened_archive, passphrase_words

if TYPE_CHECKING:
    from pathlib import Path

PLACE = "/etc/mosquitto/edgegpu"


def files(folder: Path) -> dict[str, str]:
    cloud = folder / "cloud"
    words = ("--name", "cloud.example", "--broker", "broker.example:8883", "--https-port", "8443")
    done = doors.edgegpu_cloud("init", *words, folder=cloud)
    assert done.code == 0, done.err
    user = f"user {pwd.getpwuid(cloud.stat().st_uid).pw_name}\n"
    own = (str(cloud), "<folder>"), (user, "user <owner>\n")
    elsewhere = folder / "broker"
    doors.edgegpu_cloud("broker", "--out", str(elsewhere), "--place", PLACE, "--user", "mosquitto", folder=cloud)
    backup = folder / "backup.tar"
    doors.edgegpu_cloud("backup", str(backup), *passphrase_words(folder), folder=cloud)
    with opened_archive(backup) as archive:
        members = sorted(f"{one.name} {one.mode:o}" for one in archive.getmembers())
    return {
        "folder.json": written(tree(cloud)),
        "controller.yaml": (cloud / "controller.yaml").read_text(),
        "controller-schema.json": written(bones(doors.CloudConfig)),
        "controller-defaults.json": written(doors.load_controller_yaml(minimal(folder)).model_dump(mode="json")),
        "mosquitto.conf": settings((cloud / "broker/mosquitto.conf").read_text(), *own),
        "boxes.acl": settings((cloud / "broker/boxes.acl").read_text()),
        "controllers.acl": settings((cloud / "broker/controllers.acl").read_text()),
        "broker-elsewhere.json": written(tree(elsewhere)),
        "mosquitto-elsewhere.conf": settings((elsewhere / "mosquitto.conf").read_text()),
        "backup.json": written(members),
        "tables.sql": tables(cloud / "controller.db"),
        "tables-postgresql.sql": doors.postgresql_tables(),
        "https.json": written(https(folder / "https")),
    }


def minimal(folder: Path) -> Path:
    path = folder / "minimal.yaml"
    path.write_text("version: 1\n")
    return path


def tree(folder: Path) -> list[str]:
    """Return each file with its mode, less what SQLite keeps beside a database that is open."""
    paths = (path for path in sorted(folder.rglob("*")) if not path.name.endswith(("-wal", "-shm")))
    of_umask = {"controller.db"}
    modes = {path: "-" if path.name in of_umask else f"{path.lstat().st_mode:o}" for path in paths}
    return [f"{path.relative_to(folder)} {mode}" for path, mode in modes.items()]


def settings(text: str, *own: tuple[str, str]) -> str:
    """Return a broker's file without its comments."""
    return named("\n".join(line for line in text.splitlines() if line and not line.startswith("#")) + "\n", *own)


def tables(path: Path) -> str:
    """Return the tables and indexes of a new store as SQLite has them, and the numbers that are in it."""
    with sqlite3.connect(path) as link:
        made = [row[0] for row in link.execute("SELECT sql FROM sqlite_master WHERE sql NOT NULL ORDER BY name")]
        schema = link.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()[0]
    link.close()
    return ";\n".join([f"-- version {schema}", *made]).replace("\t", " ") + ";\n"


# --- HTTPS, without sockets: what the application answers to the agent's own requests


class _Heard:
    """The application, and what went in and came out, with keys and ids named."""

    def __init__(self, app: Any) -> None:  # noqa: ANN401  (the door's)
        self._app = app
        self.exchanges: list[dict[str, Any]] = []

    def post(self, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
        status, _, answer = asyncio.run(_answered(self._app, "POST", path, body, headers))
        exchange = {"path": path, "asked": json.loads(body), "headers": sorted(headers), "status": status}
        self.exchanges.append(json.loads(named(json.dumps(exchange | {"answer": json.loads(answer)}))))
        return status, answer

    def get(self, path: str) -> None:
        status, headers, answer = asyncio.run(_answered(self._app, "GET", path, b"", {}))
        exchange = {"path": path, "status": status, "type": headers["content-type"], "bytes": bool(answer)}
        self.exchanges.append(exchange)


async def _answered(
    app: Any,  # noqa: ANN401  (the door's)
    method: str,
    path: str,
    body: bytes,
    headers: dict[str, str],
) -> tuple[int, dict[str, str], bytes]:
    sent: list[dict[str, Any]] = []
    given = {**headers, "content-length": str(len(body)), "content-type": "application/json"}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "https",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        "client": ("10.1.2.3", 1),
        "server": ("127.0.0.1", 8443),
    }
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not waiting:
            await asyncio.Event().wait()  # the client stays
        return waiting.pop()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, b"".join(one.get("body", b"") for one in sent[1:])


class _Client:
    """What the agent asks, straight to the application."""

    def __init__(self, heard: _Heard, authority: bytes) -> None:
        self._heard, self._authority = heard, authority

    def fetch_ca(self, _sha256: str) -> bytes:
        return self._authority

    def enrol(self, body: bytes) -> Any:  # noqa: ANN401  (the door's)
        return doors.EnrolledAnswer.model_validate_json(self._heard.post("/v1/enrol", body)[1])

    def renew(self, body: bytes, signature: str) -> Any:  # noqa: ANN401  (the door's)
        answer = self._heard.post("/v1/renew", body, **{"Edgegpu-Signature": signature})
        return doors.RenewedAnswer.model_validate_json(answer[1])


def https(folder: Path) -> list[Any]:
    """Return requests and answers: a box that enrols and renews, one that waits, those that are refused, the files."""
    folder.mkdir()
    here, app = doors.https_application(folder)
    try:
        heard = _Heard(app)
        renewed = _enrolled(folder, here, heard)
        device = json.loads((folder / "identity/device.json").read_text())
        hand = doors.EnrollingBox(here.token(approval=True))
        for change in ({}, {"token": "wrong"}, {"request": "no"}):
            heard.post("/v1/enrol", json.dumps(hand.ask(**change)).encode())
        renewal = {"device": device["device"], "enrolment": 1, "csr": hand.csr, "instance": hand.instance}
        heard.post("/v1/renew", json.dumps(renewal).encode())
        for path in ("/healthz", "/ca.crt", "/install.sh", "/SHA256SUMS", "/uninstall.sh", "/secret.key", "/v2/x"):
            heard.get(path)
    finally:
        here.store.close()
    for one in heard.exchanges:
        for part in (one.get("asked"), one.get("answer")):
            if isinstance(part, dict):
                _name(part, device["device"])
    texts = json.loads(named(json.dumps(device)))
    _name(texts, device["device"])
    files = [f"{path.name} {path.stat().st_mode:o}" for path in sorted(folder.joinpath("identity").iterdir())]
    return [*heard.exchanges, {"identity": files, "device.json": texts, "renewed.json": renewed}]


def _name(part: dict[str, Any], device: str) -> None:
    """Name what differs from run to run, and leave sentences out."""
    names = {"token": "<token>", "server_time": 0, "text": "<text>", "remedy": "<remedy>", "enrolled_s": 0}
    for key, value in part.items():
        if key in names:
            part[key] = names[key]
        elif key == "request" and len(str(value)) > len("no"):
            part[key] = "<16 hex>"
        elif value == device:
            part[key] = "<device>"


def _enrolled(folder: Path, here: Any, heard: _Heard) -> list[str]:  # noqa: ANN401  (the door's)
    """Enrol and renew as the agent does; returns the keys of what it keeps of a renewal."""
    authority = here.layout.ca_cert("servers").read_bytes()
    client = _Client(heard, authority)
    address = doors.CloudAddress(url="https://cloud.example:8443", ca_sha256=doors.sha256_of(authority))
    made = doors.BoxEnrolment(
        folder=folder / "identity",
        cloud=address,
        instance="ab" * 32,
        host="box-1",
        agent="0.2.0",
        client=cast("Any", lambda _: client),
    )
    identity: Any = made.attempt(here.token())
    renewal = doors.BoxRenewal(
        identity=identity, instance="ab" * 32, cloud=address, client=cast("Any", lambda _: client)
    )
    renewal.renew("cmd-00000001")
    return sorted(json.loads((folder / "identity/renewed.json").read_text()))
