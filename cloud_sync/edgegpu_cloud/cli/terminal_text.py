"""Makes what boxes say fit for a terminal: it may hold what moves the cursor, or turns the writing around."""

import re

_ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_BREAKS = re.compile("[\t\n]")
_IN_JSON = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """Return a text, of several lines maybe, in which control characters are written out."""
    return _ODD.sub(_named, text)


def one_line(text: str) -> str:
    """Return a text as one line: line breaks are written out as well."""
    return _BREAKS.sub(_named, plain(text))


def plain_json(text: str) -> str:
    """Return a JSON document that says the same, with control characters escaped."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _named(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
