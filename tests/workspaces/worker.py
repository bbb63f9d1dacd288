"""A process with mounts of its own: it enters a workspace, tells where, and makes the patch when it is told to.

python worker.py SCRATCH KIND [PATH [whole]]
"""

import asyncio
import json
import sys
from collections.abc import Callable

from ferrule.workspaces import Empty, Folder, Repository, Source, Workspaces, own_mounts

KINDS: dict[str, Callable[[str], Source]] = {"folder": Folder, "repository": Repository, "empty": lambda path: Empty()}


async def main(scratch: str, kind: str, path: str = "", *words: str) -> None:
    source, whole = KINDS[kind](path), words == ("whole",)
    async with Workspaces.open(scratch, MOUNTS) as workspaces, workspaces.enter(source, whole=whole) as workspace:
        print(json.dumps([str(workspace.path), workspaces.notice]), flush=True)
        while code := await asyncio.to_thread(sys.stdin.readline):
            exec(json.loads(code), {"path": workspace.path})
            print(json.dumps(await workspace.patch()), flush=True)


if __name__ == "__main__":
    MOUNTS = own_mounts()
    asyncio.run(main(*sys.argv[1:]))
