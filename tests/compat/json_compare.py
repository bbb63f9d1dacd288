"""Play the same scripted sessions to `ferrule exec --json` and to `codex exec --json`, and print what differs.
Development only: started by `scripts/compat_json`, which installs the binary.

A difference must be a listed departure; docs/cli.md has the same list in words.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.headless import STUB, environment

from ferrule.testing import ScriptedModel, custom_tool_call, function_call, http_error, raw, reasoning, step
from ferrule.testing.request import Request
from ferrule.testing.steps import Simple, Step, StepLike, Usage
from tests.cli.played import execute, send

PATCH = (
    "*** Begin Patch\n*** Delete File: gone.txt\n*** Add File: new.txt\n+hello\n*** Update File: old.txt\n"
    "*** Move to: sub/moved.txt\n@@\n-old\n+newer\n*** End Patch\n"
)
WEB_SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed",
              "action": {"type": "search", "query": "ferrule"}}  # fmt: skip
COUNTED = Usage(100, 20, 50, 5)


def plan(status: str) -> dict[str, object]:
    """A plan of one step."""
    return dict(function_call("update_plan", {"plan": [{"step": "a", "status": status}]}))


SESSIONS: Mapping[str, Sequence[StepLike]] = {
    "a command": [step(reasoning("First."), "I look.", execute("cat old.txt; exit 3", 9_000))],
    "output that is no text": [execute(r"printf 'a\377\0b\033[31mred\033[0m\r\n'", 9_000)],
    "an apostrophe": [execute("echo it\\'s", 9_000)],
    "much output": [execute("seq 400000", 9_000)],
    "without a login": [execute("pwd", 9_000, workdir="sub", login=False)],
    "a long command": [execute("echo a; sleep 2; echo b; exit 4"), send()],
    "its end during another call": [execute("echo a; sleep 1; echo b; exit 4"), execute("sleep 2", 9_000)],
    "two at once": [step(execute("echo a; sleep 1"), execute("echo b; sleep 2")), execute("sleep 3", 9_000)],
    "input": [execute("read x; echo got $x", tty=True), send("hi\n", 5_000)],
    "an interrupt by the model": [execute("sleep 60"), send("\x03", 5_000)],
    "a command that still runs": [execute("echo a; sleep 600")],
    "a refused command": [execute("rm -rf /nonexistent-of-ferrule")],
    "a patch": [dict(custom_tool_call("apply_patch", PATCH))],
    "a patch in a command": [execute(f"apply_patch <<'EOF'\n{PATCH}EOF\n")],
    "a patch that does not fit": [dict(custom_tool_call("apply_patch", PATCH.replace("-old", "-other")))],
    "a plan": [plan("pending"), plan("completed")],
    "no such tool": [step(function_call("nope", {"x": 1}), function_call("exec_command", "{"))],
    "another tool": [dict(function_call("view_image", {"path": "nope.png"}))],
    "an MCP tool": [dict(function_call("echo", {"text": "hi"})) | {"namespace": "mcp__echo"}],
    "a web search": [step(WEB_SEARCH, "Found.")],
    "a broken stream": [raw(b"data: {\n\n")],
    "a busy server": [http_error(503, "busy")],
    "a failure": [http_error(400, "no more")],
}

DEPARTURES: Sequence[tuple[str, str]] = (
    (r"thread\.started: ours has model", "the model is told"),
    (r"only ours: sandbox\.status", "what the sandbox does not stop is told"),
    (r"only ours: .* tool_call", "every call of the model is an item; the binary shows none of these"),
    (r"only ours: .* command_execution (in_progress|declined)", "what was refused is shown; the binary logs it"),
    (r"only ours: item\.(started|completed) file_change (in_progress|failed)", "and so is a patch that does not fit"),
    (r"only ours: item\.completed command_execution failed", "a command that still runs is ended and completed"),
    (r"file_change: changes", "a move tells its destination; changes are in the order of the patch"),
    (r"command_execution: command: .*'\\\"'", "an apostrophe is quoted in another of the shell's ways"),
    (r"only theirs: item\.started web_search", "a search is complete when we hear of it"),
    (r"mcp_tool_call: result: .*structured_content", "what a server has beside its content is part of it"),
    (r"only ours: item\.completed error", "problems that do not end the turn are items"),
    (r"only theirs: error", "a line of that type ends the run"),
    (r"(error|turn\.failed): (message|error)", "the message is a sentence, not the server's JSON"),
)
"""A difference, and why it stays."""


def main() -> int:
    """Play every session to both. Exits with 1 when a difference is not listed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("binary")
    binary = options.parse_args().binary
    seen: dict[str, str] = {}
    unexplained = 0
    for name, script in SESSIONS.items():
        ours, theirs = play(ferrule, script), play(lambda url: codex(binary, url), script)
        for difference in differences(ours, theirs):
            if difference not in seen:
                reason = next((why for pattern, why in DEPARTURES if re.match(pattern, difference)), None)
                unexplained += reason is None
                print(f"{name}: {difference}: {reason or 'UNEXPLAINED'}")
            seen[difference] = name
    print(f"{len(SESSIONS)} sessions, {len(seen)} differences, {unexplained} unexplained")
    return 1 if unexplained else 0


def ferrule(base_url: str) -> list[str]:
    """Our command."""
    program = str(Path(sys.executable).parent / "ferrule")
    return [program, "exec", "--json", "--base-url", base_url, "--wire", "responses"]


def codex(binary: str, base_url: str) -> list[str]:
    """The binary's."""
    provider = f'{{name="scripted",base_url="{base_url}",wire_api="responses",env_key="BENCH_KEY"}}'
    settings = ('model_provider="scripted"', f"model_providers.scripted={provider}", "tools.update_plan={enabled=true}")
    return [binary, "exec", "--json", "--skip-git-repo-check", *(word for one in settings for word in ("-c", one))]


def play(program: Callable[[str], list[str]], script: Sequence[StepLike]) -> list[dict[str, Any]]:
    """Return the lines of one session, in a fresh workspace with a fresh home."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="ferrule-compat-") as base:
        home, workspace = Path(base, "home"), Path(base, "workspace")
        (workspace / "sub").mkdir(parents=True)
        home.mkdir()
        (workspace / "old.txt").write_text("old\n")
        (workspace / "gone.txt").write_text("gone\n")
        uses_mcp = "mcp__" in repr(script)
        server = f"[mcp_servers.echo]\ncommand = {json.dumps(sys.executable)}\nargs = ['-S', '-E', '{STUB}']\n"
        (home / "config.toml").write_text(server if uses_mcp else "")
        with ScriptedModel([*map(counted, script), step("Done.", usage=COUNTED)]) as model:
            done = subprocess.run(
                [*program(model.base_url), "-m", "gpt-5.5", "-s", "danger-full-access", "-C", str(workspace), "go"],
                env=environment(home) | {"FERRULE_HOME": str(home), "SHELL": "/bin/bash"},
                stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
            )  # fmt: skip
    return [json.loads(line.replace(str(workspace), "WORKSPACE")) for line in done.stdout.decode().splitlines()]


def counted(given: StepLike) -> StepLike:
    """The step with the same usage for both, whose prompts differ."""

    def later(request: Request) -> Simple:
        made = given(request) if callable(given) else given
        if isinstance(made, Step):
            return msgspec.structs.replace(made, usage=COUNTED)
        return step(made, usage=COUNTED) if isinstance(made, dict) else made

    return later


def differences(ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]) -> list[str]:
    """Compare the lines, matched by their kind and their place among those of the kind."""
    mine, other = by_kind(ours), by_kind(theirs)
    found = [f"only {whose}: {kind[0]}" for whose, kinds in (("ours", mine.keys() - other.keys()),
             ("theirs", other.keys() - mine.keys())) for kind in sorted(kinds)]  # fmt: skip
    for kind in sorted(mine.keys() & other.keys()):
        found += compare(kind[0].split()[-1] if " " not in kind[0] else kind[0].split()[1], mine[kind], other[kind])
    return found


def by_kind(lines: Sequence[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the lines by type, item's type and status, and their number."""
    seen: Counter[str] = Counter()
    result = {}
    for line in lines:
        item = line.get("item", {})
        kind = " ".join(filter(None, (line["type"], item.get("type"), item.get("status"))))
        result[kind, seen[kind]] = item or line
        seen[kind] += 1
    return result


def compare(kind: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Return which fields differ, and how. Ids are any."""
    found = [f"{kind}: ours has {name}" for name in sorted(ours.keys() - theirs.keys())]
    found += [f"{kind}: theirs has {name}" for name in sorted(theirs.keys() - ours.keys())]
    for name in sorted((ours.keys() & theirs.keys()) - {"id", "thread_id"}):
        if ours[name] != theirs[name]:
            found.append(f"{kind}: {name}: {short(ours[name])} and {short(theirs[name])}")
    return found


def short(value: object) -> str:
    """The beginning of a value's JSON."""
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)})"


if __name__ == "__main__":
    sys.exit(main())
