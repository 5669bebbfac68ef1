"""How a box shall share its cards, as edits of its desired document: in the words of the box's own command line."""

import pytest

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.specs import SharingSettings, check_app, desired_items, revised, with_settings
from edgegpu_sync.messages.spec import Exclusions, Isolation, IsolationMode, PolicyItem, Sharing, Spec, UnitSize

ALL = SharingSettings(isolation="none", policy="best-fit", exclude=("0", "0:1", "GPU-7d2f"), unit_mib=512)


def test_each_setting_is_an_item_of_its_own() -> None:
    spec = revised(Spec(), with_settings(Spec(), ALL), 7)
    assert spec == Spec(
        isolation=Isolation(rev=7, mode=IsolationMode.NONE),
        policy=PolicyItem(rev=7, policy="best-fit"),
        exclusions=Exclusions(rev=7, cards=("0", "0:1", "GPU-7d2f")),
        unit_size=UnitSize(rev=7, mib=512),
    )
    assert list(desired_items(spec)) == ["isolation", "policy", "exclusions", "unit_size"]


def test_what_is_left_out_stays_and_keeps_its_revision() -> None:
    before = revised(Spec(), with_settings(Spec(sharing=Sharing(rev=0, installed=True)), ALL), 1)
    after = revised(before, with_settings(before, SharingSettings(policy="spread")), 2)
    assert after == before.model_copy(update={"policy": PolicyItem(rev=2, policy="spread")})


def test_the_same_once_more_is_tried_again() -> None:
    before = revised(Spec(), with_settings(Spec(), ALL), 1)
    after = revised(before, with_settings(before, SharingSettings(unit_mib=512)), 2)
    assert after.unit_size == UnitSize(rev=1, mib=512, retry=1)


@pytest.mark.parametrize(
    ("words", "cards"), [(("none",), ()), (("1", "0", "1"), ("1", "0")), (("MIG-0a-1b",), ("MIG-0a-1b",))]
)
def test_cards_are_named_as_on_the_box(words: tuple[str, ...], cards: tuple[str, ...]) -> None:
    exclusions = with_settings(Spec(), SharingSettings(exclude=words)).exclusions
    assert exclusions is not None
    assert exclusions.cards == cards


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (SharingSettings(), "no setting is given"),
        (SharingSettings(policy="worst-fit"), "set policy"),
        (SharingSettings(isolation="vm"), "set isolation"),
        (SharingSettings(unit_mib=0), "set unit_size"),
        (SharingSettings(exclude=("none", "0")), "'none'"),
        (SharingSettings(exclude=("--yes",)), "'--yes'"),
        (SharingSettings(exclude=("gpu 0",)), "'gpu 0'"),
        (SharingSettings(exclude=()), "nothing"),
        (SharingSettings(exclude=tuple(map(str, range(65)))), "set exclusions"),
    ],
)
def test_what_cannot_be_is_refused(settings: SharingSettings, says: str) -> None:
    with pytest.raises(CloudError, match=says):
        with_settings(Spec(), settings)


def test_a_name_that_is_too_long_is_told_how_long_one_may_be() -> None:
    check_app("default", "a" * 253, "main")
    with pytest.raises(CloudError) as caught:
        check_app("default", "a" * 254, "main")
    assert "253 at most" in caught.value.remedy
