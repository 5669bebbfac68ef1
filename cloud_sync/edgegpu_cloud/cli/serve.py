"""`edgegpu-cloud serve`: the controller's processes."""

import logging
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from edgegpu_base.process.tasks import TaskGroup
from edgegpu_cloud.cli.common import DEFAULT, EXIT_FAILED, FolderOption, reporting, say
from edgegpu_cloud.controller.status import check_free, hold
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.http.release import BundleFolder
from edgegpu_cloud.http.urls import url_of
from edgegpu_cloud.layout import CloudConfig, CloudLayout, load
from edgegpu_cloud.ownership import become_owner
from edgegpu_cloud.supervision import Supervised, SupervisedProcess, Supervisor, ended_by_itself

HELP = """\
Run the controller: the link to the broker, and HTTPS for boxes (enrolment, renewal, install.sh, the bundle).

Each is a process of its own, on the same store. One that falls is started again, and the other goes on meanwhile. It
ends with status 0 after SIGTERM or ctrl-C, and with 1 when one of the two cannot begin (docs/cloud/set-up.md has the
units).

\b
Examples:
  edgegpu-cloud serve --bundle build/bundle
  edgegpu-cloud serve --no-link            # HTTPS alone
  edgegpu-cloud serve --no-https           # the controller alone
"""

BundleOption = Annotated[
    Path | None,
    typer.Option("--bundle", metavar="FOLDER", help="What `make bundle` makes  [default: release in the folder]"),
]
LinkOption = Annotated[bool, typer.Option("--link/--no-link", help="Connect to the broker.")]
HttpsOption = Annotated[bool, typer.Option("--https/--no-https", help="Answer boxes over HTTPS.")]
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
    clock_is_right: ClockOption = False,
) -> None:
    """Run the controller."""
    if not link and not https:
        raise typer.BadParameter("--no-link and --no-https leave nothing to serve")
    with reporting(as_json=False):
        become_owner(folder)
        layout = CloudLayout(folder.absolute())
        config = load(layout.config)
        _log(config.log_level)
        release = BundleFolder(bundle.absolute() if bundle else layout.release, url_of(config))
        if https and bundle is not None and (missing := release.missing()):
            raise CloudError(f"cannot serve --bundle {bundle}: {missing}", remedy="name what `make bundle` has made")
        here = _Here(layout, config, release, clock_is_right=clock_is_right)
        if link and https:
            here.both()
        else:
            here.one(Supervised(), link=link)


@dataclass(frozen=True, slots=True)
class _Here:
    """The parts that `serve` runs with: the controller's folder, its configuration, the release."""

    layout: CloudLayout
    config: CloudConfig
    release: BundleFolder
    clock_is_right: bool

    def both(self) -> None:
        """Run HTTPS and the controller, each in a process of its own."""
        check_free(self.layout)
        supervisor = Supervisor(
            [
                SupervisedProcess("HTTPS", "edgegpu-https", lambda me: self._part(me, link=False)),
                SupervisedProcess("the controller", "edgegpu-control", lambda me: self._part(me, link=True)),
            ]
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: supervisor.stop())
        if supervisor.run():
            raise typer.Exit(EXIT_FAILED)  # the process has printed why

    def _part(self, me: Supervised, *, link: bool) -> int:
        try:
            with reporting(as_json=False):
                self.one(me, link=link)
        except typer.Exit as error:
            return error.exit_code
        return 0

    def one(self, me: Supervised, *, link: bool) -> None:
        """Run the controller, or else HTTPS, in this process until it is stopped."""
        group = TaskGroup(ended_by_itself=ended_by_itself)
        group.end_on(signal.SIGTERM, signal.SIGINT)
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
        service.run()


def _log(level: str) -> None:
    logging.basicConfig(
        stream=sys.stderr, level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
