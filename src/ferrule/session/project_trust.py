"""Describe what a project's files would do, and ask the user whether they may."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ferrule.config import Configuration, Sources, load
from ferrule.config.load import Inspection, inspect_project
from ferrule.config.narrow import narrowed
from ferrule.config.project import ProjectFile
from ferrule.config.project_layers import layer_of
from ferrule.config.trust import Change, RecordProblem
from ferrule.dispatch.front_end import FrontEnd
from ferrule.dispatch.host import ask_user
from ferrule.dispatch.pending import PendingTable
from ferrule.execpolicy import read_rules, visible
from ferrule.execpolicy.rules import PrefixRule, RuleFile
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import UserInputRequest
from ferrule.skills import BadSkill, SkillFile, read_skill
from ferrule.tools.questions import Answer, UserAnswers

OUTSIDE = "outside of the sandbox, with your rights"
SHOWN = ("command", "args", "url")
"""Of a server: what a sentence says."""
QUESTION = "trust_project"
"""The id of the question; only the answer `YES` confirms."""
YES, NO = "Yes, read them", "No, go on without them"


async def load_asking(
    sources: Sources, front_end: FrontEnd | None, pending: PendingTable, env: Mapping[str, str] = os.environ
) -> Configuration:
    """`load`, and where somebody can answer a question about files of the project that are new or changed.

    After a yes what was shown is recorded as confirmed, exactly that, and all is loaded again. The question waits in
    `pending`, where the door answers it. Raises `UsageError` as `load` does.
    """
    loaded = load(sources, env)
    shown = loaded.unconfirmed
    if all(change.file is None for change in shown):
        return loaded
    project = inspect_project(sources.cwd, env)
    if not is_yes(await ask_user(trust_question(project, shown), front_end, pending)):
        return loaded
    try:
        project.confirm(shown)
    except RecordProblem as problem:
        return msgspec.structs.replace(loaded, warnings=(*loaded.warnings, str(problem)))
    return load(sources, env)


def trust_question(project: Inspection, shown: Sequence[Change]) -> UserInputRequest:
    """Return the question about these files in the form in which a model asks, control characters as escapes."""
    lines = [f"{project.top} holds files that you have not confirmed. Are they to be read?"]
    for change in shown:
        lines += ["", f"{change.how}: {change.path}", *(f"  {line}" for line in would_do(project, change))]
    options = [
        {"label": YES, "description": "They count from now on; you are asked again when they change."},
        {"label": NO, "description": "Nothing of them is used in this session."},
    ]
    text = "\n".join(visible(line, multiline=False) for line in lines)
    question = {"id": QUESTION, "header": "Project", "question": text, "options": options, "is_other": False}
    return UserInputRequest(request_id="", call_id="", questions=[question])


def is_yes(answer: Answer) -> bool:
    """Return True if the user confirmed what was shown."""
    return isinstance(answer, UserAnswers) and answer.answers.get(QUESTION) == (YES,)


def would_do(project: Inspection, change: Change) -> Iterator[str]:
    """Say in a sentence each what reading the file would do. Its contents may come from anybody."""
    file = change.file
    if file is None:
        yield "it says nothing any more"
        return
    try:
        match file.kind:
            case "program":
                yield f"hooks may start it, {OUTSIDE} ({len(file.data)} bytes)"
            case "skill":
                yield _skill_line(file)
            case "rules":
                yield from _rule_lines(read_rules(file.path, file.data))
            case _:
                yield from _setting_lines(project, file)
    except UsageError as problem:
        yield f"{problem}; it is passed over"


def _setting_lines(project: Inspection, file: ProjectFile) -> Iterator[str]:
    layer = layer_of(project.top, file, None)
    assert layer is not None
    narrow, left_out = narrowed(layer, project.below)
    servers, hooks = narrow.values.get("mcp_servers", {}), narrow.values.get("hooks", {})
    assert isinstance(servers, Mapping) and isinstance(hooks, Mapping)
    for name, server in servers.items():
        if "command" in server:
            yield f"MCP server {name}: starts {json.dumps([server['command'], *server.get('args', ())])}, {OUTSIDE}"
        if "url" in server:
            yield f"MCP server {name}: reaches {server['url']}"
        yield from _flat(f"mcp_servers.{name}", {key: value for key, value in server.items() if key not in SHOWN})
    for event, entries in hooks.items():
        for entry in entries:
            yield f"{event} hook: runs {json.dumps(entry['command'])}, {OUTSIDE}"
    yield from _flat("", {key: value for key, value in narrow.values.items() if key not in ("mcp_servers", "hooks")})
    yield from left_out


def _flat(prefix: str, table: Mapping[str, object]) -> Iterator[str]:
    for key, value in table.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, Mapping):
            yield from _flat(name, value)
        else:
            yield f"{name} = {json.dumps(value, ensure_ascii=False, default=str)}"


def _skill_line(file: ProjectFile) -> str:
    skill = read_skill(SkillFile(file.path, file.data), "project")
    if isinstance(skill, BadSkill):
        return f"it {skill.text}; it is passed over"
    return f"skill {skill.name}: the model reads it when it is of use: {skill.description}"


def _rule_lines(rules: RuleFile) -> Iterator[str]:
    for rule in rules.prefix:
        where = f", {OUTSIDE}" if rule.decision == "allow" else ""
        yield f"{rule.decision}: {_pattern(rule)} ...{where}"
    for program in rules.executables:
        yield f"{program.name} is also the program at {', '.join(program.paths)}"
    for network in rules.network:
        yield f"{network.decision}: connections to {network.host} ({network.protocol})"


def _pattern(rule: PrefixRule) -> str:
    return " ".join(words[0] if len(words) == 1 else f"({'|'.join(words)})" for words in rule.pattern)
