"""Caches of build tools: a writable folder for each project, and a hint where the user's own cache is read-only."""

import os
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

CACHES = "caches"
"""The folder below Ferrule's home. The runtime itself never runs or trusts anything in it."""
VARIABLES: Mapping[str, str] = {
    "UV_CACHE_DIR": "uv",
    "npm_config_cache": "npm",
    "PIP_CACHE_DIR": "pip",
    "GOCACHE": "go-build",
    "GOMODCACHE": "go-mod",
    "CCACHE_DIR": "ccache",
}
"""The variable that tells each tool where its cache is, and the name of its folder in ours."""

_NAME_CHARS, _KEY_CHARS = 40, 16
"""Characters of the project's name, for people who look; and of its path's digest, which tells namesakes apart."""
_SEARCHED = 1 << 16
"""Characters at the end of an output that are searched for a refusal: failures come last."""
_REFUSED = re.compile(
    r"read-only file system|permission denied|operation not permitted|\b(?:EROFS|EACCES|EPERM)\b|\bENOENT\b.*\bmkdir\b",
    re.IGNORECASE,
)
"""Node reports ENOENT where it may not make a folder below a missing one."""
_PATH = re.compile(r"/[^\s'\"`:;,()<>|]+")
_ELSEWHERE: tuple[tuple[str, str], ...] = (
    (".cache/uv", "UV_CACHE_DIR"),
    (".cache/pip", "PIP_CACHE_DIR"),
    (".cache/go-build", "GOCACHE"),
    (".cache/ccache", "CCACHE_DIR"),
    (".ccache", "CCACHE_DIR"),
    (".npm", "npm_config_cache"),
    ("go/pkg/mod", "GOMODCACHE"),
    (".cargo", "CARGO_HOME"),
    (".gradle", "GRADLE_USER_HOME"),
    (".yarn", "YARN_CACHE_FOLDER"),
    (".bun", "BUN_INSTALL_CACHE_DIR"),
    (".nuget", "NUGET_PACKAGES"),
    (".cache/pre-commit", "PRE_COMMIT_HOME"),
    (".cache/ms-playwright", "PLAYWRIGHT_BROWSERS_PATH"),
    (".cache/huggingface", "HF_HOME"),
    (".cache", "XDG_CACHE_HOME"),
    (".m2", ""),
    (".local/share/pnpm", ""),
    (".local/share/uv", "UV_PYTHON_INSTALL_DIR"),
)
"""Caches in a home folder, narrower paths first, and the variable that moves each; empty if there is none."""


def project_caches(own_home: str, top: str) -> str:
    """Return the cache folder of the project at the real path `top`."""
    name = re.sub(r"[^\w.-]", "_", os.path.basename(top))[:_NAME_CHARS] or "root"
    return str(Path(own_home, CACHES, f"{name}-{sha256(os.fsencode(top)).hexdigest()[:_KEY_CHARS]}"))


def cache_variables(folder: str) -> dict[str, str]:
    """Return the variables that point the tools to the folder."""
    return {variable: str(Path(folder, name)) for variable, name in VARIABLES.items()}


def cache_hint(output: str, env: Mapping[str, str]) -> str | None:
    """Name the cache that a failed command could not write, and what to do about it; None if there is none."""
    for line in output[-_SEARCHED:].splitlines():
        if _REFUSED.search(line):
            for path in _PATH.findall(line):
                for folder, variable in _folders(env):
                    if (path + "/").startswith(folder + "/"):
                        return _hint(folder, variable)
    return None


def _folders(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the user's caches: where variables put them, and their default places."""
    home = env.get("HOME") or os.path.expanduser("~")
    for variable in VARIABLES:
        if os.path.isabs(env.get(variable, "")):
            yield env[variable].rstrip("/"), variable
    for name, variable in _ELSEWHERE:
        yield f"{home.rstrip('/')}/{name}", variable


def _hint(folder: str, variable: str) -> str:
    """Write one sentence on the folder, one for the caller, one for the user."""
    said = f"note: {folder} is a cache that commands in the sandbox cannot write."
    if variable:
        said += f" Set {variable} to a folder that they can, such as /tmp/{os.path.basename(folder).lstrip('.')}."
    setting = "`caches = true`" if variable in VARIABLES else f'`writable_roots = ["{folder}"]`'
    return f"{said} The user can set {setting} below [sandbox_workspace_write] in config.toml."
