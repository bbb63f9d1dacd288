"""Tools of a caller that are not run here: its own (dynamic) tools and remote MCP servers."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from ferrule.model.stream import Model
from ferrule.model.wire import WireModel
from ferrule.protocol.dynamic_tools import DynamicToolSpec
from ferrule.protocol.hosted import HostedTool
from ferrule.protocol.mcp_settings import McpApproval, McpServerSettings
from ferrule.protocol.profiles import ModelProfile
from ferrule.protocol.specs import RemoteMcp, ToolSpec, runs_here
from ferrule.schemas.alias import PORTABLE_NAMES
from ferrule.session.sources import ToolLike
from ferrule.tools.registry import ToolRegistryBuilder

_APPROVALS: dict[str | None, McpApproval] = {"always": "prompt", "never": "allow", None: "auto"}


class Brought(NamedTuple):
    """The requested tools by who runs them. `own` None: the model's usual ones."""

    own: Sequence[ToolLike] | None
    dynamic: tuple[DynamicToolSpec, ...] = ()
    remote: tuple[RemoteMcp, ...] = ()
    hosted: tuple[HostedTool, ...] = ()


def group_by_owner(tools: Sequence[ToolLike] | None, hosted: Sequence[HostedTool] = ()) -> Brought:
    """Divide the tools by who runs them; `hosted` are specs from the settings."""
    given = tools or ()
    specs = [*hosted, *(tool for tool in given if isinstance(tool, ToolSpec) and not runs_here(tool))]
    own = [tool for tool in given if not isinstance(tool, DynamicToolSpec | ToolSpec) or _is_ours(tool)]
    return Brought(
        None if tools is None else own,
        tuple(tool for tool in given if isinstance(tool, DynamicToolSpec)),
        tuple(spec for spec in specs if isinstance(spec, RemoteMcp)),
        tuple(spec for spec in specs if not isinstance(spec, RemoteMcp)),
    )


def _is_ours(tool: ToolLike) -> bool:
    return isinstance(tool, ToolSpec) and runs_here(tool)


def runs_remote_mcp(model: Model) -> bool:
    """Tell whether the provider itself calls remote MCP servers."""
    return isinstance(model, WireModel) and model.knows_tool("mcp")


def fitting_profile(profile: ModelProfile, model: Model) -> ModelProfile:
    """Replace native forms that the model's server does not know by functions."""
    if not isinstance(model, WireModel):
        return profile
    if profile.shell == "local_shell" and not model.knows_tool("local_shell"):
        profile = msgspec.structs.replace(profile, shell="shell_command")
    if profile.apply_patch == "native" and not model.knows_tool("apply_patch"):
        profile = msgspec.structs.replace(profile, apply_patch="function")
    return profile


def accepted_property_names(model: Model) -> re.Pattern[str] | None:
    """What the names of properties must look like; None: anything. The Responses API takes all names, while servers of
    the older wire refuse a whole request for one."""
    return None if isinstance(model, WireModel) and model.wire == "responses" else PORTABLE_NAMES


def as_servers(remote: Iterable[RemoteMcp]) -> dict[str, McpServerSettings]:
    """Return remote servers for our own client, by label."""
    return {
        spec.label: McpServerSettings(
            url=spec.server_url,
            headers={**(spec.headers or {}), **({"Authorization": f"Bearer {spec.token}"} if spec.token else {})},
            enabled_tools=spec.allowed_tools,
            approval=_APPROVALS[spec.require_approval],
        )
        for spec in remote
    }


class NativeSource:
    """Tools that the provider runs: the model sees them, and nothing here runs them."""

    revision = 0

    def __init__(self, specs: Iterable[RemoteMcp | HostedTool]) -> None:
        self._specs = tuple(specs)

    def register(self, builder: ToolRegistryBuilder) -> None:
        """Add their specs."""
        for spec in self._specs:
            builder.push_spec(spec)
