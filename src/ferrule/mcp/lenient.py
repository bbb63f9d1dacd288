"""Reduce a server's answer for the SDK: as little as it needs, in the form that it checks. Pure.

The SDK takes an answer whole or not at all: one tool without a schema, one content block of a new kind, a greeting
without a version and nothing is left of it. It also compiles servers' output schemas and runs them in this process.
"""

from collections.abc import Callable, Mapping

from ferrule.protocol.json_text import JsonValue

Answer = dict[str, JsonValue]

MAX_SHOWN_DEPTH = 32
"""Levels of a schema passed to the SDK, which looks for annotations of properties and fails on very deep ones."""
_KIND = ("resultType", "ttlMs", "cacheScope")


def shown_answer(method: str, raw: Answer, asked_version: str) -> Answer | None:
    """Return the answer to `method` for the SDK; None if it gets the answer as it is."""
    if method == "initialize":
        return _greeting(raw, asked_version)
    if raw.get("resultType", "complete") != "complete":
        return None
    shown = _SHOWN.get(method)
    return None if shown is None else shown(raw) | {key: raw[key] for key in _KIND if key in raw}


def capability(greeting: Mapping[str, JsonValue], *path: str) -> JsonValue:
    """Return the server's capability at this path; None if there is none."""
    place: JsonValue = greeting.get("capabilities")
    for name in path:
        place = place.get(name) if isinstance(place, Mapping) else None
    return place


def server_name(greeting: Mapping[str, JsonValue]) -> str:
    """Return the server's name for itself and its version; empty if it gives none."""
    info = greeting.get("serverInfo")
    meta = greeting.get("_meta")
    if info is None and isinstance(meta, Mapping):
        info = meta.get("io.modelcontextprotocol/serverInfo")
    words = (info.get(key) for key in ("name", "version")) if isinstance(info, Mapping) else ()
    return " ".join(word for word in words if isinstance(word, str) and word)


def _greeting(raw: Answer, asked_version: str) -> Answer:
    """Complete a greeting: one without a version is taken to agree to ours."""
    version = raw.get("protocolVersion")
    return {
        "protocolVersion": version if isinstance(version, str) and version else asked_version,
        "capabilities": _capabilities(raw),
        "serverInfo": {"name": server_name(raw), "version": ""},
    }


def _discovered(raw: Answer) -> Answer:
    versions = raw.get("supportedVersions")
    return {
        "supportedVersions": [v for v in versions if isinstance(v, str)] if isinstance(versions, list) else [],
        "capabilities": _capabilities(raw),
        "ttlMs": 0,
        "cacheScope": "private",
    }


def _capabilities(raw: Answer) -> Answer:
    tells = capability(raw, "tools", "listChanged") is True
    found: Answer = {"tools": {"listChanged": tells}} if declares(raw, "tools") else {}
    return found | ({"resources": {}} if declares(raw, "resources") else {})


def declares(greeting: Mapping[str, JsonValue], *path: str) -> bool:
    """Return whether the server declares this capability."""
    return capability(greeting, *path) not in (None, False)


def _called(raw: Answer) -> Answer:
    return {"content": [], "isError": True}  # as an error, which the SDK checks against no output schema


def _listed(raw: Answer) -> Answer:
    tools, cursor = raw.get("tools"), raw.get("nextCursor")
    listed = tools if isinstance(tools, list) else []
    following = {"nextCursor": cursor} if isinstance(cursor, str) else {}
    return {"tools": [_essential(tool) for tool in listed if _is_tool(tool)], **following}


_SHOWN: dict[str, Callable[[Answer], Answer]] = {
    "server/discover": _discovered,
    "tools/call": _called,
    "tools/list": _listed,
    "resources/list": lambda raw: {"resources": []},
    "resources/templates/list": lambda raw: {"resourceTemplates": []},
    "resources/read": lambda raw: {"contents": []},
}


def _is_tool(tool: JsonValue) -> bool:
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        return False
    schema = tool.get("inputSchema")
    return isinstance(schema, dict) and schema.get("type") == "object"


def _essential(tool: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {"name": tool["name"], "inputSchema": _shallow(tool["inputSchema"], MAX_SHOWN_DEPTH)}


def _shallow(value: JsonValue, levels: int) -> JsonValue:
    if isinstance(value, dict):
        return {key: _shallow(entry, levels - 1) for key, entry in value.items()} if levels else {}
    if isinstance(value, list):
        return [_shallow(entry, levels - 1) for entry in value] if levels else []
    return value
