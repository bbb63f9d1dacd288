"""The families' marks: what opens a call, and how what follows is read.

Sources: the chat templates of the families (Hermes and Qwen, Qwen3-Coder, GLM, Llama 3 and 4, Mistral, DeepSeek, Kimi,
Gemma, MiniMax, gpt-oss), and the form that LM Studio asks other models for.
"""

import html
import re
from collections.abc import Callable
from typing import NamedTuple

from ferrule.model.text.loose import skip_space
from ferrule.model.text.shapes import (
    ARGUMENT_TAGS,
    FUNCTION_TAGS,
    INVOKE_TAGS,
    MORE,
    NOTHING,
    XTML_TAGS,
    Found,
    Result,
    read_arguments,
    read_json,
    read_named,
    read_pythonic,
    read_tags,
    short,
)
from ferrule.model.text.tools import KnownTools, Said

Read = Callable[[str, "re.Match[str]", KnownTools, bool], Result]


class Mark(NamedTuple):
    """`opener` begins a call; `read` reads what follows it."""

    opener: str
    read: Read


LONGEST_TAG = 80
"""Characters of an opening tag; one that is longer is no tag."""

_FUNCTION = re.compile(r"<function(?:=|\s+name=)[\"']?(?P<n>[^>\"'\s]+)[\"']?\s*>")
_INVOKE = re.compile(r"<(?:｜DSML｜\s*|\|DSML\|\s*|[a-z]+:)?invoke\s+name=[\"'](?P<n>[^\"'>]+)[\"']\s*(?P<empty>/?)>")
_NAME_TAG = re.compile(r"<(?:tool_)?name>\s*(?P<n>[\w.-]+)\s*</(?:tool_)?name>\s*<(?:arguments|parameters|args)>")
_WORD = re.compile(r"(?:call:)?(?P<n>[A-Za-z_][\w.-]*)")
_CLOSE = re.compile(
    r"</?(?:tool_call|function_call|toolcall|TOOLCALL|functioncall)s?>|\[END_TOOL_REQUEST\]|<\|[a-z_]*\|>"
)
_NAMED = re.compile(r"\s*(?:call:)?(?P<n>[\w.-]+)(?::\d+)?")
_MISTRAL = re.compile(r"\s*(?P<n>[\w.-]+)(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?")
_KIMI = re.compile(r"\s*(?:functions\.)?(?P<n>[\w.-]+?)(?::\d+)?\s*<\|tool_call_argument_begin\|>")
_SEP = r"<[｜|]tool[▁_]sep[｜|]>"
_DEEPSEEK = re.compile(rf"\s*(?:function{_SEP})?(?P<n>[\w.-]+)(?:{_SEP})?\s*(?:```(?:json)?\s*)?")
_DEEPSEEK_END = re.compile(r"\s*(?:```)?\s*<[｜|]tool[▁_]call[▁_]end[｜|]>")
_XTML = re.compile(r"<\|open\|>call tool=\"(?P<n>[^\"]+)\"[^<]*<\|sep\|>")


def read_inside(text: str, at: int, tools: KnownTools, final: bool) -> Result:
    """Read a call in whatever shape, from behind a mark that many families use."""
    at = skip_space(text, at)
    if at >= len(text):
        return short(text, at, final)
    if text[at] in "{[":
        result = read_json(text, at, tools, final, _CLOSE)
        if text[at] == "[" and not isinstance(result, Found) and text[at + 1 :].lstrip()[:1] not in ("{", ""):
            return read_pythonic(text, at, tools, final)
        return result
    if text[at] == "<":
        return _tagged(text, at, tools, final)
    return _worded(text, at, tools, final)


def _tagged(text: str, at: int, tools: KnownTools, final: bool) -> Result:
    if (opened := _FUNCTION.match(text, at)) is not None:
        return _function(text, opened, tools, final)
    if (opened := _INVOKE.match(text, at)) is not None:
        return _invoke(text, opened, tools, final)
    if (opened := _NAME_TAG.match(text, at)) is not None:
        return read_named(text, at, tools, final, _NAME_TAG)
    return NOTHING if final or len(text) - at > LONGEST_TAG else MORE


def _worded(text: str, at: int, tools: KnownTools, final: bool) -> Result:
    """Read a name and what follows it: tags, brackets, JSON, or nothing."""
    word = _WORD.match(text, at)
    if word is None or (not final and "call:".startswith(text[at:])):
        return NOTHING if word is None else MORE
    following = skip_space(text, word.end())
    if following >= len(text):
        return MORE if not final else NOTHING
    if text.startswith("<arg_key>", following):
        return read_tags(text, following, word["n"], ARGUMENT_TAGS, tools, final)
    if text.startswith("</tool_call>", following) and tools.declares(word["n"]):
        return Found((Said(word["n"], "{}"),), following)
    if text[following] == "<" and not final and len(text) - following < len("</tool_call>"):
        return MORE
    if text[following] == "(":
        return read_pythonic(text, at, tools, final)
    return read_named(text, at, tools, final, _NAMED) if text[following] == "{" else NOTHING


def _function(text: str, opened: "re.Match[str]", tools: KnownTools, final: bool) -> Result:
    at = skip_space(text, opened.end())
    if text.startswith("{", at):
        return read_named(text, opened.start(), tools, final, _FUNCTION)
    return read_tags(text, at, opened["n"], FUNCTION_TAGS, tools, final)


def _invoke(text: str, opened: "re.Match[str]", tools: KnownTools, final: bool) -> Result:
    if opened["empty"]:
        return Found((Said(opened["n"], "{}"),), opened.end())
    return read_tags(text, opened.end(), opened["n"], INVOKE_TAGS, tools, final)


def _inside(text: str, opened: "re.Match[str]", tools: KnownTools, final: bool) -> Result:
    return read_inside(text, opened.end(), tools, final)


def _mistral(text: str, opened: "re.Match[str]", tools: KnownTools, final: bool) -> Result:
    at = skip_space(text, opened.end())
    if at >= len(text):
        return short(text, at, final)
    if text[at] in "[{":
        return read_json(text, at, tools, final)
    named = _MISTRAL.match(text, at)
    if named is not None and named.end() < len(text) and text[named.end()] == "[" and not final:
        return MORE
    return read_named(text, at, tools, final, _MISTRAL)


def _kimi(text: str, opened: "re.Match[str]", tools: KnownTools, final: bool) -> Result:
    if _KIMI.match(text, opened.end()) is None:
        return short(text, opened.end(), final, "its name does not end")
    return read_named(text, opened.end(), tools, final, _KIMI)


def _kimi_section(text: str, opened: "re.Match[str]", tools: KnownTools, final: bool) -> Result:
    """Pass over what stands before the first call."""
    begun = re.compile(r"<\|tool_call(?:_begin|s_section_end)\|>").search(text, opened.end())
    return short(text, opened.end(), final) if begun is None else Found((), begun.start())


def _deepseek(text: str, opened: "re.Match[str]", tools: KnownTools, final: bool) -> Result:
    named = _DEEPSEEK.match(text, opened.end())
    if named is None or (named.end() < len(text) and text[named.end()] != "{"):
        return NOTHING if final else MORE
    result = read_named(text, opened.end(), tools, final, _DEEPSEEK)
    if not isinstance(result, Found):
        return result
    end = _DEEPSEEK_END.match(text, result.end)
    if end is None:
        return result if final or len(text) - result.end > LONGEST_TAG else MORE
    return Found(result.calls, end.end())


def read_xtml(text: str, tag: str, tools: KnownTools, final: bool) -> Result:
    """Read a call behind its opening tag, which begins the text."""
    named = _XTML.match(tag)
    if named is None:
        return NOTHING
    return read_tags(text, len(tag), html.unescape(named["n"]), XTML_TAGS, tools, final)


def read_harmony(text: str, header: str, final: bool) -> Result:
    """Read a call behind its header, which begins the text."""
    recipient = RECIPIENT.search(header)
    return NOTHING if recipient is None else read_arguments(text, len(header), recipient[1], final)


MARKS: dict[str, Mark] = {
    "inside": Mark(
        r"<(?:tool_call|function_call|toolcall|TOOLCALL|functioncall|minimax:tool_call|tool_code)>"
        r"|\[TOOL_REQUEST\]|<\|tool_call\|?>|<\|tool_call_start\|>|<\|python_(?:tag|start)\|>|<\|action_start\|>"
        r"|<start_function_call>|functools(?=\[)",
        _inside,
    ),
    "function": Mark(_FUNCTION.pattern.replace("?P<n>", "?P<fn>"), lambda t, m, k, f: _tagged(t, m.start(), k, f)),
    "invoke": Mark(
        _INVOKE.pattern.replace("?P<n>", "?P<iv>").replace("?P<empty>", ""),
        lambda t, m, k, f: _tagged(t, m.start(), k, f),
    ),
    "mistral": Mark(r"\[TOOL_CALLS\]", _mistral),
    "kimi": Mark(r"<\|tool_call_begin\|>", _kimi),
    "kimisection": Mark(r"<\|tool_calls_section_begin\|>", _kimi_section),
    "deepseek": Mark(r"<[｜|]tool[▁_]call[▁_]begin[｜|]>", _deepseek),
}

WRAPPER = re.compile(
    r"<(?:｜DSML｜\s*|\|DSML\|\s*|[a-z]+:)?(?:function_calls|tool_calls|calls)>|<[｜|]tool[▁_]calls[▁_]begin[｜|]>"
    r"|<\|action_start\|><\|plugin\|>"
)
"""Opens a group of calls: dropped before a call, text anywhere else."""

CLOSERS = re.compile(
    r"</(?:｜DSML｜\s*|\|DSML\|\s*|[a-z]+:)?(?:tool_calls?|function_calls?|calls|toolcall|TOOLCALL|functioncall|function|"
    r"invoke|tool_code|arguments|parameters|args)>|<\|tool_calls_section_end\|>|<\|tool_call_end\|>|<tool_call\|>"
    r"|<\|/tool_call\|>|<[｜|]tool[▁_]calls?[▁_]end[｜|]>|\[END_TOOL_REQUEST\]|\[/TOOL_CALLS\]|<\|action_end\|>"
    r"|<end_function_call>|<\|python_end\|>|<\|tool_response>"
)
"""Close calls: dropped behind a call."""

SILENT = re.compile(r"<\|(?:end|return|call)\|>|<\|e(?:om|ot)(?:_id)?\|>|<\|im_end\|>|</s>")
"""What belongs to a template, and never to an answer."""

RECIPIENT = re.compile(r"\bto=(?:functions\.)?([\w.-]+)")
HEADER = re.compile(r"(?:<\|(?:start|channel)\|>|\A\s?to=functions\.)(?:[^<{\n]|<\|(?:channel|constrain)\|>)*")
"""A header of gpt-oss, up to `HEADER_END`."""
HEADER_END = "<|message|>"
XTML_TAG = re.compile(r"<\|(?:open|close)\|>[^<]*")
"""A tag of Kimi K3, up to `XTML_TAG_END`."""
XTML_TAG_END = "<|sep|>"
BRACKETED = ("[TOOL_CALLS]", "[TOOL_REQUEST]", "[END_TOOL_REQUEST]", "[/TOOL_CALLS]", "[THINK]", "[/THINK]")
"""Marks in brackets, which begin like a list."""

THOUGHTS = {
    "<think>": "</think>",
    "[THINK]": "[/THINK]",
    "<|channel>thought": "<channel|>",
}
"""What opens reasoning, and what closes it."""
LATE_THOUGHT_ENDS = ("</think>", "[/THINK]")
"""What closes reasoning that the prompt has opened."""
