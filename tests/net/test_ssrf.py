import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from hypothesis import given
from hypothesis import strategies as some

from fairlead.net.http import AddressRefused, VettingResolver, open_vetted_client
from fairlead.net.ssrf import Address, is_loopback_host, public_only, public_or_loopback, why_not_public


@pytest.mark.requirement("HARD-30", "HARD-59")
@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("0.0.0.0", "reserved"),
        ("10.0.0.1", "private"),
        ("100.64.0.1", "carrier"),
        ("100.100.100.200", "carrier"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("168.63.129.16", "cloud"),
        ("169.254.169.254", "link-local"),
        ("172.31.255.255", "private"),
        ("192.0.0.192", "reserved"),
        ("192.0.2.1", "examples"),
        ("192.88.99.1", "tunnel"),
        ("192.168.1.1", "private"),
        ("198.18.0.1", "reserved"),
        ("198.51.100.1", "examples"),
        ("203.0.113.1", "examples"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("::", "reserved"),
        ("::1", "loopback"),
        ("::7f00:1", "reserved"),
        ("::ffff:127.0.0.1", "disguise"),
        ("::ffff:8.8.8.8", "disguise"),
        ("64:ff9b::7f00:1", "disguise"),
        ("64:ff9b:1::1", "disguise"),
        ("100::1", "reserved"),
        ("2001::1", "tunnel"),
        ("2001:10::1", "reserved"),
        ("2001:db8::1", "examples"),
        ("2002:7f00:1::", "disguise"),
        ("3fff::1", "examples"),
        ("4000::1", "reserved"),
        ("fc00::1", "private"),
        ("fd00:ec2::254", "private"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("fec0::1", "private"),
        ("ff02::1", "multicast"),
    ],
)
def test_what_is_not_public_is_said_to_be_what_it_is(address: str, kind: str) -> None:
    assert kind in (why_not_public(ip_address(address)) or "")
    assert public_only("docs.test", ip_address(address))
    assert public_or_loopback("docs.test", ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        *("1.1.1.1", "93.184.216.34", "172.15.0.1", "172.32.0.1", "192.0.1.1", "223.255.255.255"),
        *("2001:200::1", "2001:4860:4860::8888", "2606:4700:4700::1111", "2a00:1450:4001::1"),
    ],
)
def test_what_is_public_may_be_dialled(address: str) -> None:
    assert public_only("docs.test", ip_address(address)) is None
    assert public_or_loopback("docs.test", ip_address(address)) is None


@given(
    some.one_of(some.integers(0, 2**32 - 1).map(IPv4Address), some.integers(0, 2**128 - 1).map(IPv6Address))
)
def test_nothing_passes_that_python_knows_better(address: Address) -> None:
    if why_not_public(address) is None:
        assert address.is_global
        assert not any((address.is_multicast, address.is_reserved, address.is_unspecified))


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_this_machine_is_told_by_its_name(host: str) -> None:
    assert is_loopback_host(host)
    assert public_or_loopback(host, ip_address("127.0.0.1")) is None
    assert public_or_loopback(host, ip_address("::1")) is None
    assert public_or_loopback(host, ip_address("1.1.1.1"))
    assert public_only(host, ip_address("127.0.0.1"))


@pytest.mark.parametrize(
    "host", ["localhost.evil.test", "notlocalhost", "127.0.0.1.evil.test", "10.0.0.1", "::2", ""]
)
def test_nobody_else_is_this_machine(host: str) -> None:
    assert not is_loopback_host(host)
    assert public_or_loopback(host, ip_address("127.0.0.1"))


class Lookups(AbstractResolver):
    """Answers every look-up with the same addresses."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in self.addresses
        ]

    async def close(self) -> None:
        pass


@pytest.mark.requirement("HARD-30", "HARD-59")
async def test_only_vetted_addresses_are_handed_on() -> None:
    resolver = VettingResolver(public_only, Lookups("10.0.0.1", "1.1.1.1", "::1", "2606:4700:4700::1111"))
    found = await resolver.resolve("docs.test", 443)
    assert [result["host"] for result in found] == ["1.1.1.1", "2606:4700:4700::1111"]


@pytest.mark.parametrize(
    ("addresses", "words"),
    [
        (("10.0.0.1", "::1"), "docs.test is at 10.0.0.1, a private address"),
        (("not an address",), "docs.test has no address"),
        ((), "docs.test has no address"),
    ],
)
async def test_a_host_without_a_fit_address_is_refused(addresses: tuple[str, ...], words: str) -> None:
    with pytest.raises(AddressRefused) as caught:
        await VettingResolver(public_only, Lookups(*addresses)).resolve("docs.test")
    assert str(caught.value) == words


@pytest.mark.requirement("HARD-30")
@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://[::1]:1/", "http://docs.test:1/"])
async def test_a_client_says_why_an_address_was_not_dialled(url: str) -> None:
    async with open_vetted_client(resolver=Lookups("127.0.0.1")) as client:
        with pytest.raises(aiohttp.ClientConnectorError) as caught:
            await client.get(url)
    assert isinstance(caught.value.os_error, AddressRefused)
    assert "a loopback address" in str(caught.value.os_error)


async def test_this_machine_is_dialled_by_those_who_chose_so() -> None:
    async with open_vetted_client(public_or_loopback) as client:
        with pytest.raises(aiohttp.ClientConnectorError) as caught:
            await client.get("http://127.0.0.1:1/")
    assert not isinstance(caught.value.os_error, AddressRefused)
