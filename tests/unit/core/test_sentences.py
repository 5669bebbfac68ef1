"""Sentences: their English text, and the kind and numbers that they carry, through every verdict on limits."""

import copy
import pickle
from collections.abc import Iterator

import pytest
from unit.core.test_limits_verdicts import ROWS

from edgegpu_core.limits.verdict import limits_verdict
from edgegpu_core.sentences import Sentence, cut, joined, listed, sentence


def test_a_sentence_is_its_text_with_its_parts() -> None:
    one = sentence("card %(card)s has %(units)d free", card="0", units=9)
    assert one == "card 0 has 9 free"
    assert (one.template, one.fields) == ("card %(card)s has %(units)d free", {"card": "0", "units": 9})
    assert sentence("100 % of it") == "100 % of it"
    for same in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):  # noqa: S301  (it was made here)
        assert (same, same.template, same.fields) == (one, one.template, one.fields)


def test_lists_are_one_sentence_of_bounded_parts() -> None:
    a, b, c = (sentence("card %(card)s is out of order", card=name) for name in "abc")
    assert listed([a, b, c]) == f"{a}, {b}, {c}"
    assert joined([a, b]) == f"{a}; {b}"
    assert joined([]) == listed([]) == ""
    assert listed([a]) is a
    many = [sentence("node %(node)s: no", node=f"n-{at}") for at in range(10_000)]
    whole = joined(many)
    assert whole == "; ".join(many)
    assert depth(whole) < 60, "what nobody reads has no parts, so that a page can say it"


def test_what_is_cut_keeps_its_parts() -> None:
    one = sentence("node %(node)s: no", node="n" * 100)
    assert cut(one, 200) is one
    short = cut(one, 50)
    assert short == f"node {'n' * 44}…"
    assert isinstance(short, Sentence)
    assert (short.template, short.fields) == (one.template, one.fields)
    assert cut("x" * 9, 5) == "xxxx…"


@pytest.mark.parametrize("name", ROWS)
def test_each_verdict_is_made_of_sentences(name: str) -> None:
    text = limits_verdict(ROWS[name][0]).text
    if text:
        assert isinstance(text, Sentence), text
        for one in within(text):
            made = one.template % one.fields if one.fields else one.template
            assert one == made or one.endswith("…"), "text and parts say the same"


def within(text: str) -> Iterator[Sentence]:
    if isinstance(text, Sentence):
        yield text
        for field in text.fields.values():
            yield from within(str(field) if isinstance(field, int) else field)


def depth(text: str) -> int:
    fields = text.fields.values() if isinstance(text, Sentence) else ()
    return 1 + max((depth(one) for one in fields if isinstance(one, str)), default=0)
