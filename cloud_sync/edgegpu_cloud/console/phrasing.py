"""Values in the words of a screen: times, amounts, states, sentences; each is a filter of the templates."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup, escape

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.limits.report_words import report_words, words_of_text
from edgegpu_cloud.phrases import Phrase, Verbatim
from edgegpu_cloud.result_codes import code_words
from edgegpu_core.model import size_text
from edgegpu_sync.messages.uplink import ItemReport

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400
_BACKTICKS = re.compile("`([^`]+)`")
NONE = "\N{EN DASH}"
"""What stands in the place of a value that there is not."""


@dataclass(frozen=True, slots=True)
class Phrasing:
    """The phrases of one language; where it is not English, words that nobody translates are `marked` as English."""

    gettext: Callable[[str], str]
    ngettext: Callable[[str, str, int], str]
    clock: Callable[[], float]
    marked: bool = False

    def filters(self) -> Mapping[str, Callable[..., str]]:
        """Return the filters of the templates by name."""
        return {
            "ago": self.ago,
            "date_time": date_time,
            "clock_time": clock_time,
            "moment": self.moment,
            "size": size_text,
            "units": self.units,
            "said": self.said,
            "quoted": self.quoted,
            "refusal": self.refusal,
            "report_words": self.report_words,
            "code_words": self.code_words,
            "box_words": self.box_words,
            "duration": self.duration,
            "commands": commands,
        }

    def ago(self, at_s: float | None) -> str:
        """Return how long ago a time was; a dash where it never was."""
        if not at_s:
            return NONE
        passed = max(0, int(self.clock() - at_s))
        if passed < _MINUTE_S:
            return self._count("%(num)d second ago", "%(num)d seconds ago", passed)
        if passed < _HOUR_S:
            return self._count("%(num)d minute ago", "%(num)d minutes ago", passed // _MINUTE_S)
        if passed < 2 * _DAY_S:
            return self._count("%(num)d hour ago", "%(num)d hours ago", passed // _HOUR_S)
        return self._count("%(num)d day ago", "%(num)d days ago", passed // _DAY_S)

    def moment(self, at_s: float | None) -> str:
        """Return a time of today as `12:03:04`, another as `2026-01-31 12:03`, both of UTC; a dash for none."""
        today = date_time(self.clock())[:10]
        return clock_time(at_s) if date_time(at_s).startswith(today) else date_time(at_s)[:16]

    def duration(self, seconds: int) -> str:
        """Return a length of time in its largest whole unit: "90 seconds", "1 hour", "7 days"."""
        if seconds % _DAY_S == 0:
            return self._count("%(num)d day", "%(num)d days", seconds // _DAY_S)
        if seconds % _HOUR_S == 0:
            return self._count("%(num)d hour", "%(num)d hours", seconds // _HOUR_S)
        if seconds % _MINUTE_S == 0:
            return self._count("%(num)d minute", "%(num)d minutes", seconds // _MINUTE_S)
        return self._count("%(num)d second", "%(num)d seconds", seconds)

    def units(self, number: int) -> str:
        """Return an amount of units: "1 unit", "4 units"."""
        return self._count("%(num)d unit", "%(num)d units", number)

    def said(self, text: str) -> Markup:
        """Return a sentence of ours in this language; a text that is no phrase, as it is.

        What fills a template in is escaped, and never a template itself. A command in a template's backticks is code.
        """
        if isinstance(text, Verbatim):
            return self.quoted(text)
        if not isinstance(text, Phrase):
            return escape(text)
        if not text.fields:
            return commands(self.gettext(text.one))
        fields = {
            name: self.said(one) if isinstance(one, Phrase | Verbatim) else one for name, one in text.fields.items()
        }
        try:
            many = text.many and self.ngettext(text.one, text.many, int(text.fields["num"]))
            return commands(many or self.gettext(text.one)) % fields
        except (KeyError, TypeError, ValueError, OverflowError):  # a phrase of another version, from the store
            return escape(text)

    def quoted(self, text: str | None) -> Markup:
        """Return the words of a box or of a program, as words of it; a phrase of ours in this language."""
        if isinstance(text, Phrase):
            return self.said(text)
        return Markup('<q lang="en">{}</q>').format(text) if text and self.marked else escape(text or "")

    def report_words(self, report: ItemReport) -> Markup:
        """Return what a box says of an item."""
        return self.quoted(report_words(report))

    def code_words(self, code: str) -> Markup:
        """Return why something ended as it did, by a box's code."""
        return self.said(code_words(code))

    def box_words(self, text: str | None) -> Markup:
        """Return a text of a box: in this language what agents of this version say, else as the box's words."""
        return self.quoted(words_of_text(text or ""))

    def refusal(self, error: CloudError) -> Markup:
        """Return what an error says, and what to do about it."""
        if not error.remedy:
            return self.said(error.text)
        whole = escape(self.gettext("%(text)s. %(remedy)s"))
        return whole % {"text": self.said(error.text), "remedy": self.said(error.remedy)}

    def _count(self, one: str, many: str, number: int) -> str:
        return self.ngettext(one, many, number) % {"num": number}


def commands(text: str) -> Markup:
    """Return a text of ours with what stands in backticks as code."""
    return Markup(_BACKTICKS.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704  (escaped before)


def date_time(at_s: float | None) -> str:
    """Return a time as `2026-01-31 12:03:04 UTC`; a dash for none."""
    return _written(at_s, "%Y-%m-%d %H:%M:%S UTC")


def clock_time(at_s: float | None) -> str:
    """Return a time of day as `12:03:04`; a dash for none."""
    return _written(at_s, "%H:%M:%S")


def _written(at_s: float | None, form: str) -> str:
    """Return a time as text; boxes say when things were, and may say a year that no calendar has."""
    try:
        return datetime.fromtimestamp(at_s, UTC).strftime(form) if at_s else NONE
    except (ValueError, OverflowError, OSError):
        return NONE
