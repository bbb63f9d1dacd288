"""A sandbox around one folder: for a program that we start for a user, and that is to leave nothing else behind."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from ferrule.protocol.permissions import WorkspaceWrite
from ferrule.sandbox.sandbox import Sandbox, open_launcher


def confined_to_a_folder(home: str, *, unconfined_accepted: bool = False) -> Callable[[str], Awaitable[Sandbox]]:
    """Return what opens a sandbox whose processes read the disk, reach no network, and write the folder that it is
    given alone. `home` and `unconfined_accepted` as in `open_launcher`."""
    policy = WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
    return partial(_opened, policy, Path(home), unconfined_accepted)


async def _opened(policy: WorkspaceWrite, home: Path, unconfined_accepted: bool, folder: str) -> Sandbox:
    return await open_launcher(policy, folder, home, unconfined_accepted=unconfined_accepted)
