"""What counts as one address where places of connections are shared out."""

import pytest

from edgegpu_cloud.http.acceptor import address_key


@pytest.mark.parametrize(
    ("host", "site"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.8", "192.0.2.8"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_a_client_of_ipv4_is_itself_also_at_a_socket_of_ipv6(host: str, site: str) -> None:
    assert address_key(host) == site
