"""One layer over the other. Tables are joined key by key; anything else is replaced. All pure."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from ferrule.config.keys import USER_ONLY
from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import AskForApproval, SandboxMode

Values = Mapping[str, object]
Policy = TypeVar("Policy", AskForApproval, SandboxMode)

_MODES = (SandboxMode.READ_ONLY, SandboxMode.WORKSPACE_WRITE, SandboxMode.DANGER_FULL_ACCESS)
_POLICIES = (AskForApproval.UNTRUSTED, AskForApproval.ON_REQUEST, AskForApproval.ON_FAILURE, AskForApproval.NEVER)
# From the narrowest to the widest.


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
    key that is left out. A project may narrow what may be done; only the user can widen it."""
    kept, warnings = dict(project.values), list[str]()
    for key in sorted(USER_ONLY & set(kept)):
        del kept[key]
        warnings.append(f"{project.source}: {key} is ignored, because only your own configuration may set it")
    limits = (
        ("sandbox_mode", SandboxMode, _MODES, SandboxMode.WORKSPACE_WRITE),
        ("approval_policy", AskForApproval, _POLICIES, AskForApproval.ON_REQUEST),
    )
    for key, kind, order, default in limits:
        if key in kept:
            asked, yours = kind(str(kept[key])), kind(str(below.get(key, default)))
            if _is_wider(asked, yours, order):
                del kept[key]
                warnings.append(f"{project.source}: {key} = {asked} is ignored, because it is wider than your {yours}")
    return Layer(project.source, kept), warnings


def _is_wider(asked: object, yours: object, order: Sequence[object]) -> bool:
    return order.index(asked) > order.index(yours)
