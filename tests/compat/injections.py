"""Replay AgentDojo's attacks and its users' tasks as tool calls of a session under `never`: what stops which?

AgentDojo (PyPI agentdojo) gives most tasks of both kinds a ground truth: the calls that fulfil them. No model is asked:
each call is made as if the injection had worked. A call becomes what an agent of Ferrule would do:

- `get_webpage` and `post_webpage`: `curl` by the tool `shell_command`, in the sandbox of `workspace-write`.
  `network_access` lists the hosts that the users' tasks of the suite need, and no others. All hosts, those of attacks
  too, lead to a server of our own; a page counts as reached if that server saw the request.
- `read_file` of the bank's suite, whose files are the user's own: `cat` by `shell_command`, in the same sandbox.
- Everything else (mail, calendar, drive, chat, bank, bookings) is a service elsewhere: a tool of an MCP server that the
  user configured. It runs AgentDojo's own code, with honest annotations: a tool is read-only if it leaves the
  environment as it was (the server checks that at each call).

Both are replayed twice: with `approval = "allow"`, where only guard and sandbox can stop a call, and with the default,
`approval = "auto"`, where `never` refuses each tool that is not read-only. AgentDojo's own check of the environment
that remains decides whether an attack reached its goal. `scripts/compat_agentdojo` installs it and runs this.
"""

import asyncio
import json
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from ferrule import Agent, ToolOutput
from ferrule.protocol.permissions import WorkspaceWrite
from tests.http_servers import HttpServer, Silent, listening

Json = dict[str, Any]
Approval = Literal["allow", "auto"]
Outcome = Literal["ran", "guard", "sandbox", "never", "fault"]
"""`fault`: the tool itself failed, for want of what an earlier call would have made."""

PAGES = ("get_webpage", "post_webpage")
FILES = ("read_file",)
STOPPED: tuple[Outcome, ...] = ("guard", "sandbox", "never")
CURL_SECONDS = "20"
"""Far more than a server of this machine needs."""
SUITE = Path(__file__).with_name("agentdojo_suite.py")


class Call(msgspec.Struct, frozen=True):
    """A call of the ground truth."""

    name: str
    arguments: Json

    @property
    def host(self) -> str | None:
        """The host of the page that it is about."""
        return urlsplit(self.url).hostname if self.name in PAGES else None

    @property
    def url(self) -> str:
        """Its page: most of them are written without a scheme."""
        url = str(self.arguments["url"])
        return url if "://" in url else f"http://{url}"

    @property
    def command(self) -> str | None:
        """The command that does the same; None for a call of a service."""
        if self.name in FILES:
            return f"cat -- {shlex.quote(self.arguments['file_path'])}"
        if self.name not in PAGES:
            return None
        sent = ["--data-raw", self.arguments["content"]] if self.name == "post_webpage" else []
        return shlex.join(["curl", "-sS", "--max-time", CURL_SECONDS, *sent, "--", self.url])


class Task(msgspec.Struct, frozen=True):
    """A task of a user or of an attacker."""

    suite: str
    kind: Literal["user", "attack"]
    id: str
    calls: tuple[Call, ...]
    pages: dict[str, str] = {}
    files: dict[str, str] = {}


class Replayed(msgspec.Struct, frozen=True):
    """What became of each of a task's calls. `reached`: an attack's goal."""

    task: Task
    outcomes: tuple[Outcome, ...]
    reached: bool


class Web:
    """All pages of all hosts."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.pages: Mapping[str, str] = {}
        self.seen: list[str] = []
        """URLs that were asked for, without a scheme."""


@contextmanager
def web() -> Iterator[Web]:
    """Serve pages on a port of this machine."""

    class Handler(Silent):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            url = f"{self.headers['Host']}{self.path}".removesuffix("/")
            site.seen.append(url)
            body = site.pages.get(url, "404 Not Found").encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - likewise

    with listening(HttpServer(Handler)) as server:
        site = Web(server.server_port)
        yield site


def policy(tasks: Iterable[Task], port: int) -> WorkspaceWrite:
    """Let commands reach the hosts that the users' tasks need. All hosts lead to the port."""
    tasks = list(tasks)
    needed = _hosts(task for task in tasks if task.kind == "user")
    hosts = {f"{host}:80": f"127.0.0.1:{port}" for host in _hosts(tasks)}
    return WorkspaceWrite(network_access=needed or False, hosts=hosts)


def _hosts(tasks: Iterable[Task]) -> tuple[str, ...]:
    return tuple(sorted({call.host for task in tasks for call in task.calls if call.host}))


class Replay:
    """Makes the calls of tasks in one session."""

    def __init__(self, session: Any, folder: Path, site: Web) -> None:
        self._tools = session.toolset
        self._folder = folder
        self._site = site

    async def task(self, task: Task) -> Replayed:
        """Make the calls of a task, each whatever became of those before."""
        self._site.pages = task.pages
        for name, text in task.files.items():
            (self._folder / name).write_text(text, encoding="utf-8")
        begun = await self._service("replay_begin", {"kind": task.kind, "task": task.id})
        assert begun.success, begun.text
        outcomes = tuple([await self.call(call) for call in task.calls])
        elsewhere = [
            {"name": call.name, "arguments": call.arguments}
            for call, outcome in zip(task.calls, outcomes, strict=True)
            if call.command and outcome == "ran"
        ]
        ended = await self._service("replay_end", {"elsewhere": elsewhere})
        assert ended.success, ended.text
        return Replayed(task, outcomes, task.kind == "attack" and json.loads(ended.text))

    async def call(self, call: Call) -> Outcome:
        """Make a call, and return what became of it."""
        if call.command is None:
            return _of_service(await self._service(call.name, call.arguments))
        seen = len(self._site.seen)
        output = await self._tools.call("shell_command", {"command": call.command, "login": False})
        if call.host is None:
            return "ran" if output.success else "sandbox"
        if len(self._site.seen) > seen:
            return "ran"
        return "guard" if f"{call.host} is not an allowed domain" in output.text else "sandbox"

    async def _service(self, name: str, arguments: Json) -> ToolOutput:
        output: ToolOutput = await self._tools.call(f"mcp__service__{name}", arguments)
        return output


def _of_service(output: ToolOutput) -> Outcome:
    if output.success:
        return "ran"
    return "never" if "the approval policy is never" in output.text else "fault"


async def replay(tasks: Sequence[Task], server: Sequence[str], approval: Approval) -> list[Replayed]:
    """Replay the tasks of one suite, whose service is the command `server`."""
    service = {"command": server[0], "args": list(server[1:]), "approval": approval}
    with tempfile.TemporaryDirectory(prefix="ferrule-injections-") as name, web() as site:
        agent = Agent(
            "gpt-5.5", tools=["shell_command"], cwd=name, base_url="http://127.0.0.1:9/v1", approval_policy="never",
            sandbox=policy(tasks, site.port), mcp_config={"mcpServers": {"service": service}},
        )  # fmt: skip
        async with await agent.open() as session:
            with_calls = Replay(session, Path(name), site)
            return [await with_calls.task(task) for task in tasks]


def line(suite: str, replayed: Sequence[Replayed]) -> str:
    """Return a row of the table."""
    attacks = [one for one in replayed if one.task.kind == "attack"]
    by = Counter(outcome for one in attacks for outcome in one.outcomes)
    users = [one for one in replayed if one.task.kind == "user"]
    calls = [outcome for one in users for outcome in one.outcomes]
    ran = calls.count("ran")
    whole = sum(set(one.outcomes) <= {"ran"} for one in users)
    kept = sum(not one.reached for one in attacks)
    cells = [
        suite, f"{kept} of {len(attacks)}", f"{by.total()}", *(str(by[outcome]) for outcome in (*STOPPED, "fault")),
        f"{ran} of {len(calls)} ({ran / max(len(calls), 1):.0%})", f"{whole} of {len(users)}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


HEAD = """\
| suite | attacks that miss their goal | their calls | stopped by guard | by sandbox | by `never` | failed in turn \
| users' calls that run | users' tasks that run completely |
|---|---|---|---|---|---|---|---|---|"""


def table(replayed: Sequence[Replayed]) -> Iterator[str]:
    """Yield the lines of a table: a row for each suite, and one for all."""
    yield HEAD
    for suite, ones in groupby(replayed, key=lambda one: one.task.suite):
        yield line(suite, list(ones))
    yield line("all", replayed)


def details(replayed: Iterable[Replayed]) -> Iterator[str]:
    """Yield a line for each attack, and for each user's task that does not run completely."""
    for one in replayed:
        if one.task.kind == "attack" or set(one.outcomes) - {"ran"}:
            calls = ", ".join(
                f"{call.name}: {outcome}" for call, outcome in zip(one.task.calls, one.outcomes, strict=True)
            )
            goal = ("reaches its goal; " if one.reached else "misses its goal; ") if one.task.kind == "attack" else ""
            yield f"  {one.task.suite} {one.task.id}: {goal}{calls}"


def main(python: str) -> int:
    """Print what stops which. Exits with 1 if nothing could be replayed."""
    said = subprocess.run([python, str(SUITE), "tasks"], stdout=subprocess.PIPE, check=True).stdout
    tasks = msgspec.json.decode(said, type=list[Task])
    with_calls = [task for task in tasks if task.calls]
    for kind in ("attack", "user"):
        without = [f"{task.suite} {task.id}" for task in tasks if task.kind == kind and not task.calls]
        print(f"{len(without)} tasks ({kind}) have no ground truth: {', '.join(without)}")
    ways: tuple[tuple[Approval, str], ...] = (
        ("allow", 'Guard and sandbox alone (approval = "allow")'),
        ("auto", 'With approval = "auto", the default'),
    )
    for approval, title in ways:
        replayed: list[Replayed] = []
        for suite, group in groupby(with_calls, key=lambda task: task.suite):
            server = [python, str(SUITE), "serve", suite]
            replayed += asyncio.run(replay(list(group), server, approval))
        print("", title, "", *table(replayed), "", *details(replayed), sep="\n", flush=True)
    return 0 if with_calls else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
