"""Repair requests that a server would refuse every time: drop what the refusal names, and send the request again.

A rule reads a server's message and decides how to treat the server from now on; a message without a rule ends the
turn. Only dispensable parts are ever left out. The history itself keeps everything.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import msgspec

from ferrule.model.recipient import PARTS, Healed, Recipient, mark_of
from ferrule.model.screen_calls import KINDS as SCREENS
from ferrule.model.stream import ContextOverflow, ForcedTool, ModelError, ModelRequest
from ferrule.protocol.content import ContentPart
from ferrule.protocol.items import (
    Compaction,
    ComputerCall,
    ComputerCallOutput,
    ItemView,
    Message,
    MessageBlock,
    Reasoning,
)
from ferrule.protocol.json_text import JsonValue

LONGEST_WORDS = 600
"""Characters searched for names; the rest is mostly the quoted request."""

_FINAL = frozenset({401, 402, 403, 408, 413, 429})
"""Statuses that do not concern the content of a request."""

_BODY_FIELDS = frozenset(
    [
        "tool_choice",
        "parallel_tool_calls",
        "prompt_cache_key",
        "temperature",
        "top_p",
        "top_logprobs",
        "logprobs",
        "presence_penalty",
        "frequency_penalty",
        "seed",
        "service_tier",
        "stream_options",
        "reasoning_effort",
        "reasoning",
        "verbosity",
        "include",
        "store",
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "thinking",
        "output_config",
        "truncation",
    ]
)
"""Dispensable fields of a body; a format that the user asked for is not one."""
_PLAIN_BODY_FIELDS = frozenset({"text.verbosity"})

_ITEM_FIELDS = frozenset(
    [
        "id",
        "status",
        "phase",
        "annotations",
        "logprobs",
        "namespace",
        "caller",
        "detail",
        "refusal",
        "execution",
        "reasoning_content",
        "reasoning",
        "reasoning_text",
        "thinking",
        "reasoning_details",
        "thinking_blocks",
        "reasoning_opaque",
        "extra_content",
        "provider_specific_fields",
        "thought_signature",
        "prompt_cache_breakpoint",
        "cache_control",
        "citations",
        "is_error",
    ]
)
"""Dispensable fields of an item, a message or a call."""

_TOOL_FIELDS = frozenset({"strict", "defer_loading", "additionalProperties", "$schema"})
_TOOLS_OF_OURS = frozenset({"function", "custom", "namespace", "local_shell", "shell", "apply_patch", "tool_search"})
_CORE_KINDS = frozenset({"message", "function_call", "function_call_output"})

_REFUSES = re.compile(
    r"unknown|unrecogni[sz]ed|unsupported|not (?:be )?(?:support|permit|allow|recogni[sz]|accept|expect|known|valid)"
    r"|n't support|unexpected|extra (?:input|field|key|param)|invalid|additional propert|cannot find field|no such"
    r"|forbid|deprecated|not one of|should not|must not|must be (?:one of|auto)|is not a|incompatible",
    re.IGNORECASE,
)
_UNREADABLE = re.compile(
    r"invalid_encrypted_content"
    r"|encrypted[ _]content.{0,80}(?:could not|cannot|can't|failed|invalid|unable|not be)"
    r"|(?:could not|cannot|can't|failed to|unable to) (?:be )?(?:verify|verified|decrypt\w*|parse\w*|read)"
    r".{0,60}(?:encrypted|reasoning|thinking|signature)"
    r"|`?thinking`?.{0,120}(?:cannot be modified|bound to a different)"
    r"|(?:invalid|corrupt\w*|expired).{0,40}(?:thought[ _]?signature|`?signature`?.{0,30}thinking|encrypted)"
    r"|(?:thought[ _]?signature|thinking.{0,40}signature).{0,60}(?:not valid|invalid|corrupt|could not|cannot|failed)",
    re.IGNORECASE | re.DOTALL,
)
_TAG = re.compile(r"input tag ['\"`](?P<tag>\w+)['\"`]|not support tool types?:? ['\"`]?(?P<kind>\w+)", re.IGNORECASE)
"""The kind of a block or of a tool that the Messages API does not know, or not with this model."""
_UNCONFIRMED = re.compile(r"unacknowledged safety check", re.IGNORECASE)
"""Source: github.com/openai/openai-agents-python issue 843."""
_UNSIGNED = re.compile(
    r"(?:missing|without).{0,60}thought[ _]?signature|thought[ _]?signature.{0,60}(?:missing|required)", re.IGNORECASE
)
_ALONE = re.compile(
    r"'(?P<alone>[^'\s]+)' of type 'reasoning'|\b(?P<gone>rs_[^'\s]+)'?[^']{0,40}not found|"
    r"required following item|without its required",
    re.IGNORECASE,
)
_UNPAIRED = re.compile(r"without its required 'reasoning'", re.IGNORECASE)
_THOUGHT_WANTED = re.compile(
    r"(?P<field>reasoning_content|reasoning)\b.{0,160}(?:must be|passed back|(?:is|are) missing|is required|missing in)"
    r"|missing.{0,60}(?P<other>reasoning_content)",
    re.IGNORECASE | re.DOTALL,
)
_PART_WORDS = {
    "image": r"image|vision|multi-?modal",
    "file": r"\bfiles?\b|input_file|\bpdf\b|document",
    "audio": r"audio",
}
_NOT_TAKEN = (
    r"not support|n't support|unsupported|not accept|unknown variant|not available|no endpoints|text[- ]only"
    r"|invalid (?:content )?type|invalid value|supported values|not (?:be )?(?:enabled|allowed|permitted)|disabled"
    r"|not an?(?= (?:vision|multi))|not have|n't have|at most 0|without (?:vision|image)"
)
_TEXT_ONLY = re.compile(
    r"content.{0,80}(?:must be|should be|expect\w*|not) (?:a )?(?:valid )?(?:string|text)"
    r"|only (?:accepts?|takes?) text",
    re.IGNORECASE | re.DOTALL,
)
"""Words of servers that accept no content but text."""
_ONE_PART = re.compile(
    r"format|mime|media[ _]type|too (?:large|big|many)|exceed|resolution|dimension|corrupt|decod|download|base64",
    re.IGNORECASE,
)
"""Words about one wrong picture, not about pictures."""
_ABOUT_SCHEMAS = re.compile(
    r"(?:invalid|not (?:a )?valid|unsupported|not support\w*|illegal|malformed|failed).{0,80}\bschema"
    r"|schema.{0,80}(?:invalid|not (?:a )?valid|unsupported|not support\w*|is missing|malformed)"
    r"|function\.parameters|function_declarations",
    re.IGNORECASE | re.DOTALL,
)
_LISTING = re.compile(
    r"(?:supported|valid|allowed|accepted|known|permitted|possible) (?:values|parameters|fields|types)"
    r"|expected one of|expected tags|(?:must|should|to) be one of|one of:|is not one of|input should be|expected:|use '"
    r"|did you mean",
    re.IGNORECASE,
)
"""Words before a list of valid values."""
_QUOTED = re.compile(r"['\"`\u2018\u201c]([A-Za-z_$][\w.$\[\]-]*)['\"`\u2019\u201d]")
_SPOKEN = re.compile(
    r"(?:parameters?|arguments?|fields?|propert(?:y|ies)|keys?|keyword|inputs?)(?: (?:supplied|named?|passed))?:?\s+"
    r"\(?([A-Za-z_][\w.\[\]]*)",
    re.IGNORECASE,
)
_HEADING = re.compile(r"(?:^|[\s(])([A-Za-z_$][\w$]*(?:[.\[]+[\w$]+\]?)*):\s")
"""A name before a colon: `tools.0.function.strict: Extra inputs are not permitted`."""
_COMPOUND = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")
"""A field name that is not a word of the language."""
_NAMES = (_QUOTED, _SPOKEN, _HEADING, _COMPOUND)
_LIMIT = re.compile(r"max_(?:output_|new_)?tokens")
_PLACES = re.compile(r'"loc":\s*\[([^\]]*)\]')
_STEP = re.compile(r"[A-Za-z_$][\w$-]*|\d+")
_OUTER = frozenset({"body", "$", "request", "root", "payload", "json"})


class Refusal:
    """A server's message about a request, and the request."""

    def __init__(self, error: ModelError, request: ModelRequest, to: Recipient, body: bytes) -> None:
        self.code = error.code
        self.text = " ".join(filter(None, (error.said or str(error), error.param)))
        self.param = error.param
        self.request = request
        self.to = to
        self.raw = body

    @cached_property
    def body(self) -> dict[str, Any]:
        """The request as sent."""
        body: dict[str, Any] = msgspec.json.decode(self.raw)
        return body

    @cached_property
    def items(self) -> list[Any]:
        """Its messages or items."""
        listed: list[Any] = self.body.get("messages", self.body.get("input", []))
        return listed

    @cached_property
    def named(self) -> list[list[str]]:
        """Everything the message names, each as the steps of a path."""
        found = [place[1] for place in _PLACES.finditer(self.text)]
        if not found:
            wrong = _LISTING.split(self.text[:LONGEST_WORDS], maxsplit=1)[0]
            found = [self.param, *(name for form in _NAMES for name in form.findall(wrong)), *_in_words(wrong)]
        paths = [_STEP.findall(name) for name in found if name]
        return [path[1:] if path[0] in _OUTER else path for path in paths if path and path != ["body"]]

    @cached_property
    def words(self) -> frozenset[str]:
        """The last step of each named path."""
        return frozenset(path[-1] for path in self.named if path)

    def taken_for(self, what: str, **changes: object) -> Healed:
        """Return the server with another profile."""
        return Healed(msgspec.structs.replace(self.to.accepts, **changes), self.to.omitted, what)

    def without(self, what: str, **more: Iterable[object] | bool) -> Healed:
        """Return the server with more parts left out."""
        omitted = self.to.omitted
        changes = {
            name: value if isinstance(value, bool) else getattr(omitted, name) | frozenset(value)
            for name, value in more.items()
        }
        return Healed(self.to.accepts, msgspec.structs.replace(omitted, **changes), what)


def _in_words(text: str) -> Iterator[str]:
    """Yield the fields of a body whose names a text writes as words: `parallel tool calls`."""
    folded = text.lower()
    yield from (name for name in sorted(_BODY_FIELDS) if "_" in name and name.replace("_", " ") in folded)


def heal(error: ModelError, request: ModelRequest, to: Recipient, body: bytes) -> Healed | None:
    """Return the change that lets the request be sent again; None if there is none left."""
    if error.status in _FINAL:
        return None
    refusal = Refusal(error, request, to, body)
    for rule in (_limit,) if isinstance(error, ContextOverflow) else _RULES:
        healed = rule(refusal)
        if healed is not None and (healed.accepts != to.accepts or healed.omitted != to.omitted):
            return healed
    return None


def _unreadable(refusal: Refusal) -> Healed | None:
    """Drop reasoning, a summary or a signature that the server cannot read."""
    if refusal.code != "invalid_encrypted_content" and not _UNREADABLE.search(refusal.text):
        return None
    secrets = {secret for item in refusal.request.items for secret in _secrets(item.view)}
    return refusal.without("the reasoning of earlier answers, which it cannot read", unreadable=map(mark_of, secrets))


def _secrets(view: ItemView) -> Iterator[bytes]:
    if isinstance(view, Reasoning | Compaction) and view.encrypted_content:
        yield view.encrypted_content.encode()
    for name in ("chat_fields", "message_fields"):
        if fields := bytes(getattr(view, name, b"")):
            yield fields


def _tagged(refusal: Refusal) -> Healed | None:
    """Send a tool in the form of a function, or drop the blocks of tools that the server ran: a call goes with what
    came of it."""
    found = _TAG.search(refusal.text)
    if found is None or refusal.to.wire != "messages":
        return None
    kind = found["tag"] or found["kind"]
    if any(tool.get("type") == kind for tool in refusal.body.get("tools", [])):
        known = tuple(form for form in refusal.to.accepts.native_tools if not fnmatchcase(kind, form))
        return refusal.taken_for(f"the native form of the tool {kind!r}", native_tools=known)
    views = [item.view for item in refusal.request.items]
    blocks = [bytes(view.message_fields) for view in views if isinstance(view, MessageBlock)]
    if not any(msgspec.json.decode(block).get("type") == kind for block in blocks):
        return None
    return refusal.without("tools that the provider ran", unreadable=map(mark_of, blocks))


def _unconfirmed(refusal: Refusal) -> Healed | None:
    """Send the calls of a screen that the user has not confirmed as those of a function, which nobody has to."""
    if not _UNCONFIRMED.search(refusal.text):
        return None
    views = [item.view for item in refusal.request.items]
    confirmed = {
        view.call_id for view in views if isinstance(view, ComputerCallOutput) and view.acknowledged_safety_checks
    }
    calls = [view.call_id for view in views if isinstance(view, ComputerCall) and view.pending_safety_checks]
    refused = (mark_of(call_id.encode()) for call_id in calls if call_id not in confirmed)
    return refusal.without("the native form of calls that the user has not confirmed", unreadable=refused)


def _unsigned(refusal: Refusal) -> Healed | None:
    """Handle a call of another model, which lacks a signature of this one."""
    if refusal.to.wire != "chat" or not _UNSIGNED.search(refusal.text):
        return None
    return refusal.without("the check of signatures at earlier calls", signatures=True)


def _alone(refusal: Refusal) -> Healed | None:
    """Drop reasoning that the server accepts only next to something, or with something next to it."""
    found = _ALONE.search(refusal.text)
    if found is None or refusal.to.wire != "responses":
        return None
    if _UNPAIRED.search(refusal.text) and not refusal.to.omitted.ids:
        return refusal.without("the ids of earlier items", ids=True)
    named = found["alone"] or found["gone"]
    ids = {item.view.id for item in refusal.request.items if isinstance(item.view, Reasoning) and item.view.id}
    if named in ids and refusal.to.reads(named.encode()):
        return refusal.without("reasoning without what followed it", unreadable={mark_of(named.encode())})
    return refusal.without("the reasoning of earlier answers", kinds={"reasoning"})


def _thought_wanted(refusal: Refusal) -> Healed | None:
    """Handle a server that requires the reasoning of every earlier answer."""
    found = _THOUGHT_WANTED.search(refusal.text)
    if found is None or refusal.to.wire != "chat":
        return None
    field = (found["field"] or found["other"]).lower()
    return refusal.taken_for(f"answers without {field}", reasoning_field=field, reasoning_required=True)


def _parts(refusal: Refusal) -> Healed | None:
    """Drop a kind of content that the model does not accept at all."""
    if _ONE_PART.search(refusal.text):
        return None
    for kind, words in _PART_WORDS.items():
        about = rf"(?:{words}).{{0,100}}(?:{_NOT_TAKEN})|(?:{_NOT_TAKEN}).{{0,100}}(?:{words})"
        if re.search(about, refusal.text, re.IGNORECASE | re.DOTALL) and _holds(refusal.request, PARTS[kind]):
            return refusal.without(f"its {kind} input", parts={kind})
    held = {kind for kind in _PART_WORDS if _holds(refusal.request, PARTS[kind])}
    if held and _TEXT_ONLY.search(refusal.text) and not re.search(r"\bnull\b|\bnone\b", refusal.text, re.IGNORECASE):
        return refusal.without("content beside text", parts=held)
    return None


def _holds(request: ModelRequest, part: type[ContentPart]) -> bool:
    for item in request.items:
        content = item.view.content if isinstance(item.view, Message) else getattr(item.view, "output", "")
        if isinstance(content, tuple) and any(isinstance(entry, part) for entry in content):
            return True
    return False


def _limit(refusal: Refusal) -> Healed | None:
    """Drop the limit of output tokens that the user did not set: too many for this model, or none at all."""
    accepts = refusal.to.accepts
    if refusal.request.settings.max_output_tokens is not None or not accepts.output_limit:
        return None
    field = "max_output_tokens" if refusal.to.wire == "responses" else accepts.max_tokens_field
    stated = re.search(rf"\b{refusal.body.get(field)}\b", refusal.text)
    if stated or (_LIMIT.search(refusal.text) and "max_completion_tokens" not in refusal.text):
        return refusal.taken_for("the limit of output tokens", output_limit=False)
    return None


def _shape(refusal: Refusal) -> Healed | None:
    """Replace a role, a value or a kind that stricter servers spell differently."""
    accepts, words, text = refusal.to.accepts, refusal.words, refusal.text.lower()
    if "developer" in text and accepts.developer_role and re.search(r"role|system|messages|input", text):
        return refusal.taken_for("the developer role", developer_role=False)
    only_functions = re.search(r"tool.{0,20}type.{0,40}\b(?:custom\b|must be .?function)", text)
    if accepts.custom_tools and (words & {"custom", "custom_tool_call", "custom_tool_call_output"} or only_functions):
        return refusal.taken_for("freeform tools", custom_tools=False)
    if accepts.namespaces and "namespace" in words:
        return refusal.taken_for("namespaces", namespaces=False)
    if accepts.tool_search and words & {"tool_search", "tool_search_call", "tool_search_output", "additional_tools"}:
        return refusal.taken_for("tool search", tool_search=False)
    if "tool_choice" in words and accepts.forced_tool and isinstance(refusal.request.tool_choice, ForcedTool):
        return refusal.taken_for("the choice of a tool by name", forced_tool=False)
    if "max_completion_tokens" in text and "max_tokens" in words and accepts.max_tokens_field == "max_tokens":
        return refusal.taken_for("`max_tokens`", max_tokens_field="max_completion_tokens")
    if accepts.list_outputs and re.search(r"\boutput\b.{0,80}\b(?:string|str)\b", text):
        return refusal.taken_for("lists in the outputs of tools", list_outputs=False)
    return None


def _null_content(refusal: Refusal) -> Healed | None:
    """Replace `content: null` beside calls."""
    about = re.search(
        r"content.{0,100}(?:null|none|required|missing|string|empty)|(?:null|none|missing).{0,60}content",
        refusal.text,
        re.IGNORECASE | re.DOTALL,
    )
    if about is None or not refusal.to.accepts.null_content or b'"content":null' not in refusal.raw:
        return None
    return refusal.taken_for("`content: null`", null_content=False)


def _schemas(refusal: Refusal) -> Healed | None:
    """Handle a refused tool schema: first all schemas in the plain form, then without that tool."""
    if not _ABOUT_SCHEMAS.search(refusal.text) or ["output_config"] in (path[:1] for path in refusal.named):
        return None
    if refusal.to.accepts.schemas != "plain":
        return refusal.taken_for("schemas beyond the plain form", schemas="plain")
    tools = [tool.get("function", tool).get("name", "") for tool in refusal.body.get("tools", [])]
    places = [path[1] for path in refusal.named if len(path) > 1 and path[0] == "tools" and path[1].isdecimal()]
    named = [path[0] for path in refusal.named if len(path) == 1 and path[0] in tools]
    named += [tools[int(place)] for place in places if int(place) < len(tools)]
    if not named or len(tools) == 1:
        return None
    return refusal.without(f"the tool {named[0]!r}, whose schema it refuses", tools={named[0]})


def _kinds(refusal: Refusal) -> Healed | None:
    """Drop items and hosted tools of a kind that the server does not know."""
    if refusal.to.wire != "responses" or not _REFUSES.search(f"{refusal.text} {refusal.code}"):
        return None
    here = {item.get("type", "") for item in refusal.items if isinstance(item, dict)} - _CORE_KINDS
    hosted = {tool.get("type", "") for tool in refusal.body.get("tools", [])} - _TOOLS_OF_OURS
    for path in refusal.named:
        kind = _kind_at(path, refusal)
        if kind in here or kind in hosted:
            if kind in SCREENS and _has_function(refusal):
                return refusal.taken_for("the native form of the screen", native_screen=False)
            call = kind.removesuffix("_output")  # neither a call nor its output is dropped alone
            return refusal.without(f"items and tools of the kind {call!r}", kinds={call, f"{call}_output"})
    return None


def _has_function(refusal: Refusal) -> bool:
    """Return whether a function can stand for the request's screen."""
    return any(getattr(spec, "function", None) is not None for spec in refusal.request.tools)


def _kind_at(path: list[str], refusal: Refusal) -> str:
    """Return the kind that a path names: its last word, or the type of the object there."""
    if len(path) >= 2 and path[0] in ("input", "tools") and path[1].isdecimal() and path[2:] in ([], ["type"]):
        listed = refusal.body.get(path[0])
        if isinstance(listed, list) and int(path[1]) < len(listed) and isinstance(listed[int(path[1])], dict):
            return str(listed[int(path[1])].get("type", ""))
    about_items = re.search(r"\b(?:item|type)s?\b", refusal.text, re.IGNORECASE)
    return path[-1] if path and (path[-1] != "reasoning" or about_items) else ""


def _fields(refusal: Refusal) -> Healed | None:
    """Drop fields that the server does not know."""
    if not _REFUSES.search(f"{refusal.text} {refusal.code}"):
        return None
    for path in refusal.named:
        healed = _field_at(path, refusal)
        if healed is not None and healed.omitted != refusal.to.omitted:
            return healed
    return None


def _field_at(path: list[str], refusal: Refusal) -> Healed | None:
    if not path:
        return None
    name, in_items, in_tools = path[-1], path[0] in ("messages", "input", "message"), path[0] in ("tools", "tool")
    if in_items and name == "encrypted_content":
        return refusal.without("the reasoning of earlier answers", kinds={"reasoning"})
    more = refusal.to.accepts.body
    if not in_items and not in_tools and (field := _body_field(path, refusal.body, more)):
        return refusal.without(f"`{field}`", fields={field})
    if not in_tools and name in _ITEM_FIELDS and _has_key(refusal.items, name):
        return refusal.without(f"`{name}` in earlier messages", item_fields={name})
    if name in _TOOL_FIELDS and _has_key(refusal.body.get("tools", []), name):
        return refusal.without(f"`{name}` of tools", tool_fields={name})
    return None


def _body_field(path: list[str], body: dict[str, Any], more: Mapping[str, object]) -> str:
    """Return the body field that a path names, as deep as there is one; empty if it must stay."""
    if ".".join(path[:2]) in _PLAIN_BODY_FIELDS or (path == ["verbosity"] and "verbosity" not in body):
        return "text.verbosity" if "verbosity" in body.get("text", {}) else ""
    if path[0] not in _BODY_FIELDS | more.keys() or path[0] not in body:
        return ""
    nested = body[path[0]]
    if path[0] == "thinking":
        return "thinking.display" if path[-1] == "display" else "thinking"  # which is nothing without its type
    if path[0] == "output_config" and len(path) > 1 and path[1] == "format":
        return "output_config.format"  # which is then asked for in words
    below = len(path) > 1 and isinstance(nested, dict) and path[1] in nested
    return f"{path[0]}.{path[1]}" if below else path[0]


def _has_key(value: JsonValue, name: str) -> bool:
    if isinstance(value, dict):
        return name in value or any(_has_key(below, name) for below in value.values())
    return isinstance(value, list) and any(_has_key(below, name) for below in value)


_RULES: tuple[Callable[[Refusal], Healed | None], ...] = (
    _limit, _unreadable, _tagged, _unconfirmed, _unsigned, _alone, _thought_wanted, _parts, _shape, _schemas, _kinds,
    _fields, _null_content,
)  # fmt: skip
