"""Read the head of a Markdown file: the fields between two lines of `---`, as skills and prompts have them.

It is the part of YAML that people write there, read leniently: quoted and plain text, also over several lines, and
blocks (`|`, `>`). Keys with anything below them that is no text are read as text, too, which nobody asks for. Pure.
"""

import re
from collections.abc import Sequence

_BLOCK = re.compile(r"([|>])[-+0-9]*\s*(?:#.*)?$")
_QUOTED = re.compile(r"""(?:"((?:[^"\\]|\\.)*)"|'((?:[^']|'')*)')""")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


def front_matter(text: str) -> tuple[dict[str, str], str]:
    """Return the fields of the head and the text behind it; no fields and the whole text where there is no head."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return {}, text
    end = next((at for at, line in enumerate(lines) if at and line.rstrip() in ("---", "...")), None)
    if end is None:
        return {}, text
    return _fields(lines[1:end]), "\n".join(lines[end + 1 :])


def _fields(lines: Sequence[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    at = 0
    while at < len(lines):
        key, colon, first = lines[at].partition(":")
        is_field = colon and key[:1] not in " \t#-" and (not first or first[0] in " \t")
        at += 1
        below = at
        while at < len(lines) and (not lines[at].strip() or lines[at][0] in " \t"):
            at += 1
        if is_field:
            fields[key.strip().strip("\"'")] = _value(first.strip(), lines[below:at])
    return fields


def _value(first: str, below: Sequence[str]) -> str:
    block = _BLOCK.match(first)
    if block is not None:
        return _block(below, folded=block[1] == ">")
    quoted = _QUOTED.match(" ".join(filter(None, (line.strip() for line in (first, *below)))))
    if quoted is not None:
        double, single = quoted.groups()
        return single.replace("''", "'") if double is None else _ESCAPE.sub(_unescaped, double)
    text = " ".join(filter(None, (_COMMENT.sub("", line).strip() for line in (first, *below))))
    return "" if text in ("~", "null") else text


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPED.get(code, code)


def _block(lines: Sequence[str], *, folded: bool) -> str:
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    texts = [line[indent:].rstrip() for line in lines]
    if not folded:
        return "\n".join(texts).strip("\n")
    paragraphs = re.split(r"\n{2,}", "\n".join(texts).strip("\n"))
    return "\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)
