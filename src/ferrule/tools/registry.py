"""Map names to handlers, for one sampling step; rebuilt from its sources when they change."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Protocol

import msgspec

from ferrule.protocol.specs import ConfiguredToolSpec, FreeformTool, NamespaceTool, ResponsesApiTool, ToolSpec
from ferrule.tools.handler import DeferredHandler, ToolHandler
from ferrule.tools.risk_field import with_risk_field

ToolKey = tuple[str | None, str]

NATIVE = "native"
"""The namespace of native items' handlers (`shell_call`, `apply_patch_call`, `local_shell_call`)."""


class ToolRegistry:
    """A map from `(namespace, name)` to a handler. Immutable; deferred handlers are created on first use."""

    def __init__(
        self,
        handlers: dict[ToolKey, ToolHandler | DeferredHandler],
        parallel: frozenset[ToolKey],
        fallbacks: Mapping[ToolKey, ToolHandler | DeferredHandler] = {},
    ) -> None:
        self._handlers = handlers
        self._fallbacks = fallbacks
        self._parallel = parallel
        self._found: dict[ToolKey, FoundTool] = {}

    def find(self, name: str, namespace: str | None = None) -> "FoundTool | None":
        """Return the tool that a call means, or None."""
        found = self._found.get((namespace, name))
        if found is None:
            key = self.key(name, namespace)
            handler = self.handler(key[1], key[0])
            if handler is None:
                return None
            found = self._found[namespace, name] = FoundTool(handler, *key, key in self._parallel)
        return found

    def handler(self, name: str, namespace: str | None = None) -> ToolHandler | None:
        """Return the handler of a tool, or None."""
        found = self._handlers.get((namespace, name))
        if isinstance(found, DeferredHandler):
            found = self._handlers[(namespace, name)] = found.get()
        if found is None:
            fallback = self._fallbacks.get((namespace, name))
            return fallback.get() if isinstance(fallback, DeferredHandler) else fallback
        return found

    def key(self, name: str, namespace: str | None = None) -> ToolKey:
        """Return the key that a call means: its own; else that of the tool known by this name without namespaces, or
        by one of the name's parts with them."""
        key = (namespace, name)
        if key in self._handlers:
            return key
        if namespace is None:
            return self._flat.get(name, key)
        flat = (None, f"{namespace}__{name}")
        return flat if flat in self._handlers else key

    @cached_property
    def _flat(self) -> dict[str, ToolKey]:
        from ferrule.model.adapt import wire_name
        from ferrule.model.names import Callee

        return {wire_name(Callee(name, space).flat): (space, name) for space, name in self._handlers if space}

    def __iter__(self) -> Iterator[ToolKey]:
        """Yield every tool that can be called."""
        return iter(self._handlers)

    def load_all(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Create every deferred handler now (while the model thinks), as long as it `goes_on`."""
        for namespace, name in list(self._handlers):
            if goes_on():
                self.handler(name, namespace)

    def loaded(self) -> list[ToolHandler]:
        """Return the handlers created so far."""
        made = (
            handler.made if isinstance(handler, DeferredHandler) else handler
            for handler in (*self._handlers.values(), *self._fallbacks.values())
        )
        return list({id(handler): handler for handler in made if handler is not None}.values())


class FoundTool(msgspec.Struct, frozen=True):
    """A tool as found for a call: its handler, its key, and whether its calls may run beside others."""

    handler: ToolHandler
    namespace: str | None
    name: str
    parallel: bool


class DeferrableSpec(msgspec.Struct, frozen=True):
    """A spec that may be deferred to tool search. `titles`: display names of its tools, by their names."""

    entry: ConfiguredToolSpec
    titles: Mapping[str, str]


class ToolRegistryBuilder:
    """A builder of both halves of a registry: the specs that the model sees and the handlers that run."""

    __slots__ = ("_asks_for_risk", "_deferrable", "_deferred", "_fallbacks", "_handlers", "_specs")

    def __init__(self, *, asks_for_risk: bool = False) -> None:
        self._asks_for_risk = asks_for_risk
        self._handlers: dict[ToolKey, ToolHandler | DeferredHandler] = {}
        self._fallbacks: dict[ToolKey, ToolHandler | DeferredHandler] = {}
        self._specs: list[ConfiguredToolSpec] = []
        self._deferrable: list[DeferrableSpec] = []
        self._deferred: list[DeferrableSpec] = []

    def push_spec(self, spec: ToolSpec) -> None:
        """Show a tool to the model; its calls run alone."""
        self.push_spec_with_parallel_support(spec, False)

    def push_spec_with_parallel_support(
        self, spec: ToolSpec, supports_parallel: bool, *, read_only: bool = False
    ) -> None:
        """Show a tool to the model, and declare whether its calls may run beside others. One that is not `read_only`
        asks for the model's estimate of its risk, if the session wants that."""
        self._specs.append(self._configured(spec, supports_parallel, read_only))

    def push_deferrable(
        self,
        spec: ResponsesApiTool | FreeformTool | NamespaceTool,
        supports_parallel: bool,
        *,
        read_only: bool = False,
        titles: Mapping[str, str] = {},
    ) -> None:
        """Show external tools (MCP, dynamic, plugins) to the model or, if there are too many, let it search for them.
        They can be called in both cases."""
        self._deferrable.append(DeferrableSpec(self._configured(spec, supports_parallel, read_only), titles))

    def _configured(self, spec: ToolSpec, supports_parallel: bool, read_only: bool) -> ConfiguredToolSpec:
        return ConfiguredToolSpec(
            with_risk_field(spec) if self._asks_for_risk and not read_only else spec, supports_parallel
        )

    @property
    def listed(self) -> int:
        """How many tools the model sees."""
        return sum(len(_keys_of(entry.spec)) for entry in self._entries(self._deferrable))

    def defer(self) -> list[DeferrableSpec]:
        """Remove the deferrable tools so far from what the model sees, and return them."""
        self._deferred += self._deferrable
        self._deferrable = []
        return self._deferred

    def _entries(self, deferrable: list[DeferrableSpec]) -> list[ConfiguredToolSpec]:
        return [*self._specs, *(waiting.entry for waiting in deferrable)]

    def register_handler(
        self, name: str, handler: ToolHandler | DeferredHandler, *, namespace: str | None = None
    ) -> None:
        """Register `handler` for the calls of `name`. The first registration of a name stays: nothing shadows a
        tool."""
        self._handlers.setdefault((namespace, name), handler)

    def register_fallback(self, name: str, handler: ToolHandler | DeferredHandler) -> None:
        """Let `handler` run the calls of `name` where no tool has it. It is neither shown nor listed."""
        self._fallbacks.setdefault((None, name), handler)

    def has(self, name: str, namespace: str | None = None) -> bool:
        """Return whether the name is taken."""
        return (namespace, name) in self._handlers

    def build(self) -> tuple[list[ConfiguredToolSpec], ToolRegistry]:
        """Return the specs to send and the registry to dispatch with."""
        parallel = frozenset(
            key
            for entry in self._entries(self._deferrable + self._deferred)
            if entry.supports_parallel_tool_calls
            for key in _keys_of(entry.spec)
        )
        return self._entries(self._deferrable), ToolRegistry(dict(self._handlers), parallel, dict(self._fallbacks))


def _keys_of(spec: ToolSpec) -> Sequence[ToolKey]:
    if isinstance(spec, ResponsesApiTool | FreeformTool):
        return ((None, spec.name),)
    if isinstance(spec, NamespaceTool):
        return [(spec.name, tool.name) for tool in spec.tools]
    return ((NATIVE, str(spec.__struct_config__.tag)),)


class ToolSource(Protocol):
    """A source of tools: built in, MCP servers, dynamic tools, plugins. A changed `revision` means: register again."""

    @property
    def revision(self) -> int: ...

    def register(self, builder: ToolRegistryBuilder) -> None:
        """Add the current tools."""
        ...


class LiveSource(ToolSource, Protocol):
    """A source whose tools change by themselves (MCP servers)."""

    async def settled(self) -> None:
        """Wait briefly for pending changes; called before each request."""
        ...

    async def aclose(self) -> None:
        """Close the source at the end of the session."""
        ...
