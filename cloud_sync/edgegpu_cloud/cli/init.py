"""`edgegpu-cloud init`: makes a controller in an empty folder."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from edgegpu_cloud.broker.folder import write_broker
from edgegpu_cloud.broker.guard import guard_place, load_problem, mosquitto_here
from edgegpu_cloud.cli.common import (
    DEFAULT,
    FolderOption,
    JsonOption,
    operator,
    print_json,
    refuse_server,
    reporting,
)
from edgegpu_cloud.cli.keys import check_public
from edgegpu_cloud.enrolment.bootstrap import found
from edgegpu_cloud.enrolment.key_files import file_sha256, read_file
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.http.urls import console_url, link_url
from edgegpu_cloud.layout import CloudConfig, CloudLayout, store_url
from edgegpu_cloud.numbers import is_number
from edgegpu_cloud.people.people import FIRST_ADMIN_S, People
from edgegpu_cloud.store.migrations import load_revisions
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.messages.downlink import KeySetLink

_PORT, _HTTPS_PORT, _CONTROLLER_PORT, _CONSOLE_PORT = 8_883, 8_443, 8_884, 8_444
_MOST_PORT = 65_535
_NO_NAME = (
    "give the host name or address by which boxes reach this machine: --name cloud.example.com "
    "(for a trial on this machine alone: --name 127.0.0.1)"
)
_OPTIONS = {
    ("names",): "--name",
    ("broker", "host"): "--broker",
    ("database", "url"): "--database",
    ("database",): "--database-password-file",
    ("console", "url"): "--console-url",
    ("console", "trusted_proxies"): "--trusted-proxy",
}

HELP = """\
Make a controller in an empty folder: keys, authorities, certificates, controller.yaml, the broker's files.

What is there is never overwritten. --name is needed: the names given with it go into the certificates of HTTPS and
broker; the first is the address that boxes are sent to.

\b
Examples:
  runuser -u edgegpu-cloud -- edgegpu-cloud init --name cloud.example.com   # its folder: /var/lib/edgegpu-cloud
  edgegpu-cloud init --folder ./cloud --name 127.0.0.1 --broker 127.0.0.1:8883
  edgegpu-cloud init --name cloud.example.com --database postgresql://edgegpu@/edgegpu   # docs/cloud/postgresql.md
  edgegpu-cloud init --name cloud.example.com --console-url https://cloud.example.com --trusted-proxy 10.1.0.7
  edgegpu-cloud init --name cloud.example.com --root 43-CHARACTERS   # the root key is kept offline from the start

\b
--json prints {"folder", "url", "console", "admin_link", "broker", "guard": PATH or "", "ca_sha256", "root",
"root_key": PATH or "", "next": [TEXT]}
"""

NameOption = Annotated[
    list[str] | None,
    typer.Option("--name", metavar="HOST", help="A host name or address that boxes reach it by; several times."),
]
BrokerOption = Annotated[
    str, typer.Option("--broker", metavar="HOST[:PORT]", help="Where boxes find the broker  [default: the first name]")
]
ControllerPortOption = Annotated[
    int,
    typer.Option("--controller-port", metavar="PORT", min=1, max=65_535, help="The broker's listener for controllers."),
]
HttpsPortOption = Annotated[
    int, typer.Option("--https-port", metavar="PORT", min=1, max=65_535, help="Where boxes enrol.")
]
ConsolePortOption = Annotated[
    int, typer.Option("--console-port", metavar="PORT", min=1, max=65_535, help="Where people reach the web console.")
]
ConsoleUrlOption = Annotated[
    str,
    typer.Option(
        "--console-url",
        metavar="URL",
        help="How people reach the web console, behind a proxy  [default: the first name and its port]",
    ),
]
ProxyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trusted-proxy",
        metavar="ADDRESS",
        help="A proxy before the console, whose forwarded addresses count; several times.",
    ),
]
ConsoleOption = Annotated[bool, typer.Option("--console/--no-console", help="Serve a web console from here.")]
DatabaseOption = Annotated[
    str,
    typer.Option(
        "--database",
        metavar="URL",
        help="Keep the store in this empty PostgreSQL database: postgresql://USER@HOST/DATABASE  [default: SQLite]",
    ),
]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option("--database-password-file", metavar="FILE", help="The file with its password, in the first line."),
]
RootOption = Annotated[
    str, typer.Option("--root", metavar="PUBLIC", help="The public half of a root key that `keys make-root` made.")
]
GuardOption = Annotated[
    bool | None,
    typer.Option(
        "--guard/--no-guard",
        help="Hold rooted boxes off the broker by mosquitto's plugin, compiled before  [default: where it is there]",
        show_default=False,
    ),
]


def init(  # noqa: PLR0913  (one for each option)
    *,
    folder: FolderOption = DEFAULT,
    name: NameOption = None,
    broker: BrokerOption = "",
    controller_port: ControllerPortOption = _CONTROLLER_PORT,
    https_port: HttpsPortOption = _HTTPS_PORT,
    console_port: ConsolePortOption = _CONSOLE_PORT,
    console: ConsoleOption = True,
    public_url: ConsoleUrlOption = "",
    trusted_proxy: ProxyOption = None,
    database: DatabaseOption = "",
    database_password_file: PasswordFileOption = None,
    root: RootOption = "",
    guard: GuardOption = None,
    json: JsonOption = False,
) -> None:
    """Make a controller in an empty folder."""
    with reporting(as_json=json):
        refuse_server()
        if not name:
            raise typer.BadParameter(_NO_NAME, param_hint="--name")
        by = operator()
        load_revisions()
        layout = CloudLayout(folder.absolute())
        ports = InitPorts(controllers=controller_port, https=https_port)
        web = {"port": console_port, "url": public_url, "trusted_proxies": tuple(trusted_proxy or ())}
        file = str(database_password_file.absolute()) if database_password_file else ""
        config = _config(name, broker, ports, web if console else None, {"url": database, "password_file": file})
        if root:
            check_public(root, option="--root")
        chosen = _guard(guard, is_here=config.broker.host in config.names)
        config = config.model_copy(update={"broker": config.broker.model_copy(update={"guard": chosen.path})})
        found(
            layout,
            config,
            root_public=root,
            now_s=time.time(),
            more=lambda new, first: _more(new, config, first, place=layout),
        )
        _tell(layout, config, _admin_link(layout, config, by), chosen.why_none, as_json=json)


@dataclass(frozen=True, slots=True)
class _GuardChoice:
    """The guard that the broker is to load; `path` is empty where there is none, and `why_none` says why."""

    path: str
    why_none: str


def _guard(wanted: bool | None, *, is_here: bool) -> _GuardChoice:  # noqa: FBT001  (an option)
    """Choose the guard that was compiled beside this program, if this machine's mosquitto can load it.

    Raises:
        CloudError: it is wanted by name, and cannot be had.
    """
    if wanted is False:
        return _GuardChoice("", "--no-guard")
    place, mosquitto = guard_place(), mosquitto_here()
    if not is_here:
        why = "the broker is on another machine"
    elif not place.exists():
        why = f"{place} is not there"
    elif mosquitto is None:
        why = "mosquitto is not on this machine"
    elif problem := load_problem(place, mosquitto):
        why = f"mosquitto cannot load it: {problem}"
    else:
        return _GuardChoice(str(place), "")
    if wanted:
        raise CloudError(f"cannot set up the guard: {why}", remedy="docs/broker.md says how it is compiled; --no-guard")
    return _GuardChoice("", why)


@dataclass(frozen=True, slots=True)
class InitPorts:
    """The ports of a new controller for other controllers and for boxes."""

    controllers: int
    https: int


def _config(
    names: list[str],
    broker: str,
    ports: InitPorts,
    console: Mapping[str, object] | None,
    database: Mapping[str, str],
) -> CloudConfig:
    host, port = _address(broker) if broker else (names[0], _PORT)
    try:
        return CloudConfig.model_validate(
            {
                "version": 1,
                "names": tuple(dict.fromkeys([*names, "localhost", "127.0.0.1"])),
                "broker": {"host": host, "port": port, "controller_port": ports.controllers},
                "https": {"port": ports.https, "url": f"https://{_bracketed(names[0])}:{ports.https}"},
                "database": database,
                "console": console,
            }
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        option = next((option for key, option in _OPTIONS.items() if first["loc"][: len(key)] == key), None)
        text = first["msg"].removeprefix("Value error, ")
        raise typer.BadParameter(text, param_hint=option) from error


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host.strip("[]") and not host.endswith("]")):
        return text.strip("[]"), _PORT
    if not is_number(port, digits=len(str(_MOST_PORT))) or not 0 < int(port) <= _MOST_PORT:
        raise typer.BadParameter(f"no HOST:PORT: {text}", param_hint="--broker")
    return host.strip("[]"), int(port)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _more(new: CloudLayout, config: CloudConfig, first: KeySetLink | None, *, place: CloudLayout) -> None:
    store = ControllerStore.make(store_url(new, config.database))
    try:
        if first is not None:
            with store.write() as tx:
                tx.notes.add_link(1, first)
    finally:
        store.close()
    write_broker(place, config, into=new.broker)


def _admin_link(layout: CloudLayout, config: CloudConfig, by: str) -> str:
    """Return the URL by which the first admin makes an account; empty without a console."""
    if config.console is None:
        return ""
    store = ControllerStore.open(store_url(layout, config.database))
    try:
        return link_url(config, People(store, clock=time.time).first_admin_link(by=Access(by)))
    finally:
        store.close()


def next_steps(layout: CloudLayout) -> list[str]:
    """Return what to do after init, in the order in which to do it."""
    at = "" if layout.folder == DEFAULT else f" --folder {layout.folder}"
    if layout.root_key.exists():
        first = (
            f"move {layout.root_key} off this machine: it signs key sets, which is seldom needed (docs/cloud/keys.md)"
        )
    else:
        first = (
            f"sign the first key set where the root key is: edgegpu-cloud keys request{at} > keys.json "
            "(docs/cloud/keys.md)"
        )
    return [
        first,
        f"start the broker: mosquitto -c {layout.broker / 'mosquitto.conf'}",
        f"start the controller: edgegpu-cloud serve{at} --bundle FOLDER (what `make bundle` makes)",
        f"take in a box: edgegpu-cloud enrol{at} prints the line to paste there",
        f"keep a backup: edgegpu-cloud backup{at} FILE",
    ]


def _tell(layout: CloudLayout, config: CloudConfig, admin_link: str, why_no_guard: str, *, as_json: bool) -> None:
    steps = next_steps(layout)
    answer = {
        "folder": str(layout.folder),
        "url": config.https.url,
        "console": console_url(config, config.console) if config.console else "",
        "admin_link": admin_link,
        "broker": f"{config.broker.host}:{config.broker.port}",
        "guard": config.broker.guard,
        "ca_sha256": file_sha256(read_file(layout.ca_cert("servers"))),
        "root": read_file(layout.root_public).strip(),
        "root_key": str(layout.root_key) if layout.root_key.exists() else "",
        "next": steps,
    }
    if as_json:
        print_json(answer)
        return
    typer.echo(f"made a controller in {layout.folder}")
    typer.echo(f"  boxes enrol at   {answer['url']}  (CA sha256 {answer['ca_sha256']})")
    typer.echo(f"  console          {answer['console'] or 'none'}")
    if admin_link:
        typer.echo(f"  first admin      {admin_link}  (once, within {int(FIRST_ADMIN_S / 3_600)} hours)")
    typer.echo(f"  boxes connect to {answer['broker']}, controllers to its port {config.broker.controller_port}")
    without = f"none ({why_no_guard}): one rooted box can stop the broker, docs/broker.md"
    typer.echo(f"  broker's guard   {config.broker.guard or without}")
    typer.echo(f"  root key         {answer['root_key'] or 'kept elsewhere'}  (public: {answer['root']})")
    typer.echo("next:")
    for number, step in enumerate(steps, 1):
        typer.echo(f"  {number}. {step}")
