"""Which addresses a webhook's receiver may have: none of this machine, its link or a cloud's metadata service."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from edgegpu_base.own_addresses import is_own_address

METADATA = frozenset(
    ip_address(text)
    for text in (
        "169.254.169.254",  # most clouds: AWS, Azure, Google, Oracle, OpenStack, DigitalOcean, Hetzner
        "169.254.170.2",  # AWS: credentials of ECS tasks
        "169.254.170.23",  # AWS: credentials of EKS pods
        "169.254.0.23",  # Tencent
        "169.254.42.42",  # Scaleway
        "168.63.129.16",  # Azure: the host of each machine, which gives out its certificates
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle, earlier
        "fd00:ec2::254",  # AWS by IPv6
        "fd00:ec2::23",  # AWS: credentials of EKS pods by IPv6
        "fd20:ce::254",  # Google by IPv6
        "fd00:42::42",  # Scaleway by IPv6
        "fe80::a9fe:a9fe",  # OpenStack by IPv6
    )
)
"""Where clouds give a machine its credentials, to whoever asks from it."""

_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052
_COMPATIBLE = IPv6Network("::/96")  # RFC 4291, 2.5.5.1
_LOW_32 = (1 << 32) - 1


def receiver_fault(text: str, *, local: bool) -> str:
    """Return why no message goes to an address, as the end of a sentence about the receiver; empty: it may.

    Args:
        text: the address; an IPv6 address may have its scope.
        local: addresses of this machine and its link are allowed. Those of metadata services never are.
    """
    address = _inner(ip_address(text.partition("%")[0]))
    if address in METADATA:
        return "is where a cloud gives out its machines' credentials: name another receiver"
    is_near = address.is_loopback or address.is_link_local
    if address.is_multicast or address.is_unspecified or (address.is_reserved and not is_near):
        return "is no address of another machine: name another receiver"
    if is_near or is_own_address(str(address)) or is_own_address(text):
        return "" if local else "is on this machine or its own link: alerts.webhook.allow_local: true allows that"
    return ""


def _inner(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that an IPv6 address leads to; any other address as it is."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        return IPv4Address(int(address) & _LOW_32)
    return address
