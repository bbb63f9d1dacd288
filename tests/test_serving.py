"""Who may ask a listening door, and where it listens."""

import asyncio
import socket

import pytest

from ferrule.protocol.errors import UsageError
from ferrule.serving import Bind, Callers, Refused, bearer_token, listen


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:8787", "127.0.0.1", 8787, True),
        ("127.8.9.1:1", "127.8.9.1", 1, True),
        ("[::1]:0", "::1", 0, True),
        ("localhost:80", "localhost", 80, True),
        ("0.0.0.0:80", "0.0.0.0", 80, False),
        ("[::]:80", "::", 80, False),
        ("10.1.2.3:80", "10.1.2.3", 80, False),
        ("ferrule.example:80", "ferrule.example", 80, False),
    ],
)
def test_an_address_is_read(text: str, host: str, port: int, loopback: bool) -> None:
    bind = Bind.read(text)
    assert (bind.host, bind.port, bind.is_loopback) == (host, port, loopback)
    assert str(bind) == text


@pytest.mark.parametrize("text", ["", "8787", ":8787", "localhost", "a:b", "a:", "::1:80", "[]:1", "a:70000", "a:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"127\.0\.0\.1:8787"):
        Bind.read(text)


def test_an_address_that_is_taken_says_what_to_do() -> None:
    with listen(Bind("127.0.0.1", 0))[0] as taken:
        at = Bind(*taken.getsockname())
        with pytest.raises(UsageError, match="--bind"):
            listen(at)


OWN = Callers.of(Bind("127.0.0.1", 8787), allowed=("Ferrule.example", "[fe80::1]"))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8787", "[::1]:1", "ferrule.EXAMPLE:443", "[fe80::1]"])
def test_its_own_names(host: str) -> None:
    OWN.check([host], [])
    OWN.check([host], [f"http://{host}"])


@pytest.mark.parametrize(
    "hosts",
    [[], [""], ["evil.example"], ["10.0.0.1"], ["localhost", "localhost"], ["a@localhost"], ["localhost/x"], ["["],
     ["localhost:x"], ["localhost."], ["localhost,evil.example"], ["localhost#a"], ["localhost?a"]],
)  # fmt: skip
def test_other_names(hosts: list[str]) -> None:
    with pytest.raises(Refused, match="allowed_hosts"):
        OWN.check(hosts, [])


@pytest.mark.parametrize(
    "origin",
    ["null", "", "https://evil.example", "ftp://localhost", "localhost", "http://localhost/", "http://a@localhost"],
)
def test_other_pages(origin: str) -> None:
    with pytest.raises(Refused):
        OWN.check(["localhost"], [origin])


def test_a_door_on_every_address_has_no_names_but_addresses() -> None:
    everywhere = Callers.of(Bind("0.0.0.0", 80))
    everywhere.check(["192.168.1.5:80"], [])
    everywhere.check(["[2001:db8::1]"], [])
    with pytest.raises(Refused):
        everywhere.check(["evil.example"], [])


def test_the_token_of_a_request() -> None:
    assert bearer_token("Bearer abc") == bearer_token("bearer  abc ") == "abc"
    assert bearer_token("") == bearer_token("Basic abc") == bearer_token("abc") == ""


async def test_what_is_sent_leaves_at_once() -> None:
    """asyncio switches Nagle's delay off only for sockets that name their protocol."""
    opened, at = listen(Bind("127.0.0.1", 0))
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(accept, sock=opened):
        _, writer = await asyncio.open_connection(at.host, at.port)
        assert await accepted
        writer.close()
        await writer.wait_closed()
