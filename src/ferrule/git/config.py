"""Parse git's configuration files (git-config(1), "Configuration file" and "Syntax")."""

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
"""What git treats as white space; Python includes more."""
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", '"': '"', "\\": "\\"}


class ConfigError(Exception):
    """A line that git would reject; the text gives its number."""


class Entry(msgspec.Struct, frozen=True):
    """One setting: `section` and `name` in lower case, the subsection as written."""

    section: str
    subsection: str | None
    name: str
    value: str

    @property
    def key(self) -> str:
        """The key as `git config --list` writes it."""
        return ".".join(part for part in (self.section or None, self.subsection, self.name) if part is not None)


def decode_config(content: bytes) -> str:
    """Decode a configuration file; bytes that are not UTF-8 are escaped as in paths."""
    return content.decode("utf-8", "surrogateescape")


def parse_config(text: str) -> Iterator[Entry]:
    """Yield the entries in order; a key without a value means `true`. Raises `ConfigError` where git would fail.

    A key or value ends at a NUL, as git's strings do: `[core "fsmonitor<NUL>"]` sets `core.fsmonitor`, whatever name
    follows.
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
    """Return the part of a key before its name."""
    if header[2] is None:
        return f"{header[1].lower()}."
    subsection = re.sub(r"\\(.)", r"\1", header[2])
    return f"{header[1].lower()}.{subsection}."


def _entry(key: str, value: str) -> Entry:
    """Split a key at its first and last dot, as git does."""
    section, dot, rest = key.partition(".")
    if not dot:
        return Entry("", None, section, value)
    subsection, dot, name = rest.rpartition(".")
    return Entry(section, subsection if dot else None, name, value)


def _value(text: str, position: int) -> tuple[str, int]:
    """Parse the value at `position`, after a key. Returns it and the position behind it."""
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
    """Return the user's own settings, the last value of each key: `~/.config/git/config`, then `~/.gitconfig`.

    Includes are not followed; a file that cannot be read is skipped.
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
