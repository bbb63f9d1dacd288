"""Globs as ripgrep reads them, and the lines of ignore files. Source: the crates globset and ignore of ripgrep 14.

`*` and `?` do not cross a `/`; `**` does, alone between slashes or at an end; `{a,b}` alternates and nests; `[...]`
is a class; a backslash takes the next character as it is.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from ferrule.protocol.errors import RespondToModel


class GlobError(RespondToModel):
    """The glob cannot be read; the text is for the model."""


class Rule(NamedTuple):
    """One line of an ignore file: what it matches, whether it negates an earlier line, and whether it is for
    directories only. Paths are relative to the file's folder, without a leading or trailing slash."""

    matches: "re.Pattern[str]"
    negated: bool
    folders_only: bool


@lru_cache(maxsize=4096)
def glob_regex(glob: str) -> "re.Pattern[str]":
    """Return the whole-path pattern of a glob; paths come from `os`, with surrogate escapes. Raises `GlobError`."""
    return re.compile(_Reader(glob).whole(), re.DOTALL)


@lru_cache(maxsize=4096)
def rule_of(line: str) -> Rule | None:
    """Parse a line of an ignore file; None for blank lines, comments, bad globs and what would take for ever."""
    if "{" in line and line.count("*") > MOST_WITH_BRACES:
        return None
    try:
        return parse_rule(line)
    except GlobError:
        return None


def parse_rule(line: str) -> Rule | None:
    """Return the same. Raises `GlobError` for a bad glob."""
    try:
        return _parsed(line)
    except GlobError as error:
        raise GlobError(f"error parsing glob '{line}': {error}") from error


def _parsed(line: str) -> Rule | None:
    if line.startswith("#"):
        return None
    if not line.endswith("\\ "):
        line = line.rstrip()
    if not line:
        return None
    negated = anchored = False
    if line.startswith(("\\!", "\\#")):
        line = line[1:]
        anchored = line.startswith("/")
    else:
        if line.startswith("!"):
            negated, line = True, line[1:]
        if line.startswith("/"):
            anchored, line = True, line[1:]
    folders_only = line.endswith("/")
    if folders_only:
        line = line[:-1]
    glob = line
    if not anchored and "/" not in line and not glob.startswith("**/"):
        glob = f"**/{glob}"
    if glob.endswith("/**"):
        glob = f"{glob}/*"
    return Rule(glob_regex(glob), negated, folders_only)


_ANY_DEPTH = "(?:/?|.*/)"
"""How a leading `**/` reads: of a rule without a slash, too."""


_BETWEEN = "(?:/|/.*/)"
"""How a `/**/` reads."""
_STAR = "[^/]*"
_DEPTHS = (_ANY_DEPTH, _BETWEEN)
MOST_WITH_BRACES = 3
"""Stars in a line with braces, which are tried in all combinations; without braces each is tried once. Git knows no
braces, so that nearly no file has such lines."""


def some_of(patterns: Sequence["re.Pattern[str]"]) -> "re.Pattern[str]":
    """Return one pattern that matches whatever one of these does. Most lines of ignore files hold at any depth; they
    share the search for it."""
    texts = [pattern.pattern for pattern in patterns]
    deep = "|".join(text.removeprefix(_ANY_DEPTH) for text in texts if text.startswith(_ANY_DEPTH))
    others = [f"(?:{text})" for text in texts if not text.startswith(_ANY_DEPTH)]
    return re.compile("|".join([*others, f"{_ANY_DEPTH}(?:{deep})"] if deep else others), re.DOTALL)


def _settled(parts: Sequence[str]) -> list[str]:
    """Let what stands before another star match once, at the first place: that star takes whatever is left. Without
    this, a line of an untrusted ignore file could make the search try all combinations, which takes for ever."""
    groups: list[list[str]] = [[]]
    for part in parts:
        if part in _DEPTHS:
            groups.append([part])
        else:
            groups[-1].append(part)
    done: list[str] = []
    for number, group in enumerate(groups):
        depth, names = (group[:1], group[1:]) if group[:1] and group[0] in _DEPTHS else ([], group)
        text = "".join(map(_name, _split(names)))
        if depth and number < len(groups) - 1:  # `**/` before another one
            done.append(f"(?>{depth[0].replace('.*', '.*?')}{text}(?=/))")
        else:
            done += [*depth, text]
    return done


def _split(parts: Sequence[str]) -> Iterator[list[str]]:
    """Yield what stands between slashes, and the slashes."""
    name: list[str] = []
    for part in parts:
        if part.startswith("/"):
            yield name
            yield [part]
            name = []
        else:
            name.append(part)
    yield name


def _name(parts: Sequence[str]) -> str:
    """Return the pattern of one name."""
    chunks: list[list[str]] = [[]]
    for part in parts:
        if part != _STAR:
            chunks[-1].append(part)
        elif chunks[-1] or len(chunks) == 1:  # a star after a star adds nothing
            chunks.append([])
    first, *later = chunks
    if not later:
        return "".join(first)
    *middle, last = later
    found = "".join(f"(?>[^/]*?{''.join(map(_within_a_name, chunk))})" for chunk in middle)
    return "".join(first) + found + _STAR + "".join(last)


def _within_a_name(part: str) -> str:
    """Keep a class from matching a slash."""
    return f"(?!/){part}" if part.startswith("[") else part


class _Reader:
    """Reads a glob from left to right into a regular expression."""

    def __init__(self, glob: str) -> None:
        self._glob = glob
        self._at = 0
        self._depth = 0

    def whole(self) -> str:
        parts: list[str] = []
        while self._at < len(self._glob):
            parts.append(self._next())
        if self._depth:
            raise GlobError("an opening brace has no closing one")
        return "".join(parts if "(?:" in parts else _settled(parts)) + r"\Z"

    def _next(self) -> str:
        character = self._glob[self._at]
        self._at += 1
        match character:
            case "?":
                return "[^/]"
            case "*":
                return self._stars()
            case "[":
                return self._class()
            case "{":
                self._depth += 1
                return "(?:"
            case "}":
                if not self._depth:
                    raise GlobError("a closing brace has no opening one")
                self._depth -= 1
                return ")"
            case "," if self._depth:
                return "|"
            case "\\":
                return self._escaped()
            case "/":
                return self._slash()
        return re.escape(character)

    def _escaped(self) -> str:
        if self._at >= len(self._glob):
            raise GlobError("dangling '\\'")
        self._at += 1
        return re.escape(self._glob[self._at - 1])

    def _slash(self) -> str:
        """Read a slash, or all of `/**/` and of a final `/**`."""
        rest = self._glob[self._at :]
        if rest == "**" and self._at > 1:
            self._at += 2
            return "/.*"
        if rest.startswith("**/") and self._at > 1:
            while self._glob.startswith("**/", self._at):
                self._at += 3
            return _BETWEEN
        return "/"

    def _stars(self) -> str:
        glob, start = self._glob, self._at - 1
        at_start = start == 0 or (self._depth > 0 and glob[start - 1] in "{,")
        if at_start and glob.startswith("**", start):
            if glob.startswith("**/", start):
                self._at = start + 3
                while glob.startswith("**/", self._at):
                    self._at += 3
                return _ANY_DEPTH
            if len(glob) == start + 2:
                self._at = start + 2
                return ".*"
        return _STAR

    def _class(self) -> str:
        glob, at = self._glob, self._at
        negated = at < len(glob) and glob[at] in "!^"
        at += negated
        start = at
        while at < len(glob) and (glob[at] != "]" or at == start):
            at += 1
        if at >= len(glob):
            raise GlobError("unclosed character class; missing ']'")
        self._at = at + 1
        body = "".join("\\" + c if c in "\\[]^&~|" else c for c in glob[start:at])
        try:
            re.compile(f"[{body}]")
        except re.error as error:
            raise GlobError("invalid range in a character class") from error
        return f"[{'^' if negated else ''}{body}]"
