"""Labels of boxes and selectors over them, in the words of `kubectl -l`."""

from __future__ import annotations

import pytest

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.selectors import read_labels, read_selector

HALL = {"site": "hall", "rack": "3"}


@pytest.mark.parametrize(
    ("text", "is_meant"),
    [
        ("site=hall", True),
        ("site==hall", True),
        ("site=yard", False),
        ("site!=yard", True),
        ("tier!=a", True),
        ("site!=hall", False),
        ("site", True),
        ("tier", False),
        ("!tier", True),
        ("!site", False),
        ("site in (yard, hall)", True),
        ("site notin (yard,hall)", False),
        ("tier notin (a)", True),
        ("site in (hall),rack=3", True),
        ("site=hall, rack=4", False),
    ],
)
def test_which_boxes_are_meant(text: str, *, is_meant: bool) -> None:
    assert read_selector(text).matches(HALL) is is_meant


@pytest.mark.parametrize("text", ["site=hall,", "=hall", "!site=hall", "site in hall", "si te", "a=b=c", "site in (a"])
def test_what_is_no_selector_is_refused_with_examples(text: str) -> None:
    with pytest.raises(CloudError) as refused:
        read_selector(text)
    assert (refused.value.text.startswith("cannot select boxes by"), "site=hall" in refused.value.remedy) == (
        True,
        True,
    )


def test_labels_are_set_and_taken_away() -> None:
    assert read_labels(["site=hall", "rack-", "edgegpu.io/tier=a"]) == {
        "site": "hall",
        "rack": "",
        "edgegpu.io/tier": "a",
    }


@pytest.mark.parametrize("words", [["site"], ["=a"], ["a="], ["a=b c"], ["a=1", "a=2"], ["-"], ["a\x1b=b"]])
def test_what_is_no_label_is_refused(words: list[str]) -> None:
    with pytest.raises(CloudError, match="cannot set the label"):
        read_labels(words)
