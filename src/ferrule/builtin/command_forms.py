"""Read the forms in which models write a command or a patch: for tools, hooks and displays of calls. Pure."""

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ferrule.patch.invocation import BarePatchError, Invocation, find_patch, find_patch_in_script
from ferrule.patch.syntax import BEGIN
from ferrule.process.shell import POSIX_SHELLS
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.json_text import JsonValue, decode

COMMAND_NAMES = ("command", "cmd")
"""Names that models give the argument that holds a command."""
PATCH_NAMES = ("input", "patch", *COMMAND_NAMES)
"""Names that models give the argument that holds a patch."""

_RUN = frozenset({"-c", "-lc", "-cl"})
_JSON_BEGINS = ("{", "[", '"', "```")
"""Beginnings of JSON that may hold a patch; the reader of JSON takes fences off."""

Command = str | tuple[str, ...]
"""A script, or an argv."""


def given_command(arguments: Mapping[str, Any], field: str) -> Command | None:
    """Return the command of a call, which its tool takes as `field`; None if there is none that can be read."""
    for name in (field, *COMMAND_NAMES):
        value = arguments.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
            return tuple(value)
    return None


def as_script(command: Any) -> Any:
    """Unwrap the script of an argv; return anything else as it is."""
    if not isinstance(command, list | tuple) or not all(isinstance(word, str) for word in command):
        return command
    shell = len(command) == 3 and os.path.basename(command[0]) in POSIX_SHELLS and command[1] in _RUN
    return command[2] if shell else shlex.join(command)


def as_argv(command: Any) -> Any:
    """Return the argv that runs a script; a list as the tuple that strict reading expects; anything else as it is."""
    if isinstance(command, str):
        return ("bash", "-lc", command)
    return tuple(command) if isinstance(command, list) else command


def patch_in(command: Command) -> Invocation | None:
    """Return the patch that a command would apply, or None."""
    try:
        return find_patch_in_script(command) if isinstance(command, str) else find_patch(command)
    except BarePatchError:
        return None


def patch_text(given: JsonValue) -> str | None:
    """Find the patch in a model's input for the patch tool: text, JSON as text, an argument by any of its names, or the
    command that would apply it. An argument of another name counts if it begins like a patch. None if there is none."""
    if isinstance(given, Mapping):
        named = (given.get(name) for name in PATCH_NAMES)
        marked = (value for value in given.values() if isinstance(value, str) and value.lstrip().startswith(BEGIN))
        return next((text for value in (*named, *marked) if (text := patch_text(value)) is not None), None)
    if isinstance(given, str):
        return _patch_in_text(given)
    if not isinstance(given, Sequence) or not given or not all(isinstance(word, str) for word in given):
        return None
    found = patch_in(tuple(given))
    return str(given[-1]) if found is None else found.text


def _patch_in_text(text: str) -> str:
    if text.lstrip().startswith(_JSON_BEGINS):
        try:
            inner = decode(text)
        except RespondToModel:
            return text
        return patch_text(inner) or text
    found = patch_in(text)
    return text if found is None or found.workdir is not None else found.text
