"""One layer over the other. Tables are joined key by key; anything else is replaced. All pure."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ferrule.config.keys import USER_ONLY
from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import AskForApproval, SandboxMode

Values = Mapping[str, object]

_MODES = (SandboxMode.READ_ONLY, SandboxMode.WORKSPACE_WRITE, SandboxMode.DANGER_FULL_ACCESS)
_POLICIES = (AskForApproval.UNTRUSTED, AskForApproval.ON_REQUEST, AskForApproval.ON_FAILURE, AskForApproval.NEVER)
_LIMITS: tuple[tuple[str, Sequence[str], str], ...] = (
    ("sandbox_mode", _MODES, SandboxMode.WORKSPACE_WRITE),
    ("approval_policy", _POLICIES, AskForApproval.ON_REQUEST),
)
# Values from the narrowest to the widest, and the default.


class Layer(msgspec.Struct, frozen=True):
    """Some settings, and how an error names where they come from (a file, `-c model`, a flag)."""

    source: str
    values: Values


def merge(layers: Iterable[Layer]) -> dict[str, object]:
    """All layers as one; the later wins."""
    merged: dict[str, object] = {}
    for layer in layers:
        merged = _over(merged, layer.values)
    return merged


def _over(below: Values, above: Values) -> dict[str, object]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _over(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def assignment(text: str) -> Layer:
    """The layer that `-c KEY=VALUE` means: a dotted key and a TOML value, or plain text. Raises `UsageError`."""
    key, sign, value = text.partition("=")
    source = f"-c {key.strip()}"
    try:
        path = _path(tomllib.loads(f"{key} = 0")) if sign else ()
    except tomllib.TOMLDecodeError:
        path = ()
    if not path:
        raise UsageError(f"-c {text!r} is not KEY=VALUE, such as -c model=gpt-5.5 or -c 'sandbox_mode=\"read-only\"'")
    values: object = _toml_value(value)
    for part in reversed(path):
        values = {part: values}
    assert isinstance(values, dict)
    return Layer(source, values)


def _path(table: object) -> tuple[str, ...]:
    path: list[str] = []
    while isinstance(table, dict) and len(table) == 1:
        ((key, table),) = table.items()
        path.append(key)
    return tuple(path) if table == 0 else ()


def _toml_value(text: str) -> object:
    try:
        table = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text.strip()
    return table["value"] if len(table) == 1 else text.strip()


def narrowed(project: Layer, below: Values) -> tuple[Layer, list[str]]:
    """The part of a trusted project's layer that gives it no more rights than `below` has, and a sentence for each
    key that is left out. A project may narrow what may be done; only the user can widen it. Both are checked already.
    """
    kept, warnings = dict(project.values), list[str]()

    def leave_out(key: str, why: str) -> None:
        kept.pop(key, None)
        warnings.append(f"{project.source}: {key} is ignored, because {why}")

    for key in sorted(USER_ONLY & set(kept)):
        leave_out(key, "only your own configuration may set it")
    for key, order, default in _LIMITS:
        asked, yours = str(kept.get(key, order[0])), str(below.get(key, default))
        if order.index(asked) > order.index(yours):
            leave_out(key, f"{asked} is wider than your {yours}")
    servers, known = _table(kept, "mcp_servers"), _table(below, "mcp_servers")
    for name in sorted(servers.keys() & known.keys()):
        leave_out(f"mcp_servers.{name}", "you have a server of that name")
    kept["mcp_servers"] = {name: server for name, server in servers.items() if name not in known}
    kept["hooks"] = _joined(_table(below, "hooks"), _table(kept, "hooks"))
    return Layer(project.source, kept), warnings


def _table(values: Values, key: str) -> Values:
    table = values.get(key, {})
    assert isinstance(table, Mapping)
    return table


def _joined(below: Values, above: Values) -> Values:
    """The hooks of both: a project must not put its own in the place of the user's."""
    return {event: [*_list(below, event), *_list(above, event)] for event in (*below, *above)}


def _list(values: Values, key: str) -> Sequence[object]:
    entries = values.get(key, ())
    assert isinstance(entries, list | tuple)
    return entries
