"""Git's configuration files as (key, value) pairs (git-config(1), "Configuration file" and "Syntax")."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ferrule.reading import Unreadable, read_file

LARGEST_SETTINGS = 1 << 18
"""Bytes of the user's own configuration: some thousand lines."""

_HEADER = re.compile(r'\[\s*([A-Za-z0-9.-]+)\s*(?:"((?:[^"\\\n]|\\[^\n])*)"\s*)?\]')
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*")
_BLANK = re.compile(r"[\s]+|[#;][^\n]*")
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", '"': '"', "\\": "\\"}


class ConfigError(Exception):
    """A line that git would refuse; the text names its number."""


@dataclass(frozen=True, slots=True)
class Entry:
    """`section` and `name` in lower case, the subsection between them as it stands."""

    section: str
    subsection: str | None
    name: str
    value: str

    @property
    def key(self) -> str:
        """As `git config --list` writes it."""
        return ".".join(part for part in (self.section or None, self.subsection, self.name) if part is not None)


def parse_config(text: str) -> Iterator[Entry]:
    """The entries in their order; a key without a value means `true`. Raises `ConfigError` where git would fail."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    position, section, subsection = 0, "", None
    while position < len(text):
        if blank := _BLANK.match(text, position):
            position = blank.end()
        elif header := _HEADER.match(text, position):
            section, subsection = _section(header)
            position = header.end()
        elif key := _KEY.match(text, position):
            value, position = _value(text, key.end())
            yield Entry(section, subsection, key[1].lower(), value)
        else:
            raise ConfigError(f"line {text.count(chr(10), 0, position) + 1} is no configuration")


def _section(header: re.Match[str]) -> tuple[str, str | None]:
    if header[2] is not None:
        return header[1].lower(), re.sub(r"\\(.)", r"\1", header[2])
    section, dot, subsection = header[1].lower().partition(".")
    return section, subsection if dot else None


def _value(text: str, position: int) -> tuple[str, int]:
    """The value that begins at `position`, behind a key, and where the next line begins."""
    if text[position : position + 1] != "=":
        if text[position : position + 1] not in ("", "\n", "#", ";"):
            raise ConfigError(f"line {text.count(chr(10), 0, position) + 1}: a key is followed by neither = nor an end")
        return "true", position
    parts: list[str] = []
    kept, quoted, position = 0, False, position + 1
    while position < len(text):
        char = text[position]
        position += 1
        if char == "\n" or (char in "#;" and not quoted):
            position -= 1
            break
        if char == "\\":
            following = text[position : position + 1]
            position += 1
            if following == "\n":
                continue
            if following not in _ESCAPES:
                raise ConfigError(f"line {text.count(chr(10), 0, position) + 1}: a backslash before {following!r}")
            char = _ESCAPES[following]
        elif char == '"':
            quoted = not quoted
            kept = len(parts)
            continue
        elif not quoted and char.isspace():
            if parts:
                parts.append(char)
            continue
        parts.append(char)
        kept = len(parts)
    if quoted:
        raise ConfigError(f"line {text.count(chr(10), 0, position) + 1}: a quotation mark is missing")
    return "".join(parts[:kept]), position


def user_settings(env: Mapping[str, str]) -> dict[str, str]:
    """The user's own settings, the last value of each key: `~/.config/git/config`, then `~/.gitconfig`.

    Includes are not followed; a file that cannot be read says nothing.
    """
    home = env.get("HOME") or os.path.expanduser("~")
    files = (os.path.join(env.get("XDG_CONFIG_HOME") or f"{home}/.config", "git/config"), f"{home}/.gitconfig")
    found: dict[str, str] = {}
    for file in files:
        try:
            text = read_file(file, LARGEST_SETTINGS).decode("utf-8", "replace")
            found |= {entry.key: entry.value for entry in parse_config(text)}
        except (FileNotFoundError, Unreadable, ConfigError):
            continue
    return found
