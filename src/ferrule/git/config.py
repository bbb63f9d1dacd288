"""Git's configuration files as (key, value) pairs (git-config(1), "Configuration file" and "Syntax")."""

import os
import re
from collections.abc import Iterator, Mapping

import msgspec

from ferrule.reading import Unreadable, read_file

LARGEST_SETTINGS = 1 << 18
"""Bytes of the user's own configuration: some thousand lines."""

_HEADER = re.compile(r'\[([A-Za-z0-9.-]+)(?:[ \t\r]+"((?:[^"\\\n]|\\[^\n])*)")?\]')
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*")
_BLANK = re.compile(r"[ \t\r\n]+|[#;][^\n]*")
_PLAIN = re.compile(r'([^"\\#;\r\n]*)(?=[#;\n]|\Z)')
_SPACES = " \t\r"
"""What git takes for white space; Python knows more of it."""
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", '"': '"', "\\": "\\"}


class ConfigError(Exception):
    """A line that git would refuse; the text names its number."""


class Entry(msgspec.Struct, frozen=True):
    """`section` and `name` in lower case, the subsection between them as it stands."""

    section: str
    subsection: str | None
    name: str
    value: str

    @property
    def key(self) -> str:
        """As `git config --list` writes it."""
        return ".".join(part for part in (self.section or None, self.subsection, self.name) if part is not None)


def decode_config(content: bytes) -> str:
    """The text of a configuration file; bytes that are no UTF-8 become what stands for them in a path."""
    return content.decode("utf-8", "surrogateescape")


def parse_config(text: str) -> Iterator[Entry]:
    """The entries in their order; a key without a value means `true`. Raises `ConfigError` where git would fail.

    A key or value ends at a NUL, as git's strings do: `[core "fsmonitor<NUL>"]` sets `core.fsmonitor`, whatever the
    name below it is.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    position, section = 0, ""
    while position < len(text):
        if blank := _BLANK.match(text, position):
            position = blank.end()
        elif header := _HEADER.match(text, position):
            section = _section(header)
            position = header.end()
        elif key := _KEY.match(text, position):
            value, position = _value(text, key.end())
            yield _entry((section + key[1].lower()).partition("\0")[0], value.partition("\0")[0])
        else:
            raise ConfigError(f"line {text.count(chr(10), 0, position) + 1} is no configuration")


def _section(header: re.Match[str]) -> str:
    """What stands before a name in its key."""
    if header[2] is None:
        return f"{header[1].lower()}."
    subsection = re.sub(r"\\(.)", r"\1", header[2])
    return f"{header[1].lower()}.{subsection}."


def _entry(key: str, value: str) -> Entry:
    """Git, too, takes a key apart at its first and its last dot."""
    section, dot, rest = key.partition(".")
    if not dot:
        return Entry("", None, section, value)
    subsection, dot, name = rest.rpartition(".")
    return Entry(section, subsection if dot else None, name, value)


def _value(text: str, position: int) -> tuple[str, int]:
    """The value that begins at `position`, behind a key, and where the next line begins."""
    if text[position : position + 1] != "=":
        if text[position : position + 1] not in ("", "\n", "#", ";"):
            raise ConfigError(f"line {text.count(chr(10), 0, position) + 1}: a key is followed by neither = nor an end")
        return "true", position
    if plain := _PLAIN.match(text, position + 1):
        return plain[1].strip(_SPACES), plain.end()
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
                kept = len(parts)
                continue
            if following not in _ESCAPES:
                raise ConfigError(f"line {text.count(chr(10), 0, position) + 1}: a backslash before {following!r}")
            char = _ESCAPES[following]
        elif char == '"':
            quoted = not quoted
            kept = len(parts)
            continue
        elif not quoted and char in _SPACES:
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
            text = decode_config(read_file(file, LARGEST_SETTINGS))
            found |= {entry.key: entry.value for entry in parse_config(text)}
        except (FileNotFoundError, Unreadable, ConfigError):
            continue
    return found
