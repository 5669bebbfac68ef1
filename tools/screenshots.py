"""The maker of the console's pictures in docs/images: a fleet of a test kit, in a real Chromium."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from kits.browser import browser  # noqa: E402  (found below tests)
from kits.cert import Authority  # noqa: E402
from kits.console import ConsoleSite  # noqa: E402
from kits.gallery import Gallery, returned_rollout  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Mapping

    from playwright.sync_api import Page

TO = ROOT / "docs/images"
MOST_BYTES = 200 * 1024
PHONE = 390


@dataclass(frozen=True)
class Picture:
    """A picture: its file's name, the page, and how the browser is; `{hall-1}` in a path is a box's device id."""

    name: str
    path: str
    language: str = "en-GB"
    dark: bool = False
    width: int = 1280
    height: int = 900


PICTURES = (
    Picture("fleet", "/", height=860),
    Picture("box", "/boxes/{hall-2}", height=1240),
    Picture("limits-refused", "/boxes/{hall-1}/limits/baetyl-edge/counter/main?memory=10", height=900),
    Picture(
        "limits-refused-zh",
        "/boxes/{hall-1}/limits/baetyl-edge/counter/main?memory=10",
        language="zh-CN",
        height=900,
    ),
    Picture("limits-live", "/boxes/{hall-2}/limits/baetyl-edge/tracker/main?memory=8&core=30&live=yes", height=1040),
    Picture("sharing", "/boxes/{hall-1}/sharing?typed=yes&policy=spread&unit_mib=256&isolation=limiter", height=1060),
    Picture("apps", "/apps", width=1440, height=760),
    Picture("operations", "/operations", height=300),
    Picture("audit", "/audit?what=box.spec", height=760),
    Picture("enrol", "/enrol", height=1000),
    Picture("people", "/people", height=560),
    Picture("alerts", "/alerts", height=760),
    Picture("box-zh", "/boxes/{hall-2}", language="zh-CN", height=1000),
    Picture("limits-dark", "/boxes/{hall-1}/limits/baetyl-edge/counter/main?memory=4", dark=True, height=900),
    Picture("phone", "/boxes/{hall-1}/limits/baetyl-edge/counter/main?memory=10", width=PHONE, height=1700),
)
ROLLOUT = Picture("rollout", "/rollouts/1", height=1000)


def take(page: Page, url: str, picture: Picture, to: Path) -> None:
    """Write one picture.

    Raises:
        SystemExit: it is larger than a page of documents should carry.
    """
    page.goto(url)
    page.wait_for_load_state("load")
    page.evaluate("document.activeElement?.blur()")
    file = to / f"{picture.name}.png"
    page.screenshot(path=file, animations="disabled")
    if file.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{file} has {file.stat().st_size} bytes: make it lower")


def main() -> None:
    """Write the pictures that the command line names, or all, into docs/images or the folder after `--to`."""
    words = sys.argv[1:]
    to = TO
    if "--to" in words:
        at = words.index("--to")
        to = Path(words[at + 1])
        del words[at : at + 2]
    to.mkdir(parents=True, exist_ok=True)
    authority = Authority("console")
    with tempfile.TemporaryDirectory() as folder:
        if not words or ROLLOUT.name in words:
            bed = returned_rollout(Path(folder) / "rollout")
            shoot(ConsoleSite(bed.store, now_s=bed.world.clock()), authority, Path(folder), (ROLLOUT,), {}, to)
            bed.store.close()
        chosen = tuple(one for one in PICTURES if not words or one.name in words)
        gallery = Gallery(Path(folder) / "fleet")
        shoot(gallery.site, authority, Path(folder), chosen, gallery.devices, to)
        gallery.close()


def shoot(
    site: ConsoleSite,
    authority: Authority,
    folder: Path,
    pictures: tuple[Picture, ...],
    devices: Mapping[str, str],
    to: Path,
) -> None:
    """Serve a console, and take pictures of it."""
    with site.served(folder, authority) as url:
        for one in pictures:
            with browser(url, width=one.width, height=one.height, language=one.language, dark=one.dark) as context:
                path = one.path
                for name, device in devices.items():
                    path = path.replace(f"{{{name}}}", device)
                take(context.new_page(), url + path, one, to)


if __name__ == "__main__":
    main()
