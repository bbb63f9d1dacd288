"""The effects of a call. An executor describes them, and the orchestrator decides and records."""

from typing import Literal, Protocol, runtime_checkable

import msgspec

from ferrule.protocol.events import FileChange
from ferrule.protocol.permissions import SandboxPermissions
from ferrule.tools.annotations import ToolAnnotations


class CommandEffect(msgspec.Struct, frozen=True, kw_only=True):
    """A command will run. `argv` is exactly what is executed; `env` holds its changes to the session's environment."""

    argv: tuple[str, ...]
    cwd: str
    env: tuple[tuple[str, str], ...] = ()
    path: str | None = None
    """PATH of the whole environment, if it is not the session's own: start-up files and the call can change it."""
    tty: bool = False
    sandbox_permissions: SandboxPermissions = SandboxPermissions.USE_DEFAULT
    justification: str | None = None
    prefix_rule: tuple[str, ...] | None = None


@runtime_checkable
class CommandResult(Protocol):
    """A command's result, as an attempt returns it. `exit_code` None: it still runs, and nothing is judged."""

    @property
    def exit_code(self) -> int | None: ...
    @property
    def transcript(self) -> str: ...
    @property
    def timed_out(self) -> bool: ...


class PatchEffect(msgspec.Struct, frozen=True, kw_only=True):
    """Files will be written. `paths` are absolute and resolved, move targets included; `text` is the whole patch."""

    cwd: str
    changes: tuple[FileChange, ...]
    paths: tuple[str, ...]
    risks: tuple[str, ...] = ()
    """Sentences that the user should read first: a file with several hard links, which all change."""
    text: str = ""


class McpEffect(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of an MCP server will be called. `approval` is the server's setting: auto, prompt or allow; `provider`:
    the model's provider calls it, and wants approval."""

    server: str
    tool: str
    arguments: str
    annotations: ToolAnnotations
    approval: str = "auto"


class ToolEffect(msgspec.Struct, frozen=True, kw_only=True):
    """A tool will run that declares no more than its name and arguments (a plain function, a dynamic tool). `warnings`
    are of the model's provider, which wants the user to confirm the call."""

    name: str
    arguments: str
    annotations: ToolAnnotations
    warnings: tuple[str, ...] = ()


class NetworkEffect(msgspec.Struct, frozen=True, kw_only=True):
    """A confined command will reach a host. `listed`: the list of domains allows it, if no rule says otherwise."""

    host: str
    port: int
    protocol: Literal["https", "http"]
    listed: bool = False

    @property
    def url(self) -> str:
        """The host as people write it."""
        usual = {"https": 443, "http": 80}[self.protocol] == self.port
        return f"{self.protocol}://{self.host}" + ("" if usual else f":{self.port}")


Effect = CommandEffect | PatchEffect | McpEffect | ToolEffect | NetworkEffect
