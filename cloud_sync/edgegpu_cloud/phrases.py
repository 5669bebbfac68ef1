"""Sentences for people that a page can show in another language: an English template and what fills it in; pure.

A `Phrase` is its English text: command lines, the API, logs and the store take it as any other text. A page fills its
template in, which it looks up among its translations. What fills a template in is never a template itself, so a box's
words and a person's steer nothing. `tools/messages.py` finds the templates of `phrase()` and `phrase_n()`, which are
literal texts therefore.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Self

from edgegpu_core.sentences import Sentence

Json = dict[str, Any]


class Verbatim(str):
    """Words of a box or of a program, which nobody translates: a page shows them as they are, marked as English."""

    __slots__ = ()


class Phrase(str):
    """An English text, with the template and the fields that it was made of.

    `one` is the template. Where `many` is not empty, they are the forms for 1 and for other numbers, by the field
    `num`. A template without fields stands for itself: a `%` in it is a `%`.
    """

    __slots__ = ("fields", "many", "one")
    one: str
    many: str
    fields: Mapping[str, str | float]

    def __new__(cls, text: str, *, one: str, many: str, fields: Mapping[str, str | float]) -> Self:
        """Make one of its English text and its parts."""
        made = super().__new__(cls, text)
        made.one, made.many, made.fields = one, many, fields
        return made

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:
        """Return the arguments by which a copy is made: `dataclasses.asdict` and `pickle` copy what they find."""
        return (str(self),), {"one": self.one, "many": self.many, "fields": dict(self.fields)}


def phrase(template: str, /, **fields: object) -> Phrase:
    """Return a sentence: `phrase("cannot find a box %(name)r", name=name)`; an error's own words are verbatim."""
    return of_template(template, fields)


def of_template(template: str, fields: Mapping[str, object]) -> Phrase:
    """Return a sentence whose template stands elsewhere, where `tools/messages.py` finds it."""
    found = {name: _field(one) for name, one in fields.items()}
    return Phrase(template % found if found else template, one=template, many="", fields=found)


def phrase_n(one: str, many: str, num: int, /, **fields: object) -> Phrase:
    """Return a sentence whose form depends on a number: `phrase_n("%(num)d box", "%(num)d boxes", 3)`."""
    found = {"num": num, **{name: _field(each) for name, each in fields.items()}}
    return Phrase((one if num == 1 else many) % found, one=one, many=many, fields=found)


def of_sentence(text: str) -> str:
    """Return a sentence of the core or of the protocol as a phrase; any other text as it is."""
    if not isinstance(text, Sentence):
        return text
    fields = {name: _of_core(name, one, text.fields) for name, one in text.fields.items()}
    return Phrase(text, one=text.template, many="", fields=fields)


def _of_core(name: str, value: str | int, beside: Mapping[str, str | int]) -> str | int:
    """Return a field of the core's sentences; pages show a resource's name there as what it counts."""
    match name, value, beside.get("units"):
        case "memory", str(), int(units):
            return on_pages(value, phrase("memory unit") if units == 1 else phrase("memory units"))
        case "core", str(), _:
            return on_pages(value, phrase("core"))
        case _, str(), _:
            return of_sentence(value)
        case _:
            return value


def on_pages(text: str, other: Phrase) -> Phrase:
    """Return a text that pages show in other words, in every language: a code, or what a box says of resources."""
    return Phrase(text, one=other.one, many=other.many, fields=other.fields)


def _field(value: object) -> str | float:
    found = value.args[0] if isinstance(value, Exception) and value.args else value
    if isinstance(found, Sentence):
        return of_sentence(found)
    if isinstance(value, Exception):
        return found if isinstance(found, Phrase) else Verbatim(value)
    return value if isinstance(value, str | float | int) else str(value)


def joined(texts: Iterable[str]) -> str:
    """Return sentences as one, with semicolons between; an empty text where there is none."""
    found = ""
    for text in texts:
        found = phrase("%(first)s; %(then)s", first=found, then=text) if found else text
    return found


def listed(texts: Iterable[str]) -> str:
    """Return words as a list with commas between; an empty text where there is none."""
    found = ""
    for text in texts:
        found = phrase("%(first)s, %(then)s", first=found, then=text) if found else text
    return found


# as the store keeps it, beside the English text


def phrase_json(text: str) -> Json | None:
    """Return the parts of a phrase as they are stored; None where the text is none."""
    if not isinstance(text, Phrase):
        return None
    fields = {name: _field_json(one) for name, one in text.fields.items()}
    return {"one": text.one, "many": text.many, "fields": fields}


def _field_json(field: str | float) -> object:
    if isinstance(field, Phrase):
        return {"text": str(field), **(phrase_json(field) or {})}
    return {"verbatim": str(field)} if isinstance(field, Verbatim) else field


def read_phrase(text: str, parts: Json | None) -> str:
    """Return a stored text as the phrase that it was; the text alone where no parts of it are stored."""
    if not parts:
        return text
    fields = {name: _read_field(one) for name, one in parts["fields"].items()}
    return Phrase(text, one=parts["one"], many=parts["many"], fields=fields)


def _read_field(value: Any) -> str | float:  # noqa: ANN401  (of JSON)
    if not isinstance(value, dict):
        found: str | float = value
        return found
    return Verbatim(value["verbatim"]) if "verbatim" in value else read_phrase(value["text"], value)
