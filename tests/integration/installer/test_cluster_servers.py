"""Which API servers an installation hears of that are on other machines."""

from __future__ import annotations

from edgegpu_installer.cluster.nodes import addresses_of, is_here


def test_only_an_address_of_this_machine_is_here() -> None:
    assert is_here("127.0.0.1")
    assert not is_here("192.0.2.7")
    assert not is_here("no address")


def test_each_address_counts_once() -> None:
    subsets = [{"addresses": [{"ip": "192.0.2.7"}, {"ip": "192.0.2.8"}]}, {"addresses": [{"ip": "192.0.2.7"}]}, {}]
    assert addresses_of({"subsets": subsets}) == ("192.0.2.7", "192.0.2.8")
    assert addresses_of({}) == ()
