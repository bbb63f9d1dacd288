"""The parts of a screen that need no browser: keys, inputs, settings, the search for a program."""

import asyncio
import os
import ssl
from pathlib import Path
from typing import Any

import pytest

from ferrule.containers.screen import BadAction, ScreenError, ScreenNetwork, inputs, read_action
from ferrule.containers.screen.actions import Click, Drag, Keypress, Point, Scroll, Type
from ferrule.containers.screen.keys import read_keys
from ferrule.containers.screen.notes import MAX_NOTES, Notes, quoted
from ferrule.containers.screen.program import find_program
from ferrule.dispatch.network import forbidden_host
from ferrule.egress.addresses import Target
from ferrule.egress.guard import Refused
from ferrule.execpolicy import Rules
from ferrule.execpolicy.rules import NetworkRule, RuleFile
from ferrule.lookup import Places
from ferrule.protocol.approvals import PolicyDecision
from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import (
    AskForApproval,
    DangerFullAccess,
    ExternalSandbox,
    InContainer,
    ReadOnly,
    WorkspaceWrite,
)
from ferrule.tools.context import Permissions
from tests.egress.scene import AUTHORITY, scene


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        (["CTRL", "A"], ["Control", "a"]),
        (["ctrl+shift+T"], ["Control", "Shift", "t"]),
        (["CTRL++"], ["Control", "="]),
        (["+"], ["="]),
        (["CMD", "C"], ["Control", "c"]),
        (["ARROWLEFT"], ["ArrowLeft"]),
        (["Return"], ["Enter"]),
        (["F12"], ["F12"]),
        (["SPACE"], [" "]),
        (["?"], ["/"]),
        ([" "], [" "]),
    ],
)
def test_keys_by_name(names: list[str], keys: list[str]) -> None:
    assert [key.key if len(key.key) > 1 else key.text for key in read_keys(names)] == keys


@pytest.mark.parametrize("name", ["HYPER", "", "é", "F13", "CTRL+HYPER"])
def test_unknown_keys(name: str) -> None:
    with pytest.raises(BadAction, match="There is no key"):
        read_keys([name])


def test_a_shortcut_writes_nothing() -> None:
    sent = [params for _, params in inputs.keypress(Keypress(("CTRL", "A")))]
    assert [(one["type"], one["key"], one["modifiers"]) for one in sent] == [
        ("rawKeyDown", "Control", 2), ("rawKeyDown", "a", 2), ("keyUp", "a", 2), ("keyUp", "Control", 0),
    ]  # fmt: skip
    assert all("text" not in one for one in sent)


def test_a_text_is_typed_or_comes_at_once() -> None:
    sent = list(inputs.typing(Type("aB\r\n\u00e9")))
    written = [params.get("text") for _, params in sent if params.get("type") != "keyUp"]
    assert written == ["a", "B", "\r", "\u00e9"]
    assert list(inputs.typing(Type("x" * 501))) == [("Input.insertText", {"text": "x" * 501})]


def test_held_keys_are_released_in_the_end() -> None:
    sent = [params for _, params in inputs.clicking(Click(1, 2, "wheel", ("SHIFT",)))]
    assert [one["type"] for one in sent] == ["rawKeyDown", "mouseMoved", "mousePressed", "mouseReleased", "keyUp"]
    assert {one["modifiers"] for one in sent[:-1]} == {8}
    assert sent[2]["button"] == "middle"


def test_a_drag_does_not_jump() -> None:
    far, near = Point(0, 0), Point(10_000, 0)
    assert len(list(inputs.steps((far, near)))) == 20
    assert list(inputs.steps((far, Point(10, 4)))) == [Point(5, 2), Point(10, 4)]
    assert list(inputs.steps((far,))) == []


def test_actions_are_read_as_the_api_spells_them() -> None:
    wire: Any = {"type": "scroll", "x": 1.5, "y": 2, "scroll_x": 0, "scroll_y": -100, "keys": None}
    assert read_action(wire) == Scroll(1.5, 2, 0, -100)
    wire = {"type": "drag", "path": [{"x": 1, "y": 2}], "keys": ["CTRL"]}
    assert read_action(wire) == Drag((Point(1, 2),), ("CTRL",))
    unreadable: list[object] = [
        {"type": "click", "x": "1", "y": 2},
        {"type": "click", "x": 1},
        {"x": 1},
        [],
        None,
        {"type": "fly"},
    ]
    for bad in unreadable:
        with pytest.raises(BadAction, match="This is no action"):
            read_action(bad)


def test_notes_are_bounded() -> None:
    notes = Notes()
    for number in range(MAX_NOTES + 5):
        notes.add(f"{number}")
        notes.add("0")
    taken = notes.take()
    assert (len(taken), taken[-1]) == (MAX_NOTES + 1, "5 further notices are left out.")
    assert notes.take() == []
    assert quoted("a\n b") == '"a b"'
    assert len(quoted("a" * 10_000)) < 600


@pytest.mark.parametrize(
    ("policy", "access"),
    [
        (WorkspaceWrite(network_access=("a.test",), hosts={"a.test:80": "127.0.0.1:1"}), ("a.test",)),
        (ReadOnly(), False),
        (WorkspaceWrite(network_access=True), True),
        (InContainer(network_access=False), False),
        (InContainer(network_access=True), True),
        (DangerFullAccess(), True),
        (ExternalSandbox(), False),
        (ExternalSandbox(network_access="enabled"), True),
    ],
)
def test_what_a_session_reaches(policy: Any, access: object) -> None:
    network = ScreenNetwork.of(policy)
    assert network.access == access
    assert dict(network.hosts) == dict(getattr(policy, "hosts", {}))
    assert network.open == (access is True and not isinstance(policy, InContainer))


async def test_where_commands_have_this_machine_s_network_pages_do_too() -> None:
    def forbids(name: str, port: int) -> str | None:
        return "A rule forbids it." if name == "ruled.test" else None

    guard = ScreenNetwork.of(WorkspaceWrite(network_access=True), forbids).guard()
    for host, address in (("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("LocalHost", "127.0.0.1")):
        assert Target(address, 3000) in await guard.lookup(host, 3000)
    with pytest.raises(Refused, match="A rule forbids it"):
        await guard.lookup("Ruled.test.", 3000)
    guard = ScreenNetwork.of(InContainer(network_access=True)).guard()
    with pytest.raises(Refused):
        await guard.lookup("localhost", 80)


@pytest.mark.parametrize("rule", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "::ffff:127.0.0.1", "0.0.0.0", "localhost."])
async def test_no_other_way_to_write_an_address_leads_past_a_rule(rule: str, host: str) -> None:
    policy = DangerFullAccess()
    forbidden = NetworkRule(rule, "http", PolicyDecision.FORBIDDEN)
    rules, permissions = Rules([RuleFile(network=(forbidden,))]), Permissions(AskForApproval.NEVER, policy)
    network = ScreenNetwork.of(policy, lambda name, port: forbidden_host(name, port, permissions, rules))
    with pytest.raises(Refused, match="A rule forbids"):
        await network.guard().lookup(host, 3000)


async def test_servers_of_this_machine_are_reached_by_their_address(tmp_path: Path) -> None:
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    guard = ScreenNetwork(access=True, open=True).guard()
    async with (
        scene(tmp_path, [], guard) as it,
        await asyncio.start_server(it.echo.serve, "127.0.0.1", 0) as plain,
        await asyncio.start_server(it.echo.serve, "127.0.0.1", 0, ssl=AUTHORITY.context("any.example")) as secure,
    ):
        one, other = ("{}:{}".format(*server.sockets[0].getsockname()) for server in (plain, secure))
        ask = "GET {}/ HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n"
        assert (await it.said(ask.format(f"http://{one}", one).encode())).startswith("HTTP/1.1 200 OK")
        reader, writer = await it.to(it.inside.proxy, f"CONNECT {other} HTTP/1.1\r\nHost: {other}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        await writer.start_tls(trust)  # which names no server
        writer.write(ask.format("", other).encode())
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
        writer.close()


def test_tables_that_are_wrong() -> None:
    for network in (
        ScreenNetwork(access=()), ScreenNetwork(access=("*",)), ScreenNetwork(hosts={"a.test": "127.0.0.1"}),
        ScreenNetwork(access=("a.test",), ca_file="/nowhere/at/all"),
    ):  # fmt: skip
        with pytest.raises(UsageError):
            network.way_out()


def test_a_browser_is_found_behind_its_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrule.containers.screen.program.KNOWN", ())
    folder = tmp_path / "browser"
    folder.mkdir()
    program = folder / "chromium-bin"
    program.write_bytes(b"\x7fELF rest")
    script = tmp_path / "bin" / "chromium"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\n. /etc/chromium.d/x\nexec {program} "$@"\n')
    monkeypatch.setenv("PATH", str(script.parent))
    script.chmod(0o755)
    with pytest.raises(ScreenError, match=r"no Chromium was found .* \[computer\] browser"):
        find_program()  # what the script names cannot be run yet
    program.chmod(0o755)
    found = find_program()
    assert found.path == os.path.realpath(program)
    assert (found.argv[0], found.binds[0].source) == ("/opt/browser/chromium-bin", os.path.realpath(folder))
    assert find_program(str(script)) == found
    with pytest.raises(ScreenError, match="no Chromium was found"):
        find_program(places=Places(roots=(str(tmp_path),)))
    snap = tmp_path / "snap"
    snap.write_bytes(b"\x7fELF rest")
    snap.chmod(0o755)
    script.unlink()
    script.symlink_to(snap)
    for other in (str(script), str(tmp_path), str(tmp_path / "missing"), "/etc/passwd"):
        with pytest.raises(ScreenError, match="no Chromium that can be run"):
            find_program(other)
