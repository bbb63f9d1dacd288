"""From names to handlers, for one sampling step; rebuilt from its sources when they change."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from ferrule.protocol.specs import ConfiguredToolSpec, FreeformTool, NamespaceTool, ResponsesApiTool, ToolSpec
from ferrule.tools.handler import DeferredHandler, ToolHandler
from ferrule.tools.risk_field import with_risk_field

ToolKey = tuple[str | None, str]

NATIVE = "native"
"""Namespace of the handlers of native items (`shell_call`, `apply_patch_call`, `local_shell_call`)."""


class ToolRegistry:
    """Maps `(namespace, name)` to a handler. Immutable; deferred handlers are made on first use."""

    __slots__ = ("_handlers", "_parallel")

    def __init__(self, handlers: dict[ToolKey, ToolHandler | DeferredHandler], parallel: frozenset[ToolKey]) -> None:
        self._handlers = handlers
        self._parallel = parallel

    def handler(self, name: str, namespace: str | None = None) -> ToolHandler | None:
        """The handler of a tool, or None."""
        found = self._handlers.get((namespace, name))
        if isinstance(found, DeferredHandler):
            found = self._handlers[(namespace, name)] = found.load()
        return found

    def supports_parallel(self, namespace: str | None, name: str) -> bool:
        """Whether calls of the tool may run beside other calls."""
        return (namespace, name) in self._parallel

    def __iter__(self) -> Iterator[ToolKey]:
        """Every tool that can be called."""
        return iter(self._handlers)

    def load_all(self) -> None:
        """Make every deferred handler now (while the model thinks)."""
        for namespace, name in list(self._handlers):
            self.handler(name, namespace)

    def loaded(self) -> list[ToolHandler]:
        """The handlers that exist."""
        return [handler for handler in self._handlers.values() if isinstance(handler, ToolHandler)]


class ToolRegistryBuilder:
    """Collects specs and handlers, then builds both halves: what the model sees and what runs."""

    __slots__ = ("_asks_for_risk", "_handlers", "_specs")

    def __init__(self, *, asks_for_risk: bool = False) -> None:
        self._asks_for_risk = asks_for_risk
        self._handlers: dict[ToolKey, ToolHandler | DeferredHandler] = {}
        self._specs: list[ConfiguredToolSpec] = []

    def push_spec(self, spec: ToolSpec) -> None:
        """Show a tool to the model; its calls run alone."""
        self.push_spec_with_parallel_support(spec, False)

    def push_spec_with_parallel_support(
        self, spec: ToolSpec, supports_parallel: bool, *, read_only: bool = False
    ) -> None:
        """Show a tool to the model and say whether its calls may run beside others. One that is not `read_only` asks
        for the model's estimate of its risk, where the session wants that."""
        if self._asks_for_risk and not read_only:
            spec = with_risk_field(spec)
        self._specs.append(ConfiguredToolSpec(spec, supports_parallel))

    def register_handler(
        self, name: str, handler: ToolHandler | DeferredHandler, *, namespace: str | None = None
    ) -> None:
        """Let `handler` run the calls of `name`. The first registration of a name stays: nothing shadows a tool."""
        self._handlers.setdefault((namespace, name), handler)

    def has(self, name: str, namespace: str | None = None) -> bool:
        """Whether the name is taken."""
        return (namespace, name) in self._handlers

    def build(self) -> tuple[list[ConfiguredToolSpec], ToolRegistry]:
        """The specs to send and the registry to dispatch with."""
        parallel = frozenset(
            key for entry in self._specs if entry.supports_parallel_tool_calls for key in _keys_of(entry.spec)
        )
        return list(self._specs), ToolRegistry(dict(self._handlers), parallel)


def _keys_of(spec: ToolSpec) -> Sequence[ToolKey]:
    if isinstance(spec, ResponsesApiTool | FreeformTool):
        return ((None, spec.name),)
    if isinstance(spec, NamespaceTool):
        return [(spec.name, tool.name) for tool in spec.tools]
    return ((NATIVE, str(spec.__struct_config__.tag)),)


class ToolSource(Protocol):
    """Where tools come from: built in, MCP servers, dynamic tools, plugins. A new `revision` means: ask again."""

    @property
    def revision(self) -> int: ...

    def register(self, builder: ToolRegistryBuilder) -> None:
        """Add the tools that are there now."""
        ...
