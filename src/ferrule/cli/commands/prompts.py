"""`ferrule prompts`: the user's custom prompts."""

import argparse

import msgspec

from ferrule.cli.exit_codes import DONE
from ferrule.cli.options import Parser, print_warnings
from ferrule.config import ferrule_home
from ferrule.prompts import FOLDER, PREFIX, BadPrompt, CustomPrompt, custom_prompts
from ferrule.rendering.safe import safe

DESCRIPTION = f"""\
List your custom prompts. `ferrule exec "{PREFIX}NAME ARGUMENTS"` says one."""


def main(arguments: list[str]) -> int:
    """List the prompts. Return the exit code."""
    parser = Parser("prompts", DESCRIPTION)
    parser.set_defaults(json=False)
    actions = parser.add_subparsers(dest="action", parser_class=argparse.ArgumentParser)
    listed = actions.add_parser("list", help="list them: name, arguments, description")
    listed.add_argument("--json", action="store_true", help="print one JSON object per line")
    options = parser.parse_args(arguments)
    home = ferrule_home()
    found = list(custom_prompts(home))
    prompts = [one for one in found if isinstance(one, CustomPrompt)]
    for prompt in prompts:
        print(_json(prompt) if options.json else _line(prompt))
    print_warnings(f"{bad.path} {bad.text}; it is passed over" for bad in found if isinstance(bad, BadPrompt))
    if not found and not options.json:
        print(f"there are no prompts; write one to {safe(home)}/{FOLDER}/NAME.md")
    return DONE


def _json(prompt: CustomPrompt) -> str:
    names = ("name", "description", "argument_hint", "path")
    return msgspec.json.encode({name: getattr(prompt, name) for name in names}).decode()


def _line(prompt: CustomPrompt) -> str:
    call = " ".join(filter(None, (f"{PREFIX}{prompt.name}", prompt.argument_hint)))
    return safe(f"{call}  {prompt.description}".rstrip())
