"""`ferrule skills`: the skills of the user and of this project."""

import argparse

import msgspec

from ferrule.cli.exit_codes import DONE
from ferrule.cli.options import Parser, add_config_flag, add_directory_flag, configuration, print_warnings
from ferrule.protocol.settings import Settings
from ferrule.rendering.safe import safe
from ferrule.session.skills import Installed, installed
from ferrule.skills import Skill

DESCRIPTION = """\
List the skills that the model is told of: yours, and those of this project as far as you have confirmed them
(`ferrule trust`)."""


def main(arguments: list[str]) -> int:
    """List the skills. Return the exit code."""
    options = _parser().parse_args(arguments)
    settings = configuration(options).settings
    found = installed(settings)
    if options.json:
        _print_json(found)
    else:
        _print(found, settings)
    return DONE


def _parser() -> Parser:
    parser = Parser("skills", DESCRIPTION)
    parser.set_defaults(json=False, directory=None, assignments=[])
    actions = parser.add_subparsers(dest="action", parser_class=argparse.ArgumentParser)
    listed = actions.add_parser("list", help="list them: name, description, whose it is, and its file")
    listed.add_argument("--json", action="store_true", help="print one JSON object per line")
    add_directory_flag(listed)
    add_config_flag(listed)
    return parser


def _print_json(found: Installed) -> None:
    for skill in (*found.used, *found.off):
        fields = {name: getattr(skill, name) for name in ("name", "description", "scope", "path")}
        print(msgspec.json.encode({**fields, "enabled": skill in found.used}).decode())
    print_warnings(f"{bad.path} {bad.text}; it is passed over" for bad in found.bad)


def _print(found: Installed, settings: Settings) -> None:
    for skill in (*found.used, *found.off):
        print(_line(skill) + ("" if skill in found.used else "  (switched off)"))
    for bad in found.bad:
        print(f"not used: {safe(bad.path)} {safe(bad.text)}")
    if not found.used and not found.off:
        place = safe(f"{settings.home}/skills/NAME/SKILL.md")
        print(f"there are no skills; write one to {place}, with a name and a description in its head")


def _line(skill: Skill) -> str:
    return f"{safe(skill.name)}: {safe(skill.description)}  ({skill.scope}, {safe(skill.path)})"
