"""The shapes of a call: a JSON object, a function call as in Python, tags with one parameter each.

A shape returns `Found`, or says why there is nothing: `NOTHING` (no call begins here), `MORE` (the rest may still
come), `Broken` (a call begins here and cannot be read).
"""

import html
import re
from typing import Any, NamedTuple

from ferrule.model.text.loose import Incomplete, Unreadable, as_text, read_value, skip_space
from ferrule.model.text.tools import KnownTools, Said, as_typed


class Found(NamedTuple):
    """Calls that end at `end`."""

    calls: tuple[Said, ...]
    end: int


class Broken(NamedTuple):
    """A call that ends at `end` and cannot be read."""

    why: str
    end: int


class _Outcome(NamedTuple):
    name: str


NOTHING, MORE = _Outcome("nothing"), _Outcome("more")
Result = Found | Broken | _Outcome

ENDLESS = "it does not end"

_NAME_KEYS = ("name", "tool_name", "function_name", "tool", "function", "action")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "params", "input", "tool_input", "action_input", "kwargs")
_NAME = re.compile(r"[A-Za-z_][\w.-]*(?::\d+)?")
_MORE_NAME = re.compile(r"[\w.:-]*")


def short(text: str, at: int, final: bool, why: str = ENDLESS) -> Result:
    """Return the outcome where the text ends inside a call."""
    return Broken(why, len(text)) if final else MORE


# --- JSON


def json_calls(value: object) -> tuple[Said, ...] | None:
    """Return the calls that a JSON value stands for; None if it is something else."""
    if isinstance(value, list):
        listed = [json_calls(entry) for entry in value]
        found = tuple(call for calls in listed for call in calls or ())
        return found if listed and all(listed) else None
    if not isinstance(value, dict):
        return None
    for key in ("tool_calls", "function_call", "tool_call"):
        if isinstance(value.get(key), dict | list) and value[key]:
            return json_calls(value[key])
    return _json_call(value)


def _json_call(value: dict[str, Any]) -> tuple[Said, ...] | None:
    name_key = next((key for key in _NAME_KEYS if key in value), None)
    if name_key is None:
        return None
    name = value[name_key]
    if isinstance(name, dict):
        return _json_call(name)
    arguments_key = next((key for key in _ARGUMENT_KEYS if key in value and key != name_key), None)
    if not isinstance(name, str) or not _NAME.match(name):
        return None
    arguments = {} if arguments_key is None else value[arguments_key]
    if isinstance(arguments, str):
        return (Said(name, arguments),)
    return (Said(name, as_text({} if arguments is None else arguments)),)


def has_arguments(value: object) -> bool:
    """Return whether a JSON value names arguments, as an example of something else seldom does."""
    if isinstance(value, list):
        return all(map(has_arguments, value))
    if not isinstance(value, dict):
        return False
    inner = value.get("function") or value.get("tool_calls") or value.get("function_call")
    return has_arguments(inner) if isinstance(inner, dict | list) else not value.keys().isdisjoint(_ARGUMENT_KEYS)


def read_json(text: str, at: int, tools: KnownTools, final: bool, close: re.Pattern[str] | None = None) -> Result:
    """Read a JSON object or list of calls. `close` ends a broken one."""
    try:
        value, end = read_value(text, at)
    except Incomplete as error:
        return _without_last_brace(text, at, final, close) or short(text, at, final, str(error))
    except Unreadable as error:
        repaired = _without_last_brace(text, at, final, close)
        return repaired or _broken(text, at, final, close, str(error))
    calls = json_calls(value)
    if calls is None and isinstance(value, dict) and len(value) == 1:
        ((name, arguments),) = value.items()
        if tools.declares(name) and isinstance(arguments, dict):
            return Found((Said(name, as_text(arguments)),), end)
    return NOTHING if calls is None else Found(calls, end)


def _broken(text: str, at: int, final: bool, close: re.Pattern[str] | None, why: str) -> Result:
    end = None if close is None else close.search(text, at)
    if end is not None:
        return Broken(why, end.start())
    return short(text, at, final, why)


def _without_last_brace(text: str, at: int, final: bool, close: re.Pattern[str] | None) -> Found | None:
    """Read a call whose arguments are whole, and whose own last brace alone is missing before the closing tag."""
    end = None if close is None else close.search(text, at)
    if end is None or text[at] != "{":
        return None
    try:
        value, read = read_value(text[at : end.start()] + "}", 0)
    except Unreadable:
        return None
    calls = json_calls(value)
    return Found(calls, end.start()) if calls and read > end.start() - at else None


# --- function calls as in Python


def read_pythonic(text: str, at: int, tools: KnownTools, final: bool, *, declared: bool = False) -> Result:
    """Read `name(key=value, ...)`, or a list of such calls; `declared`: only of tools that exist."""
    is_list = text.startswith("[", at)
    calls: list[Said] = []
    at = skip_space(text, at + 1) if is_list else at
    while True:
        one = _pythonic(text, at, tools, final, declared)
        if not isinstance(one, Found):
            return one
        calls += one.calls
        at = skip_space(text, one.end)
        if not is_list:
            return Found(tuple(calls), one.end)
        if at >= len(text):
            return short(text, at, final)
        if text[at] == "]":
            return Found(tuple(calls), at + 1)
        if text[at] != ",":
            return NOTHING
        at = skip_space(text, at + 1)


_PRINT = re.compile(r"print\s*\(\s*(?=[A-Za-z_][\w.]*\s*\()")
_CALLED = re.compile(r"([A-Za-z_][\w.-]*)\s*\(")
_KEYWORD = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)")


def _pythonic(text: str, at: int, tools: KnownTools, final: bool, declared: bool) -> Result:
    printed = _PRINT.match(text, at)
    at = printed.end() if printed else at
    called = _CALLED.match(text, at)
    if called is None:
        word = _MORE_NAME.match(text, at)
        return MORE if word and word.end() == len(text) and not final else NOTHING
    name = called[1]
    if declared and not tools.declares(name):
        return NOTHING
    given: dict[str, Any] = {}
    order = list(tools.parameters(name))
    at = skip_space(text, called.end())
    try:
        while not text.startswith(")", at):
            keyword = _KEYWORD.match(text, at)
            key = keyword[1] if keyword else next((key for key in order if key not in given), "")
            if not key:
                return NOTHING if at < len(text) else short(text, at, final)
            given[key], at = read_value(text, skip_space(text, keyword.end()) if keyword else at)
            at = skip_space(text, at)
            if at >= len(text):
                return short(text, at, final)
            if text[at] not in ",)":
                return NOTHING
            at = skip_space(text, at + 1) if text[at] == "," else at
    except Incomplete:
        return short(text, at, final)
    except Unreadable:
        return NOTHING
    if printed:
        at = skip_space(text, at + 1)
        if not text.startswith(")", at):
            return NOTHING if at < len(text) else short(text, at, final)
    return Found((Said(name, as_text(given)),), at + 1)


# --- tags, one for each parameter


class Dialect(NamedTuple):
    """A way to write a call in tags. `key` opens a parameter, `end` closes it, `close` closes the call."""

    key: re.Pattern[str]
    end: re.Pattern[str]
    close: re.Pattern[str]
    lines: bool = False
    """A value stands on lines of its own."""

    @property
    def tags(self) -> re.Pattern[str]:
        """Any of its tags."""
        return re.compile("|".join(f"(?:{part.pattern})" for part in (self.end, self.close, self.key)))


def _dialect(key: str, end: str, close: str, *, lines: bool = False) -> Dialect:
    return Dialect(re.compile(key), re.compile(end), re.compile(close), lines)


_DSML = r"(?:｜DSML｜\s*|\|DSML\|\s*|[a-z]+:)?"
FUNCTION_TAGS = _dialect(
    r"<parameter(?:=|\s+name=)[\"']?(?P<k>[^>\"']+)[\"']?\s*>", r"</parameter>", r"</function>", lines=True
)
INVOKE_TAGS = _dialect(
    rf"<{_DSML}parameter\s+name=[\"'](?P<k>[^\"']+)[\"'](?:\s+string=[\"'](?P<s>true|false)[\"'])?\s*>",
    rf"</{_DSML}parameter>",
    rf"</{_DSML}invoke>",
)
ARGUMENT_TAGS = _dialect(r"<arg_key>(?P<k>.*?)</arg_key>\s*<arg_value>", r"</arg_value>", r"</tool_call>")
XTML_TAGS = _dialect(
    r"<\|open\|>argument key=\"(?P<k>[^\"]*)\"(?: type=\"(?P<t>\w+)\")?<\|sep\|>",
    r"<\|close\|>argument<\|sep\|>",
    r"<\|close\|>call<\|sep\|>",
)
_FOLLOWS_CALL = re.compile(r"</|<tool_call>|<function[= ]|<\||<｜|<[a-z]*:?invoke")


def read_tags(text: str, at: int, name: str, dialect: Dialect, tools: KnownTools, final: bool) -> Result:
    """Read the parameters of a call, from behind its opening tag."""
    given: dict[str, object] = {}
    schemas = tools.parameters(name)
    while True:
        at = skip_space(text, at)
        closed = dialect.close.match(text, at)
        if closed is not None:
            return Found((Said(name, as_text(given)),), closed.end())
        opened = dialect.key.match(text, at)
        if opened is None:
            if text.startswith("</", at) and at + 2 < len(text) and len(text) - at > len("</function>"):
                return Found((Said(name, as_text(given)),), at)  # its own closing tag is missing
            if text.startswith("<", at) or at >= len(text):
                return short(text, at, final)
            return Broken(f"expected a parameter, near {text[at : at + 20]!r}", at) if given else NOTHING
        ended = _end_of_value(text, opened.end(), dialect, final)
        if ended is None:
            return short(text, at, final)
        end, at = ended
        groups = opened.groupdict()
        value = text[opened.end() : end]
        given[html.unescape(groups["k"]).strip()] = _typed(value, groups, schemas, dialect)


def _typed(value: str, groups: dict[str, str | None], schemas: Any, dialect: Dialect) -> object:
    if dialect.lines:
        value = value.removeprefix("\n").removesuffix("\n")
    if groups.get("s") == "true" or groups.get("t") == "string":
        return value
    if groups.get("s") or groups.get("t"):
        return as_typed(value, None)
    return as_typed(value, schemas.get((groups["k"] or "").strip()))


def _end_of_value(text: str, at: int, dialect: Dialect, final: bool) -> tuple[int, int] | None:
    """Return where a value ends, and where to go on. A tag within a value is text: a closing tag counts only before
    the next parameter or the end of the call, and other tags end a value whose closing tag is missing."""
    for tag in dialect.tags.finditer(text, at):
        following = skip_space(text, tag.end())
        is_last = following >= len(text)
        if dialect.end.fullmatch(tag[0]):
            if dialect.key.match(text, following) or dialect.close.match(text, following) or (is_last and final):
                return tag.start(), tag.end()
        elif dialect.close.fullmatch(tag[0]):
            if _FOLLOWS_CALL.match(text, following) or (is_last and final):
                return tag.start(), tag.start()
        elif dialect.lines and text[tag.start() - 1] == "\n" and text.startswith("\n", tag.end()):
            return tag.start(), tag.start()
    return None


# --- a name, then its arguments


def read_named(text: str, at: int, tools: KnownTools, final: bool, name: re.Pattern[str]) -> Result:
    """Read a name by a pattern, then a JSON object as its arguments."""
    named = name.match(text, at)
    return NOTHING if named is None else read_arguments(text, named.end(), named["n"], final)


def read_arguments(text: str, at: int, name: str, final: bool) -> Result:
    """Read a JSON object as the arguments of a tool."""
    at = skip_space(text, at)
    if at >= len(text):
        return short(text, at, final)
    if text[at] != "{":
        return NOTHING
    try:
        value, end = read_value(text, at)
    except Unreadable as error:
        return short(text, at, final, str(error))
    return Found((Said(name, as_text(value)),), end) if isinstance(value, dict) else NOTHING
