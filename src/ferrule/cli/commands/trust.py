"""`ferrule trust`: what the files of a project would do, and the user's word that they may."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping

from ferrule.cli.exit_codes import DONE, FAILED
from ferrule.cli.options import Parser, add_directory_flag, print_warnings, working_directory
from ferrule.config import CONFIG_FILE, ferrule_home
from ferrule.config.load import Inspection, inspect_project
from ferrule.config.narrow import narrowed
from ferrule.config.project import ProjectFile
from ferrule.config.project_layers import layer_of
from ferrule.config.trust import Change, Record, TrustRecords, changes
from ferrule.execpolicy import read_rules, visible
from ferrule.execpolicy.rules import PrefixRule, RuleFile
from ferrule.protocol.errors import FerruleError, UsageError

DESCRIPTION = """\
Show the files of this project that are new or changed since you confirmed them, and what each would do. After your
yes they are read: settings, MCP servers, hooks and command rules. Files that change later are asked about again."""

OUTSIDE = "outside of the sandbox, with your rights"
SHOWN = ("command", "args", "url")
"""Of a server: what a sentence says."""


def main(arguments: list[str]) -> int:
    """Show and confirm, list, or take back. Returns 0, or 1 where the user did not say yes."""
    parser = Parser("trust", DESCRIPTION)
    add_directory_flag(parser)
    parser.add_argument("--yes", action="store_true", help="confirm what is shown without asking")
    parser.add_argument("--list", action="store_true", help="list the projects of which you have confirmed anything")
    parser.add_argument("--revoke", action="store_true", help="trust nothing of this project any more")
    options = parser.parse_args(arguments)
    if options.list:
        return _list(TrustRecords(ferrule_home()))
    project = inspect_project(working_directory(options.directory))
    return _revoke(project) if options.revoke else _confirm(project, options)


def _list(records: TrustRecords) -> int:
    for record in records.all():
        if not isinstance(record, Record):
            print_warnings([str(record)])
        elif record.trust == "revoked":
            print(f"revoked  {_line(record.project)}")
        else:
            print(f"trusted  {_line(record.project)}  ({_count(len(record.files))})")
    return DONE


def _revoke(project: Inspection) -> int:
    if project.record is None and project.problem is None and project.wish != "trusted":
        print(f"{_line(project.top)} is not trusted")
        return DONE
    project.records.revoke(project.top)
    print(f"nothing of {_line(project.top)} is read any more; `ferrule trust` trusts it again")
    return DONE


def _confirm(project: Inspection, options: argparse.Namespace) -> int:
    if project.wish == "untrusted":
        file = f"{ferrule_home()}/{CONFIG_FILE}"
        raise UsageError(f'{file} says that {project.top} is "untrusted": take that out first')
    trusted = project.record is not None and project.record.trusts(project.wish)
    shown = changes(project.found, project.record if trusted else None)
    print(f"{_line(project.top)}  ({'trusted' if trusted else 'not trusted yet'})")
    print_warnings([] if project.problem is None else [f"{project.problem}; it is made anew"])
    for problem in project.found.problems:
        print(f"\n{_line(problem.path)} {problem.text}; it is passed over")
    for change in shown:
        print(f"\n{change.how:<8} {_line(change.path)}")
        for line in _would_do(project, change):
            print(f"  {_line(line)}")
    if trusted and not shown:
        print(f"\n{_count(len(project.found.files))}, all as you have confirmed")
        return DONE
    if not options.yes and not _agrees():
        print("nothing was changed")
        return FAILED
    project.confirm(shown)
    print(f"\ntrusted: {_count(len(project.found.files))}")
    return DONE


def _agrees() -> bool:
    if not sys.stdin.isatty():
        raise FerruleError("nobody can answer here: `ferrule trust --yes` confirms what is shown")
    print("\nTrust this? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _would_do(project: Inspection, change: Change) -> Iterator[str]:
    file = change.file
    if file is None:
        yield "it says nothing any more"
        return
    try:
        match file.kind:
            case "program":
                yield f"hooks may start it, {OUTSIDE} ({len(file.data)} bytes)"
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


def _count(files: int) -> str:
    return "1 file" if files == 1 else f"{files} files"


def _line(text: str) -> str:
    return visible(text, multiline=False)
