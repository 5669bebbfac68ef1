"""The set of boxes that a form carries: every change of it is noticed, and the boxes are named where they can be."""

import base64
import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.operations.box_set import LONGEST_SET, BoxSet, SetDifference
from edgegpu_sync.ids import DeviceId, device_id

FLEET = [device_id(f"{number:016d}") for number in range(10_000)]


def test_it_comes_back_from_its_text_and_a_form_can_carry_it() -> None:
    for devices in ([], FLEET[:1], FLEET):
        made = BoxSet.of(devices)
        assert BoxSet.read(made.text) == made
        assert made.number == len(devices)
        assert len(made.text) < 3_000


def test_the_order_of_boxes_does_not_count() -> None:
    assert BoxSet.of(FLEET[:50]) == BoxSet.of(FLEET[:50][::-1])


@pytest.mark.parametrize(("seed", "number"), [*product(range(5), [1, 2, 50]), (0, 5_000)])
def test_one_that_leaves_while_another_joins_is_noticed_and_both_are_named(seed: int, number: int) -> None:
    rng = random.Random(seed)
    before = rng.sample(FLEET, number)
    gone, come = rng.choice(before), rng.choice([one for one in FLEET if one not in set(before)])
    now = [come, *(one for one in before if one != gone)]
    seen = BoxSet.of(before)
    assert seen != BoxSet.of(now)
    assert seen.number == BoxSet.of(now).number
    found = seen.difference(now, FLEET)
    assert found == SetDifference(frozenset({come}), frozenset({gone}), others=False)


def test_a_box_that_nobody_knows_any_more_is_one_of_the_others() -> None:
    seen = BoxSet.of(FLEET[:5])
    found = seen.difference(FLEET[1:6], FLEET[1:])
    assert found == SetDifference(frozenset({FLEET[5]}), frozenset(), others=True)


@pytest.mark.parametrize("number", [20, 4_000])
def test_of_many_changes_none_is_named_that_is_none(number: int) -> None:
    before, now = FLEET[:6_000], FLEET[number:]
    found = BoxSet.of(before).difference(now, FLEET)
    assert found.joined <= set(FLEET[6_000:])
    assert found.left <= set(FLEET[:number])
    assert found.others


def test_the_same_set_has_no_difference() -> None:
    found = BoxSet.of(FLEET).difference(FLEET, FLEET)
    assert found == SetDifference(frozenset(), frozenset(), others=False)


def test_what_was_seen_of_the_boxes_is_in_the_text_and_is_no_part_of_the_set() -> None:
    seen = BoxSet.of(FLEET[:5], seen_change=412)
    assert BoxSet.read(seen.text).seen_change == 412
    assert BoxSet.read(seen.boxes_alone.text).seen_change is None
    assert seen == BoxSet.of(FLEET[:5]), "what others change meanwhile makes it no other set"
    assert len(BoxSet.of(FLEET, seen_change=10**18 - 1).text) <= LONGEST_SET


def test_of_a_few_boxes_it_is_short_and_a_whole_one_of_an_earlier_version_is_read() -> None:
    few = BoxSet.of(FLEET[:5])
    assert len(few.text) < 50
    whole = f"5.{base64.urlsafe_b64encode(few.cells).decode()}"
    assert BoxSet.read(whole) == few


@given(st.lists(st.sampled_from(FLEET), unique=True, max_size=600))
def test_each_set_comes_back_from_its_text(devices: list[DeviceId]) -> None:
    made = BoxSet.of(devices)
    assert BoxSet.read(made.text) == made
    assert len(made.text) <= LONGEST_SET


WRONG = (
    *("", "5", "5.", "x.AAAA", "5.AAAA", "5.\N{SNOWMAN}", f"-5.{'A' * 2_731}="),
    *("5:AAAA", "5:\N{SNOWMAN}", "5:!", "x:AHkxOw5a", f"{'9' * 5_000}:AHkxOw5a", ":", "2:AgAxOw5a"),
    *("2:AHkxOw5aAHkxOw5a", "1@:AHkxOw5a", "1@x:AHkxOw5a", "1@-1:AHkxOw5a", f"1@{'9' * 19}:AHkxOw5a", "@1:AHkxOw5a"),
)


@pytest.mark.parametrize("text", WRONG)
def test_a_text_that_no_page_has_made_is_refused(text: str) -> None:
    with pytest.raises(CloudError, match="does not say which boxes"):
        BoxSet.read(text)


def test_a_device_id_is_all_that_counts() -> None:
    assert BoxSet.of([DeviceId("a" * 16)]) != BoxSet.of([DeviceId("b" * 16)])
