"""The phrases of a page's language, with the console's own translations."""

from __future__ import annotations

import gettext

from edgegpu_cloud.console.phrasing import Phrasing
from edgegpu_cloud.console.rendering import HERE


def phrasing(language: str) -> Phrasing:
    found = gettext.translation("console", HERE / "locale", [language], fallback=language == "en")
    return Phrasing(found.gettext, found.ngettext, lambda: 0.0, marked=language != "en")
