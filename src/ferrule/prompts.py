"""Custom prompts: the user's own Markdown files in `prompts`, said as `/prompts:NAME ARGUMENTS`.

Format and placeholders are Codex's. A body with `$KEY` takes `KEY=value` for each; another one takes words: `$1` to
`$9`, and `$ARGUMENTS` for all. `$$` stays as it is. What an argument brings is not looked at again.
"""

import os
import re
from collections.abc import Iterator

import msgspec

from ferrule.protocol.errors import UsageError
from ferrule.reading import Unreadable, read_file

PREFIX = "/prompts:"
FOLDER = "prompts"
"""Below Ferrule's home."""
SUFFIX = ".md"
MAX_BYTES = 256 << 10
"""Of one prompt: many times what anybody writes."""
SHOWN_NAMES = 5
"""Names in one error."""
_NAMED = r"(?<!\$)\$([A-Z][A-Z0-9_]*)"
_COUNTED = r"\$(\$|[1-9]|ARGUMENTS)"
"""Not compiled here: few runs say a prompt, and every run starts."""


class CustomPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt of the user. `path` is the absolute place of its file."""

    name: str
    description: str
    argument_hint: str
    path: str
    body: str


class BadPrompt(msgspec.Struct, frozen=True):
    """A file that cannot be used. `text` continues the sentence after its path."""

    path: str
    text: str


def custom_prompts(home: str) -> Iterator[CustomPrompt | BadPrompt]:
    """Read the prompts in Ferrule's `home`, by name."""
    for name in _names(home):
        path = _path(home, name)
        try:
            yield read_prompt(path, name)
        except FileNotFoundError:  # gone meanwhile, or a link to nothing
            yield BadPrompt(path, "leads to no file")
        except Unreadable as problem:
            yield BadPrompt(path, str(problem))


def read_prompt(path: str, name: str) -> CustomPrompt:
    """Read one prompt. Raises `FileNotFoundError` and `Unreadable`."""
    from ferrule.front_matter import front_matter

    fields, body = front_matter(read_file(path, MAX_BYTES).decode(errors="replace"))
    description, hint = (" ".join(fields.get(key, "").split()) for key in ("description", "argument-hint"))
    return CustomPrompt(name=name, description=description, argument_hint=hint, path=path, body=body.strip())


def expand_prompt(text: str, home: str) -> str:
    """Return what `text` stands for: the prompt in `home` that it names as `/prompts:NAME`, with its arguments put in.
    Any other text stands for itself, also one that begins with `/`, or with a space.

    Raises `UsageError` for a prompt that does not exist or cannot be read, and for arguments that do not fit.
    """
    if not text.startswith(PREFIX):
        return text
    name, _, arguments = re.sub(r"\s", " ", text.removeprefix(PREFIX), count=1).partition(" ")
    if not name:
        return text
    path = _path(home, name)
    if "/" in name:
        raise UsageError(_unknown(name, home))
    try:
        prompt = read_prompt(path, name)
    except FileNotFoundError as error:
        raise UsageError(_unknown(name, home)) from error
    except Unreadable as problem:
        raise UsageError(f"the prompt {path} {problem}") from problem
    expanded = fill_in(prompt.body, arguments, f"{PREFIX}{name}")
    if not expanded.strip():
        raise UsageError(f"the prompt {path} says nothing: write what to do into it")
    return expanded


def fill_in(body: str, arguments: str, command: str) -> str:
    """Put the arguments into a prompt's body. Pure. Raises `UsageError`, which names the `command`."""
    words = _words(arguments)
    names = [name for name in dict.fromkeys(re.findall(_NAMED, body)) if name != "ARGUMENTS"]
    if not names:
        counted = {str(number): word for number, word in enumerate(words[:9], 1)}
        counted |= {"$": "$$", "ARGUMENTS": " ".join(words)}
        return re.sub(_COUNTED, lambda found: counted.get(found[1], ""), body)
    given: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise UsageError(f"{command} takes KEY=value, not {word!r}; put a value with spaces in double quotes")
        given[key] = value
    missing = [f"{name}=..." for name in names if name not in given]
    if missing:
        raise UsageError(f"{command} needs {' '.join(missing)} behind it; put a value with spaces in double quotes")
    return re.sub(_NAMED, lambda found: given.get(found[1], found[0]), body)


def _words(arguments: str) -> list[str]:
    """Split as a shell does; text whose quotes do not match, as with an apostrophe, is split at spaces."""
    import shlex

    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()


def _names(home: str) -> list[str]:
    try:
        files = os.listdir(os.path.join(home, FOLDER))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UsageError(f"{os.path.join(home, FOLDER)} cannot be read: {error.strerror}") from error
    return sorted(name.removesuffix(SUFFIX) for name in files if name.endswith(SUFFIX) and not name.startswith("."))


def _path(home: str, name: str) -> str:
    return os.path.join(home, FOLDER, name + SUFFIX)


def _unknown(name: str, home: str) -> str:
    from difflib import get_close_matches

    names = _names(home)
    near = get_close_matches(name, names, SHOWN_NAMES)
    if near:
        advice = "did you mean " + " or ".join(f"{PREFIX}{one}" for one in near) + "?"
    elif names:
        more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
        advice = f"there are {', '.join(names[:SHOWN_NAMES])}{more}"
    else:
        advice = f"there are none yet; write one to {_path(home, 'NAME')}"
    return f"there is no prompt {name!r} in {os.path.join(home, FOLDER)}: {advice} (a space before it says it as it is)"
