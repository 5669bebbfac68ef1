"""Pages from templates, in the person's language: a whole page, or the block of it that HTMX asks for."""

import gettext
import json
import re
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2_fragments import render_block
from starlette.requests import Request
from starlette.responses import HTMLResponse

from edgegpu_cloud.console.bars import DRAWING
from edgegpu_cloud.console.phrasing import Phrasing
from edgegpu_cloud.console.visitor import Visitor
from edgegpu_cloud.http.guard import BODY_MAX_BYTES

HERE = Path(__file__).parent
LANGUAGES = {"en": "English", "zh": "中文"}
THEMES = ("auto", "light", "dark")
LANGUAGE_COOKIE, THEME_COOKIE = "edgegpu-language", "edgegpu-theme"
_OTHER_FIELDS_BYTES = 100
"""What the form of language and theme has beside the address that it leads back to."""

_TAG = re.compile(r"\s*([a-zA-Z]{2,3})[^,;]*(?:;\s*q=([0-9.]+))?")


class PageRenderer:
    """The templates, one environment for each language."""

    def __init__(
        self,
        *,
        version: str,
        screens: Collection[str] = (),
        alerts: Callable[[Visitor], int | None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Load the templates and the translations.

        Args:
            version: of edgegpu; it names the static files, so that browsers may keep them for ever.
            screens: the paths that there are; the menu leads to no other.
            alerts: returns how many alerts fire for a person, for the menu; None: not known.
            clock: seconds since 1970, for "3 minutes ago".
        """
        self._alerts = alerts
        self._clock, self._version, self._screens = clock, version, frozenset(screens)
        self._translations = {
            language: gettext.translation("console", HERE / "locale", [language], fallback=True)
            for language in LANGUAGES
        }
        self._environments = {language: self._environment(language) for language in LANGUAGES}

    def _environment(self, language: str) -> Environment:
        environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            extensions=["jinja2.ext.i18n"],
            trim_blocks=True,
            lstrip_blocks=True,
        )
        found = self._translations[language]
        environment.install_gettext_translations(found, newstyle=True)  # type: ignore[attr-defined]  # the extension's
        phrasing = Phrasing(found.gettext, found.ngettext, self._clock, marked=language != "en")
        environment.filters |= phrasing.filters()
        environment.globals |= {
            "language": language,
            "languages": LANGUAGES,
            "themes": THEMES,
            "screens": self._screens,
            "asset": lambda name: f"/static/{self._version}/{name}",
            "now_s": self._clock,
            **DRAWING,
        }
        return environment

    def language(self, request: Request) -> str:
        """Return the language of an answer: the person's choice, the cookie's, or the browser's."""
        visitor = getattr(request.state, "visitor", None)
        for chosen in (getattr(visitor, "language", ""), request.cookies.get(LANGUAGE_COOKIE, "")):
            if chosen in LANGUAGES:
                return chosen
        return _accepted(request.headers.get("accept-language", ""))

    def words(self, request: Request) -> Callable[[str], str]:
        """Return gettext in the language of an answer, for texts that are made in code."""
        return self._translations[self.language(request)].gettext

    def page(
        self,
        request: Request,
        template: str,
        values: Mapping[str, Any] | None = None,
        *,
        block: str = "",
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> HTMLResponse:
        """Answer with a page.

        Args:
            request: says language, theme and person.
            template: its path below `templates/`.
            values: what it shows.
            block: the block that is answered alone where HTMX asks for a part of the page.
            status: of HTTP.
            headers: more of them.
        """
        environment = self._environments[self.language(request)]
        visitor = getattr(request.state, "visitor", None)
        theme = request.cookies.get(THEME_COOKIE, "")
        context = {
            "request": request,
            "visitor": visitor,
            "theme": theme if theme in THEMES else "auto",
            "csrf_header": json.dumps({"X-CSRF-Token": visitor.csrf}) if visitor is not None else "",
            "here": request.url.path,
            "back": _back(request),
            "alerts_firing": self._alerts(visitor) if visitor is not None else None,
            **(values or {}),
        }
        partial = block and request.headers.get("hx-request") == "true" and "hx-boosted" not in request.headers
        if partial:
            text = render_block(environment, template, block, context)
        else:
            text = environment.get_template(template).render(context)
        vary = {"Vary": "HX-Request, Cookie, Accept-Language"}
        return HTMLResponse(text, status, headers={**vary, **(headers or {})})


def _back(request: Request) -> str:
    """Return the address to which a choice of language or theme leads back; empty where there is no choice.

    The answer to a form is had by that form alone: to ask for it anew loses what was kept in it, or a secret that is
    shown once. An address that is too long for a form is not cut, as what was typed stands in it.
    """
    if request.method not in {"GET", "HEAD"}:
        return ""
    query = request.url.query
    address = f"{request.url.path}?{query}" if query else request.url.path
    return address if len(quote_plus(address)) <= BODY_MAX_BYTES - _OTHER_FIELDS_BYTES else ""


def _accepted(header: str) -> str:
    """Return the language that a browser wants most and that there is; English otherwise."""
    wanted = []
    for part in header.split(",")[:20]:
        found = _TAG.match(part)
        if found and found[1].lower() in LANGUAGES:
            wanted.append((_quality(found[2]), found[1].lower()))
    return max(wanted, key=lambda one: one[0])[1] if wanted else "en"


def _quality(text: str | None) -> float:
    try:
        return float(text) if text else 1.0
    except ValueError:
        return 0.0
