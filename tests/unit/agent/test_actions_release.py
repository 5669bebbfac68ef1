"""Which release may be installed."""

from __future__ import annotations

import pytest
from kits.acts import Vendor

from edgegpu_agent.actions.bundles import ReleaseError, check_not_older, check_signature, sign

SUM = "a" * 64
IN_ORDER = (
    "0.9",
    "1.0.dev3",
    "1.0a1",
    "1.0b2",
    "1.0rc1",
    "1.0",
    "1.0+b1",
    "1.0+b2",
    "1.0+b2.1",
    "1.0+2",
    "1.0+10",
    "1.0.post1",
    "1.0.1",
    "1.2",
    "1.10",
    "2",
)


@pytest.mark.parametrize("place", range(len(IN_ORDER) - 1))
def test_what_is_older_is_refused(place: int) -> None:
    old, new = IN_ORDER[place], IN_ORDER[place + 1]
    check_not_older(old, new)
    with pytest.raises(ReleaseError) as refused:
        check_not_older(new, old)
    assert refused.value.code == "DOWNGRADE"


@pytest.mark.parametrize(("now", "wanted"), [("1.2", "1.2.0"), ("1.2.0+b-1", "1.2+b.1")])
def test_the_same_in_other_words_is_no_downgrade(now: str, wanted: str) -> None:
    check_not_older(now, wanted)


def test_the_release_key_signs_version_and_checksum_together() -> None:
    vendor = Vendor()
    signature = sign(vendor.key, "2.0", SUM)
    check_signature(f"{vendor.public}\n", version="2.0", sha256=SUM, signature=signature)
    for version, sum_, by in (("2.1", SUM, vendor), ("2.0", "b" * 64, vendor), ("2.0", SUM, Vendor())):
        with pytest.raises(ReleaseError) as refused:
            check_signature(by.public, version=version, sha256=sum_, signature=signature)
        assert refused.value.code == "BAD_SIGNATURE"


def test_while_keys_change_either_signs() -> None:
    old, new = Vendor(), Vendor()
    keys = f"{old.public}\n{new.public}\n"
    for vendor in (old, new):
        check_signature(keys, version="2.0", sha256=SUM, signature=sign(vendor.key, "2.0", SUM))
    with pytest.raises(ReleaseError) as refused:
        check_signature(keys, version="2.0", sha256=SUM, signature=sign(Vendor().key, "2.0", SUM))
    assert refused.value.code == "BAD_SIGNATURE"


@pytest.mark.parametrize("key", ["", "no key", "A" * 44])
def test_a_key_that_is_none_is_said(key: str) -> None:
    with pytest.raises(ReleaseError) as refused:
        check_signature(key, version="2.0", sha256=SUM, signature="A" * 86)
    assert refused.value.code == "NO_RELEASE_KEY"
