"""The pages of `docs/tools/reference/` and its table, made from the definitions. `scripts/docs_tools` writes them."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ferrule.builtin import BUILTINS, Builtin
from ferrule.model.profiles import load_profiles
from ferrule.protocol.permissions import AskForApproval, WorkspaceWrite
from ferrule.protocol.specs import FreeformTool
from ferrule.session.sources import expand_profile
from ferrule.tools.context import Permissions
from ferrule.tools.definition import ToolDefinition
from tests.builtin.states import conversation

FOLDER = Path(__file__).parents[2] / "docs" / "tools" / "reference"
GENERATED = "<!-- Made by scripts/docs_tools from the tool's definition: change that, not this page. -->\n\n"

EXAMPLES: dict[str, object] = {
    "close_agent": {"id": "0193a0b2-5f3e-7c4d-8e5f-60718293a4b5"},
    "list_agents": {},
    "resume_agent": {"id": "0193a0b2-5f3e-7c4d-8e5f-60718293a4b5"},
    "send_input": {"id": "0193a0b2-5f3e-7c4d-8e5f-60718293a4b5", "message": "Look at the tests, too."},
    "spawn_agent": {"message": "Find all callers of read_config in src/ and list them with file and line."},
    "wait": {"ids": ["0193a0b2-5f3e-7c4d-8e5f-60718293a4b5"], "timeout_ms": 60000},
    "apply_patch": {"input": "*** Begin Patch\n*** Update File: a.txt\n@@\n-old\n+new\n*** End Patch"},
    "bash": {"command": "cd src && ls"},
    "exec_command": {"cmd": "python3 -q", "tty": True, "yield_time_ms": 1000},
    "execute_bash": {"command": "npm test", "timeout": 120},
    "file_editor": {"command": "str_replace", "path": "/home/me/a.py", "old_str": "x = 1", "new_str": "x = 2"},
    "finish": {"message": "The test passes now: the loop ran once too often."},
    "get_memory": {"memory_id": "0193a0b2-5f3e-7c4d-8e5f-60718293a4b5"},
    "glob": {"pattern": "src/**/*.{ts,tsx}"},
    "grep": {"pattern": "TODO|FIXME", "include": "*.py", "output_mode": "content", "context": 2},
    "grep_files": {"pattern": "class \\w+Error", "include": "*.py", "limit": 20},
    "js_repl_reset": {},
    "list_dir": {"dir_path": "/home/me/project", "depth": 3, "limit": 100},
    "local_shell": {"command": ["bash", "-lc", "ls"]},
    "native_apply_patch": {"type": "create_file", "path": "a.txt", "diff": "+hello"},
    "native_shell": {"commands": ["ls -l", "git status"]},
    "python": {"code": "import statistics\nstatistics.mean([1, 2, 6])"},
    "read_file": {"file_path": "/home/me/a.py", "mode": "indentation", "indentation": {"anchor_line": 120}},
    "request_user_input": {
        "questions": [
            {
                "id": "database",
                "header": "Database",
                "question": "Which database should the tests use?",
                "options": [{"label": "SQLite", "description": "Nothing to install"}, {"label": "Postgres"}],
            }
        ]
    },
    "search_tool_bm25": {"query": "create a calendar event"},
    "shell": {"command": ["git", "log", "-3"]},
    "shell_command": {"command": "git log -3 | cat", "timeout_ms": 5000},
    "str_replace_based_edit_tool": {"command": "view", "path": "/home/me/a.py", "view_range": [10, 40]},
    "task_tracker": {"command": "plan", "task_list": [{"title": "Write the test", "status": "in_progress"}]},
    "file_search": {"query": "how long is a session token valid"},
    "web_search": {"query": "height of the tower of Brix"},
    "open_page": {"url": "https://brix.example/tower"},
    "find_in_page": {"url": "1", "pattern": "metres"},
    "computer": {"actions": [{"type": "click", "x": 120, "y": 48}, {"type": "type", "text": "Ada Lovelace"}]},
    "computer_use_preview": {"actions": [{"type": "scroll", "x": 500, "y": 400, "scroll_y": 300}]},
    "open_url": {"url": "https://brix.example/tower"},
    "image_generation": {"prompt": "A red bicycle that leans against a white wall, as a watercolour"},
    "think": {"thought": "The cache is filled before the lock is taken."},
    "tool_search": {"query": "create a calendar event"},
    "update_plan": {"plan": [{"step": "Write the test", "status": "in_progress"}]},
    "view_image": {"path": "plots/loss.png"},
    "write_stdin": {"session_id": 1234, "chars": "print(1)\n"},
}
FREEFORM_EXAMPLES = {"js_repl": "console.log(await codex.tool('exec_command', {cmd: 'ls'}))"}


class Page(NamedTuple):
    """What is told of one tool."""

    tool: Builtin
    definition: ToolDefinition[Any, Any]
    profiles: tuple[str, ...]


def pages() -> list[Page]:
    """Every tool that a model can be shown, by name."""
    state = msgspec.structs.replace(
        conversation(Path("/home/me/project")),
        permissions=Permissions(AskForApproval.ON_REQUEST, WorkspaceWrite()),
    )
    profiles = load_profiles()
    members: dict[str, set[str]] = {}
    for _, model in profiles.models:
        for name in expand_profile(profiles.tool_set(model.tools).include, model):
            members.setdefault(name, set()).add(model.tools)
    return [
        Page(tool, tool.create(state)[0], tuple(sorted(members.get(name, set()))))
        for name, tool in sorted(BUILTINS.items())
        if not tool.hidden
    ]


def generate() -> dict[str, str]:
    """File names and their content."""
    made = pages()
    return {"README.md": _table(made)} | {f"{page.tool.name}.md": _page(page) for page in made}


def form(page: Page) -> str:
    """How a model calls it."""
    if page.tool.namespace is not None:
        return f"native item, called `{page.tool.called}`"
    if page.tool.name in ("apply_patch", "js_repl"):
        return "freeform or function, as the model's profile says"
    return "freeform" if isinstance(page.definition.spec, FreeformTool) else "function"


def confinement(page: Page) -> str:
    """What holds it back."""
    hints = page.definition.annotations
    if page.tool.starts_processes:
        return "exec policy, approval and sandbox, command by command"
    if hints.readOnlyHint:
        return "changes nothing; is not asked for"
    if hints.openWorldHint:
        return "reaches what was granted when it was started"
    if hints.destructiveHint:
        return "writes only where the sandbox lets it, else after approval"
    return "changes nothing outside of the session"


def _table(made: list[Page]) -> str:
    lines = [
        "# Every built-in tool",
        "",
        GENERATED.strip(),
        "",
        "Profiles: the sets of tools that models get (`ferrule tools -m MODEL` shows a model's; `all` has every one).",
        "Parallel: whether its calls may run beside others. What the answers look like: [files](../files.md),",
        "[commands](../exec_command.md), [patches](../../apply_patch.md).",
        "",
        "| tool | form | profiles | confinement | parallel |",
        "|---|---|---|---|---|",
    ]
    for page in made:
        name = page.tool.name
        profiles = ", ".join(page.profiles) or "-"
        parallel = "yes" if page.tool.parallel else "no"
        lines.append(f"| [`{name}`]({name}.md) | {form(page)} | {profiles} | {confinement(page)} | {parallel} |")
    return "\n".join(lines) + "\n"


def _page(page: Page) -> str:
    hints = page.definition.annotations
    marks = {
        "read-only": hints.readOnlyHint,
        "destructive": hints.destructiveHint,
        "idempotent": hints.idempotentHint,
        "open world": hints.openWorldHint,
    }
    lines = [
        f"# `{page.tool.name}`",
        "",
        GENERATED.strip(),
        "",
        f"- Form: {form(page)}",
        f"- Profiles: {', '.join(page.profiles) or 'none but `all`'}",
        f"- Confinement: {confinement(page)}",
        f"- Parallel: {'yes' if page.tool.parallel else 'no'}",
        f"- Annotations: {', '.join(f'{name} {str(value).lower()}' for name, value in marks.items())}",
        "",
        "What the model reads:",
        "",
        *(f"> {line}".rstrip() for line in page.definition.description.split("\n")),
        "",
    ]
    if page.tool.name in FREEFORM_EXAMPLES:
        lines += ["Example:", "", f"    {FREEFORM_EXAMPLES[page.tool.name]}"]
    else:
        lines += _parameters(page.definition.parameters().mapping)
        example = json.dumps(EXAMPLES[page.tool.name], ensure_ascii=False)
        command = f"ferrule call {page.tool.name} '{example}'"
        lines += ["", "Example:", "", f"    {command}" if page.tool.namespace is None else f"    {example}"]
    return "\n".join(lines) + "\n"


def _parameters(schema: Any, above: str = "") -> list[str]:
    rows = [] if above else ["| parameter | type | required | meaning |", "|---|---|---|---|"]
    for name, node in schema.get("properties", {}).items():
        required = "yes" if name in schema.get("required", ()) else "no"
        meaning = str(node.get("description", "")).replace("|", "\\|").replace("\n", " ")
        choices = ", ".join(f"`{choice}`" for choice in node.get("enum", ()))
        told = f"{meaning} ({choices})" if choices and meaning else meaning or choices
        rows.append(f"| `{above}{name}` | {_type(node)} | {required} | {told} |")
        inner = node.get("items", {}) if node.get("type") == "array" else node
        mark = "[]." if node.get("type") == "array" else "."
        if isinstance(inner, dict) and "properties" in inner:
            rows += _parameters(inner, f"{above}{name}{mark}")
    return rows


def _type(node: Any) -> str:
    kind = node.get("type", "any")
    if kind == "array":
        return f"array of {_type(node.get('items', {}))}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def write() -> None:
    """Write the pages; those of tools that are gone are removed."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = generate()
    for old in set(FOLDER.glob("*.md")) - {FOLDER / name for name in made}:
        old.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    write()
