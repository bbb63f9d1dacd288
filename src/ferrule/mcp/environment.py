"""The environment of a server's process: somebody else's program, which gets none of our secrets unasked."""

import os
from collections.abc import Mapping

from ferrule.lookup import NOWHERE, Located, Places, locate, safe_search
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
"""Variables of every server, in upper or lower case: enough to find programs, its home, a proxy and the language."""


def server_program(settings: McpServerSettings, base: Mapping[str, str], places: Places) -> Located:
    """Find the server's program. A command with a path is taken as it is; a bare name is never looked up in `places`,
    where commands can write."""
    command = os.path.expanduser(settings.command or "")
    if "/" in command:
        return Located(command)
    return locate(command, settings.env.get("PATH", base.get("PATH")), places)


def server_environment(
    settings: McpServerSettings, base: Mapping[str, str], places: Places = NOWHERE
) -> dict[str, str]:
    """Return the base set and the variables passed on by name, overridden by the configured values. What the server
    itself starts by name (as npx does node) comes from none of the `places` either, unless PATH is configured."""
    if "PATH" in base:
        base = {**base, "PATH": safe_search(base["PATH"], places)}
    wanted = set(settings.env_vars)
    inherited = {
        name: value
        for name, value in base.items()
        if name in wanted or (name.upper() in BASE_VARIABLES and not value.startswith("()"))  # a shell function
    }
    return inherited | settings.env


def server_directory(settings: McpServerSettings, session_cwd: str) -> str:
    """Return the server's working directory, absolute."""
    return os.path.normpath(os.path.join(session_cwd, os.path.expanduser(settings.cwd or ".")))
