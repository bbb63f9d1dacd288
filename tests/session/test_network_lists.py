"""A list of domains in a session: what its commands reach, what is asked, what the model and the user are told.

Real servers, commands and a real sandbox; every other name is beyond this machine and never reached.
"""

import asyncio
import re
import select
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
import pytest

from ferrule import Toolset
from ferrule.dispatch import network
from ferrule.protocol.events import Event, ExecApproval, NetworkRefused
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.permissions import ReviewDecision, SandboxPolicy
from ferrule.sandbox.plan import Level
from ferrule.tools.events import ToolEvent
from ferrule.tools.questions import Decision
from tests.package_index import NAME, SAID, PackageIndex, package_index
from tests.sandbox.conftest import require
from tests.sandbox.scene import SYSTEM_PYTHON, temporary_folder

FETCH = f"curl -sS -m 20 https://{NAME}/project.git/HEAD"
GOT = "ref: refs/heads/main"
BY_ITSELF = """
import http.server, threading, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.wfile.write(b"HTTP/1.0 200 OK\\r\\n\\r\\nref: refs/heads/main")
    def log_message(self, *words): pass
server = http.server.HTTPServer(("localhost", 0), Handler)
threading.Thread(target=server.handle_request).start()
print(urllib.request.urlopen(f"http://localhost:{server.server_port}/").read().decode())
"""
AMEND = ReviewDecision.APPROVED_EXECPOLICY_AMENDMENT


@pytest.fixture(scope="module")
def index() -> Iterator[PackageIndex]:
    asyncio.run(require(Level.NAMESPACES))
    with temporary_folder() as folder, package_index(folder) as index:
        yield index


class Session:
    """A toolset whose user gives one answer, or none, and remembers what was asked and told."""

    def __init__(self, answer: Decision | None, seconds: int) -> None:
        self.answer = answer
        self.seconds = seconds
        self.asked: list[ExecApproval] = []
        self.refused: list[NetworkRefused] = []
        self.tools: Toolset

    async def on_approval(self, question: ExecApproval) -> Decision:
        self.asked.append(question)
        if self.answer is None:
            await asyncio.Event().wait()
        assert self.answer is not None
        return self.answer

    def on_event(self, event: Event | ToolEvent) -> None:
        if isinstance(event, NetworkRefused):
            self.refused.append(event)

    async def run(self, command: str, **more: object) -> str:
        arguments: dict[str, object] = {"command": command, "timeout_ms": self.seconds * 1000, "login": False, **more}
        return (await self.tools.call("shell_command", arguments)).text


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with temporary_folder() as folder:
        monkeypatch.setenv("FERRULE_HOME", str(folder / "home"))
        yield folder / "home"


@pytest.fixture
def workspace(home: Path) -> Path:
    folder = home.parent / "ws"
    folder.mkdir()
    return folder


@asynccontextmanager
async def opened(
    policy: SandboxPolicy,
    workspace: Path,
    answer: Decision | None = None,
    approval: str = "on-request",
    tools: Sequence[str] = ("shell_command",),
    seconds: int = 30,
) -> AsyncIterator[Session]:
    session = Session(answer, seconds)
    session.tools = Toolset.for_model(
        "gpt-4.1",
        cwd=workspace,
        sandbox=policy,
        tools=tools,
        approval_policy=approval,
        on_event=session.on_event,
        on_approval=session.on_approval,
    )
    async with session.tools:
        yield session


async def test_what_is_listed_is_reached_and_the_rest_refused_in_words(
    index: PackageIndex, workspace: Path, home: Path
) -> None:
    async with opened(index.policy(), workspace, approval="never") as session:
        assert GOT in await session.run(FETCH)
        assert GOT in await session.run(f"curl -sS http://{NAME}/project.git/HEAD")
        assert GOT in await session.run(FETCH + " --noproxy '*'"), "a program that knows no proxy"
        refused = await session.run(
            "curl -sS http://other.example.com/ -o /dev/null; curl -sS https://other.example.com/"
        )
        assert f"other.example.com is not an allowed domain. Allowed: {NAME}. The user can add it" in refused
        assert "403" in refused
        text = await session.run("curl -sS http://other.example.com/")
        assert text.count("is not an allowed domain") >= 2, "the answer says so, too"
        assert "Port 22" in await session.run(f"curl -sS https://{NAME}:22/")
        assert "is an address" in await session.run("curl -sS http://192.0.2.1/")
        assert GOT in await session.run(f"{SYSTEM_PYTHON} -c '{BY_ITSELF}'"), "its own server"
        assert SAID in await session.run(f"git clone -q https://{NAME}/project.git cloned && cat cloned/said")
    assert session.asked == []
    assert {(event.host, event.port) for event in session.refused} == {
        ("other.example.com", 80), ("other.example.com", 443), (NAME, 22), ("192.0.2.1", 80),
    }  # fmt: skip
    assert all(event.call_id.startswith("call_") for event in session.refused)


@contextmanager
def servers_that_must_not_be_reached() -> Iterator[tuple[int, list[socket.socket]]]:
    with ExitStack() as stack:
        first = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = first.getsockname()[1]
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0{port}")
        abstract.listen()
        others = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)), abstract]
        others[0].bind(("127.0.0.1", port))
        yield port, [first, *others]


def heard(server: socket.socket) -> bool:
    return bool(select.select([server], [], [], 0)[0])


async def test_hostile_programs_reach_nothing_else(index: PackageIndex, workspace: Path, home: Path) -> None:
    """Also not what the table of hosts leads to, as that permits nothing."""
    script = Path(__file__).with_name("hostile.py").read_text()
    (workspace / "hostile.py").write_text(script)
    with servers_that_must_not_be_reached() as (port, servers):
        hosts = {f"other.example.com:{at}": f"127.0.0.1:{port}" for at in (80, 443, port)}
        policy = msgspec.structs.replace(index.policy(), hosts={**index.hosts, **hosts})
        async with opened(policy, workspace, approval="never") as session:
            told = await session.run(f"{SYSTEM_PYTHON} hostile.py {NAME} {port}")
            assert GOT in await session.run(FETCH), "the way still works"
        assert not any(map(heard, servers))
    found = re.search(r"(\d+) tries \[\]\n", told)
    assert found is not None and int(found[1]) > 150, told
    assert len(session.refused) > 50


async def test_processes_that_go_on_tell_it_with_each_call(index: PackageIndex, workspace: Path, home: Path) -> None:
    calls: dict[str, dict[str, JsonValue]] = {
        "execute_bash": {"command": "curl -sS https://other.example.com/"},
        "python": {"code": "import os\nos.system('curl -sS https://other.example.com/')"},
        "exec_command": {"cmd": "curl -sS https://other.example.com/"},
    }
    async with opened(index.policy(), workspace, approval="never", tools=list(calls)) as session:
        for name, arguments in calls.items():
            said = (await session.tools.call(name, arguments)).text
            assert said.count("other.example.com is not an allowed domain") == 1, name


async def test_another_domain_is_asked_for_once(index: PackageIndex, workspace: Path, home: Path) -> None:
    policy = index.policy("elsewhere.example.com")
    async with opened(policy, workspace, Decision(ReviewDecision.APPROVED_FOR_SESSION)) as session:
        for _ in range(2):
            both = await session.run(f"{FETCH} & {FETCH} & wait")
            assert both.count(GOT) == 2
    (question,) = session.asked
    assert (question.kind, question.text) == ("network", f"https://{NAME}")
    assert question.reason == f"a command wants to reach {NAME}"
    assert question.proposed_network_host == NAME
    assert AMEND in question.decisions
    assert question.call_id.startswith("call_")
    assert session.refused == []
    assert not (home / "rules").exists()


async def test_approved_once_means_for_one_call(index: PackageIndex, workspace: Path, home: Path) -> None:
    async with opened(index.policy("a.example"), workspace, Decision(ReviewDecision.APPROVED)) as session:
        assert (await session.run(f"{FETCH}; {FETCH}")).count(GOT) == 2
        assert len(session.asked) == 1
        assert GOT in await session.run(FETCH)
        assert len(session.asked) == 2


async def test_remembered_for_good_like_a_prefix(index: PackageIndex, workspace: Path, home: Path) -> None:
    async with opened(index.policy("a.example"), workspace, Decision(AMEND)) as session:
        assert GOT in await session.run(FETCH)
        assert GOT in await session.run(FETCH)
        assert len(session.asked) == 1
    assert (home / "rules/default.rules").read_text() == (
        f'network_rule(host="{NAME}", protocol="https", decision="allow")\n'
    )
    async with opened(index.policy("a.example"), workspace, approval="never") as later:
        assert GOT in await later.run(FETCH)


async def test_a_refusal_is_remembered_and_told(index: PackageIndex, workspace: Path, home: Path) -> None:
    no = Decision(ReviewDecision.DENIED, "not that one")
    async with opened(index.policy("a.example"), workspace, no) as session:
        looks_denied = f"{FETCH} || {{ echo permission denied; exit 1; }}"
        for _ in range(2):
            assert "network access rejected by user: not that one" in await session.run(looks_denied)
        assert len(session.asked) == 1, "nor is a run without the sandbox offered"


async def test_nobody_answers(
    index: PackageIndex, workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection gives up after a while; the tool after its own limit, and says what is still asked."""
    async with opened(index.policy("a.example"), workspace) as session:
        arguments = {"command": FETCH, "timeout_ms": 300, "login": False}
        early = (await session.tools.call("shell_command", arguments)).text
        assert f"The user is being asked whether {NAME} may be reached." in early
        monkeypatch.setattr(network, "ANSWER_SECONDS", 0.2)
        waited = await session.run(FETCH.replace(NAME, "second.example.com"))
        assert "second.example.com was not reached: the user did not answer within 0.2 seconds" in waited


async def test_rules_decide_before_the_list(index: PackageIndex, workspace: Path, home: Path) -> None:
    rules = home / "rules/own.rules"
    rules.parent.mkdir(parents=True)
    rules.write_text(f'network_rule(host="{NAME}", protocol="https", decision="deny", justification="it is down")\n')
    async with opened(index.policy(), workspace) as session:
        assert f"A rule forbids https://{NAME}: it is down." in await session.run(FETCH)
        assert GOT in await session.run(f"curl -sS http://{NAME}/project.git/HEAD"), "a rule is for one protocol"
    rules.write_text(f'network_rule(host="{NAME}", protocol="https", decision="prompt")\n')
    async with opened(index.policy(), workspace, Decision(ReviewDecision.APPROVED)) as session:
        assert GOT in await session.run(FETCH)
        (question,) = session.asked
        assert AMEND not in question.decisions, "a rule that allows would not count beside it"
    async with opened(index.policy(), workspace, approval="never") as session:
        assert f"A rule asks before https://{NAME} is reached" in await session.run(FETCH)
    rules.write_text(f'network_rule(host="{NAME}", protocol="https", decision="allow")\n')
    async with opened(index.policy("a.example"), workspace, approval="never") as session:
        assert GOT in await session.run(FETCH)


async def test_roots_that_cannot_be_read_are_said(index: PackageIndex, workspace: Path, home: Path) -> None:
    broken = msgspec.structs.replace(index.policy(), ca_file=str(workspace / "missing.pem"))
    async with opened(broken, workspace, approval="never") as session:
        assert "ca_file: " in await session.run("true")
