"""Which addresses a job may reach: the public internet, and what the operator allows beside it."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Written out, not asked of `ipaddress`: what that calls private differs between releases of Python.
NOT_PUBLIC_4 = [
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # carriers' NAT; one cloud keeps its metadata at 100.100.100.200
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's way into a virtual machine, public by its number only
        "169.254.0.0/16",  # link-local, with the metadata of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and the broadcast
    )
]
# Everything else in IPv6 is loopback, unique local, link-local, multicast, mapped or not given out.
PUBLIC_6 = IPv6Network("2000::/3")
NOT_PUBLIC_6 = [
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocols' own, among them Teredo, which hides an IPv4 address
        "2001:db8::/32",
        "3fff::/20",
    )
]
NAT64 = IPv6Network("64:ff9b::/96")
SIX_TO_FOUR = IPv6Network("2002::/16")
MAPPED = IPv6Network("::ffff:0:0/96")


def may_reach(address: str, allowed: Sequence[Network]) -> bool:
    """Only addresses in their usual spelling are understood; what is not understood may not be reached."""
    try:
        # A scope says by which interface, not to whom.
        outer = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner = _reached_by(outer)
    return _is_public(inner) or any(each in network for network in allowed for each in (outer, inner))


def _reached_by(address: Address) -> Address:
    """The IPv4 address inside an IPv6 one whose packets end up there."""
    if isinstance(address, IPv4Address):
        return address
    if address in NAT64 or address in MAPPED:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in SIX_TO_FOUR:
        return IPv4Address(int(address) >> 80 & 0xFFFF_FFFF)
    return address


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in NOT_PUBLIC_4)
    return address in PUBLIC_6 and not any(address in network for network in NOT_PUBLIC_6)
