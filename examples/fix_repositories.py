"""Fix the tests of many repositories: a patch for each whose tests fail.

    python examples/fix_repositories.py ~/src --test "python3 -m unittest" --out patches

Nothing in your repositories is written: tests run, and the agent works, in fresh copies of HEAD, in a sandbox without a
network. The copy is tested once more when the agent is done. What passes becomes OUT/NAME.patch, for `git apply`; what
does not, OUT/NAME.failed.patch. A repository that has its patch already is passed over, so the same command goes on
where it was stopped. Exits with 0 if every failure has its patch, with 1 if one has not, with 2 if nothing was done.
"""

import argparse
import asyncio
import os
import re
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

from ferrule import FerruleError, Toolset, UsageError, batch
from ferrule.workspaces import Repository, WorkspaceError, Workspaces

TEST_SECONDS = 600
FIX_SECONDS = 1800

TEST_FILE = re.compile(r"^diff --git a/.* b/(.*((?<![a-z])tests?|Tests?)(?![a-z]).*)$", re.MULTILINE)

PROMPT = """\
The tests of this repository fail. Find out why and fix the code; change a test only if the test is wrong, and say so.
Run `{test}` until it passes. This is its output:

{output}"""


def repositories_in(folder: Path) -> list[Path]:
    found = [path for path in sorted(folder.iterdir()) if (path / ".git").exists()] if folder.is_dir() else []
    if not found:
        raise UsageError(f"there is no git repository in {folder}")
    return found


async def task_for(
    repository: Path, test: str, workspaces: Workspaces, turn: asyncio.Semaphore
) -> dict[str, Any] | WorkspaceError | None:
    """Return the task to fix a repository: None if its tests pass, an error if they cannot be tried."""
    try:
        async with (
            turn,
            workspaces.enter(Repository(str(repository))) as workspace,
            Toolset.for_model("none", tools=["shell_command"], cwd=workspace.path) as tools,
        ):
            done = await tools.call("shell_command", {"command": test, "timeout_ms": TEST_SECONDS * 1000})
    except WorkspaceError as error:
        return error
    if done.success:
        return None
    return {
        "id": repository.name,
        "repository": str(repository),
        "prompt": PROMPT.format(test=test, output=done.text),
        "check": test,
        "max_seconds": FIX_SECONDS,
    }


def keep(result: dict[str, Any], out: Path) -> bool:
    """Write the patch of a result and tell of it. Return whether it makes the tests pass."""
    name, patch, passes = result["id"], result["patch"], result["verdict"] == "pass"
    fixed, failed = out / f"{name}.patch", out / f"{name}.failed.patch"
    failed.unlink(missing_ok=True)
    if not patch or not passes:
        why = result["error"] or ("they passed this time, without a change" if passes else "its tests still fail")
        print(f"failed  {name}: {why}" + (f"; what was tried is in {failed}" if patch else ""))
        if patch:
            failed.write_text(patch, "utf-8")
        return False
    fixed.write_text(patch, "utf-8")
    tokens = result["usage"]["input_tokens"] + result["usage"]["output_tokens"]
    print(f"fixed   {name}: {fixed} ({result['seconds']:.0f} s, {tokens:,} tokens)")
    for changed in TEST_FILE.finditer(patch):
        print(f"        it changes {changed[1]}: see that this test still proves something")
    return True


async def fix(folder: Path, test: str, out: Path, workers: int) -> bool:
    """Fix what fails. Return whether there is no failure without a patch now."""
    repositories = repositories_in(folder)
    out.mkdir(parents=True, exist_ok=True)
    waiting = [path for path in repositories if not (out / f"{path.name}.patch").exists()]
    turn = asyncio.Semaphore(workers)
    async with Workspaces.open(out / ".workspaces") as workspaces:
        found = await asyncio.gather(*(task_for(path, test, workspaces, turn) for path in waiting))
    tasks = [task for task in found if isinstance(task, dict)]
    broken = [error for error in found if isinstance(error, WorkspaceError)]
    print(f"{len(repositories)} repositories, {len(repositories) - len(waiting)} patched before, {len(tasks)} to fix")
    for error in broken:
        print(f"failed  {error}")
    if not tasks:
        return not broken
    results = batch.run(
        tasks,
        workers=workers,
        model=os.environ.get("OPENAI_MODEL"),
        base_url=os.environ.get("OPENAI_BASE_URL"),
        api_key=os.environ.get("OPENAI_API_KEY"),
    )
    async with aclosing(results):
        return all([keep(result, out) async for result in results]) and not broken


def main() -> int:
    parser = argparse.ArgumentParser(description="Fix the tests of many repositories.")
    parser.add_argument("folder", type=Path, help="the folder with the repositories")
    parser.add_argument("--test", required=True, help="the command that fails where something is wrong")
    parser.add_argument("--out", type=Path, default=Path("patches"), help="the folder for the patches (patches)")
    parser.add_argument("--workers", type=int, default=4, help="how many are worked on at a time (4)")
    args = parser.parse_args()
    try:
        return 0 if asyncio.run(fix(args.folder, args.test, args.out, args.workers)) else 1
    except FerruleError as error:
        print(f"fix_repositories: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
