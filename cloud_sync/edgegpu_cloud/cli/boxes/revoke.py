"""`edgegpu-cloud revoke`, `kick` and `boxes forget`: end the trust in a box, its connection, or its records."""

import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from edgegpu_cloud.broker.kick import KickCertificate, await_crl, make_kick_certificate
from edgegpu_cloud.broker.kick import kick as cut
from edgegpu_cloud.cli.arguments import BoxArgument
from edgegpu_cloud.cli.common import (
    DEFAULT,
    Cloud,
    FolderOption,
    JsonOption,
    YesOption,
    answer,
    confirm,
    opened,
    print_json,
    reached,
    reporting,
    standing,
)
from edgegpu_cloud.cli.local_cloud import LocalCloud
from edgegpu_cloud.cli.remote.server import SERVER
from edgegpu_cloud.enrolment.issuing import write_crl
from edgegpu_cloud.errors import CloudError, NotFoundError
from edgegpu_cloud.fleet.views import BoxView
from edgegpu_cloud.ownership import CallersFiles, outside
from edgegpu_cloud.store.records import BoxState
from edgegpu_sync.ids import DeviceId

_RELOAD_S = 60
_KICK_HERE = "it connects to the broker with the controller's keys"

REVOKE_HELP = """\
Revoke a box: nothing it says counts any more, nothing is signed for it, its certificates go on the list of the revoked.

That takes effect at once. The broker has to read the list again, and keeps the box's present connection: --reload does
the one and `kick` the other. The box comes back with `edgegpu-cloud enrol --for BOX` alone.

\b
Examples:
  edgegpu-cloud revoke asr-hall --reload "systemctl reload edgegpu-broker"
  edgegpu-cloud revoke asr-hall            # then reload the broker, then: edgegpu-cloud kick asr-hall

\b
With --server the controller writes the list, within seconds; --reload and `kick` are for its own machine.
--json needs --yes, and prints {"device", "name", "crl": PATH or with --server null, "cut": BOOL}
"""
KICK_HELP = """\
Cut the connection of a revoked box, and end its session at the broker. Do it after the broker has read the list of the
revoked again: before that the box just connects again. A forgotten box is named by its whole device id.

\b
--json prints {"device", "name", "cut": true}
"""

FORGET_HELP = """\
Forget a box: all that is known of it is dropped, and its certificates go on the list of the revoked.

For a box that is gone, was uninstalled, or was set aside by an alarm. Dropped are what was requested of it, its
commands with their ends, and what it has reported; alarms and the audit stay. It cannot be undone. Nothing changes on
the box. The machine comes back with a new token, as another box with another device id: `edgegpu-cloud enrol`.

\b
Examples:
  edgegpu-cloud boxes forget asr-hall
  edgegpu-cloud boxes forget asr-hall --yes --reload "systemctl reload edgegpu-broker"

\b
It asks for the box's name, to be typed; --yes does not ask. As with `revoke` the broker has to read the list again,
which cuts no connection: --reload does both, for a box that is online, on the controller's machine alone.
--json needs --yes, and prints {"device", "name", "crl": PATH or with --server null, "cut": BOOL}
"""

ReloadOption = Annotated[
    str,
    typer.Option("--reload", metavar="COMMAND", help="What makes the broker read the list; then the box is cut off."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """A box that was revoked or forgotten.

    `done` says so in an error, `told` to who watches, `remedy` what to do where the list of the revoked is not written.
    `named`: what `kick` takes for it. `still`: why it has to be kicked, with what comes before the command; empty where
    it need not be.
    """

    view: BoxView
    done: str
    told: str
    remedy: str
    named: str
    still: str


@contextmanager
def _reached(folder: Path, reload: str) -> Iterator[tuple[Cloud, CallersFiles | None]]:
    """Reach a controller; on its own machine with what runs `reload` as the caller.

    Raises:
        typer.BadParameter: `reload` is given with --server.
    """
    if not SERVER.get():
        with outside(folder, reload=lambda _: _run(reload)) as caller, opened(folder) as cloud:
            yield cloud, caller
        return
    if reload:
        text = "it runs on the controller's machine alone: leave it out with --server"
        raise typer.BadParameter(text, param_hint="--reload")
    with reached(folder) as there:
        yield there, None


def revoke(
    name: BoxArgument,
    *,
    folder: FolderOption = DEFAULT,
    reload: ReloadOption = "",
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Revoke a box."""
    with reporting(as_json=json), _reached(folder, reload) as (cloud, caller):
        view = cloud.fleet.box(name)
        question = f"revoke {view.name} ({view.device})?"
        confirm(question, cannot=f"cannot revoke {view.name}", yes=yes, as_json=json)
        cloud.fleet.revoke(view.device)
        ended = _Ended(
            view=view,
            done=f"{view.name} is revoked and ignored from now on",
            told=f"revoked {view.name}: it is ignored from now on",
            remedy=f"then once more: edgegpu-cloud revoke {view.name}",
            named=view.name,
            still="LIST, then: ",
        )
        _finish(cloud, caller if reload else None, ended, as_json=json)


def forget(
    name: BoxArgument,
    *,
    folder: FolderOption = DEFAULT,
    reload: ReloadOption = "",
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Forget a box."""
    with reporting(as_json=json), _reached(folder, reload) as (cloud, caller):
        view = cloud.fleet.box(name)
        if not yes:
            _ask_for_name(view, as_json=json)
        cloud.fleet.forget(view.device)
        ended = _Ended(
            view=view,
            done=f"{view.name} is forgotten",
            told=f"forgot {view.name} ({view.device})",
            remedy="`edgegpu-cloud serve` writes it when it starts",
            named=view.device,
            still="it is still connected: LIST, then:\n  " if view.online else "",
        )
        _finish(cloud, caller if reload else None, ended, as_json=json)


def _finish(cloud: Cloud, caller: CallersFiles | None, ended: _Ended, *, as_json: bool) -> None:
    """List a box's certificates as revoked, print that it is done, and cut its connection where `caller` can.

    By the API the controller lists them itself, within seconds, and the connection stays.
    """
    local = cloud if isinstance(cloud, LocalCloud) else None
    visitor = _listed(local, ended) if local is not None else None
    if not as_json:
        typer.echo(ended.told)
    cut = False
    if local is not None and visitor is not None and caller is not None:
        _cut_off(local, caller, visitor, ended)
        cut = True
    view, crl = ended.view, None if local is None else str(local.layout.crl)
    if as_json:
        print_json({"device": view.device, "name": view.name, "crl": crl, "cut": cut})
    elif cut:
        typer.echo("the broker has read the list, and the box's connection is cut")
    elif ended.still:
        where = "on the controller's machine, let the broker read the list of the revoked again"
        listed = where if crl is None else f"let the broker read {crl} again"
        typer.echo(f"{ended.still.replace('LIST', listed)}edgegpu-cloud kick {ended.named}")


def _ask_for_name(view: BoxView, *, as_json: bool) -> None:
    """Show what is lost with a box, and ask for its name before it is forgotten."""
    refused = CloudError(f"cannot forget {view.name}: nobody has confirmed", remedy="pass --yes")
    if as_json:
        raise refused
    items, commands = len(view.items), view.open_commands
    typer.echo(
        f"{view.name} ({view.device}) is {standing(view)}; {items} item{'' if items == 1 else 's'} of its settings "
        f"and limits, {commands} command{'' if commands == 1 else 's'} under way and its history are dropped for good"
    )
    try:
        typed = typer.prompt(f"type {view.name} to forget it", default="", show_default=False)
    except typer.Abort:  # nobody can be asked
        raise refused from None
    if typed.strip() != view.name:
        raise CloudError(
            f"cannot forget {view.name}: {typed.strip()!r} was typed", remedy="type its name, or pass --yes"
        )


def _listed(cloud: LocalCloud, ended: _Ended) -> KickCertificate:
    """Write the list of the revoked, with a certificate on it that shows whether the broker has read the list.

    An error says what was done before, and ends its remedy with what to do besides.
    """
    try:
        visitor = make_kick_certificate(cloud.layout, ended.view.device, now_s=time.time())
        write_crl(cloud.layout, cloud.store, clock=time.time, also=[visitor.serial])
    except CloudError as error:
        text = f"{ended.done}, but {cloud.layout.crl} is not written: {error.text}"
        raise CloudError(text, remedy=f"{error.remedy}; {ended.remedy}") from error
    return visitor


def _cut_off(cloud: LocalCloud, caller: CallersFiles, visitor: KickCertificate, ended: _Ended) -> None:
    """Let the broker read the list, and cut the box's connection; an error says what was done before."""
    try:
        caller.do("reload", None)
        await_crl(cloud.layout, cloud.config, visitor)
        _kick(cloud, visitor.device)
    except CloudError as error:
        remedy = f"{error.remedy}; then: edgegpu-cloud kick {ended.named}"
        raise CloudError(f"{ended.done}, but may still be connected: {error.text}", remedy=remedy) from error


def _run(command: str) -> None:
    try:
        words = shlex.split(command)
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_RELOAD_S)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise CloudError(f"cannot run {command!r}: {error}", remedy="reload the broker by hand") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().rpartition("\n")[2]
        text = f"cannot reload the broker: {command!r} ended with {done.returncode}: {said}"
        raise CloudError(text, remedy="reload the broker by hand")


def kick(name: BoxArgument, *, folder: FolderOption = DEFAULT, json: JsonOption = False) -> None:
    """Cut the connection of a revoked box."""
    with reporting(as_json=json), opened(folder, why=_KICK_HERE) as cloud:
        device, called = _revoked(cloud, name)
        _kick(cloud, device)
        again = f"it is back at once where the broker has not read {cloud.layout.crl} since `revoke`: reload it"
        document = {"device": device, "name": called, "cut": True}
        answer(document, f"the connection of {called} is cut\n  {again}", as_json=json)


def _revoked(cloud: LocalCloud, name: str) -> tuple[DeviceId, str]:
    """Return the device id and the name of a revoked box; a forgotten one is named by its whole device id."""
    try:
        view = cloud.fleet.box(name)
    except NotFoundError:
        if not cloud.fleet.is_forgotten(name):
            raise
        return DeviceId(name), name
    if view.state is not BoxState.REVOKED:
        remedy = f"`edgegpu-cloud revoke {view.name}` first"
        raise CloudError(f"cannot cut {view.name} off: it is not revoked", remedy=remedy)
    return view.device, view.name


def _kick(cloud: LocalCloud, device: DeviceId) -> None:
    cut(cloud.layout, cloud.config, device, now_s=time.time())
