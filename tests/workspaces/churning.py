"""A process that makes workspaces and patches until a line on its input ends it; it says how many it made.

python churning.py SCRATCH REPOSITORY
"""

import asyncio
import sys

from ferrule.workspaces import Empty, Repository, Workspaces, own_mounts


async def main(scratch: str, path: str) -> None:
    made, ended = 0, asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    while not ended.done():
        async with Workspaces.open(scratch, MOUNTS) as workspaces:
            for source in (Repository(path), Empty(), Repository(path)):
                async with workspaces.enter(source) as workspace:
                    (workspace.path / "new").write_text("x\n")
                    (workspace.path / ".git/HEAD").unlink(missing_ok=True)
                    assert (await workspace.patch()).startswith("diff --git a/new b/new\n")
                    made += 1
    print(made)


if __name__ == "__main__":
    MOUNTS = own_mounts()
    asyncio.run(main(*sys.argv[1:]))
