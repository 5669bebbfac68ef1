"""What is wrong with a value that a model refuses, in our own words: by the type of pydantic's error, not its text."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from edgegpu_core.sentences import Sentence, sentence

_Context = Mapping[str, Any]

_NO_NUMBER = sentence("is not a whole number")
_NO_OBJECT = sentence("is not an object")
_NO_LIST = sentence("is not a list")
_NOT_KNOWN = sentence("is not known here")
_MISSING = sentence("is missing")
_NOT_ALLOWED = sentence("has a value that is not allowed")

_PLAIN = {
    "missing": _MISSING,
    "missing_argument": _MISSING,
    "missing_keyword_only_argument": _MISSING,
    "extra_forbidden": _NOT_KNOWN,
    "unexpected_keyword_argument": _NOT_KNOWN,
    "int_type": _NO_NUMBER,
    "int_parsing": _NO_NUMBER,
    "int_from_float": _NO_NUMBER,
    "int_parsing_size": sentence("is too large"),
    "float_type": sentence("is not a number"),
    "float_parsing": sentence("is not a number"),
    "finite_number": sentence("is not a finite number"),
    "bool_type": sentence("is neither true nor false"),
    "bool_parsing": sentence("is neither true nor false"),
    "none_required": sentence("must be null"),
    "string_type": sentence("is not a text"),
    "string_unicode": sentence("is not a text in UTF-8"),
    "list_type": _NO_LIST,
    "tuple_type": _NO_LIST,
    "dict_type": _NO_OBJECT,
    "model_type": _NO_OBJECT,
    "model_attributes_type": _NO_OBJECT,
    "dataclass_type": _NO_OBJECT,
    "invalid_key": sentence("has a name that is not a text"),
    "json_invalid": sentence("is not valid JSON"),
    "is_instance_of": _NOT_ALLOWED,
}
"""The types that say all that is to be said."""


_FORMS = {
    r"^https://[!-~]{1,1000}$": sentence("is not an https:// URL"),
    r"^[0-9a-f]{64}$": sentence("is not a SHA-256: 64 digits and letters from a to f"),
    r"^[A-Za-z0-9_-]{86}$": sentence("is not a signature: 86 letters, digits, - and _"),
    r"^[A-Za-z0-9_-]{43}$": sentence("is not a public key: 43 letters, digits, - and _"),
    r"^[0-9][0-9a-zA-Z.+-]{0,63}$": sentence("is not a version such as 1.2.3"),
    r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$": sentence(
        "is not a name: small letters, digits, - and . alone, 253 at most"
    ),
}
"""What a text is not, by the pattern that it does not match; people can read the words, and not the pattern."""

_NO_FORM = sentence("is not written as it has to be")


def _own_words(ctx: _Context) -> Sentence:
    """Return what a check of ours has raised its ValueError with, where that is a sentence."""
    words = next(iter(getattr(ctx.get("error"), "args", ())), None)
    return words if isinstance(words, Sentence) else _NOT_ALLOWED


def _number(bound: float) -> str:
    """Return a bound as people write it: 100 for 100.0."""
    return f"{bound:.15g}" if isinstance(bound, float) else str(bound)


def _values(expected: str) -> str:
    """Return pydantic's list of values, which ends with "or", as a list with commas."""
    head, _, last = expected.rpartition(" or ")
    return f"{head}, {last}" if head else expected


_OF_CONTEXT: Mapping[str, Callable[[_Context], Sentence]] = {
    "value_error": _own_words,
    "greater_than_equal": lambda ctx: sentence("must be %(least)s or more", least=_number(ctx["ge"])),
    "less_than_equal": lambda ctx: sentence("must be %(most)s or less", most=_number(ctx["le"])),
    "string_too_short": lambda ctx: sentence("must have %(number)d characters or more", number=ctx["min_length"]),
    "string_too_long": lambda ctx: sentence("must have %(number)d characters or fewer", number=ctx["max_length"]),
    "too_short": lambda ctx: sentence("must have %(number)d entries or more", number=ctx["min_length"]),
    "too_long": lambda ctx: sentence("must have %(number)d entries or fewer", number=ctx["max_length"]),
    "string_pattern_mismatch": lambda ctx: _FORMS.get(ctx["pattern"], _NO_FORM),
    "literal_error": lambda ctx: sentence("must be one of %(values)s", values=_values(ctx["expected"])),
    "enum": lambda ctx: sentence("must be one of %(values)s", values=_values(ctx["expected"])),
    "union_tag_invalid": lambda ctx: sentence("must be of one of the kinds %(values)s", values=ctx["expected_tags"]),
    "union_tag_not_found": lambda ctx: sentence("has no %(field)s, which says its kind", field=ctx["discriminator"]),
}
"""The types whose context is part of what is said."""


def fault(error: Mapping[str, Any]) -> Sentence:
    """Return what is wrong with a value: `must be 100 or less`, `is missing`.

    Args:
        error: one of pydantic's `errors()`, with its `ctx`; a type that is not known here has a general answer.
    """
    kind = error["type"]
    if (said := _OF_CONTEXT.get(kind)) is not None:
        return said(error.get("ctx") or {})
    return _PLAIN.get(kind, _NOT_ALLOWED)


def first_fault(error: ValidationError, *, whole: str = "") -> Sentence:
    """Return the first thing that is wrong, after the path of its field; `whole` stands for a fault of no field."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or whole
    return at_field(where, fault(first))


def at_field(field: str, wrong: Sentence) -> Sentence:
    """Return a fault after the name of its field, where there is one."""
    return sentence("%(field)s: %(fault)s", field=field, fault=wrong) if field else wrong


def not_known(fields: Iterable[str]) -> Sentence:
    """Return the fault of a piece with critical fields that this version does not know."""
    return sentence("this agent does not know %(fields)s", fields=", ".join(fields))
