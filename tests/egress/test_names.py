"""Which texts are names of hosts, and which names a list allows."""

import time

import pytest

from ferrule.egress.addresses import is_public, read_hosts
from ferrule.egress.names import BadDomain, DomainNames, read_host

ADDRESSES = (
    "127.0.0.1", "127.0.0.1.", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "127.1", "0",
    "1.2.3", "example.123", "example.0x1f", "[::1]", "::1", "::ffff:127.0.0.1", "[::ffff:7f00:1]", "fe80::1%eth0",
    "[fe80::1%25eth0]", "１２７.0.0.1", "127。0。0。1", "①②⑦.0.0.1",
)  # fmt: skip
NO_NAMES = (
    "", ".", "..", "a..b", ".example.com", "example.com..", "*", "*.*", "*.", "a.*.com", "*example.com",
    "*.*.example.com", "http://example.com", "https://example.com/", "example.com/path", "example.com:443",
    "user@example.com", "user:pw@example.com", "exa mple.com", "example.com\n", "example.com\r\nHost: evil",
    "example.com\0", "exämple..com", "-a.com", "a-.com", "a" * 64 + ".com", "a." * 127 + "com", "example.com?",
    "example.com#", "example.com\\@evil.com", "%65xample.com", "//example.com", "\u200b", "*.127.0.0.1", "*.[::1]",
    "example.com,evil.com",
)  # fmt: skip


@pytest.mark.parametrize("text", ADDRESSES)
def test_an_address_in_any_notation_is_no_name(text: str) -> None:
    with pytest.raises(BadDomain, match="is an address"):
        read_host(text)


@pytest.mark.parametrize("text", NO_NAMES)
def test_a_list_refuses_what_is_no_domain_with_a_sentence_in_one_line(text: str) -> None:
    with pytest.raises(BadDomain) as caught:
        DomainNames.read(["example.org", text])
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("text", [":" * 60_000 + "x", "[" + ":1" * 30_000 + "%:x", "é:" * 30_000, "a.:" * 20_000])
def test_a_name_of_any_length_is_read_at_once(text: str) -> None:
    before = time.process_time()
    with pytest.raises(BadDomain):
        read_host(text)
    assert time.process_time() - before < 5  # each colon more took longer than all before: hours


def test_a_sentence_quotes_only_the_beginning_of_what_is_long() -> None:
    with pytest.raises(BadDomain) as caught:
        read_host("a" * 100_000)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("straße.example", "xn--strae-oqa.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("ｅxample。com", "example.com"),
        ("exam\u00adple.com", "example.com"),
        ("localhost", "localhost"),
        ("_a.b_c.example", "_a.b_c.example"),
        ("4chan.example", "4chan.example"),
        ("1.2.3.4.example", "1.2.3.4.example"),
    ],
)
def test_a_name_is_read_as_dns_compares_it(text: str, name: str) -> None:
    assert read_host(text) == name


def test_a_wildcard_allows_each_depth_below_but_not_the_name_itself() -> None:
    names = DomainNames.read(["*.Example.com.", "other.example", "*.BÜCHER.example"])
    assert names.entries == ("*.example.com", "other.example", "*.xn--bcher-kva.example")
    assert names.exact == ("other.example",)
    for host in ("a.example.com", "b.a.example.com", "other.example", "x.xn--bcher-kva.example"):
        assert names.allows(host)
    for host in ("example.com", "a.other.example", "badexample.com", "example.com.evil.org", "com", "evil.example"):
        assert not names.allows(host)


def test_a_list_is_inside_another_entry_by_entry() -> None:
    bounds = DomainNames.read(["*.example.com", "one.org", "*.two.org"])
    for inside in (["a.example.com"], ["*.example.com"], ["*.a.example.com"], ["one.org", "*.two.org"], []):
        assert DomainNames.read(inside).outside(bounds) is None
    for outside in ("example.com", "*.one.org", "*.com", "two.org", "*.org"):
        assert DomainNames.read(["one.org", outside]).outside(bounds) == outside


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1", "10.0.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254", "100.100.100.200", "0.0.0.0",
        "0.1.2.3", "168.63.129.16", "192.0.0.192", "192.88.99.1", "198.18.0.1", "203.0.113.9", "224.0.0.251",
        "239.1.1.1", "240.0.0.1", "255.255.255.255", "::", "::1", "::ffff:8.8.8.8", "::ffff:127.0.0.1", "::127.0.0.1",
        "fe80::1", "fe80::1%lo", "fc00::1", "fd00:ec2::254", "ff02::1", "2002:7f00:1::", "2001:0:7f00:1::",
        "2001:db8::1", "3fff::1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::1", "100::1", "5f00::1", "4000::1",
        "2a00::1%lo", "8.8.8.8.", "2130706433", "", "nonsense",
    ],
)  # fmt: skip
def test_what_is_not_of_the_public_internet(text: str) -> None:
    assert not is_public(text)


@pytest.mark.parametrize(
    "text", ["8.8.8.8", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "2a00::1", "64:ff9b::808:808"]
)
def test_what_is_of_the_public_internet(text: str) -> None:
    assert is_public(text)


@pytest.mark.parametrize(
    "row",
    [
        ("ok.example", "127.0.0.1:1"), ("ok.example:0", "127.0.0.1:1"), ("ok.example:65536", "127.0.0.1:1"),
        ("*:443", "127.0.0.1:1"), ("ok.example:x", "127.0.0.1:1"), ("*.example:443", "127.0.0.1:1"),
        ("127.0.0.1:80", "127.0.0.1:1"), ("ok.example:80", "127.0.0.1"), ("ok.example:80", "localhost:1"),
        ("ok.example:80", "::1"), ("ok.example:80", ":1"), ("ok.example:²", "127.0.0.1:1"),
    ],
)  # fmt: skip
def test_a_table_of_hosts_takes_names_with_ports_and_addresses_with_ports(row: tuple[str, str]) -> None:
    with pytest.raises(BadDomain):
        read_hosts(dict([row]))
