"""What a server's process is started with. A server is somebody else's program: it gets no secrets of ours unasked."""

import os
from collections.abc import Mapping

from ferrule.process.environment import CORE_VARIABLES
from ferrule.protocol.mcp_settings import McpServerSettings

BASE_VARIABLES = frozenset(
    {
        *CORE_VARIABLES,
        "TERM", "TZ", "LC_MESSAGES", "LANGUAGE",
        "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
        "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
    }
)  # fmt: skip
"""What every server gets, in either case: enough to find programs, its home, a proxy and the user's language."""


def server_environment(settings: McpServerSettings, base: Mapping[str, str]) -> dict[str, str]:
    """The base set, the variables that are passed on by name, and over both the configured values."""
    wanted = set(settings.env_vars)
    inherited = {
        name: value
        for name, value in base.items()
        if name in wanted or (name.upper() in BASE_VARIABLES and not value.startswith("()"))  # a shell function
    }
    return inherited | settings.env


def server_directory(settings: McpServerSettings, session_cwd: str) -> str:
    """Where the server runs, absolute."""
    return os.path.normpath(os.path.join(session_cwd, os.path.expanduser(settings.cwd or ".")))
