"""The sources of a session's tools: built-in ones by name, and those that the caller brings."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ferrule.builtin import BUILTINS, Builtin
from ferrule.builtin.interception import PATCH_TOOL
from ferrule.builtin.shell_selection import SHELL_TOOLS, current_platform, select_shell
from ferrule.builtin.table import OPENS_PAGES, SCREENS
from ferrule.protocol.computer_settings import ComputerSettings
from ferrule.protocol.errors import UsageError
from ferrule.protocol.items import ResponseItem, ToolSearchOutput
from ferrule.protocol.profiles import ModelProfile
from ferrule.protocol.settings import Features
from ferrule.protocol.specs import ApplyPatchTool, LocalShell, ShellTool, ToolSearchTool, ToolSpec, runs_here
from ferrule.tools.catalogue import Tool, matching_names, registered_tools, resolve_tool, unknown_tool
from ferrule.tools.conversation import Conversation, ConversationState
from ferrule.tools.handler import DeferredHandler, ToolHandler
from ferrule.tools.registry import NATIVE, ToolRegistryBuilder, ToolSource
from ferrule.tools.search import MAX_LISTED, ToolSearch, as_loaded_specs, loaded_keys

ToolLike = Any
"""A name, glob or `/regex/`; a `Tool` spec; a `ToolDefinition` or other definition with spec, or its class with
`create`; a plain function; a `Computer`; the spec of a native tool that runs here."""

_NATIVE_SPECS: dict[type[Any], str] = {
    LocalShell: "local_shell",
    ShellTool: "native_shell",
    ApplyPatchTool: "native_apply_patch",
    ToolSearchTool: "tool_search",
}
"""The built-in tools that run what these specs stand for."""

_FUNCTION_FORMS: dict[type[Any], str] = {
    LocalShell: "shell_command",
    ShellTool: "shell_command",
    ApplyPatchTool: PATCH_TOOL,
}
"""The built-in functions that do the same for a server that knows only functions."""
_NATIVE_SHELLS = frozenset({"local_shell", "native_shell"})


AGENT_TOOLS = ("spawn_agent", "send_input", "wait", "wait_agent", "resume_agent", "close_agent", "list_agents")
"""The tools by which a model works with sub-agents."""
WEB_TOOLS = ("web_search", "open_page", "find_in_page")
"""The tools that search the web, where that is configured."""
FOLDER_TOOL = "file_search"
"""The tool that searches the folders which the user has named."""
IMAGE_TOOL = "image_generation"
"""The tool that makes images, where that is configured."""
ASKS_USER = "request_user_input"
"""Shown to the model only where somebody answers."""


class BuiltinSource:
    """Built-in tools. Their specs are cheap; a handler is made when its tool is first called."""

    revision = 0

    def __init__(self, names: Iterable[str], state: ConversationState) -> None:
        self._tools = [BUILTINS[name] for name in names]
        self._state = state
        self._patch = DeferredHandler(_loader(BUILTINS[PATCH_TOOL], state))
        self._handlers = {tool.name: DeferredHandler(_loader(tool, state)) for tool in self._tools}

    @property
    def runs_commands(self) -> bool:
        """True if one of them starts processes."""
        return any(tool.starts_processes for tool in self._tools)

    def register(self, builder: ToolRegistryBuilder) -> None:
        """Add the tools, shown in the order of their names' list."""
        for tool in self._tools:
            if not tool.hidden and (tool.name != ASKS_USER or self._state.permissions.answers_questions):
                builder.push_spec_with_parallel_support(tool.spec(self._state), tool.parallel, read_only=tool.read_only)
            builder.register_handler(tool.called, self._handlers[tool.name], namespace=tool.namespace)
            if tool.name in SCREENS:
                builder.register_handler(tool.called, self._handlers[tool.name])
        if not _NATIVE_SHELLS.isdisjoint(self._handlers):
            shell = BUILTINS[_FUNCTION_FORMS[LocalShell]]
            builder.register_fallback(shell.called, DeferredHandler(_loader(shell, self._state)))
        if self.runs_commands:  # a command that is a patch goes to the patch tool, offered or not
            builder.register_fallback(PATCH_TOOL, self._patch)


def function_form(spec: ToolSpec, state: ConversationState) -> ToolSpec:
    """Return the function that does what a native tool does which runs here; every other tool as it is."""
    name = _FUNCTION_FORMS.get(type(spec))
    return BUILTINS[name].spec(state) if name is not None and runs_here(spec) else spec


def _loader(tool: Builtin, state: ConversationState) -> Callable[[], ToolHandler]:
    return lambda: tool.create(state)[0]


class SearchSource:
    """Tool search, the last of the sources: where there are too many tools it takes those of others out of what the
    model sees, and shows the search and what was found."""

    def __init__(self, state: ConversationState) -> None:
        self._state = state
        self._search = state.shared.get(ToolSearch)
        self._handler = DeferredHandler(_loader(BUILTINS["tool_search"], state))

    @property
    def revision(self) -> int:
        """Grows with every new tool that was found."""
        return self._search.revision

    def register(self, builder: ToolRegistryBuilder) -> None:
        """Defer what can wait, if there are more tools than a request should list."""
        deferred = builder.defer() if builder.listed > MAX_LISTED else []
        self._search.offer(deferred)
        shown = builder.has("tool_search", NATIVE)
        if deferred and not shown and not builder.has("search_tool_bm25"):
            tool = BUILTINS["tool_search"]
            builder.push_spec_with_parallel_support(tool.spec(self._state), tool.parallel, read_only=True)
        if deferred or shown:
            for namespace in (NATIVE, None):
                builder.register_handler("tool_search", self._handler, namespace=namespace)
        for spec in as_loaded_specs(self._search.found):
            builder.push_spec_with_parallel_support(spec, False, read_only=True)

    def recall(self, items: Iterable[ResponseItem]) -> None:
        """Take as found what searches in the history have found."""
        outputs = [item.view for item in items if isinstance(item.view, ToolSearchOutput)]
        self._search.mark(key for output in outputs for key in loaded_keys(output.tools))


class DefinitionSource:
    """Tools that exist already: what the caller brought, what the catalogue made."""

    revision = 0

    def __init__(self, tools: Iterable[Any]) -> None:
        self.tools = list(tools)

    @property
    def examples(self) -> list[tuple[str, Sequence[str]]]:
        """Examples of use by tool name."""
        return [(tool.name, tool.examples) for tool in self.tools if getattr(tool, "examples", ())]

    def register(self, builder: ToolRegistryBuilder) -> None:
        """Add the tools. A name that is taken is refused."""
        for tool in self.tools:
            if builder.has(tool.name, tool.namespace):
                raise UsageError(f"two tools are named {tool.name!r}; give one of them another name")
            read_only = tool.annotations.readOnlyHint
            builder.push_spec_with_parallel_support(tool.spec, tool.parallel, read_only=read_only)
            builder.register_handler(tool.name, tool, namespace=tool.namespace)


def tool_sources(
    conversation: Conversation,
    include: Iterable[str],
    tools: Sequence[ToolLike] | None,
    features: Features = Features(),  # noqa: B008 - frozen
) -> list[ToolSource]:
    """Return the sources of the requested tools, or of the tool set's if none are requested."""
    if tools is None:
        names = expand_profile(include, conversation.profile, features)
        if conversation.web is not None:
            names = list(dict.fromkeys((*names, *WEB_TOOLS)))
        if conversation.file_search is not None:
            names = list(dict.fromkeys((*names, FOLDER_TOOL)))
        if conversation.images is not None:
            names = list(dict.fromkeys((*names, IMAGE_TOOL)))
        return [BuiltinSource(names, conversation)]
    names, made = split_tools(tools, conversation)
    if features.multi_agent:
        names = list(dict.fromkeys((*names, *AGENT_TOOLS)))
    return [BuiltinSource(names, conversation), DefinitionSource(made)]


def expand_profile(
    include: Iterable[str],
    profile: ModelProfile,
    features: Features = Features(),  # noqa: B008 - frozen
) -> list[str]:
    """Return the built-in tools of a model: its form of shell, its form of patches, and what its tool set includes."""
    names = list(SHELL_TOOLS[select_shell(profile, features, current_platform())])
    if profile.apply_patch != "none":
        names.append("apply_patch")
    for entry in include:
        names.extend(matching_names(entry, BUILTINS))
    if features.multi_agent:
        names.extend(AGENT_TOOLS)
    return with_one_screen(name for name in names if name in BUILTINS)


def with_one_screen(names: Iterable[str]) -> list[str]:
    """Return the names, each once: of the screens only the first, and what goes with it."""
    listed = list(dict.fromkeys(names))
    screens = [name for name in listed if name in SCREENS]
    kept = [name for name in listed if name not in screens[1:]]
    return list(dict.fromkeys((*kept, OPENS_PAGES))) if screens else kept


def split_tools(tools: Sequence[ToolLike], state: Conversation) -> tuple[list[str], list[Any]]:
    """Names of built-in tools, and everything else made ready. A `Computer` is the screen of the built-in tool. Raises
    `UsageError` for what does not exist."""
    names: list[str] = []
    made: list[Any] = []
    for tool in tools:
        if isinstance(tool, str):
            builtin = matching_names(tool, BUILTINS)
            registered = matching_names(tool, registered_tools()) if not builtin else []
            names.extend(builtin)
            made.extend(one for name in registered for one in resolve_tool(name, state))
            if not builtin and not registered:
                raise unknown_tool(tool, [*BUILTINS, *registered_tools()])
        elif isinstance(tool, Tool) and tool.name in BUILTINS:
            if tool.params:
                raise UsageError(f"the built-in tool {tool.name!r} takes no params; it works where the session works")
            names.append(tool.name)
        elif isinstance(tool, Tool):
            if tool.name not in registered_tools():
                raise unknown_tool(tool.name, [*BUILTINS, *registered_tools()])
            made.extend(resolve_tool(tool, state))
        elif type(tool) in _NATIVE_SPECS:
            names.append(_NATIVE_SPECS[type(tool)])
        elif isinstance(tool, type) and hasattr(tool, "create"):
            made.extend(tool.create(conv_state=state))
        elif hasattr(tool, "spec"):
            made.append(tool)
        elif callable(tool):
            from ferrule.tools.decorator import tool as as_tool

            made.append(as_tool(tool))
        else:
            names.append(_bring_screen(tool, state))
    return with_one_screen(names), made


def _bring_screen(tool: ToolLike, state: Conversation) -> str:
    """Let the built-in tool use a `Computer`; return its name. Raises `UsageError` for anything else."""
    from ferrule.builtin.kept_screen import KeptScreen
    from ferrule.containers.screen.computer import Computer

    if not isinstance(tool, Computer):
        raise UsageError(f"{type(tool).__name__} is not a tool: give a name, a definition or a function")
    kept = state.shared.get(KeptScreen)
    if kept.brought not in (None, tool.screen):
        raise UsageError("a session has one screen: give one Computer")
    kept.brought = tool.screen
    width, height = tool.dimensions
    state.computer = ComputerSettings(display_width=width, display_height=height)
    return SCREENS[0] if state.profile.computer == "function" else state.profile.computer
