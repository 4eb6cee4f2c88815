"""The addresses that a job may reach, held against the standard library's opinion."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rota.worker.builtin.addresses import may_reach

IPV4 = some.ip_addresses(v=4)
IPV6 = some.ip_addresses(v=6)
INNER = [
    *("10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "127.0.0.1", "127.255.255.254", "0.0.0.0"),
    *("169.254.169.254", "100.100.100.200", "168.63.129.16", "224.0.0.1", "255.255.255.255", "240.0.0.1", "192.0.2.1"),
    *("::", "::1", "fe80::1", "fe80::1%eth0", "::1%lo", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1"),
    *("2001::1", "64:ff9b:1::1", "::127.0.0.1", "100::1", "fec0::1", "5f00::1", "3fff::1"),
]
OUTER = ["1.1.1.1", "8.8.8.8", "172.32.0.1", "2606:4700::1111", "2a00:1450::1", "64:ff9b::101:101", "2002:808:808::1"]


def embedded(inner: IPv4Address) -> list[IPv6Address]:
    """The same host, said in IPv6."""
    number = int(inner)
    return [
        IPv6Address((0xFFFF << 32) | number),
        IPv6Address(int(IPv6Address("64:ff9b::")) | number),
        IPv6Address((0x2002 << 112) | (number << 80) | 1),
    ]


@pytest.mark.parametrize("address", INNER)
def test_an_inner_address_is_refused(address: str) -> None:
    assert not may_reach(address, ())


@pytest.mark.parametrize("address", OUTER)
def test_an_outer_address_is_fine(address: str) -> None:
    assert may_reach(address, ())


@pytest.mark.parametrize("spelling", ["2130706433", "0177.0.0.1", "127.1", "0x7f.1", "1.1", "", "localhost", "[::1]"])
def test_what_is_not_an_address_in_its_usual_spelling_is_refused(spelling: str) -> None:
    assert not may_reach(spelling, [ip_network("0.0.0.0/0")])


@given(IPV4)
def test_no_ipv4_address_is_fine_that_the_standard_library_calls_private(address: IPv4Address) -> None:
    assert (address.is_global and not address.is_multicast) or not may_reach(str(address), ())


@given(IPV6)
def test_no_ipv6_address_is_fine_that_the_standard_library_calls_private(address: IPv6Address) -> None:
    translated = [IPv6Network("64:ff9b::/96"), IPv6Network("2002::/16"), IPv6Network("::ffff:0:0/96")]
    if not any(address in network for network in translated):
        assert (address.is_global and not address.is_multicast) or not may_reach(str(address), ())


@given(IPV4)
def test_an_ipv4_address_is_judged_the_same_in_every_disguise(address: IPv4Address) -> None:
    fine = may_reach(str(address), ())

    assert {may_reach(str(disguise), ()) for disguise in embedded(address)} == {fine}


@pytest.mark.parametrize("inner", [each for each in INNER if ":" not in each])
def test_no_disguise_helps_an_inner_address(inner: str) -> None:
    for disguise in embedded(IPv4Address(inner)):
        assert not may_reach(str(disguise), ())
        assert not may_reach(disguise.exploded, ())


@given(IPV4, some.integers(1, 32))
def test_an_allowed_range_is_fine_whatever_it_is(address: IPv4Address, length: int) -> None:
    around = ip_network(f"{address}/{length}", strict=False)

    assert may_reach(str(address), [around])
    assert may_reach(f"::ffff:{address}", [around])


def test_allowing_one_range_allows_no_other() -> None:
    allowed = [ip_network("10.0.0.0/8")]

    assert may_reach("10.1.2.3", allowed)
    assert not may_reach("192.168.1.1", allowed)
    assert not may_reach("::1", allowed)
