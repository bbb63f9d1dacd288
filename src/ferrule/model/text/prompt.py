"""How a model is told of its tools, and how earlier calls and their outputs stand in its history."""

from collections.abc import Iterable

import msgspec

from ferrule.model.adapt import WireTool, WireTools
from ferrule.model.freeform import FIELD
from ferrule.model.stream import ForcedTool, ModelRequest
from ferrule.model.text.loose import as_text

FORM = '<tool_call>\n{"name": "NAME", "arguments": {"PARAMETER": "VALUE"}}\n</tool_call>'
"""The form of a call, as the model is asked for it."""

_RULES = f"""\
# Tools

You have tools. To call one, write the call into your answer, in this form:

{FORM}

`arguments` is one JSON object: quote strings, and write a line break within a string as \\n. Write one such block for
each call. Write blocks only for calls that are to run now, not within a code block; put an example in backquotes. After
the last block end your answer: the outputs follow in <tool_response> blocks, in the order of the calls. Never write a
<tool_response> yourself."""

_FREEFORM = f"""\
The input of {{names}} is plain text. Write it as it is, without quotes and escapes:

<tool_call>
<function={{name}}>
<parameter={FIELD}>
TEXT
</parameter>
</function>
</tool_call>"""

_JSON = "Your last answer, which makes no call, must be one JSON object, and nothing else."
_SCHEMA = "Your last answer, which makes no call, must be JSON that matches this schema, and nothing else:\n"


def instructions(request: ModelRequest, tools: WireTools) -> str:
    """Return the instructions of a request with its tools in them."""
    offered = [tool for tool in tools.tools if tool.name]
    if not offered:
        return request.instructions
    parts = [request.instructions, _RULES, *_freeform_rules(tools), _listed(offered), *_choice(request, tools)]
    if (form := request.output_format) is not None:
        parts.append(_JSON if form.schema is None else _SCHEMA + as_text(form.schema))
    return "\n\n".join(part for part in parts if part)


def _freeform_rules(tools: WireTools) -> Iterable[str]:
    names = [name for name in tools.sent_names.values() if _is_freeform(tools, name)]
    if names:
        yield _FREEFORM.format(names=" and ".join(f"`{name}`" for name in names), name=names[0])


def _is_freeform(tools: WireTools, name: str) -> bool:
    callee = tools.names.resolve(name)
    return callee is not None and callee.kind == "custom_tool_call"


def _listed(tools: Iterable[WireTool]) -> str:
    functions = [as_text(msgspec.json.decode(tool.json).get("function")) for tool in tools]
    return "The tools, with the JSON schema of their arguments:\n\n<tools>\n" + "\n".join(functions) + "\n</tools>"


def _choice(request: ModelRequest, tools: WireTools) -> Iterable[str]:
    choice = request.tool_choice
    if isinstance(choice, ForcedTool):
        yield f"Your next answer must be a call of `{tools.sent_names.get((None, choice.name), choice.name)}`."
    elif choice == "required":
        yield "Your next answer must contain a call."
    elif choice == "none":
        yield "Call no tool now: answer in words."


def call_text(name: str, arguments: str) -> str:
    """Return an earlier call as the model would write it."""
    return f'\n<tool_call>\n{{"name": {as_text(name)}, "arguments": {arguments}}}\n</tool_call>'


def freeform_text(name: str, text: str) -> str:
    """Return an earlier call of a freeform tool."""
    call = f"<function={name}>\n<parameter={FIELD}>\n{text}\n</parameter>\n</function>"
    return f"\n<tool_call>\n{call}\n</tool_call>"


def output_text(text: str) -> str:
    """Return the output of an earlier call."""
    return f"<tool_response>\n{text}\n</tool_response>"
