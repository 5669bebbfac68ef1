"""`edgegpu-cloud serve`: the controller's process."""

import logging
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from edgegpu_cloud.cli.common import DEFAULT, FolderOption, reporting, say
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.layout import CloudLayout, load
from edgegpu_cloud.ownership import become_owner
from edgegpu_cloud.release import Release
from edgegpu_cloud.standing import hold
from edgegpu_cloud.tasks import TaskGroup
from edgegpu_cloud.urls import url_of

HELP = """\
Run the controller: the link to the broker, and HTTPS for boxes (enrolment, renewal, install.sh, the bundle).

It ends with status 0 after SIGTERM or ctrl-C, and with 1 when one of its parts fails; let systemd start it again
(docs/cloud.md has the units).

\b
Examples:
  edgegpu-cloud serve --bundle build/bundle
  edgegpu-cloud serve --no-link            # enrol boxes alone
"""

BundleOption = Annotated[
    Path | None,
    typer.Option("--bundle", metavar="FOLDER", help="What `make bundle` makes  [default: release in the folder]"),
]
LinkOption = Annotated[bool, typer.Option("--link/--no-link", help="Connect to the broker.")]
ClockOption = Annotated[
    bool,
    typer.Option("--clock-is-right", help="Serve also more than a year after the time that boxes were told last."),
]


def serve(
    *,
    folder: FolderOption = DEFAULT,
    bundle: BundleOption = None,
    link: LinkOption = True,
    clock_is_right: ClockOption = False,
) -> None:
    """Run the controller."""
    group = TaskGroup()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: group.end())
    with reporting(as_json=False):
        become_owner(folder)
        layout = CloudLayout(folder.absolute())
        config = load(layout.config)
        _log(config.log_level)
        release = Release(bundle.absolute() if bundle else layout.release, url_of(config))
        missing = release.missing()
        if missing and bundle is not None:
            raise CloudError(f"cannot serve --bundle {bundle}: {missing}", remedy="name what `make bundle` has made")
        standing = hold(layout, link=link, bundle=missing)
        from edgegpu_cloud.serving import Options, Service  # noqa: PLC0415  (slow to load)

        for problem in release.problems():
            say(f"edgegpu-cloud: {problem}")
        options = Options(bundle=release.folder, link=link, clock_is_right=clock_is_right)
        service = Service(layout, config, options, group=group, watch=standing.hear)
        say(f"boxes enrol at {url_of(config)} (listening on {config.https.host} port {service.port})")
        service.run()


def _log(level: str) -> None:
    logging.basicConfig(
        stream=sys.stderr, level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
