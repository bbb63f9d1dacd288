"""Opens the project's folder for the caches of build tools, where the user has asked for one."""

import os
from pathlib import Path

import msgspec

from ferrule.config.load import project_root
from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import SandboxPolicy, WorkspaceWrite
from ferrule.protocol.settings import Settings
from ferrule.sandbox.caches import cache_variables, project_caches


def with_caches(settings: Settings) -> tuple[SandboxPolicy, dict[str, str]]:
    """Make the folder of caches. Returns the policy under which commands may write there, and the variables by which
    tools find it; without the setting neither changes. Raises `UsageError` where that fails."""
    policy = settings.sandbox_policy
    if not settings.caches or not isinstance(policy, WorkspaceWrite):
        return policy, {}
    folder = project_caches(os.path.realpath(settings.home), project_root(os.path.realpath(settings.cwd)))
    try:
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the folder for caches {folder} cannot be made: {error.strerror}") from error
    chosen = settings.shell_environment_policy.set
    variables = {name: path for name, path in cache_variables(folder).items() if name not in chosen}
    return msgspec.structs.replace(policy, writable_roots=(*policy.writable_roots, folder)), variables
