"""A batch from its tasks to its results: what the command and programs run."""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from ferrule.batch.driver import ALONE_AFTER, Driver, Progress
from ferrule.batch.messages import Setup
from ferrule.batch.places import clear, clear_node, folder_apart, try_place
from ferrule.batch.pool import LocalPool, WorkerPool
from ferrule.batch.results import ResultsFile, unfinished
from ferrule.batch.tasks import LONGEST_LINE, BadTask, Task, has_image, read_task
from ferrule.config import project_root
from ferrule.model.provider import open_model
from ferrule.process.plain import PlainLauncher
from ferrule.process.shell import LoginShell, Shell
from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import ReadOnly
from ferrule.protocol.settings import DEFAULT_MODEL, Settings
from ferrule.session.opener import SharedResources
from ferrule.session.opening import open_session
from ferrule.store.queue import TaskQueue

DEFAULT_WORKERS = 8
"""Tasks at a time: what most servers take, and most machines have memory for."""
QUEUE, ROLLOUTS, SCRATCH = ".queue", ".rollouts", ".work"
"""What the names of the files and folders beside the results end with."""


class Batch:
    """One run over tasks. `out` is the file of results; None: one that nobody needs afterwards.

    `prepare` comes first, then `lines`, then `close`. `bad` are the lines that were no tasks, in words. `progress` is
    kept up to date; `changed` is called then.
    """

    def __init__(
        self,
        settings: Settings,
        out: str | os.PathLike[str] | None,
        *,
        workers: int = DEFAULT_WORKERS,
        api_key: str | None = None,
        ray: str | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Raise `UsageError` for what cannot be."""
        if workers < 1:
            raise UsageError(f"a batch needs at least 1 worker, not {workers}")
        if out is not None and os.path.exists(out) and not os.path.isfile(out):
            raise UsageError(f"--out: {os.fspath(out)} is not a file")
        _try_home(settings.home)
        open_model(settings.provider, api_key=api_key).server.endpoint.headers()  # a key that is missing is said now
        self.progress = Progress()
        self.bad: list[str] = []
        self._settings = settings
        self._workers = workers
        self._api_key = api_key
        self._ray = ray
        self._changed = changed
        self._keeps = out is not None
        self._images = has_image(settings.sandbox_policy)
        self._open = ExitStack()
        if out is None:
            out = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="ferrule-batch-")), "results.jsonl")
        self._out = Path(os.path.realpath(out))

    def prepare(self, lines: Iterable[tuple[int, bytes | None]], base: str) -> None:
        """Read the results that are there, and all tasks, from numbered lines. Relative folders are below `base`.
        Blocking. Raises `UsageError` and `StoreError`; nothing was changed then that was there."""
        results = ResultsFile(self._out)
        self._open.callback(results.close)
        queue = TaskQueue(Path(f"{self._out}{QUEUE}"), ALONE_AFTER)
        self._open.callback(queue.close)
        try:
            there = dict(results.read(lambda start: unfinished(queue.results(), start)))
        except UsageError:
            if queue.is_empty():  # it was made just now, beside a file that is no batch's
                queue.remove()
            raise
        queue.forget(there)
        seen: set[str] = set()
        queue.add(
            (task.key, msgspec.json.encode(task)) for task in self._tasks(lines, base, seen) if task.key not in there
        )
        self.progress.total = len(seen)
        self.progress.earlier = len(seen) - queue.waiting(alone=False) - queue.waiting(alone=True)
        self.progress.errors = sum(there.get(key) == "error" for key in seen)
        self._results, self._queue = results, queue

    def earlier(self) -> Iterator[bytes]:
        """Yield the lines of results that were there."""
        return self._results.lines()

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """Do the tasks; yield each line of the results once it is written. Raises `UsageError` for settings with which
        no task could be done, and `FerruleError` where it cannot go on: what was finished is kept."""
        await _try_session(self._settings, self._api_key)
        scratch = self._scratch()
        rollouts = f"{self._out}{ROLLOUTS}"
        setup = Setup(
            settings=self._settings,
            api_key=self._api_key,
            slots=0,
            scratch=str(scratch),
            rollouts=rollouts,
            kept_rollouts=rollouts if self._keeps else None,
            images=self._images,
        )
        async with self._pool(setup) as pool:
            self.progress.began = time.monotonic()
            driver = Driver(self._queue, self._results, pool, self.progress, slots=self._workers, changed=self._changed)
            running = asyncio.create_task(driver.run())
            try:
                while (line := await driver.given.get()) is not None:
                    driver.taken()
                    yield line
                await running
            finally:
                running.cancel()
                await asyncio.wait([running])
        if self._queue.is_empty():
            self._queue.remove()
            await clear_node(scratch)

    @asynccontextmanager
    async def _pool(self, setup: Setup) -> AsyncIterator[WorkerPool]:
        if self._ray is not None:
            from ferrule.batch.ray_pool import RayPool

            async with RayPool.open(setup, self._ray) as pool:
                yield pool
            return
        await try_place(setup.scratch)
        try:
            yield LocalPool(setup, self._results.descriptor)
        finally:
            await clear(setup.scratch)

    def close(self) -> None:
        """Close all files."""
        self._open.close()

    def _tasks(self, lines: Iterable[tuple[int, bytes | None]], base: str, seen: set[str]) -> Iterator[Task]:
        for number, line in lines:
            try:
                if line is None:
                    raise BadTask(f"longer than {LONGEST_LINE // 2**20} MiB")
                task = read_task(line, base)
                if task.key in seen:
                    raise BadTask(f"the id {task.key} again")
            except BadTask as error:
                self.bad.append(f"line {number}: {error}")
                continue
            seen.add(task.key)
            self._images |= task.image is not None
            yield task

    def _scratch(self) -> Path:
        """Return the folder of the workspaces: beside the results, unless they lie in a repository, of which tasks
        would believe that they are in it."""
        beside = Path(f"{self._out}{SCRATCH}")
        top = project_root(str(self._out.parent))
        if not Path(top, ".git").exists():
            return beside
        return folder_apart(self._out)


async def _try_session(settings: Settings, api_key: str | None) -> None:
    """Open a session that does nothing. Raises `UsageError` for what would be wrong in each task, such as a tool that
    does not exist."""
    with tempfile.TemporaryDirectory() as cwd:
        model = open_model(settings.provider, api_key=api_key)
        login = LoginShell(PlainLauncher(), Shell("/bin/sh"), {}, cwd)
        settings = msgspec.structs.replace(
            settings,
            cwd=cwd,
            model=msgspec.structs.replace(settings.model, model=settings.model.model or DEFAULT_MODEL),
            sandbox_policy=ReadOnly(),
            mcp_servers={},
        )
        session = await open_session(settings, shared=SharedResources(model, login, Path(cwd, "nothing")))
        await session.aclose()


def _try_home(home: str) -> None:
    """Raise `UsageError` if Ferrule's own folder cannot be written: no task could run a command."""
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        reason = f"{home} cannot be written: {error.strerror}"
        raise UsageError(f"{reason}; set FERRULE_HOME to a folder that can") from error
