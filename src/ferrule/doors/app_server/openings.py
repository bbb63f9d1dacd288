"""What a thread works with: the server's flags and `config.toml`, changed by what the client gives. Pure but for
`configure`, which reads the files."""

import os
from collections.abc import Callable, Mapping

import msgspec

from ferrule.config import Configuration
from ferrule.doors.app_server import forms
from ferrule.doors.app_server.shapes.requests import (
    ThreadForkParams,
    ThreadResumeParams,
    ThreadStartParams,
    TurnStartParams,
)
from ferrule.doors.app_server.shapes.threads import DynamicNamespace, DynamicTool
from ferrule.protocol.dynamic_tools import DynamicToolSpec
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.protocol.settings import ReasoningEffort, ReasoningSummary, Settings
from ferrule.rpc import RpcError
from ferrule.sandbox.environment import refuse_nesting
from ferrule.session.instructions import base_instructions
from ferrule.session.resuming import Given

Configure = Callable[[str | None, Mapping[str, object]], Configuration]
"""Loads the configuration in a directory, under the server's flags and these keys of `config.toml`. Raises
`UsageError`."""

Opened = ThreadStartParams | ThreadResumeParams | ThreadForkParams

FIXED = "modelProvider: {!r} cannot be chosen, since the server was started with one of its own, {!r}"
NOT_SERVED = "{} is not served here: leave {} out"


def configuration_for(params: Opened, configure: Configure, cwd: str | None = None) -> Configuration:
    """Return the configuration of a thread; `cwd` is its directory if the client names none.

    Raises `UsageError`, and `RpcError` for what is not served."""
    refuse_unserved(params)
    loaded = configure(directory(params.cwd) or cwd, _keys(params))
    settings = loaded.settings
    if params.model_provider not in (None, settings.provider_name):
        raise RpcError(FIXED.format(params.model_provider, settings.provider_name))
    if params.developer_instructions:
        base = settings.instructions or base_instructions(settings.model.reasoning_effort)
        settings = msgspec.structs.replace(settings, instructions=f"{base}\n\n{params.developer_instructions}")
    if params.service_tier is not None:
        settings = _with_model(settings, service_tier=params.service_tier)
    if getattr(params, "ephemeral", None):
        settings = msgspec.structs.replace(settings, ephemeral=True)
    refuse_nesting(settings)
    return msgspec.structs.replace(loaded, settings=settings)


def refuse_unserved(params: Opened | TurnStartParams) -> None:
    """Raise `RpcError` for what the reference knows and we do not."""
    if params.approvals_reviewer not in (None, "user"):
        raise RpcError(NOT_SERVED.format(f"the approvalsReviewer {params.approvals_reviewer!r}", "it"))
    if params.personality not in (None, "none"):
        raise RpcError(NOT_SERVED.format("a personality", "it"))


def given_in(params: Opened) -> Given:
    """Return which settings of a stored thread the client replaces."""
    config = params.config or {}
    return Given(
        cwd=params.cwd is not None,
        sandbox=params.sandbox is not None or "sandbox_mode" in config,
        approval=params.approval_policy is not None or "approval_policy" in config,
        provider=params.model_provider is not None or "model_provider" in config,
        tools="tools" in config,
    )


def _keys(params: Opened) -> Mapping[str, object]:
    """Return the keys of `config.toml` that the client sets."""
    keys: JsonObject = {}
    for name, value in (params.config or {}).items():
        _put(keys, name.split("."), value)
    typed = {
        "model": params.model,
        "model_provider": params.model_provider,
        "instructions": params.base_instructions,
        "sandbox_mode": params.sandbox,
        "approval_policy": None if params.approval_policy is None else forms.approval_of(params.approval_policy).value,
    }
    return keys | {name: value for name, value in typed.items() if value is not None}


def _put(keys: JsonObject, path: list[str], value: JsonValue) -> None:
    """Set a key by its path, as in `-c a.b=1`."""
    *folders, last = path
    for folder in folders:
        keys = keys.setdefault(folder, {})
        if not isinstance(keys, dict):
            raise RpcError(f"config: {'.'.join(path)!r} lies below a key that is no table")
    keys[last] = value


def directory(cwd: str | None, name: str = "cwd") -> str | None:
    """Return a directory without links; None where none is given. Raises `RpcError` that begins with `name`."""
    if cwd is None:
        return None
    if not os.path.isabs(cwd) or not os.path.isdir(cwd):
        raise RpcError(f"{name}: {cwd!r} is no absolute path of a directory")
    return os.path.realpath(cwd)


def settings_for_turn(settings: Settings, params: TurnStartParams) -> Settings:
    """Return a thread's settings from this turn on. Raises `RpcError`."""
    refuse_unserved(params)
    changes: dict[str, JsonValue] = {}
    if (cwd := directory(params.cwd)) is not None:
        changes["cwd"] = cwd
    if params.approval_policy is not None:
        changes["approval_policy"] = forms.approval_of(params.approval_policy)
    if params.sandbox_policy is not None:
        changes["sandbox_policy"] = forms.policy_of(params.sandbox_policy)
    model = {
        "model": params.model,
        "service_tier": params.service_tier,
        "reasoning_effort": _effort(params.effort),
        "reasoning_summary": _one_of(ReasoningSummary, "summary", params.summary),
    }
    settings = _with_model(settings, **{name: value for name, value in model.items() if value is not None})
    if params.output_schema is not None and not isinstance(params.output_schema, Mapping):
        raise RpcError("outputSchema: a JSON Schema is an object")
    changes["output_schema"] = params.output_schema
    return msgspec.structs.replace(settings, **changes)


def _with_model(settings: Settings, **changes: JsonValue) -> Settings:
    return msgspec.structs.replace(settings, model=msgspec.structs.replace(settings.model, **changes))


def _effort(given: str | None) -> JsonValue:
    return _one_of(ReasoningEffort, "effort", given)


def _one_of(kind: object, name: str, given: str | None) -> JsonValue:
    if given is None:
        return None
    try:
        return msgspec.convert(given, type=kind)
    except msgspec.ValidationError as error:
        raise RpcError(f"{name}: {given!r} is not known here") from error


def dynamic_specs(given: tuple[DynamicTool, ...] | None) -> list[DynamicToolSpec]:
    """Return the client's tools, each by itself."""
    specs = []
    for tool in given or ():
        for one in tool.tools if isinstance(tool, DynamicNamespace) else (tool,):
            if not isinstance(one.input_schema, Mapping):
                raise RpcError(f"dynamicTools: the inputSchema of {one.name!r} is no object")
        if isinstance(tool, DynamicNamespace):
            specs += [
                DynamicToolSpec(one.name, one.description, one.input_schema, tool.name, tool.description)
                for one in tool.tools
            ]
        else:
            specs.append(DynamicToolSpec(tool.name, tool.description, tool.input_schema))
    return specs
