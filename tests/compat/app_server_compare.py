"""Play sessions to the real Codex app-server and to ours, and print what differs. Development only: started by
`scripts/compat_app_server`.

What the reference says is recorded in `app_server_recorded.json`, each time a binary is given; without one our server
is compared with the recording. A line that is no UTF-8 is not played: it ends the reference. A difference must be a
listed departure; docs/app_server.md has the same list in words.
"""

import asyncio
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.headless import environment

from ferrule.testing import ScriptedModel, custom_tool_call, function_call, http_error, reasoning, step
from ferrule.testing.steps import Usage
from tests.app_server.client import HELLO, Client, Message, RpcError
from tests.cli.played import execute

RECORDED = Path(__file__).with_name("app_server_recorded.json")
PATCH = (
    "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** Delete File: gone.txt\n*** Update File: old.txt\n"
    "@@\n-old\n+newer\n*** End Patch\n"
)
USAGE = Usage(100, 20, 50, 5)
QUIET_S = 0.4
"""Seconds without a message after which a server has said all that it wants to say."""
TOOLS = [
    {"type": "function", "name": "lookup", "description": "Looks up", "inputSchema": {"type": "object"}},
    {
        "type": "namespace",
        "name": "crm",
        "description": "Customers",
        "tools": [{"type": "function", "name": "find", "description": "Finds", "inputSchema": {"type": "object"}}],
    },
]

DEPARTURES: Sequence[tuple[str, str]] = (
    (r".*(userAgent|cliVersion|modelProvider|modelContextWindow)", "it is another program, with its own provider"),
    (r".*[tT]okens: \d+ and", "other instructions and tools count other tokens"),
    (r"error -32600", "what is wrong is said in our words"),
    (r"only ours: error -32601", "what is not served has the code of JSON-RPC"),
    (r"only ours: error -32(700|600)", "a line that is no JSON, or no request, gets an error; theirs says nothing"),
    (r"order: error", "so errors come earlier"),
    (r"only ours: warning", "an answer to a question that was never asked is told"),
    (r"only theirs: (configWarning|remoteControl|account/|thread/readState|deprecationNotice|thread/goal)", "not here"),
    (r".*theirs has (readStates?|historyMode|recencyAt|environments|environmentId|canAcceptDirectInput)", "not here"),
    (r".*theirs has (disabledPluginIds|multiAgentMode|runtimeWorkspaceRoots|activePermissionProfile)", "not here"),
    (r".*theirs has (collaborationMode|\w+BackwardsCursor)", "not here"),
    (r"answer thread/fork\.sandbox", "a copy keeps the rights of its thread"),
    (r".*\.source: .agent. and", "only a command that has begun is one"),
    (r".*\.source: .appServer. and", "the client is one of the app-server's"),
    (r".*availableDecisions", "all decisions are offered"),
    (r".*requestApproval.*reason", "the reason is told"),
    (r".*declined\.item\.aggregatedOutput", "what the model reads is told"),
    (r"only ours: item/commandExecution/outputDelta", "output comes as it is written, of short commands too"),
    (r"only ours: item/fileChange/patchUpdated", "files are told while a patch arrives"),
    (r".*fileChange \w+\.item\.changes", "changes are in the order of the patch"),
    (r"only theirs: turn/diff/updated", "the diff is told when it changes, not again at the end"),
    (r"order: thread/tokenUsage/updated", "a response is counted when it has ended, not after its calls"),
    (r"only ours: item/(started|completed) userMessage", "what a turn is told is an item at once"),
    (r"only ours: item/completed commandExecution failed", "an interrupt ends the turn's commands"),
    (r"(error|turn/completed).*message: .*scripted_error", "an error of the server is a sentence"),
    (r".*backwardsCursor", "lists are read in one direction"),
    (r".*thread/(started|fork)\.thread\.name", "a name means one thread: a copy has none"),
    (r"only ours: thread/closed", "a thread that its client has left is closed at once"),
    (r"only theirs: thread/status/changed", "so no status is told of it"),
    (r"only theirs: thread/tokenUsage/updated", "tokens are told when they are counted, not when a thread is opened"),
    (r"answer thread/turns/list.*AtMs", "when an item of a stored turn began is not kept"),
)
"""A difference, and why it stays."""


class Program(Client):
    """A server as a program."""

    def labelled(self, message: Message) -> Message:
        """Return a message, if it is an answer with the method that it answers."""
        asked = "method" not in message and self.sent.get(message["id"] or 0)
        return message | {"answers": asked} if asked else message

    async def quiet(self) -> None:
        """Hear what is still said."""
        while True:
            try:
                async with asyncio.timeout(QUIET_S):
                    await self.next()
            except TimeoutError:
                return

    async def tried(self, method: str, **params: Any) -> Any:
        """Ask; an error is part of what is compared."""
        with suppress(RpcError):
            return await self.call(method, **params)


class Stage:
    """What a scenario plays with: the server, the model behind it, and the folder that it works in."""

    def __init__(self, client: Program, model: ScriptedModel, work: Path) -> None:
        self.client = client
        self.model = model
        self.work = work

    async def thread(self, **params: Any) -> str:
        """Open a thread that asks about every command."""
        given = {"cwd": str(self.work), "model": "gpt-5.5", "approvalPolicy": "untrusted", "sandbox": "workspace-write"}
        return await self.client.start(**given | params)

    async def turn(self, thread: str, *script: Any, **params: Any) -> Message:
        """Run a turn in which the model says this, and `Done.` at its end."""
        self.model.add(*script, step("Done.", usage=USAGE))
        return await self.client.turn(thread, **params)


async def handshake(stage: Stage) -> None:
    """Lines that are no requests, and what comes too early or twice."""
    client = stage.client
    await client.tried("thread/list")
    for line in (b"hello\n", b"17\n", b'[{"id":1,"method":"thread/list"}]\n', b'{"method":"no/such"}\n'):
        await client.send(line)
    await client.quiet()
    await client.greet()
    await client.tried("initialize", **HELLO)
    await client.tried("no/such")
    await client.tried("turn/start")
    await client.tried("turn/start", threadId="00000000-0000-7000-8000-000000000000", input=[])
    await client.say({"id": 999, "result": {}})


async def plain(stage: Stage) -> None:
    """A turn with reasoning and an answer."""
    await stage.client.greet()
    thread = await stage.thread()
    stage.model.add(step(reasoning("First."), "Hello.", usage=USAGE))
    await stage.client.turn(thread)


def command(decision: Any) -> Callable[[Stage], Awaitable[None]]:
    """A command that is asked about."""

    async def play(stage: Stage) -> None:
        await stage.client.greet()
        stage.client.answers["item/commandExecution/requestApproval"] = lambda params: {"decision": decision}
        await stage.turn(await stage.thread(), execute("touch a; echo hi; exit 3", 9_000))

    return play


async def cancelled(stage: Stage) -> None:
    """A command whose question ends the turn."""
    await stage.client.greet()
    stage.client.answers["item/commandExecution/requestApproval"] = lambda params: {"decision": "cancel"}
    thread = await stage.thread()
    stage.model.add(execute("touch a", 9_000))
    await stage.client.turn(thread)


async def patch(stage: Stage) -> None:
    """A patch that is asked about."""
    await stage.client.greet()
    stage.client.answers["item/fileChange/requestApproval"] = lambda params: {"decision": "accept"}
    await stage.turn(await stage.thread(), dict(custom_tool_call("apply_patch", PATCH)))


async def plan(stage: Stage) -> None:
    """A plan."""
    await stage.client.greet()
    given = {"explanation": "why", "plan": [{"step": "a", "status": "in_progress"}]}
    await stage.turn(await stage.thread(), dict(function_call("update_plan", given)))


async def dynamic(stage: Stage) -> None:
    """The client's own tools."""
    await stage.client.greet()
    found = {"contentItems": [{"type": "inputText", "text": "found"}], "success": True}
    stage.client.answers["item/tool/call"] = lambda params: found
    thread = await stage.thread(dynamicTools=TOOLS, approvalPolicy="on-request")
    calls = dict(function_call("lookup", {"q": "x"})), dict(function_call("find", {}, namespace="crm"))
    await stage.turn(thread, *calls)


async def steered(stage: Stage) -> None:
    """A turn that is told something, and interrupted."""
    client = stage.client
    await client.greet()
    thread = await stage.thread(approvalPolicy="never", sandbox="danger-full-access")
    stage.model.add(execute("sleep 60", 30_000))
    client.forget()
    say = {"threadId": thread, "input": [{"type": "text", "text": "go"}]}
    turn = (await client.call("turn/start", **say))["turn"]["id"]
    await client.hear(lambda one: one.get("params", {}).get("item", {}).get("type") == "commandExecution")
    await client.tried("turn/steer", **say, expectedTurnId="another")
    await client.tried("turn/steer", **say, expectedTurnId=turn)
    await client.tried("turn/interrupt", threadId=thread, turnId="another")
    await client.tried("turn/interrupt", threadId=thread, turnId=turn)
    await client.notified("turn/completed")
    await client.tried("turn/steer", **say, expectedTurnId=turn)
    await client.tried("turn/interrupt", threadId=thread, turnId=turn)


async def failure(stage: Stage) -> None:
    """A server that refuses."""
    await stage.client.greet()
    thread = await stage.thread()
    stage.model.add(http_error(400, "no more"))
    await stage.client.turn(thread)


async def threads(stage: Stage) -> None:
    """A stored thread, in all that is done with one."""
    client = stage.client
    await client.greet()
    thread = await stage.thread()
    await stage.turn(thread)
    await client.tried("thread/name/set", threadId=thread, name="my name")
    await client.tried("thread/list")
    await client.tried("thread/loaded/list")
    await client.tried("thread/read", threadId=thread)
    await client.tried("thread/turns/list", threadId=thread)
    await client.tried("thread/fork", threadId=thread, model="gpt-5.5", excludeTurns=True)
    await client.quiet()
    stage.model.add(step("A summary.", usage=USAGE))
    client.forget()
    await client.tried("thread/compact/start", threadId=thread)
    await client.notified("turn/completed")
    await client.tried("thread/unsubscribe", threadId=thread)
    await client.quiet()
    await client.tried("thread/resume", threadId=thread, excludeTurns=True)
    await client.tried("thread/archive", threadId=thread)
    await client.quiet()
    await client.tried("command/exec", command=["sh", "-c", "echo hi; echo err >&2; exit 3"], cwd=str(stage.work))


SCENARIOS: Mapping[str, Callable[[Stage], Awaitable[None]]] = {
    "handshake": handshake,
    "a turn": plain,
    "a command that is allowed": command("accept"),
    "a command that is declined": command("decline"),
    "a command that ends its turn": cancelled,
    "a patch": patch,
    "a plan": plan,
    "dynamic tools": dynamic,
    "steering": steered,
    "a failure": failure,
    "threads": threads,
}


def main() -> int:
    """Play every scenario. Exits with 1 when a difference is not listed."""
    if sys.argv[1:]:
        recorded = {name: asyncio.run(play(name, codex(sys.argv[1]))) for name in SCENARIOS}
        RECORDED.write_text(json.dumps(recorded, indent=0, sort_keys=True) + "\n")
    theirs: dict[str, list[Message]] = json.loads(RECORDED.read_text())
    seen: dict[str, str] = {}
    unexplained = 0
    for name in SCENARIOS:
        for difference in differences(asyncio.run(play(name, ferrule)), theirs[name]):
            if difference not in seen:
                reason = next((why for pattern, why in DEPARTURES if re.match(pattern, difference)), None)
                unexplained += reason is None
                print(f"{name}: {difference}: {reason or 'UNEXPLAINED'}")
            seen[difference] = name
    print(f"{len(SCENARIOS)} scenarios, {len(seen)} differences, {unexplained} unexplained")
    return 1 if unexplained else 0


Words = Callable[[str], list[str]]


def ferrule(base_url: str) -> list[str]:
    """Our command."""
    program = str(Path(sys.executable).parent / "ferrule")
    return [program, "app-server", "--base-url", base_url, "--wire", "responses"]


def codex(binary: str) -> Words:
    """The binary's."""

    def words(base_url: str) -> list[str]:
        provider = f'{{name="scripted",base_url="{base_url}",wire_api="responses",env_key="BENCH_KEY"}}'
        settings = (
            'model_provider="scripted"',
            f"model_providers.scripted={provider}",
            "tools.update_plan={enabled=true}",
        )
        return [binary, "app-server", *(word for one in settings for word in ("-c", one))]

    return words


async def play(name: str, program: Words) -> list[Message]:
    """Return what a server says in a scenario, in a fresh workspace with a fresh home, with names for what differs each
    time."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="ferrule-compat-") as base:
        home, work = Path(base, "home"), Path(base, "work")
        home.mkdir()
        work.mkdir()
        (work / "old.txt").write_text("old\n")
        (work / "gone.txt").write_text("gone\n")
        with ScriptedModel([], models=("gpt-5.5",)) as model:
            async with started(program(model.base_url), home, work) as client:
                await SCENARIOS[name](Stage(client, model, work))
                await client.quiet()
            return named([client.labelled(message) for message in client.said], base)


@asynccontextmanager
async def started(words: Sequence[str], home: Path, work: Path) -> AsyncIterator[Program]:
    """A server as a program, which ends with its input."""
    env = environment(home) | {"FERRULE_HOME": str(home), "SHELL": "/bin/bash"}
    pipe = asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec(
        *words, env=env, cwd=work, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, limit=1 << 26
    )
    assert program.stdin is not None and program.stdout is not None
    given = program.stdin

    async def send(line: bytes) -> None:
        given.write(line)
        await given.drain()

    try:
        yield Program(send, program.stdout.readline)
    finally:
        given.close()
        await program.wait()


def named(said: Sequence[Message], base: str) -> list[Message]:
    """Replace what differs from run to run: ids by their order, times, places."""
    text = json.dumps(said).replace(base, "BASE")
    ids: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        return ids.setdefault(match[0], f"ID{len(ids)}")

    text = re.sub(
        r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b(?:[0-9a-f]{16}|[0-9a-f]{24})\b", name, text
    )
    text = re.sub(r'("(?:\w+At|\w+AtMs|durationMs)": )\d+', r"\g<1>0", text)
    text = re.sub(r'("processId": )"\d+"', r'\1"1"', text)
    text = re.sub(r"rollout-[\d-]+T[\d-]+-", "rollout-", text)
    result: list[Message] = json.loads(text)
    return result


def differences(ours: Sequence[Message], theirs: Sequence[Message]) -> list[str]:
    """Compare messages, matched by their kind and their place among those of the kind; then the order of the turns'."""
    mine, other = by_kind(ours), by_kind(theirs)
    found = [f"only ours: {kind}" for kind, _ in mine.keys() - other.keys()]
    found += [f"only theirs: {kind}" for kind, _ in other.keys() - mine.keys()]
    for kind in sorted(mine.keys() & other.keys()):
        found += compared(kind[0], mine[kind], other[kind])
    both = mine.keys() & other.keys()
    order, of_theirs = [kind for kind in mine if kind in both], [kind for kind in other if kind in both]
    if order != of_theirs:
        at = next(at for at, (one, another) in enumerate(zip(order, of_theirs, strict=True)) if one != another)
        found.append(f"order: {order[at][0]} where theirs has {of_theirs[at][0]}")
    return sorted(set(found))


def by_kind(said: Sequence[Message]) -> dict[tuple[str, int], Any]:
    """Return what is compared of each message, by its kind and number."""
    counts: Counter[str] = Counter()
    result: dict[tuple[str, int], Any] = {}
    for message in said:
        if "method" in message:
            item = message["params"].get("item", {})
            kind = " ".join(filter(None, (message["method"], item.get("type"), item.get("status"))))
            shown = message["params"]
        elif "error" in message:
            kind, shown = f"error {message['error']['code']}", message["error"]
        else:
            kind, shown = f"answer {message['answers']}", message["result"]
        result[kind, counts[kind]] = shown
        counts[kind] += 1
    return result


def compared(path: str, ours: Any, theirs: Any) -> list[str]:
    """Return where two values differ. Ids are any."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = [f"{path}: ours has {key}" for key in sorted(ours.keys() - theirs.keys()) if ours[key] is not None]
        found += [f"{path}: theirs has {key}" for key in sorted(theirs.keys() - ours.keys()) if theirs[key] is not None]
        for key in sorted(ours.keys() & theirs.keys()):
            found += compared(f"{path}.{key}", ours[key], theirs[key])
        return found
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [line for one, other in zip(ours, theirs, strict=True) for line in compared(f"{path}[]", one, other)]
    ids = isinstance(ours, str) and isinstance(theirs, str) and "ID" in ours and "ID" in theirs
    return [] if ours == theirs or ids else [f"{path}: {short(ours)} and {short(theirs)}"]


def short(value: object) -> str:
    """The beginning of a value's JSON."""
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 120 else f"{text[:120]}... ({len(text)})"


if __name__ == "__main__":
    sys.exit(main())
