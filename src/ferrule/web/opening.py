"""From the table `[web_search]` to a browser for models."""

import os
from collections.abc import Awaitable, Callable, Mapping

from ferrule.documents.extraction import Place
from ferrule.egress.guard import Guard
from ferrule.egress.names import BadDomain
from ferrule.lookup import NOWHERE, Places
from ferrule.protocol.errors import UsageError
from ferrule.protocol.web_settings import WebSearchSettings
from ferrule.web.browser import Browser
from ferrule.web.http_backends import BRAVE_URL, TAVILY_URL, Brave, Searxng, Tavily
from ferrule.web.other_backends import CommandBackend, SearchTool, ToolBackend
from ferrule.web.reader import PageReader
from ferrule.web.search import SearchBackend
from ferrule.web.urls import SiteFilter

Connect = Callable[[str, str | None], Awaitable[SearchTool]]
"""Connects an MCP server by its name, and returns its search tool, or the one of this name."""


def open_browser(
    settings: WebSearchSettings,
    guard: Guard,
    connect: Connect,
    *,
    ca_file: str | None = None,
    cwd: str = os.sep,
    env: Mapping[str, str] = os.environ,
    places: Places = NOWHERE,
    parsing: Place | None = None,
) -> Browser:
    """Return a browser; nothing is connected or started yet. `settings` miss nothing. Pages are reached through
    `guard`, and parsed in `parsing`. Raises `UsageError`."""
    try:
        bounds = SiteFilter.read(settings.allowed_domains) if settings.allowed_domains else None
    except BadDomain as error:
        raise UsageError(f"web_search.allowed_domains: {error}") from error
    backend = _backend(settings, connect, ca_file, cwd, env, places)
    return Browser(backend, PageReader(guard, ca_file=ca_file, place=parsing), bounds)


def _backend(
    settings: WebSearchSettings,
    connect: Connect,
    ca_file: str | None,
    cwd: str,
    env: Mapping[str, str],
    places: Places,
) -> SearchBackend:
    variable = settings.key_variable or ""
    if settings.backend == "command":
        return CommandBackend(
            settings.command,
            timeout=settings.timeout_sec,
            cwd=cwd,
            env=env,
            passed=(variable,) if variable else (),
            places=places,
        )
    if settings.backend == "mcp":
        return ToolBackend(lambda: connect(settings.server or "", settings.tool), timeout=settings.timeout_sec)
    kind, usual = {"brave": (Brave, BRAVE_URL), "tavily": (Tavily, TAVILY_URL)}.get(
        settings.backend or "", (Searxng, "")
    )
    return kind(
        settings.base_url or usual,
        key=env.get(variable, ""),
        env_key=variable,
        timeout=settings.timeout_sec,
        ca_file=ca_file,
    )
