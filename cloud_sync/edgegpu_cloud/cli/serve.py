"""`edgegpu-cloud serve`: the controller's processes."""

import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from edgegpu_base.process import memory
from edgegpu_base.process.sdnotify import notifier
from edgegpu_base.process.tasks import TaskGroup
from edgegpu_cloud.cli.common import DEFAULT, EXIT_FAILED, FolderOption, refuse_server, reporting, say
from edgegpu_cloud.controller.status import check_free, hold
from edgegpu_cloud.enrolment.bootstrap import ensure_console_certificate
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.http.release import BundleFolder
from edgegpu_cloud.http.urls import url_of
from edgegpu_cloud.layout import CloudConfig, CloudLayout, load, store_url, with_console_port
from edgegpu_cloud.ownership import become_owner
from edgegpu_cloud.supervision import Supervised, SupervisedProcess, Supervisor, ended_by_itself

HELP = """\
Run the controller: the link to the broker, HTTPS for boxes (enrolment, renewal, install.sh, the bundle), and the web
console where controller.yaml has one.

Each is a process of its own, on the same store. One that falls is started again, and the others go on meanwhile. It
ends with status 0 after SIGTERM or ctrl-C, and with 1 when one of them cannot begin (docs/cloud/set-up.md has the
units). Where the store's tables are of an older version, it waits for `edgegpu-cloud migrate`. For tables of a newer
version it waits a minute, and ends with 1: its unit starts what is installed by then. One that runs alone tells systemd
when it is ready (Type=notify).

\b
Examples:
  edgegpu-cloud serve --bundle build/bundle
  edgegpu-cloud serve --no-link --no-console     # HTTPS alone
  edgegpu-cloud serve --no-https --no-console    # the controller alone
  edgegpu-cloud serve --no-link --no-https       # the console alone
  edgegpu-cloud serve --no-link --no-https --console-port 8445    # one more beside it: docs/deploy.md
"""

BundleOption = Annotated[
    Path | None,
    typer.Option("--bundle", metavar="FOLDER", help="What `make bundle` makes  [default: release in the folder]"),
]
LinkOption = Annotated[bool, typer.Option("--link/--no-link", help="Connect to the broker.")]
HttpsOption = Annotated[bool, typer.Option("--https/--no-https", help="Answer boxes over HTTPS.")]
ConsoleOption = Annotated[
    bool, typer.Option("--console/--no-console", help="Serve the web console, where controller.yaml has one.")
]
ConsolePortOption = Annotated[
    int | None,
    typer.Option(
        "--console-port",
        metavar="PORT",
        min=1,
        max=65_535,
        help="Where the console listens  [default: console.port in controller.yaml]",
    ),
]
ClockOption = Annotated[
    bool,
    typer.Option("--clock-is-right", help="Serve also more than a year after the time that boxes were told last."),
]


def serve(
    *,
    folder: FolderOption = DEFAULT,
    bundle: BundleOption = None,
    link: LinkOption = True,
    https: HttpsOption = True,
    console: ConsoleOption = True,
    console_port: ConsolePortOption = None,
    clock_is_right: ClockOption = False,
) -> None:
    """Run the controller."""
    if not link and not https and not console:
        raise typer.BadParameter("--no-link, --no-https and --no-console leave nothing to serve")
    with reporting(as_json=False):
        refuse_server()
        become_owner(folder)
        layout = CloudLayout(folder.absolute())
        config = load(layout.config)
        console = console and config.console is not None
        if not link and not https and not console:
            raise typer.BadParameter("--no-link and --no-https leave nothing to serve: controller.yaml has no console")
        if console_port is not None:
            if not console:
                raise typer.BadParameter("no console is served here", param_hint="--console-port")
            config = with_console_port(config, console_port)
        _log(config.log_level)
        release = BundleFolder(bundle.absolute() if bundle else layout.release, url_of(config))
        if https and bundle is not None and (missing := release.missing()):
            raise CloudError(f"cannot serve --bundle {bundle}: {missing}", remedy="name what `make bundle` has made")
        here = _Here(layout, config, release, clock_is_right=clock_is_right)
        wanted = [part for part, there in zip(Part, (https, link, console), strict=True) if there]
        if len(wanted) > 1:
            here.supervised(wanted)
        else:
            here.one(Supervised(systemd=notifier(os.environ)), wanted[0])


class Part(Enum):
    """The processes of `serve`: the name for people, and that in `ps` (15 characters)."""

    HTTPS = ("HTTPS", "edgegpu-https")
    CONTROLLER = ("the controller", "edgegpu-control")
    CONSOLE = ("the console", "edgegpu-console")


@dataclass(frozen=True, slots=True)
class _Here:
    """The parts that `serve` runs with: the controller's folder, its configuration, the release."""

    layout: CloudLayout
    config: CloudConfig
    release: BundleFolder
    clock_is_right: bool

    def supervised(self, wanted: Sequence[Part]) -> None:
        """Run several parts, each in a process of its own."""
        check_free(self.layout)
        supervisor = Supervisor([SupervisedProcess(*part.value, partial(self._part, part=part)) for part in wanted])
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: supervisor.stop())
        if supervisor.run():
            raise typer.Exit(EXIT_FAILED)  # the process has printed why

    def _part(self, me: Supervised, *, part: Part) -> int:
        try:
            with reporting(as_json=False):
                self.one(me, part)
        except typer.Exit as error:
            return error.exit_code
        return 0

    def one(self, me: Supervised, part: Part) -> None:
        """Run one part in this process until it is stopped."""
        group = TaskGroup(ended_by_itself=ended_by_itself)
        group.end_on(signal.SIGTERM, signal.SIGINT)
        from edgegpu_cloud.tables_watch import await_tables  # noqa: PLC0415  (slow to load)

        await_tables(store_url(self.layout, self.config.database), group, tell=me.waits)
        if group.ended:
            return
        if part is Part.CONSOLE:
            self._console(me, group)
        else:
            self._controller_or_https(me, group, link=part is Part.CONTROLLER)

    def _controller_or_https(self, me: Supervised, group: TaskGroup, *, link: bool) -> None:
        standing = hold(self.layout, link=link, bundle="" if link else self.release.missing(), pid=me.pid)
        from edgegpu_cloud.app import CloudApp, ServeOptions  # noqa: PLC0415  (slow to load)

        options = ServeOptions(
            bundle=self.release.folder, link=link, https=not link, clock_is_right=self.clock_is_right
        )
        service = CloudApp(self.layout, self.config, options, group=group, watch=standing.on_link_event)
        if not link:
            for problem in self.release.problems():
                say(f"edgegpu-cloud: {problem}")
            listens = f"{self.config.https.host} port {service.port}"
            say(f"boxes enrol at {url_of(self.config)} (listening on {listens})")
        me.ready()
        memory.settle()
        service.run()

    def _console(self, me: Supervised, group: TaskGroup) -> None:
        from edgegpu_cloud.console.app import ConsoleApp  # noqa: PLC0415  (slow to load)

        ensure_console_certificate(self.layout, self.config, now_s=time.time())
        service = ConsoleApp(self.layout, self.config, group=group)
        say(f"the console is at {service.url} (listening on port {service.port})")
        me.ready()
        service.run()


def _log(level: str) -> None:
    logging.basicConfig(
        stream=sys.stderr, level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
