"""The table `[web_search]`: which backend searches the web for models, whatever their provider can."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

SearchBackendName = Literal["searxng", "brave", "tavily", "command", "mcp"]
_KEYS = {"brave": "BRAVE_API_KEY", "tavily": "TAVILY_API_KEY"}
"""Variables that have the key where `env_key` names none."""


class WebSearchSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A way to search the web.

    `base_url` is the server's address (searxng; brave and tavily have their own), `env_key` the variable with its key.
    `command` is a program and its arguments; `server` is an MCP server of the configuration, `tool` its search tool.
    `timeout_sec` limits one search. `allowed_domains`: only pages of these are shown and opened, with all below them.
    """

    backend: SearchBackendName | None = None
    base_url: str | None = None
    env_key: str | None = None
    command: tuple[str, ...] = ()
    server: str | None = None
    tool: str | None = None
    timeout_sec: Annotated[float, msgspec.Meta(gt=0)] = 20.0
    allowed_domains: tuple[str, ...] = ()

    @property
    def key_variable(self) -> str | None:
        """The variable with the backend's key, if it takes one."""
        return self.env_key or _KEYS.get(self.backend or "")

    def missing(self, env: Mapping[str, str], servers: Mapping[str, object]) -> str | None:
        """Return what is missing for a search, as the rest of a sentence; `servers` are the MCP servers."""
        match self.backend:
            case None:
                return NO_BACKEND
            case "searxng" if not self.base_url:
                return "the setting web_search.base_url is missing: the address of a SearXNG server"
            case "command" if not self.command:
                return "the setting web_search.command is missing: a program and its arguments"
            case "mcp" if not self.server:
                return "the setting web_search.server is missing: the name of an MCP server"
            case "mcp" if self.server not in servers:
                return f"web_search.server names {self.server!r}, and there is no such table in mcp_servers"
        variable = self.key_variable
        if variable is not None and self.backend in _KEYS and not env.get(variable):
            return f"the variable {variable}, in which web_search.env_key expects the key, has no value"
        return None


NO_BACKEND = (
    'the setting web_search.backend is missing: a table [web_search] with backend = "searxng", "brave", "tavily", '
    '"command" or "mcp"'
)
