"""Labels of boxes, and selectors over them in the syntax of `kubectl -l`; pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.records import LabelTerm

_WORD = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")
_VALUE = r"[A-Za-z0-9._/-]*"
_TERM = re.compile(rf"(?P<key>[A-Za-z0-9._/-]+)(?:(?P<how>==|=|!=)(?P<value>{_VALUE}))?")
_SET = re.compile(r"(?P<key>[A-Za-z0-9._/-]+)\s+(?P<how>in|notin)\s*\((?P<values>[^()]*)\)")
_PARTS = re.compile(r",(?![^(]*\))")
_EXAMPLES = phrase("write site=hall, site!=hall, 'site in (hall,yard)', site or !site, several with commas between")


@dataclass(frozen=True, slots=True)
class BoxSelector:
    """A selector over labels: terms that all have to hold."""

    terms: tuple[LabelTerm, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the selector matches a box with these labels."""
        return all(term.matches(labels) for term in self.terms)


def read_selector(text: str) -> BoxSelector:
    """Read a selector: `site=hall,rack!=3,!old,tier in (a,b)`.

    Raises:
        CloudError: the text is no selector.
    """
    return BoxSelector(tuple(_term(part.strip(), text) for part in _PARTS.split(text)))


def _term(part: str, whole: str) -> LabelTerm:
    if found := _SET.fullmatch(part):
        values = frozenset(one.strip() for one in found["values"].split(","))
        return LabelTerm(found["key"], values, found["how"] == "in")
    negated = part.startswith("!")
    found = _TERM.fullmatch(part.removeprefix("!").strip())
    if found is None or (negated and found["how"]):
        raise CloudError(
            phrase("cannot select boxes by %(whole)r: %(part)r is not a term", whole=whole, part=part or "nothing"),
            remedy=_EXAMPLES,
        )
    if found["how"] is None:
        return LabelTerm(found["key"], None, not negated)
    return LabelTerm(found["key"], frozenset({found["value"]}), found["how"] != "!=")


def read_labels(words: Iterable[str]) -> dict[str, str]:
    """Read labels: `site=hall`, and `site-`, which takes the label away: its value is empty then.

    Raises:
        CloudError: a word that is neither, or a label twice.
    """
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        key = key if equals else key.removesuffix("-")
        if not equals and not word.endswith("-"):
            raise _wrong(word, phrase("it has no value"))
        if not _WORD.fullmatch(key) or (equals and not _WORD.fullmatch(value)):
            raise _wrong(word, phrase("a label and its value have 1 to 63 letters, digits, `.`, `-`, `_` and `/`"))
        if key in found:
            raise _wrong(word, phrase("%(key)s is given twice", key=key))
        found[key] = value
    return found


def _wrong(word: str, why: str) -> CloudError:
    return CloudError(
        phrase("cannot set the label %(word)r: %(why)s", word=word, why=why),
        remedy=phrase("write site=hall, or site- to take it away"),
    )
