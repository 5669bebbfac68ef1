"""A box in a folder for acts: systemctl, journalctl, and an edgegpu that behaves as the installer does."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import ssl
import tarfile
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from kits.install import _Server as QuietServer
from kits.install import running

from edgegpu_agent.actions.bundles import sign
from edgegpu_agent.actions.registry import ActionContext
from edgegpu_installer.layout import Layout
from edgegpu_sync.ids import CommandId
from edgegpu_sync.messages.spec import AskedItem, asked
from edgegpu_sync.rules.ops import NoArgs, UpgradeArgs
from edgegpu_sync.wire import Json, to_base64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from box.webcert import WebCert

ID = CommandId("cmd-00000001")
NOTHING = NoArgs()
LIMIT_S = 60.0

EDGEGPU = r"""#!/bin/sh
# Stands in for edgegpu. What it shall do stands in files below $FAKE: `refuse` (a code), `end` (a state), `hold-STATE`.
set -u
words=$*
id='' verb=$1
while [ $# -gt 0 ]; do
    if [ "$1" = --transaction-id ]; then id=$2; fi
    shift
done
at() { # state
    echo "2026-01-01T00:00:00Z $id $verb $1" >> "$TX/log"
    { # as the journal has it
        printf '%s\n' "id=$id" op=install "state=$1" unit=k3s "why=$(cat "$FAKE/why" 2> /dev/null)"
        for name in started_s deadline_wall_s deadline_boot_s attempts settle_s wait_s; do echo "$name=1"; done
    } > "$TX/state.new"
    mv "$TX/state.new" "$TX/state"
    hold "$1"
}
hold() {
    : > "$FAKE/at-$1"
    while [ -e "$FAKE/hold-$1" ]; do sleep 0.02; done
}
TX=$FAKE_ROOT/var/lib/edgegpu/tx
case $verb in
version) echo "edgegpu 1.0.0" ;;
doctor) cat "$FAKE/doctor.json"; exit 2 ;;
pods) echo '{"v": 1, "node": "box", "pods": []}' ;;
status | transaction) echo "{\"$verb\": \"as it is\"}" ;;
install | uninstall)
    mkdir -p "$TX"
    echo "$$" > "$FAKE/pid"
    echo "$words" >> "$FAKE/asked"
    hold BEFORE
    if [ -s "$FAKE/refuse" ]; then
        code=$(head -n 1 "$FAKE/refuse")
        sed -i 1d "$FAKE/refuse"
        echo "{\"error\": \"cannot $verb: for a reason\", \"remedy\": \"mend it\", \"code\": \"$code\"}"
        exit 1
    fi
    if grep -q " $id " "$TX/log" 2> /dev/null; then echo '{"error": "known", "remedy": "", "code": "KNOWN"}'; exit 1; fi
    echo "$words" >> "$FAKE/done"
    for state in PREPARED SWAPPED VERIFYING; do at $state; done
    if [ -e "$FAKE_ROOT/opt/edgegpu/current" ] && [ -e "${0%/bin/*}/VERSION" ]; then
        ln -sfn "$(cat "${0%/bin/*}/VERSION")" "$FAKE_ROOT/opt/edgegpu/current"
        hold LINKED
    fi
    end=$(cat "$FAKE/end" 2> /dev/null || echo COMMITTED)
    if [ "$end" != COMMITTED ]; then
        at ROLLING_BACK
        [ ! -e "$FAKE/old" ] || ln -sfn "$(cat "$FAKE/old")" "$FAKE_ROOT/opt/edgegpu/current"
    fi
    at "$end"
    hold MARKS
    echo "{\"v\": 1, \"state\": \"$end\", \"why\": \"$(cat "$FAKE/why" 2> /dev/null)\", \"changed\": true}"
    [ "$end" = COMMITTED ] ;;
esac
"""

SYSTEMCTL = r"""#!/bin/sh
# Stands in for systemctl: units are files of properties below $FAKE/units; a restart makes a new InvocationID.
for unit in "$@"; do :; done
case $1 in
show) cat "$FAKE/units/$unit" 2> /dev/null || echo LoadState=not-found ;;
restart)
    echo "$*" >> "$FAKE/restarts"
    if [ -e "$FAKE/stuck" ]; then echo Job=7 >> "$FAKE/units/$unit"; exit 0; fi
    if [ -e "$FAKE/refused" ]; then echo "Access denied" >&2; exit 1; fi
    count=$(wc -l < "$FAKE/restarts")
    sed -i "s/^InvocationID=.*/InvocationID=new$count/" "$FAKE/units/$unit" ;;
esac
"""

JOURNALCTL = r"""#!/bin/sh
for word in "$@"; do case $word in --unit=*) cat "$FAKE/logs/${word#--unit=}" 2> /dev/null ;; esac; done
exit 0
"""


@dataclass
class Bench:
    """The box's folders, and what its programs shall do."""

    root: Path
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        for name in ("bin", "units", "logs"):
            (self.fake / name).mkdir(parents=True)
        for name, text in (("edgegpu", EDGEGPU), ("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL)):
            self.program(self.fake / "bin" / name, text)
        self.write("/proc/sys/kernel/random/boot_id", "boot-1\n")
        self.layout.at("/proc/locks").symlink_to("/proc/locks")
        self.layout.at("/run").mkdir()
        self.write("/opt/edgegpu/1.0.0/VERSION", "1.0.0\n")
        self.layout.current.symlink_to("1.0.0")
        self.write("/etc/systemd/system/edgegpu-plugin.service", "")
        self.layout.state.mkdir(parents=True)

    @property
    def fake(self) -> Path:
        return self.root / "fake"

    @property
    def layout(self) -> Layout:
        return Layout(self.root)

    @property
    def env(self) -> dict[str, str]:
        path = f"{self.fake / 'bin'}:{os.environ['PATH']}"
        return {"PATH": path, "FAKE": str(self.fake), "FAKE_ROOT": str(self.root)}

    @staticmethod
    def program(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def write(self, path: str, text: str) -> Path:
        place = self.layout.at(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def tell(self, name: str, text: str = "") -> None:
        (self.fake / name).write_text(text)

    def untell(self, name: str) -> None:
        (self.fake / name).unlink()

    def said(self, name: str) -> list[str]:
        path = self.fake / name
        return path.read_text().splitlines() if path.exists() else []

    def unit(self, name: str, invocation: str = "old", **more: str) -> None:
        given = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "InvocationID": invocation}
        self.tell(f"units/{name}", "".join(f"{key}={value}\n" for key, value in (given | more).items()))

    def box(self, **more: object) -> ActionContext:
        given: dict[str, object] = {
            "stop": self.stop,
            "identity": self.layout.state / "identity",
            "layout": self.layout,
            "program": (str(self.fake / "bin/edgegpu"),),
            "env": self.env,
            "speed": 10.0,
        }
        return ActionContext(**given | more)  # type: ignore[arg-type]

    def comes(self, name: str) -> None:
        """Wait until the fake has come so far."""
        wait_for((self.fake / name).exists)

    def installer_pid(self) -> int:
        return int(self.said("pid")[0])


def wait_for(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not look():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


@dataclass
class FileNotes:
    """Notes of an item, in a file: a process that is killed leaves them."""

    path: Path

    def read(self) -> Json | None:
        return json.loads(self.path.read_text()) if self.path.exists() else None

    def write(self, note: Json) -> None:
        self.path.write_text(json.dumps(note))


def item(name: str, *, rev: int = 3, **values: object) -> AskedItem:
    (one,) = asked({name: {"rev": rev, **values}}, rev)  # type: ignore[dict-item]
    return one


# --- hosts


@dataclass
class Uploads:
    """What was put, and what it is answered: statuses in turn, then 200."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    answers: list[int] = field(default_factory=list)
    subjects: list[object] = field(default_factory=list)


class _Put(http.server.BaseHTTPRequestHandler):
    def __init__(self, *args: object, uploads: Uploads) -> None:
        self.uploads = uploads
        super().__init__(*args)  # type: ignore[arg-type]

    def do_PUT(self) -> None:
        """Keep the body under its name."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.uploads.answers.pop(0) if self.uploads.answers else 200
        certificate = self.connection.getpeercert()
        self.uploads.subjects.append(certificate and certificate["subject"])
        if status < 300:
            self.uploads.files[self.path] = body
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        """Stay quiet."""


@contextlib.contextmanager
def uploads(cert: WebCert, identity: Path) -> Iterator[Uploads]:
    """Take archives by HTTPS from who has a certificate of the same CA; the box gets the server's own."""
    identity.mkdir(parents=True, exist_ok=True)
    (identity / "cloud-ca.crt").write_text(cert.ca)
    (identity / "tls.crt").write_bytes(cert.cert_file.read_bytes())
    (identity / "tls.key").write_bytes(cert.key_file.read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert.cert_file, cert.key_file)
    context.load_verify_locations(cadata=cert.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    found = Uploads()
    with running(QuietServer(("127.0.0.1", 0), partial(_Put, uploads=found))) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        found.url = f"https://127.0.0.1:{server.server_address[1]}"
        yield found


# --- releases


@dataclass(frozen=True)
class Vendor:
    """Who makes releases."""

    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def public(self) -> str:
        return to_base64(self.key.public_key().public_bytes_raw())

    def bundle(
        self, folder: Path, version: str = "2.0.0", *, starts: bool = True, named: str = "", keys: str = ""
    ) -> Path:
        """Make an archive of a version whose edgegpu is the stand-in."""
        made = folder / f"edgegpu-{version}-linux-amd64"
        (made / "bin").mkdir(parents=True)
        (made / "VERSION").write_text(f"{named or version}\n")
        (made / "BUILD").write_text("b\n")
        if keys:
            (made / "release.pub").write_text(keys)
        (made / "ballast").write_bytes(os.urandom(300_000))
        Bench.program(made / "bin/edgegpu", EDGEGPU if starts else "#!/bin/sh\necho cannot start >&2\nexit 1\n")
        archive = folder / f"{version}.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(made, made.name)
        return archive

    def args(self, url: str, sha256: str, *, version: str = "2.0.0", signature: str = "") -> UpgradeArgs:
        signed = signature or sign(self.key, version, sha256)
        return UpgradeArgs(version=version, url=url, sha256=sha256, signature=signed)
