"""Every tool of the official servers, once through a session of ours, once with the SDK's own client, and once with the
command line of the official inspector.

`scripts/mcp_peers` installs them and runs this. Each side has a server of its own over the same fresh files; the
inspector starts one for each call.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from mcp.client.streamable_http import streamable_http_client
from pydantic import FileUrl

from ferrule import Agent
from ferrule.mcp.login import log_in
from ferrule.protocol.items import FunctionCall
from ferrule.testing import ScriptedModel
from ferrule.tools.questions import Elicited
from mcp import Client, StdioServerParameters, types
from tests.compat.mcp_servers import script_of
from tests.mcp.oauth import Authority, browse, guarded
from tests.mcp.web import stub

Calls = Sequence[tuple[str, dict[str, Any]]]

PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489") + b"\0" * 40
DATES = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}
ME = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
VOLATILE = (
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:?\d\d)?"), "TIME"),
    (re.compile(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \w{3} \d\d \d{4} [\d:]+ GMT\S*( \([^)]*\))?"), "TIME"),
    (re.compile(r"\d+:\d\d:\d\d [AP]M"), "TIME"),
    (re.compile(r"127\.0\.0\.1:\d+"), "HOST"),
)
START_SECONDS = 60.0
"""How long a server may take to start; the first time python compiles it."""
BASE64 = re.compile(r"[A-Za-z0-9+/]{200,}")


class Peer(msgspec.Struct, frozen=True):
    """A server, what it is called with, and which answers cannot be the same twice."""

    name: str
    command: str
    args: tuple[str, ...]
    calls: Calls
    env: dict[str, str] = {}
    differing: frozenset[str] = frozenset()
    not_theirs: frozenset[str] = frozenset()
    """Tools that the SDK's client cannot run."""


def peers(folder: Path, root: Path, page: str) -> list[Peer]:
    """All of them, over the files in `root`; `page` is what is fetched."""
    modules = folder / "node_modules"
    return [
        everything(modules), filesystem(modules, root), memory(modules, root), clock(folder), git(folder, root),
        fetch(folder, page),
    ]  # fmt: skip


def everything(modules: Path) -> Peer:
    return Peer(
        "everything", "node", (script_of(modules, "server-everything"), "stdio"),
        [
            ("echo", {"message": "hello"}),
            ("get-annotated-message", {"messageType": "error", "includeImage": True}),
            ("get-env", {}),
            ("get-resource-links", {"count": 2}),
            ("get-resource-reference", {"resourceType": "Blob", "resourceId": 1}),
            ("get-structured-content", {"location": "Chicago"}),
            ("get-sum", {"a": 2, "b": 3}),
            ("get-tiny-image", {}),
            ("gzip-file-as-resource", {"name": "x.gz", "data": "data:text/plain,hi"}),
            ("toggle-simulated-logging", {}),
            ("toggle-subscriber-updates", {}),
            ("trigger-long-running-operation", {"duration": 1, "steps": 2}),
            ("get-roots-list", {}),
            ("trigger-elicitation-request", {}),
            ("trigger-url-elicitation", {"url": "https://example.com/x", "elicitationId": "e"}),
            ("simulate-research-query", {"topic": "iron"}),
        ],
        differing=frozenset({"get-env", "toggle-simulated-logging", "toggle-subscriber-updates"}),
        not_theirs=frozenset({"simulate-research-query"}),
    )  # fmt: skip


def filesystem(modules: Path, root: Path) -> Peer:
    a, b = str(root / "a.txt"), str(root / "b.txt")
    return Peer(
        "filesystem", "node", (script_of(modules, "server-filesystem"), str(root)),
        [
            ("read_file", {"path": a}),
            ("read_text_file", {"path": a, "head": 1}),
            ("read_media_file", {"path": str(root / "p.png")}),
            ("read_multiple_files", {"paths": [a, str(root / "none")]}),
            ("write_file", {"path": b, "content": "new\\n"}),
            ("edit_file", {"path": b, "edits": [{"oldText": "new", "newText": "old"}]}),
            ("create_directory", {"path": str(root / "d")}),
            ("list_directory", {"path": str(root)}),
            ("list_directory_with_sizes", {"path": str(root)}),
            ("directory_tree", {"path": str(root), "excludePatterns": [".git"]}),
            ("move_file", {"source": b, "destination": str(root / "d" / "c.txt")}),
            ("search_files", {"path": str(root), "pattern": "*.txt"}),
            ("get_file_info", {"path": a}),
            ("list_allowed_directories", {}),
            ("read_text_file", {"path": "/etc/passwd"}),
        ],
    )  # fmt: skip


def memory(modules: Path, root: Path) -> Peer:
    entity = {"name": "Ada", "entityType": "person", "observations": ["writes"]}
    relation = {"from": "Ada", "to": "Bob", "relationType": "knows"}
    return Peer(
        "memory", "node", (script_of(modules, "server-memory"),),
        [
            ("create_entities", {"entities": [entity, {**entity, "name": "Bob"}]}),
            ("create_relations", {"relations": [relation]}),
            ("add_observations", {"observations": [{"entityName": "Ada", "contents": ["reads"]}]}),
            ("read_graph", {}),
            ("search_nodes", {"query": "Ada"}),
            ("open_nodes", {"names": ["Bob"]}),
            ("delete_observations", {"deletions": [{"entityName": "Ada", "observations": ["reads"]}]}),
            ("delete_relations", {"relations": [relation]}),
            ("delete_entities", {"entityNames": ["Ada", "Bob"]}),
            ("read_graph", {}),
        ],
        env={"MEMORY_FILE_PATH": str(root / "memory.jsonl")},
    )  # fmt: skip


def clock(folder: Path) -> Peer:
    return Peer(
        "time", str(folder / "time/bin/mcp-server-time"), (),
        [
            ("get_current_time", {"timezone": "Europe/Berlin"}),
            ("convert_time", {"source_timezone": "UTC", "time": "10:00", "target_timezone": "Asia/Tokyo"}),
            ("convert_time", {"source_timezone": "No/Where", "time": "10:00", "target_timezone": "UTC"}),
        ],
    )  # fmt: skip


def git(folder: Path, root: Path) -> Peer:
    repo = {"repo_path": str(root)}
    return Peer(
        "git", str(folder / "git/bin/mcp-server-git"), (),
        [
            ("git_status", repo),
            ("git_diff_unstaged", repo),
            ("git_add", {**repo, "files": ["a.txt"]}),
            ("git_diff_staged", repo),
            ("git_diff", {**repo, "target": "HEAD"}),
            ("git_commit", {**repo, "message": "second"}),
            ("git_log", repo),
            ("git_show", {**repo, "revision": "HEAD"}),
            ("git_create_branch", {**repo, "branch_name": "side"}),
            ("git_checkout", {**repo, "branch_name": "side"}),
            ("git_branch", {**repo, "branch_type": "local"}),
            ("git_reset", repo),
        ],
        env={**DATES, **ME},
    )  # fmt: skip


def fetch(folder: Path, page: str) -> Peer:
    return Peer(
        "fetch", str(folder / "fetch/bin/mcp-server-fetch"), ("--ignore-robots-txt", "--allow-private-ips"),
        [("fetch", {"url": page}), ("fetch", {"url": page, "raw": True}), ("fetch", {"url": f"{page}none"})],
    )  # fmt: skip


def fresh(root: Path) -> None:
    """The files as each side finds them: a repository with a change in it."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    (root / "a.txt").write_text("one\ntwo\n")
    (root / "p.png").write_bytes(PNG)
    environment = {"PATH": os.environ["PATH"], "HOME": str(root), **DATES, **ME}
    for command in ("init -q -b main", "add a.txt", "commit -q -m first"):
        subprocess.run(["git", *command.split()], cwd=root, check=True, env=environment)
    (root / "a.txt").write_text("one\nTWO\n")


async def ours(peer: Peer, root: Path) -> tuple[set[str], list[Any]]:
    """The names of its tools, and what the model reads of each call."""
    server = {"command": peer.command, "args": list(peer.args), "env": peer.env, "approval": "allow"}
    with ScriptedModel([]) as model:
        agent = Agent(
            "gpt-5.5", tools=[], base_url=model.base_url, cwd=root, mcp_config={"mcpServers": {peer.name: server}},
            on_question=lambda question: Elicited("decline"),
        )  # fmt: skip
        async with await agent.open() as session:
            prefix = f"mcp__{peer.name}__"
            async with asyncio.timeout(START_SECONDS):
                while not (names := {n.removeprefix(prefix) for _, n in session.toolset.current()[1] if prefix in n}):
                    await session.toolset.settled()
                    await asyncio.sleep(0.05)
            dispatcher = session.toolset.dispatcher()
            answers = []
            for number, (tool, arguments) in enumerate(peer.calls):
                view = FunctionCall(call_id=f"c{number}", name=prefix + tool, arguments=json.dumps(arguments))
                answer = await dispatcher.respond(view)
                assert answer is not None
                answers.append(msgspec.json.decode(answer.raw)["output"])
    return names, answers


async def theirs(peer: Peer, root: Path) -> tuple[set[str], list[types.CallToolResult | None]]:
    """The same with the SDK's client."""

    async def decline(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    async def roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(root.as_uri()), name=root.name)])

    server = StdioServerParameters(command=peer.command, args=list(peer.args), env=peer.env, cwd=root)
    async with Client(server, elicitation_callback=decline, list_roots_callback=roots, mode="legacy") as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        answers = [
            None if tool in peer.not_theirs else await client.call_tool(tool, arguments)
            for tool, arguments in peer.calls
        ]
    return names, answers


async def inspected(peer: Peer, root: Path) -> tuple[set[str], list[types.CallToolResult | None]]:
    """The same with the inspector, which declares neither roots nor elicitation: None for a tool it is not offered."""
    listed = await _inspect(peer, root, "tools/list")
    names = {tool["name"] for tool in listed["tools"]}
    answers: list[types.CallToolResult | None] = []
    for tool, arguments in peer.calls:
        words = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in arguments.items()]
        flags = ["--tool-name", tool, *(flag for word in words for flag in ("--tool-arg", word))]
        known = tool in names and tool not in peer.not_theirs
        raw = await _inspect(peer, root, "tools/call", *flags) if known else None
        answers.append(None if raw is None else types.CallToolResult.model_validate(raw))
    return names, answers


async def _inspect(peer: Peer, root: Path, method: str, *flags: str) -> dict[str, Any]:
    inspector = root.parent / "node_modules/.bin/mcp-inspector"
    variables = [flag for key, value in peer.env.items() for flag in ("-e", f"{key}={value}")]
    process = await asyncio.create_subprocess_exec(
        str(inspector), *variables, "--cli", peer.command, *peer.args, "--method", method, *flags,
        cwd=root, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(START_SECONDS):
        out, err = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{peer.name}: the inspector's {method} {' '.join(flags)} failed: {err.decode()[-500:]}")
    found: dict[str, Any] = json.loads(out)
    return found


def texts_of(output: Any) -> list[str]:
    return [output] if isinstance(output, str) else [part["text"] for part in output if part["type"] == "input_text"]


def images_of(output: Any) -> list[str]:
    return [] if isinstance(output, str) else [part["image_url"] for part in output if part["type"] == "input_image"]


def steady(text: str) -> str:
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    return text


def difference(output: Any, result: types.CallToolResult) -> str | None:
    """What the model does not read as the SDK's client does; None if nothing."""
    said = "\n".join(texts_of(output))
    texts = [block.text for block in result.content if isinstance(block, types.TextContent)]
    images = [block for block in result.content if isinstance(block, types.ImageContent)]
    if [image.split(",")[1] for image in images_of(output)] != [image.data for image in images]:
        return "other images"
    if BASE64.search(said) and not any(BASE64.search(text) for text in texts):
        return "base64 as text"
    if said.startswith("The tool reported an error:") is not bool(result.is_error):
        return "an error is none, or none is one"
    if all(isinstance(block, types.TextContent) for block in result.content):
        wanted = [*(["The tool reported an error:"] if result.is_error else []), *filter(None, texts)]
        if result.structured_content is not None and not any(_is(text, result.structured_content) for text in texts):
            return None if all(steady(text) in steady(said) for text in texts) else "other texts"
        return None if steady(said) == steady("\n".join(wanted)) else f"other texts: {said[:300]!r}, {texts!r:.300}"
    missing = [text for text in texts if steady(text) not in steady(said)]
    return f"left out: {missing}" if missing else None


def _is(text: str, structured: Mapping[str, Any]) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    return bool(value == structured or [value] == list(structured.values()))


async def compared(peer: Peer, root: Path) -> int:
    """Prints one line for the server, and one for each difference; gives their number."""
    sides: list[Any] = []
    for side in (ours, theirs, inspected):
        fresh(root)
        sides.append(await side(peer, root))
    (names, outputs), (known, results), (_, shown) = sides
    problems = [f"not called: {name}" for name in sorted(known - {tool for tool, _ in peer.calls} - peer.not_theirs)]
    problems += [f"not offered: {name}" for name in sorted(known - names)]
    for (tool, _), output, result in zip(peer.calls, outputs, results, strict=True):
        if result is None:
            problem = None if "failed" not in str(output)[:200] and output else f"failed: {output}"
        else:
            problem = None if tool in peer.differing else difference(output, result)
        problems += [f"{tool}: {problem}"] if problem else []
    by_inspector = [(call[0], *pair) for call, *pair in zip(peer.calls, outputs, shown, strict=True) if pair[1]]
    for tool, output, result in by_inspector:
        problem = None if tool in peer.differing else difference(output, result)
        problems += [f"{tool}: not as the inspector shows it: {problem}"] if problem else []
    what = f"{peer.name}: {len(names)} tools, {len(peer.calls)} calls, {len(by_inspector)} of them by the inspector too"
    return told(what, problems)


def told(what: str, problems: Sequence[str]) -> int:
    print(f"{what}: {'the same' if not problems else f'{len(problems)} differences'}", flush=True)
    for problem in problems:
        print(f"  ! {problem}", flush=True)
    return len(problems)


async def behind_login(home: Path, *, registers: bool) -> int:
    """A server with a login: its tools before and after the scope has grown, and with the SDK's client."""
    from ferrule.mcp import MCPClient, McpFailure
    from ferrule.protocol.mcp_settings import McpServerSettings

    authority, oauth, tasks = Authority(), None, []
    if not registers:
        oauth = registered(authority)

    def show(address: str) -> None:
        tasks.append(asyncio.ensure_future(browse(address)))

    problems: list[str] = []
    async with guarded(authority, registers=registers) as url:
        await log_in(url, str(home), show, oauth)
        async with MCPClient("guarded", McpServerSettings(url=url), home=str(home)) as client:
            read = await client.call_tool("read", {})
            try:
                await client.call_tool("write", {})
                problems.append("write needed no scope")
            except McpFailure as error:
                problems += [] if "files:write" in str(error) else [f"no scope is named: {error}"]
            await log_in(url, str(home), show, oauth)
            written = await client.call_tool("write", {})
        token = authority.grant("sdk", ["files:read", "files:write"]).access_token
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http,
            Client(streamable_http_client(url, http_client=http)) as sdk,
        ):
            for tool, mine in (("read", read), ("write", written)):
                theirs_too = (await sdk.call_tool(tool, {})).model_dump(by_alias=True, mode="json", exclude_none=True)
                if theirs_too["content"] != mine["content"]:
                    problems.append(f"{tool}: {mine} is not {theirs_too}")
    what = "with" if registers else "without"
    return told(f"login {what} dynamic registration: 2 tools", problems)


def registered(authority: Authority) -> Any:
    """A client that the authority knows beforehand, and its settings."""
    import socket

    from mcp.shared.auth import OAuthClientInformationFull
    from pydantic import AnyUrl

    from ferrule.protocol.mcp_settings import McpOAuthSettings

    with socket.create_server(("127.0.0.1", 0)) as place:
        port = place.getsockname()[1]
    authority.clients["us"] = OAuthClientInformationFull(
        client_id="us",
        client_secret="secret",
        redirect_uris=[AnyUrl(f"http://127.0.0.1:{port}/callback")],
        token_endpoint_auth_method="client_secret_basic",
        scope="files:read files:write",
    )
    return McpOAuthSettings(client_id="us", client_secret="secret", callback_port=port)


async def main() -> int:
    folder = Path(sys.argv[1])
    root = folder / "root"
    os.environ["FERRULE_HOME"] = str(folder / "home")
    body = b"<html><body><h1>Title</h1><p>Some <b>words</b>.</p></body></html>"
    pages = {"/": (200, {"content-type": "text/html"}, body)}
    found = 0
    with stub(lambda asked: pages.get(asked.path, (404, {}, b"")), gets=True) as url:
        for peer in peers(folder, root, url.removesuffix("mcp")):
            found += await compared(peer, root)
    for registers in (True, False):
        found += await behind_login(folder / "home", registers=registers)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
