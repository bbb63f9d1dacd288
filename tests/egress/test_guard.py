"""Who may be reached, and which address is connected to."""

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ferrule.egress.guard import MAX_LOGGED, MAX_OWN_LOOKUPS, Guard, Refusal, Refused, Unreachable
from ferrule.egress.names import DomainNames
from tests.programs import need

NAMESPACES = ["unshare", "--user", "--map-root-user", "--net", "--mount"]


@asynccontextmanager
async def greeter() -> AsyncIterator[str]:
    """Serve on loopback, greeting each client; yields the address."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        yield "127.0.0.1:{1}".format(*server.sockets[0].getsockname())


def test_a_name_server_that_changes_its_mind_is_not_asked_twice(tmp_path: Path) -> None:
    need("unshare")
    if subprocess.run([*NAMESPACES, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine has no user namespaces")
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:5\n")
    command = [*NAMESPACES, sys.executable, "-m", "tests.egress.rebinding", str(tmp_path / "resolv.conf")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    refused = "{} leads to an address that is not public, so it cannot be reached."
    rebinding, late, mixed, metadata = (
        refused.format(name) for name in ("rebinding.example", "late.example", "mixed.example", "metadata.example")
    )
    assert told["reached"] == {
        "steady.example": ["8.8.8.8", "8.8.8.8"],
        "rebinding.example": ["8.8.8.8", rebinding],
        "late.example": [late, "8.8.8.8"],
        "mixed.example": [mixed, mixed],
        "metadata.example": [metadata, metadata],
        "down.example": ["8.8.8.8", "8.8.8.8"],
        "none.example": ["none.example has no address."] * 2,
    }
    assert told["own"] == "own.example leads to this machine itself, so it cannot be reached."
    assert told["asked"].pop("own.example") == 1
    assert set(told["asked"].values()) == {2}


async def test_only_allowed_names_and_open_ports_are_reached_and_refusals_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[Refusal] = []
    caplog.set_level(logging.INFO, "ferrule.egress")
    async with greeter() as address:
        hosts = {"ok.example:443": address, "ok.example:8443": address, "no.example:443": address}
        guard = Guard(DomainNames.read(["ok.example"]), hosts=hosts, report=told.append)
        for host, port in (("ok.example", 443), ("OK.example.", 443), ("ok.example", 8443)):
            with await guard.connect(host, port) as connection:
                assert await asyncio.get_running_loop().sock_recv(connection, 9) == b"hello"
        for host, port, text in (
            ("no.example", 443, "no.example is not an allowed domain. Allowed: ok.example."),
            ("sub.ok.example", 443, "sub.ok.example is not an allowed domain. Allowed: ok.example."),
            ("ok.example", 22, "Port 22 of ok.example cannot be reached: only 80 and 443 are open."),
            ("127.0.0.1", 443, "'127.0.0.1' is an address: only names can be allowed."),
            ("0x7f.1", 80, "'0x7f.1' is an address: only names can be allowed."),
            ("a@ok.example", 443, "'a@ok.example' has a user name: only the name of the host is wanted."),
        ):
            with pytest.raises(Refused) as caught:
                await guard.connect(host, port)
            assert str(caught.value) == text
            assert told.pop().text == text
            assert text in caplog.text


async def test_a_mapped_port_says_nothing_of_the_other_ports() -> None:
    looked_up: list[tuple[str, int]] = []

    async def resolve(name: str, port: int) -> Sequence[str]:
        looked_up.append((name, port))
        return ["10.0.0.7"]

    guard = Guard(None, hosts={"ok.example:8443": "127.0.0.1:9"}, resolve=resolve)
    assert [target.address for target in await guard.lookup("ok.example", 8443)] == ["127.0.0.1"]
    with pytest.raises(Refused, match="not public"):
        await guard.lookup("ok.example", 443)
    assert looked_up == [("ok.example", 443)]


async def test_a_host_that_does_not_answer_is_unreachable_not_refused() -> None:
    async with greeter() as address:
        pass
    with pytest.raises(Unreachable, match=r"^ok\.example does not answer on port 80\.$"):
        await Guard(None, hosts={"ok.example:80": address}).connect("ok.example", 80)


def test_refusals_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ferrule.egress")
    guard = Guard(DomainNames.read(["ok.example"]))
    for number in range(3 * MAX_LOGGED):
        guard.refused(f"{number}.example", 443, f"{number}.example is refused.")
    assert len(caplog.records) == MAX_LOGGED + 1
    assert "not logged" in caplog.records[-1].getMessage()


async def test_a_guard_leaves_threads_for_the_lookups_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrule.egress.guard.LOOKUP_S", 0.01)
    begun: list[str] = []
    answered = asyncio.Event()

    async def resolve(name: str, port: int) -> Sequence[str]:
        begun.append(name)
        await answered.wait()
        return ["127.0.0.1"]

    guard = Guard(DomainNames.read(["*.slow.example"]), resolve=resolve)
    for _ in range(2):  # those that were given up go on in their threads
        looking = [guard.lookup(f"{number}.slow.example", 443) for number in range(3 * MAX_OWN_LOOKUPS)]
        told = await asyncio.gather(*looking, return_exceptions=True)
        assert all(isinstance(error, Unreachable) for error in told)
        assert len(begun) == MAX_OWN_LOOKUPS
    answered.set()
    with pytest.raises(Refused):
        await guard.lookup("last.slow.example", 443)
