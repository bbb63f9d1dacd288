"""Find the calls in an answer while it arrives.

The rule of what is a call: a family's own mark makes one, anywhere outside of code, quotations and reasoning. Without a
mark (a fenced block that holds nothing else, a JSON object, a function call as in Python, each on lines of its own) it
is one if it names a tool that exists and nothing but calls follows it. Everything else is text: what stands in
backquotes, in a fenced block beside other things, or before more words is an example.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from ferrule.model.text.loose import Unreadable, read_value, skip_space
from ferrule.model.text.marks import (
    BRACKETED,
    CLOSERS,
    HEADER,
    HEADER_END,
    LATE_THOUGHT_ENDS,
    MARKS,
    RECIPIENT,
    SILENT,
    THOUGHTS,
    WRAPPER,
    XTML_TAG,
    XTML_TAG_END,
    read_harmony,
    read_xtml,
)
from ferrule.model.text.shapes import (
    MORE,
    NOTHING,
    Broken,
    Found,
    Result,
    has_arguments,
    read_json,
    read_pythonic,
)
from ferrule.model.text.tools import KnownTools, Said

LONGEST_TOKEN = 96
"""Characters of an unfinished tag that are held back at most."""
GROWTH = 8
"""A call that is not whole is read again when it has grown by one part in so many: the work stays linear."""

MAX_ATTEMPTS = 64
"""Texts of one answer that are read as a call without a mark and are none. One with more is about something else."""

_CALL_FENCES = frozenset(
    {"", "json", "jsonc", "json5", "xml", "tool_call", "tool_calls", "tool_code", "tool", "function_call"}
)
"""Languages of fenced blocks that may hold a call."""
_FENCE = r"(?P<fence>`{3,}|~{3,})(?P<language>[^\n`]*)(?:\n|\Z)"
_CALL_KEYS = re.compile(r"\{\s*(?:[\"'](?P<key>[^\"']*)[\"']|\Z|[\"'])")
_EARLY_KEYS = frozenset(
    {"name", "tool_name", "function_name", "tool", "function", "action", "arguments", "parameters", "args", "params"}
    | {"input", "type", "id", "tool_calls", "tool_call", "function_call"}
)


class Unread(NamedTuple):
    """A call that could not be read, as it stood, and why."""

    text: str
    why: str


class Ending(NamedTuple):
    """What the end of an answer brings: the last text, the calls, and calls that cannot be read."""

    text: str
    calls: tuple[Said, ...] = ()
    unread: tuple[Unread, ...] = ()
    late_thought: bool = False
    """The text begins with reasoning whose opening tag the prompt contains."""


class _Entry(NamedTuple):
    raw: str
    calls: tuple[Said, ...]
    marked: bool
    why: str = ""


class CallFinder:
    """Fed with the pieces of one message; returns the text to show."""

    def __init__(self, tools: KnownTools) -> None:
        self._tools = tools
        self._trigger = _trigger(tools.names)
        self._text = ""
        self._before = "\n"
        self._entries: list[_Entry] = []
        self._gap = ""
        self._shown = False
        self._closing: str | None = None
        self._fence = ""
        self._due = 0
        self._late = False
        self._attempts = 0

    def feed(self, piece: str) -> str:
        """Return the text that is certain to be no call."""
        self._text += piece
        if len(self._text) < self._due:
            return ""
        return self._advance(False)

    def finish(self, *, cut: bool = False) -> Ending:
        """Return the rest. `cut`: the answer reached a limit, so what is not whole is text."""
        shown = "" if cut else self._advance(True)
        rest, self._text = self._text, ""
        if cut and self._entries:
            shown += self._back_to_text(lambda entry: entry.marked)
        shown += self._show(rest)
        calls = tuple(call for entry in self._entries for call in entry.calls)
        unread = tuple(Unread(entry.raw, entry.why) for entry in self._entries if entry.why)
        return Ending(shown, calls, unread, self._late)

    def _advance(self, final: bool) -> str:
        out: list[str] = []
        self._due = 0
        while self._text:
            step = self._in_thought if self._closing else self._in_fence if self._fence else self._in_text
            more = step(out, final)
            if not more:
                break
        return "".join(out)

    # --- where the text stands

    def _in_thought(self, out: list[str], final: bool) -> bool:
        """Pass reasoning on. Return whether to go on."""
        assert self._closing is not None
        end = self._text.find(self._closing)
        if end >= 0:
            out.append(self._take(end))
            self._drop(len(self._closing))
            out.append(self._show("</think>"))
            self._closing = None
            return True
        called = re.compile(r"<tool_call>|<function=").search(self._text)
        if called is not None:
            out.append(self._take(called.start()))
            if final:
                self._closing = None
            return final
        out.append(self._take(len(self._text) if final else len(self._text) - _unfinished(self._text)))
        return False

    def _in_fence(self, out: list[str], final: bool) -> bool:
        """Pass a block of code on."""
        close = re.compile(rf"(?m)^[ \t]*{re.escape(self._fence)}[`~]*[ \t]*(?:\n|\Z)").search(self._text)
        if close is not None and (close[0].endswith("\n") or final):
            out.append(self._take(close.end()))
            self._fence = ""
            return True
        whole = len(self._text) if final else self._text.rfind("\n") + 1
        out.append(self._take(whole))
        return False

    def _in_text(self, out: list[str], final: bool) -> bool:
        found = self._trigger.search(self._text)
        if found is None:
            out.append(self._take(len(self._text) - (0 if final else self._held())))
            return False
        if found.start():
            out.append(self._take(found.start()))
            return True
        result = self._read(found, out, final)
        if result is MORE:
            self._due = len(self._text) + len(self._text) // GROWTH
            return False
        if result is NOTHING:
            out.append(self._take(max(found.end() if found.lastgroup == "ticks" else 1, 1)))
        return True

    def _read(self, found: "re.Match[str]", out: list[str], final: bool) -> Result | None:
        """Read what begins here. None: it is dealt with."""
        text, kind = self._text, found.lastgroup or ""
        token = found[0]
        if kind == "ticks":
            return self._ticks(out, final)
        if kind == "thought":
            return self._thought(token, out)
        if kind == "late":
            self._late_end(token, out)
            return None
        if kind == "header":
            return self._header(found, out, final)
        if kind == "tag":
            return self._tag(found, out, final)
        if kind == "silent":
            self._drop(len(token))
            return None
        if kind == "closer":
            if not self._entries:
                return NOTHING
            last, gap, self._gap = self._entries[-1], self._gap, ""
            self._entries[-1] = last._replace(raw=last.raw + gap + token)
            self._drop(len(token))
            return None
        if kind == "wrapper":
            return self._wrapper(found, final)
        if kind == "bare":
            return self._keep(self._bare(final), marked=False)
        if self._is_quoted():
            return NOTHING
        name = kind.removeprefix("m_")
        return self._keep(MARKS[name].read(text, found, self._tools, final), marked=True)

    def _thought(self, token: str, out: list[str]) -> Result | None:
        """Reasoning begins, if nothing has been said yet."""
        if self._shown:
            return NOTHING
        self._begin_thought(token, THOUGHTS[token], out)
        return None

    def _begin_thought(self, token: str, closing: str, out: list[str]) -> None:
        self._closing = closing
        self._drop(len(token))
        out.append(self._show("<think>"))

    def _late_end(self, token: str, out: list[str]) -> None:
        """Reasoning ends that the prompt has opened: what was found in it is no call."""
        out.append(self._back_to_text(lambda _: False))
        self._late = True
        self._drop(len(token))
        out.append(self._show("</think>"))

    def _header(self, found: "re.Match[str]", out: list[str], final: bool) -> Result | None:
        """Read a header of gpt-oss: it says whether reasoning, an answer or a call follows."""
        rest = self._text[found.end() :]
        if not rest.startswith(HEADER_END):
            return NOTHING if final or ">" in rest or len(self._text) > 2 * LONGEST_TOKEN else MORE
        header = found[0] + HEADER_END
        if RECIPIENT.search(header):
            return self._keep(read_harmony(self._text, header, final), marked=True)
        if "analysis" in header:
            self._begin_thought(header, "<|end|>", out)
        else:
            self._drop(len(header))
        return None

    def _tag(self, found: "re.Match[str]", out: list[str], final: bool) -> Result | None:
        """Read a tag of Kimi K3."""
        rest = self._text[found.end() :]
        if not rest.startswith(XTML_TAG_END):
            return NOTHING if final or ">" in rest else MORE
        tag = found[0] + XTML_TAG_END
        if tag.startswith("<|open|>call "):
            return self._keep(read_xtml(self._text, tag, self._tools, final), marked=True)
        if tag.startswith("<|open|>think"):
            self._begin_thought(tag, "<|close|>think<|sep|>", out)
        elif tag.startswith("<|close|>think"):
            self._late_end(tag, out)
        else:
            self._drop(len(tag))
        return None

    def _wrapper(self, found: "re.Match[str]", final: bool) -> Result | None:
        at = skip_space(self._text, found.end())
        opened = self._trigger.match(self._text, at)
        if opened is not None and (opened.lastgroup or "").startswith("m_"):
            self._drop(at)
            return None
        if not final and len(self._text) - at < LONGEST_TOKEN and self._text[at : at + 1] in ("", "<"):
            return MORE
        return NOTHING

    def _ticks(self, out: list[str], final: bool) -> Result | None:
        """Read backquotes: a block, or code within a line."""
        fence = re.compile(_FENCE).match(self._text)
        if fence is not None and self._at_line_start():
            if not final and not fence[0].endswith("\n"):
                return MORE
            return self._block(fence, out, final)
        ticks = re.match(r"[`~]+", self._text)
        assert ticks is not None
        if ticks[0].startswith("~"):
            return NOTHING
        if self._at_line_start() and len(ticks[0]) == len(self._text) and not final:
            return MORE
        end = re.compile(rf"(?<!`){ticks[0]}(?!`)").search(self._text, ticks.end())
        line = self._text.find("\n", ticks.end())
        if end is not None and (line < 0 or end.start() < line):
            out.append(self._take(end.end()))
            return None
        return MORE if end is None and line < 0 and not final else NOTHING

    def _block(self, fence: "re.Match[str]", out: list[str], final: bool) -> Result | None:
        """Read a fenced block: as a call, if it holds nothing else."""
        text = self._text
        close = re.compile(rf"(?m)^[ \t]*{re.escape(fence['fence'])}[ \t]*(?:\n|\Z)").search(text, fence.end())
        inside = text[fence.end() : close.start() if close else len(text)]
        language = fence["language"].strip().lower()
        may = language in _CALL_FENCES and (not inside.strip() or self._may_be_call(inside.lstrip(), language))
        if may and not final and (close is None or not close[0].endswith("\n")):
            return MORE
        calls = self._calls_of_block(inside.strip()) if may else None
        if calls:
            end = close.end() if close else len(text)
            return self._keep(Found(calls, end), marked=False)
        self._fence = fence["fence"]
        out.append(self._take(fence.end()))
        return None

    def _may_be_call(self, inside: str, language: str) -> bool:
        if inside[0] == "{":
            return self._has_call_key(inside)
        return inside[0] in "[<" or (language in ("tool_code", "tool_call") and inside[0].isidentifier())

    def _calls_of_block(self, inside: str) -> tuple[Said, ...] | None:
        """Return the calls that a text consists of, all of tools that exist."""
        calls: list[Said] = []
        at = 0
        while at < len(inside):
            opened = self._trigger.match(inside, at)
            if opened is not None and opened.lastgroup in ("closer", "wrapper"):
                at = skip_space(inside, opened.end())
                continue
            if opened is not None and (opened.lastgroup or "").startswith("m_"):
                result = MARKS[(opened.lastgroup or "")[2:]].read(inside, opened, self._tools, True)
            elif inside[at] in "{[" or inside[at].isidentifier():
                result = self._unmarked(inside, at, True)
            else:
                return None
            if not isinstance(result, Found):
                return None
            calls += result.calls
            at = skip_space(inside, result.end)
        return tuple(calls) if all(self._tools.declares(call.name) for call in calls) else None

    # --- calls without a mark

    def _bare(self, final: bool) -> Result:
        if not final and any(mark.startswith(self._text) for mark in BRACKETED):
            return MORE
        if self._attempts > MAX_ATTEMPTS or not (self._at_line_start() or self._entries_just_now):
            return NOTHING
        result = self._unmarked(self._text, 0, final)
        self._attempts += result is NOTHING
        return result

    @property
    def _entries_just_now(self) -> bool:
        return bool(self._entries) and not self._gap.strip(" \t\r\n;,")

    def _has_call_key(self, text: str) -> bool:
        """Return whether an object may be a call, by its first key."""
        first = _CALL_KEYS.match(text)
        if first is None or first["key"] is None:
            return first is not None and len(text) < LONGEST_TOKEN
        return first["key"] in _EARLY_KEYS or self._tools.declares(first["key"])

    def _unmarked(self, text: str, at: int, final: bool) -> Result:
        following = text[at + 1 :].lstrip()[:1]
        if text[at] == "[" and following not in ("{", ""):
            return read_pythonic(text, at, self._tools, final, declared=True)
        if text[at] not in "{[":
            return read_pythonic(text, at, self._tools, final, declared=True)
        if not self._has_call_key(text[at:] if text[at] == "{" else text[at + 1 :].lstrip()) and following:
            return NOTHING
        result = read_json(text, at, self._tools, final)
        if isinstance(result, Found):
            whole = has_arguments(_value(text, at)) or (len(result.calls) == 1 and not _is_plain(text, at))
            known = all(self._tools.declares(call.name) for call in result.calls)
            return result if whole and known else NOTHING
        return NOTHING if isinstance(result, Broken) else result

    # --- what has been read

    def _keep(self, result: Result, *, marked: bool) -> Result | None:
        if isinstance(result, Found | Broken):
            calls = result.calls if isinstance(result, Found) else ()
            why = result.why if isinstance(result, Broken) else ""
            raw = self._gap + self._text[: result.end]
            self._gap = ""
            self._drop(result.end)
            if calls or why:
                self._entries.append(_Entry(raw, calls, marked and not why, why))
            return None
        return result

    def _drop(self, length: int) -> None:
        self._before = (self._before + self._text[:length])[-LONGEST_TOKEN:]
        self._text = self._text[length:]

    def _take(self, length: int) -> str:
        piece = self._text[:length]
        self._drop(length)
        return self._show(piece)

    def _show(self, piece: str) -> str:
        """Return text to show. Calls without a mark, and calls that cannot be read, are text when more text follows."""
        if not piece:
            return ""
        if self._entries and not piece.strip(" \t\r\n;,"):
            self._gap += piece
            return ""
        self._shown = self._shown or bool(piece.strip())
        if not self._entries:
            return piece
        gap, self._gap = self._gap, ""
        return self._back_to_text(lambda entry: entry.marked) + gap + piece

    def _back_to_text(self, stays: "Callable[[_Entry], bool]") -> str:
        """Return what stood where calls were found that are none."""
        text = "".join(entry.raw for entry in self._entries if not stays(entry))
        self._entries = [entry for entry in self._entries if stays(entry)]
        return text

    def _at_line_start(self) -> bool:
        return "\n" in self._before and not self._before.rpartition("\n")[2].strip(" \t")

    def _is_quoted(self) -> bool:
        """Return whether the line is quoted, or indented as code is."""
        line = self._before.rpartition("\n")[2]
        return line.lstrip().startswith(">") or (self._shown and line.isspace() and len(line.expandtabs(4)) >= 4)

    def _held(self) -> int:
        """Return how much of the text's end may be the beginning of something."""
        held = _unfinished(self._text)
        if self._before == "\n" and 0 < len(self._text) < LONGEST_TOKEN and _may_be_recipient(self._text.strip()):
            return len(self._text)
        line = self._text.rpartition("\n")[2]
        begins = "\n" in self._text or self._at_line_start()
        word = line.strip(" \t")
        if begins and (not word or any(name.startswith(word) for name in self._tools.names)):
            held = max(held, len(line) if word else 0)
        return held


def _may_be_recipient(text: str) -> bool:
    """Return whether an answer may begin with the recipient of a call, as gpt-oss writes it."""
    return text.startswith("to=functions.") or "to=functions.".startswith(text)


def _unfinished(text: str) -> int:
    """Return the length of an unfinished tag at the end."""
    start = max(text.rfind("<"), text.rfind("["))
    if start < 0 or len(text) - start > LONGEST_TOKEN:
        return 0
    tail = text[start:]
    closed = re.search(r"[>\]]|\s\s|\n", tail)
    if tail[:1] == "<" and (tail[1:2].isspace() or tail[1:2].isdigit()):
        return 0
    return 0 if closed else len(tail)


def _value(text: str, at: int) -> object:
    try:
        return read_value(text, at)[0]
    except Unreadable:
        return None


def _is_plain(text: str, at: int) -> bool:
    value = _value(text, at)
    return (isinstance(value, dict) and "name" in value) or isinstance(value, list)


def _trigger(names: list[str]) -> "re.Pattern[str]":
    """Return the pattern of everything that may begin a call, or hide one."""
    thoughts = "|".join(map(re.escape, THOUGHTS))
    late = "|".join(map(re.escape, LATE_THOUGHT_ENDS))
    marks = "|".join(f"(?P<m_{name}>{mark.opener})" for name, mark in MARKS.items())
    called = "|".join(map(re.escape, sorted(names, key=len, reverse=True))) or r"(?!)"
    start = r"(?:(?<=\n)|\A)[ \t]{0,8}(?:print\s{0,8}\(\s{0,8})?(?:default_api\.|functions\.)?"
    bare = rf"[{{\[]|{start}(?:{called})\s{{0,8}}\("
    parts = [f"(?P<thought>{thoughts})", f"(?P<late>{late})", f"(?P<header>{HEADER.pattern})"]
    parts += [f"(?P<tag>{XTML_TAG.pattern})", marks, f"(?P<wrapper>{WRAPPER.pattern})"]
    parts += [f"(?P<closer>{CLOSERS.pattern})", f"(?P<silent>{SILENT.pattern})", r"(?P<ticks>`+|(?:(?<=\n)|\A)~~~)"]
    return re.compile("|".join([*parts, f"(?P<bare>{bare})"]))
