"""`ferrule trust`: show what a project's files would do, and record the user's consent."""

import argparse
import sys

from ferrule.cli.exit_codes import DONE, FAILED
from ferrule.cli.options import Parser, add_directory_flag, print_warnings, working_directory
from ferrule.config import CONFIG_FILE, ferrule_home
from ferrule.config.load import Inspection, inspect_project
from ferrule.config.trust import Record, TrustRecords, changes
from ferrule.execpolicy import visible
from ferrule.protocol.errors import FerruleError, UsageError
from ferrule.session.project_trust import would_do

DESCRIPTION = """\
Show the files of this project that are new or changed since you confirmed them, and what each would do. After your
yes they are read: settings, MCP servers, hooks, command rules and skills. Files that change later are asked about
again."""


def main(arguments: list[str]) -> int:
    """Show and confirm, list, or revoke. Return 0, or 1 if the user did not say yes."""
    parser = Parser("trust", DESCRIPTION)
    add_directory_flag(parser)
    parser.add_argument("--yes", action="store_true", help="confirm what is shown without asking")
    parser.add_argument("--list", action="store_true", help="list the projects with confirmed files")
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
        raise UsageError(f'{file} says that {project.top} is "untrusted": remove that first')
    trusted = project.record is not None and project.record.trusts(project.wish)
    shown = changes(project.found, project.record if trusted else None)
    print(f"{_line(project.top)}  ({'trusted' if trusted else 'not trusted yet'})")
    print_warnings([] if project.problem is None else [f"{project.problem}; it is made anew"])
    for problem in project.found.problems:
        print(f"\n{_line(problem.path)} {problem.text}; it is passed over")
    for change in shown:
        print(f"\n{change.how:<8} {_line(change.path)}")
        for line in would_do(project, change):
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


def _count(files: int) -> str:
    return "1 file" if files == 1 else f"{files} files"


def _line(text: str) -> str:
    return visible(text, multiline=False)
