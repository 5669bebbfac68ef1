"""Sentences as their English text, with the template and the fields that made it: a kind and its numbers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

_MOST_JOINED = 600
"""Sentences beyond this number of characters are joined as text alone: nobody reads on."""


class Sentence(str):
    """An English text, with its template and fields: who shows it in another way looks the template up.

    A sentence of fields is one of them again. What is cut out of a sentence, or put together without a template, is a
    text alone.
    """

    __slots__ = ("fields", "template")
    template: str
    fields: Mapping[str, str | int]

    def __new__(cls, text: str, template: str = "", fields: Mapping[str, str | int] | None = None) -> Self:
        """Make one of its English text and its parts."""
        made = super().__new__(cls, text)
        made.template, made.fields = template, fields or {}
        return made


def sentence(template: str, /, **fields: str | int) -> Sentence:
    """Return a sentence: `sentence("card %(card)s has %(units)d free", card="0", units=9)`."""
    return Sentence(template % fields if fields else template, template, fields)


def listed(texts: Iterable[str]) -> str:
    """Return a few sentences with commas between them."""
    found = ""
    for text in texts:
        found = sentence("%(first)s, %(then)s", first=found, then=text) if found else text
    return found


def joined(texts: Sequence[str]) -> str:
    """Return any number of sentences with semicolons between them; the parts of the first alone are kept."""
    found = ""
    for text in texts:
        if found and len(found) + len(text) > _MOST_JOINED:
            first = sentence("%(first)s; …", first=found)
            return Sentence("; ".join(texts), first.template, first.fields)
        found = sentence("%(first)s; %(then)s", first=found, then=text) if found else text
    return found


def cut(text: str, limit: int) -> str:
    """Return a text with at most `limit` characters; the parts of a sentence stay whole."""
    if len(text) <= limit:
        return text
    short = text[: limit - 1] + "…"
    return Sentence(short, text.template, text.fields) if isinstance(text, Sentence) else short
